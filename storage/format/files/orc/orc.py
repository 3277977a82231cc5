# SPDX-License-Identifier: Apache-2.0
"""ORC files as Paimon lays them out: types, field ids, stripes.

Source: FORMAT.md §7.4, compared in the tests with files written by Java. Every type carries the
attribute `paimon.id`; readers find columns by name, so files without it are read, too. TIME is an
int; MULTISET is a map, as Java stores it; blanks at the end of a CHAR do not count.

TIMESTAMP_LTZ is stored as the true instant. That is also what `orc.timestamp-ltz.legacy.type` =
true gives in a JVM that runs in UTC, the only zone in which Java's legacy rule keeps instants. A
table that JVMs of other zones write or read should set false: otherwise such a JVM reads our files,
like those of a JVM in UTC, shifted. Its files are read correctly either way (`zones`).

The zstd level cannot be set, in the library as in Java's `orc.compress`: the library's applies.

The library decodes timestamps to 64-bit nanoseconds and refuses a stripe that holds one outside the
years 1677 to 2262; such stripes are decoded another way (`wide`). Instants before 1970 with a
fraction of a second are corrected after the library has written them (`instants`).
"""

import bisect
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.avro.schema import read_varint, varint
from storage.format.files.file_columns import (
    conform_batch,
    list_like,
    map_entries,
    mapped_values,
    rows_without_columns,
    selected,
    struct_like,
)
from storage.format.files.orc.tail import (
    COUNT,
    INSTANT_ROOTS,
    UNITS_PER_SECOND,
    Message,
    OtherTail,
    Stripe,
    Tail,
    TypeNode,
    Zone,
    all_instants,
    all_longs,
    children,
    compressed,
    declared_kinds,
    decompressed,
    depth_first,
    described,
    footer_of,
    has_instants,
    in_utc,
    number_of,
    parse,
    read_secondary,
    read_tail,
    read_types,
    read_zone,
    retyped,
    rows_before,
    serialized,
    stored_field,
    zone_of,
)
from storage.format.files.row_selection import (
    RowSelection,
    TailHolder,
    exceeds_nanoseconds,
    open_data_file,
)
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)
from storage.io.file_io import FileIO
from storage.options.options import option_value
from storage.options.values import codec_of

# Corrects instants before 1970 with a fraction of a second in ORC files that pyarrow wrote.
#
# An ORC timestamp is two numbers: seconds since 2015 and nanoseconds. Java stores the second
# rounded down, plus one when it is negative and there is a whole millisecond on top, and
# nanoseconds from 0 to 999999999. pyarrow rounds towards zero and stores negative nanoseconds,
# which pyarrow reads but Java does not. So both streams of such a column are encoded again, with
# their entries in the row index and the bounds in the statistics; all other bytes are copied. (By
# Java's rule the last second before 1970 reads as the first one after it; so it does in Java.)
#
# Source: ORC specification v1, "Timestamp Columns", "Run Length Encoding version 2", "Row Index".


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


# Timestamps of ORC stripes that 64-bit nanoseconds cannot hold: those outside 1677 to 2262.
#
# The library decodes every timestamp to nanoseconds and refuses a stripe that holds an earlier or a
# later one. Stored are two numbers: seconds since 2015 and nanoseconds. So the library is given the
# file with its timestamps declared BIGINT (`tail.all_longs`), which makes it decode the seconds
# with their nulls and their nesting; the nanoseconds are decoded here. Only stripes that the
# library refused are decoded this way.
#
# Source: ORC specification v1, "Timestamp Columns", "Run Length Encoding".


TIMESTAMP_KINDS = (9, 18)
"""Kinds of ORC types that hold seconds and nanoseconds: TIMESTAMP and TIMESTAMP_INSTANT."""

