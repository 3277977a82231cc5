# SPDX-License-Identifier: Apache-2.0
"""Looking up 100,000 changed keys in buckets of 1, 10 and 30 million rows: the cost must not follow
the rows.

The rows lie at the last level of one bucket, in data files of the usual size. First the lookup
alone, by an integer key and by a text, then the whole way from written rows to their changelog,
which the goal is for: the lookup alone feels that rows far apart share no cache lines
(docs/adr/storage/0010).
"""

import dataclasses
import functools
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.metadata.file_meta import FileSource
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, parse_type
from storage.lsm.bucket import BucketContext
from storage.lsm.levels import SortedRun
from storage.lsm.lookup.store import BucketLookup, LookupStore
from storage.lsm.merge_tree_writer import MergeTreeWriter
from tests.bench import workload
from tests.bench.measure import Figure, Sample, interleaved, rate, timed
from tests.bench.merge import context_of

SIZES = (1_000_000, 10_000_000, 30_000_000)
CHANGES = 100_000
RANGE = 1.6
"""How much dearer the same changes may be on thirty times the rows."""

_PIECE = 500_000
_DELETES = 0.06
_LAST_LEVEL = 5
_KEY_TYPES = {"BIGINT": "BIGINT NOT NULL", "21-byte STRING": "STRING NOT NULL"}


