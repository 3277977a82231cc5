# SPDX-License-Identifier: Apache-2.0
"""Origins of change batches: every format, every path, one row of metadata per row."""

import dataclasses
import json
from typing import Any

import pytest

from ingest.decode.columns import METADATA, MemberReader, origin_schema
from ingest.decode.events import OFFSET_COLUMN, DecodeResult, SourceTable, Target
from ingest.decode.outcome import without_foreign_keys
from ingest.source.records import RawBatch
from tests.unit.ingest.captured_events import captures, load
from tests.unit.ingest.captured_sink import CapturedSink
from tests.unit.ingest.debezium_events import (
    batch,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    message,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import dialect_decoder

EVERY = tuple(METADATA)
TABLE = schema(("id", "BIGINT"), ("name", "STRING"))


def asking(*names: str, table: Any = TABLE, **more: Any) -> dict[str, Target | None]:
    return {"orders": Target("shop.orders", table, origin=names or EVERY, **more)}


def origins(result: DecodeResult) -> list[dict[str, Any]]:
    (change,) = result.changes
    assert change.origin is not None
    assert change.origin.schema == origin_schema(change.origin.schema.names)
    assert change.origin.num_rows == change.rows.num_rows
    return change.origin.to_pylist()


class Extras:
    """Headers and timestamp of a record."""

    def __init__(self, stamp: tuple[int, int], *headers: tuple[str, Any]) -> None:
        self._stamp, self._headers = stamp, headers

    def headers(self) -> Any:
        return self._headers or None

    def timestamp(self) -> tuple[int, int]:
        return self._stamp


def naive(payload: dict[str, Any]) -> dict[str, Any]:
    """What a row event says, by the plainest code there can be."""
    source = payload["source"]
    members = {"server": "name", "database": "db", "source_ts_ms": "ts_ms", "txid": "txId"}
    found = {
        name: source.get(members.get(name, name))
        for name in EVERY
        if name not in ("op", "ts_ms", "op_ts")
    }
    found |= {"op": payload["op"], "ts_ms": payload["ts_ms"]}
    found["total_order"] = (payload.get("transaction") or {}).get("total_order")
    for name in ("txid", "snapshot", "scn", "commit_scn"):
        value = found[name]
        found[name] = (
            None if value is None else str(value).lower() if value in (True, False) else str(value)
        )
    return found


def test_nothing_is_filled_unless_asked():
    result = decoder(TABLE).decode(batch(message("c", None, {"id": 1, "name": "a"})))
    assert result.changes[0].origin is None


def test_members_of_the_envelope_and_of_its_source():
    more = {
        "snapshot": "last",
        "lsn": 2**63 - 1,
        "txId": 571,
        "sequence": '["1","2"]',
        "gtid": "a:1",
        "file": "binlog.000007",
        "pos": 4,
        "row": 2,
        "server_id": 2**32,
        "thread": 9,
        "scn": "123456789012345678901234567890",
        "commit_scn": 12345678901234567890123,
        "change_lsn": "00000027:00000758:0003",
        "commit_lsn": "00000027:00000758:0005",
        "event_serial_no": 2,
    }
    raw = RawBatch(
        "pg.public.orders",
        3,
        [70],
        [b'{"id":1}'],
        [message("c", None, {"id": 1, "name": "ü"}, **more)],
        messages=[Extras((2, 1_234), ("a", b"1"), ("b", None), ("a", "3"))],
    )
    (found,) = origins(decoder(asking()).decode(raw))
    assert found == {
        **found,
        "op": "c",
        "ts_ms": 2_000,
        "source_ts_ms": 1_000,
        "connector": "postgresql",
        "server": "pg",
        "database": "shop",
        "schema": "public",
        "table": "orders",
        "txid": "571",
        **{name: value for name, value in more.items() if name != "txId"},
        "commit_scn": "12345678901234567890123",
        "topic": "pg.public.orders",
        "partition": 3,
        "offset": 70,
        "timestamp_type": "LogAppendTime",
        "key": b'{"id":1}',
        "headers": [("a", b"3"), ("b", b"")],
    }
    assert found["op_ts"].timestamp() == 1.0
    assert found["timestamp"].timestamp() == 1.234


@pytest.mark.parametrize("wrap", ["bare", "null", "block", "mixed"])
def test_every_path_of_debezium_json_gives_the_same(wrap):
    events = [
        event("c", None, {"id": number, "name": "a"}, lsn=number, txId=number)
        for number in range(9)
    ]
    events[2]["source"]["lsn"] = 2**63  # no BIGINT holds it
    events[3]["source"]["lsn"] = "17"
    events[4]["source"] |= {"snapshot": True, "txId": "0600a1"}
    events[5]["op"] = "C"  # the reference path
    events[6] = event("u", {"id": 6}, {"id": 60, "name": "b"}, lsn=6, txId=6)  # a change of key
    events[7] = event("d", {"id": 7, "name": "a"}, None, lsn=7, txId=7)
    del events[8]["source"]["txId"]
    block = connect_block(connect_field("id", "int64"), connect_field("name", "string"))
    wraps = {
        "bare": [dumps(each) for each in events],
        "null": [with_block(None, each) for each in events],
        "block": [with_block(block, each) for each in events],
    }
    wraps["mixed"] = [wraps[("bare", "null", "block")[n % 3]][n] for n in range(9)]
    one = decoder(asking("lsn", "op", "txid", "snapshot", "offset"))
    for _ in range(2):  # the second time the shape is known
        found = origins(one.decode(batch(*wraps[wrap])))
        assert [row["lsn"] for row in found] == [0, 1, None, 17, 4, 5, 6, 6, 7, 8]
        assert [row["op"] for row in found] == [*"ccccccuudc"]
        assert [row["txid"] for row in found] == [*"0123", "0600a1", *"5667", None]
        assert [row["snapshot"] for row in found] == ["false"] * 4 + ["true"] + ["false"] * 5
        assert [row["offset"] for row in found] == [10, 12, 14, 16, 18, 20, 22, 22, 24, 26]


def test_only_rows_have_an_origin_and_refused_records_have_their_target():
    result = decoder(asking("offset")).decode(
        batch(
            message("c", None, {"id": 1, "name": "a"}),
            None,
            message("c", None, {"id": "no", "name": "a"}),
            b"garbage",
            message("c", None, {"id": 2, "name": "a"}),
        )
    )
    assert [row["offset"] for row in origins(result)] == [10, 18]
    assert [(bad.offset, bad.target) for bad in result.bad] == [(14, "shop.orders"), (16, "")]


def test_bad_records_of_tables_that_take_none_have_their_target():
    for target in (
        Target("shop.orders", TABLE, refusal="closed"),
        Target("shop.orders", None),
        Target("shop.orders", schema(("id", "BIGINT")), evolvable=False),
    ):
        result = decoder({"orders": target}).decode(
            batch(message("c", None, {"id": 1, "name": "a", "x": 1}))
        )
        assert [bad.target for bad in result.bad] == ["shop.orders"]
    canal = dialect_decoder("canal-json", {"orders": Target("shop.orders", TABLE)})
    value = {"type": "INSERT", "database": "shop", "table": "orders", "data": [{"id": "x"}]}
    assert [bad.target for bad in canal.decode(batch(dumps(value))).bad] == ["shop.orders"]


class AskingSink(CapturedSink):
    """Asks for everything."""

    def resolve(self, source: SourceTable, topic: str) -> Target:
        return dataclasses.replace(super().resolve(source, topic), origin=EVERY)


def test_events_of_real_connectors_in_every_converter():
    """Against plain `json.loads`; Avro against the JSON that the reference path makes of it."""
    for path in captures(["json", "json-schema", "avro"]):
        capture = load(path)
        sink = AskingSink().take(capture)
        decoder = sink._decoder(capture)
        values = {(m.topic, m.partition, m.offset): m for m in capture.messages}
        count = 0
        for changes in sink.changes.values():
            for change in changes:
                assert change.origin is not None
                assert change.origin.num_rows == change.rows.num_rows
                assert change.origin.column("offset").equals(change.rows.column(OFFSET_COLUMN))
                for row in change.origin.to_pylist():
                    record = values[row["topic"], row["partition"], row["offset"]]
                    assert row["key"] == record.key
                    assert dict(row["headers"]) == dict(record.headers())
                    count += 1
                    value = record.value or b""
                    if capture.converter == "avro":
                        schema_id, begin = decoder.framing.id_before(value)
                        value = decoder.writers.of(schema_id, "any").as_bare_json(value, begin)
                    text = json.loads(value)
                    expected = naive(text.get("payload", text))
                    record_own = ("topic", "partition", "offset", "timestamp", "timestamp_type")
                    skip = {*record_own, "key", "headers", "op_ts"}
                    assert {n: v for n, v in row.items() if n not in skip} == {
                        n: v for n, v in expected.items() if n not in skip
                    }
        assert count > 100


@pytest.mark.parametrize("path", captures(["avro"]), ids=lambda path: path.name)
def test_many_avro_events_in_step_as_one_by_one(path, monkeypatch):
    capture = load(path)
    sink = AskingSink().take(capture)
    singly = {
        (row["topic"], row["offset"], index % 2): row
        for changes in sink.changes.values()
        for change in changes
        for index, row in enumerate(change.origin.to_pylist())  # type: ignore[union-attr]
    }
    monkeypatch.setattr(MemberReader, "columns", None)  # the path of single events
    decoder, checked = sink._decoder(capture), 0
    for raw in capture.batches():
        times = 40
        many = RawBatch(
            raw.topic,
            raw.partition,
            [n * 1_000_000 + offset for n in range(times) for offset in raw.offsets],
            raw.keys * times,
            raw.values * times,
        )
        for change in decoder.decode(many).changes:
            assert change.origin is not None
            for index, row in enumerate(change.origin.to_pylist()):
                offset = row["offset"] % 1_000_000
                one = (
                    singly.get((row["topic"], offset, index % 2))
                    or singly[row["topic"], offset, (index + 1) % 2]
                )
                assert {**one, "offset": 0, "headers": []} == {**row, "offset": 0}
                checked += 1
    assert checked > 4_000


def dialect_origin(
    format_: str, *values: Any, names: tuple[str, ...] = EVERY, **options: Any
) -> Any:
    table = schema(("id", "BIGINT"), ("name", "STRING"))
    keys = options.pop("keys", None)
    one = dialect_decoder(format_, asking(*names, table=table), **options)
    texts = [None if value is None else dumps(value) for value in values]
    return origins(one.decode(batch(*texts, keys=keys, topic="pg.shop.orders")))


def some(found: dict[str, Any], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is not null, but for what the record itself knows."""
    own = ("topic", "partition", "offset", "timestamp_type", "headers", "op_ts", *without)
    return {n: v for n, v in found.items() if v is not None and n not in own}


def test_flattened_events():
    row = {"id": 1, "name": "a"}
    first, second, third, fourth = dialect_origin(
        "debezium-flat",
        {**row, "__op": "c", "__source_ts_ms": 5, "__ts_ms": 6, "__lsn": 7, "__source_txId": 8},
        {**row, "__source_lsn": "17", "__deleted": "true", "__snapshot": True, "__name": "n"},
        row,
        None,
        keys=[dumps({"id": 1})] * 4,
    )
    base = {"op": "c", "server": "pg", "database": "shop", "table": "orders", "key": b'{"id":1}'}
    assert some(first) == {**base, "source_ts_ms": 5, "ts_ms": 6, "lsn": 7, "txid": "8"}
    assert some(second) == {**base, "op": "d", "lsn": 17, "snapshot": "true"}
    assert some(third) == {**base, "op": "u"}
    assert some(fourth) == {**base, "op": "d"}
    block = {
        "type": "struct",
        "fields": [connect_field("id", "int64"), connect_field("name", "string")],
    }
    (found,) = dialect_origin("debezium-flat", {"schema": block, "payload": {**row, "__lsn": 3}})
    assert found["lsn"] == 3


def test_canal():
    value = {
        "type": "UPDATE",
        "database": "shop",
        "table": "orders",
        "es": 1_600_000_000_000,
        "ts": 1_600_000_000_500,
        "gtid": "a-b:7",
        "pkNames": ["id"],
        "data": [{"id": "1", "name": "x"}, {"id": "2", "name": "y"}],
        "old": [{"id": "5"}, {"name": "z"}],
    }
    found = dialect_origin("canal-json", value)
    assert len(found) == 3  # of one record: -D, +I and +U
    assert found[0] == found[1] == found[2]
    assert some(found[0]) == {
        "op": "u",
        "database": "shop",
        "table": "orders",
        "ts_ms": 1_600_000_000_500,
        "source_ts_ms": 1_600_000_000_000,
        "gtid": "a-b:7",
    }
    assert found[0]["op_ts"].timestamp() == 1_600_000_000


def test_maxwell():
    value = {
        "type": "insert",
        "database": "shop",
        "table": "orders",
        "ts": 1_600_000_000,
        "xid": 940_752,
        "position": "master.000006:800911",
        "gtid": "x:1-9",
        "server_id": 23_042,
        "thread_id": 108,
        "data": {"id": 1, "name": "a"},
    }
    first, second = dialect_origin("maxwell-json", value, {**value, "position": 4, "xid": None})
    expected = {
        "op": "c",
        "database": "shop",
        "table": "orders",
        "source_ts_ms": 1_600_000_000_000,
        "txid": "940752",
        "file": "master.000006",
        "pos": 800_911,
        "gtid": "x:1-9",
        "server_id": 23_042,
        "thread": 108,
    }
    assert some(first) == expected
    assert some(second) == some(first, without=("txid", "file", "pos"))


def test_golden_gate():
    value = {
        "table": "SHOP.orders",
        "op_type": "I",
        "op_ts": "2024-02-29 12:00:00.000000",
        "current_ts": "2024-02-29T12:00:01.500000",
        "pos": "00000000000000002928",
        "csn": 10_000_000_000_000_000_000_000,
        "xid": "0.6.9",
        "after": {"id": 1, "name": "a"},
    }
    (found,) = dialect_origin("ogg-json", value)
    assert some(found) == {
        "op": "c",
        "schema": "SHOP",
        "table": "orders",
        "source_ts_ms": 1_709_208_000_000,
        "ts_ms": 1_709_208_001_500,
        "sequence": "00000000000000002928",
        "scn": "10000000000000000000000",
        "txid": "0.6.9",
    }


def test_dms():
    metadata = {
        "timestamp": "2024-02-29T12:00:01.500000Z",
        "record-type": "data",
        "operation": "update",
        "schema-name": "shop",
        "table-name": "orders",
        "transaction-id": 47_244,
    }
    first, second = dialect_origin(
        "aws-dms-json",
        {"data": {"id": 1, "name": "a"}, "metadata": metadata},
        {
            "data": {"id": 1, "name": "a"},
            "metadata": {**metadata, "commit-timestamp": "2024-02-29T12:00:00Z"},
        },
    )
    expected = {"op": "u", "schema": "shop", "table": "orders", "ts_ms": 1_709_208_001_500}
    expected |= {"source_ts_ms": 1_709_208_001_500, "txid": "47244"}
    assert some(first) == expected
    assert some(second) == {**expected, "source_ts_ms": 1_709_208_000_000}


@pytest.mark.parametrize("format_", ["json", "upsert-json"])
def test_rows_alone(format_):
    (found,) = dialect_origin(format_, {"id": 1, "name": "a"}, keys=[b'{"id":1}'])
    op = "c" if format_ == "json" else "u"
    table = {"server": "pg", "database": "shop", "table": "orders"}
    assert some(found) == {"op": op, "key": b'{"id":1}', **table}
    assert found["topic"] == "pg.shop.orders"
    assert found["headers"] == []
    assert found["timestamp_type"] == "NoTimestampType"


def test_records_of_another_key_are_taken_out_with_their_origin():
    keys = [b'{"id":1}', b'{"id":2,"region":1}']
    values = [message("c", None, {"id": n, "name": "a"}) for n in (1, 2)]
    raw = batch(*values, keys=keys)
    (change,) = decoder(asking("key")).decode(raw).changes
    change = dataclasses.replace(change, constants=(("shard", "1"),))
    rest, bad = without_foreign_keys(raw, change, ("id",))
    assert rest is not None
    assert rest.origin is not None
    assert rest.origin.to_pylist() == [{"key": keys[0]}]
    assert rest.constants == change.constants
    assert [(record.offset, record.target) for record in bad] == [(12, "shop.orders")]


def test_a_key_that_grew_is_seen_between_records_of_other_tables():
    grown = b'{"id":1,"region":1}'
    keys = [b'{"id":1}', b'{"id":1}', grown, grown, b'{"id":1}']
    tables = ["orders", "items", "items", "items", "orders"]
    values = [message("c", None, {"id": 1, "name": "a"}, table=table) for table in tables]
    raw = batch(*values, keys=keys)
    targets = schema(("id", "BIGINT"), ("name", "STRING"))
    (change,) = (c for c in decoder(targets).decode(raw).changes if c.target == "shop.items")
    rest, bad = without_foreign_keys(raw, change, ("id",))
    assert rest is not None
    assert rest.rows.column(OFFSET_COLUMN).to_pylist() == [12]
    assert [record.offset for record in bad] == [14, 16]
