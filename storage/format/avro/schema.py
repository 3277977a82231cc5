# SPDX-License-Identifier: Apache-2.0
"""The exact Avro schema Paimon derives from a row type, and how a parsed one is read.

Source: FORMAT.md §4.1, §7.5; Avro specification, "Complex Types".

Readers find columns by name; of the schema of a file of another writer only the types
matter, not the names of records.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from storage.errors import UnsupportedFeatureError
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    type_name,
)

MULTISET_COUNT = AtomicType(TypeRoot.INT)
"""Type of a multiset's counts in Avro: nullable, unlike in the other formats."""

_NAMESPACE = "org.apache.paimon.avro.generated"
_MAX_TIME, _MAX_TIMESTAMP, _MAX_MILLIS = 3, 6, 3
_PLAIN = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "bytes",
    TypeRoot.VARBINARY: "bytes",
}
_TIMESTAMPS = {
    # the names are swapped, as in Java; both hold plain epoch numbers
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "local-timestamp",
}


def schema_text(fields: Sequence[DataField]) -> str:
    """The schema of a file with these columns, as written to its header.

    Raises:
        UnsupportedFeatureError: Avro files have no such type.
    """
    return record_text(_fields(fields, "record"))


def record_text(fields: Sequence[Mapping[str, Any]]) -> str:
    """The text of a schema whose top record has these Avro fields."""
    schema = {"type": "record", "name": "record", "namespace": _NAMESPACE, "fields": list(fields)}
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def required_field(name: str, schema: Any) -> dict[str, Any]:
    """An Avro field that is never null."""
    return {"name": name, "type": schema}


def optional_field(name: str, schema: Any) -> dict[str, Any]:
    """A nullable Avro field; null where it is absent."""
    return {"name": name, "type": ["null", schema], "default": None}


def is_string_map(key: DataType) -> bool:
    """Whether a map with this key is an Avro map; any other is an array of records."""
    return isinstance(key, AtomicType) and key.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


def _fields(fields: Sequence[DataField], record: str) -> list[dict[str, Any]]:
    return [_field(field.name, field.type, f"{record}_{field.name}") for field in fields]


def _field(name: str, type_: DataType, path: str) -> dict[str, Any]:
    schema = _not_null(type_, path)
    return optional_field(name, schema) if type_.nullable else required_field(name, schema)


def _schema(type_: DataType, path: str) -> Any:
    """Schema of a type; `path` names a record if it is one."""
    schema = _not_null(type_, path)
    return ["null", schema] if type_.nullable else schema


def _not_null(type_: DataType, path: str) -> Any:
    match type_:
        case AtomicType():
            return _atomic(type_)
        case ArrayType(element=element):
            return {"type": "array", "items": _schema(element, path)}
        case MultisetType(element=key):
            return _map(key, MULTISET_COUNT, path)
        case MapType(key=key, value=value):
            return _map(key, value, path)
        case RowType(fields=fields):
            return {"type": "record", "name": path, "fields": _fields(fields, path)}


def _map(key: DataType, value: DataType, path: str) -> Any:
    if is_string_map(key):
        return {"type": "map", "values": _schema(value, path)}
    entry = {
        "type": "record",
        "name": path,
        "fields": [
            {"name": "key", "type": _schema(key, f"{path}_key")},
            _field("value", value, f"{path}_value"),
        ],
    }
    return {"type": "array", "items": entry, "logicalType": "map"}


def _atomic(type_: AtomicType) -> Any:
    root = type_.root
    if root in _PLAIN:
        return _PLAIN[root]
    if root is TypeRoot.DECIMAL:
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": type_.precision,
            "scale": type_.scale,
        }
    if root is TypeRoot.DATE:
        return {"type": "int", "logicalType": "date"}
    limit = _MAX_TIME if root is TypeRoot.TIME else _MAX_TIMESTAMP
    if type_.precision > limit:
        raise UnsupportedFeatureError(
            "the precision is too high for an Avro file",
            hint=f"use a precision of at most {limit}, or set `file.format` to parquet",
            type=type_name(type_),
        )
    if root is TypeRoot.TIME:
        return {"type": "int", "logicalType": "time-millis"}
    unit = "millis" if type_.precision <= _MAX_MILLIS else "micros"
    return {"type": "long", "logicalType": f"{_TIMESTAMPS[root]}-{unit}"}


INTEGERS = ("int", "long")
SIZED = ("bytes", "string")
WIDTHS = {"boolean": 1, "float": 4, "double": 8}
"""Bytes of kinds that always take the same."""


def resolved(schema: Any, named_types: dict[str, Any], namespace: str) -> Any:
    """The schema with names of earlier records replaced by what they name.

    Named schemas are added to `named_types`.
    """
    if isinstance(schema, list):
        return [resolved(part, named_types, namespace) for part in schema]
    if isinstance(schema, str):
        return named_types.get(schema, named_types.get(f"{namespace}.{schema}", schema))
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return resolved(kind, named_types, namespace)
    result = dict(schema)
    if kind in ("record", "fixed", "enum"):
        namespace = schema.get("namespace", namespace)
        named_types[schema["name"]] = named_types[f"{namespace}.{schema['name']}"] = result
    if kind == "record":
        result["fields"] = [
            {"name": f["name"], "type": resolved(f["type"], named_types, namespace)}
            for f in schema["fields"]
        ]
    elif kind == "array":
        result["items"] = resolved(schema["items"], named_types, namespace)
    elif kind == "map":
        result["values"] = resolved(schema["values"], named_types, namespace)
    return result


def kind_of(schema: Any) -> str:
    """The kind of a schema, such as `long`, `record` or `union`."""
    if isinstance(schema, list):
        return "union"
    return str(schema if isinstance(schema, str) else schema["type"])


def nullable(schema: Any) -> tuple[Any, int | None]:
    """The other member of a union with null, and the index of null; None when it is no union.

    Raises:
        UnsupportedFeatureError: any other union.
    """
    if not isinstance(schema, list):
        return schema, None
    rest = [part for part in schema if part != "null"]
    if len(rest) != 1 or len(schema) != 2:
        raise UnsupportedFeatureError("an Avro file has a union that is not type and null")
    return rest[0], schema.index("null")


def width_of(schema: Any) -> int:
    """Bytes of a value of a kind in `WIDTHS`, or of a fixed; 0 of any other."""
    kind = kind_of(schema)
    return int(schema["size"]) if kind == "fixed" else WIDTHS.get(kind, 0)


def logical_of(schema: Any) -> str:
    """The logical type, or ""."""
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""


# Numbers of variable length: seven bits a byte, lowest first, as in Avro, Thrift and Protobuf.
#
# Signed numbers are zig-zag encoded: 0, -1, 1, -2 … as 0, 1, 2, 3 …


_LONGEST = 10
"""Bytes of the largest number of 64 bits."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the number at a position that is not negative; gives it and where it ends.

    Raises:
        IndexError: the data ends before it.
        ValueError: it has more than 64 bits.
    """
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift == 7 * _LONGEST and byte > 1:
            raise ValueError("a number has more than 64 bits")
        if byte < 0x80:
            return result, position


def read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Decode the signed number at a position; the rest as `read_varint`."""
    value, position = read_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """Encode a signed number of 64 bits."""
    return varint((value << 1) ^ (value >> 63))
