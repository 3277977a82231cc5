# SPDX-License-Identifier: Apache-2.0
"""The storage layer alone on one core or two: orders written, committed and read back in Arrow.

1M inserts, then 10 commits of 100k changes, into two buckets; input from Parquet files that are
loaded before the clock starts. Ours write-only and with inline compaction, against pypaimon-rust
(which never compacts) and, on a tenth of the rows, pypaimon in pure Python. Every run's final state
is compared value by value with the model. We make files durable (fsync), the peers do not.
"""

import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.bench import workload
from tests.bench.machine import PEERS_PYTHON
from tests.bench.measure import Figure, compared, run_child

_OPTIONS = {"bucket": "2"}
_PEER = str(Path(__file__).with_name("peer_pypaimon.py"))
_JAVA_COMPACTING = 159_000
_JAVA_NOTE = "goal: twice Java Paimon 0.9's 159 k/s as measured in PEERS.md"
_READS = 5

Runs = dict[str, list[dict[str, Any]]]


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    size = workload.Size().quick() if quick else workload.Size()
    rounds = 1 if quick else 5
    data = scratch / "orders"
    workload.write_files(data, size)
    ways = {
        "write-only": lambda: _ours(data, scratch, {"write-only": "true"}),
        "compacting": lambda: _ours(data, scratch, {}),
    }
    if PEERS_PYTHON.exists():
        ways["pypaimon-rust"] = lambda: _pypaimon(data, scratch, native=True)
    runs: Runs = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            runs[name].append(ways[name]())
    figures = _figures(runs, rust="pypaimon-rust" in ways)
    if PEERS_PYTHON.exists():
        small = scratch / "orders_small"
        workload.write_files(small, size.quick())
        figures += _pure_python(runs, _pypaimon(small, scratch, native=False))
    else:
        print("  storage: no .venv-peers (make peers), so no peers to compare with")
    return figures


def _ours(data: Path, scratch: Path, options: Mapping[str, str]) -> dict[str, Any]:
    work = scratch / "ours"
    shutil.rmtree(work, ignore_errors=True)
    config = {
        "data": str(data),
        "work": str(work),
        "options": {**_OPTIONS, **options},
        "reads": _READS,
    }
    result = run_child("tests.bench.storage_child", config)
    if result["wrong"]:
        raise RuntimeError(f"our storage with {options}: wrong result in {result['wrong']}")
    shutil.rmtree(work)
    return result


def _pypaimon(data: Path, scratch: Path, *, native: bool) -> dict[str, Any]:
    work = scratch / "peer"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    config = {
        "data": str(data),
        "work": str(work),
        "bucket": _OPTIONS["bucket"],
        "native": native,
        "reads": _READS if native else 1,
    }
    result = run_child(_PEER, config, python=PEERS_PYTHON)
    state, expected = (pq.read_table(where / "final.parquet") for where in (work, data))
    workload.require_equal(state, expected, "pypaimon")
    shutil.rmtree(work)
    return result


def _figures(runs: Runs, *, rust: bool) -> list[Figure]:
    versus = "pypaimon-rust" if rust else ""
    figures = []
    for way, note in (("write-only", ""), ("compacting", _JAVA_NOTE)):
        compacting = way == "compacting"
        figures += [
            _speed(
                f"{way}: changes, wall",
                runs,
                way,
                ("changes", "changes_s"),
                versus,
                goal=None if compacting else 1.0,
            ),
            _speed(f"{way}: changes, CPU", runs, way, ("changes", "changes_cpu_s"), versus),
            _speed(
                f"{way}: initial inserts, wall", runs, way, ("initial_rows", "initial_s"), versus
            ),
            _speed(f"{way}: full read, wall", runs, way, ("rows", "read_s"), versus),
            _plain(f"{way}: full read", runs, way, "read_s", "s", goal=0.3),
            _plain(f"{way}: slowest commit", runs, way, "batch_s", "s"),
            _plain(f"{way}: bytes written", runs, way, "written_mb", "MB"),
            _plain(f"{way}: files on disk", runs, way, "files", ""),
            _plain(f"{way}: peak memory", runs, way, "peak_rss_mb", "MB"),
        ]
        if compacting:
            alone = _speed(f"{way}: changes, goal", runs, way, ("changes", "changes_s"), "")
            figures.append(_with_goal(alone, 2.0 * _JAVA_COMPACTING, note))
    if rust:
        figures += [
            _plain("pypaimon-rust: changes", runs, versus, "changes_s", "s"),
            _plain("pypaimon-rust: full read", runs, versus, "read_s", "s"),
            _plain("pypaimon-rust: peak memory", runs, versus, "peak_rss_mb", "MB"),
        ]
    return figures


def _pure_python(runs: Runs, peer: dict[str, Any]) -> list[Figure]:
    small: Runs = {**runs, "pypaimon": [peer]}
    mine = _speed("write-only: changes", small, "write-only", ("changes", "changes_s"), "")
    theirs = _speed("pypaimon", small, "pypaimon", ("changes", "changes_s"), "")
    read = _speed("read", small, "write-only", ("rows", "read_s"), "")
    their_read = _speed("read", small, "pypaimon", ("rows", "read_s"), "")
    note = "pypaimon on a tenth of the rows, one run; value: pypaimon"
    return [
        Figure(name="pypaimon (pure Python): changes", value=theirs.value, unit="rows/s",
               versus="pypaimon", ratio=mine.value / theirs.value, note=note),
        Figure(name="pypaimon (pure Python): full read", value=their_read.value, unit="rows/s",
               versus="pypaimon", ratio=read.value / their_read.value, note=note),
    ]  # fmt: skip


def _speed(
    name: str,
    runs: Runs,
    way: str,
    keys: tuple[str, str],
    versus: str,
    *,
    goal: float | None = None,
) -> Figure:
    def rates(which: str) -> list[float]:
        return [run[keys[0]] / max(run[keys[1]], 1e-9) for run in runs[which]]

    others = rates(versus) if versus else []
    goal = goal if versus else None
    return compared(name, rates(way), others, versus=versus, unit="rows/s", goal=goal)


def _plain(
    name: str, runs: Runs, way: str, key: str, unit: str, *, goal: float | None = None
) -> Figure:
    values = [_number(run[key]) for run in runs[way]]
    return Figure(
        name=name,
        value=statistics.median(values),
        unit=unit,
        samples=values,
        goal=goal,
        lower=True,
    )


def _number(value: float | Sequence[float]) -> float:
    return max(value) if isinstance(value, list) else float(value)


def _with_goal(figure: Figure, goal: float, note: str) -> Figure:
    return Figure(
        name=figure.name,
        value=figure.value,
        unit=figure.unit,
        samples=figure.samples,
        goal=goal,
        note=note,
    )
