# SPDX-License-Identifier: Apache-2.0
"""Java reads and goes on with tables that were rescaled, sorted, analyzed and emptied by us."""

import shutil
from collections.abc import Iterator

import pytest

from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.table.commit.live_files import clear_live_cache
from storage.table.compaction.rescale import rescale
from storage.table.compaction.sort_table import SortOrder, sort_table
from storage.table.inspect.analyze import analyze
from storage.table.write.drop_partitions import drop_partitions
from tests.interop.java_peer import JavaPeer
from tests.interop.java_upkeep import system_rows
from tests.table_kit import make_table, reopened, rows_of, write

pytestmark = pytest.mark.interop

COLUMNS = (("p", "STRING"), ("k", "INT"), ("v", "STRING"))


@pytest.fixture(autouse=True)
def _fresh(java: JavaPeer) -> Iterator[None]:
    clear_live_cache()
    clear_manifest_cache()
    yield
    shutil.rmtree(java.warehouse / "db.db" / "t")


def theirs(java: JavaPeer) -> list[tuple]:
    return sorted((tuple(row.values()) for row in java.read("db.t").to_pylist()), key=repr)


def test_other_buckets_and_dropped_partitions(java: JavaPeer) -> None:
    table = make_table(java.warehouse, columns=COLUMNS, keys=("p", "k"), partitions=("p",))
    write(table, 1, [("+I", p, k, f"{k}") for p in "abc" for k in range(50)])
    write(table, 2, [("-D", "a", 1, ""), ("+U", "b", 2, "new")])
    rescale(table, 4)
    assert theirs(java) == rows_of(reopened(table))
    rows = [("+I", ("a", 1, "java")), ("+U", ("b", 3, "java")), ("-D", ("c", 4, "4"))]
    java.write("db.t", rows)
    java.compact("db.t")
    drop_partitions(reopened(table), [{"p": "c"}])
    found = rows_of(reopened(table))
    assert theirs(java) == found
    assert ("a", 1, "java") in found
    assert {row[0] for row in found} == {"a", "b"}


def test_sorted_and_analyzed(java: JavaPeer) -> None:
    table = make_table(java.warehouse, columns=COLUMNS, keys=(), options={"bucket": "-1"})
    for commit in range(3):
        rows = [("+I", "ab"[k % 2], 100 - k, f"{commit}") for k in range(60)]
        write(table, commit, rows, compaction=False)
    sort_table(table, ["p", "k"], SortOrder.HILBERT)
    assert theirs(java) == rows_of(reopened(table))
    analyze(reopened(table), None)
    (shown,) = system_rows(java, "db.t$statistics").to_pylist()
    assert (shown["snapshot_id"], shown["mergedRecordCount"]) == (4, 180)
    java.compact("db.t")
    assert theirs(java) == rows_of(reopened(table))
