# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a configuration file, by which editors complete and check it.

It accepts every spelling that `loading` accepts (nested sections, dotted keys, any mix of both) but
words in capitals, and says nothing of what is required: one file may be a part of a configuration.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ingest.config.rule_settings import Route, TableRule
from ingest.config.setting import Setting, declared, docs
from ingest.config.settings import SETTINGS, SOURCE_TYPE, Settings

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """The whole schema, as plain values."""
    sections: dict[str, Any] = {}
    texts = {SOURCE_TYPE.key: SOURCE_TYPE.doc, **docs(Settings)}
    document = _section("", [_documented(row, texts) for row in SETTINGS], sections)
    for name, cls in (("tables", TableRule), ("route", Route)):
        rows, texts = declared(cls), docs(cls)
        below = [_documented(row, texts, prefix=f"{name}[].") for row in rows]
        rule = _section(f"{name}[].", below, sections)
        rule["required"] = [row.key for row in rows if row.required]
        document["properties"][name] = {"type": ["array", "null"], "items": rule}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a Lakeward pipeline",
        **document,
        "$defs": sections,
    }


def _documented(row: Setting, texts: Mapping[str, str], prefix: str = "") -> Setting:
    """A row with its text; prefixes keep the keys of rules apart from others."""
    return dataclasses.replace(row, key=prefix + row.key, doc=texts[row.key])


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
