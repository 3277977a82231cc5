# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for tables: shapes, changes, operations, options."""

import dataclasses
import random
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import VALUE_KIND, AtomicType, TypeRoot
from tests.property.model import KINDS, Change

BIGINT = AtomicType(TypeRoot.BIGINT)
INT = AtomicType(TypeRoot.INT)
STRING = AtomicType(TypeRoot.VARCHAR, length=2_147_483_647)


_LETTERS = random.Random(7)
VALUES = (
    *("", "a", "bb"),
    # what compresses badly, so that runs differ in size and compaction picks some of them
    *("".join(_LETTERS.choices("0123456789abcdef", k=size)) for size in (400, 3_000, 9_000)),
)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A table with key columns first and a nullable STRING value last."""

    key_types: tuple[AtomicType, ...]
    key_pools: tuple[Sequence[object], ...]

    @property
    def key_names(self) -> list[str]:
        return [f"k{position}" for position in range(len(self.key_types))]

    @property
    def key_positions(self) -> range:
        return range(len(self.key_types))

    def schema(self, options: dict[str, str]) -> TableSchema:
        columns = [*zip(self.key_names, self.key_types, strict=True), ("v", STRING)]
        return new_schema(
            columns,
            primary_keys=self.key_names,
            partition_keys=(),
            options={"bucket": "1", **options},
            now_ms=0,
        )

    def changes(self, max_size: int, min_size: int = 0) -> st.SearchStrategy[list[Change]]:
        row = st.tuples(
            *(st.sampled_from(pool) for pool in self.key_pools),
            st.none() | st.sampled_from(VALUES),
        )
        kind = st.sampled_from(["+I", "+I", "+U", "+U", "-D", "-U"])
        return st.lists(st.tuples(kind, row), min_size=min_size, max_size=max_size)


SHAPES = (
    Shape((BIGINT,), (range(-3, 20),)),
    Shape((BIGINT,), ([-(2**63), -1, 0, 1, 2**40, 2**63 - 1],)),
    Shape((STRING,), (["", "a", "a\0", "aa", "b", "é", "\uffff", "😀", "customer-1", "c" * 80],)),
    Shape((INT, STRING), (range(3), ["x", "y", "xy", ""])),
)


def input_batch(changes: Sequence[Change], schema: TableSchema) -> pa.RecordBatch:
    """The input batch of a writer for some changes."""
    arrow_schema = schema.arrow_schema
    columns = [
        pa.array([row[position] for _, row in changes], field.type)
        for position, field in enumerate(arrow_schema)
    ]
    kinds = pa.array([KINDS.index(kind) for kind, _ in changes], pa.int8())
    return pa.RecordBatch.from_arrays([*columns, kinds], names=[*arrow_schema.names, VALUE_KIND])


def table_options() -> st.SearchStrategy[dict[str, str]]:
    """Options that move the machinery and never the rows."""
    return st.fixed_dictionaries(
        {
            "write-buffer-size": st.sampled_from(["1 b", "200 b", "1 kb", "256 mb"]),
            "target-file-size": st.sampled_from(["1 b", "2 kb", "128 mb"]),
            "num-sorted-run.compaction-trigger": st.sampled_from(["1", "2", "3", "5"]),
            "compaction.size-ratio": st.sampled_from(["0", "1", "50"]),
            "compaction.max-size-amplification-percent": st.sampled_from(
                ["0", "25", "200", "9999"]
            ),
            "compaction.force-rewrite-all-files": st.sampled_from(["false", "true"]),
            "compaction.force-up-level-0": st.sampled_from(["false", "true"]),
        },
        optional={
            "num-levels": st.sampled_from(["2", "3", "9"]),
            "num-sorted-run.stop-trigger": st.sampled_from(["1", "6"]),
            "compaction.total-size-threshold": st.just("3 kb"),
            "write-only": st.just("true"),
        },
    )


def cuts_of(size: int) -> st.SearchStrategy[list[int]]:
    """Where to cut a list of some size into batches; first 0, last `size`."""
    inner = st.lists(st.integers(0, size), max_size=5)
    return inner.map(lambda places: [0, *sorted(places), size])


def operations(shape: Shape) -> st.SearchStrategy[list[tuple[str, object]]]:
    """A history of one bucket."""
    write = st.tuples(st.just("write"), shape.changes(12, 1))
    others = st.sampled_from(
        [
            ("flush", None),
            ("commit", None),
            ("commit", None),
            ("compact", None),
            ("full", None),
            ("crash", None),
        ]
    )
    steps = st.lists(write | others | write, min_size=1, max_size=25)
    base = st.tuples(write, st.sampled_from([("full", None), ("commit", None)])).map(list)
    return st.builds(lambda first, then: [*first, *then], st.just([]) | base, steps)
