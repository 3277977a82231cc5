# SPDX-License-Identifier: Apache-2.0
"""Every type of CDC.md §1.6: how it comes, the column it makes, the value it stores."""

import base64
import dataclasses
import datetime
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.unit.ingest.debezium_events import connect_field

__all__ = ["EVERY_TYPE", "TypeCase"]

UTC = datetime.UTC
T = "io.debezium.time."
DATA = "io.debezium.data."
CONNECT = "org.apache.kafka.connect.data."
DECIMAL = CONNECT + "Decimal"
DAY = datetime.date(2017, 9, 15)
MICROS = 1_562_639_337_123_456
MOMENT = datetime.datetime(2019, 7, 9, 2, 28, 57, 123456)  # noqa: DTZ001
MILLI_MOMENT = MOMENT.replace(microsecond=123_000)
TIME = datetime.time(4, 5, 11, 789_000)
TIME_MS = 14_711_789
ISO = {"time_precision_mode": "isostring"}
IN_CONNECT = {"time_precision_mode": "connect"}


@dataclasses.dataclass(frozen=True)
class TypeCase:
    """One type.

    Attributes:
        label: the type, and which of its encodings.
        field: of the schema block; its name is `v`.
        value: in JSON.
        column: type of the column that it makes.
        stored: Python value of the row.
        bare: options of the decoder that reads the same from events without schema; None = the
            value alone cannot tell.
        avro: whether Avro has such a schema.
    """

    label: str
    field: dict[str, Any]
    value: Any
    column: str | dict[str, Any]
    stored: Any
    bare: Mapping[str, Any] | None = dataclasses.field(default_factory=dict)
    avro: bool = True


def _v(type_: str, semantic: str | None = None, **more: Any) -> dict[str, Any]:
    return connect_field("v", type_, semantic, **more)


def _scale(digits: int, precision: int | None = None) -> dict[str, Any]:
    known = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return {"parameters": {"scale": str(digits), **known}}


def _struct(semantic: str, **members: str) -> dict[str, Any]:
    fields = [{"type": type_, "optional": True, "field": name} for name, type_ in members.items()]
    return _v("struct", semantic, fields=fields)


def _list(**items: Any) -> dict[str, Any]:
    return _v("array", items=items)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_POINT = _base64(b"\1\1\0\0\0" + struct.pack("<dd", 1.0, 2.5))
_GEOMETRY = {"wkb": "bytes", "srid": "int32"}
_HUGE = 123_456_789_012_345_678_901_234_567_890_123_456_789_012
_DIGITS = _base64(_HUGE.to_bytes(19, "big"))
_WRAPPED = _base64((-100 * 10**2046).to_bytes(852, "big", signed=True))

