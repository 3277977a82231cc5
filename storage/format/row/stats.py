# SPDX-License-Identifier: Apache-2.0
"""Column statistics of a file: minimum, maximum and null count per column.

Source: FORMAT.md §4.2 and §4.5. Columns are reduced batch by batch with Arrow kernels; only the
two values left per column become Python values, to be truncated and put into BinaryRows. Order is
Paimon's: -0.0 before 0.0, NaN after everything, strings and bytes by unsigned bytes.

Java takes the bounds of Parquet and ORC files from their footers, so what a footer cannot hold is
left out: bounds of TIMESTAMP(7..9) in Parquet, of bytes in ORC. Avro has no footer; there Java
reads the rows themselves. (Java's bounds of a CHAR in ORC are padded with blanks; ours are not,
because a padded lower bound lies above the values it stands for.) Here those of texts and decimals
in Parquet are taken from the footer, because they are slow to compute.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidOptionError
from storage.format.metadata.file_meta import EMPTY_STATS, SimpleStats
from storage.format.row.row_codec import RowValue, encode_row, to_row_values
from storage.format.types.types import (
    MAX_MICROS_PRECISION,
    AtomicType,
    DataField,
    DataType,
    TypeRoot,
    arrow_type,
    normalize,
)

_TRUNCATE = re.compile(r"truncate\(\s*(\d+)\s*\)")
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_IN_FOOTER = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.DECIMAL)
_LONGEST_IN_FOOTER = 4096
"""Longer texts get no bounds in a footer, by a default of the library [bytes]."""

Footer = Sequence[Mapping[str, Any]]
"""Ranges by column of each row group of a file (`parquet.ColumnRange`)."""
_MAX_CODE_POINT = 0x10FFFF
_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES = 0xD7FF, 0xE000


class _Kind(enum.Enum):
    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclasses.dataclass(frozen=True, slots=True)
class StatsMode:
    """How much is kept of a column's statistics; use `parse` or the constants of this module.

    Attributes:
        kind: nothing, the null count, bounds cut to `length`, or full bounds.
        length: longest string [code points] or bytes [bytes] kept; 0 unless cutting.
    """

    kind: _Kind
    length: int = 0

    @staticmethod
    def parse(text: str) -> "StatsMode":
        """The mode of an option's text: none, counts, truncate(n) or full.

        Raises:
            InvalidOptionError: it is something else.
        """
        lowered = text.strip().lower()
        match = _TRUNCATE.fullmatch(lowered)
        if match is not None and int(match[1]) > 0:
            return StatsMode(_Kind.TRUNCATE, int(match[1]))
        for kind in (_Kind.NONE, _Kind.COUNTS, _Kind.FULL):
            if lowered == kind.value:
                return StatsMode(kind)
        raise InvalidOptionError(
            "unknown statistics mode", value=text, hint="use none, counts, truncate(16) or full"
        )


NONE = StatsMode(_Kind.NONE)
COUNTS = StatsMode(_Kind.COUNTS)
FULL = StatsMode(_Kind.FULL)
_NESTED_MODES = {"parquet": NONE, "orc": COUNTS, "avro": COUNTS}
"""The fullest mode that nested columns can have."""

KEY_STATS_MODE = StatsMode(_Kind.TRUNCATE, 128)
"""Mode of key statistics, unless the column has one of its own (FORMAT.md §4.4)."""


class StatsAccumulator:
    """Statistics of one file, gathered while it is written.

    1. `add` every batch of the file, in any order; where there is a footer, each row group.
    2. `add_footer` if it has one.
    3. `stats` for all columns, or `dense_stats` for those that have any.

    Args:
        fields: the columns, in the order they are added.
        modes: one for all columns, or one per column. Nested columns never have bounds, and in
            Parquet files no null counts either.
        file_format: of the file; decides which bounds Java would have.
        footer: bounds of texts and decimals are left to `add_footer`.
    """

    def __init__(
        self,
        fields: Sequence[DataField],
        modes: StatsMode | Sequence[StatsMode],
        file_format: str = "avro",
        *,
        footer: bool = False,
    ) -> None:
        column_modes = [modes] * len(fields) if isinstance(modes, StatsMode) else list(modes)
        self._names = [field.name for field in fields]
        self._columns = [
            _ColumnStats(field.type, mode, file_format, footer and "." not in field.name)
            for field, mode in zip(fields, column_modes, strict=True)
        ]

    def add(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> None:
        """Take in a batch.

        Raises:
            UnsupportedFeatureError: a column does not have its declared type.
        """
        for stats, column in zip(self._columns, columns, strict=True):
            stats.add(column)

    def add_footer(self, footer: Footer) -> None:
        """Take the bounds left out; where one is missing, those of the column are unknown."""
        for name, stats in zip(self._names, self._columns, strict=True):
            for group, bounds in enumerate(stats.bounds):
                found = footer[group].get(name) if bounds is None else None
                if found is not None and found.bounded:
                    ends = [found.minimum, found.maximum]
                    stats.bounds[group] = pa.array(ends, arrow_type(stats.type))

    def stats(self) -> SimpleStats:
        """Statistics over all columns, unknown parts null."""
        return _stats_of(self._columns)

    def dense_stats(self) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """Statistics over the columns that have any, and the names of those columns.

        Returns:
            The names are None when no column is left out, as in `_VALUE_STATS_COLS`.
        """
        indices = [i for i, column in enumerate(self._columns) if column.present]
        if len(indices) == len(self._columns):
            return self.stats(), None
        stats = _stats_of([self._columns[i] for i in indices])
        return stats, tuple(self._names[i] for i in indices)


class _ColumnStats:
    """Running null count and bounds of one column."""

    def __init__(self, type_: DataType, mode: StatsMode, file_format: str, footer: bool) -> None:
        self.type = type_
        self.mode = mode
        if not isinstance(type_, AtomicType):
            self.mode = NONE if NONE in (mode, _NESTED_MODES[file_format]) else COUNTS
        self._bounded = self.mode != COUNTS and _has_bounds(type_, file_format)
        self._in_footer = footer and isinstance(type_, AtomicType) and type_.root in _IN_FOOTER
        self.nulls = 0
        self.bounds: list[pa.Array | None] = []

    @property
    def present(self) -> bool:
        """Whether there is anything to store."""
        return self.mode != NONE

    @property
    def null_count(self) -> int | None:
        return self.nulls if self.present else None

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        if not self.present:
            return
        array = normalize(column, self.type)
        self.nulls += array.null_count
        if self._bounded:
            no_value = array.null_count == len(array)
            left_out = self._in_footer and not no_value and _short(array)
            self.bounds.append(None if left_out else array[:0] if no_value else _bounds(array))

    def range(self) -> tuple[RowValue, RowValue]:
        """Minimum and maximum as Python values, both None when unknown."""
        known = [bounds for bounds in self.bounds if bounds is not None]
        if len(known) < len(self.bounds) or not any(map(len, known)):
            return None, None
        bounds = known[0] if len(known) == 1 else _bounds(pa.concat_arrays(known))
        low, high = to_row_values(bounds, self.type)
        if self.mode.length and isinstance(low, str | bytes):
            low, high = low[: self.mode.length], _cut_up(high, self.mode.length)
            return (None, None) if high is None else (low, high)
        return low, high


def _stats_of(columns: Sequence[_ColumnStats]) -> SimpleStats:
    if not columns:
        return EMPTY_STATS
    types = [column.type for column in columns]
    ranges = [column.range() for column in columns]
    return SimpleStats(
        encode_row([low for low, _ in ranges], types),
        encode_row([high for _, high in ranges], types),
        tuple(column.null_count for column in columns),
    )


def _has_bounds(type_: DataType, file_format: str) -> bool:
    """Whether the footer of a file can hold the bounds of a column of this type."""
    if not isinstance(type_, AtomicType):
        return False
    if file_format == "parquet":
        return type_.root not in _TIMESTAMPS or type_.precision <= MAX_MICROS_PRECISION
    return file_format != "orc" or type_.root not in _BYTES


def _short(array: pa.Array) -> bool:
    decimal = pa.types.is_decimal(array.type)
    return decimal or bool(pc.max(pc.binary_length(array)).as_py() <= _LONGEST_IN_FOOTER)


def _bounds(array: pa.Array) -> pa.Array:
    """Two rows: smallest and largest value. The array holds at least one value."""
    if pa.types.is_floating(array.type):
        return _float_bounds(array)
    bounds = pc.min_max(array)
    return pa.array([bounds["min"], bounds["max"]], array.type)


def _float_bounds(array: pa.Array) -> pa.Array:
    values = array.drop_null().to_numpy(zero_copy_only=False)
    numbers = values[~np.isnan(values)]
    bounds = np.full(2, np.nan, values.dtype)
    if len(numbers):
        bounds[:] = numbers.min(), numbers.max()
        zero_signs = np.signbit(numbers[numbers == 0])
        bounds[bounds == 0] = 0.0
        if bounds[0] == 0 and zero_signs.any():
            bounds[0] = -0.0
        if bounds[1] == 0 and zero_signs.all():
            bounds[1] = -0.0
        if len(numbers) < len(values):
            bounds[1] = np.nan
    return pa.array(bounds, array.type)


def _cut_up(value: RowValue, length: int) -> RowValue:
    """The shortest value of at most `length` items that is not below `value`, or None."""
    if len(value) <= length:
        return value
    return _next_text(value[:length]) if isinstance(value, str) else _next_bytes(value[:length])


def _next_text(prefix: str) -> str | None:
    """Smallest text of no more code points above all texts that begin with `prefix`."""
    prefix = prefix.rstrip(chr(_MAX_CODE_POINT))
    if not prefix:
        return None
    last = ord(prefix[-1])
    following = _FIRST_AFTER_SURROGATES if last == _LAST_BEFORE_SURROGATES else last + 1
    return prefix[:-1] + chr(following)


def _next_bytes(prefix: bytes) -> bytes | None:
    """Smallest bytes of no more length above all bytes that begin with `prefix`."""
    prefix = prefix.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
