# SPDX-License-Identifier: Apache-2.0
"""A whole table against the naive model, under any sequence of operations.

Laws: 1 scan and time travel equal the model; 2 compaction is invisible; 4 cutting the input
elsewhere changes nothing; 5 committing one identifier twice equals once; 6 the table is sound.
"""

import pathlib
import shutil
import tempfile
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.clock import ManualClock
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.table.commit.live_files import clear_live_cache
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import Compare, Op
from storage.testing.invariants import check_table
from tests.property.model import Change, TableModel, in_order
from tests.property.profiles import profile
from tests.table_kit import make_table, reopened, rows_batch

PARTITIONS = ("a", "", "x/y")
KEYS = range(9)

ROWS = st.tuples(
    st.sampled_from(PARTITIONS),
    st.sampled_from(KEYS),
    st.none() | st.sampled_from(["", "v", "w" * 200]),
)
CHANGES = st.lists(st.tuples(st.sampled_from(["+I", "+U", "-D", "-U"]), ROWS), max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "bucket": st.sampled_from(["1", "3"]),
        "num-sorted-run.compaction-trigger": st.sampled_from(["2", "3", "5"]),
        "target-file-size": st.sampled_from(["1 b", "2 kb", "128 mb"]),
        "write-buffer-size": st.sampled_from(["200 b", "256 mb"]),
        "manifest.merge-min-count": st.sampled_from(["2", "30"]),
        "source.split.target-size": st.sampled_from(["1 b", "128 mb"]),
        "write-only": st.sampled_from(["false", "true"]),
    }
)
USER = "stream"


