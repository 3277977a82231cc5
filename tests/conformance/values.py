# SPDX-License-Identifier: Apache-2.0
"""Rows of conformance cases as Arrow batches, and results as comparable rows.

The comparable form is that of `tests.golden.values`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.format.types.types import (
    VALUE_KIND,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowKind,
    RowType,
    TypeRoot,
    arrow_type,
)
from tests.conformance.id_sets import encoded
from tests.golden.values import arrow_rows, from_text, rows_from_text

__all__ = ["KINDS", "change_rows", "expected_changes", "expected_rows", "found_rows", "input_batch"]

KINDS: Mapping[str, RowKind] = {kind.short: kind for kind in RowKind}


def input_batch(rows: Sequence[Sequence[Any]], fields: Sequence[DataField]) -> pa.RecordBatch:
    """`[kind, value...]` rows as the input batch of a writer: value columns and `_VALUE_KIND`.

    Raises:
        ValueError: a row does not fit the columns.
    """
    for row in rows:
        if len(row) != len(fields) + 1:
            raise ValueError(f"row {row} does not have {len(fields)} values and a kind")
    arrays = [
        pa.array(
            [_plain(from_text(encoded(row[i + 1]), field.type), field.type) for row in rows],
            type=arrow_type(field.type),
        )
        for i, field in enumerate(fields)
    ]
    kinds = np.array([KINDS[row[0]].value for row in rows], dtype=np.int8)
    names = [*(field.name for field in fields), VALUE_KIND]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(kinds)], names=names)


def _plain(value: Any, data_type: DataType) -> Any:
    """The Python object Arrow builds a value of this type from."""
    if value is None:
        return None
    if isinstance(data_type, AtomicType):
        return _plain_atomic(value, data_type)
    if isinstance(data_type, ArrayType):
        return [_plain(item, data_type.element) for item in value]
    if isinstance(data_type, RowType):
        return {
            field.name: _plain(item, field.type)
            for item, field in zip(value, data_type.fields, strict=True)
        }
    if isinstance(data_type, MapType):
        return [(_plain(k, data_type.key), _plain(v, data_type.value)) for k, v in value]
    return [(_plain(k, data_type.element), count) for k, count in value]


def _plain_atomic(value: Any, data_type: AtomicType) -> Any:
    root = data_type.root
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return float(value)
    if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return bytes.fromhex(value)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return value // {"ms": 10**6, "us": 10**3, "ns": 1}[arrow_type(data_type).unit]
    return value


def expected_rows(
    rows: Sequence[Sequence[Any]], fields: Sequence[DataField], unordered: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Rows of a case in the comparable form."""
    plain = [[encoded(value) for value in row] for row in rows]
    return _unordered(rows_from_text(plain, [field.type for field in fields]), fields, unordered)


def found_rows(
    table: pa.Table, fields: Sequence[DataField], unordered: Sequence[str] = ()
) -> list[tuple[Any, ...]]:
    """Rows of a read in the comparable form, columns in the order of `fields`."""
    return _unordered(arrow_rows(table, fields), fields, unordered)


def _unordered(
    rows: list[tuple[Any, ...]], fields: Sequence[DataField], unordered: Sequence[str]
) -> list[tuple[Any, ...]]:
    places = {i for i, field in enumerate(fields) if field.name in unordered}
    if not places:
        return rows
    return [
        tuple(
            tuple(sorted(value, key=repr)) if i in places and value is not None else value
            for i, value in enumerate(row)
        )
        for row in rows
    ]


def expected_changes(
    changes: Sequence[Sequence[Any]], fields: Sequence[DataField]
) -> list[tuple[Any, ...]]:
    """`[kind, value...]` records in the comparable form."""
    types = [field.type for field in fields]
    return [(change[0], *rows_from_text([change[1:]], types)[0]) for change in changes]


def change_rows(table: pa.Table, fields: Sequence[DataField]) -> list[tuple[Any, ...]]:
    """Rows of a changelog read, which has a `_VALUE_KIND` column, in the comparable form."""
    kinds = [RowKind(kind).short for kind in table.column(VALUE_KIND).to_pylist()]
    return [(kind, *row) for kind, row in zip(kinds, arrow_rows(table, fields), strict=True)]
