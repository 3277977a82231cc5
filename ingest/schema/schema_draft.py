# SPDX-License-Identifier: Apache-2.0
"""The next schema of an existing table, built change by change as a policy allows.

Pure. Changes that the policy forbids are answered instead: columns that are left out of rows
(`ignored`), columns whose values must fit the existing type (`fixed`), a parked table (`parked`) or
a stopped stream (`stop`). Every requested change ends as a `Verdict`.

1. `apply_ddl`, then `request_column`, in the order of precedence;
2. `finish` once.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from ingest.config.choices import ChangeKind
from ingest.decode.columns import ColumnNames, folded, free_name, spelt
from ingest.decode.events import ObservedField, SchemaDelta
from ingest.decode.schema_change_events import TableDdl
from ingest.decode.types.semantic_types import STRING, guessed_union, has_text, nullable, union_type
from ingest.schema.routing import ChangePolicy, Incompatible, Mode, Outcome, PolicyDecision, Verdict
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateType,
    evolve,
)
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    TypeRoot,
    as_path,
    path_text,
    type_name,
)

_LONGEST_WHY = 2_000


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """The record that requested a change."""

    source: str
    topic: str
    partition: int
    offset: int

    @staticmethod
    def of(delta: SchemaDelta) -> "ChangeOrigin":
        """Of a row event."""
        return ChangeOrigin(delta.source.address, delta.topic, delta.partition, delta.offset)


@dataclasses.dataclass(frozen=True, slots=True)
class NewTable:
    """Create the table with this schema."""

    schema: TableSchema


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing can be done."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and whether it is enough.

    Attributes:
        action: create, change (empty = nothing to do) or refuse.
        reasons: why some of the deltas remain uncovered; empty = all are covered.
        notes: how a new table differs from the settings.
        verdicts: outcomes of all requested changes.
        ignored: columns of the source that are to be left out of rows.
        fixed: columns of the source and types (as text) that need not be requested again.
        parked: why the table must be parked; "" = it is not.
        stop: the change for which the stream is to stop before anything is committed.
    """

    action: NewTable | tuple[SchemaChange, ...] | Refusal
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    ignored: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    parked: str = ""
    stop: Verdict | None = None

    @property
    def complete(self) -> bool:
        """Whether every delta is covered after the action."""
        return not self.reasons

    @property
    def why(self) -> str:
        """The reasons as one text of bounded length, for the records that stay uncovered."""
        text = "; ".join(dict.fromkeys(self.reasons))
        return text if len(text) <= _LONGEST_WHY else f"{text[: _LONGEST_WHY - 1]}…"

    def as_refused(self, reason: str) -> "Decision":
        """The decision after its action turned out to be impossible."""
        verdicts = tuple(
            dataclasses.replace(verdict, outcome=Outcome.REFUSED, reason=reason)
            if verdict.outcome is Outcome.APPLIED
            else verdict
            for verdict in self.verdicts
        )
        return dataclasses.replace(
            self, action=Refusal(reason), reasons=(*self.reasons, reason), verdicts=verdicts
        )


@dataclasses.dataclass(slots=True)
class Step:
    """A change to try, its verdict, and its effect on the table's names."""

    change: SchemaChange | None
    verdict: Verdict | None
    names: Callable[[ColumnNames], ColumnNames]

    def widen(self, change: SchemaChange, type_: DataType) -> None:
        """The same with another type."""
        self.change = change
        if self.verdict is not None:
            self.verdict = dataclasses.replace(self.verdict, new=type_name(type_))


def unchanged(names: ColumnNames) -> ColumnNames:
    """For steps that change no names."""
    return names


def verdict_of(kind: ChangeKind, column: str, old: str, new: str, origin: ChangeOrigin) -> Verdict:
    """A verdict for an applied change; callers replace the outcome of others."""
    return Verdict(
        kind=kind,
        column=column,
        old=old,
        new=new,
        outcome=Outcome.APPLIED,
        source=origin.source,
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
    )


def is_text(type_: DataType) -> bool:
    """Whether a column of the type holds text."""
    return isinstance(type_, AtomicType) and type_.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


def option_changes(existing: TableSchema, names: ColumnNames) -> list[SchemaChange]:
    """Changes of the table's options that make them equal to `names`."""
    changes: list[SchemaChange] = []
    for key, text in names.options().items():
        if text and existing.options.get(key) != text:
            changes.append(SetOption(key, text))
        elif not text and key in existing.options:
            changes.append(RemoveOption(key))
    return changes


