# SPDX-License-Identifier: Apache-2.0
"""Checks values against the part of JSON Schema that the configuration's schema uses."""

import re

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KEYWORDS = {
    "definitions", "$ref", "$schema", "additionalProperties", "anyOf", "default", "description",
    "enum", "items", "maximum", "minimum", "pattern", "patternProperties", "properties", "required",
    "title", "type",
}  # fmt: skip


def faults(value, schema, root, where="$"):
    """Why a value is not as a schema has it, one text each; none when it is."""
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    if "$ref" in schema:
        return faults(
            value, root["definitions"][schema["$ref"].removeprefix("#/definitions/")], root, where
        )
    if "anyOf" in schema:
        found = [faults(value, each, root, where) for each in schema["anyOf"]]
        inner = [each for each in found if each and not each[0].startswith(f"{where}: ")]
        return [] if [] in found else (inner or found)[0]
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        return [f"{where}: {value!r} is not {' or '.join(types)}"]
    if "enum" in schema and not any(value is each or value == each for each in schema["enum"]):
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        return [f"{where}: {value!r} does not match {schema['pattern']}"]
    if _is(value, "number"):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            return [f"{where}: {value!r} is out of bounds"]
    if isinstance(value, list):
        items = schema.get("items", {})
        return [
            fault
            for at, item in enumerate(value)
            for fault in faults(item, items, root, f"{where}[{at}]")
        ]
    return _of_members(value, schema, root, where) if isinstance(value, dict) else []


def _is(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def _of_members(value, schema, root, where):
    found = [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
    for key, item in value.items():
        name = str(key)
        if name in schema.get("properties", {}):
            inner = schema["properties"][name]
        else:
            patterns = schema.get("patternProperties", {})
            fitting = [each for pattern, each in patterns.items() if re.search(pattern, name)]
            inner = fitting[0] if fitting else schema.get("additionalProperties", {})
        if inner is False:
            found.append(f"{where}.{name}: unknown")
        else:
            found += faults(item, inner, root, f"{where}.{name}")
    return found
