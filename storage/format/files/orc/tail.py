# SPDX-License-Identifier: Apache-2.0
"""The tail of an ORC file, its types, and the time zones of its writers.

Layout: stripes, stripe statistics, footer, postscript, one byte with the postscript's length. All
are Protocol Buffers; footer and statistics are compressed in chunks, each behind a three-byte
header. pyarrow reads and writes everything in between; this module checks that every length in the
tail points into the file before pyarrow follows it, and declares CHAR and VARCHAR, which pyarrow
writes as STRING. Source: ORC specification v1; FORMAT.md §7.4.
"""

import contextlib
import dataclasses
import datetime
import functools
import io
import re
import zlib
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.schema import read_varint, varint
from storage.format.files.file_columns import mapped_values
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_type,
    key_id,
    value_id,
)

MAGIC = b"ORC"
CHAR, VARCHAR = 17, 16
"""Kinds of ORC types that pyarrow cannot declare."""

_GUESS_BYTES = 16 << 10
_CHUNK_HEADER = 3
_LARGEST_UNCOMPRESSED_CHUNK = (1 << 23) - 1

# Field numbers of orc_proto.proto.
_PS_FOOTER_LENGTH, _PS_COMPRESSION, _PS_BLOCK_SIZE, _PS_METADATA_LENGTH, _PS_MAGIC = (
    1,
    2,
    3,
    5,
    8000,
)
_FOOTER_STRIPES, _FOOTER_TYPES, _FOOTER_ROWS = 3, 4, 6
_STRIPE_OFFSET, _STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER, _STRIPE_ROWS = 1, 2, 3, 4, 5
_TYPE_KIND, _TYPE_SUBTYPES, _TYPE_NAMES, _TYPE_LENGTH = 1, 2, 3, 4
_LONG, _TIMESTAMP, _INSTANT = 4, 9, 18
_STRIPE_STREAMS, _STRIPE_ENCODINGS, _ENCODING_KIND, _DIRECT_V2 = 1, 2, 1, 2
_STREAM_KIND, _STREAM_COLUMN, _STREAM_LENGTH, _SECONDARY = 1, 2, 3, 5

