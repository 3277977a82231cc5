# SPDX-License-Identifier: Apache-2.0
"""Metadata columns: what is known of a change besides its row.

Values come as a batch `origin` beside the rows: columns named as here, of these types, one row per
row. What a source does not have is null. In tables the names have the pipeline's prefix.
"""

import dataclasses
from collections.abc import Iterable

import pyarrow as pa

from ingest.config.suggestion import nearest
from storage.errors import InvalidRequestError
from storage.format.types.arrow_types import arrow_type
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataType, MapType

__all__ = ["METADATA", "Metadata", "checked_metadata", "origin_column", "origin_schema"]


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
    """The names, each of which must be in the table, once.

    Raises:
        InvalidRequestError: one is not, or stands there twice.
    """
    found: list[str] = []
    for name in names:
        if name not in METADATA:
            hint = nearest(name, METADATA) or f"there are: {', '.join(METADATA)}"
            raise InvalidRequestError("there is no such metadata column", hint=hint, column=name)
        if name in found:
            raise InvalidRequestError("a metadata column is named twice", column=name)
        found.append(name)
    return tuple(found)


def origin_schema(names: Iterable[str]) -> pa.Schema:
    """The schema of an `origin` batch with some metadata."""
    return pa.schema([pa.field(name, arrow_type(METADATA[name].type)) for name in names])


def origin_column(origin: pa.RecordBatch | None, name: str, num_rows: int) -> pa.Array:
    """A metadata column; null where the origin has none."""
    wanted = arrow_type(METADATA[name].type)
    position = -1 if origin is None else origin.schema.get_field_index(name)
    if origin is None or position < 0:
        return pa.nulls(num_rows, wanted)
    column = origin.column(position)
    return column if column.type == wanted else column.cast(wanted)
