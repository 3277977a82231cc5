# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL tables with every type of CDC.md §1.6 that the database has."""

from tests.e2e.real_tables import NOT_COMPARED, Column, RealTable

PREPARE = (
    "CREATE EXTENSION IF NOT EXISTS hstore",
    "CREATE EXTENSION IF NOT EXISTS ltree",
    "CREATE EXTENSION IF NOT EXISTS citext",
    "CREATE TYPE mood AS ENUM ('sad', 'so so', 'très bien')",
    "CREATE DOMAIN postcode AS varchar(12) CHECK (length(VALUE) > 1)",
)

_LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series({0}, {0} + 70) AS i)"


NUMBERS = RealTable(
    "numbers",
    (
        Column("sm", "smallint", ("0", "-32768", "32767")),
        Column("i", "integer", ("0", "-2147483648", "2147483647")),
        Column("big", "bigint", ("0", "-9223372036854775808", "9223372036854775807")),
        Column("r", "real", ("0", "1.5", "-3.4e38", "1e-40", "'NaN'", "'Infinity'")),
        Column("d", "double precision", ("0", "1.1", "-1.7e308", "5e-324", "'-Infinity'", "'NaN'")),
        Column("n", "numeric(10,2)", ("0", "12345678.90", "-0.01", "1.28", "-1.28")),
        Column(
            "wide", "numeric(38,10)", ("1234567890123456789012345678.0123456789", "-0.0000000001")
        ),
        Column("whole", "numeric(20,0)", ("18446744073709551615", "-1", "0")),
        Column("cash", "money", ("12.34", "'-1234.56'"), "{}::numeric"),
        Column("flag", "boolean", ("true", "false")),
        Column("o", "oid", ("1", "4294967295")),
    ),
)

DECIMALS = RealTable(
    "decimals",
    (
        Column(
            "free",
            "numeric",
            ("0", "1.10", "-12345678901234567890.000000001", "1e20"),
            "trim_scale({})::text",
        ),
        Column(
            "huge",
            "numeric(50,10)",
            ("1234567890123456789012345678901234567890.5", "-0.5"),
            "{}::text",
        ),
        Column("small", "numeric(5,5)", ("0.12345", "-0.00001")),
    ),
)

TEXTS = RealTable(
    "texts",
    (
        Column("c", "char(6)", ("'ab'", "'äöüß€😀'")),
        Column("v", "varchar(20)", ("''", "'a\"b\\c'", "E'tab\\tline\\n'", "'日本語'")),
        Column("t", "text", ("'null'", "'{\"a\": 1}'", "''")),
        Column("ci", "citext", ("'MiXed'",)),
        Column("b", "bytea", ("'\\x'", "'\\x00ff10'", "convert_to('text', 'UTF8')")),
        Column("e", "mood", ("'sad'", "'so so'", "'très bien'")),
        Column("x", "xml", ("'<a b=\"1\">t</a>'",)),
        Column("p", "postcode", ("'1234'", "'AB 12'")),
    ),
)

TIMES = RealTable(
    "times",
    (
        Column("d", "date", ("'2024-02-29'", "'1969-12-31'", "'0001-01-01'", "'9999-12-31'")),
        Column("t", "time", ("'00:00:00'", "'23:59:59.999'", "'12:34:56.789'")),
        Column("t3", "time(3)", ("'00:00:00.001'", "'23:59:59.999'")),
        Column("ts", "timestamp", ("'2024-02-29 12:34:56.123456'", "'1950-01-01 00:00:00.000001'")),
        Column("ts3", "timestamp(3)", ("'2024-02-29 12:34:56.123'", "'1969-12-31 23:59:59.999'")),
        Column("tstz", "timestamptz", ("'2024-02-29 12:34:56.12+05:30'", "'2024-06-01 00:00:00Z'")),
        Column("tz", "timetz", ("'04:05:06.789-08:00'", "'23:00:00+00'"), NOT_COMPARED),
        Column("iv", "interval", ("'1 year 2 mons 3 days 04:05:06.7'", "'-1 day'"), NOT_COMPARED),
    ),
)

