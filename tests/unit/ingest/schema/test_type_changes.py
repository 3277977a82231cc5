# SPDX-License-Identifier: Apache-2.0
"""Changes of a column's type: by mode, by `on.incompatible`, and by where types are declared.

Expected values follow docs/guides/schema-changes.md and docs/reference/types.md. Each case is a
table of one stream: rows of the old type, a delete, an update and rows of the new type, and a row
of the old type again, as another shard sends it.
"""

import base64
import dataclasses
import datetime
import itertools
from decimal import Decimal as D
from typing import Any

import pandas as pd
import pytest

from ingest.errors import SchemaStopError
from ingest.source.records import RawBatch
from storage.format.types.types import type_name
from tests.unit.ingest.avro_events import Writer, envelope, key_schema
from tests.unit.ingest.debezium_events import connect_block, connect_field, dumps, event
from tests.unit.ingest.every_way import avro_row, avro_type
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.stub_registry import stub_registry

BAD = "quarantined"

DECIMAL = "org.apache.kafka.connect.data.Decimal"
T = "io.debezium.time."


class RAW(str):
    """A number as JSON has it."""

    __slots__ = ()


def moment(text):
    return datetime.datetime.fromisoformat(text)


def epoch(text, unit):
    at = datetime.datetime.fromisoformat(text + "+00:00")
    micros = (at - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(0, 0, 1)
    return micros * unit // 10**6


def decimal(text):
    """A decimal as Connect encodes it."""
    unscaled = int(text.replace(".", ""))
    size = unscaled.bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def scaled(precision, scale):
    return {"parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


UNSIGNED = {"parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}}
MEMBER = {"type": "int32", "optional": True}

FIELDS = {
    "int8": ("TINYINT", "int8", None, {}),
    "int16": ("SMALLINT", "int16", None, {}),
    "int32": ("INT", "int32", None, {}),
    "int64": ("BIGINT", "int64", None, {}),
    "bigint unsigned": ("BIGINT", "int64", None, UNSIGNED),
    "float": ("FLOAT", "float", None, {}),
    "double": ("DOUBLE", "double", None, {}),
    "boolean": ("BOOLEAN", "boolean", None, {}),
    "string": ("STRING", "string", None, {}),
    "not null string": ("STRING", "string", None, {"optional": False}),
    "not null int32": ("INT", "int32", None, {"optional": False}),
    "int32 default 7": ("INT", "int32", None, {"default": 7}),
    "enum": ("STRING", "string", "io.debezium.data.Enum", {"parameters": {"allowed": "a,b"}}),
    "enum of c": ("STRING", "string", "io.debezium.data.Enum", {"parameters": {"allowed": "c"}}),
    "json": ("STRING", "string", "io.debezium.data.Json", {}),
    "uuid": ("STRING", "string", "io.debezium.data.Uuid", {}),
    "bytes": ("BYTES", "bytes", None, {}),
    "date": ("DATE", "int32", T + "Date", {}),
    "time ms": ("TIME(3)", "int32", T + "Time", {}),
    "time us": ("TIME(6)", "int64", T + "MicroTime", {}),
    "time ns": ("TIME(9)", "int64", T + "NanoTime", {}),
    "timestamp ms": ("TIMESTAMP(3)", "int64", T + "Timestamp", {}),
    "timestamp us": ("TIMESTAMP(6)", "int64", T + "MicroTimestamp", {}),
    "timestamp ns": ("TIMESTAMP(9)", "int64", T + "NanoTimestamp", {}),
    "zoned": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "string", T + "ZonedTimestamp", {}),
    "year": ("INT", "int32", T + "Year", {}),
    "bits(8)": ("BIGINT", "bytes", "io.debezium.data.Bits", {"parameters": {"length": "8"}}),
    "variable decimal": (
        "STRING",
        "struct",
        "io.debezium.data.VariableScaleDecimal",
        {"fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]},
    ),
    "ints": ("ARRAY<INT>", "array", None, {"items": MEMBER}),
    "longs": ("ARRAY<BIGINT>", "array", None, {"items": {**MEMBER, "type": "int64"}}),
    "texts": ("ARRAY<STRING>", "array", None, {"items": {**MEMBER, "type": "string"}}),
    "document a": ("STRING", "struct", None, {"fields": [{**MEMBER, "field": "a"}]}),
    "document a b": (
        "STRING",
        "struct",
        None,
        {"fields": [{**MEMBER, "field": "a"}, {**MEMBER, "field": "b"}]},
    ),
    **{
        f"decimal({p},{s})": (f"DECIMAL({p}, {s})", "bytes", DECIMAL, scaled(p, s))
        for p, s in [(6, 2), (6, 4), (9, 4), (10, 2), (20, 0), (38, 2), (38, 4)]
    },
}
"""Column type of a new table; type, name and more of the field of a schema block."""


@dataclasses.dataclass(frozen=True)
class Change:
    """A column whose type changes in the source.

    Attributes:
        old: name of the first type.
        value: of the first rows, as events have it.
        stored: the same, as the table has it.
        new: name of the later type.
        rows: (value, as a column of its own type has it, as the old column has it or BAD).
        wider: type that holds both; "" = there is none.
        same: whether the column need not change.
        text: of `stored` in a STRING column; None = it has none.
        texts: of the rows.
    """

    old: str
    value: Any
    stored: Any
    new: str
    rows: list[tuple[Any, Any, Any]]
    wider: str = ""
    same: bool = False
    text: str | None = None
    texts: tuple[str, ...] | None = None

    @property
    def label(self):
        return f"{self.old} to {self.new}"


def same(old, value, stored, new, *rows):
    """The column holds all values of the new type, or checks each."""
    return Change(old, value, stored, new, list(rows), same=True)


def wider(type_, old, value, stored, new, *rows):
    """There is a type for both."""
    return Change(old, value, stored, new, list(rows), wider=type_)


def other(old, value, stored, new, *rows, text=None, texts=None):
    """There is none."""
    return Change(old, value, stored, new, list(rows), text=text, texts=texts)


# fmt: off
NOON = "2024-02-29 12:00:00"
NANOS = pd.Timestamp("2024-02-29 12:00:00.123456001")
MS, US, ZONED = NOON + ".123", NOON + ".123456", NOON + ".000000"
CHANGES = [
    # integers
    wider("SMALLINT", "int8", 5, 5, "int16", (300, 300, BAD), (-7, -7, -7)),
    wider("INT", "int8", 5, 5, "int32", (2**31 - 1, 2**31 - 1, BAD), (-128, -128, -128)),
    wider("INT", "int16", 5, 5, "int32", (-(2**31), -(2**31), BAD), (32767, 32767, 32767)),
    wider("BIGINT", "int32", 5, 5, "int64", (2**63 - 1, 2**63 - 1, BAD), (-(2**31),) * 3),
    same("int64", 2**40, 2**40, "int32", (7, 7, 7)),
    same("int32", 70_000, 70_000, "int8", (7, 7, 7)),
    same("int64", 5, 5, "bigint unsigned", (2**62, 2**62, 2**62), (-1, BAD, BAD)),
    same("int32", 5, 5, "year", (1999, 1999, 1999)),
    wider("DECIMAL(20, 0)", "int64", -5, -5, "decimal(20,0)",
          (decimal("18446744073709551615"), D(2**64 - 1), BAD), (decimal("7"), D(7), 7)),
    wider("DECIMAL(12, 2)", "int32", 5, 5, "decimal(10,2)",
          (decimal("1.25"), D("1.25"), BAD), (decimal("7.00"), D(7), 7)),
    wider("DECIMAL(21, 2)", "decimal(6,2)", decimal("1.25"), D("1.25"), "int64",
          (2**62, D(2**62), BAD), (9, D(9), D(9))),
    same("decimal(6,2)", decimal("1.25"), D("1.25"), "int8", (127, D(127), D(127))),
    same("double", 1.5, 1.5, "int32", (2**31 - 1, 2.0**31 - 1, 2.0**31 - 1)),
    other("double", 1.5, 1.5, "int64", (2**53 + 1, 2**53 + 1, BAD),
          text="1.5", texts=("9007199254740993",)),
    other("int32", 5, 5, "float", (1.5, 1.5, BAD), text="5", texts=("1.5",)),
    other("int32", 5, 5, "double", (1.5, 1.5, BAD), text="5", texts=("1.5",)),
    other("int64", 5, 5, "double", (0.1, 0.1, BAD), text="5", texts=("0.1",)),
    other("int32", 1, 1, "boolean", (True, True, BAD), text="1", texts=("true",)),
    other("boolean", True, True, "int32", (0, 0, BAD), (1, 1, BAD), text="true", texts=("0", "1")),
    other("int32", 1, 1, "string", ("1", "1", BAD), ("x", "x", BAD), text="1", texts=("1", "x")),
    other("string", "x", "x", "int32", (1, 1, BAD), text="x", texts=("1",)),
    other("int32", 1, 1, "date", (19782, datetime.date(2024, 2, 29), BAD),
          text="1", texts=("2024-02-29",)),
    other("int64", 1, 1, "timestamp ms", (epoch(MS, 1000), moment(MS), BAD), text="1", texts=(MS,)),
    other("timestamp ms", epoch(MS, 1000), moment(MS), "int64", (5, 5, BAD), text=MS, texts=("5",)),
    other("int32", 1, 1, "bytes", ("AQI=", b"\1\2", BAD)),
    other("int32", 1, 1, "ints", ([1, None], [1, None], BAD), text="1", texts=("[1, null]",)),
    other("int32", 1, 1, "document a", ({"a": 1}, '{"a":1}', BAD), text="1", texts=('{"a":1}',)),
    # floats
    wider("DOUBLE", "float", 0.5, 0.5, "double", (1e300, 1e300, BAD), (0.25, 0.25, 0.25)),
    same("double", 0.1, 0.1, "float", (0.5, 0.5, 0.5), (16777216.0, 16777216.0, 16777216.0)),
    other("float", 0.5, 0.5, "decimal(6,2)", (decimal("1.25"), D("1.25"), BAD),
          text="0.5", texts=("1.25",)),
    other("decimal(6,2)", decimal("1.25"), D("1.25"), "double", (0.1, 0.1, BAD),
          text="1.25", texts=("0.1",)),
    other("double", 0.5, 0.5, "string", ("a", "a", BAD), text="0.5", texts=("a",)),
    # decimals
    wider("DECIMAL(9, 4)", "decimal(6,2)", decimal("1.25"), D("1.25"), "decimal(9,4)",
          (decimal("1.2501"), D("1.2501"), BAD),
          (decimal("9999.9900"), D("9999.99"), D("9999.99"))),
    wider("DECIMAL(8, 4)", "decimal(6,2)", decimal("9999.99"), D("9999.99"), "decimal(6,4)",
          (decimal("1.2501"), D("1.2501"), BAD), (decimal("1.2500"), D("1.25"), D("1.25"))),
    wider("DECIMAL(10, 2)", "decimal(6,2)", decimal("1.25"), D("1.25"), "decimal(10,2)",
          (decimal("12345678.90"), D("12345678.9"), BAD), (decimal("1.50"), D("1.5"), D("1.5"))),
    same("decimal(10,2)", decimal("12345678.90"), D("12345678.9"), "decimal(6,2)",
         (decimal("1.50"), D("1.5"), D("1.5"))),
    wider("DECIMAL(8, 4)", "decimal(6,4)", decimal("1.2501"), D("1.2501"), "decimal(6,2)",
          (decimal("9999.99"), D("9999.99"), BAD), (decimal("1.25"), D("1.25"), D("1.25"))),
    other("decimal(38,2)", decimal("1.25"), D("1.25"), "decimal(38,4)",
          (decimal("1.2501"), D("1.2501"), BAD), (decimal("1.2500"), D("1.25"), D("1.25")),
          text="1.25", texts=("1.2501", "1.2500")),
    other("decimal(6,2)", decimal("1.25"), D("1.25"), "date",
          (19782, datetime.date(2024, 2, 29), BAD), text="1.25", texts=("2024-02-29",)),
    # text
    same("string", "a", "a", "enum", ("b", "b", "b")),
    same("enum", "a", "a", "string", ("long text", "long text", "long text")),
    same("enum", "a", "a", "enum of c", ("c", "c", "c")),
    same("string", "a", "a", "json", ('{"b": 1}',) * 3),
    same("json", '{"b": 1}', '{"b": 1}', "string", ("no json",) * 3),
    same("uuid", "6f", "6f", "string", ("x", "x", "x")),
    same("string", "a", "a", "not null string", ("b", "b", "b")),
    same("not null string", "a", "a", "string", ("b", "b", "b")),
    same("string", "a", "a", "document a", ({"a": 1}, '{"a":1}', '{"a":1}')),
    same("string", "a", "a", "decimal(6,2)", (decimal("1.50"), "1.50", "1.50")),
    same("document a", {"a": 1}, '{"a":1}', "document a b",
         ({"a": 1, "b": 2}, '{"a":1,"b":2}', '{"a":1,"b":2}')),
    same("document a", {"a": 1}, '{"a":1}', "string", ("x", "x", "x")),
    other("document a", {"a": 1}, '{"a":1}', "int32", (1, 1, BAD), text='{"a":1}', texts=("1",)),
    other("string", "a", "a", "ints", ([1], [1], BAD), text="a", texts=("[1]",)),
    other("string", "a", "a", "bytes", ("AQI=", b"\1\2", BAD)),
    other("bytes", "AQI=", b"\1\2", "string", ("a", "a", BAD)),
    other("bytes", "AQI=", b"\1\2", "int32", (1, 1, BAD)),
    other("string", "a", "a", "boolean", (False, False, BAD), text="a", texts=("false",)),
    other("boolean", True, True, "string", ("a", "a", BAD), text="true", texts=("a",)),
    other("string", "a", "a", "date", (19782, datetime.date(2024, 2, 29), BAD),
          text="a", texts=("2024-02-29",)),
    other("string", "a", "a", "zoned", ("2024-02-29T12:00:00Z", moment(NOON + "+00:00"), BAD),
          text="a", texts=(ZONED,)),
    # nullability and defaults
    same("int32", 5, 5, "not null int32", (6, 6, 6)),
    same("not null int32", 5, 5, "int32", (6, 6, 6)),
    same("int32", 5, 5, "int32 default 7", (6, 6, 6)),
    # dates, times, timestamps
    other("date", 19782, datetime.date(2024, 2, 29), "timestamp ms",
          (epoch(MS, 1000), moment(MS), BAD), text="2024-02-29", texts=(MS,)),
    other("timestamp ms", epoch(MS, 1000), moment(MS), "date",
          (19782, datetime.date(2024, 2, 29), BAD), text=MS, texts=("2024-02-29",)),
    other("date", 19782, datetime.date(2024, 2, 29), "string", ("x", "x", BAD),
          text="2024-02-29", texts=("x",)),
    same("time ms", 43_200_123, datetime.time(12, 0, 0, 123_000), "time us",
         (43_200_456_000, datetime.time(12, 0, 0, 456_000), datetime.time(12, 0, 0, 456_000))),
    same("time us", 43_200_123_000, datetime.time(12, 0, 0, 123_000), "time ms",
         (43_200_456, datetime.time(12, 0, 0, 456_000), datetime.time(12, 0, 0, 456_000))),
    same("time us", 43_200_123_000, datetime.time(12, 0, 0, 123_000), "time ns",
         (43_200_456_000_000, datetime.time(12, 0, 0, 456_000), datetime.time(12, 0, 0, 456_000))),
    other("time ms", 43_200_123, datetime.time(12, 0, 0, 123_000), "string", ("x", "x", BAD),
          text="12:00:00.123", texts=("x",)),
    wider("TIMESTAMP(6)", "timestamp ms", epoch(MS, 1000), moment(MS), "timestamp us",
          (epoch(US, 10**6), moment(US), BAD), (epoch(MS, 10**6), moment(MS), moment(MS))),
    same("timestamp us", epoch(US, 10**6), moment(US), "timestamp ms",
         (epoch(MS, 1000), moment(MS), moment(MS))),
    other("timestamp us", epoch(US, 10**6), moment(US), "timestamp ns",
          (epoch(US, 10**9), moment(US), moment(US)), (epoch(US, 10**9) + 1, NANOS, BAD),
          text=US, texts=(US + "000", US + "001")),
    same("timestamp ns", epoch(US, 10**9), moment(US), "timestamp us",
         (epoch(MS, 10**6), moment(MS), moment(MS))),
    other("timestamp us", epoch(US, 10**6), moment(US), "zoned",
          ("2024-02-29T12:00:00Z", moment(NOON + "+00:00"), BAD),
          text=US, texts=(ZONED,)),
    other("zoned", "2024-02-29T12:00:00Z", moment(NOON + "+00:00"), "timestamp us",
          (epoch(US, 10**6), moment(US), BAD), text=ZONED, texts=(US,)),
    other("zoned", "2024-02-29T12:00:00Z", moment(NOON + "+00:00"), "string", ("x", "x", BAD),
          text=ZONED, texts=("x",)),
    other("timestamp us", epoch(US, 10**6), moment(US), "string", ("x", "x", BAD),
          text=US, texts=("x",)),
    # bits and arrays
    same("bits(8)", "BQ==", 5, "int64", (7, 7, 7)),
    same("longs", [2**40, None], [2**40, None], "ints", ([1, None],) * 3),
    wider("ARRAY<BIGINT>", "ints", [1, None], [1, None], "longs",
          ([2**40], [2**40], BAD), ([2], [2], [2])),
    other("ints", [1], [1], "texts", (["a"], ["a"], BAD), text="[1]", texts=("[a]",)),
    other("ints", [1], [1], "string", ("a", "a", BAD), text="[1]", texts=("a",)),
]

LONG = "1234567890123456.7891"
BARE_CHANGES = [
    wider("DECIMAL(20, 0)", "BIGINT", 5, 5, "DECIMAL(20, 0)", (2**63, D(2**63), BAD), (7, D(7), 7)),
    wider("DECIMAL(25, 5)", "DECIMAL(24, 4)", RAW(LONG), D(LONG), "DECIMAL(25, 5)",
          (RAW("0.12345"), D("0.12345"), BAD), (7, D(7), D(7))),
    same("DOUBLE", 0.5, 0.5, "BIGINT", (5, 5.0, 5.0), (2**53, 2.0**53, 2.0**53)),
    other("DOUBLE", 0.5, 0.5, "BIGINT", (2**53 + 1, 2**53 + 1, BAD),
          text="0.5", texts=("9007199254740993",)),
    other("DOUBLE", 0.5, 0.5, "DECIMAL(24, 4)", (RAW(LONG), D(LONG), BAD),
          text="0.5", texts=(LONG,)),
    other("BIGINT", 5, 5, "DOUBLE", (1.5, 1.5, BAD), text="5", texts=("1.5",)),
    other("BIGINT", 5, 5, "STRING", ("5", "5", BAD), ("x", "x", BAD), text="5", texts=("5", "x")),
    other("BIGINT", 1, 1, "BOOLEAN", (True, True, BAD), text="1", texts=("true",)),
    other("BIGINT", 5, 5, "STRING", ({"a": 1}, '{"a":1}', BAD), text="5", texts=('{"a":1}',)),
    other("BIGINT", 5, 5, "STRING", ([1], "[1]", BAD), text="5", texts=("[1]",)),
    other("DOUBLE", 0.5, 0.5, "STRING", ("x", "x", BAD), text="0.5", texts=("x",)),
    other("BOOLEAN", True, True, "STRING", ("x", "x", BAD), text="true", texts=("x",)),
    other("BOOLEAN", True, True, "BIGINT", (0, 0, BAD), (1, 1, BAD), text="true", texts=("0", "1")),
    other("STRING", "x", "x", "BIGINT", (5, 5, BAD), text="x", texts=("5",)),
    other("STRING", "x", "x", "BOOLEAN", (True, True, BAD), text="x", texts=("true",)),
    other("STRING", "x", "x", "DOUBLE", (0.5, 0.5, BAD), text="x", texts=("0.5",)),
    same("STRING", "x", "x", "STRING", ({"a": 1}, '{"a":1}', '{"a":1}'), ([1], "[1]", "[1]")),
    same("STRING", {"a": 1}, '{"a":1}', "STRING", ("x", "x", "x")),
]
"""Without declared types; names are those of the columns."""

CANAL = {
    "varchar(3)": "VARCHAR(3)",
    "varchar(5)": "VARCHAR(5)",
    "char(2)": "VARCHAR(2)",
    "text": "STRING",
    "varbinary(2)": "VARBINARY(2)",
    "varbinary(4)": "VARBINARY(4)",
    "tinyint": "TINYINT",
    "int": "INT",
    "int unsigned": "BIGINT",
    "bigint": "BIGINT",
    "bigint unsigned": "DECIMAL(20, 0)",
    "decimal(6,2)": "DECIMAL(6, 2)",
    "decimal(9,4)": "DECIMAL(9, 4)",
    "datetime(3)": "TIMESTAMP(3)",
    "datetime(6)": "TIMESTAMP(6)",
    "date": "DATE",
    "enum('a','b')": "STRING",
    "json": "STRING",
}
CANAL_CHANGES = [
    wider("VARCHAR(5)", "varchar(3)", "abc", "abc", "varchar(5)", ("abcde", "abcde", BAD),
          ("d", "d", "d")),
    wider("VARCHAR(3)", "char(2)", "ab", "ab", "varchar(3)", ("abc", "abc", BAD)),
    same("varchar(5)", "abcde", "abcde", "varchar(3)", ("abc", "abc", "abc")),
    wider("VARBINARY(4)", "varbinary(2)", "\x01\xff", b"\1\xff", "varbinary(4)",
          ("\x01\x02\x03", b"\1\2\3", BAD)),
    wider("INT", "tinyint", "5", 5, "int", ("70000", 70_000, BAD), ("7", 7, 7)),
    wider("BIGINT", "int", "5", 5, "int unsigned", ("4294967295", 2**32 - 1, BAD)),
    wider("DECIMAL(20, 0)", "bigint", "-5", -5, "bigint unsigned",
          ("18446744073709551615", D(2**64 - 1), BAD)),
    wider("DECIMAL(9, 4)", "decimal(6,2)", "1.25", D("1.25"), "decimal(9,4)",
          ("12345.6789", D("12345.6789"), BAD)),
    wider("DECIMAL(12, 2)", "decimal(6,2)", "1.25", D("1.25"), "int", ("70000", D(70_000), BAD)),
    wider("TIMESTAMP(6)", "datetime(3)", MS, moment(MS), "datetime(6)", (US, moment(US), BAD)),
    same("datetime(6)", US, moment(US), "datetime(3)", (MS, moment(MS), moment(MS))),
    other("int", "5", 5, "varchar(3)", ("abc", "abc", BAD), text="5", texts=("abc",)),
    other("int", "5", 5, "date", ("2024-02-29", datetime.date(2024, 2, 29), BAD),
          text="5", texts=("2024-02-29",)),
    other("text", "a", "a", "int", ("5", 5, "5"), text="a", texts=("5",)),  # texts are sent
    same("enum('a','b')", "a", "a", "text", ("long", "long", "long")),
    same("json", "{}", "{}", "text", ("x", "x", "x")),
]
"""With MySQL's types, as Canal sends them."""
# fmt: on

MODES = ("evolve", "try_evolve", "lenient", "ignore", "exception")
RULES = ("quarantine_rows", "quarantine_table", "new_column", "string", "fail")
NULL_ID, OLD_ID, GONE_ID = 8, 9, 10


def field(name):
    _, kind, semantic, more = FIELDS[name]
    return connect_field("v", kind, semantic, **more)


def rows_of(change):
    """(operation, id, name of the type, value) in the order of the source."""
    yield "c", 1, change.old, change.value
    yield "c", 2, change.old, change.value
    yield "c", GONE_ID, change.old, change.value
    yield "d", GONE_ID, change.new, change.rows[0][0]
    yield "u", 2, change.new, change.rows[0][0]
    for number, (value, *_) in enumerate(change.rows):
        yield "c", 3 + number, change.new, value
    if not change.new.startswith("not null"):
        yield "c", NULL_ID, change.new, None
    yield "c", OLD_ID, change.old, change.value


def images(op, row):
    return (row, None) if op == "d" else (None, row)


class Block:
    """JSON with schema blocks."""

    config = "type: files, path: /nowhere"

    def record(self, table, op, number, name, value):
        block = connect_block(connect_field("id", "int64"), field(name), table=table)
        payload = event(op, *images(op, {"id": number, "v": value}), table=table)
        return b'{"id":%d}' % number, dumps({"schema": block, "payload": payload})


class Bare:
    """JSON without types."""

    config = Block.config

    def record(self, table, op, number, name, value):
        raw = isinstance(value, RAW)
        row = {"id": number, "v": "@@" if raw else value}
        message = dumps(event(op, *images(op, row), table=table))
        return b'{"id":%d}' % number, message.replace(b'"@@"', value.encode()) if raw else message


class Canal:
    """Canal's JSON with MySQL's types."""

    config = "type: files, path: /nowhere, format: canal-json"

    def record(self, table, op, number, name, value):
        message = {
            "database": "shop",
            "table": table,
            "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op],
            "data": [{"id": str(number), "v": value}],
            "mysqlType": {"id": "bigint", "v": name},
            "pkNames": ["id"],
            "isDdl": False,
        }
        return b"", dumps(message)


class Avro:
    """Avro with schemas in a registry."""

    def __init__(self, stub):
        self.config = (
            'type: kafka, bootstrap.servers: "127.0.0.1:1", topics: [t], format: debezium-avro, '
            f'schema.registry: {{url: "{stub.url}"}}'
        )
        self.key = Writer(key_schema(id="long"), 1)
        self.writers = {
            name: Writer(envelope({"id": "long", "v": avro_type(field(name), "v")}), 2 + number)
            for number, name in enumerate(FIELDS)
        }
        for writer in (self.key, *self.writers.values()):
            stub.add(int.from_bytes(writer.prefix[1:], "big"), writer.schema)

    def record(self, table, op, number, name, value):
        row = {"id": number, **avro_row([field(name)], {"v": value})}
        payload = event(op, *images(op, row), table=table) | {"transaction": None}
        return self.key({"id": number}), self.writers[name](payload)


class Shop:
    """A stream of one table per change."""

    def __init__(self, path, way, mode, rule, changes):
        self.changes = {f"t{number}": change for number, change in enumerate(changes)}
        rules = f"tables: [{{match: shop.*, on.incompatible: {rule}}}]\n" if rule else ""
        self.stream = LocalStream(
            path,
            f"source: {{{way.config}}}\nsink: {{warehouse: WAREHOUSE}}\n{rules}"
            f"pipeline: {{name: shop, schema.change.behavior: {mode}}}\n",
        )
        self.way = way
        self.batches = self.offset = 0
        self.at = {}

    def run(self, rows):
        """A batch of (table, (operation, id, type, value))."""
        keys, values = zip(*(self.way.record(table, *row) for table, row in rows), strict=True)
        offsets = range(self.offset, self.offset + len(rows))
        self.at.update(zip(offsets, ((table, row[1]) for table, row in rows), strict=True))
        raw = RawBatch("t", 0, list(offsets), list(keys), list(values))
        self.stream.run(self.batches, {("t", 0): [raw]})
        self.batches += 1
        self.offset += len(rows)

    def found(self, table, bad):
        """(types of the columns beside the key, rows by id, ids of bad records)."""
        kept = self.stream.table(f"shop.{table}")
        types = {f.name: type_name(f.type) for f in kept.schema.fields if f.name != "id"}
        rows = {row.pop("id"): row for row in kept.to_arrow().to_pylist()}
        return types, rows, bad.get(table, [])

    def bad(self):
        """Ids of bad records by table."""
        found = {}
        for row in self.stream.rows(self.stream.book.quarantine):
            table, number = self.at[row["offset"]]
            found.setdefault(table, []).append(number)
        return found


def expected(change, mode, rule, *, declared=True):
    """(types, rows, bad) as the documents say; None = the stream stops, "parked" = the table."""
    old, new = (
        CANAL[name] if change in CANAL_CHANGES else FIELDS.get(name, (name,))[0]
        for name in (change.old, change.new)
    )
    makes = mode not in ("ignore", "exception")
    rows = [*change.rows[:1], *change.rows]
    numbers = [2, *range(3, 3 + len(change.rows))]
    nulls = [] if change.new.startswith("not null") else [NULL_ID]
    if change.same:
        return kept({"v": old}, change, numbers, rows, nulls, [r[2] for r in rows])
    if not (declared or change.wider or rule):
        rule = "quarantine_rows"
        mode = "ignore"
    if mode == "exception":
        return None
    if change.wider and makes:
        return kept({"v": change.wider}, change, numbers, rows, nulls, [r[1] for r in rows])
    if rule is None and mode in ("evolve", "try_evolve") and new in ("STRING", "VARCHAR(3)"):
        rule = "string" if change.text is not None else rule
    if rule == "fail" or (rule is None and mode == "evolve"):
        return None
    if rule == "quarantine_table":
        return "parked"
    if makes and rule == "string" and change.text is not None:
        texts = [*change.texts[:1], *change.texts]
        return kept({"v": "STRING"}, change, numbers, rows, nulls, texts, change.text)
    if makes and rule in ("string", "new_column"):
        types, found, bad = kept(
            {"v": old, "v_1": new}, change, numbers, rows, nulls, [None for _ in rows]
        )
        for number, row in zip(numbers, rows, strict=True):
            found[number]["v_1"] = row[1]
        for number in (1, OLD_ID, *nulls):
            found[number]["v_1"] = None
        return types, found, bad
    return kept({"v": old}, change, numbers, rows, nulls, [r[2] for r in rows])


def kept(types, change, numbers, rows, nulls, values, first=None):
    first = change.stored if first is None else first
    found = {1: {"v": first}, 2: {"v": first}, OLD_ID: {"v": first}}
    found |= {number: {"v": None} for number in nulls}
    bad = []
    for number, value in zip(numbers, values, strict=True):
        if value is BAD:
            bad.append(number)
        else:
            found[number] = {"v": value}
    return types, dict(sorted(found.items())), bad


def run(shop, way, mode, rule, batches):
    """Run the changes in batches of each table's rows, by the numbers of their first rows."""
    declared = not isinstance(way, Bare)
    wanted = {
        table: expected(change, mode, rule, declared=declared)
        for table, change in shop.changes.items()
    }
    rows = {table: list(rows_of(change)) for table, change in shop.changes.items()}
    stopping = {table for table, outcome in wanted.items() if outcome is None}
    for start, end in itertools.pairwise([*batches, None]):
        part = [
            (table, row)
            for table, some in rows.items()
            for row in some[start:end]
            if table not in stopping or start == 0
        ]
        if part:
            shop.run(part)
        shop.stream.start()  # nothing is known but what tables have
    for table in stopping:
        with pytest.raises(SchemaStopError):
            shop.run([(table, row) for row in rows[table][batches[-1] :]])
    parked, bad = shop.stream.book.parking.parked(), shop.bad()
    for table, outcome in wanted.items():
        if outcome == "parked":
            assert f"shop.{table}" in parked, shop.changes[table]
        elif outcome is not None:
            assert shop.found(table, bad) == outcome, shop.changes[table]


@pytest.fixture(scope="module")
def ways():
    with stub_registry() as stub:
        yield {"block": Block(), "avro": Avro(stub), "bare": Bare(), "canal": Canal()}


def changes_of(name, rule):
    changes = {"bare": BARE_CHANGES, "canal": CANAL_CHANGES}.get(name, CHANGES)
    return [change for change in changes if rule is None or not change.same]


def long_form(*combinations):
    return [pytest.param(*one, marks=pytest.mark.full) for one in combinations]


@pytest.mark.parametrize(
    ("name", "mode", "rule"),
    [
        *itertools.product(("block", "bare", "canal"), MODES, (None,)),
        *itertools.product(("block", "bare"), ("lenient",), RULES),
        *itertools.product(("block", "bare"), ("evolve", "exception"), ("string",)),
        *itertools.product(("block",), ("ignore",), ("new_column", "quarantine_table", "fail")),
        ("avro", "lenient", "new_column"),
        ("canal", "lenient", "string"),
        *long_form(
            ("avro", "lenient", "string"),
            ("avro", "try_evolve", None),
            ("canal", "lenient", "new_column"),
        ),
    ],
)
def test_what_becomes_of_columns_and_rows(tmp_path, ways, name, mode, rule):
    shop = Shop(tmp_path, ways[name], mode, rule, changes_of(name, rule))
    run(shop, ways[name], mode, rule, [0, 3])


GUESSED = [("DOUBLE", "DECIMAL(24, 4)"), ("BIGINT", "DOUBLE")]
"""A first batch determines the types of numbers that it does not declare."""


@pytest.mark.parametrize(
    ("name", "mode", "rule", "batches"),
    [
        ("block", "try_evolve", None, [0]),
        ("avro", "lenient", "string", [0]),
        ("canal", "lenient", "new_column", [0]),
        ("bare", "lenient", "new_column", [0, 1, 2, 3, 4, 5, 6]),
        *long_form(
            ("block", "ignore", None, [0]),
            ("block", "lenient", "new_column", [0]),
            ("bare", "lenient", "string", [0]),
            ("block", "lenient", "string", [0, 1, 2, 3, 4, 5, 6]),
        ),
    ],
)
def test_other_batches_give_the_same(tmp_path, ways, name, mode, rule, batches):
    changes = [c for c in changes_of(name, rule) if (c.old, c.new) not in GUESSED]
    run(Shop(tmp_path, ways[name], mode, rule, changes), ways[name], mode, rule, batches)


def test_a_first_batch_with_a_change_stops_where_changes_do(tmp_path, ways):
    change = next(c for c in CHANGES if c.label == "int32 to date")
    shop = Shop(tmp_path, ways["block"], "evolve", None, [change])
    with pytest.raises(SchemaStopError, match="INT cannot become DATE"):
        shop.run([("t0", row) for row in rows_of(change)])


def test_defaults_of_the_source_fill_nothing(tmp_path, ways):
    change = next(c for c in CHANGES if c.new == "int32 default 7")
    shop = Shop(tmp_path, ways["block"], "lenient", None, [change])
    key, value = ways["block"].record("t0", "c", 1, change.new, 5)
    missing = value.replace(b',"v":5', b"")
    assert missing != value
    shop.stream.run(0, {("t", 0): [RawBatch("t", 0, [0], [key], [missing])]})
    assert shop.found("t0", shop.bad()) == ({"v": "INT"}, {1: {"v": None}}, [])
