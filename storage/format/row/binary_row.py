# SPDX-License-Identifier: Apache-2.0
"""Columns to BinaryRows, many at a time: the data plane's codec.

Source: FORMAT.md §5.2. Every part of a row is a multiple of 8 bytes, so a column becomes a few
arrays of little-endian 64-bit words, one element per row: a *slot* and, for some types, a *tail*
after the slots. `encode_rows` lays these words out as bytes; `bucket` hashes them in place without
laying them out. Nested columns are encoded row by row (`row_codec`); all others are vectorised.

The codec of single rows is re-exported from `row_codec`.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InternalError
from storage.format.row.row_codec import (
    MAX_COMPACT_DECIMAL,
    MAX_COMPACT_TIMESTAMP,
    MAX_INLINE,
    Timestamp,
    arity,
    decode_row,
    encode_row,
    frame,
    header_bytes,
    nested_bytes,
    to_row_values,
)
from storage.format.types.types import AtomicType, DataType, TypeRoot, normalize

__all__ = [
    "BytesTail",
    "ColumnWords",
    "FixedTail",
    "Timestamp",
    "Words",
    "arity",
    "column_words",
    "decode_row",
    "encode_row",
    "encode_rows",
    "frame",
    "minimal_lengths",
    "mix_tail",
    "placed_words",
    "row_words",
]

if sys.byteorder != "little":
    raise InternalError("rows are laid out by little-endian words; this machine is big-endian")

Words = npt.NDArray[np.uint64]
Lengths = npt.NDArray[np.int64]

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_DTYPES: dict[TypeRoot, type[np.generic]] = {
    TypeRoot.TINYINT: np.uint8,
    TypeRoot.SMALLINT: np.uint16,
    TypeRoot.INT: np.uint32,
    TypeRoot.DATE: np.uint32,
    TypeRoot.TIME: np.uint32,
    TypeRoot.FLOAT: np.uint32,
    TypeRoot.BIGINT: np.uint64,
    TypeRoot.DOUBLE: np.uint64,
}
_KEEP = np.array([(1 << 8 * i) - 1 for i in range(8)] + [2**64 - 1], np.uint64)
"""Mask that keeps the first i bytes of a word."""

_BYTE = np.uint64(8)
_WORD_BITS = np.uint64(64)


@dataclasses.dataclass(frozen=True, slots=True)
class FixedTail:
    """A tail every row has, also rows that are null (FORMAT.md §5.2).

    Attributes:
        words: one array per 8 bytes; zero for null rows.
    """

    words: tuple[Words, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BytesTail:
    """Tails of different lengths inside one buffer.

    Attributes:
        data: the buffer as words, with at least one spare word after the last byte.
        starts: first byte of each row's value in the buffer [bytes].
        lengths: bytes of each row's tail, without padding; 0 where it has none [bytes].
    """

    data: Words
    starts: Lengths
    lengths: Lengths

    @property
    def word_counts(self) -> Lengths:
        """Words of each row's tail, padding included."""
        return (self.lengths + 7) >> 3

    def word(self, step: int, rows: npt.NDArray[np.intp] | None) -> Words:
        """The step-th word of the tails of `rows` (None = all), bytes past the end zero."""
        starts = self.starts if rows is None else self.starts[rows]
        lengths = self.lengths if rows is None else self.lengths[rows]
        words = load_words(self.data, starts + 8 * step)
        return words & _KEEP[np.minimum(lengths - 8 * step, 8)]


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnWords:
    """One column, ready to be laid out or hashed.

    Attributes:
        slots: the slot of each row. Where the row has a tail only the low 32 bits are set: the
            offset, which depends on the other columns, goes into the high ones.
        nulls: True where null, or None when no row is.
        tail: what follows the slots, if the type has it.
    """

    slots: Words
    nulls: npt.NDArray[np.bool_] | None
    tail: FixedTail | BytesTail | None = None


