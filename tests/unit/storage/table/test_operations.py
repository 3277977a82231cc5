# SPDX-License-Identifier: Apache-2.0
"""The facade: operations on a table are its methods, and wrong arguments are refused clearly."""

import pytest

from storage.errors import InvalidRequestError
from storage.table.tags import all_tags
from tests.table_kit import make_table, rows_of, write


def test_tags_branches_and_expiry_are_methods(tmp_path):
    table = make_table(tmp_path)
    for number in range(4):
        write(table, number, [("+I", number, "a")])
    table.create_tag("first", snapshot_id=1)
    table.create_branch("old", tag="first")
    assert table.expire_snapshots(retain_min=1, retain_max=1) == 3
    assert rows_of(table, tag="first") == rows_of(table.at_branch("old")) == [(0, "a")]
    table.drop_branch("old")
    table.delete_tag("first")
    assert all_tags(table) == []
    table.truncate()
    assert rows_of(table) == []


def test_rows_are_deleted_by_a_filter_as_scans_take_it(tmp_path):
    options = {"deletion-vectors.enabled": "true", "bucket": "-1"}
    table = make_table(tmp_path, keys=(), options=options)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    assert table.delete_where("k = 1", "me").row_count == 1
    assert rows_of(table) == [(2, "b")]
    for wrong in (None, 1, ["k = 1"]):
        with pytest.raises(InvalidRequestError, match="filter"):
            table.delete_where(wrong, "me")
    with pytest.raises(InvalidRequestError, match="type=`list`"):
        table.scan(["k = 1"])
    with pytest.raises(TypeError, match="snapshots"):
        table.to_arrow(snapshots=1)
