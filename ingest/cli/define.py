# SPDX-License-Identifier: Apache-2.0
"""`lakeward table create|alter|…|tag|consumer|branch|rollback`."""

import re
from collections.abc import Sequence
from typing import Any

from ingest.cli.commands import (
    Arguments,
    Value,
    choose_one,
    combine,
    command,
    flag,
    group,
    option,
    positional,
    refuse,
)
from ingest.cli.parameters import (
    DRY_RUN,
    DURATION_MS,
    JSON,
    MOMENT_MS,
    NAMES,
    ONE_TABLE,
    PAIR,
    POSITIVE,
    WAREHOUSE,
    catalog_of,
    emit,
    emit_fact,
    table_of,
)
from ingest.config.choices import refuse_misspelt
from ingest.observe.text_table import human_time
from ingest.state.ownership import Parking
from ingest.state.stream_state import note_rollback, streams_of
from storage.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateComment,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
)
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import DataType, parse_type, type_to_json
from storage.table.branches import (
    create_branch,
    drop_branch,
    fast_forward,
    lost_by_forward,
    rename_branch,
    rollback_target,
    rollback_to,
)
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.retention.reachability import branch_names
from storage.table.table import FileStoreTable
from storage.table.table_rules import check_table
from storage.table.tags import all_tags, create_tag, delete_tag, get_tag, rename_tag, replace_tag

_CREATE_EXAMPLES = """\
Examples:
  lakeward table create /data/warehouse shop.orders "id BIGINT" "amount DECIMAL(10, 2)" \\
    --primary-key id --option bucket=4
  lakeward table create catalog.yaml logs.lines "line STRING" "dt STRING" --partitioned-by dt
"""

_ALTER_EXAMPLES = """\
Examples:
  lakeward table alter /data/warehouse shop.orders --add "note STRING" --drop old_note
  lakeward table alter /data/warehouse shop.orders --rename note=comment --type amount="BIGINT"
  lakeward table alter /data/warehouse shop.orders --add "a INT" --dry-run
"""


def _column(text: str) -> tuple[str, DataType]:
    """Parse `NAME TYPE`."""
    match = re.fullmatch(r"\s*(?:`([^`]+)`|([^\s`]+))\s+(\S.*)", text, re.DOTALL)
    if match is None:
        raise ValueError("expected a name and a type, such as `id BIGINT NOT NULL`")
    return match.group(1) or match.group(2), _type(match.group(3))


def _type(text: str) -> DataType:
    try:
        return parse_type(text.strip())
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error


def _typed(text: str) -> tuple[str, DataType]:
    """Parse `COLUMN=TYPE`."""
    name, equals, type_ = text.partition("=")
    if not equals or not name.strip():
        raise ValueError("expected COLUMN=TYPE")
    return name.strip(), _type(type_)


_COLUMN = Value(_column, "'NAME TYPE'")
_TYPED = Value(_typed, "COLUMN=TYPE")


@command(
    "create",
    WAREHOUSE,
    positional("table", help="database.table"),
    positional("columns", nargs=-1, required=True, type=_COLUMN, metavar="'NAME TYPE'..."),
    option("--primary-key", NAMES, "columns of the primary key", default=()),
    option("--partitioned-by", NAMES, "partition columns, in the order of the path", default=()),
    option("--option", PAIR, "option of the table, such as bucket=4", multiple=True),
    option("--comment", "TEXT", "what the table is for"),
    flag("--if-not-exists", "do nothing if the table exists"),
    DRY_RUN,
    JSON,
    examples=_CREATE_EXAMPLES,
)
def create(arguments: Arguments) -> int:
    """Create a table.

    A column is a name and a type: `id BIGINT NOT NULL`, `price DECIMAL(10, 2)`, `tags
    ARRAY<STRING>`. The database is created if it does not exist. Columns of the primary key become
    NOT NULL.
    """
    schema = new_schema(
        arguments.columns,
        primary_keys=arguments.primary_key,
        partition_keys=arguments.partitioned_by,
        options=dict(arguments.option),
        comment=arguments.comment,
    )
    for key, _ in arguments.option:
        refuse_misspelt(key)
    catalog, name = catalog_of(arguments), arguments.table
    exists = catalog.exists(name)
    if exists and not arguments.if_not_exists:
        raise AlreadyExistsError("the table exists already", table=name)
    check_table(schema)
    if not arguments.dry_run and not exists:
        catalog.create_database(name.partition(".")[0], ignore_if_exists=True)
        schema = catalog.create_table(name, schema, arguments.if_not_exists).schema
    state = "exists" if exists else _past_tense("created", arguments)
    return emit_fact(
        arguments, f"{name}: {state}", {"table": name, "result": state, **_facts(schema)}
    )