Message = list[tuple[int, int, Any]]
"""Fields of a message in file order: number, wire type, value."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STRIPE_ZONE = 3, _BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class Stripe:
    """Where one stripe is.

    Attributes:
        length: bytes, index and footer included.
        footer_length: bytes at its end that are its footer.
    """

    offset: int
    length: int
    rows: int
    footer_length: int


@dataclasses.dataclass(frozen=True, slots=True)
class Tail:
    """The decoded end of an ORC file.

    Attributes:
        content: the last bytes of the file, at least from the footer on.
    """

    stripes: tuple[Stripe, ...]
    rows: int
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class TypeNode:
    """A type of an ORC file with its child types."""

    column: int
    kind: int
    names: tuple[str, ...]
    children: "tuple[TypeNode, ...]"


def read_tail(source: pa.NativeFile, path: str) -> Tail:
    """Read and check the tail.

    Changes the position of the open file.

    Raises:
        CorruptDataError: not an ORC file, cut short, or with lengths that point outside of it.
        UnsupportedFeatureError: compressed with LZO.
    """
    with described(path):
        return _read_tail(source)


def read_zone(source: pa.NativeFile, tail: Tail, stripe: Stripe, path: str) -> str:
    """Name of the time zone of the writer of a stripe; "" when there is none.

    Changes the position of the open file.

    Raises:
        CorruptDataError: the stripe's footer is damaged.
    """
    source.seek(stripe.offset + stripe.length - stripe.footer_length)
    stored = source.read(stripe.footer_length)
    with described(path):
        footer = parse(decompressed(stored, postscript_of(tail.content)[0]))
        zones = [value for number, wire, value in footer if (number, wire) == _STRIPE_ZONE]
        return str(zones[-1].decode()) if zones else ""


def read_types(tail: Tail, path: str) -> TypeNode:
    """The root of the types that a file declares.

    Raises:
        CorruptDataError: they are damaged.
    """
    with described(path):
        footer, _, _ = footer_of(tail.content)
        types = [parse(value) for number, _, value in footer if number == _FOOTER_TYPES]
        return _type_node(types, 0)


def _type_node(types: Sequence[Message], column: int) -> TypeNode:
    fields = types[column]
    below: list[int] = []
    for number, wire, value in fields:
        if number == _TYPE_SUBTYPES:
            at = 0
            below += [] if wire == _BYTES else [value]
            while wire == _BYTES and at < len(value):
                child, at = read_varint(value, at)
                below.append(child)
    if any(child <= column for child in below):
        raise ValueError(f"type {column} of the file has a child that precedes it")
    return TypeNode(
        column,
        number_of(fields, _TYPE_KIND),
        tuple(value.decode() for number, _, value in fields if number == _TYPE_NAMES),
        tuple(_type_node(types, child) for child in below),
    )


def read_secondary(
    source: pa.NativeFile, tail: Tail, stripe: Stripe, path: str
) -> dict[int, tuple[bytes, bool]]:
    """The secondary streams of a stripe, which hold the nanoseconds of timestamps.

    Args:
        source: the open file; its position is changed.
        tail: of the file.
        stripe: one of the tail's.
        path: for an error.

    Returns:
        By column id the decompressed stream, and whether it is in the second form of the run
        length encoding.

    Raises:
        CorruptDataError: the stripe is damaged.
    """
    source.seek(stripe.offset)
    stored = source.read(stripe.length)
    streams = {}
    with described(path):
        postscript, _ = postscript_of(tail.content)
        footer_at = len(stored) - stripe.footer_length
        footer = parse(decompressed(stored[footer_at:], postscript))
        encodings = [parse(value) for n, _, value in footer if n == _STRIPE_ENCODINGS]
        position = 0
        for stream in (parse(value) for n, _, value in footer if n == _STRIPE_STREAMS):
            start, column = position, number_of(stream, _STREAM_COLUMN)
            position += number_of(stream, _STREAM_LENGTH)
            if position > footer_at:
                raise ValueError("a stream ends outside of its stripe")
            if number_of(stream, _STREAM_KIND) == _SECONDARY:
                version_2 = number_of(encodings[column], _ENCODING_KIND) == _DIRECT_V2
                streams[column] = decompressed(stored[start:position], postscript), version_2
    return streams


@contextlib.contextmanager
def described(path: str) -> Iterator[None]:
    """Raise parse errors as CorruptDataError; add the path to UnsupportedFeatureError."""
    try:
        yield
    except UnsupportedFeatureError as error:
        error.context.setdefault("path", path)
        raise
    except (ValueError, LookupError, *_COMPRESSION_ERRORS) as error:
        raise CorruptDataError(
            "a data file cannot be decoded", detail=str(error), path=path, expected="an ORC file"
        ) from error


def _read_tail(source: pa.NativeFile) -> Tail:
    size = source.size()
    source.seek(max(0, size - _GUESS_BYTES))
    end = source.read()
    postscript, ps_size = postscript_of(end)
    footer_size = number_of(postscript, _PS_FOOTER_LENGTH)
    end_size = footer_size + ps_size + 1
    tail_size = end_size + number_of(postscript, _PS_METADATA_LENGTH)
    if tail_size + len(MAGIC) > size:
        raise ValueError("its footer is longer than the file")
    if end_size > len(end):
        source.seek(size - end_size)
        end = source.read()
    stored = end[len(end) - end_size : len(end) - ps_size - 1]
    return _checked(parse(decompressed(stored, postscript)), size - tail_size, end)


def rows_before(tail: bytes, position: int) -> int:
    """Rows of the stripes before a position in the file.

    `tail` is the last bytes of the file, at least from the footer on.
    """
    footer, _, _ = footer_of(tail)
    stripes = [parse(value) for number, _, value in footer if number == _FOOTER_STRIPES]
    before = [stripe for stripe in stripes if number_of(stripe, _STRIPE_OFFSET) < position]
    return sum(number_of(stripe, _STRIPE_ROWS) for stripe in before)


def retyped(tail: bytes, kinds: Mapping[int, tuple[int, int]]) -> bytes:
    """The end of an ORC file with other types declared.

    Args:
        tail: the last bytes of the file, at least from the footer on.
        kinds: by column id, which is the position of a type in depth-first order with the root
            at 0: the kind (`CHAR` or `VARCHAR`) and the greatest length [characters].
    """

    def changed(column: int, encoded: bytes) -> bytes:
        return _retyped_one(encoded, *kinds[column]) if column in kinds else encoded

    return _with_types(tail, changed)


def all_instants(tail: bytes) -> bytes:
    """The end of an ORC file with every TIMESTAMP declared to be a TIMESTAMP_INSTANT.

    Readers then return the stored numbers unchanged, whatever zone the stripes name.
    """
    return _with_types(tail, lambda _, encoded: _of_kind(encoded, (_TIMESTAMP,), _INSTANT))


def all_longs(tail: bytes) -> bytes:
    """The end of an ORC file with every timestamp declared to be a BIGINT.

    Readers then return the seconds since 2015 of each as stored.
    """
    kinds = (_TIMESTAMP, _INSTANT)
    return _with_types(tail, lambda _, encoded: _of_kind(encoded, kinds, _LONG))


def _of_kind(encoded: bytes, kinds: Sequence[int], kind: int) -> bytes:
    """An encoded type, of another kind if it is of one of these."""
    fields = parse(encoded)
    if number_of(fields, _TYPE_KIND) not in kinds:
        return encoded
    return serialized([(n, w, kind if n == _TYPE_KIND else v) for n, w, v in fields])


def _with_types(tail: bytes, change: Callable[[int, bytes], bytes]) -> bytes:
    """The end of a file with other types, each made of its column id and its encoded form."""
    footer, postscript, start = footer_of(tail)
    column = 0
    changed: Message = []
    for number, wire, value in footer:
        if number == _FOOTER_TYPES:
            value = change(column, value)
            column += 1
        changed.append((number, wire, value))
    stored = compressed(serialized(changed), postscript)
    new_postscript = serialized(
        [
            (number, wire, len(stored) if number == _PS_FOOTER_LENGTH else value)
            for number, wire, value in postscript
        ]
    )
    return tail[:start] + stored + new_postscript + bytes([len(new_postscript)])


def _retyped_one(encoded: bytes, kind: int, length: int) -> bytes:
    fields = [f for f in parse(encoded) if f[0] not in (_TYPE_KIND, _TYPE_LENGTH)]
    declared = [(_TYPE_KIND, _VARINT, kind), (_TYPE_LENGTH, _VARINT, length)]
    return serialized(sorted(declared + fields, key=lambda field: field[0]))


def postscript_of(end: bytes) -> tuple[Message, int]:
    """The postscript and its size; `end` is the end of the file."""
    if not end:
        raise ValueError("the file is empty")
    size = end[-1]
    if size + 1 > len(end):
        raise ValueError("the file is shorter than its postscript")
    postscript = parse(end[-1 - size : -1])
    if (_PS_MAGIC, _BYTES, MAGIC) not in postscript:
        raise ValueError("the file does not end with the ORC magic")
    return postscript, size


def footer_of(end: bytes) -> tuple[Message, Message, int]:
    """The footer, the postscript, and where the footer begins in `end`, the end of the file."""
    postscript, ps_size = postscript_of(end)
    stop = len(end) - 1 - ps_size
    start = stop - number_of(postscript, _PS_FOOTER_LENGTH)
    return parse(decompressed(end[start:stop], postscript)), postscript, start


def _checked(footer: Message, end: int, content: bytes) -> Tail:
    """The stripes of a footer, checked to be in order, without overlap, before `end`."""
    stripes = []
    position = len(MAGIC)
    for number, wire, value in footer:
        if (number, wire) != (_FOOTER_STRIPES, _BYTES):
            continue
        fields = parse(value)
        lengths = [number_of(fields, n) for n in (_STRIPE_INDEX, _STRIPE_DATA, _STRIPE_FOOTER)]
        stripe = Stripe(
            number_of(fields, _STRIPE_OFFSET),
            sum(lengths),
            number_of(fields, _STRIPE_ROWS),
            lengths[-1],
        )
        if stripe.offset < position or stripe.offset + stripe.length > end:
            raise ValueError(f"a stripe at {stripe.offset}+{stripe.length} is outside of the file")
        position = stripe.offset + stripe.length
        stripes.append(stripe)
    rows = number_of(footer, _FOOTER_ROWS)
    if rows != sum(stripe.rows for stripe in stripes):
        raise ValueError(f"its stripes do not hold the {rows} rows of its footer")
    return Tail(tuple(stripes), rows, content)


# ----------------------------------------------------------------------------- compression

_COMPRESSION_ERRORS = (cramjam.DecompressionError, zlib.error)
_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5


def _lz4(data: bytes, size: int) -> bytes:
    """A block of unknown length, at most `size`; cramjam's own output is padded with zeros."""
    output = bytearray(size)
    return bytes(output[: cramjam.lz4.decompress_block_into(data, output)])


_DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    _ZLIB: lambda data, _: zlib.decompress(data, -zlib.MAX_WBITS),
    _SNAPPY: lambda data, _: bytes(cramjam.snappy.decompress_raw(data)),
    _LZ4: _lz4,
    _ZSTD: lambda data, _: bytes(cramjam.zstd.decompress(data)),
}


def block_size(postscript: Message) -> int:
    """Bytes of a chunk before compression."""
    return number_of(postscript, _PS_BLOCK_SIZE) or (256 << 10)


def decompressed(data: bytes, postscript: Message) -> bytes:
    """A stream of the file without its chunks."""
    codec = number_of(postscript, _PS_COMPRESSION)
    if codec == _NONE:
        return data
    if codec not in _DECOMPRESS:
        raise UnsupportedFeatureError(
            "an ORC file has a compression that cannot be read",
            hint="supported are none, zlib, snappy, lz4 and zstd",
            codec=codec,
        )
    parts = []
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + _CHUNK_HEADER], "little")
        start = position + _CHUNK_HEADER
        position = start + (header >> 1)
        if position > len(data):
            raise ValueError("a compressed chunk is cut short")
        chunk = data[start:position]
        if header & 1:
            parts.append(chunk)
        else:
            parts.append(_DECOMPRESS[codec](chunk, block_size(postscript)))
    return b"".join(parts)


