# SPDX-License-Identifier: Apache-2.0
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import CorruptDataError
from storage.format.types.types import RowKind
from storage.lsm.merge import merge_rows, merge_runs
from storage.lsm.merge_functions import RowPicker
from storage.lsm.merge_functions.segments import Deduplicate
from tests.property.profiles import profile

_SCHEMA = pa.schema(
    [
        pa.field("_SEQUENCE_NUMBER", pa.int64(), nullable=False),
        pa.field("_VALUE_KIND", pa.int8(), nullable=False),
        pa.field("k", pa.int64()),
        pa.field("v", pa.string()),
    ]
)
_I, _UB, _UA, _D = (int(kind) for kind in RowKind)


def _batch(rows):
    """A KeyValueBatch of (key, sequence, kind, value)."""
    keys, sequences, kinds, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(sequences, pa.int64()),
            pa.array(kinds, pa.int8()),
            pa.array(keys, pa.int64()),
            pa.array(values, pa.string()),
        ],
        schema=_SCHEMA,
    )


def _rows(batches):
    return [
        (row["k"], row["_SEQUENCE_NUMBER"], row["_VALUE_KIND"], row["v"])
        for batch in batches
        for row in batch.to_pylist()
    ]


class _NotAPicker:
    """Deduplication through `reduce`, as merge functions that compute values work."""

    sequence = None

    def __init__(self):
        self.calls = []

    def reduce(self, batch, starts):
        self.calls.append((batch.num_rows, len(starts)))
        return Deduplicate().reduce(batch, starts)


def _expected(rows, *, drop=False):
    """Last row of each key in the order of SEMANTICS.md §A.7, from its definition."""
    last = {}
    for row in sorted(rows, key=lambda row: (row[0], row[1], row[2] in (_I, _UA))):
        last[row[0]] = row
    return [row for _, row in sorted(last.items()) if not (drop and row[2] in (_UB, _D))]


def test_the_last_row_of_each_key_stays_with_its_kind():
    batch = _batch([(2, 0, _I, "a"), (1, 1, _I, "b"), (2, 2, _D, "c"), (1, 3, _UA, "d")])
    merged = merge_rows([batch], ["k"], Deduplicate())
    assert _rows([merged]) == [(1, 3, _UA, "d"), (2, 2, _D, "c")]


def test_a_buffer_of_several_pieces_is_one():
    pieces = [_batch([(5, 0, _I, "a")]), _batch([(5, 1, _I, "b"), (4, 2, _I, "c")])]
    merged = merge_rows(pieces, ["k"], Deduplicate())
    assert _rows([merged]) == [(4, 2, _I, "c"), (5, 1, _I, "b")]


def test_a_later_update_before_hides_the_row_when_retractions_are_dropped():
    batch = _batch([(1, 0, _I, "a"), (1, 1, _UB, "a"), (2, 2, _I, "b")])
    merged = merge_rows([batch], ["k"], Deduplicate(), drop_retractions=True)
    assert _rows([merged]) == [(2, 2, _I, "b")]


def test_on_equal_sequence_numbers_the_addition_wins():
    old, new = _batch([(1, 7, _UA, "new")]), _batch([(1, 7, _UB, "old")])
    for runs in ([old, new], [new, old]):
        merged = list(merge_runs([iter([run]) for run in runs], ["k"], Deduplicate()))
        assert _rows(merged) == [(1, 7, _UA, "new")]


def test_the_larger_sequence_number_wins_whatever_the_order_of_the_runs():
    runs = [_batch([(1, 9, _I, "late")]), _batch([(1, 3, _I, "early"), (2, 4, _I, "x")])]
    for order in (runs, runs[::-1]):
        merged = list(merge_runs([iter([run]) for run in order], ["k"], Deduplicate()))
        assert _rows(merged) == [(1, 9, _I, "late"), (2, 4, _I, "x")]


def test_ignored_deletes_leave_the_last_addition():
    batch = _batch(
        [(1, 0, _I, "a"), (1, 1, _D, "a"), (2, 2, _D, "b"), (3, 3, _D, "c"), (3, 4, _UB, "c")]
    )
    merged = merge_rows([batch], ["k"], Deduplicate(ignore_delete=True))
    # a key with a single row is not merged: it passes as it is
    assert _rows([merged]) == [(1, 0, _I, "a"), (2, 2, _D, "b")]