@command(
    "alter",
    ONE_TABLE,
    option("--add", _COLUMN, "add a column, which may be null", multiple=True),
    option("--drop", "COLUMN", "drop a column", multiple=True),
    option("--rename", PAIR, "rename a column: OLD=NEW", multiple=True),
    option("--type", _TYPED, "change the type of a column", multiple=True),
    option("--nullable", "COLUMN", "let a column be null", multiple=True),
    option("--column-comment", PAIR, "set the comment of a column: COLUMN=TEXT", multiple=True),
    option("--comment", "TEXT", "set the comment of the table; empty removes it"),
    DRY_RUN,
    examples=_ALTER_EXAMPLES,
)
def alter(arguments: Arguments) -> int:
    """Change the columns of a table.

    All changes of one call are one new version of the schema; if one of them is not allowed, none
    is made. Data files are not rewritten: older files are read in the new schema. A field of a row
    type is addressed by a path with dots: `address.city`.
    """
    changes: list[SchemaChange] = [
        *(RenameColumn(_path(old), new) for old, new in arguments.rename),
        *(DropColumn(_path(name)) for name in arguments.drop),
        *(UpdateType(_path(name), type_) for name, type_ in arguments.type),
        *(UpdateNullability(_path(name), True) for name in arguments.nullable),
        *(UpdateComment(_path(name), text or None) for name, text in arguments.column_comment),
        *(AddColumn(_path(name), type_) for name, type_ in arguments.add),
    ]
    if arguments.comment is not None:
        changes.append(UpdateTableComment(arguments.comment or None))
    if not changes:
        refuse("give at least one change, such as --add 'NAME TYPE'")
    return _change(arguments, changes)


@command(
    "set-option",
    ONE_TABLE,
    positional("options", nargs=-1, type=PAIR, metavar="[KEY=VALUE]..."),
    option("--reset", "KEY", "reset an option to its default", multiple=True),
    DRY_RUN,
    examples="Examples:\n"
    "  lakeward table set-option /data/warehouse shop.orders snapshot.time-retained=2h\n"
    "  lakeward table set-option /data/warehouse shop.orders --reset snapshot.time-retained\n",
)
def set_option(arguments: Arguments) -> int:
    """Set or reset options of a table.

    Options that are fixed when a table is created are refused. The options are listed in
    docs/reference/table-options.md.
    """
    for key, _ in arguments.options:
        refuse_misspelt(key)
    changes: list[SchemaChange] = [SetOption(key, value) for key, value in arguments.options]
    changes += [RemoveOption(key) for key in arguments.reset]
    if not changes:
        refuse("give KEY=VALUE, or --reset KEY")
    return _change(arguments, changes)


@command(
    "rename",
    WAREHOUSE,
    positional("table", help="database.table"),
    positional("new_name", metavar="NEW_NAME", help="database.table"),
    DRY_RUN,
    JSON,
    examples="Examples:\n  lakeward table rename /data/warehouse shop.orders shop.old_orders\n",
)
def rename(arguments: Arguments) -> int:
    """Rename a table, or move it to another database of the catalog.

    Its directory is renamed, so stop all writers first. Tables in an object store cannot be
    renamed: it has no directories.
    """
    catalog, old, new = catalog_of(arguments), arguments.table, arguments.new_name
    if not catalog.exists(old):
        raise NotFoundError("there is no such table", table=old)
    if catalog.exists(new):
        raise AlreadyExistsError("the table exists already", table=new)
    if not arguments.dry_run:
        catalog.rename_table(old, new)
    state = _past_tense("renamed", arguments)
    return emit_fact(arguments, f"{old}: {state} to {new}", {"table": new, "old": old})