def compressed(data: bytes, postscript: Message) -> bytes:
    """The bytes as a stream of the file: in chunks left uncompressed, which every codec allows."""
    if number_of(postscript, _PS_COMPRESSION) == _NONE:
        return data
    step = min(block_size(postscript), _LARGEST_UNCOMPRESSED_CHUNK)
    out = bytearray()
    for start in range(0, len(data), step):
        chunk = data[start : start + step]
        out += (len(chunk) << 1 | 1).to_bytes(_CHUNK_HEADER, "little")
        out += chunk
    return bytes(out)


# ------------------------------------------------------------------------ Protocol Buffers


def parse(data: bytes) -> Message:
    """The fields of an encoded message."""
    fields: Message = []
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        number, wire = key >> 3, key & 7
        value: Any
        if wire == _VARINT:
            value, position = read_varint(data, position)
        else:
            if wire == _BYTES:
                size, position = read_varint(data, position)
            elif wire in (_FIXED32, _FIXED64):
                size = 4 if wire == _FIXED32 else 8
            else:
                raise ValueError(f"unexpected wire type {wire} in an ORC footer")
            if position + size > len(data):
                raise ValueError("a field of an ORC footer is cut short")
            value = data[position : position + size]
            position += size
        fields.append((number, wire, value))
    return fields


