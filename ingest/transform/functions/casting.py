# SPDX-License-Identifier: Apache-2.0
"""Casts inside expressions: the casts of the table format, but strict; and time zones.

Values are those of `storage.format.types.cast_columns` (Java's). What is silent there fails for its
row here: numbers out of range, NaN as an integer, decimals with too many digits, strings that are
no value of the type. Dates and strings of a TIMESTAMP_LTZ are those of the pipeline's zone.

A TIMESTAMP is a local time without zone; a TIMESTAMP_LTZ is an instant, whose year or string
depends on the zone that the pipeline states (UTC unless set). A local time that occurs twice, when
clocks go back, is its first instant; one that is skipped is moved forward by the gap, as Java does.
Before 1900 a zone has its present standard time.
"""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.bisection import failing_positions
from ingest.transform.functions.arithmetic import narrowed
from ingest.transform.functions.cells import Kernel, Mask, Partial, Values, checked, mask_of
from ingest.transform.functions.type_rules import (
    STRING,
    is_floating,
    is_integer,
    is_temporal,
    is_text,
)
from storage.errors import InternalError, InvalidRequestError, UnsupportedFeatureError
from storage.format.files.orc.zones import Zone, instants_to_walls, zone_of
from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_arrays import CastError
from storage.format.types.cast_columns import CastColumn, can_cast, column_cast
from storage.format.types.cast_texts import fit_text
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataType, TypeRoot

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT"})


def zone_named(name: str) -> Zone | None:
    """Find the zone of a name such as `Europe/Berlin`; None for UTC.

    Raises:
        InvalidRequestError: there is no such zone.
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
    """Convert instants to local times of the zone.

    Raises:
        pa.ArrowInvalid: a local time does not fit the unit.
    """
    if zone is not None:
        column = instants_to_walls(column, zone)
    return column.cast(pa.timestamp(column.type.unit))


def to_instants(column: pa.Array, zone: Zone | None) -> pa.Array:
    """Convert local times of the zone to instants."""
    instant_type = pa.timestamp(column.type.unit, "UTC")
    if zone is None:
        return column.cast(instant_type)
    numbers = column.view(pa.int64())
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    per_second = _PER_SECOND[column.type.unit]
    walls = values // per_second
    before, after = zone.at(walls - _DAY), zone.at(walls + _DAY)
    second = (zone.at(walls - before) != before) & (zone.at(walls - after) == after)
    offsets = np.where(second, after, before)
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values - offsets * per_second, pa.int64(), mask=nulls).view(instant_type)


_R = TypeRoot
_NANOS = 9
_NOT_CASTABLE = (pa.ArrowInvalid, CastError)


def strict_cast(source: DataType, target: AtomicType, zone: Zone | None) -> Kernel | None:
    """The kernel from one type to another; None when there is no such cast.

    Args:
        source: of the argument.
        target: of the result.
        zone: of wall clocks of a TIMESTAMP_LTZ.
    """
    if dataclasses.replace(source, nullable=True) == dataclasses.replace(target, nullable=True):
        return lambda values: values
    if isinstance(source, AtomicType):
        kernel = _by_zone(source, target, zone)
        if kernel is not None:
            return kernel
        if is_integer(target) and not is_text(source) and source.root is not _R.BOOLEAN:
            return _to_integer(source, target)
        if is_temporal(source) and is_text(target):
            return _time_to_text(source, target)
    if not can_cast(source, dataclasses.replace(target, nullable=True)):
        return None
    return _plain(source, dataclasses.replace(target, nullable=True))


def _by_zone(source: AtomicType, target: AtomicType, zone: Zone | None) -> Kernel | None:
    """Casts between instants and wall clocks."""
    source_ltz, target_ltz = source.root is _R.TIMESTAMP_LTZ, target.root is _R.TIMESTAMP_LTZ
    if source_ltz == target_ltz or is_integer(source) or is_integer(target):
        return None
    if source_ltz:
        walls = dataclasses.replace(source, root=_R.TIMESTAMP)
        after = strict_cast(walls, target, zone)
        if after is None:
            return None
        return lambda column: after(to_walls(column, zone))
    local = AtomicType(_R.TIMESTAMP, precision=target.precision)
    before = strict_cast(source, local, zone)
    return None if before is None else _followed(before, lambda column: to_instants(column, zone))


def _followed(first: Kernel, second: CastColumn) -> Kernel:
    def run(column: pa.Array) -> Values | Partial:
        result = first(column)
        if isinstance(result, Partial):
            return dataclasses.replace(result, values=second(result.values))
        return second(result)

    return run


def _time_to_text(source: AtomicType, target: AtomicType) -> Kernel:
    cast = column_cast(source, STRING)
    return lambda column: fit_text(cast(column), target)


def _plain(source: DataType, target: AtomicType) -> Kernel:
    cast = column_cast(source, target)
    reason = f"not a value of {type_name(target)}"
    lossy = target.root is _R.DECIMAL or (target.root is _R.FLOAT and not is_text(source))
    floating = is_floating(source)

    def run(column: pa.Array) -> Values | Partial:
        failed = np.zeros(len(column), bool)
        if floating and target.root is _R.DECIMAL:
            failed = mask_of(pc.invert(pc.is_finite(column)))
        values, failed = _cast_rest(cast, column, failed)
        if lossy:
            failed = failed | _lost_values(column, values)
        return checked(values, failed, reason)

    return run


def _cast_rest(cast: CastColumn, column: pa.Array, failed: Mask) -> tuple[pa.Array, Mask]:
    """The column cast where possible, and the rows that fail; a round per kind of failure."""
    while True:
        remaining = column
        if failed.any():
            remaining = pc.if_else(pa.array(failed), pa.scalar(None, column.type), column)
        try:
            return cast(remaining), failed
        except CastError as error:
            more = failed | _failing(cast, remaining, error.failed)
        except pa.ArrowInvalid:
            more = failed | _failing(cast, remaining, None)
        if (more == failed).all():
            raise InternalError("a cast failed without a failing row")
        failed = more


def _failing(cast: CastColumn, column: pa.Array, failed: pa.Array | None) -> Mask:
    if failed is not None:
        return mask_of(failed)

    def attempt(low: int, high: int) -> None:
        cast(pa.concat_arrays([column.slice(low, high - low)]))

    mask = np.zeros(len(column), bool)
    mask[failing_positions(attempt, len(column), _NOT_CASTABLE)] = True
    return mask


def _lost_values(column: pa.Array, converted: pa.Array) -> Mask:
    """Values that became null, or infinite though they were finite."""
    losses = pc.and_(column.is_valid(), converted.is_null())
    if pa.types.is_floating(converted.type) and pa.types.is_floating(column.type):
        losses = pc.or_(losses, pc.and_(pc.is_inf(converted), pc.is_finite(column)))
    return mask_of(losses)


def _to_integer(source: AtomicType, target: AtomicType) -> Kernel | None:
    if not can_cast(source, target):
        return None
    target_type = arrow_type(target)
    reason = f"out of the range of {type_name(target)}"
    if is_temporal(source):
        # seconds are BIGINT, so that values out of the range of INT are detected
        seconds = column_cast(source, AtomicType(_R.BIGINT))
        return lambda column: narrowed(seconds(column), target_type, reason)
    if source.root is _R.DECIMAL:
        return lambda column: narrowed(pc.round(column, 0, "towards_zero"), target_type, reason)
    if is_floating(source):
        return lambda column: narrowed(pc.trunc(column), target_type, reason)
    return lambda column: narrowed(column, target_type, reason)
