# SPDX-License-Identifier: Apache-2.0
"""`lakeward table tag|consumer|branch|rollback`: which snapshots a table has and keeps.

Commands that retract history which a stream wrote leave a note for the stream (`rolled_back`).
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

__all__ = ["branch", "consumer", "rollback", "tag"]

_TAG_EXAMPLES = """\
Examples:
  lakeward table tag create /data/warehouse shop.orders 2024-01-31
  lakeward table tag create /data/warehouse shop.orders audit --snapshot 17 --retain 90d
  lakeward table tag delete /data/warehouse shop.orders audit --dry-run
"""

_CONSUMER_EXAMPLES = """\
Examples:
  lakeward table consumer ls /data/warehouse shop.orders
  lakeward table consumer set /data/warehouse shop.orders reports 17
"""

_BRANCH_EXAMPLES = """\
Examples:
  lakeward table branch create /data/warehouse shop.orders test --tag 2024-01-31
  lakeward table branch forward /data/warehouse shop.orders test --dry-run
"""

_FORWARD = """\
Let main continue as a branch did.

What main has since the branch began is lost. Stop writers of the table first; a Lakeward pipeline
is started again with `lakeward run --recover-offsets`."""

_ROLLBACK = """\
Make an older snapshot the newest again.

Later snapshots, their tags and their files are lost. Stop writers of the table first. A Lakeward
pipeline that writes the table is started again with `lakeward run --recover-offsets`: it reads
again what the table lost, and nothing twice for the others. It refuses to start without, and a
running one ends at its next commit."""

_ROLLBACK_EXAMPLES = """\
Examples:
  lakeward table rollback /data/warehouse shop.orders --snapshot 17 --dry-run
  lakeward table rollback /data/warehouse shop.orders --tag before-import --writers-stopped
  lakeward table rollback /data/warehouse shop.orders --timestamp 2024-01-31T12:00:00
"""

tag = group(
    "tag",
    """\
Names for snapshots.

A tag keeps a snapshot readable by a name, whatever expires. Safe beside a daemon.""",
    examples=_TAG_EXAMPLES,
)

consumer = group(
    "consumer",
    """\
Progress of streaming readers.

A consumer is how far a streaming reader has come: snapshots from there on do not expire. Readers
set theirs by themselves; here one is moved, or removed when its reader will not come back.""",
    examples=_CONSUMER_EXAMPLES,
)

branch = group(
    "branch",
    """\
Branches of a table.

