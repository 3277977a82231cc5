# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a configuration file, by which editors complete and check it.

It accepts every spelling that `loading` accepts (nested sections, dotted keys, any mix of both) but
words in capitals, and says nothing of what is required: one file may be a part of a configuration.
"""

import re
from collections.abc import Iterable
from typing import Any

from ingest.config.setting import Setting
from ingest.config.settings import ROUTE_SETTINGS, SETTINGS, TABLE_SETTINGS

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """The whole schema, as plain values."""
    sections: dict[str, Any] = {}
    document = _section("", SETTINGS, sections)
    for name, rows in (("tables", TABLE_SETTINGS), ("route", ROUTE_SETTINGS)):
        rule = _section(f"{name}[].", [_renamed(row, f"{name}[].") for row in rows], sections)
        rule["required"] = [row.key for row in rows if row.required]
        document["properties"][name] = {"type": ["array", "null"], "items": rule}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a Lakeward pipeline",
        **document,
        "$defs": sections,
    }


def _renamed(row: Setting, prefix: str) -> Setting:
    """The row of a rule with the key that no other list's or section's row has."""
    return Setting(key=prefix + row.key, kind=row.kind, doc=row.doc, default=row.default)


def _section(prefix: str, rows: Iterable[Setting], sections: dict[str, Any]) -> dict[str, Any]:
    """What may stand below a prefix, which ends with a dot; inner sections go to `sections`."""
    below = [row for row in rows if row.key.startswith(prefix)]
    properties = {row.key[len(prefix) :]: _value(row) for row in below}
    patterns: dict[str, Any] = {}
    for row in below:
        name = row.key[len(prefix) :]
        if row.kind.mapping:  # one entry of the map, as a dotted key
            patterns[f"^{re.escape(name)}\\."] = row.kind.schema["additionalProperties"]
        words = name.split(".")
        for end in range(1, len(words)):
            head = ".".join(words[:end])
            inner = f"{prefix}{head}"
            reference = {"$ref": f"#/$defs/{inner}"}
            if inner not in sections:
                sections[inner] = {}
                sections[inner] = _section(f"{inner}.", below, sections)
            known = properties.setdefault(head, reference)
            if "$ref" not in known and reference not in known["anyOf"]:
                known["anyOf"].append(reference)  # a setting and a section: `source.topics`
    schema: dict[str, Any] = {
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "patternProperties": patterns} if patterns else schema


def _value(row: Setting) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "description": row.doc,
        "anyOf": [dict(row.kind.schema), {"type": "null"}],
    }
    return schema if row.default is None else {**schema, "default": row.default}
