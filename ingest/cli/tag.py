# SPDX-License-Identifier: Apache-2.0
"""`lakeward table tag …` and `lakeward table consumer …`: what keeps snapshots from expiring."""

import argparse
from typing import Any

from ingest.cli.argument_values import parse_duration_ms, parse_positive
from ingest.cli.table_arguments import add_dry_run, add_verb, emit, table_of, tell
from ingest.observe.text_table import human_time
from storage.errors import NotFoundError
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.tags import all_tags, create_tag, delete_tag, get_tag, rename_tag, replace_tag

__all__ = ["add_tag_commands"]

_TAG = """A tag keeps a snapshot readable by a name, whatever expires. Safe beside a daemon."""

_CONSUMER = """\
A consumer is how far a streaming reader has come: snapshots from there on do not expire. Readers
set theirs by themselves; here one is moved, or removed when its reader will not come back."""


def add_tag_commands(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tag` and `consumer`; each verb sets `run`."""
    tag = verbs.add_parser("tag", help="names for snapshots: ls, create, delete, rename, replace")
    tag.description = _TAG
    words = tag.add_subparsers(dest="tag_verb", metavar="VERB", required=True)
    add_verb(words, "ls", "tags with their snapshots", _list)
    create = add_verb(
        words,
        "create",
        "make a tag",
        _create,
        examples=_CREATE_EXAMPLES,
    )
    _add_target(create)
    create.add_argument(
        "--if-not-exists", action="store_true", help="do nothing when there is such a tag"
    )
    replace = add_verb(words, "replace", "let a tag keep another snapshot", _replace)
    _add_target(replace)
    delete = add_verb(words, "delete", "remove tags, and the files that only they keep", _delete)
    delete.add_argument("names", nargs="+", metavar="NAME")
    add_dry_run(delete)
    rename = add_verb(words, "rename", "give a tag another name", _rename)
    rename.add_argument("name", metavar="NAME")
    rename.add_argument("new_name", metavar="NEW")

    consumer = verbs.add_parser("consumer", help="progress of streaming readers: ls, set, delete")
    consumer.description = _CONSUMER
    words = consumer.add_subparsers(dest="consumer_verb", metavar="VERB", required=True)
    add_verb(words, "ls", "consumers and the next snapshot of each", _consumers)
    move = add_verb(words, "set", "let a consumer go on at a snapshot", _set_consumer)
    move.add_argument("name", metavar="NAME")
    move.add_argument("next_snapshot", type=parse_positive, metavar="SNAPSHOT")
    remove = add_verb(words, "delete", "remove consumers", _delete_consumers)
    remove.add_argument("names", nargs="+", metavar="NAME")
    add_dry_run(remove)


_CREATE_EXAMPLES = """\
  lakeward table tag create /data/warehouse shop.orders 2024-01-31
  lakeward table tag create /data/warehouse shop.orders audit --snapshot 17 --retain 90d
"""


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--snapshot", type=parse_positive, metavar="N", help="default: the newest")
    parser.add_argument(
        "--retain",
        type=parse_duration_ms,
        metavar="TIME",
        help="remove it after this time, such as 90d (default: keep it)",
    )


def _list(arguments: argparse.Namespace) -> int:
    head = ["tag", "snapshot", "schema", "committed", "records", "retain_s"]
    rows: list[list[Any]] = []
    for tag in all_tags(table_of(arguments)):
        one = tag.snapshot
        time = one.time_ms if arguments.json else human_time(one.time_ms)
        kept = None if tag.time_retained_ms is None else tag.time_retained_ms / 1000
        rows.append([tag.name, one.id, one.schema_id, time, one.total_record_count, kept])
    return emit(arguments, head, rows, "no tags")


def _create(arguments: argparse.Namespace) -> int:
    tag = create_tag(
        table_of(arguments),
        arguments.name,
        arguments.snapshot,
        time_retained_ms=arguments.retain,
        ignore_if_exists=arguments.if_not_exists,
    )
    text = f"tag {tag.name} keeps snapshot {tag.snapshot.id}"
    return tell(arguments, text, {"tag": tag.name, "snapshot": tag.snapshot.id})


def _replace(arguments: argparse.Namespace) -> int:
    tag = replace_tag(
        table_of(arguments),
        arguments.name,
        arguments.snapshot,
        time_retained_ms=arguments.retain,
    )
    text = f"tag {tag.name} keeps snapshot {tag.snapshot.id} now"
    return tell(arguments, text, {"tag": tag.name, "snapshot": tag.snapshot.id})


def _delete(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    tags = [get_tag(table, name) for name in arguments.names]
    for tag in tags:
        if not arguments.dry_run:
            delete_tag(table, tag.name)
        text = f"tag {tag.name} of snapshot {tag.snapshot.id}"
        facts = {"tag": tag.name, "snapshot": tag.snapshot.id, "deleted": not arguments.dry_run}
        tell(arguments, _deleted(text, arguments), facts)
    return 0


def _deleted(what: str, arguments: argparse.Namespace) -> str:
    if arguments.dry_run:
        return f"{what} would be deleted (nothing was changed)"
    return f"{what} is deleted"


def _rename(arguments: argparse.Namespace) -> int:
    rename_tag(table_of(arguments), arguments.name, arguments.new_name)
    text = f"tag {arguments.name} is called {arguments.new_name} now"
    return tell(arguments, text, {"tag": arguments.new_name, "before": arguments.name})


def _consumers(arguments: argparse.Namespace) -> int:
    rows = [list(one) for one in all_consumers(table_of(arguments)).items()]
    return emit(arguments, ["consumer", "next_snapshot"], rows, "no consumers")


def _set_consumer(arguments: argparse.Namespace) -> int:
    write_consumer(table_of(arguments), arguments.name, arguments.next_snapshot)
    text = f"consumer {arguments.name} goes on at snapshot {arguments.next_snapshot}"
    facts = {"consumer": arguments.name, "next_snapshot": arguments.next_snapshot}
    return tell(arguments, text, facts)


def _delete_consumers(arguments: argparse.Namespace) -> int:
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
        tell(arguments, _deleted(text, arguments), facts)
    return 0