def serialized(fields: Message) -> bytes:
    """The encoded form of a message."""
    out = bytearray()
    for number, wire, value in fields:
        out += varint(number << 3 | wire)
        if wire == _VARINT:
            out += varint(value)
        else:
            if wire == _BYTES:
                out += varint(len(value))
            out += value
    return bytes(out)


def number_of(fields: Message, number: int) -> int:
    """The last value of a numeric field, 0 when it is absent."""
    for field, wire, value in reversed(fields):
        if field == number and wire == _VARINT:
            return int(value)
    return 0


# The ORC types of columns: as Java declares them, and where timestamps are among them.
#
# Columns of an ORC file are numbered depth first, the root being 0. Source: FORMAT.md §7.4.


COUNT = AtomicType(TypeRoot.INT, nullable=False)
"""Type of a multiset's counts."""

INSTANT_ROOTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
UNITS_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Steps of an Arrow timestamp, by its unit."""

_FIELD_ID = b"paimon.id"


def stored_field(name: str, type_: DataType, field_id: int, owner: int, depth: int) -> pa.Field:
    """The Arrow field that makes pyarrow declare the ORC type Java would declare.

    Args:
        name: in the file.
        type_: the Paimon type.
        field_id: goes into the attribute.
        owner: id of the enclosing schema field, from which ids of elements derive.
        depth: collections between the owner and this type.
    """
    stored = _stored_type(type_, owner, depth)
    return pa.field(name, stored, type_.nullable, {_FIELD_ID: str(field_id).encode()})


def _stored_type(type_: DataType, owner: int, depth: int) -> pa.DataType:
    below = depth + 1
    match type_:
        case AtomicType(root=TypeRoot.TIME):
            return pa.int32()
        case AtomicType():
            return arrow_type(type_)
        case ArrayType(element=element):
            return pa.list_(stored_field("element", element, value_id(owner, below), owner, below))
        case MultisetType(element=key):
            return _stored_map(key, COUNT, owner, below)
        case MapType(key=key, value=value):
            return _stored_map(key, value, owner, below)
        case RowType(fields=fields):
            return pa.struct([stored_field(f.name, f.type, f.id, f.id, 0) for f in fields])


def _stored_map(key: DataType, value: DataType, owner: int, depth: int) -> pa.DataType:
    key_field = stored_field("key", key, key_id(owner, depth), owner, depth)
    value_field = stored_field("value", value, value_id(owner, depth), owner, depth)
    return pa.map_(key_field.with_nullable(False), value_field)


def declared_kinds(fields: Sequence[DataField]) -> dict[int, tuple[int, int]]:
    """CHAR and VARCHAR columns by column id: the types below the root, depth first from 1."""
    kinds: dict[int, tuple[int, int]] = {}
    for column, type_ in enumerate(depth_first([field.type for field in fields]), 1):
        if isinstance(type_, AtomicType):
            if type_.root is TypeRoot.CHAR:
                kinds[column] = CHAR, type_.length
            elif type_.root is TypeRoot.VARCHAR and type_.length < MAX_LENGTH:
                kinds[column] = VARCHAR, type_.length
    return kinds


def depth_first(types: Sequence[DataType]) -> Iterator[DataType]:
    """The types and all that is inside them, in the order of ORC's columns."""
    for type_ in types:
        yield type_
        yield from depth_first(children(type_))


def children(type_: DataType) -> list[DataType]:
    """The types directly inside."""
    match type_:
        case AtomicType():
            return []
        case ArrayType(element=element):
            return [element]
        case MultisetType(element=element):
            return [element, COUNT]
        case MapType(key=key, value=value):
            return [key, value]
        case RowType(fields=fields):
            return [field.type for field in fields]


def has_instants(type_: DataType) -> bool:
    """Whether there is a timestamp at any depth."""
    return any(
        isinstance(part, AtomicType) and part.root in INSTANT_ROOTS for part in depth_first([type_])
    )


