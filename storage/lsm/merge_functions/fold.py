# SPDX-License-Identifier: Apache-2.0
"""Reducing the keys that have something to merge, beside those that pass unchanged.

A key with a single row passes unchanged (SEMANTICS.md §0.4), so only the others are folded;
inside lookup compaction it is no exception, and folded where that changes it. Also owns the form
of errors about the rows of one key. Data plane: no Python object per row.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.merge_functions.segments import Overlay, Segments


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
