# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz`: damage tables, print what readers made of it; exit 1 on a fault.

`python -m tests.fuzz events`: make events odd, print how they ended; exit 1 on a fault. `decoders`:
the same with slightly mutated JSON events in large batches through the decoders alone.
"""

import argparse
import itertools
import json
import logging
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

from tests.fuzz.campaign import run_campaign
from tests.fuzz.event_campaign import DecoderCampaign, EventCampaign, summary
from tests.fuzz.event_subjects import DECODED, SUBJECTS, subject_of
from tests.fuzz.subjects import golden_subjects, own_subjects

_PARTS = 20
"""In which subjects take turns."""


def main(arguments: list[str]) -> int:
    """Run a campaign."""
    if arguments[:1] == ["events"]:
        return _events(arguments[1:], "events", EventCampaign, tuple(SUBJECTS))
    if arguments[:1] == ["decoders"]:
        return _events(arguments[1:], "decoders", DecoderCampaign, DECODED)
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


def _events(
    given: list[str], name: str, campaign_of: type[EventCampaign], subjects: Sequence[str]
) -> int:
    """Over events of every format."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.fuzz {name}")
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--count", type=int, default=100_000, help="events in all")
    parser.add_argument("--only", default="", help="names of subjects, separated by commas")
    parser.add_argument("--faults", type=int, default=5, help="of a subject, after which it ends")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="at most")
    parser.add_argument("--json", type=pathlib.Path, help="file for the summary")
    arguments = parser.parse_args(given)
    names = arguments.only.split(",") if arguments.only else subjects
    logging.disable(logging.WARNING)  # of tables that are refused, as they should be
    end = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="lakeward-fuzz-") as folder:
        done = {
            name: campaign_of(subject_of(name, pathlib.Path(folder) / str(number)), arguments.seed)
            for number, name in enumerate(names)
        }
        for part, (name, campaign) in itertools.product(range(1, _PARTS + 1), done.items()):
            started, before = time.process_time(), len(campaign.faults)
            count = arguments.count * part // _PARTS // len(names)
            campaign.run(count, end - time.monotonic(), arguments.faults)
            for fault in campaign.faults[before:]:
                sys.stdout.write(f"{fault}\n")
            seconds = time.process_time() - started
            sys.stdout.write(
                f"{name:<30} {campaign.events:>9} events {seconds:7.1f} CPU s "
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
