# SPDX-License-Identifier: Apache-2.0
"""Decides on records that a table's schema does not cover: create, add columns, widen.

Pure: the driver applies the decision. Idempotent: a schema that covers the deltas needs no change,
so a replayed batch changes nothing. Source: CDC.md §3, schema-changes.md.

Rules: columns keep the event's order; only key columns are NOT NULL; source defaults are not
used; a key column's type never changes; DECIMALs widen so that no digit is lost; a column that
disappears stays and becomes null; a rename looks like a new column, unless the source's DDL says
otherwise (`schema_change_events`). The policy decides which changes are applied (`schema_modes`).

Decoders report columns as the source has them. Row transforms (`TableRules`) leave some of them out
of the table, give some another type (masks), and add columns of the pipeline. Source types that the
table does not show are stored in a table option (`HIDDEN_OPTION`).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from ingest.config.choices import ChangeKind
from ingest.decode.columns import ColumnNames, alike, folded, free_name, reserved_name, spelt
from ingest.decode.events import (
    SOURCE_TABLE_OPTION,
    ObservedField,
    SchemaDelta,
    is_owner,
)
from ingest.decode.schema_change_events import TableDdl
from ingest.decode.types.semantic_types import STRING, guessed_union, nullable, union_type
from ingest.schema.routing import ChangePolicy, Mode, Outcome, PolicyDecision, Verdict
from ingest.schema.schema_draft import (
    ChangeOrigin,
    Decision,
    Draft,
    NewTable,
    Refusal,
    verdict_of,
)
from ingest.source.records import (
    POSITION_COLUMNS,
    SOURCE,
    ordering_refused,
    position_columns,
    position_options,
    unordered,
)
from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import (
    HIDDEN_OPTION,
    KEY_OPTION,
    TableShape,
    TransformRule,
    hidden_from_text,
    hidden_to_text,
    key_recipe,
    present_rule,
    stored_type,
    table_shape,
    wanted_columns,
)
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn, SchemaChange, SetOption, evolve
from storage.format.types.types import DataType, type_name
from storage.options.options import TableOptions, option_value
from storage.table.bucket_mode import require_buckets


def moving_partitions(rule: TransformRule, primary_key: Sequence[str]) -> tuple[str, ...]:
    """Partition columns that are not in the key, so that a key moves when one changes."""
    if not primary_key:
        return ()
    return tuple(name for name in rule.partition_columns if name not in primary_key)


def fixed_buckets(moving: Sequence[str], bucket: str, **context: object) -> InvalidRequestError:
    """The error of a table whose keys move between partitions with fixed buckets."""
    return InvalidRequestError(
        "rows of one key would be in several partitions",
        detail=f"partition.by: {', '.join(moving)} is not in the primary key",
        hint="set `bucket: -1`, so that an index says where each key is, or add "
        f"{', '.join(moving)} to `primary.key`",
        bucket=bucket,
        **context,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedFields:
    """Changes that an existing table needs for some deltas.

    Attributes:
        deltas: the remaining ones, with columns as in the table.
        changes: further changes that the transforms need.
        reasons: why some of the deltas cannot be covered.
    """

    deltas: tuple[SchemaDelta, ...]
    changes: tuple[SchemaChange, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TableRules:
    """The transforms of a table as far as its schema is concerned.

    Attributes:
        rule: as configured.
        zone: `sink.time.zone`.
    """

    rule: TransformRule
    zone: str

    def shape(
        self, columns: Sequence[tuple[str, DataType]], primary_key: Sequence[str]
    ) -> TableShape:
        """The columns of a new table.

        Args:
            columns: of the source, in order.
            primary_key: of the table.

        Raises:
            InvalidRequestError: the rule does not fit them.
        """
        return table_shape(self.rule, columns, primary_key, self.zone)

    def check_buckets(self, primary_key: Sequence[str], options: Mapping[str, str]) -> None:
        """Check that rows can be found in a new table.

        Raises:
            InvalidRequestError: its keys move between partitions with fixed buckets.
        """
        moving = moving_partitions(self.rule, primary_key)
        if moving and option_value({"bucket": "1", **options}, "bucket") != -1:
            raise fixed_buckets(moving, options.get("bucket", ""))

    def options(self, shape: TableShape, primary_key: Sequence[str]) -> dict[str, str]:
        """Options that store what the columns of a new table do not show."""
        recipe = key_recipe(self.rule, primary_key, self.zone)
        options = {HIDDEN_OPTION: hidden_to_text(shape.hidden)} if shape.hidden else {}
        return options | ({KEY_OPTION: json.dumps(recipe, sort_keys=True)} if recipe else {})

    def expected_fields(
        self, existing: TableSchema, deltas: Sequence[SchemaDelta]
    ) -> ExpectedFields:
        """Translate deltas of an existing table, and add the columns of the pipeline."""
        if self.rule.empty:
            return ExpectedFields(tuple(deltas))
        return TableRules(present_rule(self.rule, existing), self.zone)._translated(
            existing, deltas
        )

    def _translated(self, existing: TableSchema, deltas: Sequence[SchemaDelta]) -> ExpectedFields:
        previous = hidden_from_text(existing.options.get(HIDDEN_OPTION, ""))
        hidden, reasons = dict(previous), list[str]()
        table_deltas = tuple(
            dataclasses.replace(
                delta, fields=self._in_table(delta.fields, existing, hidden, reasons)
            )
            for delta in deltas
        )
        changes: list[SchemaChange] = []
        if hidden != previous:
            changes.append(SetOption(HIDDEN_OPTION, hidden_to_text(hidden)))
        missing_columns = self._missing_columns(existing, hidden)
        changes += [AddColumn(name, nullable(type_)) for name, type_ in missing_columns]
        return ExpectedFields(table_deltas, tuple(changes), tuple(reasons))

    def _in_table(
        self,
        fields: Sequence[ObservedField],
        existing: TableSchema,
        hidden_types: dict[str, DataType],
        reasons: list[str],
    ) -> tuple[ObservedField, ...]:
        """Fields as in the table; adds to `hidden_types`."""
        needed_columns = wanted_columns(self.rule)
        columns: list[ObservedField] = []
        for field in fields:
            try:
                stored_as = stored_type(self.rule, field.name, field.type)
            except InvalidRequestError as error:
                reasons.append(f"column {field.name}: {error}")
                continue
            if stored_as is None and field.name not in needed_columns:
                continue
            if stored_as is None or nullable(stored_as) != nullable(field.type):
                _hide(field, existing, hidden_types, reasons)
            if stored_as is not None:
                columns.append(dataclasses.replace(field, type=nullable(stored_as)))
        return tuple(columns)

    def _missing_columns(
        self, existing: TableSchema, hidden_types: dict[str, DataType]
    ) -> tuple[tuple[str, DataType], ...]:
        try:
            return RowTransform.of(self.rule, existing, hidden=hidden_types, zone=self.zone).missing
        except InvalidRequestError:
            return ()  # its rows go to quarantine, with the reason


NO_RULES = TableRules(TransformRule(), "UTC")
"""The table has the columns of the source."""


def _hide(
    field: ObservedField,
    existing: TableSchema,
    hidden_types: dict[str, DataType],
    reasons: list[str],
) -> None:
    """Store the source's type of a column that the table lacks or has with another type."""
    current = hidden_types.get(field.name)
    if current is None and field.name in existing.field_names:
        current = nullable(existing.field(field.name).type)  # a mask that keeps the type
    union = nullable(field.type) if current is None else union_type(current, field.type)
    if union is None:
        text = "" if current is None else type_name(current)
        reasons.append(f"column {field.name}: {text} cannot become {type_name(field.type)}")
    elif field.name in hidden_types or union != current:
        hidden_types[field.name] = union


