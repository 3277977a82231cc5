# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.conformance [CASES.yaml | FOLDER]… [--warehouse DIR] [--only GLOB]`.

Runs the cases against the storage layer: those of all topics (`tests/conformance/cases`) when no
file is named. Exits with 1 when a case failed, 2 when there is none.
"""

import argparse
import collections
import fnmatch
import pathlib
import sys
import tempfile

from tests.conformance.cases import CASES, case_files, load_cases
from tests.conformance.runner import run_case
from tests.reporting import CaseReport, print_summary


def main() -> int:
    """Run all cases of the files."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "files",
        nargs="*",
        type=pathlib.Path,
        metavar="CASES.yaml",
        help="files of cases, or folders of such files; all topics when left out",
    )
    parser.add_argument(
        "--warehouse", type=pathlib.Path, metavar="DIR", help="keep the tables here afterwards"
    )
    parser.add_argument("--only", default="*", metavar="GLOB", help="ids of the cases to run")
    arguments = parser.parse_args()
    cases = [
        (str(case.get("topic", path.stem)), case)
        for path in case_files(arguments.files or [CASES])
        for case in load_cases(path)
        if fnmatch.fnmatchcase(str(case.get("id", "")), arguments.only)
    ]
    if not cases:
        print(f"no case has an id like `{arguments.only}`", file=sys.stderr)
        print_summary([])
        return 2
    topics: dict[str, list[CaseReport]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        warehouse = (arguments.warehouse or pathlib.Path(scratch)).resolve()
        for topic, case in cases:
            directory = warehouse / str(case["id"])
            directory.mkdir(parents=True, exist_ok=True)
            topics[topic].append(run_case(case, directory))
    width = max(map(len, topics))
    for topic, reports in sorted(topics.items()):
        counts = collections.Counter(report.status for report in reports)
        shown = [f"{counts[status]:4d} {status}" for status in ("passed", "failed", "skipped")]
        print(f"{topic:{width}} {', '.join(shown)}")
    return print_summary(report for reports in topics.values() for report in reports)


if __name__ == "__main__":
    sys.exit(main())
