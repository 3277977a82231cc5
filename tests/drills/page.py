# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.drills.page --write`: docs/operations/drills.md from the rows of the catalogue.

Without `--write` it says whether the page is up to date.
"""

import argparse
import sys
from pathlib import Path

from tests.drills.catalogue import DRILLS, Drill, Shown

PAGE = Path(__file__).resolve().parents[2] / "docs/operations/drills.md"

_HEAD = """# Failure drills

The behaviour of Lakeward when its environment fails, with the symptoms. Every row is an automated
test (`tests/drills`): a daemon reads from a real Kafka broker and the fault is injected. Afterwards
the tables must equal the model row by row, the replayed changelog must give the same rows, the
chain of snapshots must have no gap and no missing file, no batch may have been applied twice, and
the counters must agree with the topics. Metric, log line and readiness of the row are checked
during the fault.

    make drills                               # all, one by one; summary in build/drills.json
    .venv/bin/python -m pytest tests/drills -k broker_restarts

Requirements besides the development environment: `unshare` and `nsenter` of util-linux for full
disks, and a C compiler (`cc`) for the clock; drills without them are skipped.

This page is generated from `tests/drills/catalogue.py` by `make docs`.
"""

_HOWS = {
    "rises": "rises",
    "falls": "falls",
    "is set": "is not 0",
}


def rendered() -> str:
    """The whole page."""
    lines = [_HEAD, "| drill | fault | what Lakeward does | metric | alert | log | `/readyz` |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [_row(drill) for drill in DRILLS.values()]
    return "\n".join(lines) + "\n"


def _row(drill: Drill) -> str:
    metrics = "; ".join(map(_metric, drill.shown)) or "–"
    alerts = ", ".join(f"[{name}](runbook.md#{name.lower()})" for name in drill.alerts) or "–"
    log = ", ".join(f"`{event}`" for event in drill.events)
    name = drill.name.replace("_", " ")
    cells = (name, drill.fault, drill.outcome, metrics, alerts, log, _ready(drill))
    return f"| {' | '.join(cells)} |"


def _metric(shown: Shown) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in shown.labels)
    return (
        f"`lakeward_{shown.metric}{{{labels}}}` {_HOWS[shown.how]}"
        if labels
        else (f"`lakeward_{shown.metric}` {_HOWS[shown.how]}")
    )


def _ready(drill: Drill) -> str:
    if drill.unready is None:
        codes = ", ".join(map(str, drill.exits))
        return f"the process has exited, exit code {codes}" if codes else "the process is gone"
    return f"503: “{drill.unready}”" if drill.unready else "200"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    text = rendered()
    if parser.parse_args().write:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    print(f"{PAGE.name} is not up to date: make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
