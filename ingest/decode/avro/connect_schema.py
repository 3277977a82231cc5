# SPDX-License-Identifier: Apache-2.0
"""Avro schemas as Kafka Connect's converters write them: structure and semantics.

A schema becomes a *tree* without names (`storage.format.avro.schema` reads it), and a Connect
schema as in a JSON message, so that the handling of Debezium's types applies to Avro too. What
Connect has and Avro lacks is in the properties `connect.name`, `connect.parameters` and
`connect.type`.

Rulings:
- `connect.name` takes precedence; a bare logical type is what Connect reads it as, and its
  microsecond forms are Debezium's types.
- Precision 64 of a decimal is what converters write if it is unknown: it means unknown unless
  `connect.parameters` has it too.
- A union of several types has no column type: it is stored as JSON text, `{"type": value}`.

Source: Avro specification, "Names"; CDC.md §1.6, §1.7.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ingest.decode.events import BlockField
from storage.format.avro.schema import kind_of

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_UNKNOWN_PRECISION = 64
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LITERALS = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "fixed": "bytes",
    "enum": "string",
    "record": "struct",
    "null": "string",
}
_LOGICAL = {
    ("date", "int"): "org.apache.kafka.connect.data.Date",
    ("time-millis", "int"): "org.apache.kafka.connect.data.Time",
    ("timestamp-millis", "long"): "org.apache.kafka.connect.data.Timestamp",
    ("local-timestamp-millis", "long"): "org.apache.kafka.connect.data.Timestamp",
    ("time-micros", "long"): "io.debezium.time.MicroTime",
    ("timestamp-micros", "long"): "io.debezium.time.MicroTimestamp",
    ("local-timestamp-micros", "long"): "io.debezium.time.MicroTimestamp",
    ("timestamp-nanos", "long"): "io.debezium.time.NanoTimestamp",
    ("local-timestamp-nanos", "long"): "io.debezium.time.NanoTimestamp",
    ("decimal", "bytes"): _DECIMAL,
    ("decimal", "fixed"): _DECIMAL,
}


class SchemaTextError(ValueError):
    """The text is not a decodable Avro schema; the message has the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class AvroSchema:
    """A writer schema.

    Attributes:
        tree: with every name replaced by what it names.
        block: the same as a Connect schema [JSON].
    """

    tree: Any
    block: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """Trees of the top record's fields; empty if it is not a record."""
        return {f["name"]: f["type"] for f in self.tree["fields"]} if self._is_record else {}

    @property
    def _is_record(self) -> bool:
        return kind_of(self.tree) == "record"


def branches(tree: Any) -> list[Any]:
    """The types of a value other than null."""
    parts = tree if isinstance(tree, list) else [tree]
    return [part for part in parts if part != "null"]


def parse_schema(text: str, references: Iterable[str] = ()) -> AvroSchema:
    """Parse a schema.

    Args:
        text: as registered.
        references: texts of the schemas that it references, each after its own references.

    Raises:
        SchemaTextError: it is not an Avro schema, or recursive.
    """
    names = _Names()
    try:
        for reference in references:
            names.tree(_loaded(reference), "")
        tree = names.tree(_loaded(text), "")
        block = msgspec.json.encode(_connect("", tree), order=None)
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise SchemaTextError(f"{type(error).__name__}: {error}") from None
    return AvroSchema(tree, block)


def _loaded(text: str) -> Any:
    """Parsed JSON; a registry may give the name of a primitive type without quotes."""
    return text if text in _PRIMITIVES else json.loads(text)


class _Names:
    """Replaces names while it walks a schema."""

    def __init__(self) -> None:
        self._named_types: dict[str, Any] = {}
        self._open: set[str] = set()

    def tree(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, list):
            return [self.tree(part, namespace) for part in schema]
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVES else self._named_type(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.tree(kind, namespace)
        if kind in _NAMED:
            return self._define(schema, kind, namespace)
        if kind == "array":
            return {**schema, "items": self.tree(schema["items"], namespace)}
        if kind == "map":
            return {**schema, "values": self.tree(schema["values"], namespace)}
        if kind == "null":
            return kind
        return dict(schema) if kind in _PRIMITIVES else self._named_type(kind, namespace)

    def _define(self, schema: Mapping[str, Any], kind: str, namespace: str) -> Any:
        full = schema["name"]
        if "." not in full:
            space = schema.get("namespace", namespace)
            full = f"{space}.{full}" if space else full
        if full in self._named_types or full in self._open:
            raise SchemaTextError(f"{full} is defined twice")
        inner = full.rpartition(".")[0]
        definition = {**schema, "type": "record" if kind == "error" else kind, "name": full}
        self._open.add(full)
        if definition["type"] == "record":
            definition["fields"] = [
                {**field, "type": self.tree(field["type"], inner)} for field in schema["fields"]
            ]
        elif kind == "fixed":
            definition["size"] = int(schema["size"])
        else:
            definition["symbols"] = [str(symbol) for symbol in schema["symbols"]]
        self._open.remove(full)
        self._named_types[full] = definition
        return definition

    def _named_type(self, name: str, namespace: str) -> Any:
        for full in (f"{namespace}.{name}", name):
            if full in self._open:
                raise SchemaTextError(f"{full} contains itself")
            if full in self._named_types:
                return self._named_types[full]
        raise SchemaTextError(f"unknown type name {name}")


def _connect(name: str, tree: Any) -> BlockField:
    """The Connect schema of a value."""
    parts = branches(tree)
    optional = isinstance(tree, list) and "null" in tree
    if len(parts) != 1:
        return BlockField("union" if parts else "string", field=name, optional=True)
    part = parts[0]
    kind = kind_of(part)
    properties: Mapping[str, Any] = part if isinstance(part, dict) else {}
    return BlockField(
        _literal(kind, properties),
        field=name,
        name=_semantic(kind, properties),
        optional=optional,
        parameters=_parameters(properties),
        items=_connect("", part["items"]) if kind == "array" else None,
        values=_connect("", part["values"]) if kind == "map" else None,
        fields=tuple(_connect(f["name"], f["type"]) for f in part["fields"])
        if kind == "record"
        else (),
    )


def _literal(kind: str, properties: Mapping[str, Any]) -> str:
    narrow = properties.get("connect.type")
    if kind == "int" and narrow in ("int8", "int16"):
        return str(narrow)
    return _LITERALS.get(kind, kind)


def _semantic(kind: str, properties: Mapping[str, Any]) -> str | None:
    name = properties.get("connect.name")
    if name is None:
        logical = str(properties.get("logicalType", ""))
        name = _LOGICAL.get((logical, kind)) or (properties["name"] if kind == "record" else None)
    return None if name is None else str(name)


def _parameters(properties: Mapping[str, Any]) -> dict[str, str] | None:
    parameters = properties.get("connect.parameters") or {}
    result = {str(name): str(value) for name, value in parameters.items()}
    if properties.get("logicalType") == "decimal" or properties.get("connect.name") == _DECIMAL:
        if "scale" in properties:
            result.setdefault("scale", str(properties["scale"]))
        if properties.get("precision") not in (None, _UNKNOWN_PRECISION):
            result.setdefault("connect.decimal.precision", str(properties["precision"]))
    return result or None