class Draft:
    """See the module."""

    def __init__(self, existing: TableSchema, policy: ChangePolicy) -> None:
        self._existing = existing
        self._policy = policy
        self._names = ColumnNames.of(existing.options, exact=policy.exact_names)
        self._types: dict[str, DataType] = {f.name: f.type for f in existing.fields}
        self._key = {*existing.primary_keys, *existing.partition_keys}
        self._renames: dict[str, str] = {}
        """Names of columns of the existing schema after the renames of this draft."""
        self._steps: list[Step] = []
        self._step_of: dict[str, Step] = {}
        self._verdicts: list[Verdict] = []
        self._reasons: list[str] = []
        self._ignored: dict[str, None] = {}
        self._fixed: dict[tuple[str, str], None] = {}
        self._parked = ""
        self._stop: Verdict | None = None

    def need(self, change: SchemaChange) -> None:
        """A change that the pipeline itself needs, whatever the policy."""
        verdict = None
        if isinstance(change, AddColumn):
            column, type_ = path_text(as_path(change.name)), type_name(change.type)
            verdict = verdict_of(
                ChangeKind.ADD_COLUMN, column, "", type_, ChangeOrigin("", "", -1, -1)
            )
            verdict = dataclasses.replace(verdict, reason="made by the pipeline")
        self._steps.append(Step(change, verdict, unchanged))

    # --- changes that row events request

    def request_column(self, delta: SchemaDelta, field: ObservedField) -> None:
        """A column of the source that the table does not cover."""
        origin = ChangeOrigin.of(delta)
        slots = self._slots(delta, field)
        if not slots:
            self._add(field, origin)
            return
        if slots[0] in self._key:
            self._fix(field)  # decoded into the type it has, value by value
            return
        if slots[0] in self._names.texts and has_text(field.type):
            self._fix(field)
            return
        unions = [(name, self._union(name, field.type)) for name in slots]
        fitting = [(name, union) for name, union in unions if union is not None]
        if any(union == self._types[name] for name, union in fitting):
            self._fix(field)
        elif fitting:
            self._widen(field, *fitting[0], origin)
        else:
            self._incompatible(field, slots[0], origin)

    def _union(self, name: str, observed: DataType) -> DataType | None:
        """The type of a column that also holds values of another type; None = there is none."""
        step = self._step_of.get(name)
        is_new = step is not None and isinstance(step.change, AddColumn)
        return (guessed_union if is_new else union_type)(self._types[name], observed)

    def _slots(self, delta: SchemaDelta, field: ObservedField) -> tuple[str, ...]:
        column = self._renames.get(field.column, field.column)
        if column in self._types and column:
            first_slot: tuple[str, ...] = (column,)
        elif field.name in self._types and field.name not in self._names.further:
            first_slot = (field.name,)
        else:  # a name that is a former one since this draft
            names = {*self._existing.field_names} - {*delta.lacks}
            present = {self._renames.get(name, name) for name in names}
            present |= {observed.name for observed in delta.fields}
            return self._names.slots(field.name, self._types, present)
        further = self._names.typed.get(first_slot[0] if first_slot else field.name, ())
        return first_slot + tuple(name for name in further if name in self._types)

    def _fix(self, field: ObservedField) -> None:
        self._fixed[field.name, type_name(nullable(field.type))] = None

    def _add(self, field: ObservedField, origin: ChangeOrigin) -> None:
        kind = ChangeKind.ADD_COLUMN
        field = dataclasses.replace(field, name=self._names.current_name(field.name, self._types))
        if field.name in self._types:
            return  # another shape of the batch has just added it
        verdict = verdict_of(kind, field.name, "", type_name(field.type), origin)
        why_dropped = self._names.dropped.get(self._spelt(field.name, self._names.dropped))
        if why_dropped is not None:
            self._ignored[field.name] = None
            self._record(verdict, Outcome.IGNORED, why_dropped)
            return
        decision = self._policy.decide(kind)
        if decision is PolicyDecision.STOP:
            self._record_stop(verdict, "schema.change.behavior is exception")
        elif decision is PolicyDecision.KEEP:
            self._ignored[field.name] = None
            self._record(verdict, Outcome.IGNORED, self._policy.why_kept(kind))
        elif self._is_free(field.name):
            self._add_column(field.name, field.type, verdict, unchanged)
        else:
            self._add_further(
                field.name, field.name, field, verdict, "another column has that name"
            )

    def _is_free(self, name: str) -> bool:
        if self._names.exact:
            return name not in self._types
        return folded(name) not in map(folded, self._types)

    def _add_column(
        self,
        name: str,
        type_: DataType,
        verdict: Verdict,
        names: Callable[[ColumnNames], ColumnNames],
    ) -> None:
        self._types[name] = nullable(type_)
        verdict = dataclasses.replace(verdict, column=name)
        self._step(Step(AddColumn(name, nullable(type_)), verdict, names), name)

    def _add_further(
        self, member: str, column: str, field: ObservedField, verdict: Verdict, reason: str
    ) -> None:
        """A column beside another for values of a type that the other cannot hold."""
        name = free_name(column, self._types)
        verdict = dataclasses.replace(
            verdict, reason=f"{reason}; values of {field.name} go to {name}"
        )
        self._names = self._names.with_further(member, name)
        self._add_column(name, field.type, verdict, lambda names: names.with_further(member, name))

    def _widen(
        self, field: ObservedField, name: str, union: DataType, origin: ChangeOrigin
    ) -> None:
        kind = ChangeKind.ALTER_COLUMN_TYPE
        verdict = verdict_of(kind, name, type_name(self._types[name]), type_name(union), origin)
        step = self._step_of.get(name)
        decision = self._policy.decide(kind)
        change = UpdateType(name, union)
        if isinstance(union, ArrayType):
            change = UpdateType((name, "element"), union.element)
        if step is not None and isinstance(step.change, AddColumn):
            step.widen(AddColumn(name, nullable(union)), union)
            self._types[name] = union
        elif decision is PolicyDecision.STOP:
            self._record_stop(verdict, "schema.change.behavior is exception")
        elif decision is PolicyDecision.KEEP:
            self._kept_type(field, name, verdict)
        elif step is not None and isinstance(step.change, UpdateType):
            step.widen(change, union)
            self._types[name] = union
        else:
            self._types[name] = union
            self._step(Step(change, verdict, unchanged), name)

    def _kept_type(self, field: ObservedField, name: str, verdict: Verdict) -> None:
        """The column could be widened but may not be."""
        why = self._policy.why_kept(verdict.kind)
        handling = self._policy.incompatible
        if handling is Incompatible.FAIL and self._policy.incompatible_rule is not None:
            self._record_stop(verdict, f"{why}; on.incompatible is fail")
        elif handling is Incompatible.TABLE:
            self._record_parked(verdict, why)
        elif handling in (Incompatible.NEW_COLUMN, Incompatible.STRING) and self._may_add():
            self._add_beside(field, name, verdict, why)
        else:
            self._fix(field)
            self._record(
                verdict, Outcome.IGNORED, f"{why}; values that do not fit go to quarantine"
            )

    def _may_add(self) -> bool:
        return self._policy.decide(ChangeKind.ADD_COLUMN) is PolicyDecision.MAKE

    # --- types that do not convert

    def _incompatible(self, field: ObservedField, name: str, origin: ChangeOrigin) -> None:
        kind = ChangeKind.ALTER_COLUMN_TYPE
        current, observed = self._types[name], field.type
        verdict = verdict_of(kind, name, type_name(current), type_name(observed), origin)
        why = f"{type_name(current)} cannot become {type_name(observed)}"
        decision, handling = self._policy.decide(kind), self._policy.incompatible
        if decision is PolicyDecision.STOP:
            self._record_stop(verdict, "schema.change.behavior is exception")
        elif handling is Incompatible.TABLE:
            self._record_parked(verdict, why)
        elif (
            self._wants_text(observed)
            and decision is PolicyDecision.MAKE
            and has_text(current)
            and has_text(observed)
        ):
            self._to_text(field, name, verdict)
        elif handling in (Incompatible.NEW_COLUMN, Incompatible.STRING) and self._may_add():
            self._add_beside(field, name, verdict, why)
        elif handling is Incompatible.FAIL and (
            decision is PolicyDecision.MAKE or self._policy.incompatible_rule
        ):
            self._record_stop(verdict, why)
        else:
            self._fix(field)
            outcome = Outcome.REFUSED if decision is PolicyDecision.MAKE else Outcome.IGNORED
            self._record(verdict, outcome, f"{why}: values go to quarantine")
            self._reasons.append(f"column {name}: {why}")

    def _wants_text(self, observed: DataType) -> bool:
        if self._policy.incompatible is Incompatible.STRING:
            return True
        return self._policy.takes_text and is_text(observed)

    def _to_text(self, field: ObservedField, name: str, verdict: Verdict) -> None:
        earlier = self._types[name]
        verdict = dataclasses.replace(verdict, new=type_name(STRING))
        if is_text(earlier):  # the column is text already: values of the other type are added
            earlier = nullable(field.type)
        text_type = dataclasses.replace(STRING, nullable=self._types[name].nullable)
        change: SchemaChange = UpdateType(name, text_type)
        self._types[name] = text_type
        self._names = self._names.with_text(name, earlier)
        self._step(Step(change, verdict, lambda names: names.with_text(name, earlier)), name)

    def _add_beside(self, field: ObservedField, name: str, verdict: Verdict, reason: str) -> None:
        addition = dataclasses.replace(
            verdict, kind=ChangeKind.ADD_COLUMN, old="", new=type_name(field.type)
        )
        self._add_further(name, name, field, addition, reason)

    # --- what the source's DDL says

    def apply_ddl(self, event: TableDdl) -> None:
        """Apply a statement of the source; one that was applied before changes nothing."""
        origin = ChangeOrigin(event.source.address, event.topic, event.partition, event.offset)
        mark = (event.topic, event.partition, event.offset)
        if self._names.has_applied(origin.source, mark):
            return
        step_count = len(self._steps)
        if event.changes.swaps and self._swap(event, origin):
            return
        for old, new in event.changes.renamed:
            self.rename(spelt(old, self._types), spelt(new, event.columns), origin)
        for name in event.changes.dropped:
            self.drop(spelt(name, self._types), origin, shared=bool(event.owner))
        for name in event.columns:
            self.restore(name)
        if len(self._steps) > step_count:
            self._change_names(lambda names: names.with_applied(origin.source, mark))

    def skip_ddl(self, event: TableDdl) -> None:
        """Take a statement and all before it as applied, without applying them."""
        mark = (event.topic, event.partition, event.offset)
        address = event.source.address
        if not self._names.has_applied(address, mark):
            self._change_names(lambda names: names.with_applied(address, mark))

    def _swap(self, event: TableDdl, origin: ChangeOrigin) -> bool:
        """Columns swap names: rows before and after the statement look the same."""
        old, new = event.changes.renamed[0]
        old = spelt(old, self._types)
        verdict = verdict_of(ChangeKind.RENAME_COLUMN, old, old, new, origin)
        makes = self._policy.decide(verdict.kind) is PolicyDecision.MAKE
        if not makes or self._policy.mode is Mode.LENIENT or old not in self._types:
            return False
        self._record_parked(
            verdict, "columns take each other's names: rows before and after look the same"
        )
        return True

    def _change_names(self, change: Callable[[ColumnNames], ColumnNames]) -> None:
        """Change the names alone."""
        self._names = change(self._names)
        self._steps.append(Step(None, None, change))

    def rename(self, old: str, new: str, origin: ChangeOrigin) -> None:
        """Rename a column that the source renamed; an applied rename changes nothing."""
        verdict = verdict_of(ChangeKind.RENAME_COLUMN, old, old, new, origin)
        if old not in self._types or old in self._names.further:
            if old in self._names.former.get(new, ()) or old in self._names.further:
                return
            if new in self._types:
                self._change_names(lambda names: names.with_former(new, old))
            elif self._follows(
                verdict.kind
            ):  # no row has had it yet: the first one has its new name
                self._change_names(lambda names: names.renamed(old, new))
            return
        decision = self._policy.decide(verdict.kind)
        if decision is PolicyDecision.STOP:
            self._record_stop(verdict, "schema.change.behavior is exception")
        elif decision is PolicyDecision.KEEP:
            self._record(verdict, Outcome.IGNORED, self._policy.why_kept(verdict.kind))
        elif self._policy.mode is Mode.LENIENT:
            self._record(
                verdict, Outcome.IGNORED, "lenient keeps the old column and adds the new one"
            )
        elif new in self._types:
            self._record(verdict, Outcome.REFUSED, f"the table has a column {new} already")
        else:
            self._types = {new if n == old else n: t for n, t in self._types.items()}
            self._renames = {n: new if c == old else c for n, c in self._renames.items()}
            self._renames.setdefault(old, new)
            self._key = {new if name == old else name for name in self._key}
            self._names = self._names.renamed(old, new)
            self._step(
                Step(RenameColumn(old, new), verdict, lambda names: names.renamed(old, new)), new
            )

    def drop(self, name: str, origin: ChangeOrigin, *, shared: bool = False) -> None:
        """Drop a column that the source dropped; `shared`: one source table of several did."""
        why = f"dropped at {origin.topic}:{origin.partition}:{origin.offset}"
        kind = ChangeKind.DROP_COLUMN
        if name in self._names.further:
            return
        if name not in self._types:
            if name not in self._names.dropped and not shared and self._follows(kind):
                self._change_names(lambda names: names.without(name, why))
            return
        verdict = verdict_of(ChangeKind.DROP_COLUMN, name, type_name(self._types[name]), "", origin)
        decision = self._policy.decide(verdict.kind)
        if shared:
            self._record(verdict, Outcome.IGNORED, "other source tables fill the table too")
        elif decision is PolicyDecision.STOP:
            self._record_stop(verdict, "schema.change.behavior is exception")
        elif decision is PolicyDecision.KEEP:
            self._keep(name, verdict, self._policy.why_kept(verdict.kind))
        elif self._policy.mode is Mode.LENIENT:
            self._keep(name, verdict, "lenient keeps the column; new rows have null")
        else:
            for further in self._names.typed.get(name, ()):
                self._drop(further, verdict, unchanged)
            self._drop(name, verdict, lambda names: names.without(name, why))
            self._names = self._names.without(name, why)

    def _keep(self, name: str, verdict: Verdict, reason: str) -> None:
        self._record(verdict, Outcome.IGNORED, reason)
        if name in self._names.former:
            self._change_names(lambda names: names.without_former(name))

    def _drop(
        self, name: str, verdict: Verdict, names: Callable[[ColumnNames], ColumnNames]
    ) -> None:
        self._types.pop(name, None)
        verdict = dataclasses.replace(verdict, column=name)
        self._step(Step(DropColumn(name), verdict, names), name)

    def _follows(self, kind: ChangeKind) -> bool:
        """Whether the table follows the source, automatically or altered by hand."""
        return (
            self._policy.decide(kind) is not PolicyDecision.KEEP
            and self._policy.mode is not Mode.LENIENT
        )

    def restore(self, name: str) -> None:
        """The source has a dropped column again: rows may contain it."""
        column = self._spelt(name, self._names.dropped)
        if column in self._names.dropped:
            self._change_names(lambda names: names.with_column(column))

    def _spelt(self, name: str, names: Iterable[str]) -> str:
        return name if self._names.exact else spelt(name, names)

    # --- the end

    def _step(self, step: Step, column: str) -> None:
        self._steps.append(step)
        self._step_of[column] = step

    def _record(self, verdict: Verdict, outcome: Outcome, reason: str) -> None:
        self._verdicts.append(dataclasses.replace(verdict, outcome=outcome, reason=reason))

    def _record_stop(self, verdict: Verdict, reason: str) -> None:
        stop = dataclasses.replace(verdict, outcome=Outcome.STOPPED, reason=reason)
        self._stop = self._stop or stop

    def _record_parked(self, verdict: Verdict, reason: str) -> None:
        self._record(verdict, Outcome.PARKED, reason)
        self._parked = self._parked or f"column {verdict.column}: {reason}"

    def finish(self, now_ms: int) -> Decision:
        """The changes that the table accepts, and the verdicts of all.

        Args:
            now_ms: time of the new schema [epoch ms].
        """
        names, changes = ColumnNames.of(self._existing.options), []
        if not self._parked and self._stop is None:
            for step in self._accepted_steps(now_ms):
                names = step.names(names)
                if step.change is not None:
                    changes.append(step.change)
                if step.verdict is not None:
                    self._verdicts.append(step.verdict)
        if self._parked or self._stop is not None:
            names, changes = ColumnNames.of(self._existing.options), []
        return Decision(
            (*changes, *option_changes(self._existing, names)),
            verdicts=tuple(self._verdicts),
            reasons=tuple(self._reasons),
            ignored=tuple(self._ignored),
            fixed=tuple(self._fixed),
            parked=self._parked,
            stop=self._stop,
        )

    def _accepted_steps(self, now_ms: int) -> Sequence[Step]:
        """Steps that the table accepts: all of them, or each tried after the ones before."""
        changes = [step.change for step in self._steps if step.change is not None]
        try:
            evolve(self._existing, changes, now_ms)
        except InvalidRequestError:
            pass
        else:
            return self._steps
        schema, steps = self._existing, []
        for step in self._steps:
            try:
                schema = evolve(schema, [step.change] if step.change else [], now_ms)
            except InvalidRequestError as error:
                self._refuses(step, str(error))
            else:
                steps.append(step)
        return steps

    def _refuses(self, step: Step, reason: str) -> None:
        if step.verdict is None:
            self._reasons.append(reason)
            return
        if self._policy.mode is Mode.EVOLVE:
            self._record_stop(step.verdict, reason)
        self._record(step.verdict, Outcome.REFUSED, reason)
        self._reasons.append(reason)
