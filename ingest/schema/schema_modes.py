# SPDX-License-Identifier: Apache-2.0
"""Decisions of a pipeline's settings on schema changes. Pure.

Terms are Flink CDC's: five modes (`pipeline.schema.change.behavior`), kinds of changes with their
partial names (`sink.include.schema.changes`, `sink.exclude.schema.changes`), and per table the
handling of a type that does not convert (`on.incompatible`). schema-changes.md has the whole table.

The driver's decisions on shapes that no schema covers hold for the process (`Answers`), because a
request costs a second run of a batch.
"""

import dataclasses
import enum
from collections.abc import Collection, Iterable, Mapping

from ingest.config.choices import ChangeKind
from ingest.config.settings import Settings
from ingest.decode.column_names import ColumnNames
from ingest.decode.events import TypeRequests
from ingest.errors import SchemaStopError

__all__ = [
    "AnswerBook",
    "Answers",
    "AppliedChanges",
    "ChangeKind",
    "ChangePolicy",
    "Incompatible",
    "Mode",
    "Outcome",
    "PolicyDecision",
    "Verdict",
    "change_policy",
    "stop_error",
    "type_requests_of",
]


class Mode(enum.StrEnum):
    """`pipeline.schema.change.behavior`."""

    EVOLVE = "evolve"
    TRY_EVOLVE = "try_evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
    EXCEPTION = "exception"


class Incompatible(enum.StrEnum):
    """`tables[].on.incompatible`."""

    ROWS = "quarantine_rows"
    TABLE = "quarantine_table"
    NEW_COLUMN = "new_column"
    STRING = "string"
    FAIL = "fail"


class PolicyDecision(enum.Enum):
    """Decision of the settings on a change."""

    MAKE = "made"
    KEEP = "not made: the table stays as it is"
    STOP = "the stream stops"


class Outcome(enum.StrEnum):
    """Outcome of a change."""

    APPLIED = "applied"
    IGNORED = "ignored"
    REFUSED = "refused"
    PARKED = "parked"
    STOPPED = "stopped"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One change and its outcome: a row of the history.

    Attributes:
        kind: of the change.
        column: of the table; "" = the change is of the whole table.
        old: type or name before; "" = there was none.
        new: type or name after; "" = there is none.
        outcome: outcome of the change.
        reason: why it was not applied, or applied in another way; "" = as requested.
        source: the source table that requested it.
        topic: of the first record that requested it.
        partition: of that record.
        offset: of that record.
    """

    kind: ChangeKind
    column: str
    old: str
    new: str
    outcome: Outcome
    reason: str = ""
    source: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1

    @property
    def text(self) -> str:
        """For people and logs."""
        what = " ".join(part for part in (self.kind.replace(".", " "), self.column) if part)
        types = " to ".join(part for part in (self.old, self.new) if part)
        text = f"{what}: {types}" if types else what
        return f"{text} ({self.reason})" if self.reason else text


_DESTRUCTIVE = frozenset({ChangeKind.TRUNCATE_TABLE, ChangeKind.DROP_TABLE})
"""Left out in `lenient` unless named in `include`."""

_DEFAULTS = {Mode.EVOLVE: Incompatible.FAIL}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy:
    """Decisions of the settings for one table.

    Attributes:
        mode: of the pipeline.
        kinds: of changes that are applied if the mode allows.
        incompatible_rule: how types that do not convert are handled; None = not set by the rules.
        exact_names: whether a column that is spelt in another case is another column.
    """

    mode: Mode = Mode.LENIENT
    kinds: frozenset[ChangeKind] = frozenset(ChangeKind) - _DESTRUCTIVE
    incompatible_rule: Incompatible | None = None
    exact_names: bool = False

    @staticmethod
    def of(
        mode: str,
        include: Iterable[str],
        exclude: Iterable[str],
        incompatible: str | None,
        *,
        exact_names: bool = False,
    ) -> "ChangePolicy":
        """From settings; kinds by their full names, no kind included = all."""
        behavior = Mode(mode)
        included = frozenset(ChangeKind(name) for name in include)
        if not included:
            included = frozenset(ChangeKind)
            if behavior is Mode.LENIENT:
                included -= _DESTRUCTIVE
        excluded = frozenset(ChangeKind(name) for name in exclude)
        handling = None if incompatible is None else Incompatible(incompatible)
        return ChangePolicy(
            mode=behavior,
            kinds=included - excluded,
            incompatible_rule=handling,
            exact_names=exact_names,
        )

    @property
    def incompatible(self) -> Incompatible:
        """Handling of a type that does not convert."""
        return self.incompatible_rule or _DEFAULTS.get(self.mode, Incompatible.ROWS)

    @property
    def takes_text(self) -> bool:
        """Whether a column becomes STRING because the source's did: nothing is lost by it."""
        return self.incompatible_rule is None and self.mode in (Mode.EVOLVE, Mode.TRY_EVOLVE)

    def decide(self, kind: ChangeKind) -> PolicyDecision:
        """The decision on a change of that kind.

        A table is created in every mode, as Flink CDC does: without it there is nowhere to write.
        """
        if kind not in self.kinds:
            return PolicyDecision.KEEP
        if kind is ChangeKind.CREATE_TABLE:
            return PolicyDecision.MAKE
        if self.mode is Mode.EXCEPTION:
            return PolicyDecision.STOP
        return PolicyDecision.KEEP if self.mode is Mode.IGNORE else PolicyDecision.MAKE

    def why_kept(self, kind: ChangeKind) -> str:
        """The reason of a decision `KEEP`."""
        if kind not in self.kinds:
            return f"{kind} is not among the included schema changes"
        return f"schema.change.behavior is {self.mode}"