_LIST, _MAP, _STRUCT = 10, 11, 12
_MAX_NANO_SECONDS = 9_223_372_035
"""Whole seconds around the epoch that always fit int64 nanoseconds."""
_MAX_MICRO_SECONDS = 9_223_372_036_853
_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""Bits of a packed value, by its code."""


def with_timestamps(
    column: pa.Array, node: TypeNode, nanos: Mapping[int, _Longs], name: str, path: str
) -> pa.Array:
    """A decoded column whose timestamps are seconds, with timestamps instead.

    Args:
        column: as the library returns it for types that `all_longs` declared.
        node: the ORC type of the column in the file.
        nanos: nanoseconds by column id, of the values that are not null, in file order.
        name: of the column for an error.
        path: file for an error.

    Raises:
        UnsupportedFeatureError: a timestamp that has no Arrow form.
        ValueError: the numbers of seconds and nanoseconds differ.
    """
    if node.kind in TIMESTAMP_KINDS:
        return _timestamps(column, nanos[node.column], name, path)
    if node.kind == _STRUCT:
        parts = [
            with_timestamps(part, child, nanos, name, path)
            for part, child in zip(column.flatten(), node.children, strict=True)
        ]
        fields = [column.type.field(i).with_type(part.type) for i, part in enumerate(parts)]
        return struct_like(column, fields, parts)
    if node.kind == _LIST:
        child = with_timestamps(column.values, node.children[0], nanos, name, path)
        return list_like(column, pa.list_(column.type.value_field.with_type(child.type)), child)
    if node.kind == _MAP:
        keys = with_timestamps(column.keys, node.children[0], nanos, name, path)
        items = with_timestamps(column.items, node.children[1], nanos, name, path)
        target = pa.map_(
            column.type.key_field.with_type(keys.type), column.type.item_field.with_type(items.type)
        )
        return map_entries(column, target, keys, items)
    return column


def _timestamps(column: pa.Array, stored: _Longs, name: str, path: str) -> pa.TimestampArray:
    """Timestamps of seconds and nanoseconds, as the library makes them, in a unit that fits."""
    present = pc.is_valid(column).to_numpy(zero_copy_only=False)
    if int(present.sum()) != len(stored):
        raise ValueError(f"{int(present.sum())} seconds and {len(stored)} nanoseconds")
    nanos = np.zeros(len(column), np.int64)
    nanos[present] = stored
    seconds = column.fill_null(0).to_numpy() + _EPOCH_2015
    seconds -= (seconds < 0) & (nanos > _LARGEST_BARE_NANOS)
    seconds[~present] = 0
    fine = bool((nanos % 1_000).any())
    most = _MAX_NANO_SECONDS if fine else _MAX_MICRO_SECONDS
    outside = (seconds < -most) | (seconds > most)
    if outside.any():
        raise UnsupportedFeatureError(
            "a timestamp with nanoseconds is outside the years 1677 to 2262"
            if fine
            else "a timestamp is out of range for microseconds",
            hint="read this file with Apache Paimon, or use TIMESTAMP(6)",
            column=name,
            value=f"{int(seconds[outside][0])} s since 1970",
            path=path,
        )
    values = seconds * 1_000_000_000 + nanos if fine else seconds * 1_000_000 + nanos // 1_000
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    type_ = pa.timestamp("ns" if fine else "us")
    return pa.Array.from_buffers(type_, len(column), [validity, pa.py_buffer(values)])


def nanoseconds(data: bytes, version_2: bool) -> _Longs:
    """The values of a stream of nanoseconds, which counts zeros at the end instead of storing them.

    Raises:
        ValueError, LookupError: the stream is damaged.
    """
    stored = decode_unsigned(data, version_2=version_2)
    values, zeros = stored >> 3, stored & 7
    powers: _Longs = np.array([1, *(10 ** (n + 1) for n in range(1, 8))], np.int64)
    return values * powers[zeros]


def decode_unsigned(data: bytes, *, version_2: bool) -> _Longs:
    """The numbers of a run-length encoded stream of unsigned integers.

    Raises:
        ValueError, LookupError: the stream is damaged.
    """
    parts: list[_Longs] = []
    position = 0
    run = _run_2 if version_2 else _run_1
    while position < len(data):
        values, position = run(data, position)
        if position > len(data):
            raise ValueError("a run of numbers is cut short")
        parts.append(values)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _run_1(data: bytes, at: int) -> tuple[_Longs, int]:
    control = data[at]
    if control < 0x80:
        step = int.from_bytes(data[at + 1 : at + 2], "big", signed=True)
        base, at = read_varint(data, at + 2)
        return _steady(base, step, control + 3), at
    values = []
    at += 1
    for _ in range(0x100 - control):
        value, at = read_varint(data, at)
        values.append(value)
    return _longs(values), at


def _run_2(data: bytes, at: int) -> tuple[_Longs, int]:
    first = data[at]
    form, code = first >> 6, first >> 1 & 0x1F
    if form == 0:
        width = (first >> 3 & 7) + 1
        value = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        return _steady(value, 0, (first & 7) + 3), at + 1 + width
    length = ((first & 1) << 8 | data[at + 1]) + 1
    at += 2
    if form == 1:
        return _unpacked(data, at, length, _WIDTHS[code])
    if form == 2:
        return _patched(data, at, length, _WIDTHS[code])
    base, at = read_varint(data, at)
    zigzag, at = read_varint(data, at)
    step = (zigzag >> 1) ^ -(zigzag & 1)
    if code == 0:
        return _steady(base, step, length), at
    deltas, at = _unpacked(data, at, length - 2, _WIDTHS[code])
    steps = np.concatenate([_longs([base, step]), -deltas if step < 0 else deltas])
    return np.cumsum(steps), at


def _patched(data: bytes, at: int, length: int, width: int) -> tuple[_Longs, int]:
    third, fourth = data[at], data[at + 1]
    base_bytes, patch_width = (third >> 5) + 1, _WIDTHS[third & 0x1F]
    gap_width, patches = (fourth >> 5) + 1, fourth & 0x1F
    at += 2
    stored = int.from_bytes(data[at : at + base_bytes], "big")
    sign = 1 << (base_bytes * 8 - 1)
    base = -(stored - sign) if stored & sign else stored
    values, at = _unpacked(data, at + base_bytes, length, width)
    entry_width = _WIDTHS[bisect.bisect_left(_WIDTHS, gap_width + patch_width)]
    entries, at = _unpacked(data, at, patches, entry_width)
    where = 0
    for entry in entries.tolist():
        where += entry >> patch_width
        values[where] |= (entry & ((1 << patch_width) - 1)) << width
    return values + base, at


def _unpacked(data: bytes, at: int, count: int, width: int) -> tuple[_Longs, int]:
    """Numbers of some bits each, the highest bit first."""
    end = at + (count * width + 7) // 8
    bits = np.unpackbits(np.frombuffer(data[at:end], np.uint8))[: count * width]
    wide = np.zeros((count, 64), np.uint8)
    wide[:, 64 - width :] = bits.reshape(count, width)
    return np.packbits(wide, axis=1).reshape(-1).view(">u8").astype(np.int64), end


def _steady(base: int, step: int, count: int) -> _Longs:
    first = _longs([base, base + step * (count - 1)])[0]  # neither end may be out of bounds
    return first + step * np.arange(count, dtype=np.int64)


def _longs(values: Sequence[int]) -> _Longs:
    try:
        return np.array(values, np.int64)
    except OverflowError as error:
        raise ValueError("a number of a run has more than 64 bits") from error


_LEGACY = "orc.timestamp-ltz.legacy.type"
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "zlib": "zlib",
    "gzip": "zlib",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}
_FIRST_RATIO = 0.3
"""Guess of file bytes per Arrow byte until the first stripe is written."""


class OrcSink:
    """Writes one ORC file; see `file_formats.RowSink`.

    A stripe ends when it holds `file.block-size` or else `orc.stripe.size` bytes,
    regardless of the calls of `write`.

    Args:
        options: `file.block-size`, and those that begin with `orc.` and that the library supports.
    """

    footer = ()

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str,
        options: Mapping[str, str],
        **_: object,
    ) -> None:
        settings = _settings(options)
        codec = codec_of(compression, CODECS, "ORC")
        self._fields = fields
        self._schema = pa.schema([stored_field(f.name, f.type, f.id, f.id, 0) for f in fields])
        self._kinds = declared_kinds(fields)
        self._timed = [i for i, field in enumerate(fields) if has_instants(field.type)]
        self._recent: list[list[pa.Array]] = []
        """Timed columns of the writes that may be in the unwritten stripe."""
        self._recent_start = self._rows = 0
        self._held_at: int | None = None
        self._output = TailHolder(output) if self._kinds or self._timed else output
        self._writer = _Writer(self._output, compression=codec, **settings)
        self._pending_bytes = self._flushed_arrow = self._flushed = 0
        self._started = False

    @property
    def size(self) -> int:
        """See `RowSink`; an estimate for what the library still holds."""
        ratio = self._flushed / self._flushed_arrow if self._flushed_arrow else _FIRST_RATIO
        return int(self._output.tell()) + int(self._pending_bytes * ratio)

    def write(self, columns: Sequence[pa.Array]) -> None:
        """See `RowSink`."""
        try:
            stored = [
                _to_library(_compact(column, field.type), field.type)
                for column, field in zip(columns, self._fields, strict=True)
            ]
            table = pa.Table.from_arrays(stored, schema=self._schema)
            _check_nulls(table)
            self._watch(columns)
            before = self._output.tell()
            self._writer.write(table)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InternalError("rows do not fit the file's schema", detail=str(error)) from error
        self._started = True
        self._pending_bytes += table.nbytes
        flushed = self._output.tell() - before
        if flushed > len("ORC"):
            self._flushed += flushed
            self._flushed_arrow += self._pending_bytes
            self._pending_bytes = 0
            if self._held_at is None:
                # all earlier writes are in stripes that are written
                self._recent_start = self._rows - table.num_rows
                self._recent = self._recent[-1:]

    def _watch(self, columns: Sequence[pa.Array]) -> None:
        """Buffer timestamps; hold back the output once one needs correction."""
        if not self._timed:
            return
        timed = [columns[i] for i in self._timed]
        self._recent.append(timed)
        self._rows += len(timed[0])
        if self._held_at is None and any(
            has_early(_instants([leaf])) for _, leaf in self._leaves(timed)
        ):
            self._held_at = self._output.tell()
            self._output.hold()

    def _leaves(self, timed: Sequence[pa.Array]) -> Iterator[tuple[int, pa.Array]]:
        """Timestamps below the timed columns that are not null, by column id."""
        for i, column in zip(self._timed, timed, strict=True):
            types = [field.type for field in self._fields[:i]]
            first = 1 + sum(1 for _ in depth_first(types))
            yield from _instant_leaves(column, self._fields[i].type, first)

    def _finish_tail(self, tail: bytes) -> bytes:
        """The held end of the file, corrected."""
        if self._held_at is not None:
            skipped = rows_before(tail, self._held_at) - self._recent_start
            parts: dict[int, list[pa.Array]] = {}
            for timed in self._recent:
                rest = [column.slice(min(skipped, len(column))) for column in timed]
                skipped = max(0, skipped - len(timed[0]))
                for column_id, leaf in self._leaves(rest):
                    parts.setdefault(column_id, []).append(leaf)
            columns = {column_id: _instants(leaves) for column_id, leaves in parts.items()}
            tail = with_early_instants(tail, self._held_at, columns)
        return retyped(tail, self._kinds)

    def close(self) -> None:
        """See `RowSink`."""
        if not self._started:
            self._writer.write(self._schema.empty_table())
        if isinstance(self._output, TailHolder):
            if self._held_at is None:
                self._output.hold()
            self._writer.close()
            self._output.release(self._finish_tail)
            self._recent = []
        else:
            self._writer.close()
        self._pending_bytes = 0


class _Writer(pyarrow.orc.ORCWriter):
    """pyarrow's writer without its finalizer, which would write to an abandoned output."""

    def __del__(self) -> None:
        pass


