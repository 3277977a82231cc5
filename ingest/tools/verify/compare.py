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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.tools.verify.columns import Columns
from ingest.tools.verify.hashes import Hashes, column_hashes, combined_hashes, text_hash

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
