# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards: `python -m deploy.write_dashboards --write`; `--check` compares only."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from deploy.dashboard_overview import OVERVIEW
from deploy.dashboard_runtime import RUNTIME
from deploy.dashboard_tables import TABLES

DIRECTORY = Path(__file__).parent / "dashboards"

DASHBOARDS: dict[str, dict[str, Any]] = {
    "overview": OVERVIEW,
    "tables": TABLES,
    "runtime": RUNTIME,
}
"""By file name."""


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    wrong = []
    for name, document in DASHBOARDS.items():
        path, text = DIRECTORY / f"{name}.json", _text(document)
        if arguments.write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.append(path.name)
    if wrong:
        sys.stderr.write(f"{', '.join(wrong)} not as generated: run `make docs`\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
