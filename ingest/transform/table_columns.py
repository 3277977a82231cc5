# SPDX-License-Identifier: Apache-2.0
"""Where each column of a table comes from, and what must be decoded for it."""

import dataclasses
import enum
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.metadata_columns import METADATA, origin_column
from ingest.source.position.ordered_tables import POSITION_COLUMNS
from ingest.transform.functions.casting import strict_cast, zone_named
from ingest.transform.functions.cells import (
    Cells,
    Failure,
    Frame,
    Mask,
    Planned,
    as_array,
    restricted,
    runner,
)
from ingest.transform.functions.type_rules import BOOLEAN, is_text, nullable
from ingest.transform.masks import Mask as ColumnMask
from ingest.transform.rules import PlannedRule, TransformRule, refuse_timed
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.arrow_types import arrow_type
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataField, DataType

_DIGEST_DIGITS = {"sha256": 64, "md5": 32}
ColumnResult = tuple[pa.Array, tuple[Failure, ...]]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowsOut:
    """A batch while its columns are computed.

    Attributes:
        rows: as decoded.
        origin: metadata beside them.
        frame: for expressions.
        retracted: rows that delete or retract a row.
        soft_deletes: rows marked as deleted.
        keeps_stored: soft deletes that leave stored values as they are; None when there are none.
    """

    rows: pa.RecordBatch
    origin: pa.RecordBatch | None
    frame: Frame
    retracted: Mask
    soft_deletes: Mask
    keeps_stored: Mask | None


