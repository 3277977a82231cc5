# SPDX-License-Identifier: Apache-2.0
"""Merging 2, 5 and 20 sorted runs that overlap everywhere; then whole compactions from files.

Peers: plain pyarrow (concatenate, sort by key and sequence number, keep each key's last, gather),
and `heapq.merge` over Python tuples, which is what a row-at-a-time merge in Python would be.
"""

import functools
import heapq
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.clock import RandomIds, SystemClock
from storage.format.files.data_file import key_value_schema
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND
from storage.io.local import LocalFileIO
from storage.lsm.bucket import BucketContext
from storage.lsm.merge import merge_runs
from storage.lsm.merge_functions import MergeFunction, merge_function_for
from storage.lsm.merge_functions.segments import Deduplicate
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.options.options import TableOptions
from tests.bench import workload
from tests.bench.measure import Figure, interleaved, rate, run_child, timed

ROWS = 1_000_000
RUNS = (2, 5, 20)
_READ_ROWS = 65_536
_HEAP_SHARE = 10


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rows, rounds = (ROWS // 10, 3) if quick else (ROWS, 5)
    figures: list[Figure] = []
    for count in RUNS:
        figures += _merge(rows, count, rounds)
    figures += _engines(5 * rows, 5, rounds)
    figures.append(_compaction(rows, 5, rounds, scratch))
    return [*figures, *_memory(10 * rows if quick else 20 * rows, scratch)]


def sorted_runs(rows: int, count: int) -> list[pa.RecordBatch]:
    """`count` key-value runs, oldest first; every key is in two runs on average."""
    rng = np.random.default_rng(count)
    size = rows // count
    runs = []
    schema = key_value_schema(workload.table_schema({"bucket": "1"}))
    for number in range(count):
        ids = np.sort(rng.choice(rows // 2, size, replace=False)) + 1
        values = workload.draw_rows(rng, ids, number).combine_chunks()
        sequence = pa.array(np.arange(size) + number * size)
        kinds = pa.array(np.zeros(size, np.int8))
        columns = [column.combine_chunks() for column in values.columns]
        runs.append(pa.RecordBatch.from_arrays([sequence, kinds, *columns], schema=schema))
    return runs


def _pieces(run: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, run.num_rows, _READ_ROWS):
        yield run.slice(start, _READ_ROWS)


def _ours(runs: list[pa.RecordBatch]) -> pa.Table:
    return _merged(runs, Deduplicate())


def _merged(runs: list[pa.RecordBatch], function: MergeFunction) -> pa.Table:
    merged = merge_runs([_pieces(run) for run in runs], ["id"], function)
    return pa.Table.from_batches(list(merged))


def _plain(runs: list[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(runs)
    order = pc.sort_indices(rows, sort_keys=[("id", "ascending"), (SEQUENCE_NUMBER, "ascending")])
    ids = rows["id"].to_numpy()[order.to_numpy()]
    last = np.append(ids[1:] != ids[:-1], True)
    return rows.take(order.filter(pa.array(last))).combine_chunks()


def _heap(runs: list[pa.RecordBatch]) -> pa.Table:
    """From Arrow rows to Arrow rows, one Python tuple per row."""
    names = ["id", SEQUENCE_NUMBER, VALUE_KIND, *workload.ARROW_SCHEMA.names[1:]]
    rows = [zip(*(run[name].to_pylist() for name in names), strict=True) for run in runs]
    merged = heapq.merge(*rows, key=operator.itemgetter(0, 1))
    last = {row[0]: row for row in merged}
    columns = zip(*last.values(), strict=True)
    types = [runs[0].schema.field(name) for name in names]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(types)).select(runs[0].schema.names)


def _merge(rows: int, count: int, rounds: int) -> list[Figure]:
    runs = sorted_runs(rows, count)
    if not _ours(runs).combine_chunks().equals(_plain(runs)):
        raise RuntimeError(f"merge of {count} runs: wrong result")
    samples = interleaved(rounds, {"ours": lambda: _ours(runs), "pyarrow": lambda: _plain(runs)})
    total = sum(run.num_rows for run in runs)
    small = sorted_runs(rows // _HEAP_SHARE, count)
    if not _heap(small).equals(_plain(small)):
        raise RuntimeError("heapq.merge: wrong result")
    heap = timed(lambda: _heap(small))
    ours = rate(f"merge {count} runs", samples, "ours", total, versus="pyarrow", goal=_GOAL)
    slow = sum(run.num_rows for run in small) / heap.wall_s
    return [
        ours,
        Figure(
            name=f"merge {count} runs, to heapq.merge",
            value=slow,
            unit="rows/s",
            versus="heapq",
            ratio=ours.value / slow,
            note="value: heapq.merge of Python tuples, from and to Arrow, on a tenth of the rows",
        ),
    ]


_ENGINES = {
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.user_id.aggregate-function": "sum",
        "fields.amount.aggregate-function": "max",
        "fields.updated_at.aggregate-function": "min",
    },
    "sequence field": {"sequence.field": "updated_at"},
}
_ENGINE_GOAL = 0.4
_GOAL = 0.7


def _engines(rows: int, count: int, rounds: int) -> list[Figure]:
    """Merge engines that make one row of several, to the floor of deduplication."""
    runs = sorted_runs(rows, count)
    total = sum(run.num_rows for run in runs)
    ways: dict[str, Callable[[], pa.Table]] = {"pyarrow": lambda: _plain(runs)}
    for name, raw in _ENGINES.items():
        schema = workload.table_schema({"bucket": "1", **raw})
        function = merge_function_for(TableOptions.from_strings(schema.options), schema)
        ways[name] = functools.partial(_merged, runs, function)
    samples = interleaved(rounds, ways)
    return [
        rate(
            f"merge {count} runs, {name}",
            samples,
            name,
            total,
            versus="pyarrow",
            goal=_ENGINE_GOAL,
        )
        for name in _ENGINES
    ]


def _compaction(rows: int, count: int, rounds: int, scratch: Path) -> Figure:
    """Level-0 files in, one merged run out, files read and written."""
    size = rows // count
    rng = np.random.default_rng(3)
    batches = []
    for number in range(count):
        ids = rng.choice(rows // 2, size, replace=False) + 1
        table = workload.draw_rows(rng, ids, number).append_column(
            workload.KIND, pa.array(np.zeros(size, np.int8))
        )
        batches.append(table.combine_chunks().to_batches()[0])

    def compact(context: BucketContext, files: tuple[object, ...]) -> None:
        with MergeTreeWriter(context, files, compaction=False) as writer:
            writer.compact(full=True)

    with TemporaryDirectory(dir=scratch) as folder:
        context = bucket_context(Path(folder))
        files = []
        with MergeTreeWriter(context, (), compaction=False) as writer:
            for batch in batches:
                writer.write(batch)
                files += writer.prepare_commit().data.new_files
        samples = interleaved(rounds, {"ours": lambda: compact(context, tuple(files))})
    return rate(
        f"full compaction of {count} files", samples, "ours", rows, note="read, merge, write"
    )


_PRODUCERS = {"no changelog": {}, "changelog": {"changelog-producer": "full-compaction"}}
_MOST_MB = 1536


def _memory(rows: int, scratch: Path) -> list[Figure]:
    """What a full compaction of many rows takes, in a process of its own."""
    figures = []
    with TemporaryDirectory(dir=scratch) as folder:
        name = "tests.bench.full_compaction_child"
        run_child(name, {"step": "make", "folder": folder, "rows": rows, "runs": 20})
        for producer, options in _PRODUCERS.items():
            found = run_child(name, {"step": "compact", "folder": folder, "options": options})
            figures.append(
                Figure(
                    name=f"full compaction of {rows / 1e6:.0f} M rows, {producer}",
                    value=found["peak_mb"],
                    unit="MB",
                    goal=_MOST_MB,
                    lower=True,
                    note=f"peak memory of the process; {rows / found['cpu_s']:,.0f} rows/CPU s",
                )
            )
    return figures


def bucket_context(directory: Path, **options: str) -> BucketContext:
    """A bucket of the orders table without a table around it; files are not synced."""
    return context_of(directory, workload.table_schema({"bucket": "1", **options}))


def context_of(directory: Path, schema: TableSchema) -> BucketContext:
    """A bucket of any table, likewise."""
    return BucketContext(
        file_io=LocalFileIO(durable=False),
        layout=TableLayout(str(directory)),
        schema=schema,
        options=TableOptions.from_strings(schema.options),
        partition=b"\0\0\0\0",
        partition_path="",
        bucket=0,
        schemas=lambda _: schema,
        clock=SystemClock(),
        id_source=RandomIds(),
    )
