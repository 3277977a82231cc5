# SPDX-License-Identifier: Apache-2.0
"""One BinaryRow at a time, between bytes and Python values: the control plane's codec.

Source: FORMAT.md §5. Used for what manifests hold (partitions, minimum and maximum keys, column
statistics), thousands of rows at most; columns of rows are encoded in `binary_row`.

Python values: int, float, bool, str, bytes, `decimal.Decimal`; DATE is days since the epoch, TIME
milliseconds of the day, TIMESTAMP and TIMESTAMP_LTZ a `Timestamp`; ARRAY a list, MAP and MULTISET
a list of (key, value) tuples, ROW a tuple; null is None.
"""

import decimal
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from storage.errors import CorruptDataError, InternalError
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_type,
    normalize,
    type_name,
)

MAX_INLINE = 7
"""Longest string or bytes kept inside its 8-byte slot."""

MAX_COMPACT_DECIMAL = 18
"""Largest precision whose unscaled value fits in 64 bits."""

MAX_COMPACT_TIMESTAMP = 3
"""Largest precision of a timestamp kept as bare milliseconds."""

_FRAME = struct.Struct(">i")
_POINTER = struct.Struct("<ii")  # low word first: length (or nanoseconds), then offset
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_DECIMAL_TAIL = 16
_CONTEXT = decimal.Context(prec=60)
_FIXED = {
    TypeRoot.BOOLEAN: struct.Struct("<?"),
    TypeRoot.TINYINT: struct.Struct("<b"),
    TypeRoot.SMALLINT: struct.Struct("<h"),
    TypeRoot.INT: _INT,
    TypeRoot.DATE: _INT,
    TypeRoot.TIME: _INT,
    TypeRoot.BIGINT: _LONG,
    TypeRoot.FLOAT: struct.Struct("<f"),
    TypeRoot.DOUBLE: struct.Struct("<d"),
}
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_COUNT_TYPE = AtomicType(TypeRoot.INT, nullable=False)


RowValue: TypeAlias = Any
"""A Python value of one field, as listed above."""


class Timestamp(NamedTuple):
    """A point in time, or a wall clock, as Paimon keeps it.

    Attributes:
        millis: since the epoch, rounded down [ms].
        nanos_of_milli: rest, 0 to 999999 [ns].
    """

    millis: int
    nanos_of_milli: int = 0


def header_bytes(field_count: int) -> int:
    """Bytes before the first slot: row kind and null bits."""
    return (field_count + 63 + 8) // 64 * 8


def reserves_tail(type_: DataType) -> int:
    """Bytes a value takes after the slots even when it is null; 0 for the other types."""
    if isinstance(type_, AtomicType):
        if type_.root is TypeRoot.DECIMAL and type_.precision > MAX_COMPACT_DECIMAL:
            return _DECIMAL_TAIL
        if type_.root in _TIMESTAMPS and type_.precision > MAX_COMPACT_TIMESTAMP:
            return _LONG.size
    return 0


def encode_row(values: Sequence[RowValue], types: Sequence[DataType]) -> bytes:
    """One framed row.

    Nullability is not checked.
    """
    return frame(_encode_record(values, types), len(types))


def frame(row: bytes, field_count: int) -> bytes:
    """Put the arity before a raw row, as manifests store it."""
    return _FRAME.pack(field_count) + row


def arity(framed: bytes) -> int:
    """Number of fields of a framed row.

    Raises:
        CorruptDataError: shorter than a frame.
    """
    if len(framed) < _FRAME.size:
        raise CorruptDataError("row is shorter than its frame", size=len(framed))
    return int(_FRAME.unpack_from(framed)[0])