_DEFAULT_OPTIONS = {"bucket": "1"}


def reconcile(
    existing: TableSchema | None,
    deltas: Sequence[SchemaDelta],
    *,
    table_properties: Mapping[str, str] | None = None,
    primary_key: Sequence[str] = (),
    rules: TableRules = NO_RULES,
    appends: bool = False,
    ordering: str = "kafka",
    policy: ChangePolicy | None = None,
    ddl: Sequence[TableDdl] = (),
    now_ms: int,
) -> Decision:
    """Decide for one table.

    Args:
        existing: its schema, None when it does not exist.
        deltas: of this target, from one batch, in any order.
        table_properties: options of a new table; `bucket` is 1 unless given.
        primary_key: configured key of a new table; empty = as the records' keys say.
        rules: transforms of its rows.
        appends: whether all records are inserts, so that the table needs no primary key.
        ordering: `source.ordering`; a new table in the order of the source has columns for it.
        policy: which changes are made; None = as `lenient` does by default.
        ddl: statements about its source tables, in their order; they count before the deltas.
        now_ms: time of the new schema [epoch ms].

    Returns:
        The same decision for the same deltas in whatever order tasks reported them.
    """
    policy = policy or ChangePolicy()
    ordered = sorted(deltas, key=_order)
    if existing is not None:
        reason = _unwritable(existing, appends) or ordering_refused(existing, ordering)
        if ordering == SOURCE:
            reason = reason or _metadata_clash(ordered)
        return (
            _refusal(reason) if reason else _change(existing, ordered, rules, policy, ddl, now_ms)
        )
    if not ordered:
        return Decision(())
    if ddl:  # with several shapes, the later ones are reported again when the table exists
        ordered = ordered[:1]
    elif ordered[0].declared:  # the same, for the policy
        ordered = [dataclasses.replace(delta, fields=ordered[0].fields) for delta in ordered]
    creation = _creation_decision(
        ordered, policy, table_properties, primary_key, rules, appends, ordering, now_ms
    )
    creation = _aware(creation, policy, ddl, now_ms)
    outcome = Outcome.APPLIED if isinstance(creation.action, NewTable) else Outcome.REFUSED
    verdict = _creation_verdict(creation.action, outcome, "; ".join(creation.reasons), ordered[0])
    return dataclasses.replace(creation, verdicts=(verdict,))


