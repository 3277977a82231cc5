# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.golden PACK_DIR… [--write]`: read golden tables and compare with Java.

With `--write` also write every table again from its recorded steps and compare what comes of it.

Exits with 1 when a case failed; a pack without cases is a failure.
"""

import argparse
import dataclasses
import pathlib
import sys
import tempfile

from tests.golden.replay import replay_case
from tests.golden.runner import find_cases, run_case
from tests.reporting import CaseReport, print_summary


def main() -> int:
    """Run all cases of the packs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument(
        "packs", nargs="+", type=pathlib.Path, metavar="PACK_DIR", help="a folder of cases"
    )
    parser.add_argument("--write", action="store_true", help="write the tables again, too")
    arguments = parser.parse_args()
    reports: list[CaseReport] = []
    for pack in arguments.packs:
        try:
            cases = find_cases(pack)
        except FileNotFoundError as error:
            reports.append(CaseReport(str(pack), failures=[str(error)]))
            continue
        reports.extend(map(run_case, cases))
        if arguments.write:
            with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
                for case in cases:
                    report = replay_case(case, pathlib.Path(scratch) / case.name)
                    reports.append(dataclasses.replace(report, name=f"{report.name} (written)"))
    return print_summary(reports)


if __name__ == "__main__":
    sys.exit(main())
