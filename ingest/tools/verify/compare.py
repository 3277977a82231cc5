# SPDX-License-Identifier: Apache-2.0
"""The comparison: hashes of both sides, spooled to disk and joined by DuckDB.

1. The source is read once, then the lake. Of every row its key columns, the hash of its key and the
   hash of all its values are written to an Arrow file in the system's temporary directory.
2. DuckDB adds the hashes up by range of the key's hash, and joins the ranges whose sums differ, by
   the key's hash. It uses the disk where memory is short.

The result are candidates: a side may have changed between the two reads. `recheck` reads them
again and decides.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.tools.verify.fitting import Form, canonical, cut_to_precision
from storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.index.hashing import wang_mix, xxh64
from storage.format.index.values import byte_view
from storage.format.metadata.schema import TableSchema
from storage.format.row.bucket import mixed
from storage.format.types.types import AtomicType, DataType, TypeRoot, arrow_type
from storage.io.file_io import FileIO
from storage.io.resolve import is_local
from storage.table.scan.expression_text import split_assignment
from storage.table.scan.predicate import And, Between, In, Predicate, mask
from storage.table.table import FileStoreTable

# 64-bit hashes of values, keys and rows, a column at a time.
#
# Both sides of a comparison are brought to the lake table's Arrow types first, so a hash is a
# function of type and value alone. The canonical form of a value is
#
# * numbers, dates, times, timestamps: the integer that Arrow stores, 64 bits wide;
# * decimals: the unscaled number, 128 bits;
# * floats: their bits, with one NaN; -0.0 and 0.0 differ;
# * texts and bytes: the bytes (XXH64);
# * null: a constant of its own, so that it differs from every value with high probability;
# * lists: their elements in order and the length; maps: their entries in any order; rows: the
#   fields.
#
# Not part of any file format.


Hashes = npt.NDArray[np.uint64]

_SEED = np.uint64(0x5851F42D4C957F2D)
_NULL = np.uint64(0x9FB21C651E98DF25)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def text_hash(text: str) -> np.uint64:
    """The hash of one text."""
    return np.uint64(column_hashes(pa.array([text], pa.string()))[0])


def combined_hashes(columns: Sequence[Hashes], count: int) -> Hashes:
    """One hash per row of the hashes of its columns; the order of the columns counts.

    Args:
        columns: shape (count,) each.
        count: rows; needed where there is no column.
    """
    state = np.full(count, _SEED, np.uint64)
    for column in columns:
        state *= _STEP
        state ^= column
        state = mixed(state)
    return state


def column_hashes(column: pa.Array) -> Hashes:
    """The hash of every value of a column.

    Raises:
        UnsupportedFeatureError: the type is none of those that a lake table has.
    """
    hashes = _value_hashes(column)
    if column.null_count:
        hashes[np.asarray(pc.is_null(column))] = _NULL
    return hashes


def _value_hashes(column: pa.Array) -> Hashes:
    """As `column_hashes`; the hash of a null is undefined. The caller owns the result."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return xxh64(*byte_view(column))
    if pa.types.is_decimal128(type_):
        return _decimal_hashes(column)
    if pa.types.is_floating(type_):
        return _integer_hashes(_float_bits(column))
    if pa.types.is_list(type_):
        return _list_hashes(column)
    if pa.types.is_map(type_):
        return _map_hashes(column)
    if pa.types.is_struct(type_):
        fields = [column_hashes(column.field(i)) for i in range(type_.num_fields)]
        return combined_hashes(fields, len(column))
    return _integer_hashes(_integers(column))


def _integers(column: pa.Array) -> npt.NDArray[np.int64]:
    type_ = column.type
    if pa.types.is_boolean(type_):
        column = column.cast(pa.int8())
    elif pa.types.is_timestamp(type_):
        column = column.view(pa.int64())
    elif pa.types.is_date32(type_) or pa.types.is_time32(type_):
        column = column.view(pa.int32())
    elif not pa.types.is_signed_integer(type_):
        raise UnsupportedFeatureError("columns of this type cannot be compared", type=type_)
    return np.asarray(pc.fill_null(column, 0)).astype(np.int64)


def _integer_hashes(values: npt.NDArray[np.int64]) -> Hashes:
    return wang_mix(values)


def _float_bits(column: pa.Array) -> npt.NDArray[np.int64]:
    values = np.asarray(pc.fill_null(column, 0.0))
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    wide = values.dtype == np.float64
    return values.view(np.int64 if wide else np.int32).astype(np.int64)


