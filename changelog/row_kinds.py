# SPDX-License-Identifier: Apache-2.0
"""The column `_row_kind`, `+I`, `-U`, `+U` or `-D`, in place of the stored kinds. Pure."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.inspect.system.row_tables import kind_texts

ROW_KIND = "_row_kind"


def row_kind_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of changes, whose first column is `_VALUE_KIND`, as readers see it."""
    return schema.set(0, pa.field(ROW_KIND, pa.string(), nullable=False))


def with_row_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Changes, whose first column is `_VALUE_KIND`, as readers see them."""
    kinds, schema = kind_texts().take(batch.column(0)), row_kind_schema(batch.schema)
    return pa.RecordBatch.from_arrays([kinds, *batch.columns[1:]], schema=schema)


def with_stored_kinds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows to be written, with `_VALUE_KIND` in the place of `_row_kind` if they have it.

    Raises:
        InvalidRequestError: a text is no kind.
    """
    position = batch.schema.get_field_index(ROW_KIND)
    if position < 0:
        return batch
    texts = batch.column(position)
    kinds = pc.index_in(texts, value_set=kind_texts())
    if kinds.null_count:
        raise InvalidRequestError(
            "a row has no valid row kind",
            hint=f"`{ROW_KIND}` is one of {', '.join(kind.short for kind in sorted(RowKind))}",
            found=texts.filter(pc.is_null(kinds)).slice(0, 1),
        )
    codes = pa.array(kinds.to_numpy(zero_copy_only=False).astype(np.int8))
    return batch.set_column(position, VALUE_KIND, codes)
