# SPDX-License-Identifier: Apache-2.0
"""Partitions, or all rows, are removed by one commit; what others write stays."""

import pytest

from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import CommitKind
from storage.table.write.drop_partitions import drop_partitions, live_partitions, truncate
from storage.testing.invariants import violations
from tests.table_kit import make_table, reopened, rows_of, write

COLUMNS = (("dt", "STRING"), ("h", "INT"), ("k", "INT"))


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path, columns=COLUMNS, keys=("dt", "h", "k"), partitions=("dt", "h"))
    write(table, 1, [("+I", "a", 1, 1), ("+I", "a", 2, 2), ("+I", "b", 1, 3), ("+I", "c", 1, 4)])
    return table


def test_partitions_are_told_with_their_files(table):
    found = live_partitions(table, [{"dt": "a"}])
    assert [(one.name, one.files, one.rows) for one in found] == [
        ("dt=a/h=1", 1, 1),
        ("dt=a/h=2", 1, 1),
    ]
    assert len(live_partitions(table)) == 4


def test_some_partitions_go_and_the_others_stay(table):
    result = drop_partitions(table, [{"dt": "a", "h": "2"}, {"dt": "c"}])
    assert rows_of(table) == [("a", 1, 1), ("b", 1, 3)]
    assert table.snapshots.read(result.append_snapshot_id).commit_kind is CommitKind.OVERWRITE
    assert list(violations(reopened(table))) == []


def test_what_a_stream_says_of_itself_stays(table):
    commit = table.new_commit("stream")
    commit.commit([], 5, properties={"lakeward.offsets.s": "{}"}, ignore_empty=False)
    drop_partitions(table, [{"dt": "a"}])
    assert table.latest_snapshot().properties["lakeward.offsets.s"] == "{}"


def test_everything_goes(table):
    truncate(table)
    assert rows_of(table) == []
    write(table, 2, [("+I", "z", 1, 1)])
    assert rows_of(table) == [("z", 1, 1)]


@pytest.mark.parametrize("wrong", [[], [{}], [{"dt": "a"}, {}]])
def test_nothing_named_is_no_way_to_remove_everything(table, wrong):
    with pytest.raises(InvalidRequestError):
        drop_partitions(table, wrong)
    assert len(rows_of(table)) == 4


def test_a_column_that_is_no_partition_key_is_refused(table):
    with pytest.raises(InvalidRequestError, match="no such partition column"):
        drop_partitions(table, [{"k": "1"}])
