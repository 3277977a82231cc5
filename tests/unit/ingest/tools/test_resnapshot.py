# SPDX-License-Identifier: Apache-2.0
"""`lakeward resnapshot`: the signal, how its notifications are followed, and the words.

Notifications have the members of Debezium's documentation.
"""

import itertools
import json

import orjson
import pytest

from ingest.cli import main as cli
from ingest.cli import stream as resnapshot_commands
from ingest.config.source_settings import FileSourceSettings, KafkaSourceSettings
from ingest.source import open as sources
from ingest.source.files import FileSource
from ingest.source.open import TopicTail
from ingest.tools.snapshot_requests import (
    SnapshotSignal,
    SourceName,
    follow,
    notification,
    source_name,
)
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import InvalidRequestError, RetryableError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import AtomicType, TypeRoot

BIGINT = AtomicType(TypeRoot.BIGINT)
SIGNAL = SnapshotSignal(id="ad-hoc-1", server="shop", collections=("public.orders",))


def told(type_, *, id_="ad-hoc-1", kind="Incremental Snapshot", at_ms=1_700_000_000_000, **data):
    message = {
        "id": id_,
        "aggregate_type": kind,
        "type": type_,
        "additional_data": {"connector_name": "shop", **data},
        "timestamp": at_ms,
    }
    return orjson.dumps(message)


def scanned(rows, status="SUCCEEDED", **more):
    return told(
        "TABLE_SCAN_COMPLETED",
        scanned_collection="public.orders",
        data_collections="public.orders",
        total_rows_scanned=str(rows),
        status=status,
        **more,
    )


def test_the_record_that_the_connector_reads():
    key, value = SIGNAL.record()
    assert key == b"shop"
    assert orjson.loads(value) == {
        "id": "ad-hoc-1",
        "type": "execute-snapshot",
        "data": {"data-collections": ["public.orders"], "type": "INCREMENTAL"},
    }


def test_a_filtered_and_blocking_one_and_its_statement():
    signal = SnapshotSignal(
        id="x", server="shop", collections=("db.t",), blocking=True, filter="name = 'it''s'"
    )
    assert signal.data["type"] == "BLOCKING"
    assert signal.data["additional-conditions"] == [
        {"data-collection": "db.t", "filter": "name = 'it''s'"}
    ]
    statement = signal.statement("signals")
    assert statement.startswith("INSERT INTO signals (id, type, data) VALUES ('x', 'execute-sna")
    assert "name = ''it''''s''" in statement


@pytest.mark.parametrize(
    ("address", "options", "given", "expected"),
    [
        ("shop.inventory.orders", {}, {}, SourceName("shop", "inventory.orders")),
        ("shop.shopdb.public.orders", {}, {}, SourceName("shop", "public.orders")),
        (
            "shop.shopdb.dbo.orders",
            {"lakeward.position": "sqlserver"},
            {},
            SourceName("shop", "shopdb.dbo.orders"),
        ),
        ("a.b.db.t", {}, {"server": "a.b"}, SourceName("a.b", "db.t")),
        ("shop.db.t", {}, {"collection": "other.t"}, SourceName("shop", "other.t")),
        ("", {}, {"server": "s", "collection": "d.t"}, SourceName("s", "d.t")),
    ],
)
def test_how_the_connector_names_a_table(address, options, given, expected):
    assert source_name("ods.t", address, options, **given) == expected


@pytest.mark.parametrize("address", ["", "shared: ods.orders", "a.b.c.d.e", "t"])
def test_where_the_name_is_not_known_it_is_asked_for(address):
    with pytest.raises(InvalidRequestError, match="source table") as caught:
        source_name("ods.t", address, {})
    assert "--collection" in caught.value.hint


def test_other_messages_are_no_notifications():
    wrapped = b'{"schema": {"type": "struct"}, "payload": ' + told("STARTED") + b"}"
    assert notification(wrapped) == notification(told("STARTED"))
    for value in (None, b"{", b"[]", b'{"op": "c"}', b'{"aggregate_type": 1, "type": "x"}'):
        assert notification(value) is None


class Said(list):
    """What the command said."""

    def __call__(self, text):
        self.append(text)


def followed(signal, *rounds, timeout_s=None):
    left, clock, said = list(rounds), ManualClock(), Said()

    def read():
        messages = left.pop(0) if left else []
        return [notification(message) for message in messages]

    done = follow(signal, read, clock=clock, say=said, timeout_s=timeout_s)
    return done, said


def test_progress_until_it_is_complete():
    current = {"current_collection_in_progress": "public.orders"}
    done, said = followed(
        SIGNAL,
        [told("STARTED", data_collections="public.orders")],
        [told("IN_PROGRESS", maximum_key="900", last_processed_key="450", **current)],
        [told("COMPLETED", id_="somebody else's")],
        [scanned(900), told("COMPLETED")],
    )
    assert done.rows == {"public.orders": 900}
    assert list(said) == [
        "the connector has begun",
        "public.orders: key 450 of 900",
        "public.orders: 900 rows scanned (SUCCEEDED)",
    ]


