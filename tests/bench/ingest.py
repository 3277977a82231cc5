# SPDX-License-Identifier: Apache-2.0
"""Ingestion as a whole: the real daemon on a real Kafka topic, and on files, against the floor.

1M inserts, then 10 x 100k changes of one table with two buckets; a topic of four partitions; two
micro-batches of a million events. Ours and the floor take turns over the same events. The floor
writes each batch once and never compacts, so it is compared with a `write-only` table; a second run
with the default, compaction in line, shows what that adds. Two ratios: warm (without start-up and
first batch) and whole (from starting the process to its end; the floor's too). Every run's table is
compared value by value with the model. The same events in Avro, half of them, run without a floor.
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench import events, workload
from tests.bench.avro_topic import TOPIC as AVRO_TOPIC
from tests.bench.avro_topic import avro_topic
from tests.bench.daemon_runs import (
    Run,
    avro_source,
    file_source,
    kafka_source,
    require_state,
    run_daemon,
)
from tests.bench.floor import SIZE, batch_of, floor
from tests.bench.measure import Figure
from tests.e2e.kafka_broker import local_broker

_GOAL = 0.7
_FILES = 16
_PHASES = ("plan", "job", "schema", "commit", "task_consume", "task_decode", "task_sort")


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    size = SIZE.quick() if quick else SIZE
    figures: list[Figure] = []
    with local_broker() as bootstrap:
        made = events.fill_topic(bootstrap, workload.Orders(size))
        figures += _compared(
            "Kafka",
            made,
            kafka_source(bootstrap),
            {"bootstrap": bootstrap, "topic": events.TOPIC},
            size,
            scratch,
            rounds=1 if quick else 2,
        )
        figures += _avro(bootstrap, size, scratch)
    archive = scratch / "archive"
    made = events.fill_files(archive, workload.Orders(size), _FILES)
    figures += _compared(
        "files",
        made,
        file_source(archive),
        {"files": sorted(map(str, (archive / events.TOPIC).iterdir()))},
        size,
        scratch,
        rounds=1,
    )
    return figures


def _avro(bootstrap: str, whole: workload.Size, scratch: Path) -> list[Figure]:
    size = dataclasses.replace(whole, inserts=whole.inserts // 2, changes=whole.changes // 2)
    with avro_topic(bootstrap, size) as (made, registry):
        source = avro_source(bootstrap, AVRO_TOPIC, registry)
        done, catalog = run_daemon(
            scratch / "ours", source, max_records=batch_of(size), write_only="true"
        )
    if done.events != made["events"]:
        raise RuntimeError(f"Avro: {done.events} events read instead of {made['events']}")
    require_state(catalog, events.expected(size))
    name = "Kafka, Avro, write-only"
    about = f"{made['events']:,} events of {made['bytes_per_event']} bytes"
    found = {
        "warm batches": done.warm_events_per_s,
        "warm batches, per CPU second": done.warm_events / sum(done.warm_cpu_s.values()),
    }
    return [
        Figure(name=f"{name}: {what}", value=value, unit="events/s", samples=[value], note=about)
        for what, value in found.items()
    ]


def _compared(
    name: str,
    made: dict[str, Any],
    source: dict[str, Any],
    plain_source: dict[str, Any],
    size: workload.Size,
    scratch: Path,
    *,
    rounds: int,
) -> list[Figure]:
    expected = events.expected(size)
    batch = batch_of(size)
    runs: dict[str, list[Run]] = {"write-only": [], "compacting": []}
    floors: list[dict[str, Any]] = []

    def our_turn(way: str) -> None:
        options = {"write_only": "true"} if way == "write-only" else {}
        done, catalog = run_daemon(scratch / "ours", source, max_records=batch, **options)
        if done.events != made["events"]:
            raise RuntimeError(f"{name}: {done.events} events read instead of {made['events']}")
        require_state(catalog, expected)
        runs[way].append(done)

    def floor_turn() -> None:
        floors.append(floor(plain_source, scratch / "floor", batch=batch))

    turns: list[Callable[[], None]] = [
        lambda: our_turn("write-only"),
        floor_turn,
        lambda: our_turn("compacting"),
    ]
    floor_turn()  # warms the broker and the page cache; not counted
    floors.clear()
    for number in range(rounds):
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn()
    base = Figure(
        name=f"{name}: floor, plain libraries",
        value=statistics.median(f["events_per_s"] for f in floors),
        unit="events/s",
        samples=[f["events_per_s"] for f in floors],
        note=f"{made['events']:,} events of {made['bytes_per_event']} bytes",
    )
    return [
        base,
        *_speeds(f"{name}, write-only", runs["write-only"], floors, goal=_GOAL),
        *_costs(f"{name}, write-only", runs["write-only"]),
        *_speeds(f"{name}, compacting", runs["compacting"], floors, goal=None),
    ]


def _speeds(
    name: str, ours: Sequence[Run], floors: Sequence[dict[str, Any]], *, goal: float | None
) -> list[Figure]:
    return [
        _figure(
            f"{name}: warm batches",
            [run.warm_events_per_s for run in ours],
            "events/s",
            peers=[f["events_per_s"] for f in floors],
            goal=goal,
            note=f"batches of {ours[0].batches[0]['events']:,} events",
        ),
        _figure(
            f"{name}: whole process",
            [run.events / run.whole_s for run in ours],
            "events/s",
            peers=[f["events"] / f["whole_s"] for f in floors],
        ),
        _figure(
            f"{name}: warm batches, per CPU second",
            [run.warm_events / sum(run.warm_cpu_s.values()) for run in ours],
            "events/s",
            peers=[f["events"] / f["cpu_s"] for f in floors],
            note="of all processes; the broker's not counted",
        ),
    ]


def _costs(name: str, ours: Sequence[Run]) -> list[Figure]:
    programs = ("python", "java")
    return [
        _figure(f"{name}: start and first batch", [run.whole_s - run.warm_s for run in ours], "s"),
        *(
            _figure(
                f"{name}: CPU of {program} per 1M events, warm",
                [1e6 * run.warm_cpu_s[program] / run.warm_events for run in ours],
                "s",
            )
            for program in programs
        ),
        _figure(
            f"{name}: peak memory",
            [run.usage.peak_mb for run in ours],
            "MB",
            note="all processes; shared pages counted once",
        ),
        *(
            _figure(
                f"{name}: peak memory, {program}",
                [run.usage.peak_by_program.get(program, 0.0) for run in ours],
                "MB",
            )
            for program in programs
        ),
        _figure(
            f"{name}: memory growth, python", [run.growth_mb("python") for run in ours], "MB/batch"
        ),
        *(
            _figure(
                f"{name}: {phase} of a warm batch",
                [run.phase_s(phase) for run in ours],
                "s",
                note="added over tasks" if phase.startswith("task_") else "",
            )
            for phase in _PHASES
        ),
    ]


def _figure(
    name: str,
    samples: Sequence[float],
    unit: str,
    *,
    peers: Sequence[float] = (),
    goal: float | None = None,
    note: str = "",
) -> Figure:
    ratios = [mine / peer for mine, peer in zip(samples, peers, strict=True)] if peers else []
    return Figure(
        name=name,
        value=statistics.median(samples),
        unit=unit,
        samples=samples,
        versus="floor" if peers else "",
        ratio=statistics.median(ratios) if ratios else None,
        ratios=ratios,
        goal=goal,
        lower=not peers,
        note=note,
    )
