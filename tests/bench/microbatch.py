# SPDX-License-Identifier: Apache-2.0
"""What a micro-batch costs that has little or nothing to do, and whether memory grows with them.

Real daemon, real broker. An empty batch is one tombstone: it is read, planned, decoded and recorded
like any other, and changes no table. (Spark runs no batch at all when nothing has arrived.)
"""

import statistics
from pathlib import Path

from tests.bench import events, workload
from tests.bench.daemon_runs import Run, kafka_source, run_daemon
from tests.bench.measure import Figure
from tests.e2e.kafka_broker import local_broker

_SMALL = 1_000
_GROWTH_GOAL = 0.5
"""Of all Python processes together [MB per batch]; chosen, not derived. Only the 60 batches of the
full run can tell: ten batches gave 0.5 and 1.8 on a busy machine."""
_EMPTY_TOPIC = "shop.public.nothing"


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    count = 10 if quick else 60
    with local_broker() as bootstrap:
        size = workload.Size(inserts=count * _SMALL, batches=0, changes=0)
        events.fill_topic(bootstrap, workload.Orders(size))
        events.fill_tombstones(bootstrap, _EMPTY_TOPIC, count)
        small, catalog = run_daemon(scratch / "small", kafka_source(bootstrap), max_records=_SMALL)
        rows = catalog.table(events.TABLE).to_arrow(columns=["id"]).num_rows
        if rows != size.rows:
            raise RuntimeError(f"{rows} rows instead of {size.rows}")
        source = kafka_source(bootstrap, _EMPTY_TOPIC)
        empty, _ = run_daemon(scratch / "empty", source, max_records=1)
    return [
        _interval("batch of 1,000 events", small),
        _interval("empty batch", empty),
        _phase("batch of 1,000 events: the Spark job", small, "job"),
        _phase("batch of 1,000 events: the commit", small, "commit"),
        *(
            Figure(
                name=f"memory growth, {program}",
                value=small.growth_mb(program),
                unit="MB/batch",
                lower=True,
                goal=_GROWTH_GOAL if program == "python" else None,
                note=f"over the later half of {len(small.batches)} batches",
            )
            for program in ("python", "java")
        ),
        Figure(name="peak memory", value=small.usage.peak_mb, unit="MB", lower=True),
        Figure(
            name="start to first batch", value=small.whole_s - small.warm_s, unit="s",
            lower=True,
        ),
    ]  # fmt: skip


def _interval(name: str, run: Run) -> Figure:
    samples = [1000 * seconds for seconds in run.intervals_s]
    return Figure(
        name=name,
        value=statistics.median(samples),
        unit="ms",
        samples=samples,
        lower=True,
        note=f"end to end of {len(samples)} batches; slowest {max(samples):.0f} ms",
    )


def _phase(name: str, run: Run, phase: str) -> Figure:
    return Figure(name=name, value=1000 * run.phase_s(phase), unit="ms", lower=True)
