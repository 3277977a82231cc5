# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz`: damage tables, print what readers made of it; exit 1 on a fault."""

import argparse
import pathlib
import sys
import tempfile

from tests.fuzz.campaign import run_campaign
from tests.fuzz.subjects import golden_subjects, own_subjects


def main() -> int:
    """Run a campaign over tables of Apache Paimon and of ours."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--count", type=int, default=3_000, help="damages in all")
    parser.add_argument("--only", default="", help="names of subjects, separated by commas")
    parser.add_argument("--list", action="store_true", help="name every difference, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakeward-fuzz-") as name:
        folder = pathlib.Path(name)
        subjects = [*golden_subjects(), *own_subjects(folder / "own")]
        if arguments.only:
            subjects = [one for one in subjects if one.name in arguments.only.split(",")]
        campaign = run_campaign(subjects, arguments.count, arguments.seed, folder)
    told = campaign.findings if arguments.list else campaign.faults
    for finding in told:
        if finding.result not in ("same", "refused"):
            sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"{campaign.table()}\nseed {arguments.seed}\n")
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
