# SPDX-License-Identifier: Apache-2.0
"""What Iceberg metadata costs commits of 1,000 changes to a table of 10,000 files.

`python -m tests.bench.iceberg [--files N] [--rounds N] [--json PATH]`. Two copies of one table, one
of them with `metadata.iceberg.storage`; the same commits to both in turn. Reported are medians of a
whole change (write, commit) and of the commit alone, in wall and CPU seconds; and the mean commit,
which includes the merges of manifests that come every 30 commits. With deletion vectors a commit
adds files to 32 partitions and replaces their index files, with 1,000 new vectors, as one of a
table with a primary key does; the vectors are made up, so that no rows are looked up.

`--ingest` runs the daemon over files of events instead, with and without in turn: events per second
and CPU seconds of all processes after the first batch.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import platform
import shutil
import statistics
import sys
import tempfile
import time
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from storage.clock import SystemClock
from storage.format.metadata.file_meta import CommitMessage, DataIncrement, IndexFileMeta
from storage.format.metadata.schema_changes import RemoveOption
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import live_state, write_deletion_vectors
from storage.table.table import FileStoreTable
from tests.bench import events, workload
from tests.bench.daemon_runs import file_source, require_state, run_daemon
from tests.bench.floor import SIZE
from tests.table_kit import make_table

COLUMNS = (
    ("k", "BIGINT"),
    ("a", "BIGINT"),
    ("b", "STRING"),
    ("c", "DOUBLE"),
    ("e", "TIMESTAMP(6)"),
    ("p", "BIGINT"),
)
OPTIONS = {
    "metadata.iceberg.storage": "table-location",
    "metadata.iceberg.format-version": "3",
    "snapshot.num-retained.max": "20",
    "snapshot.num-retained.min": "10",
}
APPENDED = {**OPTIONS, "bucket": "-1"}
PARTITIONS = 32
CHANGES = 1_000
"""Rows of one commit."""

_FIRST = 20_000
_ROWS_OF_FILE = 85

_BATCHES = 10
"""Micro-batches of an ingestion."""


def batch(rows: int, partitions: int) -> pa.RecordBatch:
    """Rows, spread over partitions."""
    keys = np.arange(rows)
    column = pa.array(keys)
    columns = [column, column, column.cast(pa.string()), column.cast(pa.float64())]
    columns += [column.cast(pa.timestamp("us")), pa.array(keys % partitions)]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in COLUMNS])


def filled(directory: pathlib.Path, files: int, *, vectors: bool) -> FileStoreTable:
    """A table of so many files, which are links to one file per partition."""
    count = PARTITIONS if vectors else 1
    table = make_table(
        directory,
        columns=COLUMNS,
        keys=(),
        partitions=("p",) if vectors else (),
        options={**APPENDED, "deletion-vectors.enabled": str(vectors).lower()},
    )
    with table.new_write("bench") as writer:
        writer.write(batch(_ROWS_OF_FILE * count, count))
        messages = [_copied(table, m, files // count) for m in writer.prepare_commit()]
        table.new_commit("bench").commit(messages, 1)
    return table


def _copied(table: FileStoreTable, message: CommitMessage, copies: int) -> CommitMessage:
    """A message with many copies of the one file that was written."""
    (file,) = message.data.new_files
    path = pathlib.Path(table.data_path(message.partition, message.bucket, file.file_name))
    made = []
    for number in range(copies):
        name = f"data-{number}.parquet"
        path.with_name(name).hardlink_to(path)
        made.append(msgspec.structs.replace(file, file_name=name))
    return dataclasses.replace(message, data=DataIncrement(new_files=tuple(made)))


def _count(table: FileStoreTable) -> int:
    latest = table.latest_snapshot()
    return 0 if latest is None else live_state(table, latest).file_count


def _open(root: str) -> FileStoreTable:
    return FileStoreTable.open(root, file_io=LocalFileIO(durable=False), clock=SystemClock())


class Measured:
    """Seconds of one side.

    Args:
        files: with deletion vectors, how many a partition has; 0: the table has no vectors.
    """

    def __init__(self, table: FileStoreTable, files: int) -> None:
        self.table = table
        self.files = files
        self.partitions = PARTITIONS if files else 1
        self.vectors = collections.defaultdict[bytes, dict[str, BitMap]](dict)
        self.index: dict[bytes, tuple[IndexFileMeta, ...]] = {}
        self.seconds: dict[str, list[float]] = {
            name: [] for name in ("change wall", "change cpu", "commit wall", "commit cpu")
        }

    def change(self, identifier: int) -> None:
        """Write rows, delete others, and commit."""
        started = (time.perf_counter(), time.process_time())
        with self.table.new_write("bench") as writer:
            writer.write(batch(CHANGES, self.partitions))
            messages = list(writer.prepare_commit())
            if self.files:
                rng = np.random.default_rng(identifier)
                messages = [self._deleting(message, rng) for message in messages]
            at = (time.perf_counter(), time.process_time())
            self.table.new_commit("bench").commit(messages, identifier)
        done = (time.perf_counter(), time.process_time())
        for place, unit in enumerate(("wall", "cpu")):
            self.seconds[f"change {unit}"].append(done[place] - started[place])
            self.seconds[f"commit {unit}"].append(done[place] - at[place])
        if identifier % 10 == 0:
            self.table.expire_snapshots(retain_min=10, retain_max=20, time_retained_ms=0)

    def _deleting(self, message: CommitMessage, rng: np.random.Generator) -> CommitMessage:
        """The message with vectors that delete a row of some files of its partition."""
        vectors = self.vectors[message.partition]
        for file in rng.choice(self.files, CHANGES // PARTITIONS, replace=False):
            vectors.setdefault(f"data-{file}.parquet", BitMap()).add(
                int(rng.integers(_ROWS_OF_FILE))
            )
        new = (write_deletion_vectors(self.table, message.partition, message.bucket, vectors),)
        old = self.index.get(message.partition, ())
        self.index[message.partition] = new
        data = dataclasses.replace(message.data, new_index_files=new, deleted_index_files=old)
        return dataclasses.replace(message, data=data)


def compare(directory: pathlib.Path, files: int, rounds: int, *, vectors: bool) -> dict[str, Any]:
    """Figures of both sides, and how they relate."""
    table = filled(directory / "with", files, vectors=vectors)
    other = pathlib.Path(table.layout.root.replace("/with/", "/without/"))
    shutil.copytree(table.layout.root, other, ignore=shutil.ignore_patterns("data-*"))
    plain = _open(str(other)).alter([RemoveOption("metadata.iceberg.storage")])
    copies = files // PARTITIONS if vectors else 0
    sides = {"with": Measured(_open(table.layout.root), copies), "without": Measured(plain, copies)}
    for number in range(rounds + 2):
        for name in ("with", "without") if number % 2 else ("without", "with"):
            sides[name].change(_FIRST + number)
    found: dict[str, dict[str, float]] = {}
    for side, measured in sides.items():
        warm = {name: seconds[2:] for name, seconds in measured.seconds.items()}
        found[side] = {name: statistics.median(seconds) for name, seconds in warm.items()}
        found[side]["mean commit cpu"] = statistics.mean(warm["commit cpu"])
    ratios = {name: found["with"][name] / value for name, value in found["without"].items()}
    return {"files": _count(table), "rounds": rounds, "seconds": found, "ratio": ratios}


def ingestion(directory: pathlib.Path, rounds: int) -> dict[str, Any]:
    """Figures of the daemon with and without."""
    size = dataclasses.replace(SIZE, inserts=SIZE.inserts // 4, changes=SIZE.changes // 4)
    archive = directory / "archive"
    made = events.fill_files(archive, workload.Orders(size), _BATCHES)
    vectors = {"deletion-vectors.enabled": "true"}
    sides = {"with": {**OPTIONS, **vectors}, "without": vectors}
    found: dict[str, dict[str, list[float]]] = {
        name: {"events per second": [], "cpu": []} for name in sides
    }
    for number in range(rounds):
        for name in ("with", "without") if number % 2 else ("without", "with"):
            done, catalog = run_daemon(
                directory / name,
                file_source(archive),
                max_records=made["events"] // _BATCHES,
                **sides[name],
            )
            require_state(catalog, events.expected(size))
            found[name]["events per second"].append(done.warm_events_per_s)
            found[name]["cpu"].append(sum(done.warm_cpu_s.values()))
    medians = {
        side: {name: statistics.median(values) for name, values in one.items()}
        for side, one in found.items()
    }
    ratios = {name: medians["with"][name] / value for name, value in medians["without"].items()}
    return {"events": made["events"], "rounds": rounds, "of each": medians, "ratio": ratios}


def main() -> int:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--ingest", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    found: dict[str, Any] = {"python": platform.python_version(), "changes": CHANGES}
    if arguments.ingest:
        with tempfile.TemporaryDirectory() as directory:
            found["ingestion"] = ingestion(pathlib.Path(directory), arguments.rounds)
        print(json.dumps(found["ingestion"], indent=2), flush=True)
    kinds = () if arguments.ingest else (("append", False), ("deletion vectors", True))
    for name, vectors in kinds:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = compare(
                pathlib.Path(directory), arguments.files, arguments.rounds, vectors=vectors
            )
        print(name, json.dumps(found[name], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
