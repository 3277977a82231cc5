# SPDX-License-Identifier: Apache-2.0
"""Corrects instants before 1970 with a fraction of a second in ORC files that pyarrow wrote.

An ORC timestamp is two numbers: seconds since 2015 and nanoseconds. Java stores the second rounded
down, plus one when it is negative and there is a whole millisecond on top, and nanoseconds from 0
to 999999999. pyarrow rounds towards zero and stores negative nanoseconds, which pyarrow reads
but Java does not. So both streams of such a column are encoded again, with their entries in the row
index and the bounds in the statistics; all other bytes are copied. (By Java's rule the last
second before 1970 reads as the first one after it; so it does in Java.)

Source: ORC specification v1, "Timestamp Columns", "Run Length Encoding version 2", "Row Index".
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.format.files.orc.tail import (
    Message,
    compressed,
    decompressed,
    footer_of,
    number_of,
    parse,
    serialized,
)
from storage.format.varint import read_varint, varint

_Longs = npt.NDArray[np.int64]

_EPOCH_2015 = 1_420_070_400
_NANOS_PER_SECOND = 1_000_000_000
_LARGEST_BARE_NANOS = 999_999
_LONGEST_RUN = 512

# Field numbers of orc_proto.proto.
_PS_FOOTER_LENGTH, _PS_COMPRESSION, _PS_METADATA_LENGTH = 1, 2, 5
_FOOTER_CONTENT, _FOOTER_STRIPES, _FOOTER_STATISTICS = 2, 3, 7
_STRIPE_OFFSET, _STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER = 1, 2, 3, 4
_STREAMS = 1
_STREAM_KIND, _STREAM_COLUMN, _STREAM_LENGTH = 1, 2, 3
_ENTRIES, _ENTRY_POSITIONS, _ENTRY_STATISTICS = 1, 1, 2
_VALUE_COUNT, _TIMESTAMP_STATISTICS = 1, 9
_MINIMA, _NANOS = (1, 3), (5, 6)
_DATA, _SECONDARY, _ROW_INDEX = 1, 5, 6
_INDEX_KINDS = (6, 7, 8)


@dataclasses.dataclass(frozen=True, slots=True)
class Instants:
    """The values of one ORC column that are not null, in file order.

    Attributes:
        values: since the epoch, from the first row of the first stripe to be changed on.
    """

    values: _Longs
    per_second: int


def has_early(instants: Instants) -> bool:
    """Whether a value is one that pyarrow stores wrongly."""
    early = instants.values[instants.values < 0]
    return bool((early % instants.per_second).any())


def with_early_instants(tail: bytes, start: int, columns: Mapping[int, Instants]) -> bytes:
    """The end of an ORC file with timestamps stored as Java stores them.

    Args:
        tail: the last bytes of the file.
        start: their position in the file. No stripe crosses it.
        columns: by column id, all timestamp columns below the root.
    """
    footer, postscript, footer_at = footer_of(tail)
    metadata_at = footer_at - number_of(postscript, _PS_METADATA_LENGTH)
    metadata = parse(decompressed(tail[metadata_at:footer_at], postscript))
    sources = {column: _Source(instants) for column, instants in columns.items()}
    out = bytearray()
    copied = shift = 0
    stripes = []
    infos = [parse(value) for number, _, value in footer if number == _FOOTER_STRIPES]
    for info, (_, _, statistics) in zip(infos, metadata, strict=True):
        begin = number_of(info, _STRIPE_OFFSET) - start
        if begin < 0:
            stripes.append(info)
            continue
        out += tail[copied:begin]
        lengths = [number_of(info, n) for n in (_STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER)]
        copied = begin + sum(lengths)
        counts = [number_of(parse(value), _VALUE_COUNT) for _, _, value in parse(statistics)]
        stripe, new_lengths = _stripe(tail[begin:copied], lengths[2], sources, counts, postscript)
        new = dict(zip((_STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER), new_lengths, strict=True))
        stripes.append(_with_numbers(info, {_STRIPE_OFFSET: start + len(out), **new}))
        out += stripe
        shift += sum(new_lengths) - sum(lengths)
    out += tail[copied:metadata_at]
    new_metadata = [
        (number, wire, serialized(_wider_each(parse(value), 1, columns)))
        for number, wire, value in metadata
    ]
    stored_metadata = compressed(serialized(new_metadata), postscript)
    stored_footer = compressed(serialized(_footer(footer, stripes, shift, columns)), postscript)
    changed = {_PS_FOOTER_LENGTH: len(stored_footer), _PS_METADATA_LENGTH: len(stored_metadata)}
    new_postscript = serialized(_with_numbers(postscript, changed))
    return bytes(
        out + stored_metadata + stored_footer + new_postscript + bytes([len(new_postscript)])
    )


class _Source:
    """Returns a column's values piece by piece, as the two numbers of each."""

    def __init__(self, instants: Instants) -> None:
        seconds, fractions = np.divmod(instants.values, instants.per_second)
        nanos = fractions * (_NANOS_PER_SECOND // instants.per_second)
        seconds += (seconds < 0) & (nanos > _LARGEST_BARE_NANOS)
        relative = seconds - _EPOCH_2015
        self._seconds = ((relative << 1) ^ (relative >> 63)).view(np.uint64)
        self._nanos = _formatted(nanos).view(np.uint64)
        self._next = 0

    def take(self, count: int) -> tuple[bytes, bytes]:
        """Both streams of the next values, without chunks."""
        piece = slice(self._next, self._next + count)
        self._next += count
        return _direct(self._seconds[piece]), _direct(self._nanos[piece])


def _formatted(nanos: _Longs) -> _Longs:
    """Nanoseconds with their zeros at the end counted instead of stored, if there are two."""
    rest = nanos.copy()
    zeros = np.zeros(len(nanos), np.int64)
    for _ in range(8):
        more = (rest != 0) & (rest % 10 == 0)
        rest[more] //= 10
        zeros += more
    single = zeros == 1
    rest[single] *= 10
    zeros[single] = 0
    return (rest << 3) | np.maximum(zeros - 1, 0)


def _direct(values: npt.NDArray[np.uint64]) -> bytes:
    """Run length encoding 2, direct runs of whole bytes a value."""
    if not len(values):
        return b""
    # 31, 28 and so on are the codes of 64, 40 ... bits
    width, code = (5, 28) if int(values.max()) < 1 << 40 else (8, 31)
    packed = values.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]
    out = []
    for first in range(0, len(values), _LONGEST_RUN):
        run = packed[first : first + _LONGEST_RUN]
        length = len(run) - 1
        out.append(bytes([0x40 | code << 1 | length >> 8, length & 0xFF]) + run.tobytes())
    return b"".join(out)


