# SPDX-License-Identifier: Apache-2.0
"""Types of columns as the Hive metastore writes them.

Source: Paimon's `HiveTypeUtils`. Hive knows neither times of day nor the precision of timestamps,
nor columns that are not null: a table's own schema file keeps those.
"""

import re

from storage.errors import UnsupportedFeatureError
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

__all__ = ["from_hive", "to_hive"]

_LONGEST_CHAR = 255
_LONGEST_VARCHAR = 65_535

_NAMES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamp with local time zone",
}

_ATOMS = {
    name: AtomicType(root)
    for root, name in _NAMES.items()
    if root not in (TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.TIME)
} | {
    "string": AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    "binary": AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    "timestamp": AtomicType(TypeRoot.TIMESTAMP, precision=6),
    "timestamp with local time zone": AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=6),
    "decimal": AtomicType(TypeRoot.DECIMAL, precision=10),
}

_SIZED = re.compile(r"(decimal|char|varchar)\((\d+)(?:,(\d+))?\)")


def to_hive(data_type: DataType) -> str:
    """Hive's text for a type."""
    match data_type:
        case ArrayType(element):
            return f"array<{to_hive(element)}>"
        case MultisetType(element):
            return f"map<{to_hive(element)},int>"
        case MapType(key, value):
            return f"map<{to_hive(key)},{to_hive(value)}>"
        case RowType(fields):
            return f"struct<{','.join(f'{each.name}:{to_hive(each.type)}' for each in fields)}>"
        case AtomicType(TypeRoot.DECIMAL):
            return f"decimal({data_type.precision},{data_type.scale})"
        case AtomicType(TypeRoot.CHAR) if data_type.length <= _LONGEST_CHAR:
            return f"char({data_type.length})"
        case AtomicType(TypeRoot.VARCHAR) if data_type.length <= _LONGEST_VARCHAR:
            return f"varchar({data_type.length})"
        case AtomicType(TypeRoot.CHAR | TypeRoot.VARCHAR):
            return "string"
        case AtomicType(root):
            return _NAMES[root]


def from_hive(text: str) -> DataType:
    """The type of Hive's text.

    Raises:
        UnsupportedFeatureError: it has no counterpart.
    """
    text = text.strip()
    outer, less, inner = text.partition("<")
    if less and text.endswith(">"):
        parts, kind = _split(inner[:-1]), outer.strip().lower()
        if kind == "array" and len(parts) == 1:
            return ArrayType(from_hive(parts[0]))
        if kind == "map" and len(parts) == 2:
            return MapType(from_hive(parts[0]), from_hive(parts[1]))
        if kind == "struct":
            pairs = [part.partition(":") for part in parts]
            return RowType(
                tuple(
                    DataField(id=number, name=name.strip(), type=from_hive(value))
                    for number, (name, _, value) in enumerate(pairs)
                )
            )
    name = text.lower()
    if name in _ATOMS:
        return _ATOMS[name]
    if sized := _SIZED.fullmatch(name.replace(" ", "")):
        size = int(sized[2])
        if sized[1] == "decimal":
            return AtomicType(TypeRoot.DECIMAL, precision=size, scale=int(sized[3] or 0))
        return AtomicType(TypeRoot(sized[1].upper()), length=size)
    raise UnsupportedFeatureError("a type of Hive has no counterpart here", type=text)


def _split(text: str) -> list[str]:
    """Parts between the commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]
