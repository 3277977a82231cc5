# SPDX-License-Identifier: Apache-2.0
"""MariaDB tables with every type of CDC.md §1.6 that the database has.

Without `inet4`, `inet6` and the year 0000: Debezium 3.5 stops at them.
"""

from tests.e2e.real_tables import NOT_COMPARED, Column, RealTable

PREPARE = ()

_LONG = "REPEAT('long text ', 2000)"

NUMBERS = RealTable(
    "numbers",
    (
        Column("flag", "boolean", ("true", "false")),
        Column("ti", "tinyint", ("-128", "127")),
        Column("tiu", "tinyint unsigned", ("0", "255")),
        Column("si", "smallint", ("-32768", "32767")),
        Column("siu", "smallint unsigned", ("65535", "0")),
        Column("mi", "mediumint", ("-8388608", "8388607")),
        Column("miu", "mediumint unsigned", ("16777215",)),
        Column("i", "int", ("-2147483648", "2147483647")),
        Column("iu", "int unsigned", ("4294967295", "0")),
        Column("filled", "int(8) zerofill", ("42",)),
        Column("bi", "bigint", ("-9223372036854775808", "9223372036854775807")),
        Column("biu", "bigint unsigned", ("0", "9223372036854775807"), "{}"),
    ),
)

UNSIGNED = RealTable(
    "unsigned_bigs",
    (
        Column(
            "biu", "bigint unsigned", ("9223372036854775808", "18446744073709551615"), NOT_COMPARED
        ),
    ),
)

DECIMALS = RealTable(
    "decimals",
    (
        Column("n", "decimal(10,2)", ("0", "12345678.90", "-0.01", "1.28", "-1.28")),
        Column(
            "wide", "decimal(38,10)", ("1234567890123456789012345678.0123456789", "-0.0000000001")
        ),
        Column(
            "huge",
            "decimal(65,30)",
            ("12345678901234567890123456789012345.5", "-0.5"),
            "CAST({} AS CHAR)",
        ),
        Column("f", "float", ("0", "1.5", "-3.25"), "CAST({} AS DOUBLE)"),
        Column("d", "double", ("0", "1.1", "-1.7e308", "2.2250738585072014e-308")),
        Column("f2", "float(7,2)", ("12.5", "-0.25"), "CAST({} AS DOUBLE)"),
    ),
)

TEXTS = RealTable(
    "texts",
    (
        Column("c", "char(6)", ("'ab'", "'äöüß€😀'")),
        Column("v", "varchar(20)", ("''", "'a\"b\\\\c'", "'tab\\tline\\n'", "'日本語'")),
        Column("latin", "varchar(20) CHARACTER SET latin1", ("'äöü'", "'x'")),
        Column("tiny", "tinytext", ("'tiny'",)),
        Column("t", "text", ("'null'", "'{\"a\": 1}'", "''")),
        Column("lt", "longtext", (_LONG, "'short'")),
        Column("e", "enum('small','médium','large')", ("'small'", "'médium'")),
        Column("s", "set('a','b','c')", ("'a,c'", "''", "'a,b,c'")),
        Column("j", "json", ("'{\"a\": [1, 2.5, null]}'", "'3'")),
    ),
)

