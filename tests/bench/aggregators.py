# SPDX-License-Identifier: Apache-2.0
"""Rows per second of every aggregate function: one column, segments of four rows on average.

Values are the ones a function is at home with: small numbers, short texts, arrays and maps of two
elements, sets of two ids. No comparison; the merge engines that use them are measured in `merge`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import datasketches
import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, arrow_type, parse_type
from storage.lsm.merge_functions.aggregators import aggregator_for
from storage.lsm.merge_functions.segments import Segments
from tests.bench.measure import Figure, timed

_ROWS = 400_000
_QUICK_ROWS = 50_000
_PER_SEGMENT = 4
_TABLE = "ARRAY<ROW<k INT, s INT, x STRING>>"
_STAMPED = "MAP<INT, ROW<x STRING, t STRING>>"


@dataclasses.dataclass(frozen=True, slots=True)
class _Values:
    """Columns of one length, made from one seed."""

    rows: int
    chance: np.random.Generator

    def integers(self, least: int, most: int, count: int = 1) -> np.ndarray:
        return self.chance.integers(least, most, self.rows * count)

    def texts(self, count: int = 1) -> pa.Array:
        return pa.array(np.char.add("user-", self.integers(0, 10**6, count).astype(str)).tolist())

    def offsets(self) -> pa.Array:
        return pa.array(np.arange(0, 2 * self.rows + 1, 2, dtype=np.int32))

    def small(self) -> pa.Array:
        return pa.array(self.integers(0, 100, 2), pa.int32())

    def decimals(self, bound: int) -> pa.Array:
        halves = np.zeros((self.rows, 2), dtype=np.int64)
        halves[:, 0] = self.integers(0, bound)
        return pa.Array.from_buffers(pa.decimal128(10, 2), self.rows, [None, pa.py_buffer(halves)])

    def structs(self, *names: str) -> pa.Array:
        parts = {"k": self.small, "s": self.small, "x": lambda: self.texts(2)}
        parts["t"] = lambda: self.texts(2)
        return pa.StructArray.from_arrays([parts[name]() for name in names], names)

    def sets(self, make: Callable[[int], bytes]) -> pa.Array:
        pool = pa.array([make(number) for number in range(64)], pa.binary())
        return pool.take(pa.array(self.integers(0, 64)))


def _hll(number: int) -> bytes:
    sketch = datasketches.hll_sketch(12)
    sketch.update(number)
    return bytes(sketch.serialize_compact())


def _theta(number: int) -> bytes:
    sketch = datasketches.update_theta_sketch()
    sketch.update(number)
    return bytes(sketch.compact().serialize())


def _work(values: _Values) -> Iterator[tuple[str, str, str, Mapping[str, str], pa.Array]]:
    """Name of the figure, function, type, options of the column, values."""
    whole = pa.array(values.integers(-1000, 1000))
    doubles = pa.array(values.chance.normal(size=values.rows))
    texts = values.texts()
    booleans = pa.array(values.chance.random(values.rows) < 0.5)
    for function in ("sum", "max", "min", "last_non_null_value", "first_non_null_value"):
        yield f"{function} BIGINT", function, "BIGINT", {}, whole
    yield (
        "sum BIGINT near overflow",
        "sum",
        "BIGINT",
        {},
        pa.array(values.integers(-(2**59), 2**59)),
    )
    yield "sum DOUBLE", "sum", "DOUBLE", {}, doubles
    yield "sum DECIMAL", "sum", "DECIMAL(10, 2)", {}, values.decimals(10**6)
    yield "product BIGINT", "product", "BIGINT", {}, pa.array(values.integers(-3, 4))
    yield "product DECIMAL", "product", "DECIMAL(10, 2)", {}, values.decimals(300)
    yield "max STRING", "max", "STRING", {}, texts
    yield "bool_and", "bool_and", "BOOLEAN", {}, booleans
    yield "listagg", "listagg", "STRING", {}, texts
    yield "listagg distinct", "listagg", "STRING", {"distinct": "true"}, texts
    yield from _nested(values)
    yield "rbm32", "rbm32", "BYTES", {}, values.sets(lambda n: BitMap([n, n * 7]).serialize())
    yield "rbm64", "rbm64", "BYTES", {}, values.sets(lambda n: BitMap64([n, n * 7]).serialize())
    yield "hll_sketch", "hll_sketch", "BYTES", {}, values.sets(_hll)
    yield "theta_sketch", "theta_sketch", "BYTES", {}, values.sets(_theta)


def _nested(values: _Values) -> Iterator[tuple[str, str, str, Mapping[str, str], pa.Array]]:
    arrays = pa.ListArray.from_arrays(values.offsets(), values.small())
    yield "collect", "collect", "ARRAY<INT>", {}, arrays
    yield "collect distinct", "collect", "ARRAY<INT>", {"distinct": "true"}, arrays
    maps = pa.MapArray.from_arrays(values.offsets(), values.small(), values.texts(2))
    yield "merge_map", "merge_map", "MAP<INT, STRING>", {}, maps
    stamped = pa.MapArray.from_arrays(values.offsets(), values.small(), values.structs("x", "t"))
    yield "merge_map_with_keytime", "merge_map_with_keytime", _STAMPED, {}, stamped
    tables = pa.ListArray.from_arrays(values.offsets(), values.structs("k", "s", "x"))
    key = {"nested-key": "k"}
    sequence = key | {"nested-sequence-field": "s"}
    yield "nested_update", "nested_update", _TABLE, {}, tables
    yield "nested_update, key", "nested_update", _TABLE, key, tables
    yield "nested_update, key and sequence", "nested_update", _TABLE, sequence, tables
    yield "nested_partial_update", "nested_partial_update", _TABLE, key, tables


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rows = _QUICK_ROWS if quick else _ROWS
    chance = np.random.default_rng(11)
    inner = chance.choice(np.arange(1, rows), rows // _PER_SEGMENT - 1, replace=False)
    segments = Segments(np.sort(np.append(inner, 0)).astype(np.int64), rows)
    schema = TableSchema(id=0, fields=(), highest_field_id=0)
    figures = []
    for name, function, type_text, options, values in _work(_Values(rows, chance)):
        field = DataField(id=0, name="v", type=parse_type(type_text))
        column = values.cast(arrow_type(field.type))
        texts = {f"fields.v.{key}": value for key, value in options.items()}
        aggregator = aggregator_for(function, field, texts, schema)
        work = functools.partial(aggregator.reduce, column, segments)
        samples = [timed(work) for _ in range(3)]
        if {len(sample.result) for sample in samples} != {len(segments.starts)}:
            raise RuntimeError(f"{name} did not give a value per segment")
        rates = sorted(rows / sample.wall_s / 1e6 for sample in samples)
        figures.append(Figure(name=name, value=rates[1], unit="M rows/s", samples=rates))
    return figures
