# SPDX-License-Identifier: Apache-2.0
"""Schemas, partition values and bounds of a table as Iceberg writes them.

Source: Iceberg table specification, "Schemas and Data Types", appendices A (Avro), C (JSON) and D
(single-value serialization). Field ids are the table's own: its Parquet files carry them.
"""

import dataclasses
import decimal
import re
import struct
from collections.abc import Iterator
from typing import Any

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.format.row.row_codec import RowValue, Timestamp
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    key_id,
    type_name,
    value_id,
)

PARTITION_FIELD_ID_START = 1000

_PLAIN = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "int",
    TypeRoot.SMALLINT: "int",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.DATE: "date",
    TypeRoot.CHAR: "string",
    TypeRoot.VARCHAR: "string",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
}
_MICROS = 6
_AVRO = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
}
_STRUCTS = {
    "int": struct.Struct("<i"),
    "date": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "timestamp": struct.Struct("<q"),
    "timestamptz": struct.Struct("<q"),
}


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """The schema as a JSON object of Iceberg; its id is the table schema's.

    Raises:
        UnsupportedFeatureError: a column's type does not exist in Iceberg, or the field ids begin
            at 0, which Iceberg engines refuse; names the column.
    """
    for field in schema.fields:
        if field.id == 0:
            raise UnsupportedFeatureError(
                "field ids of this table begin at 0, which Iceberg engines refuse",
                hint="copy it into a table created with `metadata.iceberg.storage`",
                column=field.name,
            )
    return {
        "type": "struct",
        "schema-id": schema.id,
        "fields": [_field(field, field.name) for field in schema.fields],
    }


def _field(field: DataField, path: str) -> dict[str, Any]:
    column = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _type(field.type, field.id, 1, path),
    }
    return column if field.description is None else {**column, "doc": field.description}


def _type(type_: DataType, owner: int, depth: int, path: str) -> Any:
    match type_:
        case AtomicType():
            return _atomic(type_, path)
        case ArrayType(element=element):
            return {
                "type": "list",
                "element-id": value_id(owner, depth),
                "element": _type(element, owner, depth + 1, f"{path}.element"),
                "element-required": not element.nullable,
            }
        case MapType(key=key, value=value):
            return {
                "type": "map",
                "key-id": key_id(owner, depth),
                "key": _type(key, owner, depth + 1, f"{path}.key"),
                "value-id": value_id(owner, depth),
                "value": _type(value, owner, depth + 1, f"{path}.value"),
                "value-required": not value.nullable,
            }
        case MultisetType(element=element):
            return {
                "type": "map",
                "key-id": key_id(owner, depth),
                "key": _type(element, owner, depth + 1, f"{path}.key"),
                "value-id": value_id(owner, depth),
                "value": "int",
                "value-required": True,
            }
        case RowType(fields=fields):
            return {
                "type": "struct",
                "fields": [_field(field, f"{path}.{field.name}") for field in fields],
            }


def _atomic(type_: AtomicType, path: str) -> str:
    if type_.root in _PLAIN:
        return _PLAIN[type_.root]
    if type_.root is TypeRoot.DECIMAL:
        return f"decimal({type_.precision}, {type_.scale})"
    if type_.precision <= _MICROS and type_.root is TypeRoot.TIMESTAMP:
        return "timestamp"
    if type_.precision <= _MICROS and type_.root is TypeRoot.TIMESTAMP_LTZ:
        return "timestamptz"
    raise UnsupportedFeatureError(
        "Iceberg has no type for a column",
        hint="use TIMESTAMP(6) for times, or set `metadata.iceberg.storage` to disabled",
        column=path,
        type=type_name(type_),
    )


_PROMOTIONS = {("int", "long"), ("float", "double")}


def check_promotion(before: DataField, after: DataField) -> None:
    """Check that a column's change of type is one that Iceberg readers support.

    Raises:
        UnsupportedFeatureError: it is not; names the column.
    """
    for inner in _inside(before, after):
        check_promotion(*inner)
    old = _type(before.type, before.id, 1, before.name)
    new = _type(after.type, after.id, 1, after.name)
    if old == new or not isinstance(old, str) or (old, new) in _PROMOTIONS:
        return  # a nested type changes by the fields in it, each with its own id
    if old.startswith("decimal") and isinstance(new, str) and new.startswith("decimal"):
        assert isinstance(before.type, AtomicType)
        assert isinstance(after.type, AtomicType)
        grows = before.type.precision <= after.type.precision
        if grows and before.type.scale == after.type.scale:
            return
    raise UnsupportedFeatureError(
        "Iceberg readers cannot read old files after this type change",
        hint="add a column of the new type, or set `metadata.iceberg.storage` to disabled",
        column=after.name,
        type=type_name(before.type),
        wanted=type_name(after.type),
    )


