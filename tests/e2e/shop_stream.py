# SPDX-License-Identifier: Apache-2.0
"""The demo shop's events in real Kafka topics, with noise, and checks of what became of them."""

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.tools.demo.shop import DemoShop, Event, Mix, topic_of
from storage.catalog.catalog import FileSystemCatalog
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table

TABLES = ("customers", "products", "orders")
HEARTBEAT_TOPIC = "__debezium-heartbeat.shop"
PATTERN = r"shop\..*|__debezium-heartbeat\..*"
MIX = Mix(insert=0.25, update=0.6, delete=0.1, key_change=0.05)

CORRUPT = (
    b'{"before":null,"after":{"order_id":',
    b"not json at all",
    b"\xff\xfe\x00\x01",
    b"[1,2,3]",
    b'"a string"',
    b"42",
    b'{"op":"c"}',
    b'{"payload":{"op":"zz","after":{"a":1},"source":{"db":"shop","table":"orders"}},"schema":null}',
    b'{"hello":"world"}',
    b"{}",
)
"""Ten messages that no decoder can make a row of, nor take for anything Debezium sends besides."""

Place = tuple[str, int, int]


class ShopStream:
    """Produces a seeded stream; knows the model and where the corrupt messages went.

    Args:
        bootstrap: the broker.
        seed: of the events.
        partitions: of each topic.
        schema_block: whether events carry Debezium's schema block; without it types are inferred.
        time_ms: of the first event [epoch ms].
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        seed: int = 7,
        partitions: int = 4,
        schema_block: bool = True,
        time_ms: int = 1_790_000_000_000,
    ) -> None:
        self.bootstrap = bootstrap
        self.shop = DemoShop(seed, schema_block=schema_block, time_ms=time_ms)
        self.corrupt: set[Place] = set()
        self.produced = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        )
        self.topics = [topic_of(table) for table in TABLES] + [HEARTBEAT_TOPIC]
        recreate_topics(bootstrap, self.topics, partitions)

    def snapshot(self, count: int) -> None:
        """Rows that were there before: `count` of each table, as snapshot reads."""
        for table in TABLES:
            for events in self.shop.insert(table, count, snapshot=True):
                self.send(events)
        self.flush()

    def changes(self, count: int, *, heartbeat_every: int = 2_000, mix: Mix = MIX) -> None:
        """`count` changes over all tables, with heartbeats among them."""
        sent = 0
        for events in self.shop.stream(count, mix):
            self.send(events)
            if (sent + len(events)) // heartbeat_every > sent // heartbeat_every:
                self.heartbeat()
            sent += len(events)
        self.flush()

    def everything_again(self) -> None:
        """Every row that there is, as it is, sent once more."""
        for table in TABLES:
            for key in self.shop.live_keys(table):
                self.send(self.shop.update_row(table, key))
        self.flush()

    def heartbeat(self) -> None:
        """What Debezium's heartbeat looks like."""
        value = json.dumps({"ts_ms": 1_790_000_000_000}).encode()
        self._producer.produce(HEARTBEAT_TOPIC, value=value, key=b'{"serverName":"shop"}')

    def corruption(self, messages: Iterable[bytes] = CORRUPT, *, key: bytes = b"") -> None:
        """Messages that must end in quarantine, spread over the topics; with a key or their own."""

        def delivered(error, message):
            assert error is None, error
            self.corrupt.add((message.topic(), message.partition(), message.offset()))

        for number, value in enumerate(messages):
            topic = self.topics[number % len(TABLES)]
            own = key or b'{"id":%d}' % number
            self._producer.produce(topic, value=value, key=own, on_delivery=delivered)
        self.flush()

    def send(self, events: Iterable[Event]) -> None:
        """Produce events; the key decides the partition."""
        for topic, key, value, headers in events:
            while True:
                try:
                    self._producer.produce(topic, value=value, key=key, headers=list(headers))
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.produced += 1
        self._producer.poll(0)

    def assert_rows(self, tables: Mapping[str, FileStoreTable]) -> None:
        """The tables have the model's rows, values and types."""
        assert_rows_equal_model(tables, self.shop)

    def flush(self) -> None:
        """Wait until everything is acknowledged."""
        assert self._producer.flush(60) == 0


