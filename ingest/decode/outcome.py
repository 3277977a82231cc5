# SPDX-License-Identifier: Apache-2.0
"""Outcomes of records: their rows, checks of their keys, isolation of failures.

Every record has exactly one outcome: rows, a count, a bad record, or a wait for a delta.
"""

import bisect
import dataclasses
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.columns import NO_NAMES, ColumnNames, PlanColumn, RowPlan
from ingest.decode.events import (
    MOVED,
    OFFSET_COLUMN,
    OWN_TABLE_OPTION,
    PARSE_ERRORS,
    SOURCE_TABLE_OPTION,
    UNAVAILABLE_COLUMN,
    BadRecord,
    ChangeBatch,
    DecodeResult,
    EventRefusedError,
    SchemaDelta,
    Target,
    Toast,
    failing_positions,
    format_hint,
)
from ingest.decode.json.single_event import (
    SingleRow,
    Tokens,
    UncoveredError,
    key_tokens,
)
from ingest.decode.shapes import Fate, Shape
from ingest.decode.types.conversions import CONVERSION_ERRORS, Placeholder, convert
from ingest.decode.types.exact_numbers import storage_column
from ingest.decode.types.semantic_types import Codec
from ingest.errors import blames_record
from ingest.source.records import RawBatch
from storage.errors import InternalError
from storage.format.types.types import VALUE_KIND, RowKind

ColumnOf = Callable[[int, Codec, set[int]], pa.Array]
"""(number of a column, its codec, out: rows whose value did not convert) to the column."""

MARKS = pa.field(UNAVAILABLE_COLUMN, pa.list_(pa.int32()))
"""Of values that the source did not send."""

