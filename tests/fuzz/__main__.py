# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz`: damage tables, print what readers made of it; exit 1 on a fault.

`python -m tests.fuzz events`: make events odd, print how they ended; exit 1 on a fault.
"""

import argparse
import json
import logging
import pathlib
import sys
import tempfile
import time

from tests.fuzz.campaign import run_campaign
from tests.fuzz.event_campaign import EventCampaign, summary
from tests.fuzz.event_subjects import SUBJECTS, subject_of
from tests.fuzz.subjects import golden_subjects, own_subjects


def main(arguments: list[str]) -> int:
    """Run a campaign."""
    if arguments[:1] == ["events"]:
        return _events(arguments[1:])
    return _tables(arguments)


def _tables(given: list[str]) -> int:
    """Over tables of Apache Paimon and of ours."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--count", type=int, default=3_000, help="damages in all")
    parser.add_argument("--only", default="", help="names of subjects, separated by commas")
    parser.add_argument("--list", action="store_true", help="name every difference, too")
    arguments = parser.parse_args(given)
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


def _events(given: list[str]) -> int:
    """Over events of every format."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz events")
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--count", type=int, default=100_000, help="events in all")
    parser.add_argument("--only", default="", help="names of subjects, separated by commas")
    parser.add_argument("--faults", type=int, default=5, help="of a subject, after which it ends")
    parser.add_argument("--json", type=pathlib.Path, help="file for the summary")
    arguments = parser.parse_args(given)
    names = arguments.only.split(",") if arguments.only else list(SUBJECTS)
    logging.disable(logging.WARNING)  # of tables that are refused, as they should be
    done: dict[str, EventCampaign] = {}
    with tempfile.TemporaryDirectory(prefix="lakeward-fuzz-") as folder:
        for number, name in enumerate(names):
            started = time.monotonic()
            subject = subject_of(name, pathlib.Path(folder) / str(number))
            campaign = done[name] = EventCampaign(subject, arguments.seed)
            campaign.run(-(-arguments.count // len(names)), most_faults=arguments.faults)
            for fault in campaign.faults:
                sys.stdout.write(f"{fault}\n")
            seconds = time.monotonic() - started
            sys.stdout.write(
                f"{name:<30} {campaign.events:>9} events {seconds:7.1f} s "
                f"{len(campaign.faults)} faults\n"
            )
            sys.stdout.flush()
    text = json.dumps({"seed": arguments.seed, **summary(done)}, indent=1)
    sys.stdout.write(f"{text}\n")
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(text)
    return 1 if any(each.faults for each in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
