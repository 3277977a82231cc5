# SPDX-License-Identifier: Apache-2.0
"""`$snapshots`, `$schemas`, `$options`, `$tags`, `$branches`, `$consumers`.

Source: SEMANTICS.md §I; columns as in Java, in its order.
"""

import dataclasses
import datetime
import json

import pyarrow as pa

from storage.errors import NotFoundError
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.format.metadata.tag import list_tags
from storage.format.types.type_text import field_to_json
from storage.table.branches import branch_names
from storage.table.core import TableCore
from storage.table.inspect.system.columns import LONG, TEXT, TIME, columns, local_time
from storage.table.retention.consumers import all_consumers
from storage.table.tags import all_tags

__all__ = [
    "branches_table",
    "consumers_table",
    "options_table",
    "schemas_table",
    "snapshots_table",
    "tags_table",
]

_SNAPSHOTS = {
    "snapshot_id": LONG,
    "schema_id": LONG,
    "commit_user": TEXT,
    "commit_identifier": LONG,
    "commit_kind": TEXT,
    "commit_time": TIME,
    "base_manifest_list": TEXT,
    "delta_manifest_list": TEXT,
    "changelog_manifest_list": TEXT,
    "total_record_count": LONG,
    "delta_record_count": LONG,
    "changelog_record_count": LONG,
    "watermark": LONG,
    "next_row_id": LONG,
    "operation": TEXT,
    "writer_version": TEXT,
}
_SNAPSHOTS_OPTIONAL = (
    "changelog_manifest_list total_record_count delta_record_count changelog_record_count "
    "watermark next_row_id operation writer_version"
)
_SCHEMAS = {
    "schema_id": LONG,
    "fields": TEXT,
    "partition_keys": TEXT,
    "primary_keys": TEXT,
    "options": TEXT,
    "comment": TEXT,
    "update_time": TIME,
}
_TAGS = {
    "tag_name": TEXT,
    "snapshot_id": LONG,
    "schema_id": LONG,
    "commit_time": TIME,
    "record_count": LONG,
    "create_time": TIME,
    "time_retained": TEXT,
    "branches": TEXT,
}


def snapshots_table(table: TableCore) -> pa.Table:
    """One row per snapshot, ascending; those that expire meanwhile are left out."""
    rows = []
    ids = table.snapshots.ids()
    table.snapshots.preload(ids)
    for snapshot_id in ids:
        try:
            one = table.snapshots.recall(snapshot_id)
        except NotFoundError:
            continue
        row = {name: getattr(one, name, None) for name in _SNAPSHOTS}
        row |= {
            "snapshot_id": one.id,
            "commit_kind": one.commit_kind.value,
            "commit_time": local_time(one.time_ms),
            "operation": one.extra.get("operation"),
            "writer_version": one.extra.get("writerVersion"),
        }
        rows.append(row)
    return columns(_SNAPSHOTS, rows, nullable=_SNAPSHOTS_OPTIONAL)


def schemas_table(table: TableCore) -> pa.Table:
    """One row per version of the schema, ascending."""
    rows = (
        {
            "schema_id": schema.id,
            "fields": _json([field_to_json(field) for field in schema.fields]),
            "partition_keys": _json(list(schema.partition_keys)),
            "primary_keys": _json(list(schema.primary_keys)),
            "options": _json(dict(schema.options)),
            "comment": schema.comment,
            "update_time": local_time(schema.time_ms),
        }
        for schema in map(table.schemas.read, table.schemas.ids())
    )
    return columns(_SCHEMAS, rows, nullable="comment")


def options_table(table: TableCore) -> pa.Table:
    """The options that the newest schema sets."""
    newest = table.schemas.latest() or table.schema
    rows = [{"key": key, "value": value} for key, value in newest.options.items()]
    return columns({"key": TEXT, "value": TEXT}, rows)


def tags_table(table: TableCore) -> pa.Table:
    """One row per tag, by name.

    `branches` are those that start at the tag: a column of the documents of Paimon 0.8 that later
    versions lack, so it is the last.
    """
    started = _branches_by_tag(table)
    rows = [
        {
            "tag_name": tag.name,
            "snapshot_id": tag.snapshot.id,
            "schema_id": tag.snapshot.schema_id,
            "commit_time": local_time(tag.snapshot.time_ms),
            "record_count": tag.snapshot.total_record_count,
            "create_time": _wall(tag.created),
            "time_retained": _duration(tag.time_retained_ms),
            "branches": f"[{', '.join(started.get(tag.name, ()))}]",
        }
        for tag in sorted(all_tags(table), key=lambda tag: tag.name)
    ]
    return columns(_TAGS, rows, nullable="record_count create_time time_retained")


def _branches_by_tag(table: TableCore) -> dict[str, list[str]]:
    """Names of the branches that were made from a tag: those that keep it from their beginning."""
    found: dict[str, list[str]] = {}
    for name in branch_names(table):
        layout = dataclasses.replace(table.layout, branch=name)
        snapshots = SnapshotStore(table.file_io, layout)
        ids = snapshots.ids()
        for tag in list_tags(table.file_io, layout):
            if ids and tag.snapshot.id == ids[0]:
                found.setdefault(tag.name, []).append(name)
    return found


def branches_table(table: TableCore) -> pa.Table:
    """One row per branch besides `main`, by name."""
    written = {one.name: one.modified_ms for one in table.file_io.list(table.layout.branches_dir)}
    rows = [
        {"branch_name": name, "create_time": local_time(written.get(f"branch-{name}", 0))}
        for name in branch_names(table)
    ]
    return columns({"branch_name": TEXT, "create_time": TIME}, rows)


def consumers_table(table: TableCore) -> pa.Table:
    """One row per consumer, by name."""
    rows = [
        {"consumer_id": name, "next_snapshot_id": next_id}
        for name, next_id in all_consumers(table).items()
    ]
    return columns({"consumer_id": TEXT, "next_snapshot_id": LONG}, rows)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wall(moment: datetime.datetime | None) -> int | None:
    if moment is None:
        return None
    shown = moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)  # noqa: DTZ001
    return shown // datetime.timedelta(milliseconds=1)


def _duration(milliseconds: int | None) -> str | None:
    """As Java's `Duration.toString`: hours, minutes and seconds."""
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    hours, minutes, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if second or rest or not text:
        text += f"{second}" + (f".{rest:03d}".rstrip("0") if rest else "") + "S"
    return "PT" + text
