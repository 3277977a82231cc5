# SPDX-License-Identifier: Apache-2.0
"""`lakeward table create|alter|set-option|rename|drop`: definitions of tables in a catalog."""

import re
from collections.abc import Sequence

from ingest.cli.commands import Arguments, Value, combine, command, flag, option, positional, refuse
from ingest.cli.parameters import (
    DRY_RUN,
    JSON,
    NAMES,
    ONE_TABLE,
    PAIR,
    WAREHOUSE,
    catalog_of,
    emit_fact,
)
from ingest.config.suggestion import refuse_misspelt
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
from storage.format.types.type_text import parse_type, type_to_json
from storage.format.types.types import DataType
from storage.table.table_rules import check_table

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
