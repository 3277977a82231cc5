# SPDX-License-Identifier: Apache-2.0
"""Measuring: wall and CPU seconds, interleaved rounds, memory of a process tree, figures.

A figure is a median over rounds. Where two ways of doing the same work are compared, their rounds
alternate, and the ratio is taken round by round, so that a slow minute of the machine hits both.
"""

import contextlib
import dataclasses
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORES = len(os.sched_getaffinity(0))
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure; `higher` is better unless it says otherwise.

    Attributes:
        name: what was measured.
        value: median over the rounds.
        unit: of the value.
        samples: one value per round.
        versus: name of what it is compared with, empty when alone.
        ratio: how much better than that, > 1 is better; the median of the rounds' ratios.
        ratios: one per round.
        goal: the ratio, or where there is none the value, that is wanted.
        lower: smaller values are better.
        note: what a reader must know to believe it.
    """

    name: str
    value: float
    unit: str
    samples: Sequence[float] = ()
    versus: str = ""
    ratio: float | None = None
    ratios: Sequence[float] = ()
    goal: float | None = None
    lower: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        if self.ratio is not None:
            return self.ratio >= self.goal
        return self.value <= self.goal if self.lower else self.value >= self.goal


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One run of one thing."""

    wall_s: float
    cpu_s: float
    result: Any = None


def peak_mb() -> float:
    """Greatest resident memory of this process [MB]; `ru_maxrss` would count its parent's, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cpu_s() -> float:
    """CPU seconds of this process with its threads, and of children it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def tree_cpu_s() -> float:
    """CPU seconds of this process and of its living descendants, such as a JVM and its workers."""
    return sum(look(os.getpid())[1].values())


def timed(work: Callable[[], Any], cpu_of: Callable[[], float] = cpu_s) -> Sample:
    """Run once, garbage collected before."""
    gc.collect()
    cpu, wall = cpu_of(), time.perf_counter()
    result = work()
    return Sample(time.perf_counter() - wall, cpu_of() - cpu, result)


