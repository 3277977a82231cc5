# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.property --histories 2000 --seed N`: random histories against the naive model.

Prints progress and the seed of every history that fails, with the smallest history found that still
fails as a conformance case, which belongs into tests/conformance/cases/regression.yaml. One seed
again: `--histories 1 --seed N`. Exits with 1 when a history failed.
"""

import argparse
import concurrent.futures
import dataclasses
import pathlib
import pprint
import sys
import tempfile
import time

from tests.conformance.runner import run_case
from tests.property.draw import FEATURES, draw
from tests.property.histories import History, as_case, as_yaml
from tests.property.judge import Disagreement, judge, last_rows
from tests.property.shrink import shrink

_PROGRESS_S = 30.0
_SHRINK_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed.

    Attributes:
        name: of the history.
        snapshots: how many it made.
        failure: text for people, or None.
    """

    name: str
    snapshots: int
    failure: str | None


def main() -> int:
    """Run the histories."""
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first one")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="side by side")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(FEATURES),
        help="tables that do not use this",
    )
    parser.add_argument(
        "--stop-after", type=int, default=10, metavar="N", help="end after that many failures"
    )
    arguments = parser.parse_args()
    features = FEATURES - set(arguments.without)
    seeds = range(arguments.seed, arguments.seed + arguments.histories)
    start = shown = time.monotonic()
    done = snapshots = 0
    failures: list[str] = []
    with concurrent.futures.ProcessPoolExecutor(arguments.processes) as pool:
        jobs = (pool.submit(outcome, seed, features) for seed in seeds)
        for job in concurrent.futures.as_completed(list(jobs)):
            found = job.result()
            done, snapshots = done + 1, snapshots + found.snapshots
            if found.failure is not None:
                failures.append(found.name)
                print(found.failure, flush=True)
                if len(failures) == arguments.stop_after:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
            if time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                print(f"{done} of {len(seeds)} histories, {shown - start:.0f} s", flush=True)
    seconds = time.monotonic() - start
    print(f"{done} histories from seed {seeds.start}, {snapshots} snapshots, {seconds:.0f} s")
    print(f"{len(failures)} disagreements {' '.join(sorted(failures))}")
    return 1 if failures else 0


def outcome(seed: int, features: frozenset[str]) -> Outcome:
    """Run the history of a seed; make it small when it fails."""
    history = draw(seed, features)
    with tempfile.TemporaryDirectory(prefix="history-") as scratch:
        try:
            return Outcome(history.name, judge(history, pathlib.Path(scratch)), None)
        except Disagreement as found:
            return Outcome(history.name, 0, _told(history, found))


def _told(history: History, found: Disagreement) -> str:
    small = shrink(history, found, seconds=_SHRINK_S)
    case = as_case(small, last_rows(small), f"{found.law}: {str(found)[:300]}")
    with tempfile.TemporaryDirectory(prefix="history-") as scratch:
        report = run_case(case, pathlib.Path(scratch))
    alone = "fails too" if report.failures else "holds: the step that matters has no case form"
    return "\n".join(
        [
            f"--- {history.name}: {str(found)[:2000]}",
            f"# the history, window of {small.window_bytes} bytes:",
            *(f"# {line}" for line in pprint.pformat(list(small.steps), width=110).splitlines()),
            f"# as a case (it {alone}):",
            as_yaml(case),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
