# SPDX-License-Identifier: Apache-2.0
"""Consumers: their files, and that expiry keeps what they still need."""

import json
import os
import pathlib

import pytest

from storage.errors import CorruptDataError, InvalidRequestError
from storage.table.retention.consumers import (
    Consumer,
    all_consumers,
    delete_consumer,
    expire_consumers,
    min_next_snapshot,
    read_consumer,
    write_consumer,
)
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, reopened, write
from tests.unit.storage.golden_tables import GOLDEN


def _expire(table: FileStoreTable, now_ms: int = 0) -> None:
    expire_snapshots(table, now_ms=now_ms, retain_max=1, retain_min=1, time_retained_ms=0)


def test_consumers_of_java_are_read() -> None:
    table = FileStoreTable.open(str(GOLDEN / "tags_branch_consumer" / "table"))
    assert all_consumers(table) == {"c1": 2, "job-2": 4}
    assert min_next_snapshot(table) == 2
    assert read_consumer(table, "nobody") is None


def test_setting_and_deleting(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    assert min_next_snapshot(table) is None
    write_consumer(table, "c", 5)
    path = pathlib.Path(table.layout.consumer_file("c"))
    assert json.loads(path.read_bytes()) == {"nextSnapshot": 5}
    path.write_bytes(b'{"nextSnapshot": 7, "newer": [1]}')
    write_consumer(table, "c", 8)
    assert json.loads(path.read_bytes()) == {"nextSnapshot": 8, "newer": [1]}
    assert read_consumer(table, "c") == Consumer(next_snapshot=8, extra={"newer": [1]})
    assert delete_consumer(table, "c")
    assert not delete_consumer(table, "c")
    for name, number in ((" ", 1), ("a/b", 1), ("c", 0)):
        with pytest.raises(InvalidRequestError):
            write_consumer(table, name, number)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"nextSnapshot": "5"}', b'{"next": 5}'])
def test_a_damaged_consumer_is_named_and_stops_expiry(tmp_path: pathlib.Path, data: bytes) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    write_consumer(table, "c", 1)
    pathlib.Path(table.layout.consumer_file("c")).write_bytes(data)
    with pytest.raises(CorruptDataError, match="consumer-c"):
        all_consumers(table)
    with pytest.raises(CorruptDataError):
        _expire(table)


def test_expiry_keeps_what_a_consumer_needs(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number in range(1, 6):
        write(table, number, [("+I", number, "a")], compaction=False)
    write_consumer(table, "slow", 3)
    write_consumer(table, "fast", 6)
    _expire(table)
    assert reopened(table).snapshots.ids() == [3, 4, 5]
    write_consumer(table, "slow", 9)
    _expire(table)
    assert reopened(table).snapshots.ids() == [5]


def test_consumers_that_stand_still_stop_keeping(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"consumer.expiration-time": "1 h"})
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")], compaction=False)
    for name, time_s in (("old", 1_000_000), ("new", 1_003_000)):
        write_consumer(table, name, 1 if name == "old" else 2)
        os.utime(table.layout.consumer_file(name), (time_s, time_s))
    _expire(table, now_ms=1_004_000_000)
    assert all_consumers(table) == {"new": 2}
    assert reopened(table).snapshots.ids() == [2, 3]
    assert expire_consumers(table, now_ms=1_004_000_000, age_ms=10) == ["new"]