def _inside(before: DataField, after: DataField) -> Iterator[tuple[DataField, DataField]]:
    """The fields, elements and values of a nested column before and after a change."""
    match before.type, after.type:
        case RowType(fields=old), RowType(fields=new):
            by_id = {field.id: field for field in old}
            for field in new:
                if field.id in by_id:
                    child = dataclasses.replace(field, name=f"{after.name}.{field.name}")
                    yield by_id[field.id], child
        case (ArrayType(element=first), ArrayType(element=second)) | (
            MapType(value=first),
            MapType(value=second),
        ):
            yield dataclasses.replace(before, type=first), dataclasses.replace(after, type=second)
        case _:
            return


def name_mapping(form: Any) -> list[dict[str, Any]]:
    """Field ids of an Iceberg type by name, for files without ids, which pypaimon writes."""
    kind = str(form["type"]) if isinstance(form, dict) else ""
    if kind == "struct":
        members = [(field["id"], field["name"], field["type"]) for field in form["fields"]]
    else:
        names = {"list": ("element",), "map": ("key", "value")}.get(kind, ())
        members = [(form[f"{name}-id"], name, form[name]) for name in names]
    return [
        {"field-id": number, "names": [name], "fields": name_mapping(type_)}
        for number, name, type_ in members
    ]


def partition_spec(schema: TableSchema) -> dict[str, Any]:
    """The identity partition spec of the partition keys."""
    fields = [
        {
            "name": field.name,
            "transform": "identity",
            "source-id": field.id,
            "field-id": PARTITION_FIELD_ID_START + at,
        }
        for at, field in enumerate(schema.partition_fields)
    ]
    return {"spec-id": 0, "fields": fields}


def avro_partition(schema: TableSchema) -> list[dict[str, Any]]:
    """Avro fields of the partition tuple in a manifest entry."""
    return [
        {
            "name": avro_name(field.name),
            "type": ["null", _avro(field)],
            "default": None,
            "field-id": PARTITION_FIELD_ID_START + at,
        }
        for at, field in enumerate(schema.partition_fields)
    ]


def avro_name(name: str) -> str:
    """A name that Avro allows, as Iceberg's Java code makes it; readers go by field ids."""
    return re.sub(
        "^[^A-Za-z_]|[^A-Za-z0-9_]",
        lambda found: "_" + (found[0] if "0" <= found[0] <= "9" else f"x{ord(found[0]):X}"),
        name,
    )


def _avro(field: DataField) -> Any:
    text = _type(field.type, field.id, 1, field.name)
    if text in _AVRO:
        return _AVRO[text]
    assert isinstance(field.type, AtomicType)
    precision = field.type.precision
    size = next(n for n in range(1, 17) if 10**precision <= 1 << (8 * n - 1))
    return {
        "type": "fixed",
        "name": f"decimal_{precision}_{field.type.scale}_{field.id}",
        "size": size,
        "logicalType": "decimal",
        "precision": precision,
        "scale": field.type.scale,
    }


def partition_value(value: RowValue) -> Any:
    """A partition value as fastavro takes it."""
    return _micros(value) if isinstance(value, Timestamp) else value


def bound(value: RowValue, field: DataField) -> bytes | None:
    """A lower or upper bound of a column in Iceberg's form; None: no bound is available."""
    if value is None or not isinstance(field.type, AtomicType):
        return None
    match value:
        case bool():
            return bytes([value])
        case bytes():
            return value
        case str():
            return value.encode()
        case decimal.Decimal():
            scale = decimal.Context(prec=60)
            number = int(value.scaleb(field.type.scale, scale))
            return number.to_bytes(
                (number + (number < 0)).bit_length() // 8 + 1, "big", signed=True
            )
        case float():
            return None  # bounds leave NaN out, and whether a file has any is not known
        case Timestamp():
            return _STRUCTS["timestamp"].pack(_micros(value))
        case _:
            pass
    packed = _STRUCTS.get(_PLAIN[field.type.root])
    return None if packed is None else packed.pack(value)


def _micros(value: Timestamp) -> int:
    return value.millis * 1000 + value.nanos_of_milli // 1000
