# SPDX-License-Identifier: Apache-2.0
"""What a parsed Avro schema says of one value. Source: Avro specification, "Complex Types"."""

from typing import Any

from storage.errors import UnsupportedFeatureError

__all__ = [
    "INTEGERS",
    "SIZED",
    "WIDTHS",
    "kind_of",
    "logical_of",
    "nullable",
    "resolved",
    "width_of",
]

INTEGERS = ("int", "long")
SIZED = ("bytes", "string")
WIDTHS = {"boolean": 1, "float": 4, "double": 8}
"""Bytes of kinds that always take the same."""


def resolved(schema: Any, named: dict[str, Any], namespace: str) -> Any:
    """The schema with names of earlier records replaced by what they name.

    `named` gets what is found, by name.
    """
    if isinstance(schema, list):
        return [resolved(part, named, namespace) for part in schema]
    if isinstance(schema, str):
        return named.get(schema, named.get(f"{namespace}.{schema}", schema))
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return resolved(kind, named, namespace)
    found = dict(schema)
    if kind in ("record", "fixed", "enum"):
        namespace = schema.get("namespace", namespace)
        named[schema["name"]] = named[f"{namespace}.{schema['name']}"] = found
    if kind == "record":
        found["fields"] = [
            {"name": f["name"], "type": resolved(f["type"], named, namespace)}
            for f in schema["fields"]
        ]
    elif kind == "array":
        found["items"] = resolved(schema["items"], named, namespace)
    elif kind == "map":
        found["values"] = resolved(schema["values"], named, namespace)
    return found


def kind_of(schema: Any) -> str:
    """Such as `long`, `record` or `union`."""
    if isinstance(schema, list):
        return "union"
    return str(schema if isinstance(schema, str) else schema["type"])


def nullable(schema: Any) -> tuple[Any, int | None]:
    """What is in a union with null, and the index of null; None when it is no union.

    Raises:
        UnsupportedFeatureError: any other union.
    """
    if not isinstance(schema, list):
        return schema, None
    rest = [part for part in schema if part != "null"]
    if len(rest) != 1 or len(schema) != 2:
        raise UnsupportedFeatureError("an Avro file has a union other than with null")
    return rest[0], schema.index("null")


def width_of(schema: Any) -> int:
    """Bytes of a value of a kind in `WIDTHS`, or of a fixed; 0 of any other."""
    kind = kind_of(schema)
    return int(schema["size"]) if kind == "fixed" else WIDTHS.get(kind, 0)


def logical_of(schema: Any) -> str:
    """The logical type, or ""."""
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""