def decode_row(framed: bytes, types: Sequence[DataType]) -> tuple[RowValue, ...]:
    """Python values of a framed row.

    Raises:
        CorruptDataError: the bytes do not hold a row of these types.
    """
    field_count = arity(framed)
    if field_count != len(types):
        raise CorruptDataError(
            "row has a wrong number of fields", expected=len(types), found=field_count
        )
    try:
        return _decode_record(memoryview(framed)[_FRAME.size :], types)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptDataError(
            "bytes are not a row of these types",
            detail=str(error),
            types=", ".join(type_name(type_) for type_ in types),
        ) from error


def encode_array(values: Sequence[RowValue], element: DataType) -> bytes:
    """A BinaryArray (FORMAT.md §5.3)."""
    width = _element_width(element)
    bits_start = _INT.size
    start = bits_start + (len(values) + 31) // 32 * 4
    out = bytearray(_padded(start + width * len(values)))
    _INT.pack_into(out, 0, len(values))
    for i, value in enumerate(values):
        if value is None:
            out[bits_start + i // 8] |= 1 << (i % 8)
        _put(out, start + width * i, value, element)
    return bytes(out)


def _encode_record(values: Sequence[RowValue], types: Sequence[DataType]) -> bytes:
    header = header_bytes(len(types))
    out = bytearray(header + 8 * len(types))
    for i, (value, type_) in enumerate(zip(values, types, strict=True)):
        if value is None:
            out[(i + 8) // 8] |= 1 << (i % 8)
        _put(out, header + 8 * i, value, type_)
    return bytes(out)


def _put(out: bytearray, slot: int, value: RowValue, type_: DataType) -> None:
    """Write a value into its slot, appending a tail to `out` where the type needs one."""
    if value is None:
        reserved = reserves_tail(type_)
        if reserved:
            _POINTER.pack_into(out, slot, 0, len(out))
            out += bytes(reserved)
    elif isinstance(type_, AtomicType):
        _put_atomic(out, slot, value, type_)
    else:
        _put_tail(out, slot, nested_bytes(value, type_))


def _put_atomic(out: bytearray, slot: int, value: RowValue, type_: AtomicType) -> None:
    root = type_.root
    if root in _FIXED:
        _FIXED[root].pack_into(out, slot, value)
    elif root is TypeRoot.DECIMAL:
        unscaled = int(value.scaleb(type_.scale, _CONTEXT))
        if type_.precision <= MAX_COMPACT_DECIMAL:
            _LONG.pack_into(out, slot, unscaled)
        else:
            magnitude = unscaled if unscaled >= 0 else ~unscaled
            data = unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
            _POINTER.pack_into(out, slot, len(data), len(out))
            out += data.ljust(_DECIMAL_TAIL, b"\0")
    elif root in _TIMESTAMPS:
        if type_.precision <= MAX_COMPACT_TIMESTAMP:
            _LONG.pack_into(out, slot, value.millis)
        else:
            _POINTER.pack_into(out, slot, value.nanos_of_milli, len(out))
            out += _LONG.pack(value.millis)
    else:
        data = value.encode() if isinstance(value, str) else bytes(value)
        if len(data) <= MAX_INLINE:
            out[slot : slot + len(data)] = data
            out[slot + MAX_INLINE] = 0x80 + len(data)
        else:
            _put_tail(out, slot, data)


def _put_tail(out: bytearray, slot: int, data: bytes) -> None:
    _POINTER.pack_into(out, slot, len(data), len(out))
    out += data.ljust(_padded(len(data)), b"\0")


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8


def nested_bytes(value: RowValue, type_: DataType) -> bytes:
    """The tail of an ARRAY, MAP, MULTISET or ROW value, without padding."""
    match type_:
        case ArrayType(element=element):
            return encode_array(value, element)
        case MapType(key=key, value=item):
            return _map_bytes(value, key, item)
        case MultisetType(element=element):
            return _map_bytes(value, element, _COUNT_TYPE)
        case RowType(fields=fields):
            return _encode_record(value, [field.type for field in fields])
        case _:
            raise InternalError("not a nested type", type=type_name(type_))


def _map_bytes(pairs: Sequence[tuple[RowValue, RowValue]], key: DataType, value: DataType) -> bytes:
    keys = encode_array([pair[0] for pair in pairs], key)
    return _INT.pack(len(keys)) + keys + encode_array([pair[1] for pair in pairs], value)


def _element_width(type_: DataType) -> int:
    if isinstance(type_, AtomicType) and type_.root in _FIXED:
        return _FIXED[type_.root].size
    return 8


def _decode_record(data: memoryview, types: Sequence[DataType]) -> tuple[RowValue, ...]:
    header = header_bytes(len(types))
    return tuple(
        None if data[(i + 8) // 8] >> (i % 8) & 1 else _get(data, header + 8 * i, type_)
        for i, type_ in enumerate(types)
    )


def _decode_array(data: memoryview, element: DataType) -> list[RowValue]:
    (size,) = _INT.unpack_from(data)
    width = _element_width(element)
    start = _INT.size + (size + 31) // 32 * 4
    return [
        None if data[_INT.size + i // 8] >> (i % 8) & 1 else _get(data, start + width * i, element)
        for i in range(size)
    ]


def _decode_map(
    data: memoryview, key: DataType, value: DataType
) -> list[tuple[RowValue, RowValue]]:
    (key_size,) = _INT.unpack_from(data)
    middle = _INT.size + key_size
    keys = _decode_array(data[_INT.size : middle], key)
    return list(zip(keys, _decode_array(data[middle:], value), strict=True))


def _get(data: memoryview, slot: int, type_: DataType) -> RowValue:
    match type_:
        case AtomicType():
            return _get_atomic(data, slot, type_)
        case ArrayType(element=element):
            return _decode_array(_tail(data, slot), element)
        case MapType(key=key, value=value):
            return _decode_map(_tail(data, slot), key, value)
        case MultisetType(element=element):
            return _decode_map(_tail(data, slot), element, _COUNT_TYPE)
        case RowType(fields=fields):
            return _decode_record(_tail(data, slot), [field.type for field in fields])


def _get_atomic(data: memoryview, slot: int, type_: AtomicType) -> RowValue:
    root = type_.root
    if root in _FIXED:
        return _FIXED[root].unpack_from(data, slot)[0]
    if root is TypeRoot.DECIMAL:
        if type_.precision <= MAX_COMPACT_DECIMAL:
            unscaled = _LONG.unpack_from(data, slot)[0]
        else:
            unscaled = int.from_bytes(_tail(data, slot), "big", signed=True)
        return decimal.Decimal(unscaled).scaleb(-type_.scale, _CONTEXT)
    if root in _TIMESTAMPS:
        if type_.precision <= MAX_COMPACT_TIMESTAMP:
            return Timestamp(_LONG.unpack_from(data, slot)[0])
        nanos, offset = _POINTER.unpack_from(data, slot)
        return Timestamp(_LONG.unpack_from(data, offset)[0], nanos)
    mark = data[slot + MAX_INLINE]
    content = data[slot : slot + (mark & 0x7F)] if mark & 0x80 else _tail(data, slot)
    return str(content, "utf-8") if root in _TEXTS else bytes(content)


def _tail(data: memoryview, slot: int) -> memoryview:
    length, offset = _POINTER.unpack_from(data, slot)
    if length < 0 or offset < 0 or offset + length > len(data):
        raise IndexError(f"value at {offset}+{length} is outside of {len(data)} bytes")
    return data[offset : offset + length]


# Between Arrow columns and the Python values of `row_codec`.
#
# Control plane only: for partition values, keys and statistics, and for the rare nested key column,
# which is encoded row by row. Costs microseconds a value.


_UNITS_PER_MILLI = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NANOS_PER_MILLI = 1_000_000


def to_row_values(column: pa.Array | pa.ChunkedArray, type_: DataType) -> list[RowValue]:
    """Python values of a column, one per row, in the form of `row_codec`."""
    return _values(normalize(column, type_), type_)


def from_row_values(values: Sequence[RowValue], type_: DataType) -> pa.Array:
    """A column of `arrow_type(type_)` from Python values in the form of `row_codec`."""
    target = arrow_type(type_)
    match type_:
        case AtomicType(root=root) if root in _TIMESTAMPS:
            return _timestamps(values, target)
        case AtomicType(root=TypeRoot.DATE | TypeRoot.TIME):
            return pa.array(values, pa.int32()).cast(target)
        case AtomicType():
            return pa.array(values, target)
        case ArrayType(element=element):
            return _lists(values, element, target)
        case MapType(key=key, value=value):
            return _maps(values, key, value, target)
        case MultisetType(element=element):
            return _maps(values, element, AtomicType(TypeRoot.INT, nullable=False), target)
        case RowType(fields=fields):
            columns = [
                from_row_values([None if row is None else row[i] for row in values], field.type)
                for i, field in enumerate(fields)
            ]
            absent = pa.array([row is None for row in values], pa.bool_())
            return pa.StructArray.from_arrays(columns, fields=list(target), mask=absent)


def _values(column: pa.Array, type_: DataType) -> list[RowValue]:
    match type_:
        case AtomicType():
            return _atomic_values(column, type_)
        case ArrayType(element=element):
            inner = _values(column.values, element)
            return _split_lists(column, inner)
        case MapType(key=key, value=value):
            return _split_lists(column, _pairs(column, key, value))
        case MultisetType(element=element):
            count = AtomicType(TypeRoot.INT, nullable=False)
            return _split_lists(column, _pairs(column, element, count))
        case RowType(fields=fields):
            parts = [
                _values(part, field.type)
                for part, field in zip(column.flatten(), fields, strict=True)
            ]
            rows = list(zip(*parts, strict=True))
            return [
                row if valid else None
                for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)
            ]


def _pairs(column: pa.MapArray, key: DataType, value: DataType) -> list[tuple[RowValue, RowValue]]:
    keys, items = _values(column.keys, key), _values(column.items, value)
    return list(zip(keys, items, strict=True))


def _split_lists(column: pa.Array, inner: list[RowValue]) -> list[RowValue]:
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [inner[offsets[i] : offsets[i + 1]] if valid[i] else None for i in range(len(column))]


def _atomic_values(column: pa.Array, type_: AtomicType) -> list[RowValue]:
    if type_.root in _TIMESTAMPS:
        units = _UNITS_PER_MILLI[column.type.unit]
        return [
            None
            if raw is None
            else Timestamp(raw // units, raw % units * (_NANOS_PER_MILLI // units))
            for raw in column.view(pa.int64()).to_pylist()
        ]
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME):
        return list(column.view(pa.int32()).to_pylist())
    return list(column.to_pylist())


def _timestamps(values: Sequence[RowValue], target_type: pa.DataType) -> pa.Array:
    units = _UNITS_PER_MILLI[target_type.unit]
    raw = [
        None
        if value is None
        else value.millis * units + value.nanos_of_milli // (_NANOS_PER_MILLI // units)
        for value in values
    ]
    return pa.array(raw, pa.int64()).cast(target_type)


def _offsets(values: Sequence[RowValue]) -> pa.Array:
    # A null offset marks a null row; the running end carries over it.
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


def _lists(values: Sequence[RowValue], element: DataType, target_type: pa.DataType) -> pa.Array:
    inner = from_row_values([item for value in values if value for item in value], element)
    return pa.ListArray.from_arrays(_offsets(values), inner, type=target_type)


def _maps(
    values: Sequence[RowValue], key: DataType, value: DataType, target_type: pa.DataType
) -> pa.Array:
    pairs = [pair for entries in values if entries for pair in entries]
    keys = from_row_values([pair[0] for pair in pairs], key)
    items = from_row_values([pair[1] for pair in pairs], value)
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target_type)