class TableMachine(RuleBasedStateMachine):
    """One table, one stream that writes it, sometimes a compactor beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="table-"))
        self.model = TableModel((0, 1))
        self.pending: list[list[Change]] = []
        self.identifier = 0
        self.last: tuple[int, list[Any], list[list[Change]]] | None = None
        self.columns = 0
        self.readable: dict[int, list[tuple[Any, ...]]] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(options=OPTIONS, partitioned=st.booleans())
    def create(self, options: dict[str, str], partitioned: bool) -> None:
        self.table = make_table(
            self.root,
            columns=[("p", "STRING"), ("k", "BIGINT"), ("v", "STRING")],
            keys=["p", "k"],
            partitions=["p"] if partitioned else [],
            options=options,
            clock=ManualClock(),
        )

    # ------------------------------------------------------------------ what can happen

    @rule(changes=CHANGES)
    def write(self, changes: list[Change]) -> None:
        if changes:
            self.pending.append(changes)

    @rule(full=st.booleans())
    def commit(self, full: bool) -> None:
        messages = self._messages(self.pending, full=full)
        result = self.table.new_commit(USER).commit(messages, self.identifier)
        assert not result.already_committed
        assert not result.compaction_dropped
        for batch in self.pending:
            self.model.write(batch)
        self._published(result.append_snapshot_id, result.compact_snapshot_id)
        self.last = (self.identifier, messages, self.pending)
        self.pending = []
        self.identifier += 1

    @precondition(lambda self: self.last is not None)
    @rule(same=st.booleans(), elsewhere=st.integers(1, 5))
    def retry(self, same: bool, elsewhere: int) -> None:
        """The last commit again: its messages, or its rows written anew and cut elsewhere."""
        assert self.last is not None
        identifier, messages, batches = self.last
        if self.table.new_commit(USER).filter_committed([identifier]):
            return  # there was nothing to commit
        if not same:
            rows = [change for batch in batches for change in batch]
            cut = [rows[at : at + elsewhere] for at in range(0, len(rows), elsewhere)]
            messages = self._messages(cut, full=True)
        before = self.table.snapshots.latest_id()
        result = self.table.new_commit(USER).commit(messages, identifier)
        assert result.already_committed
        assert self.table.snapshots.latest_id() == before

    @rule(full=st.booleans(), lost=st.booleans())
    def compact(self, full: bool, lost: bool) -> None:
        """A compactor, sometimes one whose inputs are gone by the time it commits."""
        messages = self._messages([], full=full)
        if lost:
            first = self._messages([], full=full)
            result = self.table.new_commit("rival").commit(first, self.identifier)
            self._published(result.append_snapshot_id, result.compact_snapshot_id)
        user = f"compactor-{self.identifier}-{self.table.snapshots.latest_id()}"
        result = self.table.new_commit(user).commit(messages, self.identifier)
        assert result.append_snapshot_id is None
        assert result.compaction_dropped == (lost and bool(messages))
        self._published(result.compact_snapshot_id)
        self.identifier += 1

    @precondition(lambda self: self.columns < 3)
    @rule()
    def add_column(self) -> None:
        self.columns += 1
        self.table = self.table.alter([AddColumn(f"c{self.columns}", parse_type("INT"))])

    @rule(retain=st.integers(1, 4))
    def expire(self, retain: int) -> None:
        now = self.table.clock.now_ms() + 10**10
        expire_snapshots(self.table, now_ms=now, retain_min=retain, retain_max=retain)
        earliest = self.table.snapshots.earliest_id()
        if earliest is not None:
            self.model.expire(earliest)
            self.readable = {i: rows for i, rows in self.readable.items() if i >= earliest}
        assert self.table.snapshots.ids() == sorted(self.readable)

    @rule()
    def reopen(self) -> None:
        clear_live_cache()
        self.table = reopened(self.table)

    @precondition(lambda self: self.readable)
    @rule(data=st.data())
    def time_travel(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(sorted(self.readable)))
        assert self._rows(snapshot_id) == in_order(self.model.rows(snapshot_id))

    @rule(key=st.sampled_from(KEYS), op=st.sampled_from(Op))
    def read_filtered(self, key: int, op: Op) -> None:
        wanted = {
            Op.EQ: lambda k: k == key,
            Op.NE: lambda k: k != key,
            Op.LT: lambda k: k < key,
            Op.LE: lambda k: k <= key,
            Op.GT: lambda k: k > key,
            Op.GE: lambda k: k >= key,
        }[op]
        found = self.table.to_arrow(columns=["v", "k", "p"], filter=Compare(op, "k", key))
        rows = [(row["p"], row["k"], row["v"]) for row in found.to_pylist()]
        assert in_order(rows) == in_order(row for row in self.model.rows() if wanted(row[1]))

    # -------------------------------------------------------------------------- laws

    @invariant()
    def scan_equals_model(self) -> None:
        if hasattr(self, "table"):
            assert self._rows(None) == in_order(self.model.rows())

    @invariant()
    def table_is_sound(self) -> None:
        if hasattr(self, "table"):
            check_table(self.table)

    # ----------------------------------------------------------------------- helpers

    def _messages(self, batches: list[list[Change]], *, full: bool) -> list[Any]:
        with self.table.new_write(USER) as writer:
            for batch in batches:
                padded = [(kind, *row, *[None] * self.columns) for kind, row in batch]
                writer.write(rows_batch(self.table, padded))
            if full:
                writer.compact(full=True)
            return writer.prepare_commit()

    def _published(self, *snapshot_ids: int | None) -> None:
        there = [snapshot_id for snapshot_id in snapshot_ids if snapshot_id is not None]
        self.model.commit(*there)
        for snapshot_id in there:
            self.readable[snapshot_id] = self.model.rows()

    def _rows(self, snapshot_id: int | None) -> list[tuple[Any, ...]]:
        found = self.table.to_arrow(snapshot=snapshot_id).to_pylist()
        return in_order((row["p"], row["k"], row["v"]) for row in found)


def test_any_history_of_a_table_equals_the_model() -> None:
    run_state_machine_as_test(TableMachine, settings=profile(short=18))