_TABLE_OR_MISSING = combine(
    ONE_TABLE,
    flag("--if-exists", "do nothing if there is no such table"),
    DRY_RUN,
)


@command(
    "drop",
    _TABLE_OR_MISSING,
    examples="Examples:\n"
    "  lakeward table drop /data/warehouse shop.old_orders --dry-run\n"
    "  lakeward table drop catalog.yaml shop.old_orders --if-exists\n",
)
def drop(arguments: Arguments) -> int:
    """Drop a table with all its files.

    Snapshots, tags, branches and data are removed; this cannot be undone. Stop all writers first.
    """
    catalog, name = catalog_of(arguments), arguments.table
    exists = catalog.exists(name)
    if not exists and not arguments.if_exists:
        raise NotFoundError("there is no such table", table=name)
    newest = catalog.newest_snapshot(name) if exists else None
    rows = 0 if newest is None else newest.total_record_count
    if exists and not arguments.dry_run:
        catalog.drop_table(name, ignore_if_missing=arguments.if_exists)
    state = _past_tense("dropped", arguments) if exists else "there is no such table"
    facts = {"table": name, "result": state, "records": rows}
    return emit_fact(arguments, f"{name}: {state}" + (f", {rows} records" if exists else ""), facts)


def _change(arguments: Arguments, changes: Sequence[SchemaChange]) -> int:
    catalog, name = catalog_of(arguments), arguments.table
    table = catalog.table(name)
    schema = table.evolved(changes) if arguments.dry_run else table.alter(changes).schema
    state = _past_tense("altered", arguments)
    facts = {"table": name, "result": state, **_facts(schema)}
    return emit_fact(arguments, f"{name}: {state}, schema {schema.id}", facts)


def _past_tense(word: str, arguments: Arguments) -> str:
    return f"would be {word}" if arguments.dry_run else word


def _facts(schema: TableSchema) -> dict[str, object]:
    columns = {field.name: type_to_json(field.type) for field in schema.fields}
    return {"schema": schema.id, "columns": columns, "options": dict(schema.options)}


def _path(name: str) -> str | tuple[str, ...]:
    """A column, or a path into a row type."""
    return tuple(name.split(".")) if "." in name else name


# `lakeward table tag|consumer|branch|rollback`: tags, consumers, branches and rollback of a table.
#
# Commands that remove snapshots of a stream leave a marker for the stream (`rolled_back`).


_TAG_EXAMPLES = """\
Examples:
  lakeward table tag ls /data/warehouse shop.orders
  lakeward table tag create /data/warehouse shop.orders 2024-01-31
  lakeward table tag create /data/warehouse shop.orders audit --snapshot 17 --retain 90d
  lakeward table tag replace /data/warehouse shop.orders audit --snapshot 18
  lakeward table tag rename /data/warehouse shop.orders audit audit-2024
  lakeward table tag delete /data/warehouse shop.orders audit --dry-run
"""

_CONSUMER_EXAMPLES = """\
Examples:
  lakeward table consumer ls /data/warehouse shop.orders
  lakeward table consumer set /data/warehouse shop.orders reports 17
  lakeward table consumer delete /data/warehouse shop.orders reports --dry-run
"""

_BRANCH_EXAMPLES = """\
Examples:
  lakeward table branch create /data/warehouse shop.orders test --tag 2024-01-31
  lakeward table branch ls /data/warehouse shop.orders
  lakeward table branch rename /data/warehouse shop.orders test trial
  lakeward table branch forward /data/warehouse shop.orders trial --dry-run
  lakeward table branch delete /data/warehouse shop.orders trial --dry-run
"""

_ROLLBACK_EXAMPLES = """\
Examples:
  lakeward table rollback /data/warehouse shop.orders --snapshot 17 --dry-run
  lakeward table rollback /data/warehouse shop.orders --tag before-import --writers-stopped
  lakeward table rollback /data/warehouse shop.orders --timestamp 2024-01-31T12:00:00
"""

tag = group(
    "tag",
    """\
Manage tags.

A tag is a name for a snapshot and keeps it from expiring. Safe while a daemon runs.""",
    examples=_TAG_EXAMPLES,
)

