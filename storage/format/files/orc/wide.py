# SPDX-License-Identifier: Apache-2.0
"""Timestamps of ORC stripes that 64-bit nanoseconds cannot hold: those outside 1677 to 2262.

The library decodes every timestamp to nanoseconds and refuses a stripe that holds an earlier or a
later one. Stored are two numbers: seconds since 2015 and nanoseconds. So the library is given the
file with its timestamps declared BIGINT (`tail.all_longs`), which makes it decode the seconds
with their nulls and their nesting; the nanoseconds are decoded here. Only stripes that the library
refused are decoded this way.

Source: ORC specification v1, "Timestamp Columns", "Run Length Encoding".
"""

import bisect
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.format.files.file_columns import list_like, map_entries, struct_like
from storage.format.files.orc.tail import TypeNode
from storage.format.varint import read_varint

_Longs = npt.NDArray[np.int64]

TIMESTAMP_KINDS = (9, 18)
"""Kinds of ORC types that hold seconds and nanoseconds: TIMESTAMP and TIMESTAMP_INSTANT."""

_LIST, _MAP, _STRUCT = 10, 11, 12
_EPOCH_2015 = 1_420_070_400
_LARGEST_BARE_NANOS = 999_999
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