def _decimal_hashes(column: pa.Array) -> Hashes:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), np.uint64)
    words = np.frombuffer(buffer, np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))]
    return combined_hashes([wang_mix(words[0::2]), wang_mix(words[1::2])], len(column))


def _list_hashes(column: pa.ListArray) -> Hashes:
    elements = column_hashes(column.flatten())
    lengths = _lengths(column)
    places = _list_positions(lengths)
    mixed = combined_hashes([elements, wang_mix(places)], len(elements))
    return combined_hashes([_element_sums(mixed, lengths), wang_mix(lengths)], len(column))


def _map_hashes(column: pa.MapArray) -> Hashes:
    fields = [pa.field("key", column.type.key_type), pa.field("value", column.type.item_type)]
    entries = pa.list_(pa.struct(fields))
    pairs = column.cast(entries)
    flat = pairs.flatten()
    hashes = [column_hashes(flat.field(0)), column_hashes(flat.field(1))]
    lengths = _lengths(pairs)
    mixed = combined_hashes(hashes, len(flat))
    return combined_hashes([_element_sums(mixed, lengths), wang_mix(lengths)], len(column))


def _lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)


def _list_positions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of every element in its list."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)


def _element_sums(elements: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """The sum of the elements of every list, modulo 2^64."""
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(elements, dtype=np.uint64)))
    return np.asarray(running[bounds[1:]] - running[bounds[:-1]])


# Which columns are compared, which are the key, and why the others are left out.


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A column that is compared.

    Attributes:
        name: in the lake table.
        type: of the lake table.
        source: its name on the other side.
        form: how texts are compared.
    """

    name: str
    type: DataType
    source: str
    form: Form = Form.PLAIN


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a comparison.

    Attributes:
        keys: columns that identify a row; all of them when the table has no key.
        values: the other columns.
        keyed: whether no two rows have equal keys.
    """

    keys: tuple[Compared, ...]
    values: tuple[Compared, ...]
    keyed: bool = True

    @property
    def all(self) -> tuple[Compared, ...]:
        """Keys, then the rest: the columns of every batch."""
        return (*self.keys, *self.values)

    @property
    def key_names(self) -> list[str]:
        """Names of the keys in the lake table."""
        return [column.name for column in self.keys]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of every batch."""
        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.all])


@dataclasses.dataclass(frozen=True, slots=True)
class Counterpart:
    """A column of the source that a lake column is compared with.

    Attributes:
        name: of it.
        form: how texts are compared.
    """

    name: str
    form: Form = Form.PLAIN


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut:
    """A column that is not compared, and why."""

    column: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedColumns:
    """The columns of a table, compared or not.

    Attributes:
        columns: the compared ones.
        left_out: the others.
        key_left_out: columns of the lake's key that the source does not have.
    """

    columns: Columns
    left_out: tuple[LeftOut, ...]
    key_left_out: tuple[str, ...]


Find = Callable[[str, DataType], Counterpart | str]
"""The counterpart of a lake column, or why there is none."""


def plan_columns(
    schema: TableSchema,
    find: Find,
    source_names: Sequence[str],
    *,
    key: Sequence[str] = (),
    without: Mapping[str, str] | None = None,
) -> PlannedColumns:
    """Choose the columns of a comparison.

    Args:
        schema: of the lake table.
        find: looks a lake column up in the source.
        source_names: all columns of the source.
        key: columns that identify a row; none = the lake table's primary key.
        without: lake columns that are not compared, and why.

    Raises:
        InvalidRequestError: a column of the key is unknown, or nothing is left to compare.
    """
    unknown = sorted((set(key) | set(without or ())) - set(schema.field_names))
    unknown = [name for name in unknown if name in key or (without or {})[name] == EXCLUDED]
    if unknown:
        raise InvalidRequestError(
            "no such column",
            hint=f"the table has {', '.join(schema.field_names)}",
            column=unknown[0],
        )
    compared: dict[str, Compared] = {}
    left_out: list[LeftOut] = []
    for field in schema.fields:
        match = (without or {}).get(field.name) or find(field.name, field.type)
        if isinstance(match, str):
            left_out.append(LeftOut(field.name, match))
        else:
            compared[field.name] = Compared(field.name, field.type, match.name, match.form)
    key_names = list(key or schema.primary_keys)
    keys = [name for name in key_names if name in compared]
    if key_names and (not keys or (key and len(keys) < len(key))):
        raise InvalidRequestError(
            "the source lacks the table's key columns",
            hint="name columns that identify a row in both with --key",
            key=", ".join(key_names),
        )
    if not compared:
        raise InvalidRequestError("the table and the source have no column in common")
    used = {entry.source for entry in compared.values()} | {entry.column for entry in left_out}
    left_out += [
        LeftOut(name, "not in the lake table") for name in source_names if name not in used
    ]
    names = keys or list(compared)
    columns = Columns(
        tuple(compared[name] for name in names),
        tuple(column for name, column in compared.items() if name not in names),
        keyed=bool(keys),
    )
    missing = tuple(name for name in key_names if name not in compared)
    return PlannedColumns(columns, tuple(left_out), missing)


EXCLUDED = "left out by --exclude"


def derived_columns(
    *,
    computed: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    masked: Mapping[str, str] | None = None,
    excluded: Sequence[str] = (),
) -> dict[str, str]:
    """Map lake columns that do not hold the source's values to the reason.

    Args:
        computed: `name = expression` each, of the pipeline.
        partition_by: columns, or `name = expression` each.
        masked: masks by column.
        excluded: by the command line.
    """
    texts = [*computed, *(text for text in partition_by if "=" in text)]
    reasons = {split_assignment(text)[0]: "computed by the pipeline" for text in texts}
    reasons |= dict.fromkeys(masked or {}, "masked by the pipeline")
    return reasons | dict.fromkeys(excluded, EXCLUDED)


ANY_NUMBER = 1 << 31
"""`keys_at_once` of a side that reads everything whatever the keys are."""

KEY_HASH, ROW_HASH, UNFIT = "_key_hash", "_row_hash", "_unfit"
_UNFIT_TYPE = pa.map_(pa.string(), pa.string())
_MOST_RANGES = 1 << 16
_MASK = (1 << 64) - 1

Unfit = tuple[int, str, str]
"""(row, column, text) of a value that the lake's type cannot hold; in its batch it is null."""