def test_a_blocking_snapshot_is_known_by_server_and_table():
    signal = SnapshotSignal(id="x", server="shop", collections=("public.orders",), blocking=True)
    kind = {"kind": "Initial Snapshot", "id_": "other"}
    done, _ = followed(
        signal,
        [told("COMPLETED", id_="x")],
        [told("STARTED", **kind)],
        [told("IN_PROGRESS", data_collections="public.items", **kind)],
        [told("IN_PROGRESS", data_collections="public.orders,public.x", **kind)],
        [scanned(3, **kind), told("COMPLETED", **kind)],
    )
    assert done.rows == {"public.orders": 3}


BLOCKING = SnapshotSignal(id="x", server="shop", collections=("public.orders",), blocking=True)


def at(at_ms, type_, **data):
    return told(type_, kind="Initial Snapshot", id_=f"random-{at_ms}", at_ms=at_ms, **data)


def scan(at_ms, rows):
    table = {"scanned_collection": "public.orders", "total_rows_scanned": str(rows)}
    return at(at_ms, "TABLE_SCAN_COMPLETED", status="SUCCEEDED", **table)


def test_the_end_of_an_earlier_snapshot_is_not_the_end():
    rounds = [[at(1, "COMPLETED")], [scan(5, 7), at(6, "COMPLETED"), at(3, "STARTED")]]
    done, said = followed(BLOCKING, *rounds)
    assert done.rows == {"public.orders": 7}
    assert said[0] == "the connector has begun"
    late = [
        [at(3, "STARTED")],
        [at(2, "COMPLETED"), scan(1, 5)],
        [scan(5, 7)],
        [at(6, "COMPLETED")],
    ]
    assert followed(BLOCKING, *late)[0].rows == {"public.orders": 7}
    with pytest.raises(RetryableError):
        followed(BLOCKING, [at(1, "COMPLETED")], timeout_s=60)


def test_notifications_of_other_partitions_come_in_any_order():
    messages = [at(3, "STARTED"), scan(5, 7), at(6, "COMPLETED")]
    for some in itertools.permutations(messages):
        assert followed(BLOCKING, some)[0].rows == {"public.orders": 7}
        assert followed(BLOCKING, some[:1], some[1:])[0].rows == {"public.orders": 7}


def test_a_table_that_failed_counts_although_it_is_told_behind_the_end():
    with pytest.raises(InvalidRequestError, match="could not scan"):
        followed(SIGNAL, [told("COMPLETED")], [scanned(0, "SQL_EXCEPTION")])


def test_a_snapshot_that_is_skipped_at_once_is_an_error():
    with pytest.raises(InvalidRequestError, match="skipped"):
        followed(BLOCKING, [at(3, "SKIPPED")])


def test_signals_go_where_the_connector_reads(monkeypatch):
    sent = []

    class Recorder:
        def __init__(self, config, logger):
            assert config["acks"] == "all"

        def produce(self, topic, **record):
            del record["on_delivery"]
            sent.append((topic, record))

        def flush(self, timeout_s):
            return 0

    monkeypatch.setattr(sources, "Producer", Recorder)
    source = KafkaSourceSettings(bootstrap_servers="nowhere:1", topics=("a",))
    sources.send_record(source, "signals", b"shop", b"{}")
    assert sent == [("signals", {"partition": 0, "key": b"shop", "value": b"{}"})]


@pytest.mark.parametrize("status", ["UNKNOWN_SCHEMA", "NO_PRIMARY_KEY", "SQL_EXCEPTION", "SKIPPED"])
def test_a_table_that_cannot_be_scanned_is_an_error(status):
    with pytest.raises(InvalidRequestError, match="could not scan") as caught:
        followed(SIGNAL, [scanned(0, status)])
    assert caught.value.context["status"] == status


def test_an_aborted_snapshot_is_an_error():
    with pytest.raises(InvalidRequestError, match="aborted"):
        followed(SIGNAL, [told("ABORTED")])


def test_silence_makes_it_wonder_and_end_at_the_time_limit():
    clock, said = ManualClock(), Said()
    with pytest.raises(RetryableError, match="not complete"):
        follow(SIGNAL, list, clock=clock, say=said, timeout_s=90)
    assert len(said) == 1
    assert "signal.enabled.channels" in said[0]


def test_the_tail_of_a_topic_begins_at_its_end_and_sees_one_that_comes_later(tmp_path):
    clock = ManualClock()
    source = FileSourceSettings(path=str(tmp_path))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "1.jsonl").write_text('{"a": 1}\n')
    for topic in ("old", "late"):
        tail = TopicTail(source, topic, clock)
        assert list(tail.read()) == []
        (tmp_path / topic).mkdir(exist_ok=True)
        (tmp_path / topic / "2.jsonl").write_text('{"a": 2}\n')
        found = []
        for _ in range(4):
            clock.advance(1_000)
            found += [value for raw in tail.read() for value in raw.values]
        assert found == [b'{"a": 2}']
        tail.close()


