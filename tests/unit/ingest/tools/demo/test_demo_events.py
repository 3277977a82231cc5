# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
import decimal
import json

import pyarrow as pa
import pytest

from ingest.tools.demo.shop import TABLES, DemoShop, Mix, archive_line, topic_of, write_archive

EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
ALL = Mix(insert=0.3, update=0.45, delete=0.15, key_change=0.1)


def flat(batches):
    return [event for batch in batches for event in batch]


def payload(raw):
    document = json.loads(raw)
    return document.get("payload", document)


def fold(events):
    """The naive consumer: what the tables must hold after these events, as JSON rows."""
    tables = {name: {} for name in TABLES}
    for topic, key, value, _ in events:
        if value is None:
            continue
        rows = tables[topic.rpartition(".")[2]]
        (pk,) = payload(key).values()
        change = payload(value)
        if change["op"] == "d":
            del rows[pk]
        elif change["op"] == "c":
            assert pk not in rows
            rows[pk] = change["after"]
        else:
            assert change["op"] == "r" or pk in rows
            rows[pk] = change["after"]
    return tables


def decoded(table, after):
    """Decode one JSON row by Debezium's documented rules, independently of the generator."""
    row = []
    for column in TABLES[table].columns:
        raw = after[column.name]
        if raw is not None and column.semantic.endswith(".Decimal"):
            unscaled = int.from_bytes(base64.b64decode(raw), "big", signed=True)
            raw = decimal.Decimal(unscaled) / 100
        elif raw is not None and column.semantic.endswith(".Date"):
            raw = datetime.date.fromordinal(datetime.date(1970, 1, 1).toordinal() + raw)
        elif raw is not None and column.semantic.endswith(".MicroTimestamp"):
            raw = EPOCH + datetime.timedelta(microseconds=raw)
        elif raw is not None and column.semantic.endswith(".ZonedTimestamp"):
            raw = datetime.datetime.fromisoformat(raw)
        row.append(raw)
    return tuple(row)


@pytest.mark.parametrize("schema_block", [True, False])
def test_model_is_what_a_naive_consumer_gets(schema_block):
    shop = DemoShop(7, schema_block=schema_block)
    events = flat(shop.insert("customers", 300, snapshot=True))
    events += flat(shop.insert("orders", 700)) + flat(shop.insert("products", 300))
    events += flat(shop.stream(4_000, ALL))
    for table, rows in fold(events).items():
        assert {key: decoded(table, after) for key, after in rows.items()} == shop.rows(table)
        assert sorted(shop.live_keys(table)) == sorted(rows)
        assert len(rows) > 100


def test_same_seed_same_bytes():
    def make(seed):
        shop = DemoShop(seed)
        return flat(shop.insert("products", 50)) + flat(shop.stream(500, ALL))

    assert make(3) == make(3)
    assert make(3) != make(4)


def test_batch_sizes_do_not_matter_to_the_count():
    shop = DemoShop(1, schema_block=False)
    batches = list(shop.insert("orders", 12_345))
    assert sum(map(len, batches)) == 12_345
    assert max(map(len, batches)) <= 5_000


def test_deletes_are_followed_by_a_tombstone_and_carry_only_the_key():
    shop = DemoShop(2)
    flat(shop.insert("orders", 20))
    events = flat(shop.change("orders", 5, Mix(insert=0, update=0, delete=1)))
    assert len(events) == 10
    for event, tombstone in zip(events[::2], events[1::2], strict=True):
        change = payload(event[2])
        assert change["op"] == "d"
        assert change["after"] is None
        assert [name for name, value in change["before"].items() if value is not None] == ["id"]
        assert tombstone == (event[0], event[1], None, ())


def test_without_tombstones_there_are_none():
    shop = DemoShop(2, tombstones=False)
    flat(shop.insert("orders", 20))
    assert len(flat(shop.change("orders", 5, Mix(insert=0, update=0, delete=1)))) == 5


def test_updates_keep_the_key_and_have_no_before_by_default():
    shop = DemoShop(5, schema_block=False)
    flat(shop.insert("products", 10))
    for event in flat(shop.change("products", 30, Mix(insert=0, update=1, delete=0))):
        change = payload(event[2])
        assert change["op"] == "u"
        assert change["before"] is None
        assert payload(event[1]) == {"sku": change["after"]["sku"]}


def test_full_before_is_the_previous_row():
    shop = DemoShop(5, schema_block=False, full_before=True)
    rows = {}
    events = flat(shop.insert("customers", 30)) + flat(shop.change("customers", 200, ALL))
    for _, key, value, _ in events:
        if value is None:
            continue
        pk, change = payload(key)["id"], payload(value)
        assert change["before"] == rows.get(pk)
        rows[pk] = change["after"]