def _settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of the library's writer from the table's options."""
    names = {
        "orc.stripe.size": "stripe_size",
        "orc.compress.size": "compression_block_size",
        "orc.row.index.stride": "row_index_stride",
        "orc.block.padding.tolerance": "padding_tolerance",
        "orc.dictionary.key.threshold": "dictionary_key_size_threshold",
        "orc.bloom.filter.fpp": "bloom_filter_fpp",
        "file.block-size": "stripe_size",  # precedes orc.stripe.size, as in Java
    }
    return {
        argument: option_value(options, key) for key, argument in names.items() if key in options
    }


# ----------------------------------------------------------------------------------- write


def _compact(column: pa.Array, type_: DataType) -> pa.Array:
    """The column without offsets if it holds ROWs: the library misplaces their nulls."""
    if not any(isinstance(part, RowType) for part in depth_first([type_])):
        return column
    return pa.concat_arrays([column.slice(0, 0), column])


def _to_library(column: pa.Array, type_: DataType) -> pa.Array:
    """The column as it is handed to the library; its child fields carry no metadata yet."""
    match type_:
        case AtomicType(root=TypeRoot.TIME):
            return column.view(pa.int32())
        case AtomicType():
            return column
        case ArrayType(element=element):
            child = _to_library(column.values, element)
            field = column.type.value_field.with_type(child.type)
            return list_like(column, pa.list_(field), child)
        case MultisetType(element=key):
            return _stored_entries(column, key, COUNT)
        case MapType(key=key, value=value):
            return _stored_entries(column, key, value)
        case RowType(fields=fields):
            # flattened: below a null the library writes what is not null itself
            parts = zip(column.flatten(), fields, strict=True)
            stored = [_to_library(part, field.type) for part, field in parts]
            members = [column.type.field(i).with_type(part.type) for i, part in enumerate(stored)]
            return struct_like(column, members, stored)


def _stored_entries(column: pa.MapArray, key: DataType, value: DataType) -> pa.Array:
    keys, items = _to_library(column.keys, key), _to_library(column.items, value)
    return map_entries(
        column,
        pa.map_(
            column.type.key_field.with_type(keys.type), column.type.item_field.with_type(items.type)
        ),
        keys,
        items,
    )


def _instants(leaves: Sequence[pa.Array]) -> Instants:
    values = np.concatenate([leaf.view(pa.int64()).to_numpy() for leaf in leaves])
    return Instants(values, UNITS_PER_SECOND[leaves[0].type.unit])


def _instant_leaves(
    column: pa.Array, type_: DataType, column_id: int
) -> Iterator[tuple[int, pa.Array]]:
    """Timestamps of a column as they are stored: without what is null or below a null."""
    match type_:
        case AtomicType(root=root):
            if root in INSTANT_ROOTS:
                yield column_id, column.drop_null()
            return
        case RowType():
            parts = column.flatten()
        case ArrayType():
            parts = [column.flatten()]
        case _:
            entry = pa.struct([column.type.key_field, column.type.item_field])
            keys, items = column.keys, column.items
            entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
            flat = list_like(column, pa.list_(entry), entries).flatten()
            parts = [flat.field(0), flat.field(1)]
    below = column_id + 1
    for part, part_type in zip(parts, children(type_), strict=True):
        yield from _instant_leaves(part, part_type, below)
        below += sum(1 for _ in depth_first([part_type]))


def _check_nulls(table: pa.Table) -> None:
    """ORC has no required columns, so no other check rejects nulls."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise InternalError("a NOT NULL column holds nulls", column=field.name)


