# SPDX-License-Identifier: Apache-2.0
"""What a pipeline of 200 tables costs when 95 % of them are cold.

The real daemon over the files source. Ten topics get events in every batch; of the other 190, every
tenth gets one event. The next batch's files are written when a batch ends, so batches follow each
other without a pause and are all alike; the first one, whose wall includes the start, creates the
tables. Unless quick, a pipeline of 5,000 tables follows, of which 200 have events in every batch;
its daemon is started again over the tables that exist. Overhead is the wall from the end of one
batch to that of the next, minus the seconds that tasks spent reading, decoding and sorting, spread
over the cores: writing files, compaction and commits count as overhead. The same number of events
for one table stands beside it.
"""

import json
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.bench.daemon_runs import TIMEOUT_S
from tests.bench.measure import CORES, Figure, Usage, child, usage_of

TABLES = 200
HOT = 10
EVENTS = 1_000
"""Of every hot table in every batch."""
COLD_TURN = 10
"""Every so many batches a cold table has an event."""
MOST_TABLES = 5_000
MOST_HOT = 200
_START_GOAL_S = 30.0
_MOST_GOAL_MB = 6 * 1024.0
_GOAL_S = 3.0
_GOAL_MB = 3 * 1024.0
_FIRST = 4
"""Batches that are not counted: creation of the tables, and what warms up after it."""
_PHASES = ("plan", "job", "schema", "commit")


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    batches = 12 if quick else 30
    many, usage = _run(scratch / "many", TABLES, HOT, EVENTS, batches)
    one, _ = _run(scratch / "one", 1, 1, HOT * EVENTS, max(8, batches // 2))
    most = [] if quick else _most(scratch / "most")
    walls = _overheads(many)
    base = _overheads(one)
    jobs = [float(batch["jobs"]) for batch in many["batches"][_FIRST:]]
    return [
        Figure(
            name="overhead of a batch",
            value=statistics.median(walls),
            unit="s",
            samples=walls,
            goal=_GOAL_S,
            lower=True,
            note=f"{TABLES} tables, {HOT} of them hot; slowest {max(walls):.2f} s",
        ),
        Figure(
            name="overhead of a batch, one table, as many events",
            value=statistics.median(base),
            unit="s",
            samples=base,
            lower=True,
        ),
        Figure(
            name="wall of a batch",
            value=statistics.median(batch["wall_s"] for batch in many["batches"][_FIRST:]),
            unit="s",
            lower=True,
            note=f"{HOT * EVENTS:,} events for {HOT} tables, one each for some {_cold_share()}",
        ),
        Figure(
            name="Spark jobs of a batch",
            value=statistics.median(jobs),
            unit="jobs",
            samples=jobs,
            goal=1.0,
            lower=True,
        ),
        Figure(
            name="peak memory",
            value=usage.peak_mb,
            unit="MB",
            goal=_GOAL_MB,
            lower=True,
            note="all processes; shared pages counted once; "
            + ", ".join(f"{name} {size:.0f}" for name, size in usage.peak_by_program.items()),
        ),
        *(
            Figure(
                name=f"phase {phase}",
                value=statistics.median(
                    batch["phases"].get(phase, 0.0) for batch in many["batches"][_FIRST:]
                ),
                unit="s",
                lower=True,
            )
            for phase in _PHASES
        ),
        Figure(
            name="start to the end of the first batch, which creates the tables",
            value=many["batches"][0]["wall_s"],
            unit="s",
            lower=True,
        ),
        *most,
    ]


def _most(work: Path) -> list[Figure]:
    """Figures of thousands of tables, after a restart."""
    shape = {"events": 10, "cold_turn": 0}
    created, _ = _run(work, MOST_TABLES, MOST_HOT, batches=2, **shape)
    restarted, usage = _run(work, MOST_TABLES, MOST_HOT, batches=14, first=2, **shape)
    walls = [batch["wall_s"] for batch in restarted["batches"][_FIRST:]]
    name = f"{MOST_TABLES:,} tables"
    note = f"{MOST_HOT} tables have events in every batch"
    return [
        Figure(
            name=f"{name}: start to the end of the first batch, which creates them",
            value=created["batches"][0]["wall_s"],
            unit="s",
            lower=True,
        ),
        Figure(
            name=f"{name}: start to the first commit",
            value=restarted["batches"][0]["wall_s"],
            unit="s",
            goal=_START_GOAL_S,
            lower=True,
        ),
        Figure(
            name=f"{name}: wall of a batch",
            value=statistics.median(walls),
            unit="s",
            samples=walls,
            goal=_GOAL_S,
            lower=True,
            note=note,
        ),
        Figure(
            name=f"{name}: peak memory",
            value=usage.peak_mb,
            unit="MB",
            goal=_MOST_GOAL_MB,
            lower=True,
            note="all processes; shared pages counted once",
        ),
    ]


def event(table: str, number: int) -> bytes:
    """A line of one created row of `table`."""
    millis = 1_760_000_000_000 + number
    return (
        f'{{"before":null,"after":{{"id":{number},"user_id":{number % 977},"amount":"{number}.25",'
        f'"status":"created_","note":"note of row {number}","updated_at":{millis}000}},"source":{{'
        f'"version":"3.4.0.Final","connector":"postgresql","name":"bench","ts_ms":{millis},'
        f'"snapshot":"false","db":"shop","schema":"public","table":"{table}","txId":{number},'
        f'"lsn":{33_000_000 + number},"xmin":null}},"transaction":null,"op":"c",'
        f'"ts_ms":{millis + 41}}}\n'
    ).encode()


def counts(
    number: int, tables: int, hot: int, events: int, cold_turn: int = COLD_TURN
) -> dict[str, int]:
    """How many events each table has in batch `number`; in the first batch all have some."""
    shares = {f"t{table:03d}": events for table in range(hot)}
    for table in range(hot, tables):
        if number == 0 or (cold_turn and table % cold_turn == number % cold_turn):
            shares[f"t{table:03d}"] = 1
    return shares


def fill(archive: Path, number: int, shares: Mapping[str, int], events: int) -> None:
    """Write the files of batch `number`."""
    for table, count in shares.items():
        folder = archive / f"bench.public.{table}"
        folder.mkdir(parents=True, exist_ok=True)
        first = number * events
        lines = [event(table, first + row) for row in range(count)]
        (folder / f"{number:06d}.jsonl").write_bytes(b"".join(lines))


def _cold_share() -> int:
    return (TABLES - HOT) // COLD_TURN


def _overheads(run: Mapping[str, Any]) -> list[float]:
    return [
        batch["wall_s"] - sum(s for p, s in batch["phases"].items() if p[:5] == "task_") / CORES
        for batch in run["batches"][_FIRST:]
    ]


def _run(
    work: Path,
    tables: int,
    hot: int,
    events: int,
    batches: int,
    *,
    cold_turn: int = COLD_TURN,
    first: int = 0,
) -> tuple[dict[str, Any], Usage]:
    """Run the daemon for the batches from `first` on; from 1 on it continues an earlier run."""
    if not first:
        shutil.rmtree(work, ignore_errors=True)
    archive, warehouse = work / "archive", work / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    config, result = work / "pipeline.yaml", work / "result.json"
    config.write_text(
        yaml.safe_dump(
            {
                "pipeline": {"name": "bench", "trigger": {"interval": "1ms"}},
                "source": {
                    "type": "files",
                    "path": str(archive),
                    "format": "debezium-json",
                    "debezium": {"decimal.handling.mode": "string"},
                    "topic.discovery.interval": "1ms",
                },
                "sink": {"type": "paimon", "warehouse": str(warehouse)},
                "tables": [{"match": "*", "primary.key": ["id"]}],
                "metrics": {"enabled": False},
            }
        )
    )
    shape = {"tables": tables, "hot": hot, "events": events, "batches": batches}
    shape |= {"cold_turn": cold_turn, "first": first}
    paths = {"config": str(config), "result": str(result), "archive": str(archive)}
    arguments = {**paths, **shape, "began": time.time()}
    with (
        child("tests.bench.many_tables_child", arguments) as process,
        usage_of(process.pid) as usage,
    ):
        log, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode != 0 or not result.exists():
        tail = "\n".join(log.splitlines()[-40:])
        raise RuntimeError(f"the daemon ended with {process.returncode}:\n{tail}")
    document: dict[str, Any] = json.loads(result.read_text())
    expected: Counter[str] = Counter()
    for number in range(first + batches):
        expected.update(counts(number, tables, hot, events, cold_turn))
    _require(FileSystemCatalog(str(warehouse)), expected)
    return document, usage


def _require(catalog: FileSystemCatalog, expected: Mapping[str, int]) -> None:
    """Refuse a run whose tables have other rows than their topics."""
    for table in (*list(expected)[:2], *list(expected)[-2:]):
        rows = catalog.table(f"shop.{table}").to_arrow(columns=["id"]).num_rows
        if rows != expected[table]:
            raise RuntimeError(f"{table}: {rows} rows instead of {expected[table]}")