A branch is a line of snapshots beside the main one that shares its data files. Read it as
'TABLE$branch_NAME', write it as a table of that name.""",
    examples=_BRANCH_EXAMPLES,
)

_NAME = positional("name", metavar="NAME", help="of the tag, consumer or branch")
_NAMES = positional("names", nargs=-1, required=True, metavar="NAME...", help="one or more")
_NEW_NAME = positional("new_name", metavar="NEW", help="the new name")
_STOPPED = flag("--writers-stopped", "the pipeline that writes the table does not run now")
_TAG_TARGET = combine(
    _NAME,
    option("--snapshot", POSITIVE, "default: the newest"),
    option("--retain", DURATION_MS, "remove it after this time, such as 90d (default: keep it)"),
)


@command("ls", "List tags with their snapshots.", ONE_TABLE, examples=_TAG_EXAMPLES, into=tag)
def list_tags(arguments: Arguments) -> int:
    """Print tags."""
    head = ["tag", "snapshot", "schema", "committed", "records", "retain_s"]
    rows: list[list[Any]] = []
    for found in all_tags(table_of(arguments)):
        one = found.snapshot
        time = one.time_ms if arguments.json else human_time(one.time_ms)
        kept = None if found.time_retained_ms is None else found.time_retained_ms / 1000
        rows.append([found.name, one.id, one.schema_id, time, one.total_record_count, kept])
    return emit(arguments, head, rows, "no tags")


@command(
    "create",
    "Make a tag.",
    ONE_TABLE,
    _TAG_TARGET,
    flag("--if-not-exists", "do nothing when there is such a tag"),
    examples=_TAG_EXAMPLES,
    into=tag,
)
def make_tag(arguments: Arguments) -> int:
    """Make a tag."""
    made = create_tag(
        table_of(arguments),
        arguments.name,
        arguments.snapshot,
        time_retained_ms=arguments.retain,
        ignore_if_exists=arguments.if_not_exists,
    )
    text = f"tag {made.name} keeps snapshot {made.snapshot.id}"
    return emit_fact(arguments, text, {"tag": made.name, "snapshot": made.snapshot.id})


@command(
    "replace",
    "Let a tag keep another snapshot.",
    ONE_TABLE,
    _TAG_TARGET,
    examples=_TAG_EXAMPLES,
    into=tag,
)
def move_tag(arguments: Arguments) -> int:
    """Move a tag."""
    made = replace_tag(
        table_of(arguments), arguments.name, arguments.snapshot, time_retained_ms=arguments.retain
    )
    text = f"tag {made.name} keeps snapshot {made.snapshot.id} now"
    return emit_fact(arguments, text, {"tag": made.name, "snapshot": made.snapshot.id})


@command(
    "delete",
    "Remove tags, and the files that only they keep.",
    ONE_TABLE,
    _NAMES,
    DRY_RUN,
    examples=_TAG_EXAMPLES,
    into=tag,
)
def delete_tags(arguments: Arguments) -> int:
    """Remove tags."""
    table = table_of(arguments)
    tags = [get_tag(table, name) for name in arguments.names]
    for one in tags:
        if not arguments.dry_run:
            delete_tag(table, one.name)
        text = f"tag {one.name} of snapshot {one.snapshot.id}"
        facts = {"tag": one.name, "snapshot": one.snapshot.id, "deleted": not arguments.dry_run}
        emit_fact(arguments, _deleted(text, arguments), facts)
    return 0


def _deleted(what: str, arguments: Arguments) -> str:
    if arguments.dry_run:
        return f"{what} would be deleted (nothing was changed)"
    return f"{what} is deleted"


@command(
    "rename",
    "Give a tag another name.",
    ONE_TABLE,
    _NAME,
    _NEW_NAME,
    examples=_TAG_EXAMPLES,
    into=tag,
)
def name_tag(arguments: Arguments) -> int:
    """Rename a tag."""
    rename_tag(table_of(arguments), arguments.name, arguments.new_name)
    text = f"tag {arguments.name} is called {arguments.new_name} now"
    return emit_fact(arguments, text, {"tag": arguments.new_name, "before": arguments.name})


@command(
    "ls",
    "List consumers and the next snapshot of each.",
    ONE_TABLE,
    examples=_CONSUMER_EXAMPLES,
    into=consumer,
)
def list_consumers(arguments: Arguments) -> int:
    """Print consumers."""
    rows = [list(one) for one in all_consumers(table_of(arguments)).items()]
    return emit(arguments, ["consumer", "next_snapshot"], rows, "no consumers")


@command(
    "set",
    "Let a consumer continue at a snapshot.",
    ONE_TABLE,
    _NAME,
    positional("next_snapshot", type=POSITIVE, metavar="SNAPSHOT", help="to read next"),
    examples=_CONSUMER_EXAMPLES,
    into=consumer,
)
def set_consumer(arguments: Arguments) -> int:
    """Move a consumer."""
    write_consumer(table_of(arguments), arguments.name, arguments.next_snapshot)
    text = f"consumer {arguments.name} goes on at snapshot {arguments.next_snapshot}"
    facts = {"consumer": arguments.name, "next_snapshot": arguments.next_snapshot}
    return emit_fact(arguments, text, facts)


@command(
    "delete",
    "Remove consumers.",
    ONE_TABLE,
    _NAMES,
    DRY_RUN,
    examples=_CONSUMER_EXAMPLES,
    into=consumer,
)
def delete_consumers(arguments: Arguments) -> int:
    """Remove consumers."""
    table = table_of(arguments)
    known = all_consumers(table)
    for name in arguments.names:
        if name not in known:
            raise NotFoundError("there is no such consumer", consumer=name, table=arguments.table)
    for name in arguments.names:
        if not arguments.dry_run:
            delete_consumer(table, name)
        text = f"consumer {name}, which was to go on at snapshot {known[name]},"
        facts = {"consumer": name, "next_snapshot": known[name], "deleted": not arguments.dry_run}
        emit_fact(arguments, _deleted(text, arguments), facts)
    return 0


@command("ls", "List branches besides main.", ONE_TABLE, examples=_BRANCH_EXAMPLES, into=branch)
def list_branches(arguments: Arguments) -> int:
    """Print branches."""
    table = table_of(arguments)
    rows = []
    for name in branch_names(table):
        newest = table.at_branch(name).latest_snapshot()
        time = None if newest is None else newest.time_ms
        shown = time if arguments.json or time is None else human_time(time)
        rows.append([name, None if newest is None else newest.id, shown])
    return emit(arguments, ["branch", "snapshot", "committed"], rows, "no branches")


@command(
    "create",
    "Make a branch: empty, or at a tag or snapshot.",
    ONE_TABLE,
    _NAME,
    option("--tag", "NAME", "begin with the snapshot of this tag"),
    option("--snapshot", POSITIVE, "begin with this one"),
    flag("--if-not-exists", "do nothing when there is such a branch"),
    examples=_BRANCH_EXAMPLES,
    into=branch,
)
def make_branch(arguments: Arguments) -> int:
    """Make a branch."""
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


@command(
    "delete",
    "Remove branches; `lakeward orphans` removes their data.",
    ONE_TABLE,
    _NAMES,
    DRY_RUN,
    examples=_BRANCH_EXAMPLES,
    into=branch,
)
def delete_branches(arguments: Arguments) -> int:
    """Remove branches."""
    table = table_of(arguments)
    branches = {name: table.at_branch(name).snapshots.ids() for name in arguments.names}
    for name, ids in branches.items():
        text = f"branch {name} with {len(ids)} snapshots"
        facts = {"branch": name, "snapshots": len(ids), "deleted": not arguments.dry_run}
        if arguments.dry_run:
            emit_fact(arguments, f"{text} would be deleted (nothing was changed)", facts)
            continue
        drop_branch(table, name)
        emit_fact(arguments, f"{text} is deleted", facts)
    return 0


@command(
    "rename",
    "Give a branch another name; nothing may write it meanwhile.",
    ONE_TABLE,
    _NAME,
    _NEW_NAME,
    examples=_BRANCH_EXAMPLES,
    into=branch,
)
def name_branch(arguments: Arguments) -> int:
    """Rename a branch."""
    rename_branch(table_of(arguments), arguments.name, arguments.new_name)
    text = f"branch {arguments.name} is called {arguments.new_name} now"
    return emit_fact(arguments, text, {"branch": arguments.new_name, "before": arguments.name})


@command(
    "forward", _FORWARD, ONE_TABLE, _NAME, _STOPPED, DRY_RUN, examples=_BRANCH_EXAMPLES, into=branch
)
def forward_main(arguments: Arguments) -> int:
    """Continue main as a branch."""
    table = catalog_of(arguments).table(arguments.table)
    source = table.at_branch(arguments.name)
    ids = source.snapshots.ids()
    if not ids:
        raise InvalidRequestError("the branch has no snapshot", branch=arguments.name)
    newest = table.latest_snapshot()
    lost = 0 if newest is None else max(0, newest.id - ids[0] + 1)
    facts = {"branch": arguments.name, "from_snapshot": ids[0], "lost_snapshots": lost}
    if arguments.dry_run:
        text = f"main would lose {lost} snapshots from {ids[0]} on (nothing was changed)"
        return emit_fact(arguments, text, facts)
    if newest is not None and _require_stopped(arguments, newest):
        # the schemas of main become those of the branch, and the note is to survive that
        note_rollback(source, newest, f"branch {arguments.name}")
        table = note_rollback(table, newest, f"branch {arguments.name}")
    fast_forward(table, arguments.name)
    now = table.latest().latest_snapshot()
    text = f"main goes on at snapshot {0 if now is None else now.id}, as branch {arguments.name}"
    return emit_fact(arguments, text, facts)


@command(
    "rollback",
    _ROLLBACK,
    ONE_TABLE,
    option("--snapshot", POSITIVE, "this one"),
    option("--tag", "NAME", "the snapshot of this tag"),
    option(
        "--timestamp", MOMENT_MS, "the newest snapshot of this time, ISO 8601 (UTC without a zone)"
    ),
    _STOPPED,
    DRY_RUN,
    examples=_ROLLBACK_EXAMPLES,
)
def rollback(arguments: Arguments) -> int:
    """Take a table back."""
    choose_one(arguments, "snapshot", "tag", "timestamp", required=True)
    table = table_of(arguments)
    target = rollback_target(
        table, arguments.snapshot, tag=arguments.tag, timestamp_ms=arguments.timestamp
    )
    facts = _lost(table, target)
    if arguments.dry_run:
        text = f"would go back to snapshot {target.id} of {human_time(target.time_ms)} and lose "
        text += f"{facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags"
        return emit_fact(arguments, f"{text} (nothing was changed)", facts)
    newest = table.latest_snapshot()
    if newest is not None and _require_stopped(arguments, newest):
        table = note_rollback(table, newest, f"snapshot {target.id}")
    rollback_to(table, target.id)
    text = f"snapshot {target.id} of {human_time(target.time_ms)} is the newest now; "
    text += f"{facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags are gone"
    return emit_fact(arguments, text, facts)


def _lost(table: FileStoreTable, target: Snapshot) -> dict[str, int]:
    tags = sum(tag.snapshot.id > target.id for tag in all_tags(table))
    later = sum(one > target.id for one in table.snapshots.ids())
    return {"snapshot": target.id, "lost_snapshots": later, "lost_tags": tags}


def _require_stopped(arguments: Arguments, newest: Snapshot) -> bool:
    """Whether a stream writes the table; refused unless --writers-stopped is given."""
    streams = streams_of(newest)
    if streams and not arguments.writers_stopped:
        raise InvalidRequestError(
            "a pipeline writes this table",
            hint="stop it, repeat with --writers-stopped, and start it with "
            "`lakeward run --recover-offsets`",
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
                detail="when it is resumed, what it loses now would not be read again",
                hint="resume it first (`lakeward resume`), then stop the pipeline",
                table=arguments.table,
                pipeline=stream,
            )
    return bool(streams)