class Kind(enum.Enum):
    """How a key differs; the value is what a report says."""

    MISSING = "missing in the lake"
    EXTRA = "extra in the lake"
    DIFFERENT = "different"


class Side(Protocol):
    """One of the two tables that are compared."""

    @property
    def label(self) -> str:
        """Its name in reports; holds no secret."""

    def keys_at_once(self, total: int) -> int:
        """How many keys `of_keys` takes, where there are `total` of them to look up."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its rows as `hashed` returns them, in any order."""

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """At least the rows that have one of these keys, each once, as `hashed` returns them.

        Args:
            keys: the key columns, in the lake's types; at most as many as `keys_at_once` says.
        """


def hashed_schema(columns: Columns) -> pa.Schema:
    """Schema of hashed rows: the compared columns, unfit values, hash of the key, of the row."""
    hashes = [pa.field(name, pa.uint64()) for name in (KEY_HASH, ROW_HASH)]
    return pa.schema([*columns.schema, pa.field(UNFIT, _UNFIT_TYPE), *hashes])


def hashed(rows: pa.RecordBatch, columns: Columns, unfit: Sequence[Unfit] = ()) -> pa.RecordBatch:
    """Hash rows; unfit values count by their text."""
    hashes = [column_hashes(column) for column in rows.columns]
    texts: dict[int, dict[str, str]] = {}
    for row, column, text in unfit:
        hashes[rows.schema.get_field_index(column)][row] = ~text_hash(text)
        texts.setdefault(row, {})[column] = text
    count = rows.num_rows
    unfit_column = pa.nulls(count, _UNFIT_TYPE)
    if texts:
        pairs = [list(texts[row].items()) if row in texts else None for row in range(count)]
        unfit_column = pa.array(pairs, _UNFIT_TYPE)
    keys = combined_hashes(hashes[: len(columns.keys)], count)
    values = combined_hashes([keys, *hashes[len(columns.keys) :]], count)
    arrays = [*rows.columns, unfit_column, pa.array(keys), pa.array(values)]
    return pa.RecordBatch.from_arrays(arrays, schema=hashed_schema(columns))


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison:
    """The result of comparing two sides.

    Attributes:
        source_rows: rows of the source.
        lake_rows: rows of the lake.
        source_checksum: of all its rows, 32 hexadecimal digits.
        lake_checksum: the same of the lake.
        ranges: ranges of the key's hash.
        ranges_differing: those whose checksums differ.
        candidates: one row per key that differs, by one read of each side: key
            columns, unfit values, hash of the key; of the side that has the key, the source where
            both do.
        kinds: how each differs.
        complete: whether these are all of them; False = the search was ended at the limit.
    """

    source_rows: int = 0
    lake_rows: int = 0
    source_checksum: str = ""
    lake_checksum: str = ""
    ranges: int = 0
    ranges_differing: int = 0
    candidates: pa.Table = dataclasses.field(default_factory=lambda: pa.table({}))
    kinds: tuple[Kind, ...] = ()
    complete: bool = True


