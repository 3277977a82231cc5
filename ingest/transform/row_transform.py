# SPDX-License-Identifier: Apache-2.0
"""`RowTransform`: decoded rows in, rows of the table and failed rows out.

For each row, in this order:

1. the filter. A row that does not satisfy it (null does not) becomes a `-D` of its key, so that an
   update that leaves the filter removes the row; without primary key it is dropped. Deletes pass;
2. soft deletes: a `-D` of the source becomes `+U` with `<prefix>deleted` = true;
3. computed columns, partition columns among them; they see unmasked values;
4. masks, metadata, and the order of the table's columns.

A row for which an expression has no result fails, with all rows of its record (a change of key is
two). A delete may have its key only: then only the columns that locate the row must have a result,
the others are null.

Values that the source did not send are marked, and stay marked where they pass through (`Unsent`).
The same marks complete soft deletes: values that their before image lacks are the stored row's.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.columns import METADATA, origin_column
from ingest.decode.events import HELD_ONLY, OFFSET_COLUMN, UNAVAILABLE_COLUMN
from ingest.decode.outcome import MARKS, marks_of
from ingest.source.records import POSITION_COLUMNS
from ingest.transform.functions.arithmetic import (
    BOOLEAN,
    Cells,
    Failure,
    Frame,
    Mask,
    Planned,
    as_array,
    combined,
    is_text,
    mask_of,
    nullable,
    restricted,
    runner,
    strict_cast,
    zone_named,
)
from ingest.transform.rules import Mask as ColumnMask
from ingest.transform.rules import (
    PlannedRule,
    TransformRule,
    check_key_masks,
    plan_rule,
    refuse_timed,
)
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import (
    VALUE_KIND,
    AtomicType,
    DataField,
    DataType,
    RowKind,
    arrow_type,
    type_name,
)
from storage.options.options import option_value

# Where each column of a table comes from, and what must be decoded for it.


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


@dataclasses.dataclass(slots=True, eq=False)
class Unsent:
    """Values that the source did not send, as masks of rows by field id.

    Rows come with the ids of such values in `UNAVAILABLE_COLUMN` and leave with those of the
    table's columns. A column that is computed only from such values is such a value, too:
    the table's value was computed from the same. An expression that also reads something else has
    no result.

    Attributes:
        num_rows: of each mask.
        masks: where a value was not sent.
        held_only: rows that count only if the table holds one of their key.
    """

    num_rows: int
    masks: dict[int, Mask]
    held_only: Mask

    @classmethod
    def unmarked(cls, num_rows: int) -> "Unsent":
        """Nothing marked."""
        return cls(num_rows, {}, np.zeros(num_rows, bool))

    def of(self, number: int) -> Mask:
        """Rows without the value of a field."""
        mask = self.masks.get(number)
        return np.zeros(self.num_rows, bool) if mask is None else mask

    def any_of(self, numbers: Iterable[int]) -> Mask:
        """Rows without the value of one of some fields."""
        return np.logical_or.reduce([self.of(n) for n in numbers] or [self._no_rows()])

    def all_of(self, numbers: Iterable[int]) -> Mask:
        """Rows that lack the values of all of some fields."""
        masks = [self.of(number) for number in numbers]
        return np.logical_and.reduce(masks) if masks else self._no_rows()

    def _no_rows(self) -> Mask:
        return np.zeros(self.num_rows, bool)

    def mark(self, number: int, rows: Mask) -> None:
        """Mark rows whose value of a field is to be read from the table."""
        if rows.any():
            self.masks[number] = self.of(number) | rows

    def column(self) -> pa.Array | None:
        """The marks as a column; None when there are none."""
        masks = {n: mask for n, mask in sorted(self.masks.items()) if mask.any()}
        if self.held_only.any():
            masks = {HELD_ONLY: self.held_only, **masks}
        return marks_of(masks) if masks else None

    def with_column(self, rows: pa.RecordBatch, keep: Mask | None) -> pa.RecordBatch:
        """Rows with the marks of those that were kept appended, if there are any."""
        marks = self.column()
        if marks is None:
            return rows
        if keep is not None:
            marks = marks.filter(pa.array(keep))
        return rows if marks.null_count == len(marks) else rows.append_column(MARKS, marks)


def split_unsent(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Unsent]:
    """Rows without their marks, and the marks."""
    count = rows.num_rows
    at = rows.schema.get_field_index(UNAVAILABLE_COLUMN)
    masks: dict[int, Mask] = {}
    if at >= 0:
        marks = rows.column(at)
        rows = rows.remove_column(at)
        rows_of = pc.list_parent_indices(marks).to_numpy()
        ids = pc.list_flatten(marks).to_numpy()
        for number in np.unique(ids).tolist():
            masks[number] = np.zeros(count, bool)
            masks[number][rows_of[ids == number]] = True
    return rows, Unsent(count, masks, np.zeros(count, bool))


_UPDATE, _DELETE, _BEFORE = RowKind.UPDATE_AFTER, RowKind.DELETE, RowKind.UPDATE_BEFORE
_NONE = np.zeros(0, np.int64)
_AGGREGATES = ("aggregation", "first-row")
_UNSENT = "it did not change, and the source did not send it"
_WITHOUT_DELETES = ("partial-update", "aggregation", "first-row")


class SoftDelete(enum.Enum):
    """How a soft delete fills the columns that it does not set.

    KEEP_STORED: the merge engine keeps stored values where the new ones are null (partial-update):
    the key, the metadata and the mark are enough.

    RESTORED: the row is the before image; what is null in it is taken from the stored row, so any
    delete suffices. Of a delete with its key alone, and of every one where there is a filter, the
    row counts only if the table holds one of its key.

    BEFORE_IMAGE: the same where stored rows cannot be read back (aggregation, first-row): a delete
    with its key alone fails instead of emptying the stored row.
    """

    KEEP_STORED = "keep stored"
    RESTORED = "restored"
    BEFORE_IMAGE = "before image"

    @staticmethod
    def of(engine: str) -> "SoftDelete":
        """The mode for tables of a merge engine."""
        if engine == "partial-update":
            return SoftDelete.KEEP_STORED
        return SoftDelete.BEFORE_IMAGE if engine in _AGGREGATES else SoftDelete.RESTORED


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Transformed:
    """Rows after a transform.

    Attributes:
        rows: the table's columns in schema order, then `_VALUE_KIND` and `_OFFSET`, and
            `_UNAVAILABLE` where stored values must be restored; in the order of arrival.
        failed: indices of rows that failed, in the input, ascending, shape (n,).
        reasons: one per failed row.
        filtered_out: number of rows that did not satisfy the filter.
    """

    rows: pa.RecordBatch
    failed: npt.NDArray[np.int64]
    reasons: list[str]
    filtered_out: int = 0


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowTransform:
    """The transform of one table under one of its schemas. Make it with `of`.

    Attributes:
        decode_schema: what rows must be decoded with: the source's columns that the table or an
            expression needs. Key and partition columns that the pipeline makes are not in it.
        identity: whether rows stay as they are.
        ignored: columns of the source that are excluded; they cause no schema change.
        derived: columns of the table that the pipeline makes; no event may change them.
        missing: columns that the rule makes and the table does not have yet, with their types.
        metadata: names of `METADATA` that the `origin` must contain.
        soft_delete: how deletes are marked; None when they remove rows.
        needs_before: why changes must contain whole before images; empty when the key is enough.
        behind_key: columns of the source, no key of the table, that its key is computed from.
        moved_by: why updates and deletes must have the old values of the columns that the key is
            computed from; "" when it is not computed.
        warnings: for the user.
    """

    decode_schema: TableSchema
    identity: bool
    ignored: frozenset[str]
    derived: frozenset[str]
    missing: tuple[tuple[str, DataType], ...]
    metadata: frozenset[str]
    soft_delete: SoftDelete | None
    needs_before: tuple[str, ...]
    behind_key: frozenset[str]
    moved_by: str
    warnings: tuple[str, ...]
    _planned: PlannedRule
    _columns: tuple[Column, ...]
    _inputs: tuple[Inputs | None, ...]
    _filter: Inputs
    _table: TableSchema
    _schema: pa.Schema

    @classmethod
    def of(
        cls,
        rule: TransformRule,
        table_schema: TableSchema,
        *,
        hidden: Mapping[str, DataType] | None = None,
        zone: str = "UTC",
    ) -> "RowTransform":
        """Plan the transform of a table.

        Args:
            rule: as configured.
            table_schema: of the table as it is.
            hidden: source types of columns that the table does not have, or has masked with another
                type (`TableShape.hidden`, kept with the table).
            zone: time zone in which TIMESTAMP_LTZ is evaluated.

        Raises:
            InvalidRequestError: the rule is wrong, or does not fit the table.
        """
        source = source_types(rule, table_schema, hidden or {})
        planned = plan_rule(rule, source, zone)
        decode = decode_schema_of(planned, table_schema, source)
        columns = tuple(
            column_of(planned, field, decode, table_schema, zone) for field in table_schema.fields
        )
        engine = option_value(table_schema.options, "merge-engine")
        soft = SoftDelete.of(engine) if rule.soft_delete else None
        missing = _missing_columns(planned, table_schema)
        names = {key for name, key in planned.metadata.items() if name in table_schema.field_names}
        warnings = [
            *check_key_masks(planned, table_schema.primary_keys),
            *_warnings(planned, table_schema, engine),
        ]
        moved_by = _moved_by(planned, table_schema)
        same = decode.fields == table_schema.fields
        return cls(
            decode_schema=decode,
            identity=planned.filter is None
            and soft is None
            and same
            and all(column.kind is ColumnKind.PLAIN for column in columns),
            ignored=frozenset(rule.exclude) - frozenset(decode.field_names),
            derived=frozenset(rule.derived_names),
            missing=missing,
            metadata=frozenset(names | planned.used_metadata),
            soft_delete=soft,
            needs_before=_needs_before(moved_by, soft, planned),
            behind_key=key_inputs(planned, table_schema) - {*table_schema.primary_keys},
            moved_by=moved_by,
            warnings=tuple(warnings),
            _planned=planned,
            _columns=columns,
            _inputs=tuple(
                column_inputs(planned, field.name, column, decode, table_schema)
                for field, column in zip(table_schema.fields, columns, strict=True)
            ),
            _filter=inputs_of(planned.filter_inputs, decode, table_schema),
            _table=table_schema,
            _schema=pa.schema(
                [
                    *table_schema.arrow_schema,
                    pa.field(VALUE_KIND, pa.int8(), False),
                    pa.field(OFFSET_COLUMN, pa.int64(), False),
                ]
            ),
        )

    def apply(
        self, rows: pa.RecordBatch, origin: pa.RecordBatch | None = None, *, now_ms: int = 0
    ) -> Transformed:
        """Transform rows; never raises for their values.

        Args:
            rows: columns of `decode_schema` in order, then `_VALUE_KIND` int8 and `_OFFSET` int64,
                and `_UNAVAILABLE` where values are missing.
            origin: metadata, one row per row (`metadata.origin_schema`); what is absent is null.
            now_ms: what `now()` is [epoch ms]; the same for a replay of the batch.
        """
        if self.identity:
            return Transformed(rows, _NONE, [])
        count = rows.num_rows
        rows, unsent = split_unsent(rows)
        frame = self._frame(rows, origin, now_ms)
        kinds = rows.column(rows.num_columns - 2).to_numpy()
        failures: list[Failure] = []
        satisfied = self._satisfied(frame, kinds, unsent, failures)
        retracted = (kinds == _BEFORE) | (kinds == _DELETE)
        leaving = ~satisfied & ~retracted
        for failure in failures:  # whether they leave is unknown
            leaving &= ~failure.rows
        marked = self._mark_changes(rows, kinds, satisfied, failures)
        marks = Unsent.unmarked(count)
        marks.held_only |= self._held_only(rows, marked)
        kinds = np.where(leaving, np.int8(_DELETE), np.where(marked, np.int8(_UPDATE), kinds))
        out = self._rows_out(rows, origin, frame, kinds, marked)
        arrays = [
            self._values(at, out, unsent, marks, failures) for at in range(len(self._columns))
        ]
        arrays += [pa.array(kinds.astype(np.int8)), rows.column(rows.num_columns - 1)]
        dropped = leaving if not self._table.primary_keys else np.zeros(count, bool)
        failures = list(restricted(tuple(failures), ~dropped))
        failed, reasons = _of_records(failures, rows.column(rows.num_columns - 1).to_numpy())
        keep = ~dropped
        keep[failed] = False
        if not keep.all():
            mask = pa.array(keep)
            arrays = [array.filter(mask) for array in arrays]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        batch = marks.with_column(batch, keep)
        return Transformed(batch, failed, reasons, int(np.count_nonzero(leaving)))

    def _lacking(self, inputs: Inputs, out: RowsOut) -> Mask:
        """Soft deletes whose before image may lack inputs of a column."""
        if inputs.is_event_local or not out.soft_deletes.any():
            return np.zeros(len(out.soft_deletes), bool)
        masks = [
            np.asarray(pc.is_null(out.rows.column(index)).to_numpy(zero_copy_only=False))
            for index in inputs.indices
            if out.rows.column(index).null_count
        ]
        return out.soft_deletes & np.logical_or.reduce(
            masks or [np.zeros(len(out.soft_deletes), bool)]
        )

    def _frame(self, rows: pa.RecordBatch, origin: pa.RecordBatch | None, now_ms: int) -> Frame:
        names = self.decode_schema.field_names
        columns = {name: rows.column(index) for index, name in enumerate(names)}
        prefix = self._planned.rule.metadata_prefix
        for name in self._planned.used_metadata:
            columns[prefix + name] = origin_column(origin, name, rows.num_rows)
        expressions = {
            name: value for name, value in self._planned.computed.items() if name not in columns
        }
        return Frame(columns, rows.num_rows, now_ms, expressions)

    def _satisfied(
        self,
        frame: Frame,
        kinds: npt.NDArray[np.int8],
        unsent: Unsent,
        failures: list[Failure],
    ) -> Mask:
        if self._planned.filter is None:
            return np.ones(frame.num_rows, bool)
        cells = self._planned.filter.run(frame)
        failed = cells.failures
        lacking = unsent.any_of(self._filter.ids)
        if lacking.any():
            failed = (Failure(lacking, f"the filter reads {self._filter.names}: {_UNSENT}"),)
        failures += restricted(failed, (kinds != _BEFORE) & (kinds != _DELETE))
        return mask_of(cells.values, frame.num_rows)

    def _mark_changes(
        self,
        rows: pa.RecordBatch,
        kinds: npt.NDArray[np.int8],
        satisfied: Mask,
        failures: list[Failure],
    ) -> Mask:
        """Rows that become soft deletes."""
        if self.soft_delete is None:
            return np.zeros(len(kinds), bool)
        deletes = kinds == _DELETE
        if self.soft_delete is not SoftDelete.BEFORE_IMAGE and self._table.primary_keys:
            return np.asarray(deletes)
        if self.soft_delete is SoftDelete.BEFORE_IMAGE:
            alone = self._key_alone(rows) & deletes
            if alone.any():
                reason = "a soft delete needs the whole row, this one brings its key alone"
                failures.append(Failure(alone, reason))
        return np.asarray(deletes & satisfied)

    def _held_only(self, rows: pa.RecordBatch, marked: Mask) -> Mask:
        """Soft deletes that count only if the table holds a row of their key."""
        if not marked.any() or not self._table.primary_keys:
            return np.zeros(len(marked), bool)
        if self.soft_delete is not SoftDelete.BEFORE_IMAGE and self._planned.filter is not None:
            return marked
        if self.soft_delete is SoftDelete.RESTORED:
            return marked & self._key_alone(rows)
        return np.zeros(len(marked), bool)

    def _key_alone(self, rows: pa.RecordBatch) -> Mask:
        """Rows that have only their key."""
        rest = [
            index
            for index, name in enumerate(self.decode_schema.field_names)
            if name not in (*self._table.primary_keys, *POSITION_COLUMNS)
        ]
        if not rest:
            return np.zeros(rows.num_rows, bool)
        empty = np.ones(rows.num_rows, bool)
        for index in rest:
            column = rows.column(index)
            if column.null_count == 0:
                return np.zeros(rows.num_rows, bool)
            empty &= np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
        return empty

    def _rows_out(
        self,
        rows: pa.RecordBatch,
        origin: pa.RecordBatch | None,
        frame: Frame,
        kinds: npt.NDArray[np.int8],
        marked: Mask,
    ) -> RowsOut:
        retracted = (kinds == _BEFORE) | (kinds == _DELETE)
        keep_stored = self.soft_delete is SoftDelete.KEEP_STORED and bool(marked.any())
        return RowsOut(
            rows=rows,
            origin=origin,
            frame=frame,
            retracted=retracted,
            soft_deletes=marked,
            keeps_stored=marked if keep_stored else None,
        )

    def _values(
        self, at: int, out: RowsOut, unsent: Unsent, marks: Unsent, failures: list[Failure]
    ) -> pa.Array:
        column, inputs, field = self._columns[at], self._inputs[at], self._table.fields[at]
        values, failed = column.values(out)
        if inputs is not None and unsent.masks:
            some = unsent.any_of(inputs.ids)
            if some.any():
                whole = some & (not inputs.has_more_inputs) & unsent.all_of(inputs.ids)
                rows = some & ~whole & (column.always | ~out.retracted)
                reason = f"column `{field.name}` is computed from {inputs.names}: {_UNSENT}"
                failed = (*restricted(failed, ~some), *restricted((Failure(rows, reason),), rows))
                marks.mark(field.id, whole)
                values = pc.if_else(pa.array(some), pa.scalar(None, values.type), values)
        if inputs is not None and self.soft_delete is SoftDelete.RESTORED:
            lacking = self._lacking(inputs, out)
            if lacking.any():
                failed = restricted(failed, ~lacking)
                marks.mark(field.id, lacking)
        failures += failed
        if out.keeps_stored is not None and not column.always:
            values = pc.if_else(pa.array(out.keeps_stored), pa.scalar(None, values.type), values)
        return values


def _of_records(
    failures: Sequence[Failure], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The rows that failed, with the other rows of their records."""
    failed, reasons = combined(failures, len(offsets))
    if not len(failed):
        return failed, reasons
    reason_of = dict(zip(reversed(offsets[failed].tolist()), reversed(reasons), strict=True))
    rows = np.flatnonzero(np.isin(offsets, offsets[failed]))
    return rows, [reason_of[offset] for offset in offsets[rows].tolist()]


