# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.soak --minutes 10`: run the soak, print what was seen, write it as JSON."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import run_soak, to_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("build/soak.json"), metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work here and leave it")
    given = parser.parse_args()
    directory = given.keep or Path(tempfile.mkdtemp(prefix="lakeward-soak-"))
    result = run_soak(directory, minutes=given.minutes, seed=given.seed)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(to_json(result))
    print(to_json(result))
    print(f"dropped compactions: {result.dropped}")
    if result.failures:
        print(f"FAILED, see {directory}", file=sys.stderr)
        return 1
    if given.keep is None:
        shutil.rmtree(directory)
    print("soak passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
