# SPDX-License-Identifier: Apache-2.0
"""`lakeward table branch …` and `lakeward table rollback`: other lines of a table's history.

What takes history away that a stream wrote leaves a note for it (`taken_back`).
"""

import argparse

from ingest.cli.argument_values import parse_moment_ms, parse_positive
from ingest.cli.table_arguments import add_dry_run, add_verb, catalog_of, emit, table_of, tell
from ingest.observe.text_table import human_time
from ingest.state.parking import Parking
from ingest.state.rolled_back import note_taken_back, streams_of
from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import Snapshot
from storage.table.branches import (
    branch_names,
    create_branch,
    drop_branch,
    fast_forward,
    rename_branch,
)
from storage.table.retention.rollback import rollback_target, rollback_to
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags

__all__ = ["add_branch_commands"]

_BRANCH = """\
A branch is a line of snapshots beside the main one that shares its data files. Read it as
'TABLE$branch_NAME', write it as a table of that name."""

_FORWARD = """\
Main continues as the branch did: what main has since the branch began is lost. Stop writers of the
table first; a Lakeward pipeline is started again with `lakeward run --recover-offsets`."""

_ROLLBACK = """\
Makes an older snapshot the newest again. Later snapshots, their tags and their files are lost. Stop
writers of the table first. A Lakeward pipeline that writes the table is started again with
`lakeward run --recover-offsets`: it reads again what the table lost, and nothing twice for the
others. It refuses to start without, and a running one ends at its next commit."""

_ROLLBACK_EXAMPLES = """\
  lakeward table rollback /data/warehouse shop.orders --snapshot 17 --dry-run
  lakeward table rollback /data/warehouse shop.orders --tag before-import --writers-stopped
  lakeward table rollback /data/warehouse shop.orders --timestamp 2024-01-31T12:00:00
"""