_KIND_OF_OP = bytes.maketrans(
    b"crud",
    bytes((RowKind.INSERT, RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE)),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ConvertedRows:
    """Columns of row structs.

    Attributes:
        columns: one array per column of the plan, all of one length.
        refused: indices of rows that must not be used, ascending: a value did not convert (it is
            null), a key or NOT NULL column is null, or the placeholder may be in it.
        unavailable: by column index the mask of values that the source did not send; they are
            null.
    """

    columns: list[pa.Array]
    refused: np.ndarray
    unavailable: Mapping[int, np.ndarray]


def convert_marked(plan: RowPlan, rows: Sequence[Any], placeholder: Placeholder) -> ConvertedRows:
    """Columns of row structs; values that the source did not send are marked as `Toast` says."""

    def column_of(number: int, codec: Codec, refused: set[int]) -> pa.Array:
        return convert_column(codec, list(map(plan.getters[number], rows)), refused)

    return convert_columns(plan, len(rows), column_of, placeholder)


def convert_columns(
    plan: RowPlan, count: int, column_of: ColumnOf, placeholder: Placeholder
) -> ConvertedRows:
    """As `convert_marked`, of `count` rows whose columns come from a function."""
    toast = plan.target.toast
    arrays: list[pa.Array] = []
    refused: set[int] = set()
    unavailable: dict[int, np.ndarray] = {}
    for number, column in enumerate(plan.columns):
        if column.codec is None:
            arrays.append(pa.nulls(count, _null_type(plan, column)))
            refused.update(_null_rows(column, arrays[-1]))
            continue
        array = column_of(number, column.codec, refused)
        suspects = placeholder.suspects(column.codec, array)
        if suspects is not None:
            mask = np.zeros(count, bool)
            if toast is not Toast.FAIL and column.type.nullable:
                exact = placeholder.exact(column.codec, array, suspects)
                mask = exact.to_numpy(zero_copy_only=False)
                array = pc.if_else(exact, pa.scalar(None, array.type), array)
            closer = suspects.to_numpy(zero_copy_only=False) & ~mask
            refused.update(np.flatnonzero(closer).tolist())
            if mask.any():
                unavailable[number] = mask
        arrays.append(array)
        refused.update(_null_rows(column, array))
    return ConvertedRows(arrays, np.array(sorted(refused), np.int64), unavailable)


def new_rows_lacking(ops: str, unavailable: Mapping[int, np.ndarray]) -> list[int]:
    """Rows that are new and lack a value, so that there is no older row to take it from.

    Args:
        ops: `c r u d`, one per row.
        unavailable: see `ConvertedRows`.
    """
    if not unavailable:
        return []
    lacking = np.flatnonzero(np.logical_or.reduce(list(unavailable.values())))
    return [index for index in lacking.tolist() if ops[index] != "u"]


def _null_type(plan: RowPlan, column: PlanColumn) -> pa.DataType:
    if plan.target.schema is None:
        raise InternalError("rows of a table that does not exist")
    return plan.target.schema.arrow_schema.field(column.name).type


def _null_rows(column: PlanColumn, array: pa.Array) -> list[int]:
    """Rows with null in a column that takes none."""
    if column.type.nullable or not array.null_count:
        return []
    rows: list[int] = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return rows


def convert_column(codec: Codec, values: list[Any], refused: set[int]) -> pa.Array:
    """A column with null for values that do not convert, whose rows are added to `refused`."""
    try:
        return convert(codec, values)
    except CONVERSION_ERRORS:
        bad = failing_positions(
            lambda low, high: convert(codec, values[low:high]), len(values), CONVERSION_ERRORS
        )
    for index in bad:
        values[index] = None
    refused.update(bad)
    return convert(codec, values)


class TargetRows:
    """Rows of one target, gathered from several shapes and from single events.

    1. `add_columns` and `add_single`, any number, in any order;
    2. `finish` once.
    """

    def __init__(self, target: Target) -> None:
        if target.schema is None:
            raise InternalError("rows of a table that does not exist", table=target.identifier)
        self._target = target
        self._schema = target.schema
        self._parts: list[pa.RecordBatch] = []
        self._singles: list[tuple[int, SingleRow]] = []
        self._stamps: list[int] = []
        fields = [*target.schema.arrow_schema]
        fields += [
            pa.field(VALUE_KIND, pa.int8(), False),
            pa.field(OFFSET_COLUMN, pa.int64(), False),
        ]
        self._arrow = pa.schema(fields)

    def add_columns(
        self,
        columns: Sequence[pa.Array],
        ops: str,
        offsets: Sequence[int] | np.ndarray,
        stamps: Sequence[int | None] | np.ndarray,
        refused: np.ndarray,
        unavailable: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        """Add converted rows.

        Args:
            columns: in schema order.
            ops: `c r u d`, one per row.
            offsets: ascending.
            stamps: `source.ts_ms` [epoch ms]; in an array -1 stands for None.
            refused: indices of rows to leave out.
            unavailable: see `ConvertedRows`.
        """
        kinds = np.frombuffer(ops.encode().translate(_KIND_OF_OP), np.int8)
        if isinstance(offsets, range):
            offsets = np.arange(offsets.start, offsets.stop)
        arrays = [*columns, pa.array(kinds), pa.array(offsets, pa.int64())]
        fields = list(self._arrow)
        keep = np.ones(len(ops), bool)
        keep[refused] = False
        if unavailable and self._target.toast is Toast.KEEP:
            masks = {number: mask & keep for number, mask in unavailable.items()}
            if any(mask.any() for mask in masks.values()):
                ids = self._schema.fields
                arrays.append(marks_of({ids[at].id: masks[at] for at in sorted(masks)}))
                fields.append(MARKS)
        if len(refused):
            mask = pa.array(keep)
            arrays = [array.filter(mask) for array in arrays]
            if isinstance(stamps, np.ndarray):
                stamps = stamps[keep]
            else:
                stamps = [stamp for stamp, flag in zip(stamps, keep.tolist(), strict=True) if flag]
        self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
        self._note(stamps)

    def add_single(self, offset: int, row: SingleRow) -> None:
        """Add a row of the reference path; rows of one offset keep the order of the calls."""
        self._singles.append((offset, row))
        self._note([row.source_ts_ms])

    def _note(self, stamps: Sequence[int | None] | np.ndarray) -> None:
        if isinstance(stamps, np.ndarray):
            stamps = stamps[stamps >= 0]
            if len(stamps):
                self._stamps += [int(stamps.min()), int(stamps.max())]
            return
        moments = [stamp for stamp in stamps if stamp is not None] if None in stamps else stamps
        if moments:
            self._stamps += [min(moments), max(moments)]  # type: ignore[type-var,list-item]

    def finish(self) -> ChangeBatch | None:
        """The change batch in offset order, or None without rows."""
        parts = self._parts
        if self._singles:
            parts = [*parts, self._single_batch()]
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return None
        rows = joined_rows(parts)
        offsets = rows.column(OFFSET_COLUMN).to_numpy()
        if len(parts) > 1 and not (offsets[1:] >= offsets[:-1]).all():
            rows = rows.take(pa.array(np.argsort(offsets, kind="stable")))
        low, high = (min(self._stamps), max(self._stamps)) if self._stamps else (None, None)
        target = self._target
        return ChangeBatch(
            target.identifier, self._schema.id, rows, low, high, constants=target.constants
        )

    def _single_batch(self) -> pa.RecordBatch:
        self._singles.sort(key=lambda pair: pair[0])
        rows = [row for _, row in self._singles]
        arrays = [
            storage_column(field.type, [row.values[index] for row in rows])
            for index, field in enumerate(self._schema.arrow_schema)
        ]
        arrays.append(pa.array([int(row.kind) for row in rows], pa.int8()))
        arrays.append(pa.array([offset for offset, _ in self._singles], pa.int64()))
        if self._target.toast is not Toast.KEEP or not any(row.unavailable for row in rows):
            return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        fields = self._schema.fields
        marks = [
            [MOVED] * row.moved + [fields[number].id for number in row.unavailable] or None
            for row in rows
        ]
        arrays.append(pa.array(marks, MARKS.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*self._arrow, MARKS]))


def marks_of(masks: Mapping[int, np.ndarray]) -> pa.Array:
    """A column `MARKS` of masks by field id, at least one; null where none is true."""
    ids = np.array([*masks], np.int32)
    table = np.array([*masks.values()]).T
    offsets = np.r_[0, np.cumsum(table.sum(axis=1))].astype(np.int32)
    values = pa.array(ids[np.nonzero(table)[1]])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(~table.any(axis=1)))