def change_policy(settings: Settings, table: str) -> ChangePolicy:
    """Of `database.table`."""
    return ChangePolicy.of(
        settings.pipeline.schema_change_behavior,
        settings.sink.include_schema_changes,
        settings.sink.exclude_schema_changes,
        settings.rule_value(table, lambda rule: rule.on_incompatible),
        exact_names=settings.events.exact_names,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Decisions on the source columns of one table.

    Attributes:
        ignored: columns of the source that are left out of rows.
        fixed: columns of the source and types (as text) that request nothing.
    """

    ignored: frozenset[str] = frozenset()
    fixed: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ignored or self.fixed)

    def and_also(self, ignored: Iterable[str], fixed: Iterable[tuple[str, str]]) -> "Answers":
        """With further answers."""
        return Answers(self.ignored | {*ignored}, self.fixed | {*fixed})


class AnswerBook:
    """The decisions for all tables."""

    def __init__(self) -> None:
        self._answers: dict[str, Answers] = {}

    def take(
        self,
        name: str,
        ignored: Collection[str],
        fixed: Collection[tuple[str, str]],
        *,
        changed: bool,
    ) -> None:
        """Add answers of a decision; a changed table forgets older ones."""
        answers = Answers() if changed else self._answers.get(name, Answers())
        self._answers[name] = answers.and_also(ignored, fixed)

    def current(self) -> dict[str, Answers]:
        """All answers, for further runs of the same batch."""
        return {name: answers for name, answers in self._answers.items() if answers}

    def lasting(self, options: Mapping[str, Mapping[str, str]]) -> dict[str, Answers]:
        """Those that hold for further batches.

        A dropped column may exist again, which each batch determines.
        """
        lasting: dict[str, Answers] = {}
        for name, answers in self.current().items():
            dropped_columns = ColumnNames.of(options.get(name, {})).dropped
            lasting[name] = Answers(answers.ignored.difference(dropped_columns), answers.fixed)
        return {name: answers for name, answers in lasting.items() if answers}


@dataclasses.dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Outcome of a batch's schema deltas.

    Attributes:
        applied: (table, change) pairs, for people.
        refused: tables some of whose records fit no allowed change, and why.
        verdicts: (table, outcome of one change), of all requested changes.
    """

    applied: tuple[tuple[str, str], ...]
    refused: Mapping[str, str]
    verdicts: tuple[tuple[str, Verdict], ...] = ()


def stop_error(table: str, verdict: Verdict) -> SchemaStopError:
    """The error that ends the stream before anything of the batch is committed."""
    return SchemaStopError(
        "a schema change stops the stream",
        hint="alter the table by hand or allow the change in the settings, then start again: the "
        "stream resumes exactly here",
        table=table,
        change=verdict.text,
        topic=verdict.topic,
        partition=verdict.partition,
        offset=verdict.offset,
    )


def type_requests_of(policy: ChangePolicy) -> TypeRequests:
    """Which values of other types a table's records may request.

    Types that events declare are changes of the source's schema. A single deviating value of an
    event that declares none is a change only if the table's rules say so.
    """
    return TypeRequests.DECLARED if policy.incompatible_rule is None else TypeRequests.ALL