def _missing_columns(planned: PlannedRule, table: TableSchema) -> tuple[tuple[str, DataType], ...]:
    types: dict[str, DataType] = {}
    for name, value in planned.computed.items():
        if value.type is not None:
            types[name] = value.type
    types |= {name: METADATA[key].type for name, key in planned.metadata.items()}
    if planned.rule.soft_delete:
        types[planned.rule.deleted_column] = BOOLEAN
    return tuple((name, type_) for name, type_ in types.items() if name not in table.field_names)


def _moved_by(planned: PlannedRule, table: TableSchema) -> str:
    """Why the new values of a changed row do not locate the old one; "" = they do."""
    for name in table.primary_keys:
        inputs = planned.inputs.get(name, frozenset()) & planned.used_columns
        moving = inputs.difference(table.primary_keys)
        if moving:
            return (
                f"`{name}` of the primary key comes from {', '.join(sorted(moving))}, and the "
                "event lacks the old value: let the source send whole rows (REPLICA "
                f"IDENTITY FULL), or leave `{name}` out of the key and set bucket: -1"
            )
    return ""


def _needs_before(moved_by: str, soft: SoftDelete | None, planned: PlannedRule) -> tuple[str, ...]:
    """Why a delete must contain more than its key."""
    reasons = [moved_by] if moved_by else []
    if soft is SoftDelete.BEFORE_IMAGE:
        reasons.append("a soft delete writes the before image as the row")
        if planned.filter is not None:
            reasons.append("whether a deleted row was in the filter is seen in its before image")
    return tuple(reasons)


def _warnings(planned: PlannedRule, table: TableSchema, engine: str) -> list[str]:
    warnings = []
    if planned.filter is not None and table.primary_keys and engine in _WITHOUT_DELETES:
        warnings.append(
            f"rows that leave the filter are deletes, which a table with merge-engine = {engine} "
            "takes only with an option for them"
        )
    columns = planned.rule.partition_columns
    if columns and columns != table.partition_keys:
        warnings.append(
            f"the table is partitioned by ({', '.join(table.partition_keys)}), "
            f"not by ({', '.join(columns)}); partitions are chosen when a table is created"
        )
    computed = [column for column in planned.computed if column not in table.field_names]
    if computed:
        warnings.append(f"the table does not have the computed columns {', '.join(computed)} yet")
    return warnings
