# SPDX-License-Identifier: Apache-2.0
"""SQL over a compacted table of ten million rows, against DuckDB on the same Parquet files.

Both run in this process, in turns, with the same number of threads; results must be equal. CPU
seconds make the ratio, because on two cores others decide who waits; wall times are in the notes.
"""

import functools
import statistics
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.sql.session import SqlSession
from storage.table.commit.live_files import live_entries
from storage.table.table import FileStoreTable
from tests.bench.measure import Figure, interleaved, rate

ROWS = 10_000_000
_PIECE = 500_000
_GOAL = 0.7
_COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("status", "STRING"),
    ("city", "STRING"),
    ("note", "STRING"),
    ("amount", "DOUBLE"),
    ("quantity", "INT"),
)
_STATUS = pa.array(["created", "paid", "shipped", "returned", "closed"])
_CITIES = pa.array([f"city number {number}" for number in range(1_000)])
_QUERIES = {
    "count(*)": "SELECT count(*) AS c FROM t",
    "sum, min, max": "SELECT sum(quantity), min(amount), max(amount) FROM t",
    "group by 5 texts": "SELECT status, count(*), sum(quantity) FROM t GROUP BY status ORDER BY 1",
    "group by 1,000 texts": "SELECT city, sum(quantity) FROM t GROUP BY city ORDER BY 1",
    "group by an integer": "SELECT quantity, count(*) FROM t GROUP BY quantity ORDER BY 1",
    "filtered by text": "SELECT sum(quantity) FROM t WHERE status = 'paid'",
    "longest text": "SELECT max(length(note)) FROM t",
}


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rows, rounds = (ROWS // 10, 3) if quick else (ROWS, 5)
    session = SqlSession(FileSystemCatalog(str(scratch)), "db")
    files = _live_files(_compacted(rows, session))
    theirs = duckdb.connect()
    listed = ", ".join(f"'{path}'" for path in files)
    theirs.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet([{listed}])")

    def ours(text: str) -> list[tuple[object, ...]]:
        *_, result = session.execute(text)
        assert result.rows is not None
        return list(zip(*(column.to_pylist() for column in result.rows.columns), strict=True))

    def duck(text: str) -> list[tuple[object, ...]]:
        return theirs.execute(text).fetchall()

    figures = []
    for what, text in _QUERIES.items():
        ways = {"lakeward": ours, "duckdb": duck}
        samples = interleaved(
            rounds, {name: functools.partial(way, text) for name, way in ways.items()}
        )
        if samples["lakeward"][0].result != samples["duckdb"][0].result:
            raise RuntimeError(f"the results of {text} differ")
        walls = ", ".join(
            f"{name} {statistics.median(one.wall_s for one in taken):.3f} s"
            for name, taken in samples.items()
        )
        figures.append(
            rate(
                f"SQL over {rows:,} rows, {what}",
                samples,
                "lakeward",
                rows,
                versus="duckdb",
                unit="rows/CPU s",
                cpu=True,
                goal=_GOAL,
                note=f"{len(files)} files; wall times: {walls}",
            )
        )
    theirs.close()
    return figures


def _live_files(table: FileStoreTable) -> list[str]:
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    return [
        table.data_path(entry.partition, entry.bucket, entry.file.file_name)
        for entry in live_entries(table, snapshot)
    ]


def _compacted(rows: int, session: SqlSession) -> FileStoreTable:
    """Fully compacted, two buckets."""
    schema = new_schema(
        [(name, parse_type(text)) for name, text in _COLUMNS],
        primary_keys=("id",),
        options={"bucket": "2"},
    )
    session.catalog.create_database("db")
    table = session.catalog.create_table("db.t", schema)
    random = np.random.default_rng(3)
    with table.new_write("bench") as writer:
        for start in range(0, rows, _PIECE):
            count = min(_PIECE, rows - start)
            ids = np.arange(start, start + count)
            columns = [
                pa.array(ids),
                _STATUS.take(pa.array(random.integers(0, len(_STATUS), count))),
                _CITIES.take(pa.array(random.integers(0, len(_CITIES), count))),
                pa.array(random.integers(0, 1 << 60, count)).cast(pa.string()),
                pa.array(random.random(count)),
                pa.array(random.integers(0, 200, count), pa.int32()),
            ]
            arrow = table.schema.arrow_schema
            writer.write(pa.RecordBatch.from_arrays(columns, schema=arrow))
        writer.compact(full=True)
        table.new_commit("bench").commit(writer.prepare_commit(), 1)
    return table
