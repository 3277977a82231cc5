# SPDX-License-Identifier: Apache-2.0
"""Merge functions: how all rows of one key become one row (`merge-engine`).

A merge function reduces a whole sorted batch at once, given where each key begins; it is
stateless and picklable. A key with a single row passes unchanged, whatever its kind
(SEMANTICS.md §0.4). Source: SEMANTICS.md §B.
"""

from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.schema import TableSchema
from storage.lsm.merge_functions.pick_row import Deduplicate
from storage.options import TableOptions

__all__ = ["MergeFunction", "RowPicker", "merge_function_for"]


class MergeFunction(Protocol):
    """Reducer of equal keys."""

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """One row per key, at most.

        Args:
            batch: KeyValueBatch in merge order: by key, then as SEMANTICS.md §A.7 says.
            starts: int64 positions at which a key begins, ascending from 0.

        Returns:
            A KeyValueBatch, strictly ascending by key.
        """


@runtime_checkable
class RowPicker(Protocol):
    """A merge function whose result is one of the rows: lets the merger gather rows only once."""

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Positions of the rows that stay, ascending, at most one per key.

        Args:
            kinds: int8 row kinds in merge order.
            starts: as for `MergeFunction.reduce`.
        """


def merge_function_for(options: TableOptions, schema: TableSchema) -> MergeFunction:
    """The merge function of a table.

    Args:
        options: of the table; `merge-engine` chooses.
        schema: whose columns it reduces.

    Raises:
        UnsupportedFeatureError: the merge engine is not implemented.
    """
    if options.merge_engine == "deduplicate":
        return Deduplicate(options.ignore_delete)
    raise UnsupportedFeatureError(
        "this merge engine is not implemented",
        hint="use a version that carries it out",
        option="merge-engine",
        value=options.merge_engine,
        schema_id=schema.id,
    )
