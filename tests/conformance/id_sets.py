# SPDX-License-Identifier: Apache-2.0
"""Values of cases written as `{rbm32: [ids]}`, `rbm64`, `hll_sketch`, `theta_sketch`.

A set of ids stands for its serialized bytes; results are compared by what they hold (sketches: by
their estimates), because equal sets may be stored in different bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import datasketches
from pyroaring import BitMap, BitMap64

__all__ = ["decoded_like", "encoded", "held"]


def _hll(ids: Iterable[int]) -> bytes:
    sketch = datasketches.hll_sketch(12)
    for value in ids:
        sketch.update(value)
    return bytes(sketch.serialize_compact())


def _theta(ids: Iterable[int]) -> bytes:
    sketch = datasketches.update_theta_sketch()
    for value in ids:
        sketch.update(value)
    return bytes(sketch.compact().serialize())


_WRITERS: Mapping[str, Callable[[Iterable[int]], bytes]] = {
    "rbm32": lambda ids: bytes(BitMap(ids).serialize()),
    "rbm64": lambda ids: bytes(BitMap64(ids).serialize()),
    "hll_sketch": _hll,
    "theta_sketch": _theta,
}
_READERS: Mapping[str, Callable[[bytes], Any]] = {
    "rbm32": lambda data: frozenset(BitMap.deserialize(data)),
    "rbm64": lambda data: frozenset(BitMap64.deserialize(data)),
    "hll_sketch": lambda data: round(datasketches.hll_sketch.deserialize(data).get_estimate(), 3),
    "theta_sketch": lambda data: round(
        datasketches.compact_theta_sketch.deserialize(data).get_estimate(), 3
    ),
}


def _kind(value: Any) -> str | None:
    if isinstance(value, dict) and len(value) == 1:
        (kind,) = value
        return kind if kind in _WRITERS else None
    return None


def encoded(value: Any) -> Any:
    """The value of a case with a set of ids replaced by its bytes."""
    kind = _kind(value)
    return value if kind is None else _WRITERS[kind](value[kind])


def held(kind: str, value: str | None) -> Any:
    """What the bytes of a result (hex) hold."""
    return None if value is None else _READERS[kind](bytes.fromhex(value))


def decoded_like(
    wanted: Sequence[Sequence[Any]],
    *results: Sequence[tuple[Any, ...]],
) -> list[list[tuple[Any, ...]]]:
    """Comparable rows with the columns that a case gives as sets of ids replaced by these.

    Args:
        wanted: rows as the case has them.
        results: comparable rows.
    """
    kinds = {
        place: kind
        for row in wanted
        for place, value in enumerate(row)
        if (kind := _kind(value)) is not None
    }
    return [
        [
            tuple(
                held(kinds[place], value) if place in kinds else value
                for place, value in enumerate(row)
            )
            for row in rows
        ]
        for rows in results
    ]