class ColumnKind(enum.Enum):
    """What a column of the table is made from."""

    PLAIN = "a column of the source, as it is"
    MASKED = "a column of the source, masked"
    COMPUTED = "an expression"
    OTHER = "metadata, the mark of soft deletes, or nulls"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of the table.

    Attributes:
        kind: what it is made from.
        always: whether a soft delete that keeps stored values sets it, too.
        values: gives the column of a batch, and the rows that have no value.
    """

    kind: ColumnKind
    always: bool
    values: Callable[[RowsOut], ColumnResult]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Computed:
    """Gives the values of a computed column.

    Attributes:
        planned: gives it in the table's type.
        name: of the column.
        located: whether it locates a row: then it must have a result for deletes, too.
        in_key: whether it is part of the primary key.
        required: whether it is NOT NULL.
    """

    planned: Planned
    name: str
    located: bool
    in_key: bool
    required: bool

    def values(self, out: RowsOut) -> ColumnResult:
        """The results; null for deletes that have none."""
        cells = self.planned.run(out.frame)
        values = as_array(cells.values, out.rows.num_rows)
        needed = np.ones(len(values), bool)
        if not self.located:
            needed &= ~out.retracted
            if out.keeps_stored is not None:
                needed &= ~out.keeps_stored
        failures = restricted(cells.failures, needed)
        if self.required and values.null_count:
            empty = np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False))
            empty = empty & (needed if self.in_key else ~out.retracted)
            if empty.any():
                failures += (Failure(empty, f"computed column `{self.name}` is null"),)
        return values, failures


@dataclasses.dataclass(frozen=True, slots=True)
class Inputs:
    """What a value is computed from.

    Attributes:
        ids: fields of the decode schema, without its key: that is always known.
        indices: their positions.
        names: their names, for messages.
        has_more_inputs: whether it also comes from the time or from metadata.
        is_event_local: whether the event alone determines it: a key, or the position of the change
            in the source.
    """

    ids: tuple[int, ...]
    indices: tuple[int, ...]
    names: str
    has_more_inputs: bool = False
    is_event_local: bool = False


def inputs_of(names: frozenset[str], decode: TableSchema, table: TableSchema) -> Inputs:
    """The inputs of a value that reads columns of the source and perhaps more."""
    shared_key = {*table.primary_keys} & {*decode.primary_keys}
    entries = [
        (field.id, index, field.name)
        for index, field in enumerate(decode.fields)
        if field.name in names and field.name not in shared_key
    ]
    return Inputs(
        tuple(number for number, _, _ in entries),
        tuple(index for _, index, _ in entries),
        ", ".join(f"`{name}`" for _, _, name in entries),
        has_more_inputs=not names <= {*decode.field_names},
    )


def column_inputs(
    planned: PlannedRule, name: str, column: Column, decode: TableSchema, table: TableSchema
) -> Inputs | None:
    """The inputs of a column of the table; None: it does not come from the source."""
    if column.kind is ColumnKind.COMPUTED:
        inputs = inputs_of(planned.inputs[name], decode, table)
        inputs = dataclasses.replace(
            inputs, has_more_inputs=inputs.has_more_inputs or name in planned.timed
        )
    elif column.kind is not ColumnKind.OTHER:
        inputs = inputs_of(frozenset({name}), decode, table)
    else:
        return None
    return dataclasses.replace(
        inputs, is_event_local=name in (*table.primary_keys, *POSITION_COLUMNS)
    )


def source_types(
    rule: TransformRule, table: TableSchema, hidden: Mapping[str, DataType]
) -> dict[str, DataType]:
    """Columns of the source, as known from the table and its options."""
    derived = frozenset(rule.derived_names)
    types: dict[str, DataType] = {}
    for field in table.fields:
        if field.name in hidden:
            source_type = dataclasses.replace(hidden[field.name], nullable=field.type.nullable)
            types[field.name] = source_type
        elif field.name not in derived:
            types[field.name] = field.type
    for name, type_ in hidden.items():
        types.setdefault(name, nullable(type_))
    return types


def decode_schema_of(
    planned: PlannedRule, table: TableSchema, source: Mapping[str, DataType]
) -> TableSchema:
    """The virtual schema that rows are decoded with."""
    excluded = frozenset(planned.rule.exclude)
    behind_key = key_inputs(planned, table)
    fields = []
    for field in table.fields:
        if field.name not in source or (
            field.name in excluded and field.name not in planned.used_columns
        ):
            continue
        type_ = source[field.name]
        if field.name in behind_key:
            type_ = dataclasses.replace(type_, nullable=False)
        fields.append(dataclasses.replace(field, type=type_))
    next_id = table.highest_field_id + 1
    for name, type_ in source.items():
        if name not in table.field_names and name in planned.used_columns:
            type_ = dataclasses.replace(type_, nullable=name not in behind_key)
            fields.append(DataField(id=next_id, name=name, type=type_))
            next_id += 1
    if tuple(fields) == table.fields:
        return table
    names = frozenset(field.name for field in fields)
    key = [name for name in table.primary_keys if name in names]
    return dataclasses.replace(
        table,
        fields=tuple(fields),
        highest_field_id=next_id - 1,
        partition_keys=tuple(name for name in table.partition_keys if name in names),
        primary_keys=(*key, *sorted(behind_key.difference(key))),
    )


def key_inputs(planned: PlannedRule, table: TableSchema) -> frozenset[str]:
    """Columns of the source that key columns are computed from: a change of one moves the row."""
    computed = [name for name in table.primary_keys if name in planned.computed]
    inputs = frozenset[str]().union(*(planned.inputs[name] for name in computed))
    return inputs & planned.used_columns


def column_of(
    planned: PlannedRule, field: DataField, decode: TableSchema, table: TableSchema, zone: str
) -> Column:
    """Where a column of the table comes from.

    Raises:
        InvalidRequestError: the result of the rule does not fit the column.
    """
    name, rule = field.name, planned.rule
    located = name in table.primary_keys or name in table.partition_keys
    if name in planned.computed:
        if located:
            refuse_timed(planned, name)
        computed = _Computed(
            planned=_in_type(planned, field, zone, from_source=name in decode.field_names),
            name=name,
            located=located or name in table.bucket_keys,
            in_key=name in table.primary_keys,
            required=not field.type.nullable,
        )
        return Column(ColumnKind.COMPUTED, computed.located, computed.values)
    if name in planned.metadata:
        key = planned.metadata[name]
        _same_type(METADATA[key].type, field, "a metadata column")
        return Column(
            ColumnKind.OTHER,
            True,
            lambda out: (origin_column(out.origin, key, out.rows.num_rows), ()),
        )
    if rule.soft_delete and name == rule.deleted_column:
        _same_type(BOOLEAN, field, "the mark of soft deletes")
        return Column(ColumnKind.OTHER, True, lambda out: (pa.array(out.soft_deletes), ()))
    if name in rule.exclude:
        if not field.type.nullable:
            raise InvalidRequestError(
                "an excluded column is NOT NULL in the table",
                hint="make it nullable or drop it",
                column=name,
            )
        absent = arrow_type(field.type)
        return Column(
            ColumnKind.OTHER, False, lambda out: (pa.nulls(out.rows.num_rows, absent), ())
        )
    index = decode.field_names.index(name)
    if name in planned.masks:
        source = decode.fields[index].type
        mask = _masked(planned.masks[name], field, source)
        return Column(ColumnKind.MASKED, located, lambda out: (mask(out.rows.column(index)), ()))
    always = located or name in POSITION_COLUMNS
    return Column(ColumnKind.PLAIN, always, lambda out: (out.rows.column(index), ()))


def _in_type(planned: PlannedRule, field: DataField, zone: str, *, from_source: bool) -> Planned:
    """A computed column in the type that the table has for it."""
    value, name = planned.computed[field.name], field.name
    type_, plain = value.type, value.run

    def run(frame: Frame) -> Cells:
        if not from_source:  # by its name, so that it is calculated once
            return frame.column(name)
        cells = plain(frame)
        return Cells(as_array(cells.values, frame.num_rows), cells.failures)

    value = dataclasses.replace(value, run=run, constant=None)
    if type_ is not None and nullable(type_) == nullable(field.type):
        return value
    kernel = None
    if isinstance(field.type, AtomicType) and type_ is not None:
        kernel = strict_cast(type_, field.type, zone_named(zone))
    if kernel is None:
        _same_type(type_, field, "a computed column")
        raise InvalidRequestError("a computed column has another type", column=name)
    return dataclasses.replace(value, type=field.type, run=runner(kernel, [value], value.text))


def _same_type(result_type: DataType | None, field: DataField, what: str) -> None:
    if result_type is None or nullable(result_type) != nullable(field.type):
        raise InvalidRequestError(
            f"{what} has another type in the table",
            hint="give it another name",
            column=field.name,
            made="NULL" if result_type is None else type_name(result_type),
            table=type_name(field.type),
        )


def _masked(mask: ColumnMask, field: DataField, source: DataType) -> Callable[[pa.Array], pa.Array]:
    """Masks values of the source in the type that the table has for them."""
    type_ = mask.result_type(source)
    if mask.name == "null" and not field.type.nullable:
        raise InvalidRequestError("a NOT NULL column cannot be masked with null", column=field.name)
    if nullable(type_) == nullable(field.type):
        return lambda column: mask.apply(column, source)
    kernel = None
    target = field.type if isinstance(field.type, AtomicType) and is_text(field.type) else None
    if target is not None and is_text(type_) and target.length >= _DIGEST_DIGITS.get(mask.name, 0):
        kernel = strict_cast(type_, target, None)
    if kernel is None:
        _same_type(type_, field, "a masked column")
        raise InvalidRequestError("a masked column has another type", column=field.name)
    cast = kernel
    return lambda column: cast(mask.apply(column, source))
