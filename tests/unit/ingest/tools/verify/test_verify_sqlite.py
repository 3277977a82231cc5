# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify` with SQLite as the source: what is equal, what differs, and how it is said."""

import dataclasses
import datetime
import math
import sqlite3
from decimal import Decimal

import pytest

from ingest.cli import main as cli
from ingest.config.settings import TableRule
from ingest.daemon.configuration import load_settings
from ingest.errors import ExitCode
from ingest.tools.verify import compare, database, runs
from storage.clock import ManualClock
from tests.unit.ingest.tools.verify.kit import Pair


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


moment = datetime.datetime.fromisoformat
COLUMNS = (("id", "BIGINT"), ("name", "STRING"), ("amount", "DECIMAL(10, 2)"))
CREATE = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, amount DECIMAL(10, 2))"


def lake_rows(numbers):
    return [(i, f"name {i}", Decimal(i) + Decimal("0.25")) for i in numbers]


def source_rows(numbers):
    return [(i, f"name {i}", i + 0.25) for i in numbers]


def test_equal_tables_are_equal(pair, capsys):
    pair.lake(COLUMNS, lake_rows(range(-500, 500)))
    pair.source(CREATE, rows=source_rows(range(-500, 500)))
    code, found = pair.run(capsys, "--page-rows", "90")
    assert (code, found["outcome"]) == (0, "equal")
    assert found["source_rows"] == found["lake_rows"] == 1000
    assert found["source_checksum"] == found["lake_checksum"]
    assert (found["ranges"], found["ranges_differing"]) == (16, 0)


def test_empty_tables_are_equal(pair, capsys):
    pair.lake(COLUMNS)
    pair.source(CREATE)
    assert pair.run(capsys)[1]["outcome"] == "equal"


@pytest.mark.parametrize("side", ["source", "lake"])
def test_one_side_is_empty(pair, capsys, side):
    pair.lake(COLUMNS, lake_rows(range(30)) if side == "source" else ())
    pair.source(CREATE, rows=source_rows(range(30)) if side == "lake" else ())
    code, found = pair.run(capsys, "--show", "2")
    kind = {"source": "extra", "lake": "missing"}[side]
    assert (code, found[kind], len(found["examples"])) == (ExitCode.DIFFERENT, 30, 2)


def test_every_kind_of_difference_is_found_and_told(pair, capsys):
    table = pair.lake(COLUMNS, lake_rows(range(1000)))
    pair.put(table, [(1000, "extra", None), (7, "name 7", Decimal("9.99")), (8, None, None)])
    pair.put(table, lake_rows([77, 78]), kind="-D")
    pair.source(CREATE, rows=source_rows(range(1000)))
    code, found = pair.run(capsys, "--page-rows", "50")
    assert code == ExitCode.DIFFERENT
    assert (found["missing"], found["extra"], found["different"]) == (2, 1, 2)
    assert 2 <= found["ranges_differing"] <= 5
    examples = {
        (each["kind"], each["key"]["id"]): each.get("columns") for each in found["examples"]
    }
    assert examples == {
        ("missing", 77): None,
        ("missing", 78): None,
        ("extra", 1000): None,
        ("different", 7): {"amount": {"source": "7.25", "lake": "9.99"}},
        ("different", 8): {
            "name": {"source": "name 8", "lake": None},
            "amount": {"source": "8.25", "lake": None},
        },
    }


def test_text_for_people_says_the_same(pair, capsys):
    pair.lake(COLUMNS, lake_rows([1, 2]))
    pair.source(CREATE, rows=[*source_rows([1]), (2, "other", 2.25)])
    arguments = [each for each in pair.arguments() if each != "--json"]
    assert cli.main(arguments) == ExitCode.DIFFERENT
    out = capsys.readouterr().out
    assert "shop.t: different (t of sqlite://" in out
    assert "2 in the source, 2 in the lake (snapshot 1)" in out
    assert "0 missing in the lake, 0 extra in the lake, 1 different" in out
    assert "id = 2  name: source 'other', lake 'name 2'" in out