consumer = group(
    "consumer",
    """\
Manage the progress of streaming readers.

A consumer stores the next snapshot that a streaming reader reads; snapshots from there on do not
expire. Readers update it themselves. Use these commands to reset a consumer, or to delete that of
an abandoned reader.""",
    examples=_CONSUMER_EXAMPLES,
)

branch = group(
    "branch",
    """\
Manage branches of a table.

A branch is a separate line of snapshots that shares data files with main. Read it as
'TABLE$branch_NAME', write it as a table of that name.""",
    examples=_BRANCH_EXAMPLES,
)

_NAME = positional("name", metavar="NAME", help="name of the tag, consumer or branch")
_NAMES = positional("names", nargs=-1, required=True, metavar="NAME...", help="one or more names")
_NEW_NAME = positional("new_name", metavar="NEW", help="the new name")
_STOPPED = flag("--writers-stopped", "confirm that the pipeline of the table is stopped")
_TAG_TARGET = combine(
    _NAME,
    option("--snapshot", POSITIVE, "snapshot id (default: the newest)"),
    option("--retain", DURATION_MS, "retention of the tag, such as 90d (default: unlimited)"),
)


@command("ls", ONE_TABLE, into=tag)
def list_tags(arguments: Arguments) -> int:
    """List tags with their snapshots."""
    head = ["tag", "snapshot", "schema", "committed", "records", "retain_s"]
    rows: list[list[Any]] = []
    for entry in all_tags(table_of(arguments)):
        snapshot = entry.snapshot
        time = snapshot.time_ms if arguments.json else human_time(snapshot.time_ms)
        retain_s = None if entry.time_retained_ms is None else entry.time_retained_ms / 1000
        records = snapshot.total_record_count
        rows.append([entry.name, snapshot.id, snapshot.schema_id, time, records, retain_s])
    return emit(arguments, head, rows, "no tags")


@command(
    "create",
    ONE_TABLE,
    _TAG_TARGET,
    flag("--if-not-exists", "do nothing if the tag exists"),
    into=tag,
)
def create_named_tag(arguments: Arguments) -> int:
    """Create a tag."""
    entry = create_tag(
        table_of(arguments),
        arguments.name,
        arguments.snapshot,
        time_retained_ms=arguments.retain,
        ignore_if_exists=arguments.if_not_exists,
    )
    text = f"tag {entry.name} is created for snapshot {entry.snapshot.id}"
    return emit_fact(arguments, text, {"tag": entry.name, "snapshot": entry.snapshot.id})


@command("replace", ONE_TABLE, _TAG_TARGET, into=tag)
def move_tag(arguments: Arguments) -> int:
    """Point a tag to another snapshot."""
    entry = replace_tag(
        table_of(arguments), arguments.name, arguments.snapshot, time_retained_ms=arguments.retain
    )
    text = f"tag {entry.name} now points to snapshot {entry.snapshot.id}"
    return emit_fact(arguments, text, {"tag": entry.name, "snapshot": entry.snapshot.id})


@command("delete", ONE_TABLE, _NAMES, DRY_RUN, into=tag)
def delete_tags(arguments: Arguments) -> int:
    """Delete tags, and the files that only they reference."""
    table = table_of(arguments)
    for entry in [get_tag(table, name) for name in arguments.names]:
        if not arguments.dry_run:
            delete_tag(table, entry.name)
        text = f"tag {entry.name} of snapshot {entry.snapshot.id}"
        facts = {"tag": entry.name, "snapshot": entry.snapshot.id}
        _emit_deleted(arguments, text, facts)
    return 0


def _emit_deleted(arguments: Arguments, what: str, facts: dict[str, Any]) -> None:
    dry_run = arguments.dry_run
    text = "would be deleted (nothing was changed)" if dry_run else "is deleted"
    emit_fact(arguments, f"{what} {text}", {**facts, "deleted": not dry_run})


@command("rename", ONE_TABLE, _NAME, _NEW_NAME, into=tag)
def name_tag(arguments: Arguments) -> int:
    """Rename a tag."""
    rename_tag(table_of(arguments), arguments.name, arguments.new_name)
    text = f"tag {arguments.name} is renamed to {arguments.new_name}"
    return emit_fact(arguments, text, {"tag": arguments.new_name, "before": arguments.name})


