# SPDX-License-Identifier: Apache-2.0
"""Postponed tables against twins with a fixed number of buckets, over random histories.

Laws: 1 after a compaction the postponed table shows what its twin shows, before it what the twin
showed at the last one; 2 partitions keep their number of buckets; 3 keys lie in the bucket of their
hash; 4 the changelog of `lookup` replays to the rows; 5 the table is sound.
"""

import pathlib
import tempfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.table.commit.live_files import live_entries
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.inline_executor import InlineExecutor
from tests.property.profiles import profile
from tests.table_kit import make_table, reopened, rows_batch, rows_of

COLUMNS = (("p", "STRING"), ("k", "BIGINT"), ("s", "BIGINT"), ("v", "BIGINT"), ("w", "STRING"))
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by-sequence": {"sequence.field": "s"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.w.aggregate-function": "last_non_null_value",
    },
}
DELETES = ("deduplicate",)
"""Engines that get deletes: elsewhere what a delete leaves depends on what is merged at a time."""
Row = tuple[Any, ...]


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, dict[str, str], list[Any]]:
    """An engine, options of the postponed table, and steps: rows of a commit, or a compaction."""
    engine = draw(st.sampled_from(sorted(ENGINES)))
    options = {
        "postpone.default-bucket-num": draw(st.sampled_from(["1", "3"])),
        "target-file-size": draw(st.sampled_from(["1 b", "128 mb"])),
        "write-buffer-size": draw(st.sampled_from(["1 b", "64 mb"])),
        "num-sorted-run.compaction-trigger": draw(st.sampled_from(["2", "5"])),
        "manifest.merge-min-count": draw(st.sampled_from(["2", "30"])),
    }
    if engine != "first-row":
        options["changelog-producer"] = draw(st.sampled_from(["none", "input", "lookup"]))
        options["deletion-vectors.enabled"] = draw(st.sampled_from(["false", "true"]))
        if (
            options["deletion-vectors.enabled"] == "true"
            and options["changelog-producer"] == "input"
        ):
            options["changelog-producer"] = "none"
    kinds = st.sampled_from(["+I", "+U", "-D"] if engine in DELETES else ["+I", "+U"])
    row = st.tuples(
        kinds,
        st.sampled_from("ab"),
        st.integers(0, 7),
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(-9, 9)),
        st.one_of(st.none(), st.sampled_from(["x", "y"])),
    )
    write = st.lists(st.lists(row, max_size=12), min_size=1, max_size=3)
    step = st.one_of(write, st.sampled_from(["full", "minor", "batch"]))
    return engine, options, draw(st.lists(step, min_size=2, max_size=8))


@given(histories())
@profile(short=6, long=250)
def test_a_postponed_table_equals_its_twin(history: tuple[str, dict[str, str], list[Any]]) -> None:
    engine, options, steps = history
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        pair = Pair(root, {**ENGINES[engine], **options})
        for step in steps:
            pair.take(step)
        pair.take("full")


class Pair:
    """A postponed table and its twin."""

    def __init__(self, root: pathlib.Path, options: dict[str, str]) -> None:
        common: dict[str, Any] = {
            "columns": COLUMNS,
            "keys": ("p", "k"),
            "partitions": ("p",),
        }
        buckets = {"bucket": options["postpone.default-bucket-num"]}
        self.postponed = make_table(root / "p", **common, options={**options, "bucket": "-2"})
        self.twin = make_table(root / "t", **common, options={**options, **buckets}, seed=1)
        self.buckets = int(buckets["bucket"])
        self.shown: list[Row] = []
        self.number = 0

    def take(self, step: Any) -> None:
        """One step of a history."""
        if step == "batch":  # rows that were postponed before would count as later
            self._compact(full=False)
            for table in (self.postponed, self.twin):
                self._commit(
                    table, [[("+I", "a", 1, 9, 1, "z"), ("+I", "b", 2, 9, 4, None)]], batch=True
                )
            self._compact(full=False)
        elif isinstance(step, str):
            self._compact(full=step == "full")
        else:
            self._commit(self.postponed, step)
            self._commit(self.twin, step)
            assert rows_of(self.postponed) == self.shown

    def _commit(self, table: FileStoreTable, batches: list[list[Row]], **named: Any) -> None:
        self.number += 1
        with table.new_write("w", **named) as writer:
            for rows in batches:
                if rows:
                    writer.write(rows_batch(table, rows))
            table.new_commit("w").commit(writer.prepare_commit(), self.number)

    def _compact(self, *, full: bool) -> None:
        for table in (self.postponed, self.twin):
            report = compact_table(table, CompactRequest(full=full), InlineExecutor())
            assert report.complete, report
        self.shown = rows_of(self.twin)
        assert rows_of(reopened(self.postponed)) == self.shown
        check_table(self.postponed, rows=True)
        snapshot = self.postponed.latest_snapshot()
        for entry in () if snapshot is None else live_entries(self.postponed, snapshot):
            assert entry.bucket != POSTPONE_BUCKET
            assert entry.total_buckets == self.buckets
        if self.postponed.options.changelog_producer == "lookup":
            self._replay()
        for k in range(8):
            assert rows_of(self.postponed, filter=f"k = {k}") == [
                row for row in self.shown if row[1] == k
            ]

    def _replay(self) -> None:
        """Law 4."""
        ids = self.postponed.snapshots.ids()
        rows: dict[Row, Row] = {}
        for kind, *row in (change for one in ids for change in changes_of(self.postponed, one)):
            if kind in ("+I", "+U"):
                rows[tuple(row[:2])] = tuple(row)
            else:
                rows.pop(tuple(row[:2]), None)
        assert sorted(rows.values(), key=repr) == self.shown