def test_a_key_may_continue_in_the_next_batch_of_its_run():
    run = [_batch([(1, 0, _I, "a"), (2, 1, _I, "b")]), _batch([(2, 2, _I, "c"), (3, 3, _I, "d")])]
    other = [_batch([(2, 4, _D, "e")])]
    merged = list(merge_runs([iter(run), iter(other)], ["k"], Deduplicate(), window_bytes=1))
    assert _rows(merged) == [(1, 0, _I, "a"), (2, 4, _D, "e"), (3, 3, _I, "d")]


def test_a_run_that_is_all_one_key_is_merged():
    run = [_batch([(1, sequence, _I, str(sequence))]) for sequence in range(5)]
    merged = list(merge_runs([iter(run), iter([])], ["k"], Deduplicate(), window_bytes=1))
    assert _rows(merged) == [(1, 4, _I, "4")]


def test_no_runs_and_empty_batches_are_nothing():
    assert list(merge_runs([], ["k"], Deduplicate())) == []
    assert list(merge_runs([iter([_batch([])]), iter([])], ["k"], Deduplicate())) == []


def test_windows_without_visible_rows_yield_nothing():
    run = [_batch([(1, 0, _D, "a")]), _batch([(2, 1, _D, "b")]), _batch([(3, 2, _I, "c")])]
    merged = list(
        merge_runs([iter(run)], ["k"], Deduplicate(), window_bytes=1, drop_retractions=True)
    )
    assert _rows(merged) == [(3, 2, _I, "c")]


def test_a_run_that_goes_back_is_corrupt():
    run = [_batch([(5, 0, _I, "a")]), _batch([(4, 1, _I, "b")])]
    with pytest.raises(CorruptDataError, match="descending keys"):
        list(merge_runs([iter(run)], ["k"], Deduplicate(), window_bytes=1))


def test_a_window_of_one_run_is_not_copied():
    batch = _batch([(key, key, _I, "x") for key in range(100)])
    (merged,) = merge_runs([iter([batch])], ["k"], Deduplicate())
    assert merged.column(2).buffers()[1].address == batch.column(2).buffers()[1].address


def test_merging_reads_no_further_than_the_window_needs():
    reads = []

    def run(number):
        for start in range(0, 1000, 10):
            reads.append(number)
            yield _batch([(key, number * 1000 + key, _I, "x") for key in range(start, start + 10)])

    size = _batch([(key, key, _I, "x") for key in range(10)]).nbytes
    merged = merge_runs([run(0), run(1)], ["k"], Deduplicate(), window_bytes=4 * size)
    first = next(merged)
    assert first.num_rows <= 20
    assert len(reads) <= 6
    merged.close()


def test_only_row_pickers_are_asked_to_pick():
    assert isinstance(Deduplicate(), RowPicker)
    function = _NotAPicker()
    assert not isinstance(function, RowPicker)
    batch = _batch([(2, 0, _I, "a"), (1, 1, _D, "b"), (2, 2, _I, "c")])
    merged = merge_rows([batch], ["k"], function, drop_retractions=True)
    assert function.calls == [(3, 2)]
    assert _rows([merged]) == [(2, 2, _I, "c")]


@st.composite
def _runs(draw):
    """Runs sorted by (key, sequence), cut into batches anywhere; sequences may tie across runs."""
    runs = []
    for _ in range(draw(st.integers(0, 5))):
        rows = draw(
            st.lists(
                st.tuples(
                    st.integers(0, 12),
                    st.integers(0, 30),
                    st.sampled_from([_I, _UB, _UA, _D]),
                    st.text("ab", max_size=2),
                ),
                max_size=25,
                unique_by=lambda row: (row[0], row[1]),
            )
        )
        rows.sort(key=lambda row: row[:2])
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
        bounds = [0, *cuts, len(rows)]
        runs.append([rows[a:b] for a, b in itertools.pairwise(bounds)])
    return runs


@given(_runs(), st.sampled_from([1, 500, 1 << 20]), st.booleans(), st.booleans())
@profile(short=60, long=600)
def test_merging_runs_equals_sorting_everything(runs, window_bytes, drop, picks):
    function = Deduplicate() if picks else _NotAPicker()
    batches = [iter([_batch(rows) for rows in run]) for run in runs]
    merged = list(
        merge_runs(batches, ["k"], function, window_bytes=window_bytes, drop_retractions=drop)
    )
    assert all(batch.num_rows for batch in merged)
    found = _rows(merged)
    expected = _expected([row for run in runs for rows in run for row in rows], drop=drop)
    # equal sequence number and kind group: which value stays is not specified
    assert [(r[0], r[1], r[2] in (_I, _UA)) for r in found] == [
        (r[0], r[1], r[2] in (_I, _UA)) for r in expected
    ]
    everything = {row for run in runs for rows in run for row in rows}
    assert set(found) <= everything