def joined_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of several, some of which may have `UNAVAILABLE_COLUMN`."""
    if len(parts) == 1:
        return parts[0]
    if len({part.num_columns for part in parts}) > 1:
        parts = [_with_marks(part) for part in parts]
    return pa.concat_batches(parts)


def _with_marks(part: pa.RecordBatch) -> pa.RecordBatch:
    if part.schema.get_field_index(UNAVAILABLE_COLUMN) >= 0:
        return part
    return part.append_column(MARKS, pa.nulls(part.num_rows, MARKS.type))


def _merged(batches: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """One batch per target, in offset order; rows of one offset come from one of `batches`."""
    by_target: dict[object, list[ChangeBatch]] = {}
    for batch in batches:
        key = batch.target, batch.schema_id, batch.constants
        by_target.setdefault(key, []).append(batch)
    return [_join_parts(parts) for parts in by_target.values()]


def _join_parts(parts: Sequence[ChangeBatch]) -> ChangeBatch:
    if len(parts) == 1:
        return parts[0]
    rows = joined_rows([part.rows for part in parts])
    order = np.argsort(rows.column(OFFSET_COLUMN).to_numpy(), kind="stable")
    stamps = [
        stamp
        for part in parts
        for stamp in (part.min_source_ts_ms, part.max_source_ts_ms)
        if stamp is not None
    ]
    return dataclasses.replace(
        parts[0],
        rows=rows.take(pa.array(order)),
        min_source_ts_ms=min(stamps, default=None),
        max_source_ts_ms=max(stamps, default=None),
    )


_REFUSALS = {
    Fate.REFUSED: ("schema", "the table does not exist and could not be created"),
    Fate.CONFLICT: ("source_table_conflict", "the target is filled from another source table"),
    Fate.NO_KEY: (
        "no_primary_key",
        "the table has no primary key, which rows of this format need",
    ),
}


def bad_record(raw: RawBatch, at: int, error_class: str, error: str, target: str = "") -> BadRecord:
    """A record of a batch, whole, with what is wrong with it; arguments as in `BadRecord`."""
    return BadRecord(
        offset=raw.offsets[at],
        timestamp_ms=raw.timestamp_ms(at),
        key=raw.keys[at],
        value=raw.value(at),
        headers=tuple(raw.headers(at)),
        error_class=error_class,
        error=error,
        target=target,
    )


def _why_unnamed(key: bytes | None) -> str:
    """Why a record's key names no columns."""
    if not key:
        return "the record has no key; "
    if key.startswith(b"Struct{"):
        return (
            "the record's key is text of Connect's StringConverter, which has no types: set the "
            "connector's key.converter to the converter of the values, or "
        )
    return f"the record's key names no columns{format_hint(key)}; "


