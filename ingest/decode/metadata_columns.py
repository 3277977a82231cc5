# SPDX-License-Identifier: Apache-2.0
"""Metadata columns: what is known of a change besides its row.

Values come as a batch `origin` beside the rows: columns named as here, of these types, one row per
row. What a source does not have is null. In tables the names have the pipeline's prefix.

Nothing is read unless a target requests it (`Target.origin`). It is read in a separate pass over
the decoded records, independent of the path that decoded them: only the requested members, many
records at a time (`OriginReader`). Metadata of the record (topic, offset, key, ...) is added here.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.config.suggestion import nearest
from ingest.decode.events import (
    OFFSET_COLUMN,
    ChangeBatch,
    DecodeResult,
    Resolver,
    SourceTable,
    Target,
)
from ingest.source.records import NO_TIMESTAMP, RawBatch
from storage.errors import InvalidRequestError
from storage.format.types.arrow_types import arrow_type
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataType, MapType


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """One kind of metadata: its type, nullable, and what it says."""

    type: DataType
    meaning: str


def _row(type_: str, meaning: str) -> Metadata:
    return Metadata(parse_type(type_), meaning)


METADATA: dict[str, Metadata] = {
    # the change
    "op": _row("STRING", "c, u, d or r, as the event says"),
    "ts_ms": _row("BIGINT", "when the connector handled the event [epoch ms]"),
    "source_ts_ms": _row("BIGINT", "when the source made the change [epoch ms]"),
    "op_ts": _row("TIMESTAMP_LTZ(3)", "when the source made the change"),
    # where it comes from
    "connector": _row("STRING", "mysql, postgresql, …"),
    "server": _row("STRING", "logical name of the source: the connector's topic prefix"),
    "database": _row("STRING", "source database"),
    "schema": _row("STRING", "source schema"),
    "table": _row("STRING", "source table"),
    "snapshot": _row("STRING", "which part of a snapshot the row is; `false` for streamed changes"),
    # its position in the source
    "lsn": _row("BIGINT", "PostgreSQL: position in the log"),
    "txid": _row("STRING", "transaction id, as text, for some are longer than a BIGINT"),
    "gtid": _row("STRING", "MySQL, MariaDB: global transaction id"),
    "file": _row("STRING", "MySQL, MariaDB: binlog file"),
    "pos": _row("BIGINT", "MySQL, MariaDB: position in the binlog file"),
    "row": _row("INT", "MySQL, MariaDB: row inside the binlog event"),
    "server_id": _row("BIGINT", "MySQL, MariaDB: server"),
    "thread": _row("BIGINT", "MySQL, MariaDB: thread"),
    "scn": _row("STRING", "Oracle: system change number, of any length"),
    "commit_scn": _row("STRING", "Oracle: system change number of the commit"),
    "ssn": _row("BIGINT", "Oracle: number inside the system change"),
    "change_lsn": _row("STRING", "SQL Server: position of the change"),
    "commit_lsn": _row("STRING", "SQL Server: position of the commit"),
    "event_serial_no": _row("BIGINT", "SQL Server: number inside the change"),
    "total_order": _row("BIGINT", "place in the transaction, if the connector provides it"),
    "sequence": _row("STRING", "position as the connector writes it (Debezium: JSON text)"),
    # the record that carried it
    "topic": _row("STRING", "topic"),
    "partition": _row("INT", "partition of the topic"),
    "offset": _row("BIGINT", "offset in the partition"),
    "timestamp": _row("TIMESTAMP_LTZ(3)", "of the record"),
    "timestamp_type": _row("STRING", "CreateTime, LogAppendTime or NoTimestampType"),
    "key": _row("BYTES", "of the record, as it came"),
    "headers": Metadata(
        MapType(
            parse_type("STRING NOT NULL"),
            parse_type("BYTES"),
        ),
        "of the record; the last of those with one name",
    ),
}
"""Metadata by name, without prefix."""


def checked_metadata(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each of which must be in the table, without duplicates.

    Raises:
        InvalidRequestError: a name is unknown or duplicate.
    """
    result: list[str] = []
    for name in names:
        if name not in METADATA:
            hint = nearest(name, METADATA) or f"there are: {', '.join(METADATA)}"
            raise InvalidRequestError("there is no such metadata column", hint=hint, column=name)
        if name in result:
            raise InvalidRequestError("a metadata column is named twice", column=name)
        result.append(name)
    return tuple(result)


def origin_schema(names: Iterable[str]) -> pa.Schema:
    """The schema of an `origin` batch with some metadata."""
    return pa.schema([pa.field(name, arrow_type(METADATA[name].type)) for name in names])


def origin_column(origin: pa.RecordBatch | None, name: str, num_rows: int) -> pa.Array:
    """A metadata column; null where the origin has none."""
    type_ = arrow_type(METADATA[name].type)
    position = -1 if origin is None else origin.schema.get_field_index(name)
    if origin is None or position < 0:
        return pa.nulls(num_rows, type_)
    column = origin.column(position)
    return column if column.type == type_ else column.cast(type_)


OriginReader = Callable[[RawBatch, Sequence[int], Collection[str]], Mapping[str, pa.Array]]
"""(raw batch, positions in it, names of metadata) to columns, one value per position; of the types
in `ingest.decode.metadata_columns`. Names that the format has nothing for are left out."""

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_RECORD = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
_RECORD |= {"key", "headers"}


class RequestedOrigins:
    """A resolver that notes which targets request metadata."""

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
        """The target without requests, for a decoder whose rows pass through another one."""
        target = self(source, topic)
        return dataclasses.replace(target, origin=()) if target is not None else None

    def filled(self, result: DecodeResult, raw: RawBatch, read: OriginReader) -> DecodeResult:
        """The result with the origins that targets request."""
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
        metadata = {**read(raw, places, names), **_record_columns(raw, places, names)}
        schema = origin_schema(names)
        columns = [
            metadata[name].cast(schema.field(name).type)
            if name in metadata
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
    """Metadata of records themselves, independent of their content."""
    count = len(places)
    columns: dict[str, pa.Array] = {}
    for name in _RECORD.intersection(names):
        match name:
            case "topic":
                columns[name] = pa.repeat(pa.scalar(raw.topic, pa.string()), count)
            case "partition":
                columns[name] = pa.repeat(pa.scalar(raw.partition, pa.int32()), count)
            case "offset":
                columns[name] = pa.array([raw.offsets[at] for at in places], pa.int64())
            case "key":
                columns[name] = pa.array([raw.keys[at] for at in places], pa.binary())
            case "headers":
                columns[name] = _headers(raw, places)
            case "timestamp":
                stamps = [raw.timestamp(at)[1] for at in places]
                times = [None if stamp == NO_TIMESTAMP else stamp for stamp in stamps]
                columns[name] = pa.array(times, pa.int64()).cast(pa.timestamp("ms"))
            case _:
                kinds = [_TIMESTAMP_TYPES[raw.timestamp(at)[0]] for at in places]
                columns[name] = pa.array(kinds, pa.string())
    if "timestamp" in columns:
        columns["timestamp"] = columns["timestamp"].cast(origin_schema(["timestamp"]).field(0).type)
    return columns


def _headers(raw: RawBatch, places: Sequence[int]) -> pa.Array:
    type_ = origin_schema(["headers"]).field(0).type
    return pa.array([list(dict(raw.headers(at)).items()) for at in places], type_)
