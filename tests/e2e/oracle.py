# SPDX-License-Identifier: Apache-2.0
"""The database as the oracle: its rows against a lake table's, value by value.

Both sides become plain Python values of one form, chosen by the type of the lake's column, so that
a lake column which cannot hold the database's value exactly shows as a difference.
"""

import datetime
import decimal
import json
import math
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.table.table import FileStoreTable
from tests.e2e.real_tables import RealTable

_UTC = datetime.UTC
_SHOWN = 8
_LONGEST = 160

Row = dict[str, Any]
Key = tuple[Any, ...]


def database_rows(connection: Any, table: RealTable) -> list[Row]:
    """What the database holds, as the table's `select` says it."""
    with connection.cursor() as cursor:
        cursor.execute(table.select())
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def differences(connection: Any, table: RealTable, lake: FileStoreTable | pa.Table) -> list[str]:
    """How a lake table, or rows of one, differ from its source table; empty = they do not."""
    names = [*table.key_names, *(column.name for column in table.compared)]
    found = lake if isinstance(lake, pa.Table) else lake.to_arrow()
    absent = sorted(set(names) - set(found.column_names))
    if absent:
        return [f"{table.name}: columns {', '.join(absent)} are missing"]
    found = found.select(names)
    types = {field.name: field.type for field in found.schema}
    expected = _by_key(database_rows(connection, table), table.key_names, types)
    return compare(table.name, expected, _by_key(found.to_pylist(), table.key_names, types))


def compare(name: str, expected: Mapping[Key, Row], found: Mapping[Key, Row]) -> list[str]:
    """One line for each missing row, row too many, and differing value."""
    lines = [f"{name} {key}: missing" for key in expected if key not in found]
    lines += [f"{name} {key}: too many" for key in found if key not in expected]
    for key in sorted(expected.keys() & found.keys(), key=repr):
        lines += [
            f"{name} {key} {column}: database {_short(value)}, lake {_short(found[key][column])}"
            for column, value in expected[key].items()
            if not same(value, found[key][column])
        ]
    return lines


def assert_equal(connection: Any, tables: Iterable[RealTable], lake: Mapping[str, Any]) -> None:
    """Every lake table, or its rows, equals its source table.

    Raises:
        AssertionError: with the first differences of each table.
    """
    report: list[str] = []
    for table in tables:
        lines = differences(connection, table, lake[table.name])
        report += lines[:_SHOWN]
        if len(lines) > _SHOWN:
            report.append(f"{table.name}: {len(lines) - _SHOWN} more")
    assert not report, "\n".join(report)


def same(one: Any, two: Any) -> bool:
    """Equality in which NaN equals NaN."""
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (math.isnan(one) and math.isnan(two))
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and one == two


def normal(value: Any, type_: pa.DataType) -> Any:
    """A value in the one form of a lake column's type; one that does not fit stays as it is."""
    if value is None:
        return None
    if pa.types.is_list(type_):
        return [normal(item, type_.value_type) for item in value]
    for accepts, convert in _FORMS:
        if accepts(type_):
            return convert(value, type_)
    return value


def _by_key(
    rows: Sequence[Row], key: Sequence[str], types: Mapping[str, pa.DataType]
) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for row in rows:
        made = {name: normal(value, types[name]) for name, value in row.items()}
        identity = tuple(made[name] for name in key)
        assert identity not in found, f"key {identity} twice"
        found[identity] = made
    return found


def _text(value: Any, _: pa.DataType) -> Any:
    """Text; JSON documents as their values, numbers in plain notation."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, set):
        return ",".join(sorted(value))
    if isinstance(value, dict | list | bool | int | float):
        value = json.dumps(value)
    try:
        document = json.loads(value, parse_float=decimal.Decimal)
    except (ValueError, TypeError):
        return value
    if isinstance(document, dict | list):
        return json.dumps(document, sort_keys=True, default=str)
    return value


def _integer(value: Any, _: pa.DataType) -> Any:
    return int(value) if isinstance(value, int | decimal.Decimal) and value == int(value) else value


def _boolean(value: Any, _: pa.DataType) -> Any:
    return bool(value) if value in (0, 1) else value


def _float(value: Any, type_: pa.DataType) -> Any:
    if not isinstance(value, int | float | decimal.Decimal):
        return value
    if type_ == pa.float32():
        return struct.unpack("<f", struct.pack("<f", float(value)))[0]
    return float(value)


def _decimal(value: Any, type_: pa.DataType) -> Any:
    if not isinstance(value, int | decimal.Decimal):
        return value
    with decimal.localcontext(prec=80):
        exact = decimal.Decimal(value)
        scaled = exact.quantize(decimal.Decimal(1).scaleb(-type_.scale))
        return str(scaled) if scaled == exact else f"{exact} (does not fit {type_})"


def _binary(value: Any, _: pa.DataType) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _timestamp(value: Any, type_: pa.DataType) -> Any:
    """Zoned ones in UTC; naive ones as they are."""
    if not isinstance(value, datetime.datetime):
        return value
    if type_.tz is None:
        return value
    return value.replace(tzinfo=_UTC) if value.tzinfo is None else value.astimezone(_UTC)


def _time(value: Any, _: pa.DataType) -> Any:
    """Milliseconds of the day: what a TIME column holds."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1000 + value.microsecond // 1000
    return value


_FORMS = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_large_string, _text),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
