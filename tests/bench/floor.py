# SPDX-License-Identifier: Apache-2.0
"""The floor: the same events with plain libraries, one process per core.

Each process takes its share of the partitions (or files), decodes with msgspec, keeps each key's
last row of a batch with numpy, and writes one zstd Parquet file per batch. No Spark, no offsets, no
commits. `ingest` measures our pipeline against it; alone, this part says where its time goes.
"""

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

from tests.bench import events, workload
from tests.bench.measure import CORES, Figure, child, result_of
from tests.e2e.kafka_broker import local_broker

PROCESSES = max(1, min(CORES, events.PARTITIONS))
SIZE = workload.Size()


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """The floor alone, with its parts."""
    size = SIZE.quick() if quick else SIZE
    with local_broker() as bootstrap:
        made = events.fill_topic(bootstrap, workload.Orders(size))
        source = {"bootstrap": bootstrap, "topic": events.TOPIC}
        results = [
            floor(source, scratch / "floor", batch=batch_of(size)) for _ in range(2 if quick else 3)
        ]
    best = max(results, key=lambda result: result["events_per_s"])
    figures = [
        Figure(
            name=f"floor from Kafka, {PROCESSES} processes",
            value=best["events_per_s"],
            unit="events/s",
            samples=[result["events_per_s"] for result in results],
            note=f"best of {len(results)}; {made['bytes_per_event']} bytes an event",
        )
    ]
    for name, seconds in best["seconds"].items():
        rate = best["events"] / seconds if seconds else 0.0
        figures.append(Figure(name=f"floor: {name}, per process", value=rate, unit="events/s"))
    return figures


def batch_of(size: workload.Size) -> int:
    """Records of one micro-batch: half of the stream, a million; the second batch is warm."""
    return size.rows // 2


def floor(source: dict[str, Any], work: Path, *, batch: int) -> dict[str, Any]:
    """Run the floor once over all events.

    Args:
        source: `bootstrap` and `topic`, or `files`.
        work: where its files go; emptied before.
        batch: records of one micro-batch over all processes.

    Returns:
        `events`, `wall_s` (from the first read to the last write, over all processes), `whole_s`
        (with starting the processes), `cpu_s`, `events_per_s`, `seconds` by step of the slowest.
    """
    shutil.rmtree(work, ignore_errors=True)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                child(
                    "tests.bench.floor_child",
                    {**_share(source, number), "work": str(work), "number": number,
                     "batch": batch // PROCESSES},
                    stdin=True,
                )
            )
            for number in range(PROCESSES)
        ]  # fmt: skip
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [result_of(process, process.communicate()[0]) for process in processes]
    whole = time.monotonic() - began
    wall = max(one["ended"] for one in results) - min(one["started"] for one in results)
    count = sum(one["events"] for one in results)
    slowest = max(results, key=lambda one: one["ended"])
    return {
        "events": count,
        "rows": sum(one["rows"] for one in results),
        "wall_s": wall,
        "whole_s": whole,
        "cpu_s": sum(one["cpu_s"] for one in results),
        "events_per_s": count / wall,
        "seconds": {name: s * count / slowest["events"] for name, s in slowest["seconds"].items()},
    }


def _share(source: dict[str, Any], number: int) -> dict[str, Any]:
    if "files" in source:
        return {"files": source["files"][number::PROCESSES]}
    return {**source, "partitions": list(range(number, events.PARTITIONS, PROCESSES))}