def _stripe(
    raw: bytes,
    footer_size: int,
    sources: Mapping[int, _Source],
    counts: Sequence[int],
    postscript: Message,
) -> tuple[bytes, tuple[int, int, int]]:
    """A stripe with other timestamp streams, and the lengths of its three parts."""
    footer = parse(decompressed(raw[len(raw) - footer_size :], postscript))
    pieces: dict[tuple[int, int], bytes] = {}
    position = 0
    for number, _, value in footer:
        if number == _STREAMS:
            stream = parse(value)
            length = number_of(stream, _STREAM_LENGTH)
            key = number_of(stream, _STREAM_KIND), number_of(stream, _STREAM_COLUMN)
            pieces[key] = raw[position : position + length]
            position += length
    for column, source in sources.items():
        _replace(pieces, column, source, counts[column], postscript)
    changed: Message = []
    for number, wire, value in footer:
        if number == _STREAMS:
            stream = parse(value)
            key = number_of(stream, _STREAM_KIND), number_of(stream, _STREAM_COLUMN)
            value = serialized(_with_numbers(stream, {_STREAM_LENGTH: len(pieces[key])}))
        changed.append((number, wire, value))
    stored = compressed(serialized(changed), postscript)
    index = sum(len(piece) for (kind, _), piece in pieces.items() if kind in _INDEX_KINDS)
    content = b"".join(pieces.values())
    return content + stored, (index, len(content) - index, len(stored))