EVERY_TYPE = [
    TypeCase("int8", _v("int8"), 5, "TINYINT", 5),
    TypeCase("int16", _v("int16"), 300, "SMALLINT", 300),
    TypeCase("int32", _v("int32"), -5, "INT", -5),
    TypeCase("int64", _v("int64"), 2**62, "BIGINT", 2**62),
    TypeCase("float", _v("float"), 1.5, "FLOAT", 1.5),
    TypeCase("float32", _v("float32"), 1.5, "FLOAT", 1.5),
    TypeCase("double", _v("double"), 0.1, "DOUBLE", 0.1),
    TypeCase("double, infinite", _v("double"), "-Infinity", "DOUBLE", float("-inf")),
    TypeCase("boolean", _v("boolean"), True, "BOOLEAN", True),
    TypeCase("string", _v("string"), 'é\U0001f600\\"\n', "STRING", 'é\U0001f600\\"\n'),
    TypeCase("bytes", _v("bytes"), "3q2+7w==", "BYTES", b"\xde\xad\xbe\xef"),
    TypeCase(
        "Decimal", _v("bytes", DECIMAL, **_scale(2, 5)), "MDk=", "DECIMAL(5,2)", Decimal("123.45")
    ),
    TypeCase(
        "Decimal, negative",
        _v("bytes", DECIMAL, **_scale(2, 5)),
        "z8c=",
        "DECIMAL(5,2)",
        Decimal("-123.45"),
    ),
    TypeCase(
        "Decimal, no precision (money)",
        _v("bytes", DECIMAL, **_scale(2)),
        "AIA=",
        "DECIMAL(38,2)",
        Decimal("1.28"),
    ),
    TypeCase(
        "Decimal, precision beyond 38",
        _v("bytes", DECIMAL, **_scale(1, 60)),
        _DIGITS,
        "STRING",
        f"{str(_HUGE)[:-1]}.{str(_HUGE)[-1]}",
        bare=None,
    ),
    TypeCase(
        "Decimal, negative scale",
        _v("bytes", DECIMAL, **_scale(-2, 5)),
        "MDk=",
        "STRING",
        "1234500",
        bare=None,
    ),
    TypeCase(
        "Decimal, PostgreSQL's numeric(4, -2)",
        _v("bytes", DECIMAL, **_scale(2046, 4)),
        _WRAPPED,
        "DECIMAL(6,0)",
        Decimal(-100),
        bare=None,
    ),
    TypeCase(
        "VariableScaleDecimal",
        _struct(DATA + "VariableScaleDecimal", scale="int32", value="bytes"),
        {"scale": 3, "value": "MDk="},
        "STRING",
        "12.345",
    ),
    TypeCase("decimal as string", _v("string"), "123.450", "STRING", "123.450"),
    TypeCase("decimal as double", _v("double"), 123.45, "DOUBLE", 123.45),
    TypeCase("Date", _v("int32", T + "Date"), 17424, "DATE", DAY),
    TypeCase("Time", _v("int32", T + "Time"), TIME_MS, "TIME(3)", TIME),
    TypeCase("MicroTime", _v("int64", T + "MicroTime"), TIME_MS * 1000 + 7, "TIME(6)", TIME),
    TypeCase("NanoTime", _v("int64", T + "NanoTime"), TIME_MS * 10**6, "TIME(9)", TIME),
    TypeCase(
        "Timestamp", _v("int64", T + "Timestamp"), MICROS // 1000, "TIMESTAMP(3)", MILLI_MOMENT
    ),
    TypeCase("MicroTimestamp", _v("int64", T + "MicroTimestamp"), MICROS, "TIMESTAMP(6)", MOMENT),
    TypeCase(
        "NanoTimestamp", _v("int64", T + "NanoTimestamp"), MICROS * 1000, "TIMESTAMP(9)", MOMENT
    ),
    TypeCase(
        "ZonedTimestamp",
        _v("string", T + "ZonedTimestamp"),
        "2019-07-09T04:28:57.123456+02:00",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        MOMENT.replace(tzinfo=UTC),
    ),
    TypeCase(
        "ZonedTimestamp, short fraction",
        _v("string", T + "ZonedTimestamp"),
        "2019-07-09T02:28:57.12Z",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
        MOMENT.replace(microsecond=120_000, tzinfo=UTC),
    ),
    TypeCase("ZonedTime", _v("string", T + "ZonedTime"), "04:05:11Z", "STRING", "04:05:11Z"),
    TypeCase("IsoDate", _v("string", T + "IsoDate"), "2017-09-15Z", "DATE", DAY, bare=ISO),
    TypeCase("IsoTime", _v("string", T + "IsoTime"), "04:05:11.789Z", "TIME(6)", TIME, bare=ISO),
    TypeCase(
        "IsoTimestamp",
        _v("string", T + "IsoTimestamp"),
        "2019-07-09T02:28:57.123456Z",
        "TIMESTAMP(6)",
        MOMENT,
        bare=ISO,
    ),
    TypeCase("Connect Date", _v("int32", CONNECT + "Date"), 17424, "DATE", DAY),
    TypeCase(
        "Connect Time", _v("int32", CONNECT + "Time"), TIME_MS, "TIME(3)", TIME, bare=IN_CONNECT
    ),
    TypeCase("Connect Time, int64", _v("int64", CONNECT + "Time"), TIME_MS, "TIME(3)", TIME),
    TypeCase(
        "Connect Timestamp",
        _v("int64", CONNECT + "Timestamp"),
        MICROS // 1000,
        "TIMESTAMP(3)",
        MILLI_MOMENT,
        bare=IN_CONNECT,
    ),
    *(
        TypeCase(
            f"Structured{kind}",
            _struct(f"{T}Structured{kind}", year="int32", month="int32", specialValue="string"),
            {"year": 0, "month": 0, "specialValue": None},
            "STRING",
            '{"year":0,"month":0,"specialValue":null}',
        )
        for kind in ("Date", "Time", "Timestamp", "ZonedTime", "ZonedTimestamp", "Duration")
    ),
    TypeCase("Year", _v("int32", T + "Year"), 2024, "INT", 2024),
    TypeCase("MicroDuration", _v("int64", T + "MicroDuration"), -5, "BIGINT", -5),
    TypeCase("NanoDuration", _v("int64", T + "NanoDuration"), 5, "BIGINT", 5),
    TypeCase(
        "Interval", _v("string", T + "Interval"), "P1Y2M3DT4H5M6.78S", "STRING", "P1Y2M3DT4H5M6.78S"
    ),
    TypeCase(
        "Bits",
        _v("bytes", DATA + "Bits", parameters={"length": "9"}),
        "pQE=",
        "BIGINT",
        0b110100101,
        bare={"type_mapping": ("bits-to-bigint",)},
    ),
    TypeCase(
        "Bits, 64",
        _v("bytes", DATA + "Bits", parameters={"length": "64"}),
        "pQEAAAAAAAA=",
        "BYTES",
        b"\0\0\0\0\0\0\x01\xa5",
        bare=None,
    ),
    TypeCase(
        "Bits, 64, zeros left out",  # as PostgreSQL's connector does
        _v("bytes", DATA + "Bits", parameters={"length": "64"}),
        "pQE=",
        "BYTES",
        b"\0\0\0\0\0\0\x01\xa5",
        bare=None,
    ),
    TypeCase(
        "Bits without a length",
        _v("bytes", DATA + "Bits", parameters={"length": "2147483647"}),
        "pQE=",
        "BYTES",
        b"\x01\xa5",
        bare=None,
    ),
    TypeCase(
        "Enum",
        _v("string", DATA + "Enum", parameters={"allowed": "big,small"}),
        "big",
        "STRING",
        "big",
    ),
    TypeCase(
        "EnumSet",
        _v("string", DATA + "EnumSet", parameters={"allowed": "a,b"}),
        "a,b",
        "STRING",
        "a,b",
    ),
    TypeCase(
        "array of Enum",
        _list(type="string", optional=True, name=DATA + "Enum"),
        ["big", None],
        {"type": "ARRAY", "element": "STRING"},
        ["big", None],
    ),
    TypeCase("Json", _v("string", DATA + "Json"), '{"a":1}', "STRING", '{"a":1}'),
    TypeCase("Json (hstore)", _v("string", DATA + "Json"), '{"k":"v"}', "STRING", '{"k":"v"}'),
    TypeCase(
        "map (hstore)",
        _v("map", keys={"type": "string"}, values={"type": "string", "optional": True}),
        {"k": "v"},
        "STRING",
        '{"k":"v"}',
    ),
    TypeCase("Xml", _v("string", DATA + "Xml"), "<a/>", "STRING", "<a/>"),
    TypeCase("Uuid", _v("string", DATA + "Uuid"), "b68a35a7", "STRING", "b68a35a7"),
    TypeCase("Ltree", _v("string", DATA + "Ltree"), "a.b", "STRING", "a.b"),
    TypeCase("Tsvector", _v("string", DATA + "Tsvector"), "'a':1", "STRING", "'a':1"),
    TypeCase("citext, inet, macaddr, ranges", _v("string"), "[1,5)", "STRING", "[1,5)"),
    TypeCase(
        "Geometry",
        _struct(DATA + "geometry.Geometry", **_GEOMETRY),
        {"wkb": _POINT, "srid": None},
        "STRING",
        f'{{"wkb":"{_POINT}","srid":null}}',
    ),
    TypeCase(
        "Geography",
        _struct(DATA + "geometry.Geography", **_GEOMETRY),
        {"wkb": _POINT, "srid": 4326},
        "STRING",
        f'{{"wkb":"{_POINT}","srid":4326}}',
    ),
    TypeCase(
        "Point",
        _struct(DATA + "geometry.Point", x="double", y="double", **_GEOMETRY),
        {"x": 1.0, "y": 2.5, "wkb": _POINT, "srid": None},
        "STRING",
        f'{{"x":1.0,"y":2.5,"wkb":"{_POINT}","srid":null}}',
    ),
    TypeCase(
        "Circle",
        _struct(DATA + "geometry.Circle", x="double", y="double", radius="double"),
        {"x": 1.0, "y": 2.5, "radius": 3.0},
        "STRING",
        '{"x":1.0,"y":2.5,"radius":3.0}',
    ),
    TypeCase(
        "Line",
        _struct(DATA + "geometry.Line", a="double", b="double", c="double"),
        {"a": 1.0, "b": 2.5, "c": 3.0},
        "STRING",
        '{"a":1.0,"b":2.5,"c":3.0}',
    ),
    TypeCase(
        "FloatVector",
        _v("array", DATA + "FloatVector", items={"type": "float"}),
        [1.5, -2.0],
        {"type": "ARRAY", "element": "FLOAT"},
        [1.5, -2.0],
    ),
    TypeCase(
        "DoubleVector",
        _v("array", DATA + "DoubleVector", items={"type": "double"}),
        [0.1, 2.0],
        {"type": "ARRAY", "element": "DOUBLE"},
        [0.1, 2.0],
    ),
    TypeCase(
        "SparseDoubleVector",
        _v(
            "struct",
            DATA + "SparseDoubleVector",
            fields=[
                {"type": "int16", "optional": True, "field": "dimensions"},
                {
                    "type": "map",
                    "field": "vector",
                    "keys": {"type": "string"},
                    "values": {"type": "double"},
                },
            ],
        ),
        {"dimensions": 25, "vector": {"1": 10.5}},
        "STRING",
        '{"dimensions":25,"vector":{"1":10.5}}',
    ),
    TypeCase(
        "array of int32",
        _list(type="int32", optional=True),
        [1, None, 3],
        {"type": "ARRAY", "element": "INT"},
        [1, None, 3],
    ),
    TypeCase(
        "array of Date",
        _list(type="int32", optional=True, name=T + "Date"),
        [17424],
        {"type": "ARRAY", "element": "DATE"},
        [DAY],
    ),
    TypeCase(
        "array of Decimal",
        _list(type="bytes", optional=True, name=DECIMAL, **_scale(2, 5)),
        ["MDk=", None],
        {"type": "ARRAY", "element": "DECIMAL(5,2)"},
        [Decimal("123.45"), None],
    ),
    TypeCase(
        "array of ZonedTimestamp",
        _list(type="string", optional=True, name=T + "ZonedTimestamp"),
        ["2019-07-09T02:28:57.123456Z"],
        {"type": "ARRAY", "element": "TIMESTAMP(6) WITH LOCAL TIME ZONE"},
        [MOMENT.replace(tzinfo=UTC)],
    ),
    TypeCase(
        "array of bytes",
        _list(type="bytes", optional=True),
        ["3q2+7w==", None],
        {"type": "ARRAY", "element": "BYTES"},
        [b"\xde\xad\xbe\xef", None],
    ),
    TypeCase(
        "array of arrays",
        _list(type="array", items={"type": "int32"}),
        [[1], []],
        "STRING",
        "[[1],[]]",
    ),
    TypeCase(
        "struct without name",
        _struct("", a="int32"),
        {"a": 1},
        "STRING",
        '{"a":1}',
    ),
]
