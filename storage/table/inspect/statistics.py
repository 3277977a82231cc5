# SPDX-License-Identifier: Apache-2.0
"""Table statistics: the file, and the ANALYZE commit that makes a snapshot name it.

Source: FORMAT.md §11.4, SEMANTICS.md §F.16. Statistics describe one snapshot; later snapshots name
the same file until the schema changes. Computing them is left to the caller.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.documents import dump_object, parse_object, read_document
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """What is known of one column. None = unknown.

    Attributes:
        distinct_count: different values, nulls apart.
        min: smallest value as text: of dates the day number, of others as CAST to STRING gives.
        max: largest value as text.
        avg_len: mean size of a value [bytes].
        max_len: size of the largest value [bytes].
        extra: members that this version does not know, kept on rewriting.
    """

    column_id: int
    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    avg_len: int | None = None
    max_len: int | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What is known of the rows of one snapshot. None = unknown.

    Attributes:
        snapshot_id: the snapshot that was analyzed.
        merged_record_count: rows as read.
        merged_record_size: their size [bytes].
        columns: by column name.
        extra: members that this version does not know, kept on rewriting.
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None = None
    merged_record_size: int | None = None
    columns: Mapping[str, ColumnStatistics] = dataclasses.field(default_factory=dict)
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> bytes:
        """The bytes of the statistics file; unknown members are left out."""
        value = _members(self, _TABLE)
        value["colStats"] = {
            name: {**_members(column, _COLUMN), **column.extra}
            for name, column in self.columns.items()
        }
        return dump_object({**value, **self.extra})

    @classmethod
    def from_json(cls, data: bytes) -> "Statistics":
        """Read a statistics file.

        Raises:
            CorruptDataError: the bytes are no statistics; names the member.
        """
        value = parse_object(data, "statistics")
        content = _attributes(value, _TABLE)
        columns = value.get("colStats")
        columns = {} if columns is None else columns
        if not isinstance(columns, dict):
            raise CorruptDataError("not a statistics file", member="colStats", found=columns)
        extra = {key: value[key] for key in value if key not in (*_TABLE.values(), "colStats")}
        return cls(columns={n: _column(columns[n]) for n in columns}, extra=extra, **content)


_TABLE = {
    "snapshot_id": "snapshotId",
    "schema_id": "schemaId",
    "merged_record_count": "mergedRecordCount",
    "merged_record_size": "mergedRecordSize",
}
_COLUMN = {
    "column_id": "colId",
    "distinct_count": "distinctCount",
    "min": "min",
    "max": "max",
    "null_count": "nullCount",
    "avg_len": "avgLen",
    "max_len": "maxLen",
}
_REQUIRED = frozenset({"snapshotId", "schemaId", "colId"})
_TEXTS = frozenset({"min", "max"})


def read_statistics(table: TableCore, snapshot: Snapshot | None = None) -> Statistics | None:
    """The statistics that a snapshot names; None when it names none, or there is no snapshot.

    Args:
        snapshot: None: the newest.

    Raises:
        FileNotFoundError: the file is missing, as after expiry.
        CorruptDataError: it is damaged.
    """
    if snapshot is None:
        snapshot = table.latest_snapshot()
    if snapshot is None or snapshot.statistics is None:
        return None
    path = table.layout.statistics_file(snapshot.statistics)
    return read_document(table.file_io, path, Statistics.from_json)


def write_statistics(table: TableCore, statistics: Statistics) -> str:
    """Write a statistics file that no snapshot names yet; its name is for the ANALYZE commit.

    Raises:
        InvalidRequestError: a column is not in the schema that was analyzed.
    """
    schema = table.schemas.read(statistics.schema_id)
    unknown = sorted(set(statistics.columns) - set(schema.field_names))
    if unknown:
        raise InvalidRequestError(
            "statistics of a column that the table does not have",
            columns=", ".join(unknown),
            schema=statistics.schema_id,
        )
    name = f"stat-{table.ids.uuid()}-0"
    table.file_io.write_bytes(table.layout.statistics_file(name), statistics.to_json())
    return name


def _members(value: Statistics | ColumnStatistics, names: Mapping[str, str]) -> dict[str, Any]:
    members = {member: getattr(value, attribute) for attribute, member in names.items()}
    return {member: content for member, content in members.items() if content is not None}


def _attributes(value: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    attributes = {}
    for attribute, member in names.items():
        content = value.get(member)
        expected = str if member in _TEXTS else int
        if not (content is None and member not in _REQUIRED) and not isinstance(content, expected):
            raise CorruptDataError(
                "not a statistics file", member=member, expected=expected.__name__, found=content
            )
        attributes[attribute] = content
    return attributes


def _column(value: Any) -> ColumnStatistics:
    if not isinstance(value, dict):
        raise CorruptDataError("not a statistics file", member="colStats", found=value)
    extra = {key: value[key] for key in value if key not in _COLUMN.values()}
    return ColumnStatistics(extra=extra, **_attributes(value, _COLUMN))
