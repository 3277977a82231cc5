# SPDX-License-Identifier: Apache-2.0
"""Wall clocks of a time zone: TIMESTAMP_LTZ as TIMESTAMP and back.

A TIMESTAMP is what a wall clock shows, with no zone; a TIMESTAMP_LTZ is an instant, and what its
year or its text is depends on a zone, which the pipeline states (UTC unless set). A wall clock that
is shown twice, when clocks go back, is its first instant; one that is skipped is moved forward by
the gap, as Java does. Before 1900 a zone has its present standard time.
"""

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.files.orc.zones import Zone, instants_to_walls, zone_of

__all__ = ["to_instants", "to_walls", "zone_named"]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT"})


def zone_named(name: str) -> Zone | None:
    """The zone of a name such as `Europe/Berlin`; None for UTC.

    Raises:
        InvalidRequestError: nobody knows it.
    """
    if name in _UTC_NAMES:
        return None
    try:
        return zone_of(name)
    except UnsupportedFeatureError as error:
        raise InvalidRequestError(
            "unknown time zone", hint="write it like: Europe/Berlin", zone=name
        ) from error


def to_walls(column: pa.Array, zone: Zone | None) -> pa.Array:
    """Instants as what the clocks of the zone show, without a zone.

    Raises:
        pa.ArrowInvalid: a wall clock does not fit the unit.
    """
    if zone is not None:
        column = instants_to_walls(column, zone)
    return column.cast(pa.timestamp(column.type.unit))


def to_instants(column: pa.Array, zone: Zone | None) -> pa.Array:
    """What clocks of the zone show as instants."""
    wanted = pa.timestamp(column.type.unit, "UTC")
    if zone is None:
        return column.cast(wanted)
    numbers = column.view(pa.int64())
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    per_second = _PER_SECOND[column.type.unit]
    walls = values // per_second
    before, after = zone.at(walls - _DAY), zone.at(walls + _DAY)
    second = (zone.at(walls - before) != before) & (zone.at(walls - after) == after)
    offsets = np.where(second, after, before)
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values - offsets * per_second, pa.int64(), mask=nulls).view(wanted)
