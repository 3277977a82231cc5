# SPDX-License-Identifier: Apache-2.0
"""What would expire is what expires."""

from storage.table.retention.consumers import expire_consumers, idle_consumers, write_consumer
from storage.table.retention.expire import (
    Retention,
    expirable_changelogs,
    expirable_snapshots,
    expire_changelogs,
    expire_snapshots,
)
from storage.table.retention.expire_partitions import expirable_partitions, expire_partitions
from storage.table.tags import create_tag, expire_tags, outlived_tags
from tests.table_kit import make_table, write

DAY_MS = 86_400_000


def filled(tmp_path, commits=6, **given):
    table = make_table(tmp_path, **given)
    for number in range(1, commits + 1):
        write(table, number, [("+I", number, "a")], compaction=False)
    return table


def test_snapshots_up_to_a_consumer(tmp_path):
    table = filled(tmp_path)
    write_consumer(table, "reader", 4)
    now_ms = table.clock.now_ms()
    told = expirable_snapshots(
        table, now_ms=now_ms, retention=Retention(retain_min=1, retain_max=1)
    )
    assert told == [1, 2, 3]
    assert expire_snapshots(table, now_ms=now_ms, retain_min=1, retain_max=1) == 3
    assert table.snapshots.ids() == [4, 5, 6]


def test_a_pass_over_snapshots_alone_leaves_consumers(tmp_path):
    table = filled(tmp_path, options={"consumer.expiration-time": "1 ms"})
    write_consumer(table, "reader", 3)
    later = table.clock.now_ms() + 10**13
    expire_snapshots(table, now_ms=later, retain_min=1, retain_max=1, alone=True)
    assert table.snapshots.ids() == [3, 4, 5, 6]
    assert idle_consumers(table, now_ms=later, age_ms=1) == ["reader"]
    assert expire_consumers(table, now_ms=later, age_ms=1) == ["reader"]


def test_long_lived_changelogs(tmp_path):
    keep = {"changelog-producer": "input", "snapshot.num-retained.max": "1"}
    keep |= {"snapshot.num-retained.min": "1", "changelog.num-retained.max": "100"}
    table = filled(tmp_path, options=keep | {"changelog.num-retained.min": "1"})
    now_ms = table.clock.now_ms()
    expire_snapshots(table, now_ms=now_ms)
    assert table.changelogs.ids() == [1, 2, 3, 4, 5]
    assert expirable_changelogs(table, now_ms=now_ms) == []
    assert expirable_changelogs(table, now_ms=now_ms, delete_all=True) == [1, 2, 3, 4, 5]
    later = now_ms + 2 * DAY_MS
    told = expirable_changelogs(table, now_ms=later)
    assert told
    assert expire_changelogs(table, now_ms=later) == len(told)


def test_partitions_and_tags(tmp_path):
    columns = (("dt", "STRING"), ("k", "INT"))
    options = {"partition.expiration-time": "1 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    table = make_table(
        tmp_path, columns=columns, keys=("dt", "k"), partitions=("dt",), options=options
    )
    write(table, 1, [("+I", "2001-01-01", 1), ("+I", "2999-01-01", 2)])
    create_tag(table, "short", time_retained_ms=1000)
    create_tag(table, "long")
    now_ms = table.clock.now_ms() + 2000
    assert list(expirable_partitions(table, now_ms=now_ms).values()) == ["2001-01-01"]
    assert outlived_tags(table, now_ms=now_ms) == ["short"]
    assert expire_partitions(table, now_ms=now_ms) == ["2001-01-01"]
    assert expire_tags(table, now_ms=now_ms) == ["short"]
    assert expirable_partitions(table, now_ms=now_ms) == {}
