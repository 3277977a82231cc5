# SPDX-License-Identifier: Apache-2.0
"""Append tables with deletion vectors against a bag of rows, beside compactions that are late.

Laws: 1 scan and time travel equal the model; 2 compaction is invisible, also one that was prepared
before rows were deleted; 3 the table is sound; 4 expiry leaves no index file that nobody names.
"""

import collections
import pathlib
import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from storage.clock import ManualClock
from storage.format.metadata.file_meta import CommitMessage
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import Compare, In, Op, Or
from storage.testing.invariants import check_table
from tests.property.profiles import profile
from tests.table_kit import (
    index_files_named,
    index_files_on_disk,
    make_table,
    prepared,
    reopened,
    rows_batch,
)

KEYS = range(12)
OPTIONS = st.fixed_dictionaries(
    {
        "bucket": st.sampled_from(["-1", "1", "3"]),
        "target-file-size": st.sampled_from(["1 b", "128 mb"]),
        "deletion-vectors.bitmap64": st.sampled_from(["false", "true"]),
        "deletion-vector.index-file.target-size": st.sampled_from(["1 b", "2 mb"]),
        "source.split.target-size": st.sampled_from(["1 b", "128 mb"]),
        "manifest.merge-min-count": st.sampled_from(["2", "30"]),
    }
)
Rows = collections.Counter[tuple[int, str]]


class DeletionMachine(RuleBasedStateMachine):
    """One table; a writer, a deleter, and a compactor that may sleep before it commits."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = pathlib.Path(tempfile.mkdtemp())
        self._rows: Rows = collections.Counter()
        self._states: dict[int, Rows] = {}
        self._late: list[CommitMessage] | None = None
        self._number = 0

    @initialize(options=OPTIONS)
    def create(self, options: dict[str, str]) -> None:
        options = {"deletion-vectors.enabled": "true", **options}
        if options["bucket"] != "-1":
            options["bucket-key"] = "k"
        self.table = make_table(self._directory, keys=(), options=options, clock=ManualClock())

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def insert(self, keys: list[int]) -> None:
        self._number += 1
        rows = [(key, f"v{self._number}") for key in keys]
        with self.table.new_write("w", compaction=False) as writer:
            writer.write(rows_batch(self.table, [("+I", *row) for row in rows]))
            messages = writer.prepare_commit()
        self.table.new_commit("w").commit(messages, self._number)
        self._rows.update(rows)
        self._remember()

    @rule(keys=st.sets(st.sampled_from(KEYS), max_size=3), below=st.integers(-1, 4))
    def delete(self, keys: set[int], below: int) -> None:
        chosen = Or((In("k", tuple(sorted(keys))), Compare(Op.LT, "k", below)))
        gone = {row for row in self._rows if row[0] in keys or row[0] < below}
        result = self.table.delete_where(chosen, "d")
        assert result.row_count == sum(self._rows[row] for row in gone)
        for row in gone:
            del self._rows[row]
        self._remember()

    @rule()
    def compact(self) -> None:
        self._number += 1
        messages = prepared(self.table, full=True)
        self.table.new_commit("c").commit(messages, self._number)
        self._remember()

    @rule()
    def begin_compaction(self) -> None:
        if self._late is None:
            self._late = prepared(self.table, full=True)

    @rule()
    def end_compaction(self) -> None:
        if self._late is not None:
            self._number += 1
            self.table.new_commit("late").commit(self._late, self._number)
            self._late = None
            self._remember()

    @rule(retain=st.integers(1, 3))
    def expire(self, retain: int) -> None:
        now = self.table.clock.now_ms() + 10**10
        expire_snapshots(self.table, now_ms=now, retain_min=retain, retain_max=retain)
        if self._late is None:
            assert index_files_on_disk(self.table) == index_files_named(self.table)

    @rule()
    def restart(self) -> None:
        self.table = reopened(self.table)

    @invariant()
    def every_snapshot_shows_its_rows(self) -> None:
        if not hasattr(self, "table"):
            return
        ids = self.table.snapshots.ids()
        for snapshot_id in ids[-2:]:
            assert self._found(snapshot_id) == self._states[snapshot_id]
        if ids:
            count = self.table.to_arrow(columns=[]).num_rows
            assert count == self._rows.total()
        check_table(self.table)

    def _found(self, snapshot_id: int) -> Rows:
        rows = self.table.to_arrow(snapshot=snapshot_id).to_pylist()
        return collections.Counter((row["k"], row["v"]) for row in rows)

    def _remember(self) -> None:
        """Snapshots made by the last operation show the rows of now."""
        for snapshot_id in self.table.snapshots.ids():
            self._states.setdefault(snapshot_id, self._rows.copy())

    def teardown(self) -> None:
        shutil.rmtree(self._directory)


def test_deletions_against_the_model() -> None:
    short = settings(profile(short=15), stateful_step_count=25)
    run_state_machine_as_test(DeletionMachine, settings=short)
