# SPDX-License-Identifier: Apache-2.0
"""Column types of Hive, which a Hive Metastore keeps beside the schema files.

Source: Paimon's `HiveTypeUtils`. Hive has no times of day and fewer precisions: those columns show
as texts and timestamps there; what Lakeward reads are the schema files.
"""

import re

from storage.errors import UnsupportedFeatureError
from storage.format.types.type_text import parse_type
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

__all__ = ["hive_type", "paimon_type"]

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
    TypeRoot.TIMESTAMP_LTZ: "timestamp",
}
_LONGEST = {TypeRoot.CHAR: 255, TypeRoot.VARCHAR: 65535}

_TOKEN = re.compile(r"[A-Za-z_][\w ]*(?:\([\d, ]*\))?|[<>,:]|\S")
_SIMPLE = {"string": "STRING", "binary": "BYTES", "timestamp": "TIMESTAMP(6)"}
_ZONED = re.compile(r"timestamp with local time zone.*")


def hive_type(type_: DataType) -> str:
    """The type in which Hive shows a column."""
    match type_:
        case ArrayType():
            return f"array<{hive_type(type_.element)}>"
        case MultisetType():
            return f"map<{hive_type(type_.element)},int>"
        case MapType():
            return f"map<{hive_type(type_.key)},{hive_type(type_.value)}>"
        case RowType():
            inner = ",".join(f"{field.name}:{hive_type(field.type)}" for field in type_.fields)
            return f"struct<{inner}>"
        case AtomicType(root=TypeRoot.DECIMAL):
            return f"decimal({type_.precision},{type_.scale})"
        case AtomicType(root=TypeRoot.CHAR | TypeRoot.VARCHAR):
            if (type_.length or 0) > _LONGEST[type_.root]:
                return "string"
            return f"{type_.root.value.lower()}({type_.length})"
        case AtomicType():
            found = _NAMES.get(type_.root)
            return "binary" if found is None else found


def paimon_type(text: str) -> DataType:
    """The type of a column of a Hive view.

    Raises:
        UnsupportedFeatureError: it is unknown.
    """
    tokens = [token.strip() for token in _TOKEN.findall(text)]
    type_ = _parse(tokens, text)
    if tokens:
        raise _unknown(text)
    return parse_type(type_)


def _parse(tokens: list[str], text: str) -> str:
    """Take one type off the tokens, as SQL."""
    name = tokens.pop(0).lower() if tokens else ""
    if name in ("array", "map", "struct"):
        parts = _inside(tokens, text, named=name == "struct")
        word = "ROW" if name == "struct" else name.upper()
        return f"{word}<{', '.join(parts)}>"
    if _ZONED.fullmatch(name):
        return "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    if not re.fullmatch(r"[a-z]+(\([\d, ]+\))?", name):
        raise _unknown(text)
    return _SIMPLE.get(name, name.upper())


def _inside(tokens: list[str], text: str, *, named: bool) -> list[str]:
    parts = []
    closing = tokens.pop(0) if tokens else ""
    if closing != "<":
        raise _unknown(text)
    while closing != ">":
        label = ""
        if named:
            label = f"`{tokens.pop(0)}` " if len(tokens) > 1 else ""
            if not tokens or tokens.pop(0) != ":":
                raise _unknown(text)
        parts.append(label + _parse(tokens, text))
        closing = tokens.pop(0) if tokens else ""
        if closing not in (",", ">"):
            raise _unknown(text)
    return parts


def _unknown(text: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError("this type of Hive is not known", type=text)
