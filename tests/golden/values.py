# SPDX-License-Identifier: Apache-2.0
"""One comparable form for values that come from JSON, YAML, Arrow or a BinaryRow.

The form is hashable and depends on the column type only:

    BOOLEAN, integers       as they are
    FLOAT, DOUBLE           shortest round-trip text (FLOAT rounded to 32 bit first)
    DECIMAL                 decimal.Decimal
    strings                 str
    binary                  lower-case hex str
    DATE                    days since the epoch
    TIME                    milliseconds of the day
    TIMESTAMP (both)        nanoseconds since the epoch
    ARRAY                   tuple
    MAP, MULTISET           frozenset of pairs
    ROW                     tuple
    null                    None

JSON conventions are those of the golden packs; the conformance cases use a superset (see
`from_text`).
"""

import datetime
import decimal
import itertools
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

__all__ = [
    "Value",
    "arrow_rows",
    "difference",
    "from_arrow",
    "from_internal",
    "from_text",
    "rows_from_text",
]

Value = Any
Row = tuple[Value, ...]

_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_MS_PER_DAY = 86_400_000
_NANOS_PER_DAY = _MS_PER_DAY * 1_000_000
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4,}-\d{2}-\d{2})(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?))?Z?"
)
_INTEGERS = frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT})
_STRINGS = frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR})
_BINARIES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
_TIMESTAMPS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})


# ------------------------------------------------------------------------------- from text


def from_text(value: Any, data_type: DataType) -> Value:
    """The comparable form of a value written in JSON or YAML.

    Besides the golden convention this takes a blank instead of the `T` of a timestamp,
    `{"row": [...]}`, `{"map": [[k, v], ...]}` and `{"hex": "..."}`.

    Raises:
        ValueError: the text does not fit the type.
    """
    if value is None:
        return None
    if isinstance(data_type, AtomicType):
        return _atomic_from_text(value, data_type)
    if isinstance(data_type, ArrayType):
        return tuple(from_text(item, data_type.element) for item in value)
    if isinstance(data_type, RowType):
        items = value["row"] if isinstance(value, dict) else value
        if len(items) != len(data_type.fields):
            raise ValueError(f"row of {len(items)} values for {len(data_type.fields)} fields")
        return tuple(
            from_text(item, field.type) for item, field in zip(items, data_type.fields, strict=True)
        )
    pairs = value["map"] if isinstance(value, dict) else value
    if isinstance(data_type, MapType):
        return frozenset(
            (from_text(k, data_type.key), from_text(v, data_type.value)) for k, v in pairs
        )
    return frozenset((from_text(k, data_type.element), int(v)) for k, v in pairs)


def rows_from_text(rows: Iterable[Sequence[Any]], types: Sequence[DataType]) -> list[Row]:
    """Rows of JSON or YAML values in the comparable form."""
    out = []
    for row in rows:
        if len(row) != len(types):
            raise ValueError(f"row {row} has {len(row)} values, the table {len(types)} columns")
        out.append(tuple(from_text(v, t) for v, t in zip(row, types, strict=True)))
    return out


def _atomic_from_text(value: Any, data_type: AtomicType) -> Value:
    root = data_type.root
    if root is TypeRoot.BOOLEAN:
        if not isinstance(value, bool):
            raise ValueError(f"not a boolean: {value!r}")
        return value
    if root in _INTEGERS:
        if isinstance(value, bool) or int(value) != value:
            raise ValueError(f"not an integer: {value!r}")
        return int(value)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _floating(float(value), root)
    if root is TypeRoot.DECIMAL:
        return decimal.Decimal(str(value))
    if root in _STRINGS:
        if not isinstance(value, str):
            raise ValueError(f"not a string: {value!r}")
        return value
    if root in _BINARIES:
        return _hex(value)
    if root is TypeRoot.DATE:
        return _days(value)
    if root is TypeRoot.TIME:
        return _time_nanos(value) // 1_000_000
    return _timestamp_nanos(value)


def _floating(value: float, root: TypeRoot) -> str:
    if value != value:
        return "NaN"
    if root is TypeRoot.FLOAT and abs(value) != float("inf"):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return repr(value)


