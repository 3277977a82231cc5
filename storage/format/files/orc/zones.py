# SPDX-License-Identifier: Apache-2.0
"""Timestamps of ORC files that a JVM in another time zone than UTC wrote.

Such a JVM turns a wall clock into the instant at which its own clocks show it, and names its zone
in the footer of each stripe. So stored are, by the rules of `java.util.TimeZone`:

* TIMESTAMP: that instant, in seconds since 2015 began in the zone;
* TIMESTAMP_LTZ with `orc.timestamp-ltz.legacy.type` = true, the default: the instant at which the
  clocks of the zone show what clocks in UTC show at the true instant, since 2015 began in UTC;
* TIMESTAMP_LTZ otherwise: the true instant.

Both conversions are undone here with the zone of the writer, so that a file reads the same
everywhere; Java uses the reader's zone for TIMESTAMP_LTZ and is right in the writer's only. Wall
clocks that a zone skips, when its clocks go forward, were changed by the writer irreversibly.

Java's rules: no transition before 1900, only the offset that is standard today. The file library
has other rules for that time, and takes the second before 1970 that Java stores one too high
for one of the wall clock; so it is made to return the stored numbers (`tail.all_instants`).
Source: ORC specification v1, "Timestamp Columns"; FORMAT.md §7.4.
"""

import dataclasses
import datetime
import functools
import io
import re
import zoneinfo
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.files.file_columns import mapped_values
from storage.format.files.orc.types import INSTANT_ROOTS, UNITS_PER_SECOND
from storage.format.types.types import AtomicType, DataField, TypeRoot

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