def _order(delta: SchemaDelta) -> tuple[str, int, int, str]:
    return (delta.topic, delta.partition, delta.offset, delta.source.label)


def _aware(
    creation: Decision, policy: ChangePolicy, ddl: Sequence[TableDdl], now_ms: int
) -> Decision:
    """A creation that includes what DDL statements say of its source table."""
    if not isinstance(creation.action, NewTable) or policy.mode not in (
        Mode.EVOLVE,
        Mode.TRY_EVOLVE,
    ):
        return creation
    draft = Draft(creation.action.schema, policy)
    for event in ddl:
        draft.apply_ddl(event)
    for event in ddl[-1:]:
        draft.skip_ddl(event)
    decision = draft.finish(now_ms)
    if decision.stop is not None or decision.parked or not isinstance(decision.action, tuple):
        return creation
    schema = evolve(creation.action.schema, decision.action, now_ms)
    return dataclasses.replace(creation, action=NewTable(dataclasses.replace(schema, id=0)))


def _creation_verdict(
    action: NewTable | tuple[SchemaChange, ...] | Refusal,
    outcome: Outcome,
    reason: str,
    delta: SchemaDelta,
) -> Verdict:
    columns = action.schema.fields if isinstance(action, NewTable) else delta.fields
    fields = ", ".join(f"{column.name} {type_name(column.type)}" for column in columns)
    verdict = verdict_of(ChangeKind.CREATE_TABLE, "", "", fields, ChangeOrigin.of(delta))
    return dataclasses.replace(verdict, outcome=outcome, reason=reason)