def test_masked_values_are_not_shown(pair, capsys):
    pair.lake(COLUMNS, lake_rows([1]))
    pair.source(CREATE, rows=[(1, "secret", 1.25)])
    _, found = pair.run(capsys, "--mask", "name")
    assert found["examples"][0]["columns"] == {"name": {"source": "***", "lake": "***"}}


@pytest.mark.parametrize("scans", [0, 4], ids=["one scan", "lookups"])
def test_examples_are_limited_and_keys_are_not(pair, capsys, monkeypatch, scans):
    monkeypatch.setattr(compare, "_SCANS", scans)
    pair.lake(COLUMNS, lake_rows(range(700)))
    pair.source(CREATE, rows=[(i, "x", 0) for i in range(100, 700)])
    _, found = pair.run(capsys, "--show", "3")
    assert (found["different"], found["extra"], found["complete"]) == (600, 100, True)
    assert len(found["examples"]) == 6


def test_the_search_ends_at_a_limit(pair, capsys):
    pair.lake(COLUMNS, lake_rows(range(500)))
    pair.source(CREATE, rows=[(i, "x", 0) for i in range(500)])
    _, found = pair.run(capsys, "--limit", "120", "--page-rows", "50")
    assert (found["different"], found["complete"], found["outcome"]) == (120, False, "different")


TYPES = (
    ("id", "INT"),
    ("flag", "BOOLEAN"),
    ("tiny", "TINYINT"),
    ("small", "SMALLINT"),
    ("big", "BIGINT"),
    ("f", "FLOAT"),
    ("d", "DOUBLE"),
    ("n", "DECIMAL(20, 5)"),
    ("s", "STRING"),
    ("b", "BYTES"),
    ("day", "DATE"),
    ("t", "TIME(3)"),
    ("ts", "TIMESTAMP(6)"),
    ("ts3", "TIMESTAMP(3)"),
    ("tz", "TIMESTAMP_LTZ(6)"),
    ("n2", "DECIMAL(38, 10)"),
)
TYPED = """CREATE TABLE t (id INTEGER PRIMARY KEY, flag BOOLEAN, tiny TINYINT, small SMALLINT,
big BIGINT, f FLOAT, d DOUBLE, n TEXT, s TEXT, b BLOB, day DATE, t TIME, ts TIMESTAMP,
ts3 TIMESTAMP, tz TIMESTAMP, n2 TEXT)"""
NOON = moment("2024-02-29T12:34:56.123456")
LAKE_TYPED = [
    (
        1,
        True,
        -128,
        32767,
        2**63 - 1,
        0.5,
        1.1,
        Decimal("1.50000"),
        "日本語 😀",
        b"\x00\xff",
        NOON.date(),
        datetime.time(23, 59, 59, 999000),
        NOON,
        NOON.replace(microsecond=123000),
        NOON.replace(tzinfo=datetime.UTC),
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    (
        2,
        False,
        0,
        0,
        -(2**63),
        -1.5,
        math.nan,
        Decimal(0),
        "",
        b"",
        datetime.date(1, 1, 1),
        datetime.time(),
        moment("0001-01-01"),
        moment("1969-12-31T23:59:59.999"),
        datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC),
        Decimal("-0.0000000001"),
    ),
    (3, *[None] * 15),
]
SOURCE_TYPED = [
    (1, 1, -128, 32767, 2**63 - 1, 0.5, 1.1, "1.5", "日本語 😀", b"\x00\xff", "2024-02-29",
     "23:59:59.9999", "2024-02-29 12:34:56.123456", "2024-02-29T12:34:56.123999",
     "2024-02-29 14:34:56.123456+02:00", "1234567890123456789012345678.0123456789"),
    (2, 0, 0, 0, -(2**63), -1.5, "NaN", 0, "", b"", "0001-01-01", "00:00:00",
     "0001-01-01 00:00:00", "1969-12-31 23:59:59.9991", "9999-12-31 00:00:00", "-0.0000000001"),
    (3, *[None] * 15),
]  # fmt: skip


