# SPDX-License-Identifier: Apache-2.0
"""Row transforms: a filter and computed columns, per CPU second, beside DuckDB's SQL.

The figures of `docs/adr/ingest/0008` and `0032`. Both do the same work on the same Arrow batches;
DuckDB is locked down to one thread, has no rows that fail, and gives its result back as Arrow.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import TransformRule, table_shape
from storage.format.metadata.schema import new_schema
from storage.format.types.types import arrow_schema, parse_type
from tests.bench.measure import Figure, interleaved, rate

COLUMNS = (
    ("id", "BIGINT"),
    ("qty", "INT"),
    ("status", "STRING"),
    ("price", "DECIMAL(10, 2)"),
    ("created_at", "TIMESTAMP(6)"),
    ("name", "STRING"),
)
RULE = TransformRule(
    filter="qty <> 0 AND status IN ('new', 'paid')",
    computed=(
        "total = price * qty",
        "dt = date_format(created_at, 'yyyy-MM-dd')",
        "label = upper(name)",
    ),
)
SQL = """
    SELECT * EXCLUDE (_VALUE_KIND, _OFFSET), price * qty AS total,
        strftime(created_at, '%Y-%m-%d') AS dt, upper(name) AS label,
        CASE WHEN qty <> 0 AND status IN ('new', 'paid') THEN _VALUE_KIND ELSE 3 END AS kind,
        _OFFSET
    FROM rows
"""
HEAVY_RULE = TransformRule(
    filter=RULE.filter,
    computed=(
        *RULE.computed,
        "hour = date_format(created_at, 'yyyy-MM-dd HH')",
        "short = substring(name, 0, 5)",
        "number = CAST(substr(name, 10) AS INT)",
        "class = CASE WHEN price > 5000 THEN 'high' WHEN price > 100 THEN 'mid' ELSE 'low' END",
    ),
)
HEAVY_SQL = SQL.replace(
    "upper(name) AS label,",
    """upper(name) AS label, strftime(created_at, '%Y-%m-%d %H') AS hour,
        CASE WHEN length(name) < 5 THEN error('too short') ELSE substr(name, 1, 5) END AS short,
        CAST(substr(name, 10) AS INT) AS number,
        CASE WHEN price > 5000 THEN 'high' WHEN price > 100 THEN 'mid' ELSE 'low' END AS class,""",
)
LOCKED = (
    "enable_external_access=false",
    "autoload_known_extensions=false",
    "lock_configuration=true",
)


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """Rows per second in large batches, and what a small batch costs."""
    del scratch
    rows, rounds = (100_000, 3) if quick else (1_000_000, 5)
    transform = transformed()
    figures = []
    for label, size, rule, sql in (
        ("transform", 100_000, RULE, SQL),
        ("transform", 5_000, RULE, SQL),
        ("transform with casts", 100_000, HEAVY_RULE, HEAVY_SQL),
        ("transform with casts", 5_000, HEAVY_RULE, HEAVY_SQL),
    ):
        ways = _ways(transformed(rule), batches(rows, size), sql)
        samples = interleaved(rounds, ways)
        counts = {sample.result for way in samples.values() for sample in way}
        if len(counts) != 1:
            raise AssertionError(f"the ways disagree: {counts}")
        note = f"{rows:,} rows in batches of {size:,}; one core"
        name = f"{label}, batches of {size:,}"
        figures.append(rate(name, samples, "ours", rows, versus="duckdb", cpu=True, note=note))
    small = batches(1_000, 1_000)
    samples = interleaved(rounds * 10, _ways(transform, small, SQL))
    for way in ("ours", "duckdb"):
        taken = [sample.cpu_s * 1_000 for sample in samples[way]]
        figures.append(
            Figure(
                name=f"transform, a batch of 1,000, {way}",
                value=statistics.median(taken),
                unit="CPU ms",
                samples=taken,
                lower=True,
            )
        )
    return figures


def transformed(rule: TransformRule = RULE) -> RowTransform:
    """The transform of a table with a rule."""
    shape = table_shape(rule, [(name, parse_type(text)) for name, text in COLUMNS], ("id",))
    return RowTransform.of(rule, new_schema(list(shape.columns), primary_keys=("id",)))


def batches(rows: int, size: int) -> list[pa.RecordBatch]:
    """Change rows as a decoder gives them; a tenth of the values is null."""
    random = np.random.default_rng(7)
    fields = transformed().decode_schema.fields
    found = []
    for start in range(0, rows, size):
        nulls = random.random(size) < 0.1
        cents = pa.array(random.integers(0, 10**7, size)).cast(pa.decimal128(19, 0))
        unscaled = pa.Array.from_buffers(pa.decimal128(10, 2), size, cents.buffers())
        columns = [
            pa.array(np.arange(start, start + size)),
            pa.array(random.integers(0, 5, size), pa.int32(), mask=nulls),
            pa.array(np.array(["new", "paid", "sent", "gone"])[random.integers(0, 4, size)]),
            unscaled,
            pa.array(random.integers(16 * 10**14, 17 * 10**14, size)).cast(pa.timestamp("us")),
            pa.array([f"Customer {number}" for number in random.integers(0, 10**6, size)]),
            pa.array(random.choice([0, 2], size), pa.int8()),
            pa.array(np.arange(start, start + size)),
        ]
        kinds = [pa.field("_VALUE_KIND", pa.int8(), False), pa.field("_OFFSET", pa.int64(), False)]
        schema = pa.schema([*arrow_schema(fields), *kinds])
        found.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return found


def _ways(
    transform: RowTransform, given: list[pa.RecordBatch], sql: str
) -> dict[str, Callable[[], tuple[int, int]]]:
    """Both ways; each gives the rows that left the filter and how many days the last batch has."""
    connection = duckdb.connect(config={"threads": 1})
    for setting in LOCKED:
        connection.execute(f"SET {setting}")

    def ours() -> tuple[int, int]:
        done = [transform.apply(batch).rows for batch in given]
        return _checked([batch.column("_VALUE_KIND") for batch in done], done[-1].column("dt"))

    def theirs() -> tuple[int, int]:
        done = []
        for batch in given:
            connection.register("rows", batch)
            done.append(connection.sql(sql).to_arrow_table().combine_chunks().to_batches()[0])
        return _checked([batch.column("kind") for batch in done], done[-1].column("dt"))

    return {"ours": ours, "duckdb": theirs}


def _checked(kinds: list[pa.Array], days: pa.Array) -> tuple[int, int]:
    left = sum(int((np.asarray(kind) == 3).sum()) for kind in kinds)
    return left, len(days.unique())