def add_branch_commands(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `branch` and `rollback`; each verb sets `run`."""
    branch = verbs.add_parser("branch", help="branches: ls, create, delete, rename, forward")
    branch.description = _BRANCH
    words = branch.add_subparsers(dest="branch_verb", metavar="VERB", required=True)
    add_verb(words, "ls", "branches besides main", _list)
    create = add_verb(words, "create", "make a branch: empty, or at a tag or snapshot", _create)
    create.add_argument("name", metavar="NAME")
    start = create.add_mutually_exclusive_group()
    start.add_argument("--tag", metavar="NAME", help="begin with the snapshot of this tag")
    start.add_argument("--snapshot", type=parse_positive, metavar="N", help="begin with this one")
    create.add_argument(
        "--if-not-exists", action="store_true", help="do nothing when there is such a branch"
    )
    delete = add_verb(
        words, "delete", "remove branches; `lakeward orphans` removes their data", _delete
    )
    delete.add_argument("names", nargs="+", metavar="NAME")
    add_dry_run(delete)
    rename = add_verb(words, "rename", "give a branch another name; nobody may write it", _rename)
    rename.add_argument("name", metavar="NAME")
    rename.add_argument("new_name", metavar="NEW")
    forward = add_verb(
        words, "forward", "let main continue as a branch did", _forward, details=_FORWARD
    )
    forward.add_argument("name", metavar="NAME")
    _add_stopped(forward)
    add_dry_run(forward)
    rollback = add_verb(
        verbs,
        "rollback",
        "make an older snapshot the newest again",
        _rollback,
        details=_ROLLBACK,
        examples=_ROLLBACK_EXAMPLES,
    )
    target = rollback.add_mutually_exclusive_group(required=True)
    target.add_argument("--snapshot", type=parse_positive, metavar="N")
    target.add_argument("--tag", metavar="NAME")
    target.add_argument(
        "--timestamp",
        type=parse_moment_ms,
        metavar="TIME",
        help="the newest snapshot of this time, ISO 8601 (UTC unless it says otherwise)",
    )
    _add_stopped(rollback)
    add_dry_run(rollback)


def _add_stopped(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--writers-stopped",
        action="store_true",
        help="the pipeline that writes the table does not run now",
    )


def _list(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    rows = []
    for name in branch_names(table):
        newest = table.at_branch(name).latest_snapshot()
        time = None if newest is None else newest.time_ms
        shown = time if arguments.json or time is None else human_time(time)
        rows.append([name, None if newest is None else newest.id, shown])
    return emit(arguments, ["branch", "snapshot", "committed"], rows, "no branches")


def _create(arguments: argparse.Namespace) -> int:
    create_branch(
        table_of(arguments),
        arguments.name,
        tag=arguments.tag,
        snapshot_id=arguments.snapshot,
        ignore_if_exists=arguments.if_not_exists,
    )
    text = (
        f"branch {arguments.name} is there: read it as '{arguments.table}$branch_{arguments.name}'"
    )
    return tell(arguments, text, {"branch": arguments.name})


def _delete(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    branches = {name: table.at_branch(name).snapshots.ids() for name in arguments.names}
    for name, ids in branches.items():
        text = f"branch {name} with {len(ids)} snapshots"
        facts = {"branch": name, "snapshots": len(ids), "deleted": not arguments.dry_run}
        if arguments.dry_run:
            tell(arguments, f"{text} would be deleted (nothing was changed)", facts)
            continue
        drop_branch(table, name)
        tell(arguments, f"{text} is deleted", facts)
    return 0


def _rename(arguments: argparse.Namespace) -> int:
    rename_branch(table_of(arguments), arguments.name, arguments.new_name)
    text = f"branch {arguments.name} is called {arguments.new_name} now"
    return tell(arguments, text, {"branch": arguments.new_name, "before": arguments.name})


def _forward(arguments: argparse.Namespace) -> int:
    table = catalog_of(arguments).table(arguments.table)
    branch = table.at_branch(arguments.name)
    ids = branch.snapshots.ids()
    if not ids:
        raise InvalidRequestError("the branch has no snapshot", branch=arguments.name)
    newest = table.latest_snapshot()
    lost = 0 if newest is None else max(0, newest.id - ids[0] + 1)
    facts = {"branch": arguments.name, "from_snapshot": ids[0], "lost_snapshots": lost}
    if arguments.dry_run:
        text = f"main would lose {lost} snapshots from {ids[0]} on (nothing was changed)"
        return tell(arguments, text, facts)
    if newest is not None and _require_stopped(arguments, newest):
        # the schemas of main become those of the branch, and the note is to survive that
        note_taken_back(branch, newest, f"branch {arguments.name}")
        table = note_taken_back(table, newest, f"branch {arguments.name}")
    fast_forward(table, arguments.name)
    now = table.latest().latest_snapshot()
    text = f"main goes on at snapshot {0 if now is None else now.id}, as branch {arguments.name}"
    return tell(arguments, text, facts)


def _rollback(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    target = rollback_target(
        table, arguments.snapshot, tag=arguments.tag, timestamp_ms=arguments.timestamp
    )
    facts = _lost(table, target)
    if arguments.dry_run:
        text = f"would go back to snapshot {target.id} of {human_time(target.time_ms)} and lose "
        text += f"{facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags"
        return tell(arguments, f"{text} (nothing was changed)", facts)
    newest = table.latest_snapshot()
    if newest is not None and _require_stopped(arguments, newest):
        table = note_taken_back(table, newest, f"snapshot {target.id}")
    rollback_to(table, target.id)
    text = f"snapshot {target.id} of {human_time(target.time_ms)} is the newest now; "
    text += f"{facts['lost_snapshots']} snapshots and {facts['lost_tags']} tags are gone"
    return tell(arguments, text, facts)


def _lost(table: FileStoreTable, target: Snapshot) -> dict[str, int]:
    tags = sum(tag.snapshot.id > target.id for tag in all_tags(table))
    later = sum(one > target.id for one in table.snapshots.ids())
    return {"snapshot": target.id, "lost_snapshots": later, "lost_tags": tags}


def _require_stopped(arguments: argparse.Namespace, newest: Snapshot) -> bool:
    """Whether a stream writes the table, which somebody says is stopped."""
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
