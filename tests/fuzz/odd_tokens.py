# SPDX-License-Identifier: Apache-2.0
"""JSON texts that few expect: member names and values, whatever place they stand in."""

__all__ = ["BYTES", "DEPTHS", "NAMES", "VALUES"]


def _listed(text: str) -> tuple[bytes, ...]:
    parts = [part.strip() for line in text.splitlines() for part in line.split("¦")]
    return tuple(part.encode() for part in parts if part)


_NINES = b"9" * 5_000

NAMES: tuple[bytes, ...] = (
    *_listed(r"""
"" ¦ " " ¦ "\"" ¦ "\\" ¦ "\n" ¦ "\t" ¦ "\u0000" ¦ "a\u0000b" ¦ "\u001f" ¦ "\u007f" ¦ "\ud800"
"\udc00x" ¦ "\ud83d\ude00" ¦ "😀" ¦ "é" ¦ "e\u0301" ¦ "id" ¦ "ID" ¦ "\u0069d" ¦ "i\u0064" ¦ "Id "
"id\u2063" ¦ "id?" ¦ "\u2028" ¦ "_KEY_id" ¦ "_VALUE_KIND" ¦ "_OFFSET" ¦ "_UNAVAILABLE"
"rowkind" ¦ "_seq_1" ¦ "_SEQUENCE_NUMBER" ¦ "__op" ¦ "__deleted" ¦ "__table" ¦ "__" ¦ "op"
"source" ¦ "after" ¦ "before" ¦ "data" ¦ "old" ¦ "type" ¦ "schema" ¦ "payload" ¦ "ts_ms"
"table" ¦ "db" ¦ "database" ¦ "op_type" ¦ "metadata" ¦ "fields" ¦ "ddl" ¦ "f0" ¦ "a.b" ¦ "a/b"
"../x" ¦ "$ref" ¦ "a`b" ¦ "a'b" ¦ "%s" ¦ "{}" ¦ "{0}" ¦ "__debezium_unavailable_value" ¦ "\/"
"\b\f\r" ¦ "\uFEFF" ¦ "\uFFFF" ¦ "\x" ¦ "\u12"
"""),
    *(b'"' + b"n" * 300 + b'"', b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"a\x00b"', b'"a\tb"'),
    b'"a\nb"',
)

VALUES: tuple[bytes, ...] = (
    *_listed(r"""
null ¦ true ¦ false ¦ 0 ¦ -0 ¦ 1 ¦ -1 ¦ 255 ¦ 256 ¦ 32768 ¦ 2147483648 ¦ -2147483649
9223372036854775807 ¦ 9223372036854775808 ¦ -9223372036854775808 ¦ -9223372036854775809
18446744073709551615 ¦ 18446744073709551616 ¦ 10000000000000000000000000000000000000000 ¦ 1e400
-1e400 ¦ 1e-400 ¦ 1e9999 ¦ 1E+5000 ¦ 1e99999 ¦ 1e5000 ¦ 1e999999999999 ¦ 0e999999999 ¦ 1e3 ¦ 1.0
1.5 ¦ -0.0 ¦ 0.1 ¦ 1e0 ¦ 1.7976931348623157e308 ¦ 0.30000000000000004
123456789.123456789123456789 ¦ 1.10 ¦ 5e-324 ¦ 3.4028236e38 ¦ 01 ¦ +1 ¦ .5 ¦ 5. ¦ NaN ¦ Infinity
- ¦ nul ¦ tru ¦ "" ¦ " " ¦ "0" ¦ "1" ¦ "-1" ¦ "1.5" ¦ "1e3" ¦ "1e400" ¦ "NaN" ¦ "Infinity"
"-Infinity" ¦ "true" ¦ "false" ¦ "null" ¦ "x" ¦ "\u0000" ¦ "a\u0000b" ¦ "\ud800"
"\udfff\ud800" ¦ "\ud83d\ude00" ¦ "😀" ¦ "é" ¦ "\n\t\""
"10000000000000000000000000000000000000000" ¦ "9223372036854775808" ¦ "1e5000" ¦ "1E-5000"
"AA==" ¦ "AQ==" ¦ "/w==" ¦ "_w==" ¦ "AAA" ¦ "0x" ¦ "0xff" ¦ "ff" ¦ "FFF"
"__debezium_unavailable_value" ¦ "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
{"__debezium_unavailable_value":"__debezium_unavailable_value"}
["__debezium_unavailable_value"] ¦ "0000-00-00" ¦ "0000-00-00 00:00:00" ¦ "2020-02-30"
"9999-12-31" ¦ "10000-01-01" ¦ "-0001-01-01" ¦ "+292278994-08-17T07:12:55.807Z" ¦ "0001-01-01"
"2020-01-01T00:00:00Z" ¦ "2020-01-01T24:00:00Z" ¦ "2020-01-01 00:00:00.123456789" ¦ "23:59:60"
"2020-01-01T00:00:00+14:00" ¦ "0001-01-01T00:00:00+14:00" ¦ "9999-12-31T23:59:59-14:00"
"-838:59:59" ¦ "838:59:59.999999" ¦ "2020-01-01:00:00:00" ¦ "1e3" ¦ "٣" ¦ "1_000" ¦ [] ¦ {}
[null] ¦ [1] ¦ ["a"] ¦ [[]] ¦ [{"a":1}] ¦ {"a":1} ¦ {"":""} ¦ {"a":1,"a":2}
{"scale":2,"value":"AQ=="} ¦ {"scale":2147483647,"value":"AQ=="} ¦ {"scale":-5,"value":"fw=="}
{"scale":99999999999999999999,"value":""} ¦ {"scale":1e3,"value":"AQ=="}
{"wkb":"AQ==","srid":null} ¦ {"schema":null,"payload":{}} ¦ {"schema":{},"payload":1}
{"type":"struct","fields":[]} ¦ {"type":"struct","fields":null} ¦ [1,2,3,null] ¦ [1, ¦ { ¦ }
{"\ud800":1} ¦ {"a\nb":[{"":null}]} ¦ "c" ¦ "u" ¦ "d" ¦ "r" ¦ "t" ¦ "m" ¦ "C" ¦ "I" ¦ "U" ¦ "D"
"T" ¦ "INSERT" ¦ "UPDATE" ¦ "DELETE" ¦ "insert" ¦ "update" ¦ "delete" ¦ "load" ¦ "QUERY"
"TRUNCATE" ¦ "truncate-table" ¦ "control" ¦ "data" ¦ "first" ¦ "last" ¦ "BEGIN" ¦ 2146033979
9223372036825200000 ¦ -9223372036832400000 ¦ 253402300800000 ¦ -62135596800001 ¦ 1e308
86400000000 ¦ 86399999999999 ¦ -1000000000000000000000 ¦ 4.9E-324 ¦ [1e400] ¦ "bigint unsigned"
"decimal(1000,999)" ¦ "varchar(99999999999)" ¦ "bit(64)" ¦ "enum('a')" ¦ "int32" ¦ "int64"
"bytes" ¦ "array" ¦ "map" ¦ "struct" ¦ "io.debezium.time.Date"
"org.apache.kafka.connect.data.Decimal" ¦ "io.debezium.time.ZonedTimestamp" ¦ /**/1 ¦ 'a'
"""),
    *(b"0." + b"0" * 400 + b"1", b"1." + b"5" * 4_999, _NINES, b"-" + _NINES),
    *(b'"' + text * count + b'"' for text, count in ((b"x", 3_000), (b"9", 5_000), (b"/", 4_000))),
    *(b'"' + text * count + b'"' for text, count in ((b"A", 8_000), (b"f", 4_000))),
    b'{"scale":0,"value":"' + b"f" * 4_000 + b'"}',
    *(b'"\xff"', b'"a\x00b"', b"\x00", b"\xef\xbb\xbf1", b'"\xed\xa0\x80"', b"/**/1", b"'a'"),
)

BYTES: tuple[bytes, ...] = (
    *(b"", b"\x00", b"\xff", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\xef\xbb\xbf"),
    *(b"null", b"\n", b"1", b"\xc3\x28", b"\\u0000", b"\x80", b"\x01", b"\x7f", b"e999"),
)

DEPTHS: tuple[int, ...] = (1, 2, 3, 5, 40, 200, 500, 900, 1_000, 1_023, 1_025, 1_500, 5_000)
