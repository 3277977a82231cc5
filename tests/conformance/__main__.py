# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.conformance CASES.yaml… [--warehouse DIR] [--only GLOB]`.

Runs the cases against the storage layer. Exits with 1 when a case failed, 2 when there is none.
"""

import argparse
import fnmatch
import pathlib
import sys
import tempfile

from tests.conformance.cases import load_cases
from tests.conformance.runner import run_case
from tests.reporting import print_summary


def main() -> int:
    """Run all cases of the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "files", nargs="+", type=pathlib.Path, metavar="CASES.yaml", help="files of cases"
    )
    parser.add_argument(
        "--warehouse", type=pathlib.Path, metavar="DIR", help="keep the tables here afterwards"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="ids of the cases to run")
    arguments = parser.parse_args()
    cases = [
        case
        for path in arguments.files
        for case in load_cases(path)
        if fnmatch.fnmatchcase(str(case.get("id", "")), arguments.only)
    ]
    if not cases:
        print(f"no case has an id like `{arguments.only}`", file=sys.stderr)
        print_summary([])
        return 2
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        warehouse = (arguments.warehouse or pathlib.Path(scratch)).resolve()
        return print_summary(run_case(case, warehouse) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