def recreate_topics(bootstrap: str, topics: Iterable[str], partitions: int) -> None:
    """Empty topics of these names."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = list(topics)
    known = set(admin.list_topics(timeout=20).topics)
    stale = [name for name in names if name in known]
    if stale:
        for future in admin.delete_topics(stale).values():
            future.result(30)
        deadline = time.monotonic() + 30
        while known & set(stale) and time.monotonic() < deadline:
            time.sleep(0.2)
            known = set(admin.list_topics(timeout=20).topics)
    created = admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    for future in created.values():
        future.result(30)


def open_tables(warehouse: Path) -> dict[str, FileStoreTable]:
    """Every table of the shop's database."""
    catalog = FileSystemCatalog(str(warehouse))
    return {name: catalog.table(f"shop.{name}") for name in catalog.list_tables("shop")}


def sorted_rows(table: pa.Table, key: str) -> pa.Table:
    """A table in key order, with plain chunking, for comparison."""
    return table.sort_by(key).combine_chunks()


def assert_tables_equal_model(warehouse: Path, shop: DemoShop) -> None:
    """Rows are the model's, values and types, and every table keeps its invariants."""
    tables = open_tables(warehouse)
    assert_rows_equal_model(tables, shop)
    for table in tables.values():
        check_table(table)


def assert_rows_equal_model(tables: Mapping[str, FileStoreTable], shop: DemoShop) -> None:
    """Rows are the model's, values and types."""
    assert set(tables) == set(TABLES)
    for name in TABLES:
        expected = shop.expected(name)
        key = tables[name].schema.primary_keys[0]
        found = sorted_rows(tables[name].to_arrow(), key).select(expected.column_names)
        expected = sorted_rows(expected, key)
        assert found.num_rows == expected.num_rows, name
        for column in expected.column_names:
            one, two = found[column].combine_chunks(), expected[column].combine_chunks()
            assert one.type == two.type, (name, column)
            assert one.equals(two), (name, column)


def quarantined(warehouse: Path) -> set[Place]:
    """Where the quarantined records came from."""
    return quarantined_places(FileSystemCatalog(str(warehouse)).table("lakeward._quarantine"))


def quarantined_places(table: FileStoreTable) -> set[Place]:
    """The same of the quarantine table of any warehouse; each is there once."""
    rows = table.to_arrow(columns=["topic", "partition", "offset"]).to_pylist()
    places = [(row["topic"], row["partition"], row["offset"]) for row in rows]
    assert len(places) == len(set(places))
    return set(places)


def snapshots(table: FileStoreTable) -> Iterator:
    """All live snapshots, oldest first."""
    return (table.snapshots.read(number) for number in sorted(table.snapshots.ids()))


def assert_identifiers_never_repeat(table: FileStoreTable) -> None:
    """Per commit user and kind identifiers grow strictly over the live snapshots."""
    by_user: dict[tuple[str, str], list[int]] = {}
    for snapshot in snapshots(table):
        key = (snapshot.commit_user, snapshot.commit_kind.value)
        by_user.setdefault(key, []).append(snapshot.commit_identifier)
    for key, numbers in by_user.items():
        assert all(a < b for a, b in itertools.pairwise(numbers)), (key, numbers)


def assert_no_file_missing(table: FileStoreTable) -> None:
    """Every file that any live snapshot names is there."""
    for snapshot in snapshots(table):
        for entry in table.new_scan().live_entries(snapshot):
            path = table.layout.data_file(
                table.partition_path(entry.partition), entry.bucket, entry.file.file_name
            )
            assert Path(path).exists(), (snapshot.id, path)