INFINITIES = RealTable(
    "infinities",
    (
        Column("d", "date", ("'infinity'", "'2024-01-01'"), NOT_COMPARED),
        Column("ts", "timestamp", ("'infinity'", "'-infinity'", "'2024-01-01'"), NOT_COMPARED),
        Column("tstz", "timestamptz", ("'infinity'", "'-infinity'"), NOT_COMPARED),
        Column("n", "numeric", ("'NaN'", "1"), NOT_COMPARED),
        Column("old", "timestamp", ("'0044-03-15 12:00 BC'", "'12345-01-01'"), NOT_COMPARED),
    ),
)

NEGATIVE_SCALES = RealTable(
    "negative_scales", (Column("rounded", "numeric(4,-2)", ("123456", "-100"), NOT_COMPARED),)
)

BITS = RealTable(
    "bit_strings",
    (
        Column("one", "bit(1)", ("B'1'", "B'0'"), NOT_COMPARED),
        Column("five", "bit(5)", ("B'10110'", "B'00001'"), "{}::int"),
        Column("nine", "bit(9)", ("B'110100101'", "B'000000001'"), "{}::int"),
        Column("sixty_four", "bit(64)", ("~(0::bit(64))", "1::bit(64)"), NOT_COMPARED),
        Column("varying", "bit varying(20)", ("B'1'", "B'10110111000111'"), NOT_COMPARED),
    ),
)