def encode_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> pa.BinaryArray:
    """Raw rows (no arity before them, row kind +I).

    Nested columns are encoded row by row, the rest vectorised.

    Returns:
        One value per row, in the columns' order, never null.

    Raises:
        UnsupportedFeatureError: a column does not have its declared type.
    """
    count = len(columns[0]) if columns else 0
    parts = row_words(columns, types)
    words, tail_starts, sizes = placed_words(parts, count)
    if sizes.ndim == 0:
        return _binary_of_matrix(_matrix(words, parts, count))
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    out = np.zeros(offsets[-1], np.uint64)
    starts = offsets[:-1]
    for i, word in enumerate(words):
        out[starts + i] = word
    for part, tail_start in zip(parts, tail_starts, strict=True):
        _put_tail(out, starts + tail_start, part.tail)
    return _binary(out, offsets)


def row_words(columns: Sequence[pa.Array], types: Sequence[DataType]) -> list[ColumnWords]:
    """The columns as words, in field order; see `ColumnWords`."""
    return [column_words(column, type_) for column, type_ in zip(columns, types, strict=True)]


def placed_words(
    parts: Sequence[ColumnWords], count: int
) -> tuple[list[Words], list[Lengths], Lengths]:
    """The words before the tails, once it is known where each tail begins.

    Args:
        parts: the columns of the rows, in field order.
        count: number of rows.

    Returns:
        The header and slot words of all rows, each of shape (count,), or () when all rows agree;
        where each column's tail begins in its row [words]; the sizes of the rows [words]. The
        latter two of shape (count,) or () likewise.
    """
    words = _header_words(parts)
    sizes = np.array(len(words) + len(parts), np.int64)
    tail_starts = []
    for part in parts:
        words.append(_pointed(part, sizes))
        tail_starts.append(sizes)
        match part.tail:
            case FixedTail(words=tail):
                sizes = sizes + len(tail)
            case BytesTail() as tail:
                sizes = sizes + tail.word_counts
            case None:
                pass
    return words, tail_starts, np.asarray(sizes)


