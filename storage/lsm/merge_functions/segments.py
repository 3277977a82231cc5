# SPDX-License-Identifier: Apache-2.0
"""Segments: the rows of one key each, and vectorised functions over all of them.

Rows are sorted by key, and those of a key in the order in which they are applied; a segment is the
rows of one key. Data plane: whole numpy and Arrow arrays, no Python object per row.
Source: STYLE.md §5.5.
"""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.key_order import order_words, sort_and_group
from storage.options.options import TableOptions


class Op(enum.IntEnum):
    """What a row does to a column of its key (SEMANTICS.md §B.2.3 to §B.3)."""

    ADD = 0
    """The value is added to the current one."""
    LATE = 1
    """The current value is added to this one: the row is out of order in a sequence group."""
    RETRACT = 2
    BASE = 3
    """The value replaces the current one, without a function."""
    BASE_RETRACT = 4
    """`BASE`, then `RETRACT` of the same value: a retraction that is the first row of its key."""
    SKIP = 5
    OBSOLETE = 6
    """It added to a value that a later `BASE` of the key replaces; only `first_value` uses it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segments:
    """The start of each segment, and the operation of each row.

    Attributes:
        starts: int64 position at which each segment begins, ascending from 0; every segment has
            at least one row.
        rows: rows of all segments together.
        ops: int8 `Op` per row; None when all rows add. Only rows that are skipped or obsolete
            come before a base.
    """

    starts: np.ndarray
    rows: int
    ops: np.ndarray | None = None

    @property
    def lasts(self) -> np.ndarray:
        """Position of the last row of each segment, int64."""
        return segment_lasts(self.starts, self.rows)

    @property
    def single(self) -> bool:
        """Whether every segment is one row that adds."""
        return self.ops is None and len(self.starts) == self.rows

    def where(self, *ops: Op) -> np.ndarray:
        """Which rows have one of these operations: bool per row."""
        if self.ops is None:
            return np.full(self.rows, Op.ADD in ops)
        table = np.zeros(len(Op), dtype=bool)
        table[list(ops)] = True
        mask: np.ndarray = table[self.ops]
        return mask

    def keys_with(self, *ops: Op) -> np.ndarray | None:
        """Which segments have a row with one of these: bool per segment; None = none has."""
        if self.ops is None:
            return None
        mask = self.where(*ops)
        return np.logical_or.reduceat(mask, self.starts) if mask.any() else None

    def present(self, values: pa.Array) -> np.ndarray | None:
        """Which values are not null, and take part: bool per row; None = all."""
        if self.ops is None and not values.null_count:
            return None
        valid = valid_mask(values)
        return valid if self.ops is None else valid & ~self.where(Op.SKIP, Op.OBSOLETE)

    def only(self, keys: np.ndarray) -> tuple[np.ndarray, "Segments"]:
        """The positions of the rows of some segments (numbers, ascending), and these segments."""
        sizes = self.lasts + 1 - self.starts
        mask = np.zeros(len(sizes), dtype=bool)
        mask[keys] = True
        rows = np.flatnonzero(np.repeat(mask, sizes))
        sizes = sizes[keys]
        ops = None if self.ops is None else self.ops[rows]
        return rows, Segments(np.cumsum(sizes) - sizes, len(rows), ops)


def segment_lasts(starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the last row of each segment: int64 per segment."""
    lasts = np.empty(len(starts), dtype=np.int64)
    if len(starts):
        lasts[:-1] = starts[1:] - 1
        lasts[-1] = rows - 1
    return lasts


def segment_ids(starts: np.ndarray, rows: int) -> np.ndarray:
    """Number of the segment of each row, from 0: int64 per row."""
    return np.repeat(
        np.arange(len(starts), dtype=np.int64), segment_lasts(starts, rows) + 1 - starts
    )


