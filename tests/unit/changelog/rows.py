# SPDX-License-Identifier: Apache-2.0
"""Changes as tuples for comparing."""

from typing import Any

import pyarrow as pa

from storage.format.types.types import VALUE_KIND, RowKind


def change_rows(table: pa.Table | None) -> list[tuple[Any, ...]]:
    """One tuple per change: its kind as `+I`, then its values, in order."""
    assert table is not None
    kinds = [RowKind(kind).short for kind in table.column(VALUE_KIND).to_pylist()]
    values = [column.to_pylist() for column in table.columns[1:]]
    return list(zip(kinds, *values, strict=True))