def _replace(
    pieces: dict[tuple[int, int], bytes],
    column: int,
    source: _Source,
    count: int,
    postscript: Message,
) -> None:
    """Put a column's new streams and row index among the pieces of its stripe."""
    data, secondary = bytearray(), bytearray()
    plain = number_of(postscript, _PS_COMPRESSION) == 0
    index = pieces.get((_ROW_INDEX, column))
    entries = [] if index is None else parse(decompressed(index, postscript))
    changed: Message = []
    for number, wire, value in entries:
        entry = parse(value)
        statistics = _first(entry, _ENTRY_STATISTICS)
        positions = list(_packed(_first(entry, _ENTRY_POSITIONS)))
        offsets = [len(data), 0, len(secondary), 0]
        if not plain:
            offsets = [len(data), 0, 0, len(secondary), 0, 0]
        positions = positions[: len(positions) - len(offsets)] + offsets
        parts = source.take(number_of(parse(statistics), _VALUE_COUNT))
        data += compressed(parts[0], postscript)
        secondary += compressed(parts[1], postscript)
        packed = b"".join(map(varint, positions))
        fields: Message = [(_ENTRY_POSITIONS, 2, packed)]
        fields.append((_ENTRY_STATISTICS, 2, serialized(_wider(parse(statistics)))))
        changed.append((number, wire, serialized(fields)))
    if index is None:
        parts = source.take(count)
        data += compressed(parts[0], postscript)
        secondary += compressed(parts[1], postscript)
    else:
        pieces[_ROW_INDEX, column] = compressed(serialized(changed), postscript)
    if count:
        pieces[_DATA, column] = bytes(data)
        pieces[_SECONDARY, column] = bytes(secondary)


def _footer(
    footer: Message, stripes: Sequence[Message], shift: int, columns: Mapping[int, Instants]
) -> Message:
    """The file's footer with new stripes and statistics."""
    infos = iter(stripes)
    content = {_FOOTER_CONTENT: number_of(footer, _FOOTER_CONTENT) + shift}
    changed = [
        (number, wire, serialized(next(infos)) if number == _FOOTER_STRIPES else value)
        for number, wire, value in _with_numbers(footer, content)
    ]
    return _wider_each(changed, _FOOTER_STATISTICS, columns)


def _wider_each(fields: Message, field_number: int, columns: Mapping[int, Instants]) -> Message:
    """Statistics by column id, those of timestamps widened."""
    changed: Message = []
    column = 0
    for number, wire, value in fields:
        if number == field_number:
            if column in columns:
                value = serialized(_wider(parse(value)))
            column += 1
        changed.append((number, wire, value))
    return changed


def _wider(statistics: Message) -> Message:
    """Bounds in whole milliseconds that hold what pyarrow cut off towards zero."""
    changed: Message = []
    for number, wire, value in statistics:
        if number == _TIMESTAMP_STATISTICS:
            value = serialized(
                [
                    # zig-zag: odd is negative, and two more is one lower
                    (n, w, v + 2 if n in _MINIMA and v & 1 else v)
                    for n, w, v in parse(value)
                    if n not in _NANOS
                ]
            )
        changed.append((number, wire, value))
    return changed


def _with_numbers(fields: Message, numbers: Mapping[int, int]) -> Message:
    return [(number, wire, numbers.get(number, value)) for number, wire, value in fields]


def _first(fields: Message, field_number: int) -> Any:
    return next((value for number, _, value in fields if number == field_number), b"")


def _packed(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = read_varint(data, position)
        yield value