def test_key_changes_are_linked_pairs():
    shop = DemoShop(6)
    flat(shop.insert("products", 10))
    events = flat(shop.change("products", 4, Mix(insert=0, update=0, delete=0, key_change=1)))
    assert len(events) == 12
    for delete, tombstone, create in zip(events[::3], events[1::3], events[2::3], strict=True):
        assert delete[3] == (("__debezium.newkey", create[1]),)
        assert create[3] == (("__debezium.oldkey", delete[1]),)
        assert tombstone[2] is None
        assert payload(delete[2])["op"] == "d"
        assert payload(create[2])["op"] == "c"


def test_schema_block_describes_the_row():
    shop = DemoShop(1)
    (event,) = flat(shop.insert("orders", 1))
    document = json.loads(event[2])
    assert list(document) == ["schema", "payload"]
    fields = {f["field"]: f for f in document["schema"]["fields"]}
    assert set(fields) == set(document["payload"])
    columns = {f["field"]: f for f in fields["after"]["fields"]}
    assert list(columns) == list(document["payload"]["after"])
    assert columns["amount"]["name"] == "org.apache.kafka.connect.data.Decimal"
    assert columns["amount"]["parameters"]["scale"] == "2"
    assert not columns["id"]["optional"]
    source = {f["field"] for f in fields["source"]["fields"]}
    assert source == set(document["payload"]["source"])
    key = json.loads(event[1])
    assert [f["field"] for f in key["schema"]["fields"]] == list(key["payload"])


def test_times_and_positions_never_go_back():
    shop = DemoShop(1, schema_block=False)
    sources = [payload(e[2])["source"] for e in flat(shop.stream(300)) if e[2] is not None]
    lsns = [source["lsn"] for source in sources]
    assert lsns == sorted(set(lsns))
    assert [s["ts_ms"] for s in sources] == sorted(s["ts_ms"] for s in sources)
    assert all(json.loads(s["sequence"])[1] == str(s["lsn"]) for s in sources)


def test_plain_events_are_about_650_bytes():
    shop = DemoShop(1, schema_block=False)
    sizes = [len(event[2]) for event in flat(shop.insert("orders", 1_000))]
    assert 550 < sum(sizes) / len(sizes) < 750


def test_expected_table_is_sorted_and_typed():
    shop = DemoShop(1)
    flat(shop.insert("orders", 50))
    flat(shop.change("orders", 100, ALL))
    table = shop.expected("orders")
    assert table.schema == TABLES["orders"].arrow_schema
    assert table["id"].to_pylist() == sorted(shop.rows("orders"))
    assert table.schema.field("amount").type == pa.decimal128(14, 2)
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        shop.rows("orders")[key] for key in sorted(shop.rows("orders"))
    ]


def test_update_row_changes_the_named_columns_only():
    shop = DemoShop(1)
    flat(shop.insert("orders", 5))
    before = shop.rows("orders")[3]
    (event,) = shop.update_row("orders", 3, status="delivered", amount=12_99)
    after = shop.rows("orders")[3]
    assert payload(event[2])["op"] == "u"
    changed = {
        c.name for c, a, b in zip(TABLES["orders"].columns, before, after, strict=True) if a != b
    }
    assert changed <= {"status", "amount"}
    assert after[4] == decimal.Decimal("12.99")


def test_nulls_occur_where_columns_are_nullable():
    shop = DemoShop(1)
    flat(shop.insert("orders", 200))
    flat(shop.insert("customers", 200))
    orders, customers = shop.expected("orders"), shop.expected("customers")
    for column in (orders["note"], orders["shipped_at"], customers["phone"]):
        assert 0 < column.null_count < 200


def test_archive_lines_nest_key_value_and_headers():
    line = archive_line(("t", b'{"id":1}', None, (("__debezium.newkey", b'{"id":2}'),)))
    assert json.loads(line) == {
        "key": {"id": 1},
        "value": None,
        "headers": {"__debezium.newkey": {"id": 2}},
    }
    assert line.endswith(b"}\n")


def test_archive_is_numbered_files_per_topic_in_order(tmp_path):
    shop = DemoShop(1, schema_block=False)
    batches = list(shop.insert("orders", 250)) + list(shop.insert("products", 10))
    counts = write_archive(tmp_path, batches, events_per_file=100)
    assert counts == {topic_of("orders"): 250, topic_of("products"): 10}
    files = sorted((tmp_path / topic_of("orders")).iterdir())
    assert [path.name for path in files] == ["0001.jsonl", "0002.jsonl", "0003.jsonl"]
    lines = [line for path in files for line in path.read_bytes().splitlines(keepends=True)]
    assert lines == [archive_line(event) for event in batches[0]]