# ------------------------------------------------------------------------------------ read


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    selection: RowSelection | None = None,
    file_size: int | None = None,
    options: Mapping[str, str] = _NO_OPTIONS,
    **_: object,
) -> Iterator[pa.RecordBatch]:
    """Read some columns; arguments, batches and errors as in `file_formats.read_batches`.

    Stripes without a selected row are not read; statistics of stripes are not used.
    """
    legacy = option_value(options, _LEGACY)
    with open_data_file(file_io, path, "an ORC file", file_size) as source:
        tail = read_tail(source, path)
        file = pyarrow.orc.ORCFile(source)
        if file.nstripes != len(tail.stripes):
            raise pa.ArrowInvalid(f"{file.nstripes} stripes instead of {len(tail.stripes)}")
        names = set(file.schema.names)
        present = [field for field in columns if field.name in names]
        zoned = any(has_instants(field.type) for field in present)
        instants: pyarrow.orc.ORCFile | None = None
        wide: _WideStripes | None = None
        start = 0
        for index, stripe in enumerate(tail.stripes):
            if stripe.rows and not (selection and selection.empty(start, stripe.rows)):
                zone = _zone(read_zone(source, tail, stripe, path), path) if zoned else None
                if zone is not None:
                    instants = instants or _with_tail(source, tail, all_instants(tail.content))
                try:
                    raw = _raw_stripe(instants or file, index, stripe.rows, present)
                except pa.ArrowInvalid as error:
                    if not exceeds_nanoseconds(error):
                        raise
                    wide = wide or _WideStripes(source, tail, path)
                    raw = wide.read(index, present)
                decoded = _conformed(raw, present, path)
                if zone is not None:
                    decoded = in_utc(decoded, present, zone, legacy)
                for first in range(0, stripe.rows, batch_rows):
                    piece = decoded.slice(first, batch_rows)
                    batch = selected(piece, start + first, selection)
                    if batch.num_rows:
                        yield batch
            start += stripe.rows


