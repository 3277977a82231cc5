# SPDX-License-Identifier: Apache-2.0
"""What to do about records that a table's schema does not cover: create, add columns, widen.

Pure: the driver applies the decision. Idempotent: on a schema that covers the deltas nothing is
left to do, so a replayed batch changes nothing. Source: CDC.md §4.1, §4.4.

Rulings: columns keep the event's order; only key columns are NOT NULL; source defaults are not
used; a key column's type never changes; DECIMALs widen so that no digit is lost; a column that
disappears stays and becomes null; a rename looks like a new column.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from ingest.formats.events import SOURCE_TABLE_OPTION, SchemaDelta, is_owner
from ingest.formats.semantic_types import STRING
from ingest.formats.widening import nullable, union_type
from ingest.positions.ordered_tables import (
    POSITION_COLUMNS,
    SOURCE,
    ordering_refused,
    position_columns,
    position_options,
    unordered,
)
from ingest.transformed_schema import NO_RULES, TableRules
from storage.errors import InvalidRequestError
from storage.format.schema import TableSchema, new_schema
from storage.format.schema_changes import AddColumn, SchemaChange, UpdateType, evolve
from storage.format.type_text import type_name
from storage.format.types import AtomicType, DataType, TypeRoot
from storage.options import TableOptions
from storage.table.bucket_mode import require_buckets

__all__ = ["Decision", "NewTable", "Refused", "reconcile"]

_DEFAULT_OPTIONS = {"bucket": "1"}
_NUMBERS = (TypeRoot.BIGINT, TypeRoot.DOUBLE)


@dataclasses.dataclass(frozen=True, slots=True)
class NewTable:
    """Create the table with this schema."""

    schema: TableSchema


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Nothing can be done."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and whether it is enough.

    Attributes:
        action: create, change (empty = nothing to do) or refuse.
        reasons: why some of the deltas stay uncovered even then; empty = all are covered.
        notes: what somebody should know of a new table.
    """

    action: NewTable | tuple[SchemaChange, ...] | Refused
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every delta is covered after the action."""
        return not self.reasons


def reconcile(
    existing: TableSchema | None,
    deltas: Sequence[SchemaDelta],
    *,
    table_properties: Mapping[str, str] | None = None,
    primary_key: Sequence[str] = (),
    rules: TableRules = NO_RULES,
    appends: bool = False,
    ordering: str = "kafka",
    now_ms: int,
) -> Decision:
    """Decide for one table.

    Args:
        existing: its schema, None when it does not exist.
        deltas: of this target, from one batch, in any order.
        table_properties: options of a new table; `bucket` is 1 unless given.
        primary_key: configured key of a new table; empty = as the records' keys say.
        rules: what the pipeline makes of its rows.
        appends: whether all records are inserts, so that the table needs no primary key.
        ordering: `source.ordering`; a new table in the order of the source has columns for it.
        now_ms: time of the new schema [epoch ms].

    Returns:
        The same decision for the same deltas in whatever order tasks reported them.
    """
    ordered = sorted(deltas, key=lambda delta: (delta.topic, delta.offset, delta.source.label))
    if existing is not None:
        reason = _unwritable(existing, appends) or ordering_refused(existing, ordering)
        if ordering == SOURCE:
            reason = reason or _taken(ordered)
        return _refused(reason) if reason else _change(existing, ordered, rules, now_ms)
    options = {
        **_DEFAULT_OPTIONS,
        **(table_properties or {}),
        SOURCE_TABLE_OPTION: _owner(ordered[0]),
    }
    if appends and not (primary_key or ordered[0].primary_key) and "bucket-key" not in options:
        options["bucket"] = "-1"
    made: list[tuple[str, DataType]] = []
    if ordering == SOURCE:
        reason = _unordered(ordered, options)
        if reason:
            return _refused(reason)
        options |= position_options(ordered[0].position)
        made = position_columns(ordered[0].position)
    decision = _create(ordered, options, tuple(primary_key), rules, made, now_ms, appends)
    if isinstance(decision.action, NewTable):
        reason = ordering_refused(decision.action.schema, ordering)
        return _refused(reason) if reason else decision
    return decision


def _unordered(deltas: Sequence[SchemaDelta], options: Mapping[str, str]) -> str:
    """Why a new table cannot be in the order of the source; "" when it can."""
    kinds = {delta.position for delta in deltas}
    if kinds == {""}:
        return "source.ordering is source, and the records have no position that is understood"
    if len(kinds) > 1:
        return f"records of several connectors cannot be ordered: {', '.join(sorted(kinds))}"
    return _taken(deltas) or unordered(options)


def _taken(deltas: Sequence[SchemaDelta]) -> str:
    taken = {field.name for delta in deltas for field in delta.fields} & {*POSITION_COLUMNS}
    return f"the source has a column {min(taken)}, which source.ordering needs" if taken else ""


def _create(
    deltas: Sequence[SchemaDelta],
    options: Mapping[str, str],
    primary_key: tuple[str, ...],
    rules: TableRules,
    made: Sequence[tuple[str, DataType]],
    now_ms: int,
    appends: bool,
) -> Decision:
    first = deltas[0]
    mine = [delta for delta in deltas if _owner(delta) == _owner(first)]
    reasons = _foreign(deltas, options[SOURCE_TABLE_OPTION])
    key = primary_key or first.primary_key
    others = {delta.primary_key for delta in mine} - {key}
    if others and not primary_key:
        return _refused(f"records disagree on the key: {_keys({key, *others})}")
    columns: dict[str, DataType] = {}
    for delta in mine:
        for field in delta.fields:
            reasons += _unite(columns, field.name, nullable(field.type))
    columns |= dict.fromkeys((name for name, _ in first.constants), STRING)
    columns |= dict(made)
    try:
        shape = rules.shape(list(columns.items()), key)
        rules.check_buckets(key, options)
        schema = new_schema(
            list(shape.columns),
            primary_keys=key,
            partition_keys=shape.partition_keys,
            options={**options, **rules.options(shape, key)},
            now_ms=now_ms,
        )
    except InvalidRequestError as error:
        return _refused(str(error))
    if not key and not appends:
        return _refused("no primary key")
    reason = _unwritable(schema, appends)
    if reason:
        return _refused(reason)
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


def _refused(reason: str) -> Decision:
    return Decision(Refused(reason), (reason,))


def _keys(keys: set[tuple[str, ...]]) -> str:
    return " and ".join(sorted(", ".join(key) for key in keys))


def _owner(delta: SchemaDelta) -> str:
    return delta.owner or delta.source.address


def _foreign(deltas: Sequence[SchemaDelta], owner: str) -> list[str]:
    names = sorted({_owner(delta) for delta in deltas} - {owner})
    return [f"source table {name} may not write the table of {owner}" for name in names]


def _unite(columns: dict[str, DataType], name: str, observed: DataType) -> list[str]:
    """Merge a column into a new table's; numbers without schema unite to DOUBLE."""
    current = columns.setdefault(name, observed)
    union = union_type(current, observed)
    if union is None and _is_number(current) and _is_number(observed):
        union = AtomicType(TypeRoot.DOUBLE)
    if union is None:
        return [_clash(name, current, observed)]
    columns[name] = union
    return []