def _because(text: str, target: Target | None) -> str:
    why = "" if target is None else target.why_frozen
    return f"{text}: {why}" if why else text


def _why_keyless(shape: Shape, lacking: Sequence[str], key: bytes | None) -> str:
    names = ", ".join(lacking or shape.lacking_key)
    if not names:
        return f"no primary key: {_why_unnamed(key)}set primary.key for the table"
    if shape.has_configured_key:
        return f"primary.key names {names}, which the row does not have"
    return (
        f"the record's key has {names}, which the row does not have (Debezium's topic routing adds "
        "such members): set primary.key for the table to the columns of the row that are its key; "
        "where rows of several tables have equal keys, give their route a shard too"
    )


def _ownership_hint(target: Target) -> str:
    """The owner of the target, and the remedy."""
    options = {} if target.schema is None else target.schema.options
    if OWN_TABLE_OPTION in options:
        return f": {target.identifier} is a table of Lakeward's own ({options[OWN_TABLE_OPTION]})"
    owner = options.get(SOURCE_TABLE_OPTION, "")
    return f": {target.identifier} is that of {owner}; send one of them elsewhere with `route`"


class Outcome:
    """See the module.

    1. `count`, `refuse`, `withhold` and the rows of `rows_of`, in any order;
    2. `finish` once.

    Attributes:
        walked: records that became rows by the compiled scan.
    """

    def __init__(self, raw: RawBatch) -> None:
        self._raw = raw
        self._counts: Counter[str] = Counter()
        self._bad: list[BadRecord] = []
        self._rows: dict[Target, TargetRows] = {}
        self._by_id: dict[int, tuple[Target, TargetRows]] = {}
        """The same by id, which avoids hashing a schema of many columns."""
        self._case_matches: set[tuple[str, str, str]] = set()
        self.walked = 0
        self._withheld: dict[int, tuple[Shape, list[int]]] = {}

    def count(self, name: str, records: int = 1) -> None:
        """Count records by fate."""
        self._counts[name] += records

    def rows_of(self, plan: RowPlan) -> TargetRows:
        """The collector of a plan's rows, shared by all plans of one target."""
        target = plan.target
        if plan.case_matches:
            self._case_matches |= plan.case_matches
        entry = self._by_id.get(id(target))
        if entry is not None:
            return entry[1]
        rows = self._rows.get(target)
        if rows is None:
            rows = self._rows[target] = TargetRows(target)
        self._by_id[id(target)] = target, rows  # kept alive, so that its id is not reused
        return rows

    def offsets(self, positions: Sequence[int]) -> Sequence[int]:
        """Offsets of records."""
        offsets = self._raw.offsets
        if isinstance(positions, range):
            return offsets[positions.start : positions.stop]
        return [offsets[at] for at in positions]

    def refuse(self, at: int, error: EventRefusedError, target: str = "") -> None:
        """A record is bad; `target` is the table it is for, where that is known."""
        self._bad.append(bad_record(self._raw, at, error.error_class, str(error), target))

    def refuse_shape(self, shape: Shape, positions: Sequence[int]) -> None:
        """Records are bad because of what their table is (`Shape.fate`)."""
        error_class, text = _REFUSALS[shape.fate]
        target = shape.target
        if target is not None and target.refusal:
            error_class, text = target.refusal_class, target.refusal
        elif target is not None and shape.fate is Fate.CONFLICT:
            text = f"{text}{_ownership_hint(target)}"
        elif shape.fate is Fate.REFUSED and shape.refusal:
            text = shape.refusal
        elif target is not None and shape.fate is Fate.REFUSED:
            text = _because(text, target)
        refused = EventRefusedError(error_class, text)
        for at in positions:
            self.refuse(at, refused, shape.target_name)

    def refuse_keyless(self, shape: Shape, at: int, lacking: Sequence[str] = ()) -> None:
        """A record is bad because it determines no primary key.

        Args:
            shape: of the record.
            at: its position.
            lacking: key columns that the row does not have.
        """
        refused = EventRefusedError(
            "no_primary_key", _why_keyless(shape, lacking, self._raw.keys[at])
        )
        self.refuse(at, refused, shape.target_name)

    def uncovered(self, shape: Shape, at: int, error: UncoveredError, row: Tokens) -> None:
        """A record has columns that its table lacks: it waits for them, or is bad."""
        if shape.block is not None or shape.target is None or not shape.target.evolvable:
            names = ", ".join(error.tokens)
            text = _because(f"the table has no column {names}", shape.target)
            self.refuse(at, EventRefusedError("schema", text), shape.target_name)
            return
        try:
            shape.learn_columns(error.tokens, row)
        except EventRefusedError as refused:
            self.refuse(at, refused, shape.target_name)
            return
        self.withhold(shape, [at])

    def untaken(
        self,
        shape: Shape,
        at: int,
        error: UncoveredError | EventRefusedError,
        tokens: Tokens,
        placeholder: Placeholder,
    ) -> bool:
        """Handle a record that its shape's plan rejected.

        Args:
            shape: of the record.
            at: its position.
            error: why it was rejected.
            tokens: its row; empty = no column is to blame.
            placeholder: of unavailable values.

        Returns:
            True: the plan changed, the record must be tried again; False: the record has its
            outcome.
        """
        if tokens and shape.learn_names(tokens, placeholder):
            return True
        if isinstance(error, UncoveredError):
            self.uncovered(shape, at, error, tokens)
        elif tokens and shape.learn_types(tokens, placeholder):
            self.withhold(shape, [at])
        else:
            self.refuse(at, error, shape.target_name)
        return False

    def withhold(self, shape: Shape, positions: Sequence[int]) -> None:
        """Records wait for a change of the schema."""
        if positions:
            self._withheld.setdefault(id(shape), (shape, []))[1].extend(positions)

    def finish(self) -> DecodeResult:
        """The result. Withheld records that request no schema change are bad."""
        deltas: list[SchemaDelta] = []
        for shape, places in self._withheld.values():
            delta = shape.delta(self._raw.topic, self._raw.offsets[min(places)])
            if delta is not None:
                deltas.append(delta)
                self._counts["pending"] += len(places)
                continue
            refused = EventRefusedError("no_primary_key", "no value for the key")
            for at in places:
                self.refuse(at, refused, shape.target_name)
        batches = [rows.finish() for rows in self._rows.values()]
        return DecodeResult(
            changes=[batch for batch in batches if batch is not None],
            bad=sorted(self._bad, key=lambda record: record.offset),
            deltas=deltas,
            counts=dict(+self._counts),
            case_matches=frozenset(self._case_matches),
            walked=self.walked,
        )


