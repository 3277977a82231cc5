# SPDX-License-Identifier: Apache-2.0
"""`lakeward table tag|consumer|branch|rollback`: tags, consumers, branches and rollback of a table.

Commands that remove snapshots of a stream leave a marker for the stream (`rolled_back`).
"""

from typing import Any

from ingest.cli.commands import (
    Arguments,
    choose_one,
    combine,
    command,
    flag,
    group,
    option,
    positional,
)
from ingest.cli.parameters import (
    DRY_RUN,
    DURATION_MS,
    MOMENT_MS,
    ONE_TABLE,
    POSITIVE,
    catalog_of,
    emit,
    emit_fact,
    table_of,
)
from ingest.observe.text_table import human_time
from ingest.state.parking import Parking
from ingest.state.rolled_back import note_rollback, streams_of
from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.branches import (
    branch_names,
    create_branch,
    drop_branch,
    fast_forward,
    rename_branch,
)
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.retention.rollback import rollback_target, rollback_to
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags, create_tag, delete_tag, get_tag, rename_tag, replace_tag

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

    Snapshots of main since the branch was created are deleted. Stop all writers of the table first,
    and restart a Lakeward pipeline with `lakeward run --recover-offsets`.
    """
    table = catalog_of(arguments).table(arguments.table)
    source = table.at_branch(arguments.name)
    ids = source.snapshots.ids()
    if not ids:
        raise InvalidRequestError("the branch has no snapshot", branch=arguments.name)
    newest = table.latest_snapshot()
    lost_count = 0 if newest is None else max(0, newest.id - ids[0] + 1)
    facts = {"branch": arguments.name, "from_snapshot": ids[0], "lost_snapshots": lost_count}
    if arguments.dry_run:
        text = f"main would lose {lost_count} snapshots since {ids[0]} (nothing was changed)"
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