def _is_number(type_: DataType) -> bool:
    return isinstance(type_, AtomicType) and type_.root in _NUMBERS


def _clash(name: str, current: DataType, observed: DataType) -> str:
    return f"column {name}: {type_name(current)} cannot become {type_name(observed)}"


def _change(
    existing: TableSchema, deltas: Sequence[SchemaDelta], rules: TableRules, now_ms: int
) -> Decision:
    owner = existing.options.get(SOURCE_TABLE_OPTION, _owner(deltas[0]))
    mine = [delta for delta in deltas if is_owner(existing, delta.source, delta.owner)]
    reasons = _foreign([delta for delta in deltas if delta not in mine], owner)
    wanted = rules.wanted(existing, mine)
    reasons += wanted.reasons
    columns: dict[str, DataType] = {field.name: field.type for field in existing.fields}
    fixed = {*existing.primary_keys, *existing.partition_keys}
    for delta in wanted.deltas:
        for field in delta.fields:
            if field.name in fixed:
                continue  # decoded into the type it has, value by value
            if field.name not in columns:
                columns[field.name] = nullable(field.type)
                continue
            union = union_type(columns[field.name], field.type)
            if union is None:
                reasons.append(_clash(field.name, columns[field.name], field.type))
            else:
                columns[field.name] = union
    changes = [*_changes(existing, columns), *wanted.changes]
    return _checked(existing, changes, reasons, now_ms)


def _changes(existing: TableSchema, columns: Mapping[str, DataType]) -> list[SchemaChange]:
    before = {field.name: field.type for field in existing.fields}
    changes: list[SchemaChange] = []
    for name, type_ in columns.items():
        if name not in before:
            changes.append(AddColumn(name, type_))
        elif before[name] != type_:
            changes.append(UpdateType(name, type_))
    return changes


def _checked(
    existing: TableSchema, changes: Sequence[SchemaChange], reasons: list[str], now_ms: int
) -> Decision:
    """Keep the changes that the table takes, each tried on top of the ones before."""
    kept: list[SchemaChange] = []
    schema = existing
    for change in changes:
        try:
            schema = evolve(schema, [change], now_ms)
        except InvalidRequestError as error:
            reasons.append(str(error))
        else:
            kept.append(change)
    if not kept and reasons:
        return Decision(Refused("; ".join(reasons)), tuple(reasons))
    return Decision(tuple(kept), tuple(reasons))