def united(results: Sequence[DecodeResult]) -> DecodeResult:
    """Combine the results of several decoders, or calls, for the records of one raw batch."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    return DecodeResult(
        changes=_merged([change for result in results for change in result.changes]),
        bad=sorted((bad for result in results for bad in result.bad), key=lambda bad: bad.offset),
        deltas=[delta for result in results for delta in result.deltas],
        counts=dict(counts),
        case_matches=frozenset[tuple[str, str, str]]().union(
            *(result.case_matches for result in results)
        ),
        walked=sum(result.walked for result in results),
    )


# Keys of records: whether they still are the table's primary key, and rows whose key changed.
#
# A table made from the Kafka key merges rows by those columns. If the source's key grows later
# (`id` to `id, region`), rows of different keys would silently become one. Keys are not parsed on
# the fast path, so the keys of the first and the last row of a table are compared, and all of them
# only when one of the two differs: a source changes its key once, not back and forth within a few
# thousand records. (Other tables of the topic may have other keys.)
#
# Debezium writes a change of key as a delete of the old key (header `__debezium.newkey`), a
# tombstone and an insert of the new one (header `__debezium.oldkey`), consecutively. An insert with
# missing values (`unavailable`) can take them from the old row only if the last state of that row
# is known: its delete must directly precede the insert, in the same partition and batch of records.
# Otherwise there may be changes of the old row that have not been read yet (CDC.md §1.2).


OldKeys = Callable[[int], Tokens | None]
"""`KeyMoves.old_key`, for positions of any kind."""

_OLD, _NEW = "__debezium.oldkey", "__debezium.newkey"


class KeyMoves:
    """Finds old keys. Reads headers of single records, so it is for the few that need it.

    Args:
        json_key: the key of the record at a position as JSON; None = it has none.
        is_delete: whether the record at a position deletes a row.
    """

    def __init__(
        self,
        raw: RawBatch,
        json_key: Callable[[int], bytes | None],
        is_delete: Callable[[int], bool],
    ) -> None:
        self._raw = raw
        self._json_key = json_key
        self._is_delete = is_delete

    def old_key(self, at: int) -> Tokens | None:
        """Columns of the key that a new row had before; None: the row is new.

        Raises:
            EventRefusedError: the key changed, but the last state of the old row is unknown.
        """
        old = self._header(at, _OLD)
        if old is None:
            return None
        before = at - 1
        if before >= 0 and self._raw.value(before) is None:
            before -= 1  # the tombstone of the delete
        if before < 0 or self._raw.value(before) is None or not self._is_delete(before):
            raise _unknown("the delete of the old key is not the record right before")
        if self._header(before, _NEW) != _parsed(self._json_key(at)):
            raise _unknown("the delete before it is of another change")
        key = key_tokens(self._json_key(before))
        if not key or _parsed(self._json_key(before)) != old:
            raise _unknown("the delete before it is of another key")
        return key

    def _header(self, at: int, name: str) -> Any:
        return _parsed(dict(self._raw.headers(at)).get(name))


def _parsed(text: bytes | None) -> Any:
    """A key without its schema; None for what is no JSON object."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
    except PARSE_ERRORS:
        return None
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def _unknown(reason: str) -> EventRefusedError:
    return EventRefusedError(
        "unavailable_value",
        f"the key changed, the source did not send all values, and {reason}: the old row may have "
        "changed where it was not seen",
    )


