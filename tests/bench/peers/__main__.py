# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.peers`: Lakeward, Flink + Paimon, Spark + Paimon in turns over one topic.

Every run's table is compared value by value with the model. A peer that cannot be set up (Maven, a
Java compiler, `make peers`) is left out, and that is said. A figure is a median of rounds; ratios
are taken round by round. The load of the machine is in the JSON: on a busy one trust CPU alone.
"""

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from storage.catalog.catalog import FileSystemCatalog
from tests.bench import events, workload
from tests.bench.daemon_runs import kafka_source, require_state, run_daemon
from tests.bench.machine import facts
from tests.bench.measure import Figure, compared
from tests.bench.peers import flink, spark
from tests.bench.peers.measured import Measured, commit_times
from tests.bench.report import print_part, write_json
from tests.e2e.kafka_broker import local_broker
from tests.interop.artifacts import ArtifactUnavailableError

_OUT = Path(__file__).parents[1] / "out" / "peers.json"
_SIZE = workload.Size(inserts=1_000_000, batches=30, changes=100_000)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How tables are written.

    Attributes:
        options: of the table.
        topic: of the events.
        encode: events of the topic from those without `before`.
        largest: records of a batch of ours, whose duration is then at most Flink's interval.
        interval_s: seconds between Flink's checkpoints.
        goal: ratio to Flink of events per CPU second in the steady state.
        with_spark: whether Spark runs, too, which takes a minute and a half.
    """

    options: dict[str, str]
    topic: str = events.TOPIC
    encode: events.Encoder | None = None
    largest: int = 1_000_000
    interval_s: int = 10
    goal: float = 3.0
    with_spark: bool = False


_SETTINGS = {
    "write-only": Setting(options={"write-only": "true"}, with_spark=True),
    "full-before": Setting(
        options={"write-only": "true"}, topic="shop.public.whole", encode=events.whole_before
    ),
    "compact": Setting(options={}, largest=500_000, interval_s=2, goal=2.5),
    "lookup": Setting(options={"changelog-producer": "lookup"}),
}


def main() -> int:
    """Run all settings; 0 whether or not goals are met."""
    given = _arguments()
    size = _SIZE.quick() if given.quick else _SIZE
    machine, parts = facts(), {}
    peers = {}
    for peer, prepare in {"Flink": flink.set_up, "Spark": spark.set_up}.items():
        try:
            prepare()
            peers[peer] = _PEERS[peer]
        except ArtifactUnavailableError as error:
            print(f"{peer} is not set up: {error}", file=sys.stderr)
    with local_broker() as bootstrap, TemporaryDirectory(prefix="lakeward-peers-") as scratch:
        names = given.only or list(_SETTINGS)
        for topic, encode in {(_SETTINGS[name].topic, _SETTINGS[name].encode) for name in names}:
            events.fill_topic(bootstrap, workload.Orders(size), topic, encode)
        for name in names:
            load, began = os.getloadavg(), time.perf_counter()
            setting = _SETTINGS[name]
            ways = {"Lakeward": _ours(Path(scratch), bootstrap, size, setting)}
            for peer, make in peers.items():
                if peer != "Spark" or setting.with_spark:
                    ways[peer] = make(Path(scratch), bootstrap, size, setting)
            runs = _in_turns(ways, 1 if given.quick else given.rounds)
            figures = _figures(runs, setting)
            seconds = time.perf_counter() - began
            print_part(name, figures, seconds)
            kept = {way: [dataclasses.asdict(run) for run in each] for way, each in runs.items()}
            parts[name] = {"load_average": load, "figures": figures, "runs": kept}
            machine["load_average_end"] = os.getloadavg()
            write_json(given.out, machine, parts, quick=given.quick)
    print(f"\nwritten to {given.out}")
    return 0


def _in_turns(ways: dict[str, Callable[[], Measured]], rounds: int) -> dict[str, list[Measured]]:
    runs: dict[str, list[Measured]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            runs[name].append(ways[name]())
    return runs


def _figures(runs: dict[str, list[Measured]], setting: Setting) -> list[Figure]:
    figures = []
    peers = [way for way in runs if way != "Lakeward"]
    for what in runs["Lakeward"][0].rates:
        ours = [run.rates[what] for run in runs["Lakeward"]]
        for peer in peers:
            goal = setting.goal if peer == "Flink" else _SPARK_GOAL
            goal = goal if what == "steady, CPU" else 2.0
            theirs = [run.rates[what] for run in runs[peer]]
            figures.append(compared(what, ours, theirs, versus=peer, unit="events/s", goal=goal))
        if not peers:
            value = statistics.median(ours)
            figures.append(Figure(name=what, value=value, unit="events/s", samples=ours))
    for way, each in runs.items():
        for what, unit in (("first_commit_s", "s"), ("peak_mb", "MB")):
            values = [getattr(run, what) for run in each]
            figure = Figure(
                name=f"{way}: {what.rpartition('_')[0].replace('_', ' ')}",
                value=statistics.median(values),
                unit=unit,
                samples=values,
                lower=True,
            )
            figures.append(figure)
    return figures


def _ours(
    scratch: Path, bootstrap: str, size: workload.Size, setting: Setting
) -> Callable[[], Measured]:
    expected = events.expected(size)

    def run() -> Measured:
        began = time.time()
        options = {key.replace("-", "_"): value for key, value in setting.options.items()}
        largest = min(setting.largest, size.inserts)
        done, catalog = run_daemon(
            scratch / "run",
            kafka_source(bootstrap, setting.topic),
            max_records=largest,
            **options,
        )
        require_state(catalog, expected)
        commits = commit_times(catalog)
        return Measured(
            events=done.events,
            whole_s=done.whole_s,
            whole_cpu_s=sum(done.batches[-1]["cpu_s"].values()),
            steady_events=done.warm_events,
            steady_s=done.warm_s,
            steady_cpu_s=sum(done.warm_cpu_s.values()),
            first_commit_s=commits[0] - began,
            commits=len(commits),
            peak_mb=done.usage.peak_mb,
        )

    return run


def _flink(
    scratch: Path, bootstrap: str, size: workload.Size, setting: Setting
) -> Callable[[], Measured]:
    start = functools.partial(
        flink.run_flink,
        scratch / "run",
        bootstrap,
        setting.topic,
        first=size.inserts,
        interval_s=setting.interval_s,
        options=setting.options,
    )
    return _compared("Flink", size, start)


def _spark(
    scratch: Path, bootstrap: str, size: workload.Size, setting: Setting
) -> Callable[[], Measured]:
    start = functools.partial(
        spark.run_spark,
        scratch / "run",
        bootstrap,
        setting.topic,
        largest=min(setting.largest, size.inserts),
        events=size.inserts + size.batches * size.changes,
        options=setting.options,
    )
    return _compared("Spark", size, start)


def _compared(
    peer: str, size: workload.Size, start: Callable[[], tuple[Measured, FileSystemCatalog]]
) -> Callable[[], Measured]:
    """A run whose table is compared with the model."""
    expected = events.expected(size)

    def run() -> Measured:
        done, catalog = start()
        got = catalog.table(events.TABLE).to_arrow().select(workload.ARROW_SCHEMA.names)
        workload.require_equal(got, expected, peer)
        return done

    return run


_PEERS = {"Flink": _flink, "Spark": _spark}
_SPARK_GOAL = 5.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round over a tenth of the events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=_SETTINGS, action="append")
    parser.add_argument("--out", type=Path, default=_OUT)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
