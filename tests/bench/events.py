# SPDX-License-Identifier: Apache-2.0
"""The orders workload as Debezium events of about 600 bytes, in a Kafka topic or in files.

Written as the PostgreSQL connector does with `decimal.handling.mode=string`, no schema block, no
`before` on updates (default replica identity) and no tombstones. An order's events are all in
partition `id % PARTITIONS`, so any reader sees them in order.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import workload

TOPIC = "shop.public.orders"
TABLE = "shop.orders"
PARTITIONS = 4
_CHUNK = 10_000
Encoder = Callable[[bytes, bytes], tuple[bytes, bytes]]
"""(key, value) as JSON to another encoding."""
_OPS = {workload.INSERT: "c", workload.UPDATE: "u", workload.DELETE: "d"}
_FIRST_MS = 1_760_000_000_000


def event_lists(orders: workload.Orders) -> Iterator[list[tuple[int, bytes, bytes]]]:
    """(partition, key, value) of every change, some thousand at a time, in order."""
    number = 0
    for batch in orders.batches():
        for start in range(0, batch.num_rows, _CHUNK):
            piece = batch.slice(start, _CHUNK)
            yield _events(piece, number)
            number += piece.num_rows


def _events(rows: pa.Table, number: int) -> list[tuple[int, bytes, bytes]]:
    columns = rows.set_column(5, "updated_at", rows["updated_at"].cast(pa.int64())).to_pydict()
    events = []
    for position, (key, user, amount, status, note, updated, kind) in enumerate(
        zip(*columns.values(), strict=True), number
    ):
        op = _OPS[kind]
        millis = _FIRST_MS + position // 10
        lsn = 33_000_000 + position * 120
        if op == "d":
            before = (
                f'{{"id":{key},"user_id":null,"amount":null,"status":null,"note":null,'
                '"updated_at":null}'
            )
            after = "null"
        else:
            before = "null"
            after = (
                f'{{"id":{key},"user_id":{user},"amount":"{amount}","status":"{status}",'
                f'"note":"{note}","updated_at":{updated}}}'
            )
        value = (
            f'{{"before":{before},"after":{after},"source":{{"version":"3.4.0.Final",'
            f'"connector":"postgresql","name":"shop","ts_ms":{millis},"snapshot":"false",'
            f'"db":"shop","sequence":"[\\"{lsn - 56}\\",\\"{lsn}\\"]","ts_us":{millis}000,'
            f'"ts_ns":{millis}000000,"schema":"public","table":"orders",'
            f'"txId":{700 + position // 10},"lsn":{lsn},"xmin":null}},"transaction":null,'
            f'"op":"{op}","ts_ms":{millis + 41},"ts_us":{millis + 41}377,'
            f'"ts_ns":{millis + 41}377215}}'
        )
        events.append((key % PARTITIONS, f'{{"id":{key}}}'.encode(), value.encode()))
    return events


def whole_before(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """The event with a whole row in `before` if it is an update (replica identity full)."""
    if b'"op":"u"' in value:
        row = value[value.index(b'"after":') + 8 : value.index(b',"source":')]
        value = value.replace(b'"before":null', b'"before":' + row, 1)
    return key, value


def fill_topic(
    bootstrap: str, orders: workload.Orders, topic: str = TOPIC, encode: Encoder | None = None
) -> dict[str, Any]:
    """Create the topic and produce everything; counts and mean size."""
    create_topic(bootstrap, topic, PARTITIONS)
    producer = _producer(bootstrap)
    events = size = 0
    for chunk in event_lists(orders):
        by_partition: list[list[dict[str, bytes]]] = [[] for _ in range(PARTITIONS)]
        for partition, key, value in chunk:
            if encode is not None:
                key, value = encode(key, value)
            by_partition[partition].append({"key": key, "value": value})
            size += len(value)
        for partition, messages in enumerate(by_partition):
            send(producer, topic, messages, partition)
        events += len(chunk)
        producer.poll(0)
    _flush(producer)
    return {"events": events, "bytes_per_event": round(size / max(1, events))}


def fill_tombstones(bootstrap: str, topic: str, count: int) -> None:
    """Create a topic of one partition whose records are tombstones: events without any row."""
    create_topic(bootstrap, topic, 1)
    producer = _producer(bootstrap)
    messages = [{"key": b'{"id":%d}' % number} for number in range(count)]
    send(producer, topic, messages, 0)
    _flush(producer)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    for future in made.values():
        future.result(30)


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 4,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 1 << 18,
        }
    )


def send(producer: Producer, topic: str, messages: list[dict[str, bytes]], partition: int) -> None:
    """Queue messages of one partition, waiting for room."""
    while messages:
        queued = producer.produce_batch(topic, messages, partition=partition)
        messages = messages[queued:]
        if messages:
            producer.poll(0.05)


def _flush(producer: Producer) -> None:
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} events were not delivered")


def fill_files(directory: Path, orders: workload.Orders, files: int) -> dict[str, Any]:
    """Write `<directory>/<topic>/NNNN.jsonl`, a bare event per line, about equally many in each."""
    folder = directory / TOPIC
    folder.mkdir(parents=True)
    chunks = event_lists(orders)
    lines = [value for chunk in chunks for _, _, value in chunk]
    share = -(-len(lines) // files)
    size = 0
    for number, start in enumerate(range(0, len(lines), share)):
        text = b"\n".join(lines[start : start + share]) + b"\n"
        (folder / f"{number:04d}.jsonl").write_bytes(text)
        size += len(text)
    return {"events": len(lines), "bytes_per_event": round(size / len(lines))}


def expected(size: workload.Size) -> pa.Table:
    """The table after all events."""
    orders = workload.Orders(size)
    for _ in orders.batches():
        pass
    return orders.final()