def compare(
    source: Side,
    lake: Side,
    columns: Columns,
    *,
    directory: Path,
    rows_per_range: int,
    limit: int,
) -> Comparison:
    """Read both sides once and compare them.

    Args:
        source: one side.
        lake: the other.
        columns: what is compared.
        directory: for the hashes.
        rows_per_range: target number of rows of a range.
        limit: of the keys that are returned.

    Raises:
        LakewardError: a side cannot be read.
    """
    tables = {
        name: _spooled(side, columns, directory / f"{name}.arrow")
        for name, side in (("source", source), ("lake", lake))
    }
    rows = max(table.num_rows for table in tables.values())
    range_count = max(16, min(_MOST_RANGES, rows // rows_per_range))
    bits = int(range_count - 1).bit_length()
    with _connected(tables, directory) as database:
        sums = {name: _sums(database, name, 64 - bits) for name in tables}
        differing = [
            range_
            for range_ in sorted({*sums["source"], *sums["lake"]})
            if sums["source"].get(range_) != sums["lake"].get(range_)
        ]
        differences = (
            _key_differences(database, 64 - bits, differing, limit + 1) if differing else {}
        )
    head = dict(list(differences.items())[:limit])
    candidates, kinds = _candidates(tables, columns, head)
    return Comparison(
        source_rows=tables["source"].num_rows,
        lake_rows=tables["lake"].num_rows,
        source_checksum=_checksum(sums["source"]),
        lake_checksum=_checksum(sums["lake"]),
        ranges=1 << bits,
        ranges_differing=len(differing),
        candidates=candidates,
        kinds=kinds,
        complete=len(differences) <= limit,
    )


def _spooled(side: Side, columns: Columns, path: Path) -> pa.Table:
    """Keys and hashes of a side, in a file that is mapped into memory."""
    names = [*columns.key_names, UNFIT, KEY_HASH, ROW_HASH]
    schema = pa.schema([hashed_schema(columns).field(name) for name in names])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in side.batches():
            writer.write_batch(batch.select(names))
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _connected(tables: Mapping[str, pa.Table], directory: Path | None = None) -> Any:
    config: dict[str, Any] = {} if directory is None else {"temp_directory": str(directory)}
    database = duckdb.connect(config=config)
    for name, table in tables.items():
        database.register(name, table.select([KEY_HASH, ROW_HASH]))
    return database


_Sum = tuple[int, int, int]
"""Rows of a range; sum and exclusive or of their hashes."""


def _sums(database: Any, side: str, shift: int) -> dict[int, _Sum]:
    rows = database.execute(
        f"SELECT {KEY_HASH} >> {shift}, count(*), sum({ROW_HASH}), bit_xor({ROW_HASH}) "
        f"FROM {side} GROUP BY 1"
    ).fetchall()
    return {range_: (count, total, mixed) for range_, count, total, mixed in rows}


def _checksum(sums: Mapping[int, _Sum]) -> str:
    total = sum(entry[1] for entry in sums.values()) & _MASK
    mixed = 0
    for entry in sums.values():
        mixed ^= entry[2]
    return f"{total:016x}{mixed:016x}"


def _key_differences(
    database: Any, shift: int, ranges: Sequence[int], limit: int
) -> dict[int, Kind]:
    """How keys differ, by the hash of the key; a key may be there several times.

    Such a key is compared by the number of its rows, then by the sum of their hashes.
    """
    database.execute("CREATE TEMP TABLE ranges AS SELECT unnest(?::UBIGINT[]) AS range", [ranges])
    grouped = (
        f"SELECT {KEY_HASH} AS key, count(*) AS rows, sum({ROW_HASH}) AS total FROM {{}} "
        f"WHERE {KEY_HASH} >> {shift} IN (SELECT range FROM ranges) GROUP BY 1"
    )
    rows = database.execute(
        f"WITH s AS ({grouped.format('source')}), l AS ({grouped.format('lake')}) "
        "SELECT key, CASE WHEN coalesce(s.rows, 0) > coalesce(l.rows, 0) THEN 'MISSING' "
        "WHEN coalesce(s.rows, 0) < coalesce(l.rows, 0) THEN 'EXTRA' ELSE 'DIFFERENT' END "
        "FROM s FULL JOIN l USING (key) "
        "WHERE s.rows IS DISTINCT FROM l.rows OR s.total IS DISTINCT FROM l.total LIMIT ?",
        [limit],
    ).fetchall()
    return {key: Kind[kind] for key, kind in rows}


def differing_keys(source: pa.Table, lake: pa.Table) -> dict[int, Kind]:
    """How keys differ between two tables of hashed rows, by the hash of the key."""
    if not source.num_rows and not lake.num_rows:
        return {}
    with _connected({"source": source, "lake": lake}) as database:
        return _key_differences(database, 63, [0, 1], ANY_NUMBER)


def _candidates(
    tables: Mapping[str, pa.Table], columns: Columns, kinds: Mapping[int, Kind]
) -> tuple[pa.Table, tuple[Kind, ...]]:
    parts = []
    for side, extra in (("source", False), ("lake", True)):
        keys = [key for key, kind in kinds.items() if (kind is Kind.EXTRA) is extra]
        parts.append(first_rows(tables[side], np.array(keys, np.uint64)))
    rows = pa.concat_tables(parts).select([*columns.key_names, UNFIT, KEY_HASH])
    return rows, tuple(kinds[key] for key in np.asarray(rows.column(KEY_HASH)).tolist())


def first_rows(table: pa.Table, keys: Hashes) -> pa.Table:
    """The first row of each of these hashes of keys, in the order of the table."""
    rows = table.filter(pc.is_in(table.column(KEY_HASH), value_set=pa.array(keys, pa.uint64())))
    _, first = np.unique(np.asarray(rows.column(KEY_HASH)), return_index=True)
    return rows.take(pa.array(np.sort(first)))


# Sides that are read as Arrow batches: lake tables and Parquet files.
#
# The lake side of a comparison is one of them; the source may be another lake table or a directory
# of Parquet files, whose columns are brought to the lake table's types.


_KEYS_PER_SCAN = 500
"""Keys of one condition: the scan compares each of them with each file."""

_SCANS = 4
"""Scans with a condition each; for more keys one scan without a condition is cheaper."""

_IN_CONDITIONS = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.VARBINARY, TypeRoot.BINARY),
        *(TypeRoot.DATE, TypeRoot.DECIMAL, TypeRoot.TIMESTAMP, TypeRoot.BOOLEAN),
    }
)
"""Types of key columns that a condition can list values of; other types need a full scan."""


