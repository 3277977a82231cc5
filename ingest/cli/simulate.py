# SPDX-License-Identifier: Apache-2.0
"""`lakeward simulate-compaction`: the cost of compaction settings, before a table has them."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ingest.cli.commands import Arguments, Value, combine, command, option
from ingest.cli.parameters import COUNT, DURATION_S, JSON
from ingest.config.setting_kinds import size
from ingest.observe.text_table import aligned, human_size
from storage.lsm.compaction_policy import CompactionPolicy
from storage.lsm.compaction_simulation import Outcome, Workload, simulate

_EXAMPLES = """\
Examples:
  lakeward simulate-compaction
  lakeward simulate-compaction --row-bytes 200 --rows 50k --keys 10m --updates 0.95
  lakeward simulate-compaction --trigger 2,5,10 --producer none,lookup
  lakeward simulate-compaction --producer full-compaction --delta-commits 1,5,20
"""

_CHART_COLUMNS = 60
_BARS = "▁▂▃▄▅▆▇█"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """One line of the comparison."""

    trigger: int
    stop_trigger: int
    max_size_amplification: int
    size_ratio: int
    producer: str
    delta_commits: int | None
    interval_s: float | None

    def run(self, workload: Workload) -> Outcome:
        interval = self.interval_s
        policy = CompactionPolicy(
            trigger=self.trigger,
            stop_trigger=self.stop_trigger,
            max_size_amplification_percent=self.max_size_amplification,
            size_ratio=self.size_ratio,
            optimization_interval_ms=None if interval is None else int(interval * 1000),
        )
        return simulate(
            workload,
            policy,
            num_levels=self.trigger + 1,
            lookup=self.producer == "lookup",
            delta_commits=self.delta_commits,
        )


def _number(text: str) -> int:
    units = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
    digits, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    if not digits.isdecimal():
        raise ValueError("not a number such as 2000, 50k or 10m")
    return int(digits) * unit


def _numbers(text: str) -> list[int]:
    return [_number(part.strip()) for part in text.split(",")]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("not a ratio from 0 to 1")
    return share


def _producers(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in ("none", "input", "lookup", "full-compaction"):
            raise ValueError(f"unknown changelog producer: {name}")
    return names


def _size(text: str) -> int:
    try:
        return int(size.parse(text))
    except ValueError as error:
        raise ValueError(f"not {error}") from error


_load = functools.partial(option, section="The load of one bucket")
_policy = functools.partial(option, section="The policy, each one value or several: A,B,…")

_NUMBER = Value(_number, "N")
_NUMBERS = Value(_numbers, "N[,…]")

_LOAD = combine(
    _load("--commits", _NUMBER, "commits (default: 300)", default=300),
    _load("--rows", _NUMBER, "rows of a commit (default: 2k)", default=2_000),
    _load("--keys", _NUMBER, "rows that exist at the beginning (default: 100k)", default=100_000),
    _load("--row-bytes", Value(_size, "SIZE"), "of a row in a file (default: 100)", default=100),
    _load(
        "--updates",
        Value(_share, "SHARE"),
        "rows whose key exists already, from 0 to 1 (default: 0.8)",
        default=0.8,
    ),
    _load("--commit-interval", DURATION_S, "between commits (default: 30s)", default=30.0),
    _load("--seed", COUNT, "of the keys (default: 1)", default=1),
)

_POLICY = combine(
    _policy(
        "--trigger",
        _NUMBERS,
        "num-sorted-run.compaction-trigger (default: 2,5,10)",
        default=(2, 5, 10),
    ),
    _policy(
        "--max-size-amplification",
        _NUMBERS,
        "compaction.max-size-amplification-percent (default: 200)",
        default=(200,),
    ),
    _policy("--size-ratio", _NUMBERS, "compaction.size-ratio (default: 1)", default=(1,)),
    _policy(
        "--producer",
        Value(_producers, "NAME[,…]"),
        "changelog-producer: none, input, lookup or full-compaction (default: none,lookup)",
        default=("none", "lookup"),
    ),
    _policy(
        "--delta-commits",
        _NUMBERS,
        "full-compaction.delta-commits, of the full-compaction producer (default: 1)",
        default=(1,),
    ),
    _policy(
        "--optimization-interval", DURATION_S, "compaction.optimization-interval (default: off)"
    ),
)


def _combinations(arguments: Arguments) -> Iterator[_Settings]:
    policies = itertools.product(
        arguments.producer,
        arguments.trigger,
        arguments.max_size_amplification,
        arguments.size_ratio,
    )
    for producer, trigger, amplification, ratio in policies:
        full = producer == "full-compaction"
        for delta_commits in arguments.delta_commits if full else [None]:
            yield _Settings(
                trigger=max(1, trigger),
                stop_trigger=max(1, trigger) + 3,
                max_size_amplification=amplification,
                size_ratio=ratio,
                producer=producer,
                delta_commits=delta_commits,
                interval_s=arguments.optimization_interval,
            )


@command("simulate-compaction", _LOAD, _POLICY, JSON, examples=_EXAMPLES)
def simulate_compaction(arguments: Arguments) -> int:
    """Simulate write and space amplification of compaction settings.

    Applies the real compaction policy to a generated history of commits to one bucket, without
    writing files, and prints:

      write amp   bytes written, flushes included, per byte that was flushed
      space amp   bytes stored per byte of the newest rows (average, and the worst)
      runs        sorted runs after a commit, which a merging read has to merge
      largest     output of the largest compaction

    Options of the policy take several values, comma-separated; every combination is one line.
    """
    workload = Workload(
        commits=arguments.commits,
        commit_rows=arguments.rows,
        row_bytes=arguments.row_bytes,
        update_share=arguments.updates,
        keys=arguments.keys,
        interval_s=arguments.commit_interval,
        seed=arguments.seed,
    )
    results = [(settings, settings.run(workload)) for settings in _combinations(arguments)]
    if arguments.json:
        for settings, outcome in results:
            facts = {**dataclasses.asdict(settings), **dataclasses.asdict(outcome)}
            print(json.dumps({**facts, "mean_runs": outcome.mean_runs}))
        return 0
    print(
        f"{workload.commits} commits of {workload.commit_rows:,} rows of {workload.row_bytes} bytes"
        f" ({workload.update_share:.0%} updates) onto {workload.keys:,} rows, one bucket"
        + (f", simulated at 1:{workload.scale}" if workload.scale > 1 else "")
    )
    print("\nsorted runs over time")
    names = [_name(settings) for settings, _ in results]
    width = max(map(len, names))
    highest = max(max(outcome.runs, default=0) for _, outcome in results)
    for name, (_, outcome) in zip(names, results, strict=True):
        runs = outcome.runs
        print(f"  {name:<{width}}  {chart(runs, highest)}  max {max(runs, default=0)}")
    print("\n" + _table(results))
    return 0


def _name(settings: _Settings) -> str:
    every = "" if settings.delta_commits is None else f" every {settings.delta_commits}"
    return (
        f"{settings.producer}{every}, trigger {settings.trigger}, "
        f"amp {settings.max_size_amplification}%, ratio {settings.size_ratio}%"
    )


def chart(runs: Sequence[int], highest: int) -> str:
    """Runs over time as bars, from left to right; the highest bar is `highest`."""
    columns = min(_CHART_COLUMNS, len(runs))
    bars = []
    for column in range(columns):
        part = runs[column * len(runs) // columns : (column + 1) * len(runs) // columns]
        share = sum(part) / len(part) / max(1, highest)
        bars.append(_BARS[min(len(_BARS) - 1, int(share * len(_BARS)))])
    return "".join(bars)


_HEAD = ["producer", "every", "trigger", "amp %", "ratio %", "write amp", "space amp", "worst"]
_HEAD += ["runs avg", "max", "compactions", "written", "largest", "stored"]


def _table(outcomes: Sequence[tuple[_Settings, Outcome]]) -> str:
    rows: list[list[Any]] = []
    for settings, outcome in outcomes:
        every = "" if settings.delta_commits is None else str(settings.delta_commits)
        rows.append(
            [
                settings.producer,
                every,
                settings.trigger,
                settings.max_size_amplification,
                settings.size_ratio,
                round(outcome.write_amplification, 2),
                round(outcome.space_amplification, 2),
                round(outcome.most_space, 2),
                round(outcome.mean_runs, 2),
                max(outcome.runs, default=0),
                outcome.compactions,
                human_size(outcome.written_bytes),
                human_size(outcome.largest_compaction),
                human_size(outcome.stored_bytes),
            ]
        )
    return aligned(_HEAD, rows)
