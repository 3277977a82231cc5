# SPDX-License-Identifier: Apache-2.0
"""Which column type may become which other: the table of casts.

Source: SEMANTICS.md §H.2. Pure; how values are cast is decided where files are read.
"""

from storage.format.types import AtomicType, DataType, TypeRoot

__all__ = ["can_cast"]

_R = TypeRoot
_TEXTS = frozenset({_R.CHAR, _R.VARCHAR})
_BYTES = frozenset({_R.BINARY, _R.VARBINARY})
_INTEGERS = frozenset({_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT})
_NUMERICS = _INTEGERS | {_R.FLOAT, _R.DOUBLE, _R.DECIMAL}
_TIMESTAMPS = frozenset({_R.TIMESTAMP, _R.TIMESTAMP_LTZ})
_ALL = frozenset(TypeRoot)

_IMPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    # target: sources whose values it can hold
    _R.CHAR: frozenset({_R.CHAR}),
    _R.VARCHAR: _TEXTS,
    _R.BOOLEAN: frozenset({_R.BOOLEAN}),
    _R.BINARY: frozenset({_R.BINARY}),
    _R.VARBINARY: _BYTES,
    _R.DECIMAL: _NUMERICS,
    _R.TINYINT: frozenset({_R.TINYINT}),
    _R.SMALLINT: frozenset({_R.TINYINT, _R.SMALLINT}),
    _R.INT: frozenset({_R.TINYINT, _R.SMALLINT, _R.INT}),
    _R.BIGINT: _INTEGERS,
    _R.FLOAT: _INTEGERS | {_R.FLOAT, _R.DECIMAL},
    _R.DOUBLE: _NUMERICS,
    _R.DATE: frozenset({_R.DATE, _R.TIMESTAMP}),
    _R.TIME: frozenset({_R.TIME, _R.TIMESTAMP}),
    _R.TIMESTAMP: _TIMESTAMPS,
    _R.TIMESTAMP_LTZ: _TIMESTAMPS,
}
_TO_NUMERIC = _NUMERICS | _TEXTS | _TIMESTAMPS | {_R.BOOLEAN}
_TO_TIMESTAMP = _TIMESTAMPS | _TEXTS | _NUMERICS | {_R.DATE, _R.TIME}
_EXPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    **dict.fromkeys(_TEXTS, _ALL),
    _R.BOOLEAN: _TEXTS | _INTEGERS,
    **dict.fromkeys(_BYTES, _TEXTS | _BYTES),
    **dict.fromkeys(_NUMERICS, _TO_NUMERIC),
    **dict.fromkeys((_R.DATE, _R.TIME), _TIMESTAMPS | _TEXTS),
    **dict.fromkeys(_TIMESTAMPS, _TO_TIMESTAMP),
}


def can_cast(source: DataType, target: DataType, *, explicit: bool = True) -> bool:
    """Whether a column of type `source` may become `target`.

    Nullability is not looked at. Lengths and precisions are not either: a shorter target cuts or
    rounds, as Paimon's casts do.

    Args:
        source: type now.
        target: type wanted.
        explicit: also allow casts that may lose information or fail on some values.
    """
    if not isinstance(target, AtomicType):
        return False
    if not isinstance(source, AtomicType):
        return explicit and target.root in _TEXTS
    if source.root in _IMPLICIT[target.root]:
        return True
    return explicit and source.root in _EXPLICIT[target.root]