def _header_words(parts: Sequence[ColumnWords]) -> list[Words]:
    """Row kind +I and null bits."""
    header: list[Words] = [np.zeros((), np.uint64) for _ in range(header_bytes(len(parts)) // 8)]
    for i, part in enumerate(parts):
        if part.nulls is not None:
            word, bit = divmod(i + 8, 64)
            header[word] = header[word] | (part.nulls.astype(np.uint64) << np.uint64(bit))
    return header


def column_words(column: pa.Array | pa.ChunkedArray, type_: DataType) -> ColumnWords:
    """One column as words.

    Raises:
        UnsupportedFeatureError: the column does not have its declared type.
    """
    column = normalize(column, type_)
    nulls = None
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
    if not isinstance(type_, AtomicType):
        return _nested_words(column, type_, nulls)
    root = type_.root
    if root in _TEXTS:
        return _text_words(column, nulls)
    if root is TypeRoot.DECIMAL:
        return _decimal_words(column, type_, nulls)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return _timestamp_words(column, type_, nulls)
    if root is TypeRoot.BOOLEAN:
        values = column.cast(pa.uint8())
        return ColumnWords(_zeroed(_buffer(values, np.uint8).astype(np.uint64), nulls), nulls)
    values = _buffer(column, _DTYPES[root])
    return ColumnWords(_zeroed(values.astype(np.uint64, copy=False), nulls), nulls)


def load_words(data: Words, starts: Lengths) -> Words:
    """Eight bytes from each start, as words.

    The data has a spare word at its end, which positions past the end read.
    """
    index = np.minimum(starts >> 3, len(data) - 2)
    shift = ((starts & 7) << 3).astype(np.uint64)
    low = data[index] >> shift
    # A shift by 64 is undefined: go by one bit and then by the rest.
    high = (data[index + 1] << np.uint64(1)) << (np.uint64(63) - shift)
    return cast(Words, low | high)


def _buffer(column: pa.Array, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The values buffer of a primitive column, without copying; garbage where null."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    item = np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, len(column), column.offset * item)


def _zeroed(words: Words, nulls: npt.NDArray[np.bool_] | None) -> Words:
    return words if nulls is None else np.where(nulls, np.uint64(0), words)


def _text_words(column: pa.Array, nulls: npt.NDArray[np.bool_] | None) -> ColumnWords:
    _, offset_buffer, data_buffer = column.buffers()
    count = len(column)
    if offset_buffer is None or count == 0:
        offsets = np.zeros(count + 1, np.int64)
    else:
        offsets = np.frombuffer(offset_buffer, np.int32, count + 1, column.offset * 4)
        offsets = offsets.astype(np.int64)
    base = int(offsets[0]) & ~7
    data = _as_words(data_buffer, base, int(offsets[-1]))
    starts = offsets[:-1] - base
    lengths = np.diff(offsets)
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    inline = lengths <= MAX_INLINE
    slots = lengths.astype(np.uint64)
    if inline.any():
        marks = (slots | np.uint64(0x80)) << np.uint64(56)
        short = load_words(data, starts) & _KEEP[np.minimum(lengths, 8)]
        slots = np.where(inline, short | marks, slots)
        if inline.all():
            return ColumnWords(_zeroed(slots, nulls), nulls)
        lengths = np.where(inline, 0, lengths)
    return ColumnWords(_zeroed(slots, nulls), nulls, BytesTail(data, starts, lengths))


def _as_words(data: pa.Buffer | None, start: int, end: int) -> Words:
    """Bytes [start, end) of a buffer as words, with spare words after them.

    Copies nothing when the buffer itself is long enough, as Arrow's padded buffers mostly are.
    """
    needed = (end - start + 7) // 8 + 2
    if data is not None and data.size - start >= needed * 8:
        return np.frombuffer(data, np.uint64, needed, start)
    words = np.zeros(needed, np.uint64)
    if data is not None:
        words.view(np.uint8)[: end - start] = np.frombuffer(data, np.uint8, end - start, start)
    return words


def _decimal_words(
    column: pa.Array, type_: AtomicType, nulls: npt.NDArray[np.bool_] | None
) -> ColumnWords:
    data = column.buffers()[1]
    pairs = np.frombuffer(data, np.uint64, 2 * len(column), column.offset * 16).reshape(-1, 2)
    low = _zeroed(pairs[:, 0], nulls)
    if type_.precision <= MAX_COMPACT_DECIMAL:
        return ColumnWords(np.ascontiguousarray(low), nulls)
    high = _zeroed(pairs[:, 1], nulls)
    lengths = minimal_lengths(low, high)
    # Shift the 128-bit value left until its first significant byte leads, then store big-endian.
    shift = (np.uint64(16) - lengths) * _BYTE
    small = shift < _WORD_BITS
    inner = np.where(small, shift, shift - _WORD_BITS)
    carried = (low >> np.uint64(1)) >> (np.uint64(63) - inner)
    first = np.where(small, (high << inner) | carried, low << inner)
    second = np.where(small, low << inner, np.uint64(0))
    tail = FixedTail((first.byteswap(), second.byteswap()))
    return ColumnWords(_zeroed(lengths, nulls), nulls, tail)


def minimal_lengths(low: Words, high: Words) -> Words:
    """Bytes of the shortest two's-complement form of 128-bit values."""
    negative = high.view(np.int64) < 0
    low, high = np.where(negative, ~low, low), np.where(negative, ~high, high)
    wide = high > 0
    lengths = np.ones(len(low), np.uint64)
    for bits in range(7, 64, 8):
        lengths += wide | (low >> np.uint64(bits) > 0)
    for bits in range(7, 63, 8):
        lengths += high >> np.uint64(bits) > 0
    return lengths


def _timestamp_words(
    column: pa.Array, type_: AtomicType, nulls: npt.NDArray[np.bool_] | None
) -> ColumnWords:
    raw = _buffer(column, np.int64)
    if nulls is not None:
        raw = np.where(nulls, 0, raw)
    if type_.precision <= MAX_COMPACT_TIMESTAMP:
        return ColumnWords(raw.view(np.uint64), nulls)
    units, nanos = (1_000, 1_000) if column.type.unit == "us" else (1_000_000, 1)
    millis = raw // units
    slots = ((raw - millis * units) * nanos).view(np.uint64)
    return ColumnWords(slots, nulls, FixedTail((millis.view(np.uint64),)))


def _nested_words(
    column: pa.Array, type_: DataType, nulls: npt.NDArray[np.bool_] | None
) -> ColumnWords:
    tails = [
        b"" if value is None else nested_bytes(value, type_)
        for value in to_row_values(column, type_)
    ]
    lengths = np.fromiter(map(len, tails), np.int64, len(tails))
    ends = np.cumsum(lengths)
    joined = pa.py_buffer(b"".join(tails))
    data = _as_words(joined, 0, joined.size)
    return ColumnWords(lengths.view(np.uint64), nulls, BytesTail(data, ends - lengths, lengths))


def _pointed(part: ColumnWords, tail_start: Lengths) -> Words:
    """Slots with the tail's offset (given in words) in the high half where there is a tail."""
    if part.tail is None:
        return part.slots
    pointers = np.asarray(tail_start << 35).astype(np.uint64)  # words to bytes, high half
    if isinstance(part.tail, BytesTail):
        pointers = np.where(part.tail.lengths > 0, pointers, np.uint64(0))
    return cast(Words, part.slots | pointers)


def _matrix(words: Sequence[Words], parts: Sequence[ColumnWords], count: int) -> Words:
    """Rows of equal size, shape (rows, words per row)."""
    tails = [word for part in parts if isinstance(part.tail, FixedTail) for word in part.tail.words]
    matrix = np.empty((count, len(words) + len(tails)), np.uint64)
    for i, word in enumerate([*words, *tails]):
        matrix[:, i] = word
    return matrix


def _binary_of_matrix(matrix: Words) -> pa.BinaryArray:
    count, width = matrix.shape
    return _binary(matrix.reshape(-1), np.arange(count + 1, dtype=np.int64) * width)


def _binary(words: Words, offsets: Lengths) -> pa.BinaryArray:
    if len(words) * 8 > np.iinfo(np.int32).max:
        raise InternalError("more than 2 GiB of rows in one batch", rows=len(offsets) - 1)
    ends = pa.py_buffer((offsets << 3).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, ends, pa.py_buffer(words)])


def mix_tail(
    state: npt.NDArray[Any],
    tail: FixedTail | BytesTail | None,
    mix: Callable[[npt.NDArray[Any], Words], None],
) -> None:
    """Take the words of the tails into the states of the rows, in place and in order.

    `mix` takes a word of each row into a state; long tails are taken in a word a step over the
    rows that are still that long.
    """
    match tail:
        case FixedTail(words=words):
            for word in words:
                mix(state, word)
        case BytesTail():
            counts = tail.word_counts
            shortest, longest = int(counts.min()), int(counts.max())
            for step in range(shortest):
                mix(state, tail.word(step, None))
            for step in range(shortest, longest):
                rows = np.flatnonzero(counts > step)
                part = state[rows]
                mix(part, tail.word(step, rows))
                state[rows] = part
        case None:
            return


def _put_tail(out: Words, positions: Lengths, tail: FixedTail | BytesTail | None) -> None:
    match tail:
        case FixedTail(words=words):
            for i, word in enumerate(words):
                out[positions + i] = word
        case BytesTail():
            counts = tail.word_counts
            for step in range(int(counts.max(initial=0))):
                rows = np.flatnonzero(counts > step)
                out[positions[rows] + step] = tail.word(step, rows)
        case None:
            return
