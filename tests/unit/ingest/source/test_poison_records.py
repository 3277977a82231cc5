# SPDX-License-Identifier: Apache-2.0
"""What a record holds ends no batch: members of any name and values of any depth, in every format,
through map side, schema changes, reduce side and commits. Tables beside them get their rows."""

import json

import pytest

from ingest.source.records import RawBatch
from tests.unit.ingest.debezium_events import connect_block, connect_field
from tests.unit.ingest.local_stream import LocalStream

CONFIG = """
source: {{type: files, path: /nowhere, format: {format}}}
sink: {{warehouse: "WAREHOUSE"}}
pipeline: {{name: test}}
tables: [{{match: '*', primary.key: [{key}]}}]
"""
NAMES = [
    'say "hi"',
    "back\\slash",
    "line\nfeed",
    "tab\t",
    "\x01",
    "\x7f",
    "é",
    "a.b",
    "A/b",
    "x" * 500,
]
KEYS = ['k"', "k\\", "k\n2", "a\t2", "\0k"]
DEEP = "[" * 1_500 + "]" * 1_500
QUARANTINE = "lakeward._quarantine"


def text(value):
    return json.dumps(value)


def columns(row):
    return [connect_field(name, "int64" if name == "id" else "string") for name in row]


def debezium(table, row):
    source = {"db": "shop", "table": table, "ts_ms": 5}
    return text({"before": None, "after": row, "op": "c", "source": source})


WRITERS = {
    "debezium-json": debezium,
    "debezium-json block": lambda table, row: (
        f'{{"schema":{text(connect_block(*columns(row)))},"payload":{debezium(table, row)}}}'
    ),
    "debezium-flat": lambda table, row: text({**row, "__op": "c", "__table": table}),
    "debezium-flat block": lambda table, row: text(
        {
            "schema": {"type": "struct", "fields": columns({**row, "__table": ""})},
            "payload": {**row, "__table": table},
        }
    ),
    "json": lambda table, row: text(row),
    "upsert-json": lambda table, row: text(row),
    "canal-json": lambda table, row: text(
        {"type": "INSERT", "data": [row], "database": "shop", "table": table, "isDdl": False}
    ),
    "canal-json types": lambda table, row: text(
        {
            "type": "INSERT",
            "data": [{name: str(value) for name, value in row.items()}],
            "mysqlType": {name: "bigint" if name == "id" else "text" for name in row},
            "database": "shop",
            "table": table,
            "isDdl": False,
        }
    ),
    "maxwell-json": lambda table, row: text(
        {"type": "insert", "database": "shop", "table": table, "data": row, "ts": 5}
    ),
    "ogg-json": lambda table, row: text(
        {"table": f"shop.{table}", "op_type": "I", "op_ts": "2020-01-01 00:00:00", "after": row}
    ),
    "aws-dms-json": lambda table, row: text(
        {
            "data": row,
            "metadata": {
                "operation": "insert",
                "record-type": "data",
                "schema-name": "shop",
                "table-name": table,
            },
        }
    ),
}
TABLES = ("items", "others")


class Stream:
    """Two topics, one for each table, and each batch through the whole sink."""

    def __init__(self, directory, way, key="id"):
        self.way = way
        self.local = LocalStream(
            directory, CONFIG.format(format=way.split(" ")[0], key=text(key).replace("\n", "\\n"))
        )
        self.offset = self.number = 0

    def run(self, *records):
        """(table, row or text) of each record."""
        batch = {}
        for table in TABLES:
            values = [
                r if isinstance(r, str) else self.write(table, r) for t, r in records if t == table
            ]
            if values:
                offsets = list(range(self.offset, self.offset + len(values)))
                keys = [None] * len(values)
                raw = RawBatch(f"src.shop.{table}", 0, offsets, keys, [v.encode() for v in values])
                batch[raw.topic, 0] = [raw]
        self.local.run(self.number, batch)
        self.offset += len(records)
        self.number += 1

    def write(self, table, row):
        return WRITERS[self.way](table, row)

    def rows(self, table):
        (name,) = (n for n in self.local.book.schema_ids() if n.endswith(f".{table}"))
        found = self.local.table(name).to_arrow().to_pylist()
        return sorted(
            (
                {n: int(v) if n == "id" else v for n, v in row.items() if v is not None}
                for row in found
            ),
            key=lambda row: str([*row.values()]),
        )

    def bad(self):
        if QUARANTINE not in self.local.book.schema_ids():
            return []
        found = self.local.table(QUARANTINE).to_arrow().to_pylist()
        found = [row for row in found if row["state"] == "new"]
        return [(row["topic"].rpartition(".")[2], row["error_class"]) for row in found]


@pytest.mark.parametrize("way", WRITERS)
def test_columns_of_any_name_are_columns(way, tmp_path):
    stream = Stream(tmp_path, way)
    rows = [{"id": n, name: f"value {n}"} for n, name in enumerate(NAMES)]
    stream.run(("items", rows[0]), ("others", {"id": 1, "v": "a"}))
    stream.run(*(("items", row) for row in rows[1:]), ("others", {"id": 2, "v": "b"}))
    stream.run(
        ("items", {"id": 99, **dict.fromkeys(NAMES, "all")}), ("others", {"id": 3, "v": "c"})
    )
    assert stream.bad() == []
    expected = [*rows, {"id": 99, **dict.fromkeys(NAMES, "all")}]
    assert {row["id"]: row for row in stream.rows("items")} == {row["id"]: row for row in expected}
    assert [row["id"] for row in stream.rows("others")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("way", "name"),
    [
        # every name and every format, but not each name in each
        pytest.param(way, name, marks=() if number % len(KEYS) == at else pytest.mark.full)
        for number, way in enumerate(WRITERS)
        for at, name in enumerate(KEYS)
    ],
)
def test_keys_of_any_name_are_keys(way, name, tmp_path):
    stream = Stream(tmp_path, way, key=name)
    stream.run(("items", {name: "1", "v": "a"}), ("items", {name: "2", "v": "b"}))
    stream.run(("items", {name: "1", "v": "c"}), ("others", {name: "1", "v": "d"}))
    assert stream.bad() == []
    assert stream.rows("items") == [{name: "1", "v": "c"}, {name: "2", "v": "b"}]
    assert stream.rows("others") == [{name: "1", "v": "d"}]