@command("ls", ONE_TABLE, into=consumer)
def list_consumers(arguments: Arguments) -> int:
    """List consumers and the next snapshot of each."""
    rows = [list(item) for item in all_consumers(table_of(arguments)).items()]
    return emit(arguments, ["consumer", "next_snapshot"], rows, "no consumers")


@command(
    "set",
    ONE_TABLE,
    _NAME,
    positional("next_snapshot", type=POSITIVE, metavar="SNAPSHOT", help="next snapshot to read"),
    into=consumer,
)
def set_consumer(arguments: Arguments) -> int:
    """Reset a consumer to a snapshot."""
    write_consumer(table_of(arguments), arguments.name, arguments.next_snapshot)
    text = f"consumer {arguments.name} continues at snapshot {arguments.next_snapshot}"
    facts = {"consumer": arguments.name, "next_snapshot": arguments.next_snapshot}
    return emit_fact(arguments, text, facts)


@command("delete", ONE_TABLE, _NAMES, DRY_RUN, into=consumer)
def delete_consumers(arguments: Arguments) -> int:
    """Delete consumers."""
    table = table_of(arguments)
    next_snapshots = all_consumers(table)
    for name in arguments.names:
        if name not in next_snapshots:
            raise NotFoundError("no such consumer", consumer=name, table=arguments.table)
    for name in arguments.names:
        if not arguments.dry_run:
            delete_consumer(table, name)
        text = f"consumer {name} (next snapshot {next_snapshots[name]})"
        facts = {"consumer": name, "next_snapshot": next_snapshots[name]}
        _emit_deleted(arguments, text, facts)
    return 0


@command("ls", ONE_TABLE, into=branch)
def list_branches(arguments: Arguments) -> int:
    """List branches other than main."""
    table = table_of(arguments)
    rows = []
    for name in branch_names(table):
        newest = table.at_branch(name).latest_snapshot()
        time = None if newest is None else newest.time_ms
        commit_time = time if arguments.json or time is None else human_time(time)
        rows.append([name, None if newest is None else newest.id, commit_time])
    return emit(arguments, ["branch", "snapshot", "committed"], rows, "no branches")


@command(
    "create",
    ONE_TABLE,
    _NAME,
    option("--tag", "NAME", "start from the snapshot of this tag"),
    option("--snapshot", POSITIVE, "start from this snapshot"),
    flag("--if-not-exists", "do nothing if the branch exists"),
    into=branch,
)
def create_named_branch(arguments: Arguments) -> int:
    """Create a branch: empty, or from a tag or snapshot."""
    choose_one(arguments, "tag", "snapshot")
    create_branch(
        table_of(arguments),
        arguments.name,
        tag=arguments.tag,
        snapshot_id=arguments.snapshot,
        ignore_if_exists=arguments.if_not_exists,
    )
    text = f"branch {arguments.name} exists: read it as '{arguments.table}$branch_{arguments.name}'"
    return emit_fact(arguments, text, {"branch": arguments.name})


@command("delete", ONE_TABLE, _NAMES, DRY_RUN, into=branch)
def delete_branches(arguments: Arguments) -> int:
    """Delete branches; `lakeward orphans` removes their data files."""
    table = table_of(arguments)
    branches = {name: table.at_branch(name).snapshots.ids() for name in arguments.names}
    for name, ids in branches.items():
        if not arguments.dry_run:
            drop_branch(table, name)
        facts = {"branch": name, "snapshots": len(ids)}
        _emit_deleted(arguments, f"branch {name} with {len(ids)} snapshots", facts)
    return 0


@command("rename", ONE_TABLE, _NAME, _NEW_NAME, into=branch)
def name_branch(arguments: Arguments) -> int:
    """Rename a branch; stop its writers first."""
    rename_branch(table_of(arguments), arguments.name, arguments.new_name)
    text = f"branch {arguments.name} is renamed to {arguments.new_name}"
    return emit_fact(arguments, text, {"branch": arguments.new_name, "before": arguments.name})