def interleaved(
    rounds: int,
    ways: Mapping[str, Callable[[], Any]],
    *,
    warm: bool = True,
    cpu_of: Callable[[], float] = cpu_s,
) -> dict[str, list[Sample]]:
    """Run every way `rounds` times, taking turns; every second round in reverse order.

    Args:
        rounds: measured runs of each.
        ways: by name.
        warm: one run of each first that does not count.
        cpu_of: what `Sample.cpu_s` counts.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    if warm:
        for work in ways.values():
            work()
    for turn in range(rounds):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            samples[name].append(timed(ways[name], cpu_of))
    return samples


def rate(
    name: str,
    samples: Mapping[str, Sequence[Sample]],
    way: str,
    rows: int,
    *,
    versus: str = "",
    unit: str = "rows/s",
    cpu: bool = False,
    goal: float | None = None,
    note: str = "",
) -> Figure:
    """Rows per second of one way of `interleaved`, and its ratio to another."""

    def rates(which: str) -> list[float]:
        taken = [s.cpu_s if cpu else s.wall_s for s in samples[which]]
        return [rows / max(seconds, 1e-9) for seconds in taken]

    others = rates(versus) if versus else []
    found = compared(name, rates(way), others, versus=versus, unit=unit, goal=goal)
    return dataclasses.replace(found, note=note)


def compared(
    name: str,
    mine: list[float],
    others: Sequence[float],
    *,
    versus: str,
    unit: str,
    goal: float | None = None,
) -> Figure:
    """The median of samples, and of their ratios to those of `versus`, taken in turns with them.

    Args:
        others: as many as `mine`; empty when there is nobody to compare with.
    """
    ratios = [a / b for a, b in zip(mine, others, strict=True)] if others else []
    return Figure(
        name=name,
        value=statistics.median(mine),
        unit=unit,
        samples=mine,
        versus=versus,
        ratio=statistics.median(ratios) if ratios else None,
        ratios=ratios,
        goal=goal,
    )


def run_child(
    module: str, config: Mapping[str, Any], *, python: Path | None = None, timeout: float = 1800
) -> dict[str, Any]:
    """Run `python -m module CONFIG` and return the JSON of its last line of standard output.

    Raises:
        RuntimeError: it failed; the message ends with what it wrote.
    """
    with child(module, config, python=python) as process:
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
    return result_of(process, out)


def child(
    module: str, config: Mapping[str, Any], *, python: Path | None = None, stdin: bool = False
) -> "subprocess.Popen[str]":
    """Start `python -m module CONFIG`; a path instead of a module name runs that file alone."""
    if module.endswith(".py"):
        # -P: modules here have everyday names that a foreign package could import by mistake
        target, path = ["-P", module], ""
    else:
        target, path = ["-m", module], str(ROOT)
    return subprocess.Popen(
        [str(python or sys.executable), *target, json.dumps(config)],
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )


def result_of(process: "subprocess.Popen[str]", out: str) -> dict[str, Any]:
    """The JSON of the last line that a child wrote."""
    lines = out.strip().splitlines()
    if process.returncode != 0 or not lines:
        tail = "\n".join(lines[-25:])
        raise RuntimeError(f"{process.args[1:3]} ended with {process.returncode}:\n{tail}")
    result: dict[str, Any] = json.loads(lines[-1])
    return result


@dataclasses.dataclass(slots=True)
class Usage:
    """Memory that a process tree held at most.

    Attributes:
        peak_mb: of all processes at one moment; a page shared by n of them counts 1/n in each.
        peak_by_program: the same by program, `java` or `python`.
    """

    peak_mb: float = 0.0
    peak_by_program: dict[str, float] = dataclasses.field(default_factory=dict)

    def take(self, memory: Mapping[str, float]) -> None:
        """Note one look at the tree."""
        self.peak_mb = max(self.peak_mb, sum(memory.values()))
        for program, size in memory.items():
            self.peak_by_program[program] = max(self.peak_by_program.get(program, 0.0), size)


def look(root: int, *, exact: bool = True) -> tuple[dict[str, float], dict[tuple[str, int], float]]:
    """A process and its descendants now.

    Args:
        root: its id.
        exact: False counts shared pages in every process, which takes next to no time.

    Returns:
        Memory by program, pages shared by n processes counting 1/n in each [MB]; CPU seconds by
        (program, process id).
    """
    parents: dict[int, int] = {}
    programs: dict[int, str] = {}
    ticks: dict[int, int] = {}
    sizes: dict[int, float] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{entry}/stat").read_text()
            name, _, rest = text.partition("(")[2].rpartition(")")
            values = rest.split()
            parents[int(entry)] = int(values[1])
            programs[int(entry)] = "java" if name.startswith("java") else "python"
            ticks[int(entry)] = int(values[11]) + int(values[12])
            sizes[int(entry)] = int(values[21]) * _PAGE / 1e6
    tree = {root}
    fresh = tree
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in tree and pid not in tree}
        tree |= fresh
    memory: dict[str, float] = {}
    cpu: dict[tuple[str, int], float] = {}
    for pid in tree & set(parents):
        with contextlib.suppress(OSError, StopIteration):
            program = programs[pid]
            size = _shared_out_mb(pid) if exact else sizes[pid]
            memory[program] = memory.get(program, 0.0) + size
            cpu[(program, pid)] = ticks[pid] / _TICKS
    return memory, cpu


def _shared_out_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    line = next(line for line in rollup if line.startswith("Pss:"))
    return int(line.split()[1]) / 1000


@contextlib.contextmanager
def usage_of(root: int, interval_s: float = 1.0) -> Iterator[Usage]:
    """Watch a process tree from a thread of this process for as long as the block lasts.

    A look takes some milliseconds of a core, so it is taken once a second.
    """
    usage = Usage()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(interval_s):
            usage.take(look(root)[0])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        stop.set()
        thread.join()