DOCUMENTS = RealTable(
    "documents",
    (
        Column("j", "json", ('\'{"a": [1, 2.50, null], "é": "x"}\'', "'3'", "'null'"), "{}::text"),
        Column("jb", "jsonb", ('\'{"b": {"c": true}}\'', "'[]'", "'\"text\"'"), "{}::text"),
        Column("h", "hstore", ("'a=>1, b=>NULL'", "''"), NOT_COMPARED),
        Column("l", "ltree", ("'top.science.astronomy'",), "{}::text"),
        Column("u", "uuid", ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",), "{}::text"),
        Column("tv", "tsvector", ("to_tsvector('simple', 'fat cats')",), NOT_COMPARED),
    ),
)

NETWORKS = RealTable(
    "networks",
    (
        Column(
            "i",
            "inet",
            ("'192.168.0.1'", "'192.168.0.1/24'", "'::1'"),
            "NULLIF(format('%s', {}), '')",  # as printed; a cast adds /32
        ),
        Column("c", "cidr", ("'10.0.0.0/8'",), "{}::text"),
        Column("m", "macaddr", ("'08:00:2b:01:02:03'",), "{}::text"),
        Column("m8", "macaddr8", ("'08:00:2b:01:02:03:04:05'",), "{}::text"),
    ),
)

ARRAYS = RealTable(
    "arrays",
    (
        Column("ints", "int4[]", ("'{1,2,NULL}'", "'{}'", "'{-2147483648}'")),
        Column("bigs", "int8[]", ("'{9223372036854775807}'", "'{}'")),
        Column("flags", "bool[]", ("'{t,f}'",)),
        Column("texts", "text[]", ("'{a,\"b c\",NULL}'", "'{\"\"}'")),
        Column("doubles", "float8[]", ("'{1.5,-2}'",)),
        Column("numerics", "numeric(10,2)[]", ("'{1.10,-2.25}'",)),
        Column("dates", "date[]", ("'{2024-02-29}'",)),
        Column("stamps", "timestamp[]", ("'{\"2024-02-29 12:34:56.123456\"}'",)),
        Column("zoned", "timestamptz[]", ("'{\"2024-02-29 12:34:56.123456+01\"}'",)),
        Column("uuids", "uuid[]", ("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'",), "{}::text[]"),
        Column("raw", "bytea[]", ("ARRAY['\\x00ff'::bytea]",), NOT_COMPARED),
    ),
)

GEOMETRIES = RealTable(
    "geometries",
    (
        Column("p", "point", ("'(1.5,-2)'", "'(0,0)'"), NOT_COMPARED),
        Column("l", "line", ("'{1,2,3}'",), NOT_COMPARED),
        Column("s", "lseg", ("'[(0,0),(1,1)]'",), NOT_COMPARED),
        Column("b", "box", ("'((1,1),(0,0))'",), NOT_COMPARED),
        Column("way", "path", ("'[(0,0),(1,1),(2,0)]'",), NOT_COMPARED),
        Column("area", "polygon", ("'((0,0),(1,1),(2,0))'",), NOT_COMPARED),
        Column("round", "circle", ("'<(1,2),3>'",), NOT_COMPARED),
    ),
)

RANGES = RealTable(
    "ranges",
    (
        Column("i", "int4range", ("'[1,10)'", "'empty'"), "{}::text"),
        Column("big", "int8range", ("'[1,)'",), "{}::text"),
        Column("n", "numrange", ("'(1.5,2.5]'",), "{}::text"),
        Column("d", "daterange", ("'[2024-01-01,2024-02-01)'",), "{}::text"),
        Column("t", "tsrange", ("'[2024-01-01 00:00,2024-02-01 00:00)'",), NOT_COMPARED),
        Column("tz", "tstzrange", ("'[2024-01-01 00:00+00,2024-02-01 00:00+00)'",), NOT_COMPARED),
    ),
)

TOASTED = RealTable(
    "toasted",
    (
        Column("small", "int", ("1", "2", "3")),
        Column("t", "text", (_LONG.format(1), _LONG.format(1000), "'short'")),
        Column("j", "jsonb", (f"jsonb_build_object('k', {_LONG.format(1)})",)),
        Column("b", "bytea", (f"decode({_LONG.format(7)}, 'hex')",)),
        Column("a", "text[]", (f"ARRAY[{_LONG.format(1)}, {_LONG.format(2)}]",)),
        Column("ia", "int4[]", ("(SELECT array_agg(i * 7919) FROM generate_series(1, 700) AS i)",)),
    ),
    after=tuple(
        f"ALTER TABLE toasted ALTER COLUMN {name} SET STORAGE EXTERNAL"
        for name in ("t", "j", "b", "a", "ia")
    ),
    touched=("small", "t"),
    keeps_key=True,  # with a new key the connector does not send what did not change
)

KEYED = RealTable(
    "keyed",
    (Column("note", "text", ("'a'", "'b'")), Column("amount", "numeric(8,2)", ("1.5", "-2"))),
    key=(("region", "varchar(8)"), ("id", "int"), ("big", "bigint")),
)

WHOLE = RealTable(
    "whole",
    (Column("a", "int", ("1", "2")), Column("t", "text", ("'x'", _LONG.format(5)))),
    after=("ALTER TABLE whole REPLICA IDENTITY FULL",),
)

_ADDED = KEYED.altered(plus=[Column("extra", "varchar(20)", ("'x'", "'y'"))])
_WIDER = _ADDED.altered(plus=[Column("amount", "numeric(12,4)", ("12345678.1234", "-2"))])

EVOLUTION = (
    ("ALTER TABLE keyed ADD COLUMN extra varchar(20)", _ADDED),
    ("ALTER TABLE keyed ALTER COLUMN amount TYPE numeric(12,4)", _WIDER),
    ("ALTER TABLE keyed DROP COLUMN note", _WIDER.altered(without="note")),
)
"""DDL statements in their order, each with what its table is then."""

TABLES = (
    NUMBERS,
    DECIMALS,
    TEXTS,
    TIMES,
    BITS,
    DOCUMENTS,
    NETWORKS,
    ARRAYS,
    GEOMETRIES,
    RANGES,
    TOASTED,
    KEYED,
    WHOLE,
)
"""What the lake must hold exactly as the database does."""

ODD = (INFINITIES, NEGATIVE_SCALES)
"""What Debezium does not carry as it is: infinite times, numeric NaN, scales below zero."""
