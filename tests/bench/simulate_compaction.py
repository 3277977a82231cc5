# SPDX-License-Identifier: Apache-2.0
"""Write and space amplification of the compaction policy, without a disk.

Every step flushes one level-0 file of distinct random keys out of a key space; a merge keeps each
key once. Sizes are in rows. `python -m tests.bench.simulate_compaction --help`.
"""

import argparse
import dataclasses
import itertools

import numpy as np

from storage.format.file_meta import EMPTY_STATS, DataFileMeta
from storage.lsm.compaction_policy import CompactionPolicy, pick
from storage.lsm.levels import Levels


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a simulated history cost.

    Attributes:
        write_amplification: rows written, flushes included, per row flushed.
        space_amplification: rows stored per distinct key, average after each step.
        runs: sorted runs after each step, average.
        most_runs: sorted runs after a step, maximum.
        largest_compaction: rows of the largest compaction relative to the distinct keys.
    """

    write_amplification: float
    space_amplification: float
    runs: float
    most_runs: int
    largest_compaction: float


def simulate(
    policy: CompactionPolicy,
    *,
    flushes: int,
    flush_rows: int,
    keys: int,
    num_levels: int = 6,
    seed: int = 1,
) -> Outcome:
    """Run a history of equal flushes with uniformly random keys."""
    generator = np.random.default_rng(seed)
    names = itertools.count()
    contents: dict[str, np.ndarray] = {}
    everything = np.zeros(keys, dtype=bool)
    levels = Levels.of([], num_levels, _key_of)
    written = flushed = largest = 0
    space, runs = [], []
    for step in range(flushes):
        flush = np.unique(generator.integers(0, keys, flush_rows))
        everything[flush] = True
        file = _file(f"f{next(names)}", 0, len(flush), step)
        contents[file.file_name] = flush
        levels = levels.replace([], [file], _key_of)
        flushed += len(flush)
        written += len(flush)
        while (unit := pick(levels, policy)) is not None:
            merged = np.unique(np.concatenate([contents.pop(f.file_name) for f in unit.files]))
            file = _file(f"f{next(names)}", unit.output_level, len(merged), step)
            contents[file.file_name] = merged
            levels = levels.replace(unit.files, [file], _key_of)
            written += len(merged)
            largest = max(largest, len(merged))
        stored = sum(file.file_size for file in levels.files())
        space.append(stored / max(1, int(everything.sum())))
        runs.append(levels.run_count)
    return Outcome(
        write_amplification=written / flushed,
        space_amplification=float(np.mean(space)),
        runs=float(np.mean(runs)),
        most_runs=max(runs),
        largest_compaction=largest / int(everything.sum()),
    )


def _key_of(key: bytes) -> tuple[bytes]:
    return (key,)


def _file(name: str, level: int, rows: int, step: int) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=rows,
        row_count=rows,
        min_key=b"0",
        max_key=b"9",
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=step,
        max_sequence_number=step,
        schema_id=0,
        level=level,
    )


def main() -> None:
    """Print one line for each trigger and amplification limit."""
    parser = argparse.ArgumentParser(description=__doc__, prog="simulate_compaction")
    parser.add_argument("--flushes", type=int, default=300)
    parser.add_argument("--rows", type=int, default=2_000, help="rows of one flush")
    parser.add_argument("--keys", type=int, default=100_000, help="size of the key space")
    given = parser.parse_args()
    print("trigger  amp%  ratio%  write amp  space amp  runs avg/max  largest compaction")
    for trigger, percent, ratio in itertools.product((2, 5, 10), (50, 200), (1, 25)):
        policy = CompactionPolicy(
            trigger=trigger, max_size_amplification_percent=percent, size_ratio=ratio
        )
        outcome = simulate(
            policy,
            flushes=given.flushes,
            flush_rows=given.rows,
            keys=given.keys,
            num_levels=trigger + 1,
        )
        print(
            f"{trigger:7}  {percent:4}  {ratio:6}  {outcome.write_amplification:9.2f}"
            f"  {outcome.space_amplification:9.2f}  {outcome.runs:6.2f}/{outcome.most_runs:<3}"
            f"  {outcome.largest_compaction:9.2f}"
        )


if __name__ == "__main__":
    main()