def last_where(mask: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the last row of each segment where the mask is true.

    Args:
        mask: bool per row.
        starts: positions at which segments begin, ascending from 0.
        rows: rows of all segments together.

    Returns:
        int64 per segment; -1 where no row of the segment is marked.
    """
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    row_numbers = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(-1))
    latest: np.ndarray = np.maximum.accumulate(row_numbers)[segment_lasts(starts, rows)]
    return np.where(latest >= starts, latest, np.int64(-1))


def first_where(mask: np.ndarray, starts: np.ndarray, rows: int) -> np.ndarray:
    """Position of the first row of each segment where the mask is true; otherwise `last_where`."""
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    row_numbers = np.where(mask, np.arange(rows, dtype=np.int64), np.int64(rows))
    first: np.ndarray = np.minimum.reduceat(row_numbers, starts)
    return np.where(first < rows, first, np.int64(-1))


def take_or_null(column: pa.Array, positions: np.ndarray) -> pa.Array:
    """The values at the given positions, null where a position is -1."""
    absent = positions < 0
    if not absent.any():
        return column.take(pa.array(positions))
    return column.take(pa.array(positions, mask=absent))


def numbers_in(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """The values of a numeric column without nulls."""
    numbers: np.ndarray = batch.column(name).to_numpy(zero_copy_only=False)
    return numbers


def valid_mask(column: pa.Array) -> np.ndarray:
    """Which values are not null: bool per row."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=bool)
    mask: np.ndarray = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return mask


@dataclasses.dataclass(frozen=True, slots=True)
class Overlay:
    """An update of the values of some keys in a column that keeps those of the others.

    Attributes:
        taken_rows: positions in the column that are copied first; None = all of it.
        place: position of each key, among these and the values behind them.
    """

    taken_rows: pa.Array | None
    place: pa.Array

    @staticmethod
    def of(rows: np.ndarray, keys: np.ndarray, length: int) -> "Overlay":
        """Plan the update of a column.

        `rows` is the position in the column for each key; `keys` are ascending.
        """
        place = rows.copy()
        positions = None
        if 2 * len(keys) > len(rows):
            mask = np.ones(len(rows), dtype=bool)
            mask[keys] = False
            positions = rows[mask]
            length = len(positions)
            place[mask] = np.arange(length, dtype=np.int64)
        place[keys] = np.arange(len(keys), dtype=np.int64) + length
        return Overlay(None if positions is None else pa.array(positions), pa.array(place))

    def column(self, column: pa.Array, values: pa.Array) -> pa.Array:
        """One value per key; `values` has those of the updated keys."""
        if len(values) == len(self.place):
            return values
        if self.taken_rows is not None:
            column = column.take(self.taken_rows)
        return pa.concat_arrays([column, values.cast(column.type)]).take(self.place)


# User-defined sequence fields: columns that order the rows of one key.
#
# Source: SEMANTICS.md §A.6. Data plane: whole columns.


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceOrder:
    """Columns compared from left to right before the sequence number.

    A null comes before every value in either direction: it loses.

    Attributes:
        fields: columns, most significant first; at least one.
        descending: the smaller value wins.
    """

    fields: tuple[str, ...]
    descending: bool = False

    @staticmethod
    def of(options: TableOptions) -> "SequenceOrder | None":
        """The order that a table defines; None: the order of arrival."""
        if not options.sequence_field:
            return None
        return SequenceOrder(options.sequence_field, options.sequence_descending)

    def words(self, batch: pa.RecordBatch) -> list[np.ndarray]:
        """One or more numbers per row that compare as the rows do.

        Returns:
            uint64 or int64 arrays, most significant first; none when all rows are equal. They
            compare only with one another.
        """
        columns = [batch.column(name) for name in self.fields]
        if not self.descending:
            return [word for word, _ in order_words(columns)]
        words = []
        for column in columns:
            ranks = dense_ranks([column])
            valid = valid_mask(column)
            words.append(np.where(valid, len(column) - ranks, 0))
        return words


def dense_ranks(columns: Sequence[pa.Array]) -> np.ndarray:
    """Numbers (int64) from 0 that are equal where the rows are equal and ascend as they do.

    Args:
        columns: most significant first, equal lengths, scalar types; nulls come first.
    """
    if not len(columns[0]):
        return np.empty(0, dtype=np.int64)
    names = [str(position) for position in range(len(columns))]
    batch = pa.RecordBatch.from_arrays(list(columns), names=names)
    groups = sort_and_group(batch, names)
    ranks = segment_ids(groups.starts, batch.num_rows)
    if groups.order is None:
        return ranks
    row_ranks = np.empty(batch.num_rows, dtype=np.int64)
    row_ranks[groups.order] = ranks
    return row_ranks


# Reducing the keys that have something to merge, beside those that pass unchanged.
#
# A key with a single row passes unchanged (SEMANTICS.md §0.4), so only the others are folded;
# inside lookup compaction it is no exception, and folded where that changes it. Also owns the form
# of errors about the rows of one key. Data plane: no Python object per row.


def fold_keys(
    batch: pa.RecordBatch,
    starts: np.ndarray,
    key_names: Sequence[str],
    fold: Callable[[pa.RecordBatch, np.ndarray], list[pa.Array]],
    *,
    lone: np.ndarray | None = None,
) -> pa.RecordBatch:
    """Reduce the keys with several rows, and put them together with the others.

    Args:
        batch: KeyValueBatch in merge order.
        starts: where keys begin.
        key_names: key columns.
        fold: gives all columns of the results of some keys, from their rows and where these keys
            begin among them.
        lone: None where a key with a single row passes unchanged. Otherwise a bool per row of the
            batch: folding changes more of it than its kind, should it be the only one of its key.

    Raises:
        InvalidRequestError: names the key whose rows cannot be merged.
    """
    segments = Segments(starts, batch.num_rows)
    folded = segments.lasts > starts
    if lone is not None:
        folded |= lone[starts]
    keys = np.flatnonzero(folded)
    if not len(keys):
        return batch if lone is None else _inserted(batch)
    several = batch
    if len(keys) < len(starts):
        rows, segments = segments.only(keys)
        several = batch.take(pa.array(rows))
    with naming_key(several, key_names, segments.starts):
        columns = fold(several, segments.starts)
    if lone is not None:
        batch = _inserted(batch)
    overlay = Overlay.of(starts, keys, batch.num_rows)
    columns = [
        overlay.column(batch.column(position), column) for position, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, all of kind +I."""
    position = batch.schema.get_field_index(VALUE_KIND)
    kinds = pa.array(np.full(batch.num_rows, RowKind.INSERT, dtype=np.int8))
    return batch.set_column(position, batch.schema.field(position), kinds)


@contextlib.contextmanager
def naming_key(
    batch: pa.RecordBatch, key_names: Sequence[str], starts: np.ndarray
) -> Iterator[None]:
    """Errors that give the number of a key as `segment` give the key itself instead."""
    try:
        yield
    except InvalidRequestError as error:
        segment = error.context.pop("segment", None)
        if segment is not None:
            row = int(starts[segment])
            error.context["key"] = ", ".join(
                f"{name}={batch.column(name)[row]}" for name in key_names
            )
        raise


@contextlib.contextmanager
def naming_table(root: str) -> Iterator[None]:
    """Errors about the rows of a key say in which table."""
    try:
        yield
    except InvalidRequestError as error:
        if "key" in error.context:
            error.context.setdefault("table", root)
        raise


# Merge functions that keep one of the rows of a key as it is: deduplicate and first-row.
#
# Source: SEMANTICS.md §B.1 and §B.4.


def retractions(kinds: np.ndarray) -> np.ndarray:
    """Which row kinds (int8) take a row away: -U and -D."""
    mask: np.ndarray = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
    return mask


@dataclasses.dataclass(frozen=True, slots=True)
class Deduplicate:
    """The last row of each key, with its kind.

    Attributes:
        ignore_delete: pass over -U and -D rows; files of older writers may hold some. A key with
            nothing else is left out, unless it has a single row.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    ignore_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """See `RowPicker`."""
        rows = len(kinds)
        if len(starts) == rows and not (self.lone_rows and self.ignore_delete):
            return starts
        lasts = segment_lasts(starts, rows)
        if not self.ignore_delete:
            return lasts
        # position of the latest row so far that adds: the last one of the group, or before it
        adds = np.where(retractions(kinds), -1, np.arange(rows, dtype=np.int64))
        latest = np.maximum.accumulate(adds)[lasts]
        is_lone = (starts == lasts) & (not self.lone_rows)
        return np.where(is_lone, lasts, latest)[is_lone | (latest >= starts)]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`."""
        return _take(batch, self.pick(numbers_in(batch, VALUE_KIND), starts))


@dataclasses.dataclass(frozen=True, slots=True)
class FirstRow:
    """The first row of each key that adds, with its kind.

    Attributes:
        ignore_delete: pass over -U and -D rows. A key with nothing else is left out, unless it
            has a single row.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False
    lone_rows: bool = False

    @property
    def sequence(self) -> SequenceOrder | None:
        """Always arrival."""
        return None

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """See `RowPicker`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        rows = len(kinds)
        if len(starts) == rows and not self.lone_rows:
            return starts
        retract = retractions(kinds)
        if not retract.any():
            return starts
        is_lone = (starts == segment_lasts(starts, rows)) & (not self.lone_rows)
        if not self.ignore_delete:
            wrong = (first_where(retract, starts, rows) >= 0) & ~is_lone
            if wrong.any():
                raise InvalidRequestError(
                    "By default, First row merge engine can not accept DELETE/UPDATE_BEFORE "
                    "records",
                    hint="set `ignore-delete` to drop them",
                    segment=int(np.argmax(wrong)),
                )
        first_rows = np.where(is_lone, starts, first_where(~retract, starts, rows))
        return first_rows[first_rows >= 0]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        with naming_key(batch, self.key_names, starts):
            return _take(batch, self.pick(numbers_in(batch, VALUE_KIND), starts))


def _take(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
