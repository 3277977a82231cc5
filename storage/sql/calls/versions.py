# SPDX-License-Identifier: Apache-2.0
"""Procedures on tags, branches, snapshots, consumers, and on what the catalog keeps."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.schema_changes import UpdateDefault
from storage.format.metadata.snapshot import Snapshot
from storage.options.values import duration_ms
from storage.sql.calls.declaration import Argument, Call, Procedure, result_rows, succeeded
from storage.sql.calls.tables import TABLE, called_table
from storage.sql.errors import refuse
from storage.table.retention.auto_tags import create_automatic_tags, expire_tags
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags

__all__ = ["PROCEDURES"]

_TAG = Argument(name="tag", about="name of the tag", required=True, aliases=("tag_name",))
_SNAPSHOT = Argument(
    name="snapshot_id",
    type="integer",
    about="snapshot",
    default="the newest",
    aliases=("snapshot",),
)
_RETAINED = Argument(name="time_retained", about="how long the tag lives: `1 d`")
_BRANCH = Argument(
    name="branch", about="name of the branch", required=True, aliases=("branch_name",)
)


def _retained(call: Call) -> int | None:
    text = call["time_retained"]
    try:
        return None if text is None else duration_ms(text)
    except ValueError as error:
        refuse("time_retained is a time span", call.node, hint="such as 1 d", detail=str(error))


def _create_tag(call: Call) -> pa.Table:
    called_table(call).create_tag(
        call.text("tag"), call["snapshot_id"], time_retained_ms=_retained(call)
    )
    return succeeded()


def _replace_tag(call: Call) -> pa.Table:
    called_table(call).replace_tag(
        call.text("tag"), call["snapshot_id"], time_retained_ms=_retained(call)
    )
    return succeeded()


def _rename_tag(call: Call) -> pa.Table:
    called_table(call).rename_tag(call.text("tag"), call.text("target_tag"))
    return succeeded()


def _delete_tag(call: Call) -> pa.Table:
    table = called_table(call)
    for name in _names(call.text("tag")):
        table.delete_tag(name)
    return succeeded()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _create_tag_from_timestamp(call: Call) -> pa.Table:
    table, time = called_table(call), call["timestamp"]
    snapshots = _snapshots(table)
    found = next((one for one in snapshots if one.time_ms >= time), None)
    return _tagged(call, table, found, f"no snapshot was committed at or after {time}")


def _create_tag_from_watermark(call: Call) -> pa.Table:
    table, wanted = called_table(call), call["watermark"]
    snapshots = _snapshots(table)
    found = next((one for one in snapshots if (one.watermark or -1) >= wanted), None)
    return _tagged(call, table, found, f"no snapshot has reached the watermark {wanted}")


def _tagged(call: Call, table: FileStoreTable, snapshot: Snapshot | None, missing: str) -> pa.Table:
    if snapshot is None:
        raise NotFoundError(missing, table=call.text("table"))
    table.create_tag(call.text("tag"), snapshot.id, time_retained_ms=_retained(call))
    return result_rows(
        tagName=[call.text("tag")],
        snapshot=[snapshot.id],
        commit_time=[snapshot.time_ms],
        watermark=[str(snapshot.watermark)],
    )


def _snapshots(table: FileStoreTable) -> list[Snapshot]:
    """Those that are there, oldest first."""
    return [table.snapshots.read(one) for one in sorted(table.snapshots.ids())]


def _expire_tags(call: Call) -> pa.Table:
    table, older = called_table(call), call["older_than"]
    names = expire_tags(table, now_ms=table.clock.now_ms())
    if older is not None:
        made = {one.name: one.modified_ms for one in table.file_io.list(table.layout.tag_dir)}
        for tag in all_tags(table):
            time = made.get(f"tag-{tag.name}")
            if tag.created is not None:
                time = int(tag.created.timestamp() * 1000)
            if time is not None and time < older:
                table.delete_tag(tag.name)
                names.append(tag.name)
    return result_rows(expired_tags=sorted(names))


def _trigger_automatic_tags(call: Call) -> pa.Table:
    create_automatic_tags(called_table(call))
    return succeeded()


def _rollback(call: Call) -> pa.Table:
    table = called_table(call)
    version, snapshot, tag = call["version"], call["snapshot_id"], call["tag"]
    given = [one for one in (version, snapshot, tag) if one is not None]
    if len(given) != 1:
        refuse("one of snapshot_id, tag and version is wanted", call.node)
    if version is not None:
        snapshot = int(version) if version.isdigit() else None
        tag = None if version.isdigit() else version
    return _rolled_back(table, snapshot_id=snapshot, tag=tag)


def _rolled_back(table: FileStoreTable, **target: Any) -> pa.Table:
    before = table.latest_snapshot()
    now = table.rollback_to(**target)
    return result_rows(
        previous_snapshot_id=[None if before is None else before.id],
        current_snapshot_id=[now.id],
    )


def _rollback_to_timestamp(call: Call) -> pa.Table:
    return _rolled_back(called_table(call), timestamp_ms=call["timestamp"])


def _rollback_to_watermark(call: Call) -> pa.Table:
    table, wanted = called_table(call), call["watermark"]
    reached = [
        one.id for one in _snapshots(table) if one.watermark is not None and one.watermark <= wanted
    ]
    if not reached:
        raise NotFoundError(
            "no snapshot has a watermark as small as this",
            table=call.text("table"),
            watermark=wanted,
        )
    return _rolled_back(table, snapshot_id=reached[-1])


def _by_version(values: Sequence[Any]) -> tuple[str, ...] | None:
    if len(values) != 2:
        return None
    return ("table", "snapshot_id" if isinstance(values[1], int) else "tag")


def _create_branch(call: Call) -> pa.Table:
    called_table(call).create_branch(
        call.text("branch"), tag=call["tag"], ignore_if_exists=bool(call["ignore_if_exists"])
    )
    return succeeded()


def _delete_branch(call: Call) -> pa.Table:
    table = called_table(call)
    for name in _names(call.text("branch")):
        table.drop_branch(name)
    return succeeded()


def _rename_branch(call: Call) -> pa.Table:
    called_table(call).rename_branch(call.text("from_branch"), call.text("to_branch"))
    return succeeded()


def _fast_forward(call: Call) -> pa.Table:
    called_table(call).fast_forward(call.text("branch"))
    return succeeded()


def _reset_consumer(call: Call) -> pa.Table:
    table, name = called_table(call), call.text("consumer_id")
    if call["next_snapshot_id"] is None:
        if not delete_consumer(table, name):
            raise NotFoundError(
                "there is no such consumer", table=call.text("table"), consumer=name
            )
    else:
        write_consumer(table, name, call["next_snapshot_id"])
    return succeeded()


def _clear_consumers(call: Call) -> pa.Table:
    table = called_table(call)
    including = _expression(call, "including_consumers")
    excluding = _expression(call, "excluding_consumers")
    for name in all_consumers(table):
        wanted = including is None or including.fullmatch(name)
        if wanted and not (excluding is not None and excluding.fullmatch(name)):
            delete_consumer(table, name)
    return succeeded()


def _expression(call: Call, name: str) -> re.Pattern[str] | None:
    try:
        return None if call[name] is None else re.compile(call[name])
    except re.error as error:
        refuse(f"{name} is no regular expression", call.node, detail=str(error))


def _alter_column_default(call: Call) -> pa.Table:
    path = tuple(call.text("column").split("."))
    called_table(call).alter([UpdateDefault(path, call["default_value"])])
    return succeeded()


def _alter_view_dialect(call: Call) -> pa.Table:
    catalog, name = call.session.catalog, call.text("view")
    identifier = name if "." in name else f"{call.session.database}.{name}"
    view = catalog.view(identifier)
    action, engine = call.text("action").lower(), call["engine"] or "lakeward"
    dialects = dict(view.dialects)
    if action not in ("add", "update", "drop"):
        refuse("no such action", call.node, hint="add, update or drop", value=action)
    if (engine in dialects) == (action == "add"):
        state = "has" if action == "add" else "has not"
        raise InvalidRequestError(f"the view {state} this dialect", view=identifier, engine=engine)
    if action == "drop":
        del dialects[engine]
    elif call["query"] is None:
        refuse(f"{action} needs a query", call.node)
    else:
        dialects[engine] = call.text("query")
    catalog.alter_view(identifier, dataclasses.replace(view, dialects=dialects))
    return succeeded()


PROCEDURES = (
    Procedure(
        name="create_tag",
        about="Makes a tag of a snapshot.",
        arguments=(TABLE, _TAG, _SNAPSHOT, _RETAINED),
        run=_create_tag,
    ),
    Procedure(
        name="create_tag_from_timestamp",
        about="Makes a tag of the first snapshot committed at or after a time.",
        arguments=(
            TABLE,
            _TAG,
            Argument(name="timestamp", type="time", about="the time", required=True),
            _RETAINED,
        ),
        run=_create_tag_from_timestamp,
    ),
    Procedure(
        name="create_tag_from_watermark",
        about="Makes a tag of the first snapshot that has reached a watermark.",
        arguments=(
            TABLE,
            _TAG,
            Argument(name="watermark", type="integer", about="epoch ms", required=True),
            _RETAINED,
        ),
        run=_create_tag_from_watermark,
    ),
    Procedure(
        name="replace_tag",
        about="Moves a tag to another snapshot, or changes how long it lives.",
        arguments=(TABLE, _TAG, _SNAPSHOT, _RETAINED),
        run=_replace_tag,
    ),
    Procedure(
        name="rename_tag",
        about="Renames a tag.",
        arguments=(
            TABLE,
            _TAG,
            Argument(
                name="target_tag", about="new name", required=True, aliases=("target_tag_name",)
            ),
        ),
        run=_rename_tag,
    ),
    Procedure(
        name="delete_tag",
        about="Removes tags: `a,b`.",
        arguments=(TABLE, _TAG),
        run=_delete_tag,
    ),
    Procedure(
        name="expire_tags",
        about="Removes tags whose time is over, and those made before a time.",
        arguments=(TABLE, Argument(name="older_than", type="time", about="made before this")),
        run=_expire_tags,
    ),
    Procedure(
        name="trigger_tag_automatic_creation",
        about="Makes the automatic tags that are due.",
        arguments=(TABLE,),
        run=_trigger_automatic_tags,
    ),
    Procedure(
        name="rollback_to",
        about="Makes an older snapshot the newest; later ones are lost.",
        arguments=(
            TABLE,
            Argument(
                name="snapshot_id", type="integer", about="the snapshot", aliases=("snapshot",)
            ),
            Argument(name="tag", about="instead, a tag of it", aliases=("tag_name",)),
            Argument(name="version", about="instead, a tag or a snapshot id"),
        ),
        run=_rollback,
        aliases=("rollback",),
        by_place=_by_version,
    ),
    Procedure(
        name="rollback_to_timestamp",
        about="Makes the newest snapshot committed at or before a time the newest.",
        arguments=(TABLE, Argument(name="timestamp", type="time", about="time", required=True)),
        run=_rollback_to_timestamp,
    ),
    Procedure(
        name="rollback_to_watermark",
        about="Makes the newest snapshot whose watermark is at most this the newest.",
        arguments=(
            TABLE,
            Argument(name="watermark", type="integer", about="epoch ms", required=True),
        ),
        run=_rollback_to_watermark,
    ),
    Procedure(
        name="create_branch",
        about="Makes a branch, empty or of a tag.",
        arguments=(
            TABLE,
            _BRANCH,
            Argument(name="tag", about="where it begins", aliases=("tag_name",)),
            Argument(
                name="ignore_if_exists", type="boolean", about="no error then", default="false"
            ),
        ),
        run=_create_branch,
    ),
    Procedure(
        name="delete_branch",
        about="Removes branches: `a,b`.",
        arguments=(TABLE, _BRANCH),
        run=_delete_branch,
    ),
    Procedure(
        name="rename_branch",
        about="Renames a branch.",
        arguments=(
            TABLE,
            Argument(name="from_branch", about="the branch", required=True),
            Argument(name="to_branch", about="new name", required=True),
        ),
        run=_rename_branch,
    ),
    Procedure(
        name="fast_forward",
        about="Lets main be what a branch is.",
        arguments=(TABLE, _BRANCH),
        run=_fast_forward,
    ),
    Procedure(
        name="reset_consumer",
        about="Sets what a consumer reads next, or removes the consumer.",
        arguments=(
            TABLE,
            Argument(name="consumer_id", about="the consumer", required=True),
            Argument(
                name="next_snapshot_id",
                type="integer",
                about="what it reads next; without, the consumer is removed",
            ),
        ),
        run=_reset_consumer,
    ),
    Procedure(
        name="clear_consumers",
        about="Removes consumers.",
        arguments=(
            TABLE,
            Argument(name="including_consumers", about="a regular expression", default=".*"),
            Argument(name="excluding_consumers", about="a regular expression of those that stay"),
        ),
        run=_clear_consumers,
    ),
    Procedure(
        name="alter_column_default_value",
        about="Sets the default of a column for rows written later.",
        arguments=(
            TABLE,
            Argument(name="column", about="the column", required=True),
            Argument(name="default_value", about="the value; without, there is none"),
        ),
        run=_alter_column_default,
    ),
    Procedure(
        name="alter_view_dialect",
        about="Adds, changes or drops the query that a view has for an engine.",
        arguments=(
            Argument(name="view", about="the view", required=True),
            Argument(name="action", about="`add`, `update` or `drop`", required=True),
            Argument(name="engine", about="the engine", default="lakeward"),
            Argument(name="query", about="the query"),
        ),
        run=_alter_view_dialect,
    ),
)
