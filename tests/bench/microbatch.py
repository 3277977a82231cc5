# SPDX-License-Identifier: Apache-2.0
"""What a micro-batch costs that has little or nothing to do, and whether memory grows with them.

Real daemon, real broker. An empty batch is one tombstone: it is read, planned, decoded and recorded
like any other, and changes no table. (Spark runs no batch at all when nothing has arrived.) An idle
daemon has carried everything, and looks for more.
"""

import re
import statistics
import time
from pathlib import Path

from storage.catalog.catalog import FileSystemCatalog
from tests.bench import events, workload
from tests.bench.daemon_runs import Run, kafka_source, run_daemon
from tests.bench.measure import Figure, look
from tests.e2e.daemon_process import DaemonProcess, kafka_config
from tests.e2e.kafka_broker import local_broker

_SMALL = 1_000
_GROWTH_GOAL = 0.5
"""Of all Python processes together [MB per batch]; chosen, not derived. Only the 60 batches of the
full run can tell: ten batches gave 0.5 and 1.8 on a busy machine."""
_CPU_GOAL = 0.3
"""Of all processes [s]."""
_IDLE_GOAL = 2.0
_SETTLED_S = 30.0
"""From the start of a daemon until it is idle."""
_EMPTY_TOPIC = "shop.public.nothing"


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    count = 10 if quick else 60
    with local_broker() as bootstrap:
        size = workload.Size(inserts=count * _SMALL, batches=0, changes=0)
        events.fill_topic(bootstrap, workload.Orders(size))
        events.fill_tombstones(bootstrap, _EMPTY_TOPIC, count)
        small, catalog = run_daemon(scratch / "small", kafka_source(bootstrap), max_records=_SMALL)
        _require_rows(catalog, size.rows)
        source = kafka_source(bootstrap, _EMPTY_TOPIC)
        empty, _ = run_daemon(scratch / "empty", source, max_records=1)
        idle = _idle(scratch / "idle", bootstrap, size.rows, seconds=10 if quick else 60)
    return [
        _interval("batch of 1,000 events", small),
        _cpu("batch of 1,000 events: CPU of all processes", small),
        idle,
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


def _require_rows(catalog: FileSystemCatalog, wanted: int) -> None:
    rows = catalog.table(events.TABLE).to_arrow(columns=["id"]).num_rows
    if rows != wanted:
        raise RuntimeError(f"{rows} rows instead of {wanted}")


def _cpu(name: str, run: Run) -> Figure:
    warm = len(run.batches) - 1
    return Figure(
        name=name,
        value=sum(run.warm_cpu_s.values()) / warm,
        unit="CPU s",
        lower=True,
        goal=_CPU_GOAL,
        note=f"mean of {warm} batches",
    )


def _idle(directory: Path, bootstrap: str, rows: int, *, seconds: float) -> Figure:
    """CPU of all processes of a daemon that has carried everything [% of a core]."""
    directory.mkdir()
    config = kafka_config(directory, bootstrap, re.escape(events.TOPIC), max_records=200_000)
    with DaemonProcess(config) as daemon:
        time.sleep(_SETTLED_S)
        _require_rows(FileSystemCatalog(str(directory / "warehouse")), rows)
        before = _used_s(daemon)
        time.sleep(seconds)
        used = _used_s(daemon) - before
        if not daemon.alive:
            raise RuntimeError(f"the daemon ended:\n{daemon.log_tail()}")
        if (code := daemon.terminate()) != 0:
            raise RuntimeError(f"the daemon ended with {code}:\n{daemon.log_tail()}")
    return Figure(
        name="idle daemon, share of a core",
        value=100 * used / seconds,
        unit="%",
        lower=True,
        goal=_IDLE_GOAL,
        note=f"over {seconds:.0f} s, trigger 500 ms",
    )


def _used_s(daemon: DaemonProcess) -> float:
    return sum(look(daemon.process.pid, exact=False)[1].values())


def _phase(name: str, run: Run, phase: str) -> Figure:
    return Figure(name=name, value=1000 * run.phase_s(phase), unit="ms", lower=True)