def test_every_type_that_sqlite_can_carry(pair, capsys):
    pair.lake(TYPES, LAKE_TYPED)
    pair.source(TYPED, rows=SOURCE_TYPED)
    code, found = pair.run(capsys)
    assert (code, found["examples"]) == (0, [])


CHANGES = (
    ("flag", 0),
    ("flag", 2),
    ("tiny", -127),
    ("tiny", 128),
    ("big", 0),
    ("f", 0.25),
    ("d", 1.1000000000000003),
    ("n", "1.50001"),
    ("n", "1.500001"),
    ("n", "NaN"),
    ("s", "日本語 😁"),
    ("s", None),
    ("b", b"\x00\xff\x00"),
    ("day", "2024-03-01"),
    ("day", "infinity"),
    ("t", "23:59:58"),
    ("t", "24:00:00"),
    ("ts", "2024-02-29 12:34:56.123457"),
    ("ts", "12024-02-29 12:34:56"),
    ("tz", "2024-02-29 14:34:56.123456"),
    ("n2", "1234567890123456789012345678.0123456788"),
)


def test_every_value_that_differs_is_told(pair, capsys):
    """Of as many rows as there are changes, each has one."""
    numbers = range(len(CHANGES))
    pair.lake(TYPES, [(i, *LAKE_TYPED[0][1:]) for i in numbers])
    pair.source(TYPED, rows=[(i, *SOURCE_TYPED[0][1:]) for i in numbers])
    connection = sqlite3.connect(pair.database)
    for i, (column, value) in enumerate(CHANGES):
        connection.execute(f"UPDATE t SET {column} = ? WHERE id = {i}", [value])
    connection.commit()
    connection.close()
    code, found = pair.run(capsys, "--show", "100")
    assert (code, found["different"]) == (ExitCode.DIFFERENT, len(CHANGES))
    told = {each["key"]["id"]: list(each["columns"]) for each in found["examples"]}
    assert told == {i: [column] for i, (column, _) in enumerate(CHANGES)}


def test_minus_zero_is_not_zero_and_nan_is_nan(pair, capsys):
    pair.lake((("id", "INT"), ("d", "DOUBLE")), [(1, -0.0), (2, math.nan)])
    pair.source("CREATE TABLE t (id INTEGER PRIMARY KEY, d ANY)", rows=[(1, 0.0), (2, "NaN")])
    assert [each["key"] for each in pair.run(capsys)[1]["examples"]] == [{"id": 1}]


# --- keys


def test_text_keys_of_another_collation(pair, capsys):
    """SQLite orders by NOCASE, the lake by bytes; ranges and pages go by neither."""
    names = ["a", "B", "c", "D", "ä", "Z", "z1", "Ω", "😀", "_", "aa", "AB", "日本", "A-b", " "]
    names += [f"{letter}{i}" for i in range(200) for letter in "xYw"]
    pair.lake((("id", "STRING"), ("v", "INT")), [(name, i) for i, name in enumerate(names)])
    create = "CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER)"
    pair.source(create, rows=[(name, i) for i, name in enumerate(names)])
    code, found = pair.run(capsys, "--page-rows", "7")
    assert (code, found["source_rows"]) == (0, len(names))
    pair.source("UPDATE t SET v = -1 WHERE id IN ('w1', 'Y5')", "DELETE FROM t WHERE id = '日本'")
    code, found = pair.run(capsys, "--page-rows", "7")
    told = sorted((each["kind"], each["key"]["id"]) for each in found["examples"])
    assert told == [("different", "Y5"), ("different", "w1"), ("extra", "日本")]


def test_keys_that_differ_in_case_are_two_keys(pair, capsys):
    pair.lake((("id", "STRING"), ("v", "INT")), [("a", 1), ("B", 2)])
    create = "CREATE TABLE t (id TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER)"
    pair.source(create, rows=[("A", 1), ("B", 2)])
    _, found = pair.run(capsys)
    assert (found["missing"], found["extra"]) == (1, 1)


