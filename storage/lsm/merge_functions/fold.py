# SPDX-License-Identifier: Apache-2.0
"""Putting together what a merge makes of keys with several rows and the keys with one row.

A key with a single row passes unchanged (SEMANTICS.md §0.4), so only the others are folded;
inside lookup compaction it is no exception, and folded where that changes it. Also owns the form
of errors about the rows of one key. Data plane: no Python object per row.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.merge_functions.segments import rows_of, segment_lasts, take_or_null

__all__ = ["Folding", "fold_keys", "naming_key", "naming_table"]


@dataclasses.dataclass(frozen=True, slots=True)
class Folding:
    """Which keys of a sorted batch are folded.

    Attributes:
        count: all keys.
        singles: positions in the batch of the keys whose one row stays as it is.
        single_keys: their numbers among all keys.
        keys: numbers of the keys that are folded, ascending.
        rows: positions of their rows in the batch; None = all of the batch.
        starts: where these keys begin among `rows`.
    """

    count: int
    singles: np.ndarray
    single_keys: np.ndarray
    keys: np.ndarray
    rows: np.ndarray | None
    starts: np.ndarray

    @staticmethod
    def of(starts: np.ndarray, rows: int, lone: np.ndarray | None = None) -> "Folding":
        """Split the keys of a batch by their number of rows.

        Args:
            starts: positions at which keys begin, ascending from 0.
            rows: rows of the batch.
            lone: bool per row of the batch: it is folded even if it is the only one of its key;
                None = no row is.
        """
        sizes = segment_lasts(starts, rows) + 1 - starts
        several = sizes > 1
        if lone is not None:
            several |= lone[starts]
        keys = np.flatnonzero(several)
        single_keys = np.flatnonzero(~several)
        if not len(single_keys):
            return Folding(len(starts), starts[:0], single_keys, keys, None, starts)
        taken = sizes[keys]
        inner = np.cumsum(taken) - taken
        found = rows_of(keys, starts, rows)
        return Folding(len(starts), starts[single_keys], single_keys, keys, found, inner)

    def several(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the keys that are folded."""
        return batch if self.rows is None else batch.take(pa.array(self.rows))

    def column(self, whole: pa.Array, folded: pa.Array) -> pa.Array:
        """One value for every key.

        Args:
            whole: the column of the batch.
            folded: one value for each of `keys`.
        """
        if not len(self.singles):
            return folded
        place = np.empty(self.count, dtype=np.int64)
        place[self.single_keys] = np.arange(len(self.singles), dtype=np.int64)
        place[self.keys] = np.arange(len(self.keys), dtype=np.int64) + len(self.singles)
        left = whole.take(pa.array(self.singles))
        return pa.concat_arrays([left, folded.cast(left.type)]).take(pa.array(place))

    def picked(self, whole: pa.Array, rows: np.ndarray) -> pa.Array:
        """One value for every key, where a folded one is a value of the batch.

        Args:
            whole: the column of the batch.
            rows: position in the batch for each of `keys`, -1 for null.
        """
        if not len(self.singles):
            return take_or_null(whole, rows)
        place = np.empty(self.count, dtype=np.int64)
        place[self.single_keys] = self.singles
        place[self.keys] = rows
        return take_or_null(whole, place)


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

    Returns:
        One row per key.

    Raises:
        InvalidRequestError: names the key whose rows cannot be merged.
    """
    if len(starts) == batch.num_rows and (lone is None or not lone.any()):
        return batch if lone is None else _inserted(batch)
    folding = Folding.of(starts, batch.num_rows, lone)
    several = folding.several(batch)
    with naming_key(several, key_names, folding.starts):
        folded = fold(several, folding.starts)
    if lone is not None:
        batch = _inserted(batch)
    columns = [
        folding.column(batch.column(position), column) for position, column in enumerate(folded)
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
    """Errors that give the number of a key as `segment` give the key itself instead.

    Args:
        batch: the rows.
        key_names: its key columns.
        starts: where the keys begin in the batch.
    """
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
    """Errors about the rows of a key say in which table.

    Args:
        root: of the table.
    """
    try:
        yield
    except InvalidRequestError as error:
        if "key" in error.context:
            error.context.setdefault("table", root)
        raise
