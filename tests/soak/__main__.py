# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.soak races|steady --minutes 10`: run a soak, print what was seen, write JSON."""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Result, run_soak
from tests.soak.steady import Steady, run_steady


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument(
        "kind",
        choices=("races", "steady"),
        help="compactions, expiry and kills beside the daemon; or half of what it can, evenly",
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work here and leave it")
    given = parser.parse_args()
    directory = given.keep or Path(tempfile.mkdtemp(prefix="lakeward-soak-"))
    run = run_soak if given.kind == "races" else run_steady
    result: Result | Steady = run(directory, minutes=given.minutes, seed=given.seed)
    target = given.json or Path(f"build/soak-{given.kind}.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_to_json(result))
    print(_to_json(result))
    if result.failures:
        print(f"FAILED, see {directory}", file=sys.stderr)
        return 1
    if given.keep is None:
        shutil.rmtree(directory)
    print(f"soak of {given.kind} passed")
    return 0


def _to_json(result: Result | Steady) -> str:
    return json.dumps(dataclasses.asdict(result), indent=2)


if __name__ == "__main__":
    sys.exit(main())
