# SPDX-License-Identifier: Apache-2.0
"""`rbm32`, `rbm64`, `hll_sketch`, `theta_sketch`: unions of serialized sets.

Source: SEMANTICS.md §B.3, detail 9. A single value passes unchanged. Only segments of more than
one value are opened, one after the other: each is worth a set, not a number.
"""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union
from pyroaring import BitMap, BitMap64

from storage.errors import CorruptDataError
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    objects_of,
)

_SMALLEST_HLL_UNION = 7
_PREAMBLE_LONGS = 0x3F
_WHOLE = struct.pack("<f", 1.0)
_THETA_UNION = 12
"""log2 of the nominal entries of a union, Java's default."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetUnion(AggregateFunction):
    """The union of the sets that are not null; the function's name determines the encoding."""

    turns_late: ClassVar[bool] = False

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`; a total is a set once it is of two values."""
        union, data_of = _UNIONS[self.name]

        def add(total: Any, value: Any) -> Any:
            if total is None or value is None:
                return value if total is None else total
            try:
                return union(total, value)
            except (ValueError, RuntimeError, IndexError) as error:
                raise CorruptDataError(
                    f"a value of a column with aggregate function '{self.name}' is invalid",
                    detail=str(error),
                    field=self.field.name,
                    expected=_CONTENT[self.name],
                ) from error

        def close(totals: list[Any]) -> pa.Array:
            whole = [t if t is None or isinstance(t, bytes) else data_of(t) for t in totals]
            return pa.array(whole, values.type)

        return RowFold(objects_of(values), add, close)


def _bitmap_32(total: BitMap | bytes, data: bytes) -> BitMap:
    """Portable 32-bit bitmaps."""
    union = BitMap.deserialize(total) if isinstance(total, bytes) else total
    union |= BitMap.deserialize(data)
    return union


@dataclasses.dataclass(slots=True)
class _Bitmap64:
    """A 64-bit bitmap, in Java's layout if one of its parts has it, else portable.

    Portable only when all parts are, because Java reads no other beside its own.
    """

    values: BitMap64
    java: bool

    @staticmethod
    def read(data: "_Bitmap64 | bytes") -> "_Bitmap64":
        if not isinstance(data, bytes):
            return data
        if looks_like_java(data):
            try:
                return _Bitmap64(BitMap64(decode_java(data)), True)
            except CorruptDataError:
                pass  # a portable one after all, or neither
        return _Bitmap64(BitMap64.deserialize(data), False)

    def data(self) -> bytes:
        if self.java:
            return encode_java(np.array(self.values.to_array(), dtype=np.uint64))
        return _portable(self.values)


def _bitmap_64(total: _Bitmap64 | bytes, data: bytes) -> _Bitmap64:
    union, operand = _Bitmap64.read(total), _Bitmap64.read(data)
    union.values |= operand.values
    union.java |= operand.java
    return union


def _portable(values: BitMap | BitMap64) -> bytes:
    values.run_optimize()
    return bytes(values.serialize())


def _hll(total: bytes, data: bytes) -> bytes:
    added = hll_sketch.deserialize(data)
    union = hll_union(max(added.lg_config_k, _SMALLEST_HLL_UNION))
    union.update(added)
    union.update(hll_sketch.deserialize(total))
    return bytes(union.get_result(tgt_hll_type.HLL_4).serialize_compact())


def _theta(total: bytes, data: bytes) -> bytes:
    union = theta_union(_THETA_UNION)
    union.update(compact_theta_sketch.deserialize(total))
    union.update(compact_theta_sketch.deserialize(data))
    return _with_sampling(union.get_result(True).serialize())


def _with_sampling(data: bytes) -> bytes:
    """The bytes of a theta sketch with the sampling rate 1 where Java stores it, and C++ does not.

    No reader uses it in a compact sketch; with it the bytes are those of Java.
    """
    if data[0] & _PREAMBLE_LONGS < 2:
        return data
    return data[:12] + _WHOLE + data[16:]


_UNIONS: dict[str, tuple[Callable[[Any, bytes], Any], Callable[[Any], bytes]]] = {
    "rbm32": (_bitmap_32, _portable),
    "rbm64": (_bitmap_64, _Bitmap64.data),
    "hll_sketch": (_hll, bytes),
    "theta_sketch": (_theta, bytes),
}
"""The union of a total and a value, and the bytes of a total that is not bytes."""
_CONTENT = {
    "rbm32": "a portable 32-bit roaring bitmap",
    "rbm64": "a 64-bit roaring bitmap, portable or as Java writes it",
    "hll_sketch": "an Apache DataSketches HLL sketch",
    "theta_sketch": "a compact Apache DataSketches Theta sketch",
}


_BODIES = {0: 4, 1: 16, 2: 256, 3: 32}
_LEAF = 4
_RUNS, _BITS, _LIST = 0, 1, 2
_LONGEST_LIST = 4096
_NOT_TRIMMED = 0xFE
_MOST_KEYS = 1 << 48


# 64-bit bitmaps in the layout of Java's `Roaring64Bitmap`, which Paimon's SQL functions give
# `rbm64` columns; it is not the portable one. Little endian but for the keys of leaves:
#
# u8 0 (empty, nothing follows) or 1 · u64 keys · tree · containers
# tree       nodes in preorder, children by ascending byte. Node: u8 type · u16 children ·
#            u8 prefix length · prefix · body
# body       type 0: 4 bytes of keys, last first · 1: 16, each half last first · 2: 256 bytes,
#            child number or 255 at the place of its byte, in eights last first · 3: bit set of
#            256 · 4 (leaf): u48 big endian, the upper bits of values · u64 container
# containers u32 arrays · per array: u8 mark · u32 size · per place: u8 0, or 1 · u8 type ·
#            u32 cardinality · content; behind them u64 containers · u32 array · u32 last place
# content    type 0: u16 runs, (u16 start · u16 further values) each · 1: 8192 bytes · 2: u16 each
#
# The set of containers is what counts, so the tree is read only for its leaves.


def looks_like_java(data: bytes) -> bool:
    """Whether bytes can be of this layout rather than portable (there, u64 of 32-bit bitmaps)."""
    if len(data) == 1:
        return data == b"\0"
    if len(data) < 10 or data[0] != 1:
        return False
    # portable bytes with this start hold 1 or 257, 513 … bitmaps: then the next byte is 0 or the
    # bytes behind are no node
    return 1 <= int.from_bytes(data[1:9], "little") < _MOST_KEYS and data[9] <= _LEAF


def decode_java(data: bytes) -> np.ndarray:
    """The values, uint64.

    Raises:
        CorruptDataError: the bytes end early or do not have this layout.
    """
    if data[:1] == b"\0":
        return np.empty(0, dtype=np.uint64)
    try:
        return _decoded(data)
    except (struct.error, IndexError, ValueError, KeyError) as error:
        raise CorruptDataError("not a 64-bit Java roaring bitmap", detail=str(error)) from error


def _decoded(data: bytes) -> np.ndarray:
    (keys,) = struct.unpack_from("<Q", data, 1)
    offset, open_nodes = 9, 1
    leaves: list[tuple[int, int]] = []
    while open_nodes:
        kind, count, prefix = struct.unpack_from("<BHB", data, offset)
        offset += 4 + prefix
        open_nodes -= 1
        if kind == _LEAF:
            upper, place = struct.unpack_from("<6sQ", data, offset)
            leaves.append((int.from_bytes(upper, "big"), place))
            offset += 14
        else:
            offset += _BODIES[kind]
            open_nodes += count
    if len(leaves) != keys:
        raise ValueError(f"{len(leaves)} keys, {keys} expected")
    containers, offset = _containers(data, offset)
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes after the end")
    parts = [
        containers[place].astype(np.uint64) | np.uint64(upper << 16) for upper, place in leaves
    ]
    return np.concatenate(parts)


def _containers(data: bytes, offset: int) -> tuple[dict[int, np.ndarray], int]:
    containers = {}
    (arrays,) = struct.unpack_from("<I", data, offset)
    offset += 4
    for array in range(arrays):
        (size,) = struct.unpack_from("<xI", data, offset)
        offset += 5
        for place in range(size):
            offset += 1
            if data[offset - 1]:
                containers[array << 32 | place], offset = _content(data, offset)
    return containers, offset + 16


def _content(data: bytes, offset: int) -> tuple[np.ndarray, int]:
    kind, cardinality = struct.unpack_from("<BI", data, offset)
    offset += 5
    if kind == _BITS:
        bits = np.frombuffer(data, np.uint8, 8192, offset)
        return np.flatnonzero(np.unpackbits(bits, bitorder="little")), offset + 8192
    if kind == _LIST:
        return np.frombuffer(data, "<u2", cardinality, offset), offset + 2 * cardinality
    if kind != _RUNS:
        raise ValueError(f"unknown container type {kind}")
    (runs,) = struct.unpack_from("<H", data, offset)
    pairs = np.frombuffer(data, "<u2", 2 * runs, offset + 2).astype(np.int64).reshape(-1, 2)
    lengths = pairs[:, 1] + 1
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    values = np.repeat(pairs[:, 0], lengths) + np.arange(len(before)) - before
    return values, offset + 2 + 4 * runs


def encode_java(values: np.ndarray) -> bytes:
    """The bytes of a set.

    Values are uint64, ascending, each once.
    """
    if not len(values):
        return b"\0"
    upper = values >> np.uint64(16)
    keys, starts = np.unique(upper, return_index=True)
    lower = (values & np.uint64(0xFFFF)).astype("<u2")
    ends = np.append(starts[1:], len(values))
    out = [b"\1", struct.pack("<Q", len(keys))]
    _write_tree(out, [int(key).to_bytes(6, "big") for key in keys.tolist()], 0, 0)
    out.append(struct.pack("<IBI", 1, _NOT_TRIMMED, len(keys)))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        out.append(_content_bytes(lower[start:end]))
    out.append(struct.pack("<QII", len(keys), 0, len(keys) - 1))
    return b"".join(out)


def _write_tree(out: list[bytes], keys: Sequence[bytes], first: int, depth: int) -> None:
    """The nodes of ascending keys, of which the first has the number `first`."""
    if len(keys) == 1:
        out.append(struct.pack("<BHB6sQ", _LEAF, 0, 0, keys[0], first))
        return
    low, high = keys[0], keys[-1]
    split = next(place for place in range(depth, 6) if low[place] != high[place])
    edges = [0]
    edges += [i for i in range(1, len(keys)) if keys[i][split] != keys[i - 1][split]]
    labels = bytes(keys[edge][split] for edge in edges)
    prefix = low[depth:split]
    kind, body = _node_body(labels)
    out.append(struct.pack("<BHB", kind, len(labels), len(prefix)) + prefix + body)
    for edge, end in zip(edges, [*edges[1:], len(keys)], strict=True):
        _write_tree(out, keys[edge:end], first + edge, split + 1)


def _node_body(labels: bytes) -> tuple[int, bytes]:
    if len(labels) <= 4:
        return 0, labels.ljust(4, b"\0")[::-1]
    if len(labels) <= 16:
        padded = labels.ljust(16, b"\0")
        return 1, padded[7::-1] + padded[:7:-1]
    if len(labels) <= 48:
        index = np.full(256, 255, dtype=np.uint8)
        index[list(labels)] = np.arange(len(labels), dtype=np.uint8)
        return 2, index.reshape(32, 8)[:, ::-1].tobytes()
    bits = np.zeros(256, dtype=np.uint8)
    bits[list(labels)] = 1
    return 3, np.packbits(bits, bitorder="little").tobytes()


def _content_bytes(values: np.ndarray) -> bytes:
    count = len(values)
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    runs = len(breaks) + 1
    if 2 + 4 * runs < min(2 * count, 8192):
        edges = np.concatenate([[0], breaks, [count]])
        pairs = np.empty((runs, 2), dtype="<u2")
        pairs[:, 0] = values[edges[:-1]]
        pairs[:, 1] = np.diff(edges) - 1
        return struct.pack("<BBIH", 1, _RUNS, count, runs) + pairs.tobytes()
    if count <= _LONGEST_LIST:
        return struct.pack("<BBI", 1, _LIST, count) + values.tobytes()
    bits = np.zeros(1 << 16, dtype=np.uint8)
    bits[values] = 1
    return struct.pack("<BBI", 1, _BITS, count) + np.packbits(bits, bitorder="little").tobytes()