class TableSide:
    """A lake table.

    Args:
        name: `database.table`, for reports.
        columns: what is compared.
        predicate: rows that count; None = all.
        by_source_name: columns are read by their names in the source: the table is the source.
    """

    def __init__(
        self,
        table: FileStoreTable,
        name: str,
        columns: Columns,
        predicate: Predicate | None = None,
        *,
        by_source_name: bool = False,
    ) -> None:
        self._table = table
        self._name = name
        self._columns = columns
        self._predicate = predicate
        self._names = [column.source if by_source_name else column.name for column in columns.all]
        self._looks_up = columns.keyed and all(
            isinstance(key.type, AtomicType)
            and key.type.root in _IN_CONDITIONS
            and key.form is Form.PLAIN
            for key in columns.keys
        )
        self.snapshot_id: int | None = None
        self.refresh()

    @property
    def label(self) -> str:
        """See `Side`."""
        return self._name

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        few = total <= _SCANS * _KEYS_PER_SCAN
        return _KEYS_PER_SCAN if self._looks_up and few else ANY_NUMBER

    def refresh(self) -> None:
        """Read the newest snapshot from now on."""
        snapshot = self._table.latest_snapshot()
        self.snapshot_id = None if snapshot is None else snapshot.id

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        return self._read(None)

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        if self._looks_up and keys.num_rows <= _KEYS_PER_SCAN:
            return self._read(_of_keys(self._names, keys))
        return self._read(
            _range_predicate(self._names[0], keys.column(0)) if keys.num_columns else None
        )

    def _read(self, condition: Predicate | None) -> Iterator[pa.RecordBatch]:
        if self.snapshot_id is None:
            return
        parts = [term for term in (self._predicate, condition) if term is not None]
        predicate = And(tuple(parts)) if parts else None
        scan = self._table.new_scan().with_snapshot(self.snapshot_id).with_all_levels()
        read = self._table.new_read(columns=list(dict.fromkeys(self._names)), predicate=predicate)
        for split in scan.with_filter(predicate).plan().splits:
            for batch in read.to_batches(split):
                yield _hashed(batch, self._names, self._columns)


