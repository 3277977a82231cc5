# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of configuration files, for completion and validation in editors.

It accepts every spelling that `loading` accepts (nested sections, dotted keys, any mix of both),
except values in upper case. It requires no key, because one file may be a part of a configuration.
"""

import re
from collections.abc import Mapping
from typing import Any

from ingest.config.rule_settings import Route, TableRule
from ingest.config.setting import Setting, declared, docs
from ingest.config.settings import SETTINGS, SOURCE_TYPE, Settings


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
