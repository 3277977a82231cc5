# SPDX-License-Identifier: Apache-2.0
"""What other implementations are known to get wrong or not to have, by name.

A test leaves a case out because of a quirk, never because of its number; `quirk_of` says which.
"""

import dataclasses
from collections.abc import Callable, Iterator

from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)
from tests.interop.generated_tables import Case

__all__ = ["QUIRKS", "Quirk", "quirk_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class Quirk:
    """One known difference.

    Attributes:
        peer: whose.
        name: what it is.
        concerns: whether a case runs into it.
    """

    peer: str
    name: str
    concerns: Callable[[Case], bool]


def _types(case: Case) -> Iterator[DataType]:
    """The types of all columns and of everything inside of them."""
    left = [type_ for _, type_ in case.columns]
    while left:
        type_ = left.pop()
        yield type_
        match type_:
            case ArrayType(element=element) | MultisetType(element=element):
                left.append(element)
            case MapType(key=key, value=value):
                left += [key, value]
            case RowType(fields=fields):
                left += [field.type for field in fields]
            case _:
                pass


def _has(kind: type[DataType]) -> Callable[[Case], bool]:
    return lambda case: any(isinstance(type_, kind) for type_ in _types(case))


def _is(dimension: str, *values: str) -> Callable[[Case], bool]:
    return lambda case: case.dimensions[dimension] in values


def _rows_in_avro(case: Case) -> bool:
    formats = (case.dimensions["format"], case.dimensions["level-0-format"])
    return "avro" in formats and _has(RowType)(case)


def _nanoseconds_under_changes(case: Case) -> bool:
    fine = any(
        isinstance(t, AtomicType) and t.precision == 9 and t.root in MOMENTS for t in _types(case)
    )
    change = case.dimensions["evolution"]
    merges = bool(case.keys) and case.dimensions["compaction"] != "full"
    return fine and (change == "nested-add" or (merges and change != "none"))


def _only_a_peer_compacts_over_partitions(case: Case) -> bool:
    return case.dimensions["table"] == "pk-cross" and case.dimensions["deletion-vectors"] != "off"


MOMENTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)

QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "java",
        "its table API assigns no cross-partition buckets, engines do (test_spark has them)",
        _is("table", "pk-cross"),
    ),
    Quirk(
        "spark",
        "its compaction, without which our rows stay invisible, refuses cross-partition tables",
        _only_a_peer_compacts_over_partitions,
    ),
    Quirk("pypaimon", "MULTISET is refused", _has(MultisetType)),
    Quirk(
        "pypaimon",
        "64-bit deletion vectors are taken for 32-bit ones",
        _is("deletion-vectors", "bitmap64"),
    ),
    Quirk(
        "pypaimon",
        "nanoseconds are cut to microseconds where files of several schemas are merged",
        _nanoseconds_under_changes,
    ),
    Quirk("pypaimon-rust", "the keys of a MULTISET come as nullable", _has(MultisetType)),
    Quirk("pypaimon-rust", "fields of a ROW in an Avro file come as nulls", _rows_in_avro),
)
"""Found with pypaimon 2.1.0 and pypaimon-rust 0.4.0, on tables written by Java as well."""


def quirk_of(peer: str, case: Case) -> str | None:
    """The quirk of a peer that a case runs into, or None."""
    return next((q.name for q in QUIRKS if q.peer == peer and q.concerns(case)), None)