_Asked = tuple[pa.RecordBatch, int]
"""Keys, and how many of them have a row."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Bucket:
    """A bucket with all rows at the last level."""

    context: BucketContext
    run: SortedRun
    rows: int


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    shrink, rounds = (10, 3) if quick else (1, 7)
    figures = []
    for name in _KEY_TYPES:
        buckets = [
            _bucket(scratch / name.split()[0] / str(rows), name, rows // shrink) for rows in SIZES
        ]
        store = LookupStore(scratch / "copies")
        figures += _lookups(name, buckets, CHANGES // shrink, rounds, store)
        figures += _compactions(name, buckets, CHANGES // shrink, rounds, store)
        shutil.rmtree(scratch)
    return figures


def _lookups(
    name: str, buckets: list[_Bucket], changes: int, rounds: int, store: LookupStore
) -> list[Figure]:
    rng = np.random.default_rng(11)
    ways: dict[str, Callable[[], object]] = {}
    figures = []
    for bucket in buckets:
        lookup = BucketLookup(bucket.context, store)
        before = store.counters()
        draw = functools.partial(_draw, name, rng, bucket.rows, changes)
        cold = timed(functools.partial(_look_up, lookup, bucket, iter([draw()])))
        built = store.counters()
        size = built.built_bytes - before.built_bytes
        figures.append(
            Figure(
                name=f"copy of {bucket.rows:,} rows, {name} key",
                value=bucket.rows / cold.wall_s,
                unit="rows/s",
                note=f"{cold.wall_s:.1f} s with the first lookup, {size / bucket.rows:.0f} "
                f"bytes a row, {built.built_files - before.built_files} files",
            )
        )
        keys = iter([draw() for _ in range(rounds + 1)])
        ways[f"{bucket.rows:,}"] = functools.partial(_look_up, lookup, bucket, keys)
    note = f"{changes:,} random keys, 15 % of them not there"
    samples = interleaved(rounds, ways)
    return figures + _rates(f"lookup, {name} key", samples, changes, note, goal=None)


def _rates(
    what: str,
    samples: Mapping[str, list[Sample]],
    changes: int,
    note: str,
    *,
    goal: float | None,
) -> list[Figure]:
    """One figure per size of the bucket, compared with the smallest."""
    least, *_ = samples
    return [
        rate(
            f"{what}, {way} rows",
            samples,
            way,
            changes,
            versus=least,
            unit="changes/CPU s",
            cpu=True,
            goal=goal,
            note=f"{note}; {_wall_s(samples[way]):.3f} s by the wall",
        )
        for way in samples
    ]


def _wall_s(samples: Iterable[Sample]) -> float:
    return statistics.median(sample.wall_s for sample in samples)


def _compactions(
    name: str, buckets: list[_Bucket], changes: int, rounds: int, store: LookupStore
) -> list[Figure]:
    """Write changes, flush, look up, merge, and write the files and their changelog."""
    rng = np.random.default_rng(12)
    ways: dict[str, Callable[[], object]] = {}
    for bucket in buckets:
        batches = [_changes(name, rng, bucket.rows, changes) for _ in range(rounds + 1)]
        context = dataclasses.replace(bucket.context, lookup=BucketLookup(bucket.context, store))
        ways[f"{bucket.rows:,}"] = functools.partial(
            _write_changes, context, bucket.run, iter(batches)
        )
    note = f"{changes:,} random changes, written and committed with their changelog"
    samples = interleaved(rounds, ways)
    return _rates(f"lookup changelog, {name} key", samples, changes, note, goal=1 / RANGE)


def _changes(
    name: str, rng: np.random.Generator, rows: int, changes: int
) -> tuple[pa.RecordBatch, int]:
    """Shuffled changes, and how many changelog rows they make."""
    numbers = rng.permutation(changed_numbers(rng, rows, changes))
    known = numbers % 2 == 0
    deletes = known & (rng.random(len(numbers)) < _DELETES)
    rows_of = workload.draw_rows(rng, numbers, 2).combine_chunks().to_batches()[0]
    columns = dict(zip(rows_of.schema.names, rows_of.columns, strict=True))
    kinds = np.where(deletes, workload.DELETE, workload.INSERT).astype(np.int8)
    batch = pa.RecordBatch.from_pydict(
        {**columns, "id": _keys(name, numbers), workload.KIND: pa.array(kinds)}
    )
    return batch, len(numbers) + int(np.count_nonzero(known & ~deletes))


def _write_changes(
    context: BucketContext, run: SortedRun, batches: Iterator[tuple[pa.RecordBatch, int]]
) -> None:
    batch, told = next(batches)
    with MergeTreeWriter(context, run.files) as writer:
        writer.write(batch)
        message = writer.prepare_commit()
    compacted = message.compact
    files = {
        file.file_name: file
        for file in (
            *message.data.new_files,
            *compacted.compact_after,
            *compacted.changelog_files,
        )
    }
    context.delete_files(files.values())
    if sum(file.row_count for file in compacted.changelog_files) != told:
        raise RuntimeError("lookup changelog: wrong number of rows")
    if any(file.level == _LAST_LEVEL for file in compacted.compact_before):
        raise RuntimeError("lookup changelog: the last level was rewritten")


def _draw(name: str, rng: np.random.Generator, rows: int, changes: int) -> _Asked:
    numbers = changed_numbers(rng, rows, changes)
    keys = pa.RecordBatch.from_arrays([_keys(name, numbers)], names=["id"])
    return keys, int(np.count_nonzero(numbers % 2 == 0))


def _look_up(lookup: BucketLookup, bucket: _Bucket, asked: Iterator[_Asked]) -> None:
    keys, there = next(asked)
    found = lookup.find(keys, [bucket.run])
    if found.rows is None or found.rows.num_rows != there:
        raise RuntimeError("lookup: wrong result")
    if not found.rows["id"].equals(keys["id"].take(pa.array(found.keys))):
        raise RuntimeError("lookup: rows of other keys")


def changed_numbers(rng: np.random.Generator, rows: int, changes: int) -> np.ndarray:
    """Numbers of distinct keys, ascending; rows have the even ones below twice their count."""
    known = np.unique(rng.integers(0, rows, changes * 17 // 20)) * 2
    new = np.unique(rng.integers(0, rows, changes - changes * 17 // 20)) * 2 + 1
    return np.sort(np.concatenate([known, new]))


def _keys(name: str, numbers: np.ndarray) -> pa.Array:
    if name == "BIGINT":
        return pa.array(numbers)
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    return pc.binary_join_element_wise("customer-", digits, "")


def _bucket(directory: Path, name: str, rows: int) -> _Bucket:
    schema = _schema(name, {"bucket": "1", "changelog-producer": "lookup"})
    context = context_of(directory, schema)
    Path(context.directory).mkdir(parents=True)
    writer = context.open_writer(_LAST_LEVEL, FileSource.COMPACT)
    template = workload.draw_rows(np.random.default_rng(3), np.arange(_PIECE), 1).combine_chunks()
    for start in range(0, rows, _PIECE):
        count = min(_PIECE, rows - start)
        numbers = np.arange(start, start + count)
        values = template.slice(0, count).to_batches()[0]
        columns = {
            SEQUENCE_NUMBER: pa.array(numbers),
            VALUE_KIND: pa.array(np.zeros(count, np.int8)),
            **dict(zip(values.schema.names, values.columns, strict=True)),
            "id": _keys(name, numbers * 2),
        }
        writer.write(pa.RecordBatch.from_pydict(columns))
    return _Bucket(context, SortedRun(_LAST_LEVEL, writer.close()), rows)


def _schema(name: str, options: dict[str, str]) -> TableSchema:
    return new_schema(
        [
            (column, parse_type(_KEY_TYPES[name] if column == "id" else text))
            for column, text, _ in workload.COLUMNS
        ],
        primary_keys=("id",),
        partition_keys=(),
        options=options,
        now_ms=1_760_000_000_000,
    )