BINARIES = RealTable(
    "binaries",
    (
        Column("b4", "binary(4)", ("x'00ff1000'", "x'01'"), NOT_COMPARED),
        Column("vb", "varbinary(10)", ("x''", "x'00ff'")),
        Column("bl", "blob", ("x'deadbeef'", "''")),
        Column("lb", "longblob", ("x'00'",)),
        Column("u", "uuid", ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",), NOT_COMPARED),
    ),
)

TIMES = RealTable(
    "times",
    (
        Column("d", "date", ("'2024-02-29'", "'1969-12-31'", "'9999-12-31'", "'1000-01-01'")),
        Column("dt", "datetime", ("'2024-02-29 12:34:56'", "'1969-12-31 23:59:59'")),
        Column("dt3", "datetime(3)", ("'2024-02-29 12:34:56.123'",)),
        Column(
            "dt6", "datetime(6)", ("'2024-02-29 12:34:56.123456'", "'1950-01-01 00:00:00.000001'")
        ),
        Column(
            "ts", "timestamp NULL", ("'2024-02-29 12:34:56'", "'1970-01-01 00:00:01'"), NOT_COMPARED
        ),
        Column("ts6", "timestamp(6) NULL", ("'2024-02-29 12:34:56.120000'",), NOT_COMPARED),
        Column("t", "time", ("'00:00:00'", "'23:59:59'")),
        Column("t3", "time(3)", ("'12:34:56.789'",)),
        Column("t6", "time(6)", ("'12:34:56.789000'",)),
        Column("y", "year", ("2024", "1901", "2155")),
    ),
)

ODD_TIMES = RealTable(
    "odd_times",
    (
        Column("d", "date", ("'0000-00-00'", "'2024-01-00'"), NOT_COMPARED),
        Column("dt", "datetime", ("'0000-00-00 00:00:00'",), NOT_COMPARED),
        Column("ts", "timestamp NULL", ("'0000-00-00 00:00:00'",), NOT_COMPARED),
    ),
)

LONG_TIMES = RealTable(
    "long_times",
    (Column("t", "time(6)", ("'-12:00:00'", "'838:59:59'", "'24:00:00'"), NOT_COMPARED),),
)

BITS = RealTable(
    "bit_strings",
    (
        Column("one", "bit(1)", ("b'1'", "b'0'"), "{} + 0"),
        Column("five", "bit(5)", ("b'10110'",), "{} + 0"),
        Column("nine", "bit(9)", ("b'110100101'",), "{} + 0"),
        Column("sixty_four", "bit(64)", ("~0", "1"), NOT_COMPARED),
    ),
)

GEOMETRIES = RealTable(
    "geometries",
    (
        Column("p", "point", ("POINT(1.5, -2)",), NOT_COMPARED),
        Column("g", "geometry", ("ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)",), NOT_COMPARED),
        Column("l", "linestring", ("ST_GeomFromText('LINESTRING(0 0, 1 1)')",), NOT_COMPARED),
        Column("a", "polygon", ("ST_GeomFromText('POLYGON((0 0,1 1,2 0,0 0))')",), NOT_COMPARED),
        Column("m", "multipoint", ("ST_GeomFromText('MULTIPOINT(0 0,1 1)')",), NOT_COMPARED),
    ),
)

KEYED = RealTable(
    "keyed",
    (Column("note", "text", ("'a'", "'b'")), Column("amount", "decimal(8,2)", ("1.5", "-2"))),
    key=(("region", "varchar(8)"), ("id", "int"), ("big", "bigint")),
)

LONG = RealTable(
    "long_texts",
    (Column("small", "int", ("1", "2")), Column("t", "mediumtext", (_LONG, "'x'"))),
)

_ADDED = KEYED.altered(plus=[Column("extra", "varchar(20)", ("'x'", "'y'"))])
_WIDER = _ADDED.altered(plus=[Column("amount", "decimal(12,4)", ("12345678.1234", "-2"))])

EVOLUTION = (
    ("ALTER TABLE keyed ADD COLUMN extra varchar(20)", _ADDED),
    ("ALTER TABLE keyed MODIFY amount decimal(12,4)", _WIDER),
    ("ALTER TABLE keyed DROP COLUMN note", _WIDER.altered(without="note")),
)
"""DDL statements in their order, each with what its table is then."""

TABLES = (
    NUMBERS,
    DECIMALS,
    TEXTS,
    BINARIES,
    TIMES,
    BITS,
    GEOMETRIES,
    KEYED,
    LONG,
)
"""What the lake must hold exactly as the database does."""

ODD = (UNSIGNED, ODD_TIMES, LONG_TIMES)
"""What Debezium or the lake cannot carry: unsigned from 2^63, zero dates, times of over a day."""

PRECISE = UNSIGNED.altered(plus=[Column("biu", "bigint unsigned", UNSIGNED.columns[0].literals)])
"""What `bigint.unsigned.handling.mode: precise` carries."""