def _of_keys(names: Sequence[str], keys: pa.RecordBatch) -> Predicate:
    """A condition that names the keys.

    Every column of the key has a condition of its own, which matches more rows than the keys.
    """
    pairs = zip(names, keys.columns, strict=False)
    return And(tuple(In(name, tuple(column.unique().to_pylist())) for name, column in pairs))


def _range_predicate(name: str, column: pa.Array) -> Predicate | None:
    """Between the least and the greatest of whole numbers; None for other types."""
    if not pa.types.is_integer(column.type):
        return None
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return None
    return Between(name, bounds["min"], bounds["max"])


def _hashed(batch: pa.RecordBatch, names: Sequence[str], columns: Columns) -> pa.RecordBatch:
    """Bring a batch to the lake's types and forms, and hash it.

    Raises:
        InvalidRequestError: a column does not convert.
    """
    arrays = []
    for name, compared in zip(names, columns.all, strict=True):
        column = batch.column(batch.schema.get_field_index(name))
        type_ = arrow_type(compared.type)
        if column.type != type_:
            column = _cast(column, type_, name)
        arrays.append(canonical(cut_to_precision(column, compared.type), compared.form))
    return hashed(pa.RecordBatch.from_arrays(arrays, schema=columns.schema), columns)


def _cast(column: pa.Array, type_: pa.DataType, name: str) -> pa.Array:
    try:
        finer = pa.types.is_timestamp(type_) and pa.types.is_timestamp(column.type)
        if finer and type_.tz is None and column.type.tz is not None:
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        return column.cast(type_, safe=not finer)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a column of the other table does not convert to the lake's type",
            hint=f"leave it out with --exclude {name}",
            detail=str(error).split("\n", maxsplit=1)[0],
            column=name,
            type=column.type,
            wanted=type_,
        ) from error


class FilesSide:
    """A Parquet file, or all `*.parquet` files of a directory."""

    def __init__(
        self, file_io: FileIO, path: str, columns: Columns, predicate: Predicate | None = None
    ) -> None:
        self._io = file_io
        self._path = path
        self._columns = columns
        self._predicate = predicate

    @property
    def label(self) -> str:
        """See `Side`."""
        return self._path

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        del total
        return ANY_NUMBER

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        names = [column.source for column in self._columns.all]
        for path in parquet_files(self._io, self._path):
            with _open_parquet(self._io, path) as file:
                for batch in file.iter_batches(batch_size=65_536):
                    if self._predicate is not None:
                        batch = batch.filter(mask(self._predicate, batch))
                    if batch.num_rows:
                        yield _hashed(batch, names, self._columns)

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        del keys
        return self.batches()


def _open_parquet(file_io: FileIO, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file_io.open_input(path))
    except pa.ArrowInvalid as error:
        raise CorruptDataError("not a Parquet file", detail=str(error), path=path) from error


def parquet_files(file_io: FileIO, path: str) -> list[str]:
    """The file itself, or the Parquet files below a directory, sorted.

    Raises:
        NotFoundError: there are none.
    """
    if Path(path).is_file() if is_local(path) else file_io.is_file(path):
        return [path]
    paths = sorted(
        status.path
        for status in file_io.walk(path)
        if status.path.endswith(".parquet") and not status.name.startswith(("_", "."))
    )
    if not paths:
        raise NotFoundError("there are no Parquet files", path=path)
    return paths


def parquet_schema(file_io: FileIO, path: str) -> pa.Schema:
    """Schema of the first file."""
    with _open_parquet(file_io, parquet_files(file_io, path)[0]) as file:
        return file.schema_arrow