def _creation_decision(
    deltas: Sequence[SchemaDelta],
    policy: ChangePolicy,
    table_properties: Mapping[str, str] | None,
    primary_key: Sequence[str],
    rules: TableRules,
    appends: bool,
    ordering: str,
    now_ms: int,
) -> Decision:
    if policy.decide(ChangeKind.CREATE_TABLE) is not PolicyDecision.MAKE:
        return _refusal(policy.why_kept(ChangeKind.CREATE_TABLE))
    if not policy.exact_names:
        deltas = _spelt_alike(deltas)
        names = {field.name for delta in deltas for field in delta.fields}
        primary_key = [spelt(name, names) for name in primary_key]
    options = {
        **_DEFAULT_OPTIONS,
        **(table_properties or {}),
        SOURCE_TABLE_OPTION: _owner(deltas[0]),
    }
    if appends and not (primary_key or deltas[0].primary_key) and "bucket-key" not in options:
        options["bucket"] = "-1"
    positions: list[tuple[str, DataType]] = []
    if ordering == SOURCE:
        reason = _unordered(deltas, options)
        if reason:
            return _refusal(reason)
        options |= position_options(deltas[0].position)
        positions = position_columns(deltas[0].position)
    if not policy.exact_names:
        deltas, twins = _distinct_names(deltas, primary_key or deltas[0].primary_key)
        options |= {key: text for key, text in twins.options().items() if text}
    decision = _create(deltas, options, tuple(primary_key), rules, positions, now_ms, appends)
    if isinstance(decision.action, NewTable):
        reason = ordering_refused(decision.action.schema, ordering)
        return _refusal(reason) if reason else decision
    return decision


def _spelt_alike(deltas: Sequence[SchemaDelta]) -> list[SchemaDelta]:
    """Shapes of one table in which a column with spellings in several cases has the first of them.

    Not where one shape has both: there they are two columns.
    """
    ambiguous = {
        folded(names[0])
        for delta in deltas
        for names in alike(field.name for field in delta.fields)
    }
    first_spelling: dict[str, str] = {}
    for delta in deltas:
        for field in delta.fields:
            first_spelling.setdefault(folded(field.name), field.name)

    def name(alias: str) -> str:
        return alias if folded(alias) in ambiguous else first_spelling.get(folded(alias), alias)

    return [
        dataclasses.replace(
            delta,
            fields=tuple(dataclasses.replace(f, name=name(f.name)) for f in delta.fields),
            primary_key=tuple(map(name, delta.primary_key)),
        )
        for delta in deltas
    ]


def _distinct_names(
    deltas: Sequence[SchemaDelta], key: Sequence[str]
) -> tuple[list[SchemaDelta], ColumnNames]:
    """Shapes in which columns that differ in case alone have names that engines distinguish.

    Returns:
        The shapes, and the names of the columns of the source.
    """
    names = ColumnNames()
    columns = dict.fromkeys((*key, *(field.name for delta in deltas for field in delta.fields)))
    targets: list[str] = []
    target_of: dict[str, str] = {}
    for name in columns:
        target_of[name] = name
        if folded(name) in map(folded, targets):
            target_of[name] = free_name(name, [*columns, *targets])
            names = names.with_further(name, target_of[name])
        targets.append(target_of[name])
    if not names.typed:
        return list(deltas), names
    shapes = [
        dataclasses.replace(
            delta,
            fields=tuple(dataclasses.replace(f, name=target_of[f.name]) for f in delta.fields),
        )
        for delta in deltas
    ]
    return shapes, names


def _unordered(deltas: Sequence[SchemaDelta], options: Mapping[str, str]) -> str:
    """Why a new table cannot be in the order of the source; "" when it can."""
    kinds = {delta.position for delta in deltas}
    if kinds == {""}:
        return "source.ordering is source, and the records have no position that is understood"
    if len(kinds) > 1:
        return f"records of several connectors cannot be ordered: {', '.join(sorted(kinds))}"
    return _metadata_clash(deltas) or unordered(options)


def _metadata_clash(deltas: Sequence[SchemaDelta]) -> str:
    clashes = {field.name for delta in deltas for field in delta.fields} & {*POSITION_COLUMNS}
    return f"the source has a column {min(clashes)}, which source.ordering needs" if clashes else ""


