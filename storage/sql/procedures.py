# SPDX-License-Identifier: Apache-2.0
"""CALL sys.…: the list of procedures, and calling one of them.

Source: Paimon's pages "Procedures" of Flink and of Spark. The declarations in `storage.sql.calls`
are also what SHOW PROCEDURES, DESCRIBE PROCEDURE and docs/reference/procedures.md show.
"""

import argparse
import copy
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.sql.calls import maintenance, versions
from storage.sql.calls.declaration import Procedure, result_rows
from storage.sql.errors import locate, suggestion
from storage.sql.nodes import CallProcedure

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

PROCEDURES: Mapping[str, Procedure] = {
    procedure.name: procedure
    for module in (maintenance, versions)
    for procedure in vars(module).values()
    if isinstance(procedure, Procedure)
}
"""By name, without `sys.`."""

_HIVE = (
    "tables of Hive are not read; create a table and INSERT INTO it from an engine that reads both"
)
_ROW_IDS = "tables with row tracking or data evolution are not supported"
_FUNCTIONS = "catalogs of Lakeward keep no functions"
_INDEX = "tables with global indexes are not supported; file indexes are: rewrite_file_index"

REFUSED: Mapping[str, str] = {
    "migrate_table": _HIVE,
    "migrate_file": _HIVE,
    "migrate_database": _HIVE,
    "migrate_iceberg_table": "tables of Iceberg are not read",
    "clone": "files are not copied between catalogs; CREATE TABLE … AS SELECT writes a copy",
    "copy": "files are not copied between tables; INSERT INTO … SELECT writes a copy",
    "copy_files": "files are not copied; INSERT INTO … SELECT writes a copy",
    "purge_files": "it removes snapshots with all files; TRUNCATE TABLE and expire_snapshots "
    "remove rows and history",
    "remove_unexisting_files": "it makes lost files look like removed rows; roll back to a "
    "snapshot whose files are there: rollback_to",
    "remove_unexisting_manifests": "it makes lost manifests look like removed rows; roll back "
    "to a snapshot whose files are there: rollback_to",
    "repair_earliest_snapshot": "the hint of the earliest snapshot is repaired when it is "
    "wrong; `lakeward table repair` does it for a table",
    "compact_manifest": "manifests are merged by commits, as the options manifest.* say",
    "compact_chain_table": "chain tables are not supported",
    "merge_branch": "branches become main by fast_forward",
    "rollback_to_as_latest": "a table is rolled back by rollback_to, which removes later "
    "snapshots; to keep them, INSERT OVERWRITE from `VERSION AS OF`",
    "query_service": "Flink's query service is not supported; SELECT by key opens one file",
    "materialize_deletion_vectors": _ROW_IDS + "; compact rewrites files without deleted rows",
    "data_evolution_merge_into": _ROW_IDS + "; MERGE INTO merges rows",
    "reassign_row_id": _ROW_IDS,
    "create_global_index": _INDEX,
    "drop_global_index": _INDEX,
    "vector_search": _INDEX,
    "full_text_search": _INDEX,
    "create_function": _FUNCTIONS,
    "alter_function": _FUNCTIONS,
    "drop_function": _FUNCTIONS,
}
"""Procedures of Paimon that are refused by name: why, and what to do instead."""

_ALIASES = {alias: procedure for procedure in PROCEDURES.values() for alias in procedure.aliases}


def call(session: "SqlSession", node: CallProcedure) -> pa.Table:
    """Call a procedure; its rows.

    Raises:
        NotFoundError: there is no such procedure.
        UnsupportedFeatureError: there is one in Paimon that is refused here.
        SqlError: an argument is unknown, missing or of another type.
        As the method of the table that the procedure calls.
    """
    try:
        procedure = find_procedure(node.args["name"])
    except (NotFoundError, UnsupportedFeatureError) as error:
        raise locate(error, node) from error
    if (name := node.args.get("catalog")) is not None:
        session.catalog_of(exp.Table(catalog=name))
        session = copy.copy(session)
        session.catalog_name = name.name
    invocation = procedure.bind(session, node, node.args.get("arguments") or ())
    rows = procedure.run(invocation)
    return result_rows(result=["Success"]) if rows is None else rows


