# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.golden PACK_DIR…`: read golden tables and compare with what Java reads.

Exits with 1 when a case failed; a pack without cases is a failure.
"""

import argparse
import pathlib
import sys

from tests.golden.runner import find_cases, run_case
from tests.reporting import CaseReport, print_summary


def main() -> int:
    """Run all cases of the packs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument(
        "packs", nargs="+", type=pathlib.Path, metavar="PACK_DIR", help="a folder of cases"
    )
    arguments = parser.parse_args()
    reports: list[CaseReport] = []
    for pack in arguments.packs:
        try:
            reports.extend(run_case(case) for case in find_cases(pack))
        except FileNotFoundError as error:
            reports.append(CaseReport(str(pack), failures=[str(error)]))
    return print_summary(reports)


if __name__ == "__main__":
    sys.exit(main())