def _hex(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    text = value["hex"] if isinstance(value, dict) else value
    return bytes.fromhex(text).hex()


def _days(text: str) -> int:
    if isinstance(text, datetime.date):
        return text.toordinal() - _EPOCH_ORDINAL
    return datetime.date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL


def _time_nanos(text: str) -> int:
    clock, _, fraction = text.partition(".")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes, seconds = (*parts, 0)[:3]
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000_000 + int(
        (fraction + "000000000")[:9]
    )


def _timestamp_nanos(text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"not a timestamp: {text!r}")
    nanos = _days(match["date"]) * _NANOS_PER_DAY
    return nanos + (_time_nanos(match["time"]) if match["time"] else 0)


# ------------------------------------------------------------------------------ from Arrow


def from_arrow(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> list[Value]:
    """The comparable form of every value of a column.

    Raises:
        TypeError: the Arrow type is not the one `storage.format.types.types` gives the type.
    """
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in from_arrow(chunk, data_type)]
    if pa.types.is_dictionary(column.type):
        return from_arrow(column.dictionary_decode(), data_type)
    if isinstance(data_type, AtomicType):
        return _atomic_from_arrow(column, data_type)
    if isinstance(data_type, RowType):
        _require(column, pa.types.is_struct, data_type)
        columns = [
            from_arrow(child, field.type)
            for child, field in zip(column.flatten(), data_type.fields, strict=True)
        ]
        rows: Iterable[Row] = zip(*columns, strict=True)
        return _null_where_invalid(list(rows), column)
    if isinstance(data_type, ArrayType):
        _require(column, pa.types.is_list, data_type)
        values = from_arrow(column.values, data_type.element)
        return _null_where_invalid(_slices(values, column, tuple), column)
    _require(column, pa.types.is_map, data_type)
    key_type, value_type = _map_types(data_type)
    pairs = list(
        zip(from_arrow(column.keys, key_type), from_arrow(column.items, value_type), strict=True)
    )
    return _null_where_invalid(_slices(pairs, column, frozenset), column)


def arrow_rows(table: pa.Table | pa.RecordBatch, fields: Sequence[DataField]) -> list[Row]:
    """Rows of a table in the comparable form, columns in the order of `fields`."""
    columns = [from_arrow(table.column(field.name), field.type) for field in fields]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def _map_types(data_type: MapType | MultisetType) -> tuple[DataType, DataType]:
    if isinstance(data_type, MapType):
        return data_type.key, data_type.value
    return data_type.element, AtomicType(TypeRoot.INT, nullable=False)


def _require(column: pa.Array, test: Callable[[pa.DataType], bool], data_type: DataType) -> None:
    if not test(column.type):
        raise TypeError(f"{data_type} came as Arrow {column.type}")


def _slices(values: list[Value], column: pa.Array, kind: Callable[..., Value]) -> list[Value]:
    offsets = column.offsets.to_pylist()
    return [kind(values[start:end]) for start, end in itertools.pairwise(offsets)]


def _null_where_invalid(values: list[Value], column: pa.Array) -> list[Value]:
    valid = column.is_valid().to_pylist()
    return [value if keep else None for value, keep in zip(values, valid, strict=True)]


def _atomic_from_arrow(column: pa.Array, data_type: AtomicType) -> list[Value]:
    root = data_type.root
    _require(column, _ARROW_TESTS[root], data_type)
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return [None if v is None else _floating(v, root) for v in column.to_pylist()]
    if root in _BINARIES:
        return [None if v is None else v.hex() for v in column.to_pylist()]
    if root in (TypeRoot.DATE, TypeRoot.TIME):
        return column.cast(pa.int32()).to_pylist()
    if root in _TIMESTAMPS:
        factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[column.type.unit]
        return [None if v is None else v * factor for v in column.view(pa.int64()).to_pylist()]
    return column.to_pylist()


_ARROW_TESTS: dict[TypeRoot, Callable[[pa.DataType], bool]] = {
    TypeRoot.CHAR: pa.types.is_string,
    TypeRoot.VARCHAR: pa.types.is_string,
    TypeRoot.BOOLEAN: pa.types.is_boolean,
    TypeRoot.BINARY: pa.types.is_binary,
    TypeRoot.VARBINARY: pa.types.is_binary,
    TypeRoot.DECIMAL: pa.types.is_decimal128,
    TypeRoot.TINYINT: pa.types.is_int8,
    TypeRoot.SMALLINT: pa.types.is_int16,
    TypeRoot.INT: pa.types.is_int32,
    TypeRoot.BIGINT: pa.types.is_int64,
    TypeRoot.FLOAT: pa.types.is_float32,
    TypeRoot.DOUBLE: pa.types.is_float64,
    TypeRoot.DATE: pa.types.is_date32,
    TypeRoot.TIME: pa.types.is_time32,
    TypeRoot.TIMESTAMP: lambda t: pa.types.is_timestamp(t) and t.tz is None,
    TypeRoot.TIMESTAMP_LTZ: lambda t: pa.types.is_timestamp(t) and t.tz == "UTC",
}


# -------------------------------------------------------------------------- from BinaryRow


def from_internal(value: Any, data_type: DataType) -> Value:
    """The comparable form of a value of `storage.format.row.binary_row.decode_row`."""
    if value is None or not isinstance(data_type, AtomicType):
        return value
    root = data_type.root
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return _floating(value, root)
    if root in _BINARIES:
        return bytes(value).hex()
    if root in _TIMESTAMPS:
        millis, nanos = value
        return millis * 1_000_000 + nanos
    if isinstance(value, np.generic):
        return value.item()
    return value


# --------------------------------------------------------------------------------- compare


def difference(expected: Iterable[Any], found: Iterable[Any], limit: int = 3) -> str | None:
    """What two multisets of rows do not share, in a line or two; None when they are equal."""
    left, right = Counter(expected), Counter(found)
    if left == right:
        return None
    parts = [f"{left.total()} rows expected, {right.total()} found"]
    for word, rows in (("missing", left - right), ("extra", right - left)):
        if rows:
            shown = ", ".join(_short(row) for row in list(rows)[:limit])
            more = f" and {len(rows) - limit} more" if len(rows) > limit else ""
            parts.append(f"{word} {shown}{more}")
    return "; ".join(parts)


def _short(row: Any, width: int = 200) -> str:
    text = repr(row)
    return text if len(text) <= width else text[:width] + "…"
