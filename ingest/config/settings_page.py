# SPDX-License-Identifier: Apache-2.0
"""The tables of the configuration reference, generated from the declarations.

python -m ingest.config.settings_page [--write | --check]
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ingest.config import generated_tables
from ingest.config.rule_settings import Route, TableRule
from ingest.config.setting import Setting, docs
from ingest.config.settings import ROUTE_SETTINGS, SETTINGS, SOURCE_TYPE, TABLE_SETTINGS, Settings

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/configuration.md"

SECTIONS = (
    *("pipeline", "source", "sink", "bad.records", "maintenance", "metrics", "control", "alerts"),
    *("log", "spark"),
)


def tables() -> dict[str, str]:
    """Return the tables by section of the page."""
    texts = {SOURCE_TYPE.key: SOURCE_TYPE.doc, **docs(Settings)}
    by_section = {
        name: _table((row for row in SETTINGS if row.key.startswith(name + ".")), texts)
        for name in SECTIONS
    }
    by_section["route"] = _table(ROUTE_SETTINGS, docs(Route))
    by_section["tables"] = _table(TABLE_SETTINGS, docs(TableRule))
    return by_section


def _table(rows: Iterable[Setting], texts: Mapping[str, str]) -> str:
    head = "| key | type | default | meaning |\n|---|---|---|---|\n"
    return head + "".join(_row(row, texts[row.key]) for row in rows)


def _row(row: Setting, text: str) -> str:
    default = "**required**" if row.required else _default(row.default)
    kind = f"{row.kind.name} [{row.unit}]" if row.unit else row.kind.name
    return f"| `{row.key}` | {kind} | {default} | {text} |\n"


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"`{name}: {item}`" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.exit(generated_tables.main(PAGE, tables()))