KEY_CHANGED = "primary_key_changed"


KeyColumns = Callable[[RawBatch, int], frozenset[str] | None]
"""(batch, position) to the column names of a record's key; None when it has none."""


def json_keys(raw: RawBatch, at: int) -> frozenset[str] | None:
    """`KeyColumns` of JSON."""
    return key_columns(raw.keys[at])


def key_columns(key: bytes | None) -> frozenset[str] | None:
    """Column names of a Kafka key; None when it has none or is no JSON object."""
    members = _parsed(key)
    return None if members is None else frozenset(members)


def without_foreign_keys(
    raw: RawBatch,
    change: ChangeBatch,
    primary_key: Collection[str],
    columns_of: KeyColumns = json_keys,
    names: ColumnNames = NO_NAMES,
) -> tuple[ChangeBatch | None, list[BadRecord]]:
    """Remove the rows whose record has another key than the table.

    Args:
        change: what was decoded from them for one table.
        primary_key: the table's.
        columns_of: reads keys.
        names: column names by the table's options, former names included.

    Returns:
        The remaining rows (None if there are none), and the removed records, in offset order.
    """
    expected = frozenset(primary_key)

    def disagrees(at: int) -> bool:
        columns = columns_of(raw, at)
        if columns is None or columns == expected:
            return False
        slots = {name: names.slots(name, expected, columns) for name in columns}
        return {matches[0] if matches else name for name, matches in slots.items()} != expected

    column = change.rows.column(OFFSET_COLUMN)
    ends = [column[0].as_py(), column[-1].as_py()] if len(column) else []
    if not any(disagrees(bisect.bisect_left(raw.offsets, offset)) for offset in ends):
        return change, []
    row_offsets = set(column.to_pylist())
    error = (
        f"the record's key is not the primary key of {change.target} "
        f"({', '.join(primary_key)}): make a new table for the new key"
    )
    bad = [
        bad_record(raw, index, KEY_CHANGED, error, change.target)
        for index, offset in enumerate(raw.offsets)
        if offset in row_offsets and disagrees(index)
    ]
    if not bad:
        return change, []
    removed = {record.offset for record in bad}
    offsets = change.rows.column(OFFSET_COLUMN).to_pylist()
    keep = pa.array([offset not in removed for offset in offsets])
    rows = change.rows.filter(keep)
    if rows.num_rows == 0:
        return None, bad
    origin = None if change.origin is None else change.origin.filter(keep)
    return dataclasses.replace(change, rows=rows, origin=origin), bad


