# SPDX-License-Identifier: Apache-2.0
"""The configuration reference and its JSON Schema, from the declarations.

python -m ingest.config.settings_page [--write | --check]
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ingest.config.setting import Setting, declared, docs
from ingest.config.settings import (
    ROUTE_SETTINGS,
    SETTINGS,
    SOURCE_TYPE,
    TABLE_SETTINGS,
    Route,
    Settings,
    TableRule,
)
from storage.errors import InternalError

# Reference pages: their prose is written by hand, the tables of their sections are generated.


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """A page with other tables.

    Args:
        page: Markdown.
        tables: by heading of the section, whose first table each replaces.

    Raises:
        InternalError: there is no such section with a table.
    """
    for heading, table in tables.items():
        section = rf"(^## {re.escape(heading)}\n(?:(?!## |\|).*\n)*)(?:\|.*\n)+"
        new = table.replace("\\", r"\\")
        page, count = re.subn(section, rf"\g<1>{new}", page, flags=re.M)
        if not count:
            raise InternalError("the page has no such section with a table", section=heading)
    return page


def main(path: Path, tables: Mapping[str, str]) -> int:
    """Update a page; with `--check` verify that it is up to date. The exit code."""
    text = path.read_text(encoding="utf-8")
    page = with_tables(text, tables)
    if "--check" not in sys.argv[1:]:
        path.write_text(page, encoding="utf-8")
    elif page != text:
        sys.stderr.write(f"{path.name} is out of date: run `make docs`\n")
        return 1
    return 0


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


# The JSON Schema of configuration files, for completion and validation in editors.
#
# It accepts every spelling that `loading` accepts (nested sections, dotted keys, any mix of both),
# except values in upper case. It requires no key, because one file may be a part of a
# configuration.


def json_schema() -> dict[str, Any]:
    """Return the schema as plain values, of the draft with the best support in editors."""
    definitions: dict[str, Any] = {}
    texts = {SOURCE_TYPE.key: SOURCE_TYPE.doc, **docs(Settings)}
    document = _section("", {row.key: _value(row, texts) for row in SETTINGS}, definitions)
    for name, cls in (("tables", TableRule), ("route", Route)):
        rows, texts = declared(cls), docs(cls)
        values = {f"{name}.{row.key}": _value(row, texts) for row in rows}
        rule = _section(f"{name}.", values, definitions)
        rule["required"] = [row.key for row in rows if row.required]
        document["properties"][name] = {"type": ["array", "null"], "items": rule}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of a Lakeward pipeline",
        **document,
        "definitions": definitions,
    }


def _value(row: Setting, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of a setting; `null` means not set."""
    schema: dict[str, Any] = {
        "description": texts[row.key],
        "anyOf": [dict(row.kind.schema), {"type": "null"}],
    }
    return schema if row.default is None else {**schema, "default": row.default}


def _section(
    prefix: str, values: Mapping[str, dict[str, Any]], definitions: dict[str, Any]
) -> dict[str, Any]:
    """Return the schema of a section.

    Args:
        prefix: prefix of the keys, which ends with a dot.
        values: schemas by full key.
        definitions: output: values and inner sections.
    """
    properties: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    below = {key: value for key, value in values.items() if key.startswith(prefix)}
    for key, value in below.items():
        name = key[len(prefix) :]
        definitions[f"setting.{key}"] = value
        alternatives = properties.setdefault(name, {"anyOf": []})["anyOf"]
        alternatives.append({"$ref": f"#/definitions/setting.{key}"})
        entry = value["anyOf"][0].get("additionalProperties")
        if entry is not None:  # one entry of a map, as a dotted key
            patterns[f"^{re.escape(name)}\\."] = entry
        words = name.split(".")
        for head in (".".join(words[:end]) for end in range(1, len(words))):
            inner = f"section.{prefix}{head}"
            reference = {"$ref": f"#/definitions/{inner}"}
            if inner not in definitions:
                definitions[inner] = {}
                definitions[inner] = _section(f"{prefix}{head}.", below, definitions)
            # some keys are a setting and a section: `source.topics`
            alternatives = properties.setdefault(head, {"anyOf": []})["anyOf"]
            if reference not in alternatives:
                alternatives.append(reference)
    schema: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": {
            name: value if len(value["anyOf"]) > 1 else value["anyOf"][0]
            for name, value in properties.items()
        },
        "additionalProperties": False,
    }
    return {**schema, "patternProperties": patterns} if patterns else schema


if __name__ == "__main__":
    sys.exit(main(PAGE, tables()))