@command("forward", ONE_TABLE, _NAME, _STOPPED, DRY_RUN, into=branch)
def forward_main(arguments: Arguments) -> int:
    """Fast-forward main to a branch.

    Snapshots of main since the branch was created are deleted; all, if the branch's first ones have
    expired. Stop all writers first; then start pipelines with `lakeward run --recover-offsets`.
    """
    table = catalog_of(arguments).table(arguments.table)
    source = table.at_branch(arguments.name)
    ids = source.snapshots.ids()
    if not ids:
        raise InvalidRequestError("the branch has no snapshot", branch=arguments.name)
    newest = table.latest_snapshot()
    lost = lost_by_forward(table, source.snapshots.read(ids[0]))
    facts = {"branch": arguments.name, "from_snapshot": ids[0], "lost_snapshots": len(lost)}
    if arguments.dry_run:
        text = f"main would lose {len(lost)} snapshots (nothing was changed)"
        return emit_fact(arguments, text, facts)
    if newest is not None and _require_stopped(arguments, newest):
        # main takes over the schemas of the branch, so the branch needs the note too
        note_rollback(source, newest, f"branch {arguments.name}")
        table = note_rollback(table, newest, f"branch {arguments.name}")
    fast_forward(table, arguments.name)
    newest = table.latest().latest_snapshot()
    text = f"main is fast-forwarded to branch {arguments.name}"
    text += "" if newest is None else f", newest snapshot {newest.id}"
    return emit_fact(arguments, text, facts)


@command(
    "rollback",
    ONE_TABLE,
    option("--snapshot", POSITIVE, "roll back to this snapshot"),
    option("--tag", "NAME", "roll back to the snapshot of this tag"),
    option(
        "--timestamp", MOMENT_MS, "the newest snapshot at this time, ISO 8601 (UTC without a zone)"
    ),
    _STOPPED,
    DRY_RUN,
    examples=_ROLLBACK_EXAMPLES,
)
def rollback(arguments: Arguments) -> int:
    """Roll a table back to an older snapshot.

    Later snapshots, their tags and their files are deleted. Stop all writers of the table first.
    Restart a Lakeward pipeline that writes the table with `lakeward run --recover-offsets`: it
    reads the deleted rows again, and no row of other tables twice. Without that option it refuses
    to start, and a running one stops at its next commit.
    """
    choose_one(arguments, "snapshot", "tag", "timestamp", required=True)
    table = table_of(arguments)
    target = rollback_target(
        table, arguments.snapshot, tag=arguments.tag, timestamp_ms=arguments.timestamp
    )
    facts = _lost_counts(table, target)
    if arguments.dry_run:
        text = f"would roll back to snapshot {target.id} of {human_time(target.time_ms)} and "
        text += f"delete {facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags"
        return emit_fact(arguments, f"{text} (nothing was changed)", facts)
    newest = table.latest_snapshot()
    if newest is not None and _require_stopped(arguments, newest):
        table = note_rollback(table, newest, f"snapshot {target.id}")
    rollback_to(table, target.id)
    text = f"rolled back to snapshot {target.id} of {human_time(target.time_ms)}; "
    text += f"{facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags are deleted"
    return emit_fact(arguments, text, facts)


def _lost_counts(table: FileStoreTable, target: Snapshot) -> dict[str, int]:
    tags = sum(tag.snapshot.id > target.id for tag in all_tags(table))
    snapshots = sum(number > target.id for number in table.snapshots.ids())
    return {"snapshot": target.id, "lost_snapshots": snapshots, "lost_tags": tags}


def _require_stopped(arguments: Arguments, newest: Snapshot) -> bool:
    """Return whether a stream writes the table; refuse that without --writers-stopped."""
    streams = streams_of(newest)
    if streams and not arguments.writers_stopped:
        raise InvalidRequestError(
            "a pipeline writes this table",
            hint="stop it, repeat the command with --writers-stopped, then restart the pipeline "
            "with `lakeward run --recover-offsets`",
            table=arguments.table,
            pipelines=", ".join(streams),
        )
    catalog = catalog_of(arguments)
    for stream in streams:
        parking = Parking(catalog.file_io, catalog.warehouse, stream)
        parking.load()
        if arguments.table in parking.parked():
            raise InvalidRequestError(
                "the table is parked",
                detail="after a rollback, `resume` would not read the deleted rows again",
                hint="resume it first (`lakeward resume`), then stop the pipeline",
                table=arguments.table,
                pipeline=stream,
            )
    return bool(streams)