def _zone(name: str, path: str) -> Zone | None:
    try:
        return zone_of(name)
    except UnsupportedFeatureError as error:
        error.context.setdefault("path", path)
        raise


def _with_tail(source: pa.NativeFile, tail: Tail, content: bytes) -> pyarrow.orc.ORCFile:
    """The file with other bytes instead of the content of its tail."""
    file = OtherTail(source, source.size() - len(tail.content), content)
    return pyarrow.orc.ORCFile(pa.PythonFile(file, mode="r"))


class _WideStripes:
    """Reads stripes with timestamps that 64-bit nanoseconds cannot hold, see `wide`."""

    def __init__(self, source: pa.NativeFile, tail: Tail, path: str) -> None:
        self._source = source
        self._tail = tail
        self._path = path
        self._root: TypeNode = read_types(tail, path)
        self._file = _with_tail(source, tail, all_longs(tail.content))

    def read(self, index: int, columns: Sequence[DataField]) -> pa.RecordBatch:
        """One stripe, in the form in which the library returns others."""
        stripe: Stripe = self._tail.stripes[index]
        raw = _raw_stripe(self._file, index, stripe.rows, columns)
        streams = read_secondary(self._source, self._tail, stripe, self._path)
        nodes = dict(zip(self._root.names, self._root.children, strict=True))
        with described(self._path):
            nanos = {
                column: nanoseconds(*streams.get(column, (b"", True)))
                for name in raw.schema.names
                for column in _timestamp_columns(nodes[name])
            }
            arrays = [
                with_timestamps(array, nodes[name], nanos, name, self._path)
                for name, array in zip(raw.schema.names, raw.columns, strict=True)
            ]
        return pa.RecordBatch.from_arrays(arrays, names=raw.schema.names)


def _timestamp_columns(node: TypeNode) -> Iterator[int]:
    if node.kind in TIMESTAMP_KINDS:
        yield node.column
    for child in node.children:
        yield from _timestamp_columns(child)


def _raw_stripe(
    file: pyarrow.orc.ORCFile, index: int, rows: int, columns: Sequence[DataField]
) -> pa.RecordBatch:
    if not columns:
        return rows_without_columns(rows)
    decoded = file.read_stripe(index, columns=[field.name for field in columns])
    if decoded.num_rows != rows:
        raise pa.ArrowInvalid(f"a stripe has {decoded.num_rows} rows instead of {rows}")
    decoded.validate()
    return decoded


def _conformed(decoded: pa.RecordBatch, columns: Sequence[DataField], path: str) -> pa.RecordBatch:
    if not columns:
        return decoded
    batch = conform_batch(decoded, columns, path)
    arrays = [
        mapped_values(column, field.type, (TypeRoot.CHAR,), _without_blanks)
        for column, field in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _without_blanks(column: pa.StringArray, _: AtomicType) -> pa.StringArray:
    """CHAR values without the blanks at their end."""
    return pc.utf8_rtrim(column, " ")