# An unexpected failure of one record does not fail a batch: bisection isolates and quarantines it.
#
# A row that fails in a later step (placing, writing) is found in the same way; its record is
# reported to the driver, which runs the batch again without it (`BatchPlan.unwritable`).
#
# The content of a record may only make the record bad. If decoding raises an unforeseen exception,
# the records that raise it alone are found (`bisection`), each becomes a bad record of class
# `internal` with the end of the traceback, and the others are decoded without them. Errors of a
# task's environment (see `ingest.errors.blames_record`) are not a record's, and propagate.


UNEXPECTED_ERROR = "internal"
_FRAMES = 12
_MESSAGE = 500
_TEXT = 6_000
_MOST_ROWS = 100
"""Failing rows of one table and task that are isolated; if more fail, rows are not the cause."""


class _UnforeseenError(Exception):
    """An unforeseen error; see its cause."""


def reason_text(error: BaseException) -> str:
    """An unforeseen error and the end of its traceback as storable text of limited length."""
    name, message = type(error).__name__, str(error)[:_MESSAGE]
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES))
    text = f"{name}: {message}: not foreseen, please report it\n{frames[-_TEXT:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def isolated(
    decode: Callable[[RawBatch], DecodeResult],
    attempt: Callable[[RawBatch], object],
    raw: RawBatch,
) -> DecodeResult:
    """Decode records, except those that raise unforeseen errors.

    Args:
        decode: decodes records.
        attempt: tries the same without side effects.

    Raises:
        Exception: an error that is not a record's.
    """
    try:
        return decode(raw)
    except Exception as error:
        if not blames_record(error):
            raise
        if len(raw) == 1:
            refused = bad_record(raw, 0, UNEXPECTED_ERROR, reason_text(error))
            return DecodeResult([], [refused], [], {})
    failing = failing_positions(
        lambda low, high: _try_decode(attempt, raw.of(range(low, high))),
        len(raw),
        (_UnforeseenError,),
    )
    if not failing:  # only together: each half separately
        middle = len(raw) // 2
        halves = (range(middle), range(middle, len(raw)))
        return united([isolated(decode, attempt, raw.of(half)) for half in halves])
    excluded = set(failing)
    good_positions = [at for at in range(len(raw)) if at not in excluded]
    parts = [isolated(decode, attempt, raw.of([at])) for at in failing]
    if good_positions:
        parts.append(isolated(decode, attempt, raw.of(good_positions)))
    return united(parts)


def guilty_rows(
    attempt: Callable[[int, int], object], count: int, error: Exception
) -> dict[int, str]:
    """The rows for which a step after decoding fails, and why.

    Args:
        attempt: tries the step with the rows of a range, which may be empty.
        count: of rows.
        error: raised by the step for all of them.

    Raises:
        Exception: `error`, if it is not caused by single rows.
    """
    reasons: dict[int, str] = {}

    def try_range(low: int, high: int) -> None:
        try:
            attempt(low, high)
        except Exception as cause:
            if not blames_record(cause):
                raise
            if high - low == 1:
                reasons[low] = reason_text(cause)
                if len(reasons) > _MOST_ROWS:
                    raise error from cause
            raise _UnforeseenError from cause

    if not blames_record(error):
        raise error
    try:
        try_range(0, 0)
    except _UnforeseenError:
        raise error from None
    if count == 1:
        return {0: reason_text(error)}
    positions = failing_positions(try_range, count, (_UnforeseenError,))
    if not positions or len(positions) == count:
        raise error
    return {at: reasons[at] for at in positions}


def _try_decode(attempt: Callable[[RawBatch], object], raw: RawBatch) -> None:
    try:
        attempt(raw)
    except Exception as error:
        if not blames_record(error):
            raise
        raise _UnforeseenError from error