# Timestamps of ORC files that a JVM in another time zone than UTC wrote.
#
# Such a JVM turns a wall clock into the instant at which its own clocks show it, and names its zone
# in the footer of each stripe. So stored are, by the rules of `java.util.TimeZone`:
#
# * TIMESTAMP: that instant, in seconds since 2015 began in the zone;
# * TIMESTAMP_LTZ with `orc.timestamp-ltz.legacy.type` = true, the default: the instant at which the
#   clocks of the zone show what clocks in UTC show at the true instant, since 2015 began in UTC;
# * TIMESTAMP_LTZ otherwise: the true instant.
#
# Both conversions are undone here with the zone of the writer, so that a file reads the same
# everywhere; Java uses the reader's zone for TIMESTAMP_LTZ and is right in the writer's only. Wall
# clocks that a zone skips, when its clocks go forward, were changed by the writer irreversibly.
#
# Java's rules: no transition before 1900, only the offset that is standard today. The file library
# has other rules for that time, and takes the second before 1970 that Java stores one too high
# for one of the wall clock; so it is made to return the stored numbers (`tail.all_instants`).
# Source: ORC specification v1, "Timestamp Columns"; FORMAT.md §7.4.


_Longs = npt.NDArray[np.int64]

_START_1900 = -2_208_988_800
_START_2015 = 1_420_070_400
_START_2037, _START_2038 = 2_114_380_800, 2_145_916_800
_CYCLE = 146_097 * 86_400
"""400 years, a whole number of weeks: yearly rules come back to the same days."""
_END = _START_2038 + _CYCLE
_DAY = 86_400
_LONG_STEP = 20 * _DAY
"""After 2037 clocks change by a yearly rule, never twice within this time."""

_CUSTOM = re.compile(r"GMT([+-])(\d{1,2}):(\d{2})")


@dataclasses.dataclass(frozen=True, slots=True)
class Zone:
    """What the clocks of a zone show.

    Attributes:
        starts: since when an offset holds [s since the epoch]; the first is below all instants.
        offsets: wall clock minus UTC [s], of the same shape (n,).
    """

    starts: _Longs
    offsets: _Longs

    def at(self, seconds: _Longs) -> _Longs:
        """The offsets at some instants [s since the epoch]."""
        late = seconds >= _END
        if late.any():
            seconds = np.where(late, _START_2038 + (seconds - _START_2038) % _CYCLE, seconds)
        return self.offsets[np.searchsorted(self.starts, seconds, side="right") - 1]


@functools.lru_cache(maxsize=32)
def zone_of(name: str) -> Zone | None:
    """The zone that a stripe names; None for UTC under any of its names: no conversion.

    Raises:
        UnsupportedFeatureError: the zone is unknown.
    """
    custom = _CUSTOM.fullmatch(name)
    if custom is not None:
        sign, hours, minutes = custom.groups()
        offset = (int(hours) * 3600 + int(minutes) * 60) * (-1 if sign == "-" else 1)
        transitions = [(_START_1900 - 1, offset)]
    elif name:
        try:
            info = zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise UnsupportedFeatureError(
                "an ORC file was written in a time zone unknown on this machine",
                hint="install tzdata, or rewrite the file with a JVM that runs in UTC",
                zone=name,
            ) from error
        transitions = _transitions(info)
    else:
        return None
    if not any(offset for _, offset in transitions):
        return None
    starts = np.array([start for start, _ in transitions], np.int64)
    starts[0] = np.iinfo(np.int64).min
    return Zone(starts, np.array([offset for _, offset in transitions], np.int64))


def _transitions(info: zoneinfo.ZoneInfo) -> list[tuple[int, int]]:
    """Starts and offsets from before 1900 to `_END`."""

    def offset_at(seconds: int) -> int:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone(info)
        return int((moment.utcoffset() or datetime.timedelta()).total_seconds())

    # the standard time of today; daylight saving time is later
    standard = min(map(offset_at, range(_START_2037, _START_2038, _DAY)))
    transitions = [(_START_1900 - 1, standard), (_START_1900, offset_at(_START_1900))]
    previous = _START_1900
    moments = [*range(_START_1900, _START_2038, _DAY), *range(_START_2038, _END, _LONG_STEP)]
    for moment in moments:
        offset = offset_at(moment)
        if offset != transitions[-1][1]:
            low, high = previous, moment  # still the old one, already the new one
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if offset_at(middle) == offset else (middle, high)
            transitions.append((high, offset))
        previous = moment
    return transitions


