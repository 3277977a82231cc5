# SPDX-License-Identifier: Apache-2.0
"""Which column type may become which other, and the kernel that casts a column.

Source: SEMANTICS.md §H.2, and the cast rules of Apache Paimon where they are narrower. Every pair
that `can_cast` allows has a kernel; the results are Java's. Pure, whole columns.
"""

from collections.abc import Callable

import pyarrow as pa

from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_numbers import to_boolean, to_number
from storage.format.types.cast_parse import from_text
from storage.format.types.cast_texts import fit_binary, to_text
from storage.format.types.cast_times import number_to_timestamp, to_time
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_R = TypeRoot
_TEXTS = frozenset({_R.CHAR, _R.VARCHAR})
_BYTES = frozenset({_R.BINARY, _R.VARBINARY})
_INTEGERS = frozenset({_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT})
_NUMERICS = _INTEGERS | {_R.FLOAT, _R.DOUBLE, _R.DECIMAL}
_TIMESTAMPS = frozenset({_R.TIMESTAMP, _R.TIMESTAMP_LTZ})
_SECONDS = frozenset({_R.INT, _R.BIGINT})
"""Numbers that timestamps become and are made of."""

_IMPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    # target: sources whose values it can hold
    _R.CHAR: frozenset({_R.CHAR}),
    _R.VARCHAR: _TEXTS,
    _R.BOOLEAN: frozenset(),
    _R.BINARY: frozenset({_R.BINARY}),
    _R.VARBINARY: _BYTES,
    _R.DECIMAL: _NUMERICS,
    _R.TINYINT: frozenset({_R.TINYINT}),
    _R.SMALLINT: frozenset({_R.TINYINT, _R.SMALLINT}),
    _R.INT: frozenset({_R.TINYINT, _R.SMALLINT, _R.INT}),
    _R.BIGINT: _INTEGERS,
    _R.FLOAT: _INTEGERS | {_R.FLOAT, _R.DECIMAL},
    _R.DOUBLE: _NUMERICS,
    _R.DATE: frozenset({_R.TIMESTAMP}),
    _R.TIME: frozenset({_R.TIMESTAMP}),
    _R.TIMESTAMP: _TIMESTAMPS,
    _R.TIMESTAMP_LTZ: _TIMESTAMPS,
}
_TO_NUMERIC = _NUMERICS | _TEXTS | {_R.BOOLEAN}
_EXPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    **dict.fromkeys(_TEXTS, frozenset(TypeRoot)),
    _R.BOOLEAN: _TEXTS | _INTEGERS,
    **dict.fromkeys(_BYTES, _TEXTS | _BYTES),
    **dict.fromkeys(_NUMERICS, _TO_NUMERIC),
    **dict.fromkeys(_SECONDS, _TO_NUMERIC | _TIMESTAMPS),
    **dict.fromkeys((_R.DATE, _R.TIME), _TIMESTAMPS | _TEXTS),
    **dict.fromkeys(_TIMESTAMPS, _TIMESTAMPS | _TEXTS | _SECONDS | {_R.DATE, _R.TIME}),
}
_TIMES = _TIMESTAMPS | {_R.DATE, _R.TIME}
"""Sources whose text is only defined for a nullable STRING."""


def can_cast(source: DataType, target: DataType, *, explicit: bool = True) -> bool:
    """Whether a column of type `source` may become `target`.

    Lengths and precisions are not compared, except that dates and times become nothing shorter
    than STRING: a shorter target cuts or rounds, as Paimon's casts do. `explicit` also allows
    casts that may lose information or fail on some values.
    """
    if not isinstance(target, AtomicType):
        return False
    if not isinstance(source, AtomicType):
        return explicit and target.root in _TEXTS and _has_text(source)
    if target.root in _TEXTS and source.root in _TIMES:
        unbounded = target.root is _R.VARCHAR and target.length == MAX_LENGTH
        return explicit and unbounded and target.nullable
    if source.root in _IMPLICIT[target.root]:
        return True
    return explicit and source.root in _EXPLICIT[target.root]


def _has_text(type_: DataType) -> bool:
    """Whether Paimon has a text form of a nested value: of all but MULTISET."""
    match type_:
        case AtomicType():
            return True
        case ArrayType(element=element):
            return _has_text(element)
        case MapType(key=key, value=value):
            return _has_text(key) and _has_text(value)
        case RowType(fields=fields):
            return all(_has_text(field.type) for field in fields)
        case MultisetType():
            return False


CastColumn = Callable[[pa.Array], pa.Array]
"""From a column of the old type to one of the new type; raises CastError."""


def column_cast(source: DataType, target: AtomicType) -> CastColumn:
    """The cast from one type to another.

    The pair is one that `can_cast` allows, and differs in more than nullability.
    """
    kernel = _kernel(source, target)
    target_type = arrow_type(target)

    def cast(column: pa.Array) -> pa.Array:
        # kernels take a whole array: some of Arrow's mishandle the offsets of slices
        result = kernel(column)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        return result if result.type == target_type else result.cast(target_type)

    return cast


def _kernel(source: DataType, target: AtomicType) -> CastColumn:
    if not isinstance(source, AtomicType):
        return lambda column: to_text(column, source, target)
    if source.root in _TEXTS:
        return lambda column: from_text(column, target)
    if target.root in _TEXTS:
        return lambda column: to_text(column, source, target)
    if target.root in _BYTES:
        return lambda column: fit_binary(column, target)
    if source.root in _TIMES:
        return lambda column: to_time(column, source, target)
    if target.root in _TIMES:
        return lambda column: number_to_timestamp(column, target)
    if target.root is _R.BOOLEAN:
        return to_boolean
    return lambda column: to_number(column, source, target)
