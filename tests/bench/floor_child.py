# SPDX-License-Identifier: Apache-2.0
"""One process of the floor: consume, decode, sort, write with plain libraries and nothing else.

Gets a line on standard input when it may begin. No offsets, no exactly-once, no commit, no schema
changes, no bad records: what is left is what the libraries take for the work itself.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.bench.measure import cpu_s

_CONSUME = 5_000
_BLOCK_BYTES = 2 << 20
_DECIMAL = pa.decimal128(12, 2)


class Order(msgspec.Struct, gc=False):
    """The row."""

    id: int
    user_id: int | None = None
    amount: str | None = None
    status: str | None = None
    note: str | None = None
    updated_at: int | None = None


class Event(msgspec.Struct, gc=False):
    """The envelope, as far as it is needed."""

    op: str
    before: Order | None = None
    after: Order | None = None


def kafka_values(config: dict[str, Any]) -> Iterator[list[bytes]]:
    """Values of this process's partitions from the beginning to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": config["bootstrap"],
            "group.id": "floor",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 1 << 18,
        }
    )
    places = [TopicPartition(config["topic"], number, 0) for number in config["partitions"]]
    consumer.assign(places)
    left = len(places)
    while left:
        messages = consumer.consume(_CONSUME, 0.05)
        values = []
        for message in messages:
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
            else:
                raise RuntimeError(error.str())
        if values:
            yield values
    consumer.close()


def file_values(config: dict[str, Any]) -> Iterator[list[bytes]]:
    """Lines of this process's files, a few thousand at a time."""
    for name in config["files"]:
        with Path(name).open("rb") as file:
            while lines := file.readlines(_BLOCK_BYTES):
                yield lines


def decode(decoder: msgspec.json.Decoder[Event], values: list[bytes]) -> pa.RecordBatch:
    """Values as columns: the rows and whether each is a deletion."""
    events = [decoder.decode(value) for value in values]
    rows = [event.after or event.before for event in events]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([event.op == "d" for event in events]),
            pa.array([row.id for row in rows], pa.int64()),
            pa.array([row.user_id for row in rows], pa.int64()),
            pa.array([row.amount for row in rows], pa.string()).cast(_DECIMAL),
            pa.array([row.status for row in rows], pa.string()),
            pa.array([row.note for row in rows], pa.string()),
            pa.array([row.updated_at for row in rows], pa.int64()).cast(pa.timestamp("us")),
        ],
        names=["deleted", "id", "user_id", "amount", "status", "note", "updated_at"],
    )


def write(path: Path, batches: list[pa.RecordBatch], first: int) -> int:
    """One sorted file in the key-value layout, each key's last row; rows written."""
    rows = pa.concat_batches(batches)
    ids = rows["id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    chosen = order[np.append(ordered[1:] != ordered[:-1], True)]
    rows = rows.take(pa.array(chosen))
    kinds = np.where(rows["deleted"].to_numpy(zero_copy_only=False), 3, 0).astype(np.int8)
    values = rows.schema.names[1:]
    table = pa.table(
        {
            "_KEY_id": rows["id"],
            "_SEQUENCE_NUMBER": pa.array(chosen + first),
            "_VALUE_KIND": pa.array(kinds),
            **{name: rows[name] for name in values},
        }
    )
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=1,
        use_dictionary=["status", "_VALUE_KIND"],
    )
    return table.num_rows


def run(config: dict[str, Any]) -> dict[str, Any]:
    """All batches of this process."""
    work = Path(config["work"])
    work.mkdir(parents=True, exist_ok=True)
    decoder = msgspec.json.Decoder(Event)
    sys.stdin.readline()
    started, cpu = time.monotonic(), cpu_s()
    seconds = dict.fromkeys(("read", "decode", "write"), 0.0)
    values_of = kafka_values if "bootstrap" in config else file_values
    pending: list[pa.RecordBatch] = []
    events = rows = gathered = files = 0
    mark = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal mark
        now = time.perf_counter()
        seconds[name] += now - mark
        mark = now

    for values in values_of(config):
        lap("read")
        pending.append(decode(decoder, values))
        lap("decode")
        gathered += len(values)
        if gathered >= config["batch"]:
            rows += write(work / f"{config['number']}-{files}.parquet", pending, events)
            events, files, gathered, pending = events + gathered, files + 1, 0, []
            lap("write")
    if pending:
        rows += write(work / f"{config['number']}-{files}.parquet", pending, events)
        events += gathered
        lap("write")
    return {
        "started": started,
        "ended": time.monotonic(),
        "cpu_s": cpu_s() - cpu,
        "events": events,
        "rows": rows,
        "seconds": seconds,
    }


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