def _create(
    deltas: Sequence[SchemaDelta],
    options: Mapping[str, str],
    primary_key: tuple[str, ...],
    rules: TableRules,
    transform_columns: Sequence[tuple[str, DataType]],
    now_ms: int,
    appends: bool,
) -> Decision:
    first_delta = deltas[0]
    own_deltas = [delta for delta in deltas if _owner(delta) == _owner(first_delta)]
    reasons = _foreign(deltas, options[SOURCE_TABLE_OPTION])
    key = primary_key or first_delta.primary_key
    other_keys = {delta.primary_key for delta in own_deltas} - {key}
    if other_keys and not primary_key:
        keys = " and ".join(sorted(", ".join(key_columns) for key_columns in {key, *other_keys}))
        return _refusal(f"records disagree on the key: {keys}")
    columns: dict[str, DataType] = {}
    for field in (field for delta in own_deltas for field in delta.fields):
        current = columns.setdefault(field.name, nullable(field.type))
        # the policy decides on types that do not unite, when the table exists
        columns[field.name] = guessed_union(current, nullable(field.type)) or current
    columns |= dict.fromkeys((name for name, _ in first_delta.constants), STRING)
    columns |= dict(transform_columns)
    try:
        shape = rules.shape(list(columns.items()), key)
        if reserved := reserved_name(name for name, _ in shape.columns):
            return _refusal(reserved)
        rules.check_buckets(key, options)
        schema = new_schema(
            list(shape.columns),
            primary_keys=key,
            partition_keys=shape.partition_keys,
            options={**options, **rules.options(shape, key)},
            now_ms=now_ms,
        )
    except InvalidRequestError as error:
        return _refusal(str(error))
    if not key and not appends:
        return _refusal("no primary key")
    reason = _unwritable(schema, appends)
    if reason:
        return _refusal(reason)
    return Decision(NewTable(schema), tuple(reasons), shape.warnings)


def _unwritable(schema: TableSchema, appends: bool) -> str:
    """Why the stream cannot write a table of this kind; "" when it can."""
    if not schema.primary_keys and not appends:
        return "a table without a primary key cannot take changes of rows"
    try:
        require_buckets(schema, TableOptions.from_strings(schema.options))
    except InvalidRequestError as error:
        return str(error)
    return ""


def _refusal(reason: str) -> Decision:
    return Decision(Refusal(reason), (reason,))


def _owner(delta: SchemaDelta) -> str:
    return delta.owner or delta.source.address


def _foreign(deltas: Sequence[SchemaDelta], owner: str) -> list[str]:
    names = sorted({_owner(delta) for delta in deltas} - {owner})
    return [f"source table {name} may not write the table of {owner}" for name in names]


def _change(
    existing: TableSchema,
    deltas: Sequence[SchemaDelta],
    rules: TableRules,
    policy: ChangePolicy,
    ddl: Sequence[TableDdl],
    now_ms: int,
) -> Decision:
    reserved = reserved_name(field.name for delta in deltas for field in delta.fields)
    owner = existing.options.get(SOURCE_TABLE_OPTION, _owner(deltas[0]) if deltas else "")
    own_deltas = [delta for delta in deltas if is_owner(existing, delta.source, delta.owner)]
    reasons = _foreign([delta for delta in deltas if delta not in own_deltas], owner)
    target = rules.expected_fields(existing, own_deltas)
    reasons += [*target.reasons, *([reserved] if reserved else [])]
    draft = Draft(existing, policy)
    for event in ddl:
        if is_owner(existing, event.source, event.owner):
            draft.apply_ddl(event)
    for delta in target.deltas:
        for field in delta.fields:
            if not reserved_name([field.name]):
                draft.request_column(delta, field)
    for change in target.changes:
        draft.need(change)
    decision = draft.finish(now_ms)
    reasons += decision.reasons
    action = decision.action
    if not action and reasons:
        action = Refusal("; ".join(reasons))
    return dataclasses.replace(decision, action=action, reasons=tuple(reasons))