def stored_to_walls(column: pa.TimestampArray, zone: Zone) -> pa.TimestampArray:
    """TIMESTAMP columns from the library, which decoded them as instants.

    Given are seconds since 2015 in the zone of the writer, as if it had been 2015 in UTC.

    Raises:
        pa.ArrowInvalid: a wall clock is outside of what the unit holds.
    """
    values, per_second = _numbers(column)
    seconds, fractions = np.divmod(values, per_second)
    # a second stored one too high is corrected below 1970, a limit that the shift may move
    high = fractions * 1_000 >= per_second
    seconds += high & (seconds < -1)
    epoch = np.array([_START_2015], np.int64)
    seconds -= zone.at(epoch - zone.at(epoch))
    seconds -= high & (seconds < 0)
    return _with_numbers(column, values, seconds + zone.at(seconds), fractions, per_second)


def instants_to_walls(column: pa.TimestampArray, zone: Zone) -> pa.TimestampArray:
    """What the clocks of a zone show at some instants, as if they were clocks in UTC.

    Raises:
        pa.ArrowInvalid: a wall clock is outside of what the unit holds.
    """
    values, per_second = _numbers(column)
    seconds, fractions = np.divmod(values, per_second)
    return _with_numbers(column, values, seconds + zone.at(seconds), fractions, per_second)


def in_utc(
    batch: pa.RecordBatch, columns: Sequence[DataField], zone: Zone, legacy: bool
) -> pa.RecordBatch:
    """Timestamps of a stripe that was written in another zone than UTC.

    Args:
        batch: decoded from a file whose tail went through `tail.all_instants`.
        columns: the batch's fields.
        zone: of the writer.
        legacy: whether TIMESTAMP_LTZ was stored by the legacy rule.

    Raises:
        pa.ArrowInvalid: a wall clock is outside of what its unit holds.
    """

    def converted(column: pa.Array, type_: AtomicType) -> pa.Array:
        if type_.root is TypeRoot.TIMESTAMP:
            return stored_to_walls(column, zone)
        return instants_to_walls(column, zone) if legacy else column

    arrays = [
        mapped_values(column, field.type, INSTANT_ROOTS, converted)
        for column, field in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _numbers(column: pa.TimestampArray) -> tuple[_Longs, int]:
    numbers = pa.Array.from_buffers(pa.int64(), len(column), column.buffers(), offset=column.offset)
    return numbers.fill_null(0).to_numpy(), UNITS_PER_SECOND[column.type.unit]


def _with_numbers(
    column: pa.TimestampArray, old: _Longs, seconds: _Longs, fractions: _Longs, per_second: int
) -> pa.TimestampArray:
    """The column with new values, near the old ones, and the same nulls."""
    new = seconds * per_second + fractions
    if ((new - old > 0) != (new > old)).any():  # `new - old` is right even if `new` wraps
        raise pa.ArrowInvalid("a wall clock is out of range for nanosecond resolution")
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(column.type, len(column), [validity, pa.py_buffer(new)])


class OtherTail(io.RawIOBase):
    """A file with other last bytes.

    Args:
        length: leading bytes of the source that are kept.
    """

    def __init__(self, source: pa.NativeFile, length: int, tail: bytes) -> None:
        self._source = source
        self._length = length
        self._tail = tail
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        size = self._length + len(self._tail)
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence, size)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes, fewer at the end."""
        end = self._length + len(self._tail)
        end = end if size < 0 else min(end, self._position + size)
        begin, self._position = self._position, max(end, self._position)
        parts = b""
        if begin < self._length:
            self._source.seek(begin)
            parts = bytes(self._source.read(min(end, self._length) - begin))
        return parts + self._tail[max(0, begin - self._length) : max(0, end - self._length)]