@pytest.mark.parametrize(
    ("type_", "declared", "keys", "given"),
    [
        ("BYTES", "BLOB", [bytes([i, 255 - i]) for i in range(60)], None),
        ("DECIMAL(10, 3)", "TEXT", [Decimal(i).scaleb(-3) for i in range(-30, 30)], str),
        ("DATE", "TEXT", [datetime.date(2024, 1, 1 + i) for i in range(28)], str),
        (
            "TIMESTAMP(6)",
            "TEXT",
            [NOON + datetime.timedelta(microseconds=i) for i in range(30)],
            str,
        ),
        ("STRING", "TEXT", [f"k{i}" for i in range(60)], None),
        ("INT", "INTEGER", list(range(-30, 30)), None),
    ],
)
def test_keys_of_any_type(pair, capsys, type_, declared, keys, given):
    pair.lake((("id", type_), ("v", "INT")), [(key, i) for i, key in enumerate(keys)])
    stored = [key if given is None else given(key) for key in keys]
    create = f"CREATE TABLE t (id {declared} PRIMARY KEY NOT NULL, v INTEGER)"
    pair.source(create, rows=[(key, i) for i, key in enumerate(stored)])
    assert pair.run(capsys, "--page-rows", "7")[0] == 0
    pair.source("UPDATE t SET v = 100 WHERE v = 3", "DELETE FROM t WHERE v = 5")
    _, found = pair.run(capsys, "--page-rows", "7")
    assert (found["different"], found["extra"], found["missing"]) == (1, 1, 0)