@pytest.mark.parametrize(("failures", "opens"), [(3, True), (1_000, False)])
def test_a_new_topic_may_be_without_leader_for_a_moment(tmp_path, monkeypatch, failures, opens):
    clock, tries = ManualClock(), itertools.count()
    initial = FileSource.initial

    def elected_later(source):
        if next(tries) < failures:
            raise RetryableError("kafka did not return the offsets of all partitions")
        return initial(source)

    monkeypatch.setattr(FileSource, "initial", elected_later)
    source = FileSourceSettings(path=str(tmp_path))
    if opens:
        tail = TopicTail(source, "new", clock)
        assert list(tail.read()) == []
        tail.close()
    else:
        with pytest.raises(RetryableError):
            TopicTail(source, "new", clock)
        assert next(tries) < 30


CONFIG = """
source: {{type: kafka, bootstrap.servers: 'nowhere:1', topics: [a], {source}}}
sink: {{warehouse: {lake}}}
pipeline: {{name: shop}}
"""


@pytest.fixture
def lakeward(tmp_path, capsys, monkeypatch):
    """Runs the command; what it would send is in `.sent`."""
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    for name, source in (("orders", "shop.db.public.orders"), ("items", "b.db.public.items")):
        schema = new_schema(
            [("id", BIGINT)],
            primary_keys=("id",),
            partition_keys=(),
            options={"bucket": "1", "lakeward.source-table": source},
            now_ms=0,
        )
        catalog.create_table(f"shop.{name}", schema)
    sent = []
    monkeypatch.setattr(
        resnapshot_commands, "send_record", lambda settings, *record: sent.append(record)
    )

    def run(*arguments, source="format: debezium-json"):
        path = tmp_path / "shop.yaml"
        path.write_text(CONFIG.format(source=source, lake=tmp_path / "lake"))
        code = cli.main(["resnapshot", "-c", str(path), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    run.sent = sent
    return run


SIGNALS = "debezium: {signal.topic: signals}"


def test_without_a_signal_topic_the_statement_is_printed(lakeward):
    code, out, _ = lakeward("shop.orders", "--signal-table", "public.signals")
    assert code == 0
    assert out.startswith("INSERT INTO public.signals (id, type, data) VALUES ('lakeward-")
    assert '"data-collections":["public.orders"]' in out
    assert lakeward.sent == []


def test_the_signal_is_sent_and_told_as_json(lakeward):
    code, out, _ = lakeward("shop.orders", "--json", "--filter", "id > 5", source=SIGNALS)
    told_, (topic, key, value) = json.loads(out), lakeward.sent[0]
    assert (code, topic, key) == (0, "signals", b"shop")
    assert told_["state"] == "sent"
    assert told_["collections"] == ["public.orders"]
    signal = orjson.loads(value)
    assert signal["id"] == told_["id"]
    assert signal["data"]["additional-conditions"][0]["filter"] == "id > 5"


@pytest.mark.parametrize(
    ("arguments", "source", "message"),
    [
        (("shop.orders", "shop.items"), SIGNALS, "several connectors"),
        (("shop.orders", "shop.items", "--filter", "x"), SIGNALS, "single table"),
        (("shop.nothing",), SIGNALS, "no such table"),
        (("shop.orders",), "format: canal-json", "only Debezium"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(lakeward, arguments, source, message):
    code, _, err = lakeward(*arguments, source=source)
    assert code == 78
    assert message in err
    assert lakeward.sent == []


def test_the_end_of_the_snapshot_is_awaited(lakeward, monkeypatch):
    read = []

    class Tail:
        def __init__(self, source, topic, clock):
            assert topic == "told"
            assert lakeward.sent == [], "it listens before it asks"

        def read(self):
            if read:
                return
            read.append(signal := orjson.loads(lakeward.sent[0][2]))
            rest = {"scanned_collection": "public.orders", "total_rows_scanned": "7"}
            yield _Raw([told("TABLE_SCAN_COMPLETED", id_=signal["id"], **rest)])
            yield _Raw([told("COMPLETED", id_=signal["id"])])

        def close(self):
            pass

    monkeypatch.setattr(resnapshot_commands, "TopicTail", Tail)
    topics = "debezium: {signal.topic: signals, notification.topic: told}"
    code, out, err = lakeward("shop.orders", source=topics)
    assert (code, out) == (0, "snapshot of public.orders complete: 7 rows in 0 s\n")
    assert "asked shop for public.orders" in err
    _, out, _ = lakeward("shop.orders", "--no-wait", source=topics)
    assert out == "asked shop for public.orders\n"


class _Raw:
    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)
