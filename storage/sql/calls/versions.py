# SPDX-License-Identifier: Apache-2.0
"""Procedures on tags, branches, snapshots, consumers, and on entries of the catalog."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.schema_changes import UpdateDefault
from storage.format.metadata.snapshot import Snapshot
from storage.options.values import duration_ms
from storage.sql import nodes
from storage.sql.calls.declaration import (
    TABLE,
    Argument,
    Call,
    called_table,
    procedure,
    result_rows,
)
from storage.sql.errors import refuse
from storage.sql.inserting import target_table
from storage.table import tags
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

_TAG = Argument("tag", "name of the tag", required=True, aliases=("tag_name",))
_SNAPSHOT = Argument(
    "snapshot_id", "snapshot", type="integer", default="the newest", aliases=("snapshot",)
)
_RETAINED = Argument("time_retained", "how long the tag lives: `1 d`", type="duration")
_WATERMARK = Argument("watermark", "epoch ms", type="integer", required=True)
_BRANCH = Argument("branch", "name of the branch", required=True, aliases=("branch_name",))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


# -------------------------------------------------------------------------------------- tags


@procedure(TABLE, _TAG, _SNAPSHOT, _RETAINED)
def create_tag(call: Call) -> None:
    """Makes a tag of a snapshot."""
    called_table(call).create_tag(
        call.text("tag"), call["snapshot_id"], time_retained_ms=call["time_retained"]
    )


@procedure(TABLE, _TAG, _SNAPSHOT, _RETAINED)
def replace_tag(call: Call) -> None:
    """Moves a tag to another snapshot, or changes how long it lives."""
    called_table(call).replace_tag(
        call.text("tag"), call["snapshot_id"], time_retained_ms=call["time_retained"]
    )


@procedure(TABLE, _TAG, Argument("timestamp", "the time", type="time", required=True), _RETAINED)
def create_tag_from_timestamp(call: Call) -> pa.Table:
    """Makes a tag of the first snapshot committed at or after a time."""
    table, time = called_table(call), call["timestamp"]
    snapshot = next((item for item in _snapshots(table) if item.time_ms >= time), None)
    return _tag(call, table, snapshot, f"no snapshot was committed at or after {time}")


@procedure(TABLE, _TAG, _WATERMARK, _RETAINED)
def create_tag_from_watermark(call: Call) -> pa.Table:
    """Makes a tag of the first snapshot that has reached a watermark."""
    table, target = called_table(call), call["watermark"]
    snapshot = next((item for item in _snapshots(table) if (item.watermark or -1) >= target), None)
    return _tag(call, table, snapshot, f"no snapshot has reached the watermark {target}")


def _tag(call: Call, table: FileStoreTable, snapshot: Snapshot | None, message: str) -> pa.Table:
    if snapshot is None:
        raise NotFoundError(message, table=call.text("table"))
    table.create_tag(call.text("tag"), snapshot.id, time_retained_ms=call["time_retained"])
    return result_rows(
        tagName=[call.text("tag")],
        snapshot=[snapshot.id],
        commit_time=[snapshot.time_ms],
        watermark=[None if snapshot.watermark is None else str(snapshot.watermark)],
    )


def _snapshots(table: FileStoreTable) -> list[Snapshot]:
    """The snapshots of a table, oldest first."""
    return [table.snapshots.read(snapshot_id) for snapshot_id in sorted(table.snapshots.ids())]


@procedure(
    TABLE, _TAG, Argument("target_tag", "new name", required=True, aliases=("target_tag_name",))
)
def rename_tag(call: Call) -> None:
    """Renames a tag."""
    called_table(call).rename_tag(call.text("tag"), call.text("target_tag"))


@procedure(TABLE, _TAG)
def delete_tag(call: Call) -> None:
    """Removes tags: `a,b`."""
    table = called_table(call)
    for name in _names(call.text("tag")):
        table.delete_tag(name)


def alter_tag(session: "SqlSession", node: nodes.AlterTag) -> None:
    """ALTER TABLE … CREATE, REPLACE, RENAME or DELETE TAG."""
    table, action, name = target_table(session, node.this), node.args["action"], node.args["name"]
    if action == "rename":
        table.rename_tag(name, node.args["new_name"])
        return
    if action == "delete":
        for part in _names(name):
            table.delete_tag(part)
        return
    snapshot_id, retained = node.args.get("snapshot_id"), node.args.get("retained")
    retained_ms = None if retained is None else duration_ms(retained)
    exists = any(tag.name == name for tag in all_tags(table))
    if action == "replace" or (exists and action == "create or replace"):
        table.replace_tag(name, snapshot_id, time_retained_ms=retained_ms)
    elif not (exists and node.args.get("exists")):
        table.create_tag(name, snapshot_id, time_retained_ms=retained_ms)


@procedure(TABLE, Argument("older_than", "created before this", type="time"))
def expire_tags(call: Call) -> pa.Table:
    """Removes tags whose time is over, and those created before a time."""
    table, older = called_table(call), call["older_than"]
    names = tags.expire_tags(table, now_ms=table.clock.now_ms())
    if older is not None:
        times = {file.name: file.modified_ms for file in table.file_io.list(table.layout.tag_dir)}
        for tag in all_tags(table):
            time = times.get(f"tag-{tag.name}")
            if tag.created is not None:
                time = int(tag.created.timestamp() * 1000)
            if time is not None and time < older:
                table.delete_tag(tag.name)
                names.append(tag.name)
    return result_rows(expired_tags=sorted(names))


@procedure(TABLE)
def trigger_tag_automatic_creation(call: Call) -> None:
    """Makes the automatic tags that are due."""
    tags.create_automatic_tags(called_table(call))


# --------------------------------------------------------------------------------- rollbacks


def _by_version(values: Sequence[Any]) -> tuple[str, ...] | None:
    if len(values) != 2:
        return None
    return ("table", "snapshot_id" if isinstance(values[1], int) else "tag")


@procedure(
    TABLE,
    Argument("snapshot_id", "the snapshot", type="integer", aliases=("snapshot",)),
    Argument("tag", "instead, a tag of it", aliases=("tag_name",)),
    Argument("version", "instead, a tag or a snapshot id"),
    aliases=("rollback",),
    by_place=_by_version,
)
def rollback_to(call: Call) -> pa.Table:
    """Makes an older snapshot the newest; later ones are lost."""
    table = called_table(call)
    version, snapshot, tag = call["version"], call["snapshot_id"], call["tag"]
    targets = [value for value in (version, snapshot, tag) if value is not None]
    if len(targets) != 1:
        refuse("give one of snapshot_id, tag and version", call.node)
    if version is not None:
        snapshot = int(version) if version.isdigit() else None
        tag = None if version.isdigit() else version
    return _rolled_back(table, snapshot_id=snapshot, tag=tag)


def _rolled_back(table: FileStoreTable, **target: Any) -> pa.Table:
    previous = table.latest_snapshot()
    current = table.rollback_to(**target)
    return result_rows(
        previous_snapshot_id=[None if previous is None else previous.id],
        current_snapshot_id=[current.id],
    )


@procedure(TABLE, Argument("timestamp", "time", type="time", required=True))
def rollback_to_timestamp(call: Call) -> pa.Table:
    """Makes the newest snapshot committed at or before a time the newest."""
    return _rolled_back(called_table(call), timestamp_ms=call["timestamp"])


@procedure(TABLE, _WATERMARK)
def rollback_to_watermark(call: Call) -> pa.Table:
    """Makes the newest snapshot whose watermark is at most this the newest."""
    table, limit = called_table(call), call["watermark"]
    ids = [
        snapshot.id
        for snapshot in _snapshots(table)
        if snapshot.watermark is not None and snapshot.watermark <= limit
    ]
    if not ids:
        raise NotFoundError(
            "no snapshot at or below this watermark", table=call.text("table"), watermark=limit
        )
    return _rolled_back(table, snapshot_id=ids[-1])


# ---------------------------------------------------------------------------------- branches


@procedure(
    TABLE,
    _BRANCH,
    Argument("tag", "where it begins", aliases=("tag_name",)),
    Argument("ignore_if_exists", "no error then", type="boolean", default="false"),
)
def create_branch(call: Call) -> None:
    """Makes a branch, empty or of a tag."""
    called_table(call).create_branch(
        call.text("branch"), tag=call["tag"], ignore_if_exists=bool(call["ignore_if_exists"])
    )


@procedure(TABLE, _BRANCH)
def delete_branch(call: Call) -> None:
    """Removes branches: `a,b`."""
    table = called_table(call)
    for name in _names(call.text("branch")):
        table.drop_branch(name)


@procedure(
    TABLE,
    Argument("from_branch", "the branch", required=True),
    Argument("to_branch", "new name", required=True),
)
def rename_branch(call: Call) -> None:
    """Renames a branch."""
    called_table(call).rename_branch(call.text("from_branch"), call.text("to_branch"))


@procedure(TABLE, _BRANCH)
def fast_forward(call: Call) -> None:
    """Lets main be what a branch is."""
    called_table(call).fast_forward(call.text("branch"))


# ---------------------------------------------------------------------- consumers, the catalog


@procedure(
    TABLE,
    Argument("consumer_id", "the consumer", required=True),
    Argument(
        "next_snapshot_id", "what it reads next; without, the consumer is removed", type="integer"
    ),
)
def reset_consumer(call: Call) -> None:
    """Sets what a consumer reads next, or removes the consumer."""
    table, name = called_table(call), call.text("consumer_id")
    if call["next_snapshot_id"] is not None:
        write_consumer(table, name, call["next_snapshot_id"])
    elif not delete_consumer(table, name):
        raise NotFoundError("there is no such consumer", table=call.text("table"), consumer=name)


@procedure(
    TABLE,
    Argument("including_consumers", "those that are removed", type="pattern", default=".*"),
    Argument("excluding_consumers", "those that stay", type="pattern"),
)
def clear_consumers(call: Call) -> None:
    """Removes consumers."""
    table = called_table(call)
    including, excluding = call["including_consumers"], call["excluding_consumers"]
    for name in all_consumers(table):
        matches = including is None or including.fullmatch(name)
        if matches and not (excluding is not None and excluding.fullmatch(name)):
            delete_consumer(table, name)


@procedure(
    TABLE,
    Argument("column", "the column", required=True),
    Argument("default_value", "the value; without, there is none"),
)
def alter_column_default_value(call: Call) -> None:
    """Sets the default of a column for rows written later."""
    path = tuple(call.text("column").split("."))
    called_table(call).alter([UpdateDefault(path, call["default_value"])])


@procedure(
    Argument("view", "the view", required=True),
    Argument("action", "`add`, `update` or `drop`", required=True),
    Argument("engine", "the engine", default="lakeward"),
    Argument("query", "the query"),
)
def alter_view_dialect(call: Call) -> None:
    """Adds, changes or drops the query that a view has for an engine."""
    catalog, name = call.session.catalog, call.text("view")
    identifier = name if "." in name else f"{call.session.database}.{name}"
    view = catalog.view(identifier)
    action, engine = call.text("action").lower(), call["engine"] or "lakeward"
    dialects = dict(view.dialects)
    if action not in ("add", "update", "drop"):
        refuse("no such action", call.node, hint="add, update or drop", value=action)
    if (engine in dialects) == (action == "add"):
        state = "already has" if action == "add" else "does not have"
        raise InvalidRequestError(f"the view {state} this dialect", view=identifier, engine=engine)
    if action == "drop":
        del dialects[engine]
    elif call["query"] is None:
        refuse(f"{action} needs a query", call.node)
    else:
        dialects[engine] = call.text("query")
    catalog.alter_view(identifier, dataclasses.replace(view, dialects=dialects))
