# SPDX-License-Identifier: Apache-2.0
"""What Iceberg metadata costs commits of 1,000 changes to a table of 10,000 files.

`python -m tests.bench.iceberg [--files N] [--rounds N] [--json PATH]`. Two copies of one table, one
of them with `metadata.iceberg.storage`; the same commits to both in turn. Reported are medians of a
whole change (write, compact, commit) and of the commit alone, in wall and CPU seconds.

`--ingest` runs the daemon over files of events instead, with and without in turn: events per second
and CPU seconds of all processes after the first batch.
"""

import argparse
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

from storage.clock import SystemClock
from storage.format.metadata.file_meta import CommitMessage, DataIncrement
from storage.format.metadata.schema_changes import RemoveOption
from storage.format.types.types import VALUE_KIND
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import live_state
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
)
OPTIONS = {
    "metadata.iceberg.storage": "table-location",
    "metadata.iceberg.format-version": "3",
    "deletion-vectors.enabled": "true",
    "snapshot.num-retained.max": "20",
    "snapshot.num-retained.min": "10",
}
KEYED = {**OPTIONS, "bucket": "32", "target-file-size": "1 kb"}
APPENDED = {**OPTIONS, "bucket": "-1", "deletion-vectors.enabled": "false"}
CHANGES = 1_000
"""Rows of one commit."""

_FIRST = 20_000
_ROWS_OF_FILE = 85
"""Of a keyed table: what a row group of the target size holds."""

_BATCHES = 10
"""Micro-batches of an ingestion."""


def batch(keys: np.ndarray[Any, np.dtype[np.int64]], keyed: bool) -> pa.RecordBatch:
    """Rows of some keys."""
    column = pa.array(keys)
    columns = [column, column, column.cast(pa.string()), column.cast(pa.float64())]
    columns.append(column.cast(pa.timestamp("us")))
    names = [name for name, _ in COLUMNS]
    if keyed:
        columns.append(pa.array(np.zeros(len(keys), np.int8)))
        names.append(VALUE_KIND)
    return pa.RecordBatch.from_arrays(columns, names=names)


def filled(directory: pathlib.Path, files: int, *, keyed: bool) -> FileStoreTable:
    """A table with at least so many files, none of them at level 0."""
    table = make_table(
        directory,
        columns=COLUMNS,
        keys=("k",) if keyed else (),
        options=KEYED if keyed else APPENDED,
    )
    identifier = 0
    while (count := _count(table)) < files:
        identifier += 1
        with table.new_write("bench") as writer:
            if keyed:  # in the order of the keys, so that later rounds add files
                first = (identifier - 1) * files * _ROWS_OF_FILE
                writer.write(batch(np.arange(first, first + files * _ROWS_OF_FILE), keyed))
                writer.compact(full=True)
                messages = list(writer.prepare_commit())
            else:
                writer.write(batch(np.arange(_ROWS_OF_FILE), keyed))
                messages = _copied(table, list(writer.prepare_commit()), files - count)
            table.new_commit("bench").commit(messages, identifier)
    return table


def _copied(
    table: FileStoreTable, messages: list[CommitMessage], copies: int
) -> list[CommitMessage]:
    """One message with many copies of the one file that was written."""
    (message,) = messages
    (file,) = message.data.new_files
    path = pathlib.Path(table.data_path(message.partition, message.bucket, file.file_name))
    made = []
    for number in range(copies):
        name = f"data-{number}.parquet"
        shutil.copy(path, path.with_name(name))
        made.append(msgspec.structs.replace(file, file_name=name))
    return [dataclasses.replace(message, data=DataIncrement(new_files=tuple(made)))]


def _count(table: FileStoreTable) -> int:
    latest = table.latest_snapshot()
    return 0 if latest is None else live_state(table, latest).file_count


def _open(root: str) -> FileStoreTable:
    return FileStoreTable.open(root, file_io=LocalFileIO(durable=False), clock=SystemClock())


class Measured:
    """Seconds of one side."""

    def __init__(self, table: FileStoreTable, keyed: bool) -> None:
        self.table = table
        self.keyed = keyed
        self.seconds: dict[str, list[float]] = {
            name: [] for name in ("change wall", "change cpu", "commit wall", "commit cpu")
        }

    def change(self, keys: np.ndarray[Any, np.dtype[np.int64]], identifier: int) -> None:
        """Write rows, compact what is due, and commit."""
        started = (time.perf_counter(), time.process_time())
        with self.table.new_write("bench") as writer:
            writer.write(batch(keys, self.keyed))
            messages = list(writer.prepare_commit())
            at = (time.perf_counter(), time.process_time())
            self.table.new_commit("bench").commit(messages, identifier)
        done = (time.perf_counter(), time.process_time())
        for place, unit in enumerate(("wall", "cpu")):
            self.seconds[f"change {unit}"].append(done[place] - started[place])
            self.seconds[f"commit {unit}"].append(done[place] - at[place])
        if identifier % 10 == 0:
            self.table.expire_snapshots(retain_min=10, retain_max=20, time_retained_ms=0)


def compare(directory: pathlib.Path, files: int, rounds: int, *, keyed: bool) -> dict[str, Any]:
    """Figures of both sides, and how they relate."""
    table = filled(directory / "with", files, keyed=keyed)
    other = pathlib.Path(table.layout.root.replace("/with/", "/without/"))
    shutil.copytree(table.layout.root, other)
    count = _count(table)
    plain = _open(str(other)).alter([RemoveOption("metadata.iceberg.storage")])
    sides = {"with": Measured(_open(table.layout.root), keyed), "without": Measured(plain, keyed)}
    rng = np.random.default_rng(8)
    for number in range(rounds + 2):
        keys = rng.integers(0, files * _ROWS_OF_FILE, CHANGES)
        for name in ("with", "without") if number % 2 else ("without", "with"):
            sides[name].change(keys, _FIRST + number)
    if keyed:
        assert sides["with"].table.to_arrow().num_rows == sides["without"].table.to_arrow().num_rows
    medians = {
        side: {name: statistics.median(found[2:]) for name, found in one.seconds.items()}
        for side, one in sides.items()
    }
    ratios = {name: medians["with"][name] / value for name, value in medians["without"].items()}
    return {"files": count, "rounds": rounds, "seconds": medians, "ratio": ratios}


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
    for name, keyed in kinds:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = compare(
                pathlib.Path(directory), arguments.files, arguments.rounds, keyed=keyed
            )
        print(name, json.dumps(found[name], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
