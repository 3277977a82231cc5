# SPDX-License-Identifier: Apache-2.0
"""Tables with a primary key and deletion vectors: written to level 0 only, seen once compacted."""

import pathlib

import pytest

from storage.errors import UnsupportedFeatureError
from tests.table_kit import make_table as make
from tests.table_kit import prepared, rows_of, write

VECTORS = {"deletion-vectors.enabled": "true"}
ROWS = [("+I", 1, "a"), ("+I", 2, "b")]


@pytest.mark.parametrize("bucket", ["1", "3", "-1"])
@pytest.mark.parametrize("by_option", [True, False])
def test_rows_go_to_level_0_where_batch_reads_do_not_look(
    tmp_path: pathlib.Path, bucket: str, by_option: bool
) -> None:
    options = {**VECTORS, "bucket": bucket, **({"write-only": "true"} if by_option else {})}
    table = make(tmp_path, options=options)
    for number in range(1, 9):  # more than the stop trigger
        result = write(table, number, [("+I", 1, f"v{number}")], compaction=by_option)
        assert result.compact_snapshot_id is None
    write(table, 9, [*ROWS, ("-D", 2, "b")], compaction=by_option)
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    levels = [entry.file.level for entry in table.new_scan().live_entries(snapshot)]
    assert set(levels) == {0}
    assert len(levels) >= 9
    assert rows_of(table) == []
    merging = table.with_options({"deletion-vectors.merge-on-read": "true"})
    assert rows_of(merging) == [(1, "a")]


def test_a_writer_that_would_compact_is_refused(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, options=VECTORS)
    with pytest.raises(UnsupportedFeatureError, match="deletion-vectors") as refused:
        prepared(table, ROWS)
    assert "write-only" in str(refused.value.hint)
    write(table, 1, ROWS, compaction=False)


@pytest.mark.parametrize("full", [True, False])
def test_nobody_compacts_by_hand(tmp_path: pathlib.Path, full: bool) -> None:
    table = make(tmp_path, options={**VECTORS, "write-only": "true"})
    write(table, 1, ROWS)
    refused = pytest.raises(UnsupportedFeatureError, match="deletion-vectors")
    with table.new_write("user") as writer, refused:
        writer.compact(full=full)
    assert rows_of(table.with_options({"deletion-vectors.merge-on-read": "true"})) == [
        (1, "a"),
        (2, "b"),
    ]