def test_composite_keys(pair, capsys):
    columns = (("region", "STRING"), ("id", "INT"), ("v", "INT"))
    made = [(f"r{i % 3}", i // 3, i) for i in range(300)]
    pair.lake(columns, made, keys=("region", "id"))
    create = "CREATE TABLE t (region TEXT, id INTEGER, v INTEGER, PRIMARY KEY (region, id))"
    pair.source(create, rows=made)
    assert pair.run(capsys, "--page-rows", "11")[0] == 0
    pair.source("UPDATE t SET v = -1 WHERE region = 'r1' AND id IN (4, 9)")
    _, found = pair.run(capsys, "--page-rows", "11")
    told = [(each["key"]["region"], each["key"]["id"]) for each in found["examples"]]
    assert sorted(told) == [("r1", 4), ("r1", 9)]


def test_a_number_first_in_a_composite_key(pair, capsys):
    columns = (("tenant", "INT"), ("id", "STRING"), ("v", "INT"))
    made = [(i // 100, f"k{i}", i) for i in range(300)]
    pair.lake(columns, made, keys=("tenant", "id"))
    create = "CREATE TABLE t (tenant INTEGER, id TEXT, v INTEGER, PRIMARY KEY (tenant, id))"
    pair.source(create, rows=made)
    pair.source("UPDATE t SET v = -1 WHERE id = 'k150'")
    _, found = pair.run(capsys, "--page-rows", "30")
    assert (found["different"], found["ranges_differing"], found["ranges"]) == (1, 1, 16)


def test_keys_that_the_lake_cannot_hold_are_missing(pair, capsys):
    pair.lake((("id", "INT"), ("v", "INT")), [(1, 1)])
    create = "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)"
    pair.source(create, rows=[(1, 1), (2**40, 2)])
    _, found = pair.run(capsys)
    assert (found["missing"], found["examples"][0]["key"]) == (1, {"id": str(2**40)})


def test_pages_of_a_key_that_is_not_the_sources_lose_no_row(pair, capsys):
    """The given key is not unique in the source: no page may end between equal ones."""
    pair.lake((("id", "INT"), ("v", "INT")), [(1, 1)])
    pair.source("CREATE TABLE t (id INTEGER, v INTEGER)", rows=[(1, 1)] * 5)
    _, found = pair.run(capsys, "--page-rows", "2")
    assert (found["source_rows"], found["missing"]) == (5, 1)


def test_tables_without_key_compare_whole_rows_and_their_number(pair, capsys):
    columns = (("a", "INT"), ("b", "STRING"))
    pair.lake(columns, [(1, "x"), (1, "x"), (2, "y")], keys=())
    pair.source("CREATE TABLE t (a INTEGER, b TEXT)", rows=[(1, "x"), (2, "y"), (1, "x")])
    assert pair.run(capsys)[0] == 0
    pair.source("INSERT INTO t VALUES (1, 'x')", "UPDATE t SET b = 'z' WHERE a = 2")
    _, found = pair.run(capsys)
    assert (found["missing"], found["extra"]) == (2, 1)
    assert {"a": 1, "b": "x"} in [each["key"] for each in found["examples"]]


# --- columns and rows


def test_columns_of_one_side_alone_are_left_out_and_said(pair, capsys):
    columns = (*COLUMNS, ("_shard", "STRING"))
    pair.lake(columns, [(*row, "a") for row in lake_rows(range(5))], keys=("_shard", "id"))
    pair.source(CREATE, "ALTER TABLE t ADD COLUMN more TEXT")
    pair.source(rows=[(*row, "m") for row in source_rows(range(5))])
    code, found = pair.run(capsys)
    assert code == 0
    assert found["not_compared"] == {"_shard": "not in the source", "more": "not in the lake table"}
    assert "may not be unique" in found["notes"][0]


def test_rows_of_one_shard(pair, capsys):
    columns = (*COLUMNS, ("_shard", "STRING"))
    shards = [(*row, shard) for shard in "ab" for row in lake_rows(range(5))]
    pair.lake(columns, shards, keys=("_shard", "id"))
    pair.source(CREATE, rows=source_rows(range(5)))
    code, found = pair.run(capsys, "--where-lake", "_shard = 'b'")
    assert (code, found["lake_rows"], found["notes"]) == (0, 5, [])
    code, found = pair.run(capsys, "--where-lake", "_shard = 'a'", "--key-range", "1..3")
    assert (code, found["lake_rows"]) == (0, 3)


def test_conditions_and_key_ranges(pair, capsys):
    pair.lake(COLUMNS, lake_rows(range(10)))
    pair.source(CREATE, rows=source_rows(range(20)))
    assert pair.run(capsys)[1]["missing"] == 10
    assert pair.run(capsys, "--where", "name || ':1' <> ':x' AND id < 10")[0] == 0
    code, found = pair.run(capsys, "--key-range", "5..9")
    assert (code, found["source_rows"]) == (0, 5)
    assert pair.run(capsys, "--key-range", "..9")[0] == 0
    assert pair.run(capsys, "--key-range", "5..")[1]["missing"] == 10


def test_excluded_columns_and_an_own_key(pair, capsys):
    pair.lake(COLUMNS, lake_rows(range(5)))
    pair.source(CREATE, rows=[(i, f"name {i}", 0) for i in range(5)])
    code, found = pair.run(capsys, "--exclude", "amount", "--key", "name")
    assert (code, found["not_compared"]) == (0, {"amount": "left out by --exclude"})


def test_names_of_columns_may_differ_in_case_and_need_quotes(pair, capsys):
    pair.lake((("id", "INT"), ("order", "STRING"), ("a:b c", "INT")), [(1, "x", 2)])
    pair.source('CREATE TABLE t (ID INTEGER PRIMARY KEY, "order" TEXT, "a:b c" INT)')
    pair.source(rows=[(1, "x", 2)])
    assert pair.run(capsys)[0] == 0


def test_json_columns_are_compared_by_value(pair, capsys):
    texts = [('{"b": 1, "a": [1.50, null]}', '{"a":[1.5,null],"b":1}'), ("null", "null")]
    pair.lake((("id", "INT"), ("j", "STRING")), [(i, two) for i, (_, two) in enumerate(texts)])
    pair.source("CREATE TABLE t (id INTEGER PRIMARY KEY, j JSON)")
    pair.source(rows=[(i, one) for i, (one, _) in enumerate(texts)])
    assert pair.run(capsys)[0] == 0
    pair.source("""UPDATE t SET j = '{"a": [1.5, null], "b": 1.0001}' WHERE id = 0""")
    assert pair.run(capsys)[1]["different"] == 1


def test_pages_of_wide_rows_are_small(pair, capsys, monkeypatch):
    monkeypatch.setattr(database, "_FIRST_ROWS", 4)
    monkeypatch.setattr(database, "_PAGE_BYTES", 10_000)
    made = [(i, "x" * 1000, None) for i in range(50)]
    pair.lake(COLUMNS, made)
    pair.source(CREATE, rows=made)
    selected = []
    fetched = database.DatabaseSide._fetched

    def counted(*arguments):
        rows = fetched(*arguments)
        selected.append(len(rows))
        return rows

    monkeypatch.setattr(database.DatabaseSide, "_fetched", counted)
    assert pair.run(capsys)[0] == 0
    assert selected == [4, 9, 9, 9, 9, 9, 1]


def test_nothing_is_written_to_the_source(pair, capsys):
    pair.lake(COLUMNS, lake_rows([1]))
    pair.source(CREATE, rows=source_rows([1]))
    before = pair.database.read_bytes()
    assert pair.run(capsys)[0] == 0
    assert pair.database.read_bytes() == before
    code, found = pair.run(capsys, "--where", "id IN (SELECT 1); DELETE FROM t")
    assert (code, found["outcome"]) == (ExitCode.CONFIG, "failed")


def test_rows_that_wait_for_compaction_count(pair, capsys):
    """Batch reads of such tables leave out level 0; the rows are committed all the same."""
    options = {"deletion-vectors.enabled": "true", "write-only": "true"}
    table = pair.lake(COLUMNS, lake_rows(range(20)), options=options)
    assert table.to_arrow().num_rows == 0
    pair.put(table, [(3, "other", None)])
    pair.source(CREATE, rows=source_rows(range(20)))
    pair.source("UPDATE t SET name = 'other', amount = NULL WHERE id = 3")
    code, found = pair.run(capsys)
    assert (code, found["lake_rows"]) == (0, 20)


def test_soft_deletes_masks_and_computed_columns_of_the_pipeline(pair, tmp_path):
    columns = (*COLUMNS, ("twice", "INT"), ("_cdc_deleted", "BOOLEAN"))
    live = [(i, "***", Decimal(i), 2 * i, None if i % 2 else False) for i in range(6)]
    pair.lake(columns, [*live, (9, "gone", None, 18, True)])
    pair.source(CREATE, rows=[(i, f"name {i}", i) for i in range(6)])
    rule = TableRule(
        match="shop.*",
        mask={"name": "hash"},
        computed=("twice = id * 2",),
        deletes="soft",
        filter="id < 100",
    )
    settings = dataclasses.replace(plain_settings(tmp_path), tables=(rule,))
    database = runs.opened_database(runs.SourceUrl.of(pair.url, {}))
    request = runs.Request(source_table="t")
    [found] = runs.verify_tables(
        pair.catalog,
        [("shop.t", True)],
        request,
        database=database,
        settings=settings,
        clock=ManualClock(),
    )
    database.close()
    assert (found.outcome, found.comparison.lake_rows) == ("equal", 6)
    assert {each.column: each.reason for each in found.left_out} == {
        "name": "masked by the pipeline",
        "twice": "computed by the pipeline",
        "_cdc_deleted": "not in the source",
    }
    assert "id < 100" in found.notes[0]
    assert "_cdc_deleted" in found.notes[1]


def plain_settings(folder):
    path = folder / "shop.yaml"
    path.write_text(
        "pipeline: {name: shop}\n"
        f"source: {{type: files, path: {folder}, format: debezium-json}}\n"
        f"sink: {{type: paimon, warehouse: {folder}/warehouse}}\n"
    )
    return load_settings(path)
