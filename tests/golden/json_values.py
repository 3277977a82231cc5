# SPDX-License-Identifier: Apache-2.0
"""The JSON values of golden tables and vectors, to and from the Python values of `row_codec`.

The conventions are those of the golden data: decimals, dates and times as texts, bytes as hex,
NaN and infinities as words.
"""

import datetime
import decimal
import itertools
from collections.abc import Mapping
from typing import Any

from storage.format.row.row_codec import Timestamp
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    parse_type,
)

EPOCH = datetime.date(1970, 1, 1).toordinal()


def golden_type(value: str | Mapping[str, Any]) -> DataType:
    """A type of the golden data, where nested fields have no ids."""
    return parse_type(_with_ids(value, itertools.count(100)))


def _with_ids(value: Any, ids: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {key: _with_ids(part, ids) for key, part in value.items()}
        return {"id": next(ids), **parts} if "name" in parts else parts
    if isinstance(value, list):
        return [_with_ids(part, ids) for part in value]
    return value


def row_value(value: Any, type_: DataType) -> Any:
    """The Python value of `row_codec` for a JSON value."""
    if value is None:
        return None
    match type_:
        case ArrayType(element=element):
            return [row_value(item, element) for item in value]
        case MapType(key=key, value=item):
            return [(row_value(k, key), row_value(v, item)) for k, v in value]
        case MultisetType(element=element):
            return [(row_value(k, element), count) for k, count in value]
        case RowType(fields=fields):
            return tuple(row_value(v, f.type) for v, f in zip(value, fields, strict=True))
        case AtomicType():
            return _atomic(value, type_)


def _atomic(value: Any, type_: AtomicType) -> Any:
    match type_.root:
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return float(value)
        case TypeRoot.DECIMAL:
            return decimal.Decimal(value)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return bytes.fromhex(value)
        case TypeRoot.DATE:
            return _days(value)
        case TypeRoot.TIME:
            return _nanos_of_day(value) // 1_000_000
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            date, time = value.removesuffix("Z").split("T")
            nanos = _days(date) * 86_400_000_000_000 + _nanos_of_day(time)
            return Timestamp(*divmod(nanos, 1_000_000))
        case _:
            return value


def _days(text: str) -> int:
    return datetime.date.fromisoformat(text).toordinal() - EPOCH


def _nanos_of_day(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    whole = (hours * 60 + minutes) * 60 + seconds
    return whole * 1_000_000_000 + int(fraction.ljust(9, "0"))