@pytest.mark.parametrize("way", WRITERS)
@pytest.mark.parametrize("known", [True, False])
def test_values_of_any_depth_are_bad_records(way, known, tmp_path):
    stream = Stream(tmp_path, way)
    first = {"id": 1, "v": "a"} if known else {"id": 1}
    stream.run(("items", first), ("others", {"id": 1, "v": "a"}))
    poison = stream.write("items", {"id": 2, "v": "DEEP"}).replace('"DEEP"', DEEP)
    stream.run(("items", poison), ("items", {"id": 3, "v": "b"}), ("others", {"id": 2, "v": "b"}))
    assert [table for table, _ in stream.bad()] == ["items"]
    assert {error_class for _, error_class in stream.bad()} <= {"json", "type"}
    assert stream.rows("items") == [first, {"id": 3, "v": "b"}]
    assert [row["id"] for row in stream.rows("others")] == [1, 2]


@pytest.mark.parametrize("way", WRITERS)
def test_names_that_no_column_can_have_are_bad_records(way, tmp_path):
    """Of each name three records, every other one with a name; all are kept or all are bad."""
    stream = Stream(tmp_path, way)
    names = ["", " ", "\u2003", "_KEY_a", "_VALUE_KIND", "_OFFSET", "rowkind"]
    ids = {name: range(10 * n + 1, 10 * n + 7) for n, name in enumerate(names)}
    for batch, value in enumerate(("a", "a", None)):
        records = []
        for name, numbers in ids.items():
            odd, plain = numbers[2 * batch], numbers[2 * batch + 1]
            records += [("items", {"id": odd, name: value}), ("items", {"id": plain, "v": "b"})]
        stream.run(*records)
    assert stream.bad() == [("items", "schema")] * len(stream.bad())
    found = {row["id"]: row for row in stream.rows("items")}
    refused = 0
    for name, (one, v1, two, v2, null, v3) in ids.items():
        assert [found[n] for n in (v1, v2, v3)] == [{"id": n, "v": "b"} for n in (v1, v2, v3)]
        if one in found:
            assert [found[n] for n in (one, two)] == [{"id": n, name: "a"} for n in (one, two)]
        else:
            assert two not in found, name
            refused += 2 + (null not in found)
    assert len(stream.bad()) == refused


class Extra:
    """Headers and timestamp as no producer should write them."""

    def __init__(self, headers, timestamp):
        self._headers, self._timestamp = headers, timestamp

    def headers(self):
        if isinstance(self._headers, Exception):
            raise self._headers
        return self._headers

    def timestamp(self):
        return (1, self._timestamp)


NO_NAME = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a header's name")


@pytest.mark.parametrize(
    "extra",
    [
        Extra([("\ud800", "\udfff"), ("", None)], 5),
        Extra(NO_NAME, 5),
        Extra([], 2**63),
        Extra([], 2**62),
        Extra([], -(2**62)),
    ],
)
def test_bad_records_with_odd_headers_and_moments_are_kept(extra, tmp_path):
    stream = Stream(tmp_path, "debezium-json")
    raw = RawBatch("src.shop.items", 0, [0], [b"\xff"], [b"\xff"], extras={0: extra})
    stream.local.run(0, {(raw.topic, 0): [raw]})
    (held,) = stream.local.table(QUARANTINE).to_arrow().to_pylist()
    assert (held["value"], held["error_class"]) == (b"\xff", "json")


TABLE_NAMES = [
    *(
        "..",
        ".",
        "../../up",
        "/etc",
        "a/b",
        "a\\b",
        "nul\0",
        "line\nfeed",
        " ",
        "x" * 300,
        "\u2003",
    ),
    *(
        "\N{PILE OF POO}",
        "a.b",
        "a$snapshots",
        "a\N{RIGHT-TO-LEFT OVERRIDE}b",
        "CON",
        "-rf",
        "%2e%2e",
        "t\t",
        '"',
    ),
]


@pytest.mark.parametrize("way", ["debezium-json", "canal-json", "ogg-json", "maxwell-json"])
def test_tables_of_any_name_are_made_or_refused_and_stay_in_the_warehouse(way, tmp_path):
    (tmp_path / "in").mkdir()
    stream = Stream(tmp_path / "in", way)
    write = WRITERS[way]
    values = [write(name, {"id": 1, "v": "a"}).encode() for name in TABLE_NAMES]
    values.append(write("items", {"id": 1, "v": "a"}).encode())
    raw = RawBatch("src.shop", 0, list(range(len(values))), [None] * len(values), values)
    stream.local.run(0, {(raw.topic, 0): [raw]})
    assert stream.rows("items") == [{"id": 1, "v": "a"}]
    made = [n for n in stream.local.book.schema_ids() if not n.startswith("lakeward.")]
    assert len(made) + len(stream.bad()) == len(values)
    assert {error_class for _, error_class in stream.bad()} <= {"schema", "envelope", "table_name"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in"]