def find_procedure(name: str) -> Procedure:
    """A procedure that can be called.

    Raises:
        NotFoundError: there is no such procedure.
        UnsupportedFeatureError: there is one in Paimon that is refused here.
    """
    name = name.lower().removeprefix("sys.")
    procedure = PROCEDURES.get(name) or _ALIASES.get(name)
    if procedure is not None:
        return procedure
    if name in REFUSED:
        raise UnsupportedFeatureError(
            "this procedure is not supported", hint=REFUSED[name], procedure=f"sys.{name}"
        )
    hint = suggestion(name, [*PROCEDURES, *_ALIASES], "SHOW PROCEDURES lists them")
    raise NotFoundError("there is no such procedure", hint=hint, procedure=f"sys.{name}")


def describe_procedure(name: str) -> pa.Table:
    """The arguments of a procedure: name, type, whether required, default, meaning.

    Raises:
        As `find_procedure`.
    """
    arguments = find_procedure(name).arguments
    return pa.table(
        {
            "argument": pa.array([argument.name for argument in arguments], pa.string()),
            "type": pa.array([argument.type for argument in arguments], pa.string()),
            "required": pa.array([argument.required for argument in arguments], pa.bool_()),
            "default": pa.array([argument.default or None for argument in arguments], pa.string()),
            "about": pa.array([argument.about for argument in arguments], pa.string()),
        }
    )


# docs/reference/procedures.md, made from the declarations of the procedures.
#
# python -m storage.sql.procedures --write    # or --check: fails when the page is out of date


PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/procedures.md"

_HEAD = """\
# Procedures

<!-- written by `make docs` from storage/sql/calls -->

Called in SQL, with arguments by position or by name:

    CALL sys.compact('shop.orders');
    CALL sys.compact(table => 'shop.orders', partitions => 'dt=2024-01-31');

The names are those of Apache Paimon's procedures for Flink and for Spark; capitals and underscores
do not matter (`consumerId` is `consumer_id`). Without names, the order is Flink's, and an empty
text stands for an argument that is not given. Types: a *time* is a text such as
`'2024-01-31 12:00:00'` in the session's zone, or milliseconds since 1970; a *duration* is a text
such as `'1 d'` or `'30 min'`, a *pattern* a regular expression of the whole name; *options* are a
text `'key=value,key=value'` or `map('key', 'value')`.

`SHOW PROCEDURES` lists them. A procedure for several tables, partitions or tags processes one after
the other; after an error, call it again.
"""


def procedures_page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for name in sorted(PROCEDURES):
        parts += _section(PROCEDURES[name])
    parts.append("## Procedures that are refused\n")
    parts.append("| procedure | instead |\n|---|---|")
    parts += [f"| `sys.{name}` | {_cell(REFUSED[name])} |" for name in sorted(REFUSED)]
    return "\n".join(parts) + "\n"


def _section(procedure: Procedure) -> Iterator[str]:
    yield f"## {procedure.name}\n"
    aliases = ", ".join(f"`sys.{name}`" for name in procedure.aliases)
    yield procedure.about + (f" Also called {aliases}." if aliases else "") + "\n"
    yield "| argument | type | default | |\n|---|---|---|---|"
    for argument in procedure.arguments:
        default = "required" if argument.required else argument.default
        names = ", ".join(f"`{name}`" for name in (argument.name, *argument.aliases))
        yield f"| {names} | {argument.type} | {_cell(default)} | {_cell(argument.about)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: write the page, or compare it."""
    parser = argparse.ArgumentParser(prog="python -m storage.sql.procedures")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="fail when the page is out of date")
    if parser.parse_args(arguments).write:
        PAGE.write_text(procedures_page(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == procedures_page():
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date: run `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
