# SPDX-License-Identifier: Apache-2.0
"""The `origin` of change batches: what is known of a change besides its row.

Nothing is read unless a target requests it (`Target.origin`). It is read in a pass of its own over
the records that gave rows, whatever path decoded them: only the wanted members, many records at a
time (`member_columns`, `avro_origin`). What the record itself knows (topic, offset, key, ...) is
added here for every format.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.events import (
    OFFSET_COLUMN,
    ChangeBatch,
    DecodeResult,
    Resolver,
    SourceTable,
    Target,
)
from ingest.decode.metadata_columns import origin_column, origin_schema
from ingest.source.records import NO_TIMESTAMP, RawBatch

__all__ = ["OriginReader", "RequestedOrigins"]

OriginReader = Callable[[RawBatch, Sequence[int], Collection[str]], Mapping[str, pa.Array]]
"""(raw batch, positions in it, names of metadata) to columns, one value per position; of the types
in `ingest.decode.metadata_columns`. Names that the format has nothing for are left out."""

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_RECORD = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
_RECORD |= {"key", "headers"}


class RequestedOrigins:
    """A resolver that notes which targets request metadata.

    Args:
        resolve: the resolver behind it.
    """

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        self._names: dict[str, tuple[str, ...]] = {}

    def __call__(self, source: SourceTable, topic: str) -> Target | None:
        """See `Resolver`."""
        target = self._resolve(source, topic)
        if target is not None:
            if target.origin:
                self._names[target.identifier] = target.origin
            else:
                self._names.pop(target.identifier, None)
        return target

    def plain(self, source: SourceTable, topic: str) -> Target | None:
        """The target as one that requests nothing, for a decoder whose rows pass another one."""
        target = self(source, topic)
        return dataclasses.replace(target, origin=()) if target is not None else None

    def filled(self, result: DecodeResult, raw: RawBatch, read: OriginReader) -> DecodeResult:
        """The result with the origins that targets request.

        Args:
            result: of decoding `raw`.
            raw: the records.
            read: reads what the format has.
        """
        if not self._names or not any(change.target in self._names for change in result.changes):
            return result
        offsets = np.array(raw.offsets, np.int64)
        changes = [self._with_origin(change, raw, offsets, read) for change in result.changes]
        return dataclasses.replace(result, changes=changes)

    def _with_origin(
        self,
        change: ChangeBatch,
        raw: RawBatch,
        offsets: npt.NDArray[np.int64],
        read: OriginReader,
    ) -> ChangeBatch:
        names = self._names.get(change.target)
        if not names:
            return change
        at = np.searchsorted(offsets, change.rows.column(OFFSET_COLUMN).to_numpy())
        firsts = np.r_[True, at[1:] != at[:-1]]
        places = at[firsts].tolist()
        known = {**read(raw, places, names), **_record_columns(raw, places, names)}
        schema = origin_schema(names)
        columns = [
            known[name].cast(schema.field(name).type)
            if name in known
            else origin_column(None, name, len(places))
            for name in names
        ]
        origin = pa.RecordBatch.from_arrays(columns, schema=schema)
        if len(places) < len(at):  # several rows of one record
            origin = origin.take(pa.array(np.cumsum(firsts) - 1))
        return dataclasses.replace(change, origin=origin)


def _record_columns(
    raw: RawBatch, places: Sequence[int], names: Collection[str]
) -> dict[str, pa.Array]:
    """What records know of themselves, whatever is in them."""
    count = len(places)
    found: dict[str, pa.Array] = {}
    for name in _RECORD.intersection(names):
        match name:
            case "topic":
                found[name] = pa.repeat(pa.scalar(raw.topic, pa.string()), count)
            case "partition":
                found[name] = pa.repeat(pa.scalar(raw.partition, pa.int32()), count)
            case "offset":
                found[name] = pa.array([raw.offsets[at] for at in places], pa.int64())
            case "key":
                found[name] = pa.array([raw.keys[at] for at in places], pa.binary())
            case "headers":
                found[name] = _headers(raw, places)
            case "timestamp":
                stamps = [raw.timestamp(at)[1] for at in places]
                known = [None if stamp == NO_TIMESTAMP else stamp for stamp in stamps]
                found[name] = pa.array(known, pa.int64()).cast(pa.timestamp("ms"))
            case _:
                kinds = [_TIMESTAMP_TYPES[raw.timestamp(at)[0]] for at in places]
                found[name] = pa.array(kinds, pa.string())
    if "timestamp" in found:
        found["timestamp"] = found["timestamp"].cast(origin_schema(["timestamp"]).field(0).type)
    return found


def _headers(raw: RawBatch, places: Sequence[int]) -> pa.Array:
    type_ = origin_schema(["headers"]).field(0).type
    return pa.array([list(dict(raw.headers(at)).items()) for at in places], type_)
