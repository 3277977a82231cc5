# SPDX-License-Identifier: Apache-2.0
"""CREATE, ALTER and DROP of catalogs, databases, tables and views; ANALYZE.

The query of a view is stored as text, with qualified names of tables.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from storage.catalog.catalog import DEFAULT_DATABASE, Catalog, split_identifier
from storage.catalog.view import View
from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    InvalidSchemaChangeError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import (
    DropColumn,
    RemoveOption,
    SchemaChange,
    SetOption,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
    type_changes,
)
from storage.format.types.types import DataField, type_from_arrow
from storage.sql import nodes
from storage.sql.dialect import parse_query
from storage.sql.errors import locate, refuse, suggestion
from storage.sql.nodes import ColumnDefinition
from storage.sql.relations import SYSTEM_DATABASE, check_options, refuse_hidden
from storage.table.inspect.analyze import analyze as analyze_table
from storage.table.materialized_table import MaterializedTable
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

_PRIMARY_KEY, _PARTITION = "primary-key", "partition"
_KINDS = ("paimon", "lakeward")


def create_catalog(session: "SqlSession", node: nodes.CreateCatalog) -> None:
    """CREATE CATALOG: open it in this session."""
    name, options = node.this.name, dict(node.args["options"])
    refuse_hidden(options, node)
    if name in session.catalogs:
        if not node.args["exists"]:
            refuse("the catalog exists already", node, catalog=name)
        return
    kind = options.pop("type", "paimon")
    if kind not in _KINDS:
        refuse("there is no catalog of this type", node, hint="give 'type' = 'paimon'", type=kind)
    session.catalogs[name] = Catalog.open(options.pop("warehouse", ""), options)


def drop_catalog(session: "SqlSession", node: nodes.DropCatalog) -> None:
    """DROP CATALOG: forget it in this session; its databases stay."""
    name = node.this.name
    if name not in session.catalogs and node.args["exists"]:
        return
    session.named_catalog(name)
    if name == session.catalog_name:
        refuse("the current catalog cannot be dropped", node, hint="switch with USE CATALOG first")
    del session.catalogs[name]


def create_database(session: "SqlSession", node: nodes.CreateDatabase) -> None:
    """CREATE DATABASE."""
    properties = dict(node.args["options"] or {})
    refuse_hidden(properties, node)
    if node.args["comment"] is not None:
        properties["comment"] = node.args["comment"]
    session.catalog_of(node.this).create_database(
        node.this.db, ignore_if_exists=node.args["exists"], properties=properties
    )


def alter_database(session: "SqlSession", node: nodes.AlterDatabase) -> None:
    """ALTER DATABASE … SET."""
    options = dict(node.args["options"])
    refuse_hidden(options, node)
    session.catalog_of(node.this).alter_database(node.this.db, options)


def drop_database(session: "SqlSession", node: nodes.DropDatabase) -> None:
    """DROP DATABASE."""
    session.catalog_of(node.this).drop_database(
        node.this.db, ignore_if_missing=node.args["exists"], cascade=node.args["cascade"]
    )


def drop(session: "SqlSession", node: nodes.DropObject) -> None:
    """DROP TABLE, DROP VIEW, DROP MATERIALIZED TABLE."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    if "$" in identifier:
        refuse(
            "only whole tables are dropped", node, hint="CALL sys.delete_branch(…) drops a branch"
        )
    kind = node.args["kind"]
    if kind == "view" and not node.this.db and node.this.name in session.temporary_views:
        del session.temporary_views[node.this.name]
        return
    if kind == "materialized table" and catalog.exists(identifier):
        MaterializedTable.from_schema(catalog.table(identifier).schema)  # raises where it is none
    remove = catalog.drop_view if kind == "view" else catalog.drop_table
    try:
        remove(identifier, ignore_if_missing=node.args["exists"])
    except NotFoundError as error:
        error.hint = error.hint or _instead(catalog, identifier, kind)
        raise


def _instead(catalog: Catalog, identifier: str, kind: str) -> str:
    """A hint at what the name of a missing table or view may mean."""
    database, name = split_identifier(identifier)
    try:
        tables, views = catalog.list_tables(database), catalog.list_views(database)
    except (NotFoundError, UnsupportedFeatureError, NotImplementedError):
        return ""
    names, word = (tables, "TABLE") if kind == "view" else (views, "VIEW")
    if name in names:
        return f"it is a {word.lower()}: DROP {word}"
    return suggestion(name, views if kind == "view" else tables)


def analyze(session: "SqlSession", node: nodes.Analyze) -> None:
    """ANALYZE TABLE."""
    table = session.resolve(node.this)
    columns = node.args.get("columns")
    analyze_table(table, () if columns is None else (columns or None))


# ------------------------------------------------------------------------------ CREATE TABLE


def create_table(session: "SqlSession", node: nodes.CreateTable) -> int | None:
    """CREATE TABLE, also LIKE and AS; of AS the number of rows written."""
    if node.args["kind"] == "materialized table":
        from storage.sql import materialized

        return materialized.create(session, node)
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    if node.args["replace"]:
        refuse("OR REPLACE is not supported", node, hint="DROP TABLE first, or INSERT OVERWRITE")
    _need_database(session, node.this)
    if node.args["exists"] and catalog.exists(identifier):
        return None
    schema = _like(session, node) if node.args.get("like") else _schema(session, node)
    query = node.args.get("query")
    if query is None:
        catalog.create_table(identifier, schema, ignore_if_exists=node.args["exists"])
        return None
    try:
        catalog.create_table(identifier, schema)
    except InvalidRequestError:
        if node.args["exists"] and catalog.exists(identifier):
            return None  # another session created it concurrently: its rows are not ours
        raise
    from storage.sql.inserting import insert

    try:
        return insert(session, exp.Insert(this=node.this.copy(), expression=query.copy()))
    except BaseException:
        catalog.drop_table(identifier)
        raise


def _need_database(session: "SqlSession", table: exp.Table) -> None:
    database = table.db or session.database
    catalog = session.catalog_of(table)
    if database == SYSTEM_DATABASE:
        refuse("the tables of this database are the system's", table, hint="USE another database")
    if database == DEFAULT_DATABASE and database not in catalog.list_databases():
        catalog.create_database(database, ignore_if_exists=True)  # every catalog of Paimon has it
    elif database not in catalog.list_databases():
        hint = f"CREATE DATABASE {database}"
        error = InvalidRequestError("there is no such database", hint=hint, database=database)
        raise locate(error, table)


def _like(session: "SqlSession", node: nodes.CreateTable) -> TableSchema:
    source = session.resolve(node.args["like"])
    if not isinstance(source, FileStoreTable):
        refuse("LIKE takes a table", node.args["like"])
    excluded = node.args.get("excluded") or ()
    base = {key: text for key, text in source.schema.options.items() if key != "path"}
    if "options" in excluded:
        base = {}
    options, primary, partition = _keys(node, {**base, **node.args["options"]})
    return new_schema(
        [*source.schema.fields, *map(_field, node.args["columns"])],
        primary_keys=primary or (() if "constraints" in excluded else source.schema.primary_keys),
        partition_keys=partition
        or (() if "partitions" in excluded else source.schema.partition_keys),
        options=options,
        comment=node.args.get("comment") or source.schema.comment,
    )


def _schema(session: "SqlSession", node: nodes.CreateTable) -> TableSchema:
    options, primary, partition = _keys(node, node.args["options"])
    columns = [_field(column) for column in node.args["columns"]]
    query = node.args.get("query")
    if query is not None:
        if columns:
            refuse(
                "columns of CREATE TABLE AS come from its query", node, hint="remove the columns"
            )
        columns = query_fields(session, query)
    if not columns and "type" in options:  # the type of the table defines its columns
        return TableSchema(id=0, fields=(), highest_field_id=-1, options=options)
    return new_schema(
        columns,
        primary_keys=primary,
        partition_keys=partition,
        options=options,
        comment=node.args.get("comment"),
    )


def query_fields(session: "SqlSession", query: exp.Query) -> list[DataField]:
    """The columns of a query, as those of a table; ids are placeholders."""
    with session.query(query) as reader:
        schema = reader.schema
    for field in schema:
        if pa.types.is_null(field.type):
            refuse("a column has no type", query, hint="CAST(NULL AS STRING)", name=field.name)
    types = [
        pa.time32("ms") if pa.types.is_time64(type_) else type_  # DuckDB's; TIME has milliseconds
        for type_ in schema.types
    ]
    return [
        DataField(id=number, name=name, type=type_from_arrow(type_))
        for number, (name, type_) in enumerate(zip(schema.names, types, strict=True))
    ]


def _keys(
    node: nodes.CreateTable, clause_options: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Options without those that define keys, primary key, partition keys."""
    options = dict(clause_options)
    if (connector := options.pop("connector", _KINDS[0])) not in _KINDS:
        hint = "leave the option out: a table here is one of Paimon"
        refuse("there is no such connector", node, hint=hint, connector=connector)
    check_options(node.args["options"], node)
    keys = []
    for clause, option in (("primary_key", _PRIMARY_KEY), ("partition", _PARTITION)):
        names = tuple(node.args[clause])
        text = options.pop(option, None)
        if text is not None and names:
            refuse("a key is given by a clause and by an option", node, option=option)
        keys.append(names if text is None else tuple(part.strip() for part in text.split(",")))
    primary, partition = keys
    return options, primary, partition


def _field(column: ColumnDefinition) -> DataField:
    assert column.type is not None
    return DataField(
        id=0,
        name=column.name[0],
        type=column.type,
        description=column.comment,
        default=column.default,
    )


# ------------------------------------------------------------------------------- ALTER TABLE


def alter_table(session: "SqlSession", node: nodes.AlterTable) -> None:
    """ALTER TABLE: all its changes in one new version of the schema, or none."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    if node.args.get("rename"):
        new_name = new_identifier(session, node)
        catalog.rename_table(identifier, new_name, ignore_if_missing=node.args.get("exists", False))
        return
    if node.args.get("exists") and not catalog.exists(identifier):
        return
    changes = _schema_changes(session, node)
    try:
        if "$" in identifier:
            catalog.table(identifier).alter(changes)
        else:
            catalog.alter_table(identifier, changes)
    except InvalidSchemaChangeError as error:
        column = str(error.context.get("column", ""))
        names = catalog.table(identifier).schema.field_names
        if column and column not in names and not error.hint:
            error.hint = suggestion(column, names, f"there are {', '.join(names)}")
        raise


def new_identifier(session: "SqlSession", node: exp.Expression) -> str:
    """`database.table` of RENAME TO, by default in the database of the old name.

    Raises:
        SqlError: it is in another catalog.
    """
    old, new = node.this, node.args["rename"]
    if new.catalog and new.catalog != (old.catalog or session.catalog_name):
        refuse("a table or view cannot be moved to another catalog", new, catalog=new.catalog)
    return f"{new.db or old.db or session.database}.{new.name}"


def _schema_changes(session: "SqlSession", node: nodes.AlterTable) -> list[SchemaChange]:
    changes: list[SchemaChange] = list(node.args.get("changes") or ())
    if any(isinstance(item, UpdateType) for item in changes):
        changes = list(_type_changes(session.resolve(node.this).schema, changes))
    if node.args.get("if_column_exists"):
        names = session.resolve(node.this).schema.field_names
        changes = [
            item for item in changes if isinstance(item, DropColumn) and item.name[0] in names
        ]
    options = dict(node.args.get("options") or ())
    check_options({key: options[key] for key in options if key != "comment"}, node)
    for key, value in options.items():
        changes.append(UpdateTableComment(value) if key == "comment" else SetOption(key, value))
    for key in node.args.get("reset") or ():
        changes.append(UpdateTableComment(None) if key == "comment" else RemoveOption(key))
    return changes


def _type_changes(schema: TableSchema, changes: Sequence[SchemaChange]) -> Iterator[SchemaChange]:
    """The changes, with those of nested types in parts.

    MODIFY gives the whole definition of a column: the type that a key has already is no change,
    and a primary key stays NOT NULL.
    """
    keys = (*schema.primary_keys, *schema.partition_keys)
    names = {item.name for item in changes if isinstance(item, UpdateType)}
    types = {field.name: field.type for field in schema.fields}
    for item in changes:
        path = item.name if isinstance(item, UpdateType | UpdateNullability) else ()
        if isinstance(item, UpdateType) and len(path) == 1 and path[0] in types:
            old = types[path[0]]
            if path[0] not in keys or dataclasses.replace(item.type, nullable=old.nullable) != old:
                yield from type_changes(tuple(path), old, item.type)
        elif not (
            isinstance(item, UpdateNullability)
            and item.nullable
            and path in names
            and path[0] in schema.primary_keys
        ):
            yield item


def create_view(session: "SqlSession", node: nodes.CreateView) -> None:
    """CREATE VIEW."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    fields = query_fields(session, node.args["query"])
    columns = [field.name for field in fields]
    names, comments = node.args.get("names") or (), node.args.get("comments") or ()
    if names:
        if len(names) != len(fields):
            refuse(
                "the view and its query differ in the number of columns",
                node,
                names=len(names),
                columns=len(fields),
            )
        fields = [
            dataclasses.replace(field, name=name, description=comment)
            for field, name, comment in zip(fields, names, comments, strict=True)
        ]
    lower_names = [field.name.lower() for field in fields]
    duplicate = next((name for name in lower_names if lower_names.count(name) > 1), None)
    if duplicate is not None:
        refuse(
            "two columns of the view have the same name",
            node,
            hint="give one an alias",
            name=duplicate,
        )
    view = View(
        fields=tuple(fields),
        query=complete_text(
            session, node.args["query_text"], columns, temporary=bool(node.args.get("temporary"))
        ),
        dialects={},
        comment=node.args.get("comment"),
        options=dict(node.args["options"]),
    )
    if node.args.get("temporary"):
        _create_temporary(session, node, view)
    elif not (node.args["replace"] and _replace_view(catalog, identifier, view)):
        catalog.create_view(identifier, view, ignore_if_exists=node.args["exists"])


def _create_temporary(session: "SqlSession", node: nodes.CreateView, view: View) -> None:
    name, views = node.this.name, session.temporary_views
    if node.this.db:
        refuse("a temporary view has no database", node.this, hint=f"CREATE TEMPORARY VIEW {name}")
    if name in views and not (node.args["replace"] or node.args["exists"]):
        raise AlreadyExistsError("the view exists already", view=name)
    if name not in views or node.args["replace"]:
        views[name] = view


def _replace_view(catalog: Catalog, identifier: str, view: View) -> bool:
    """Replace an existing view, which stays if this fails."""
    try:
        catalog.alter_view(identifier, view)
    except NotFoundError:
        return False
    except UnsupportedFeatureError:  # a REST server does not change queries
        previous = catalog.view(identifier)
        catalog.drop_view(identifier)
        try:
            catalog.create_view(identifier, view)
        except BaseException:
            catalog.create_view(identifier, previous)
            raise
    return True


def alter_view(session: "SqlSession", node: nodes.AlterView) -> None:
    """ALTER VIEW: a new query, options or name."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    query = node.args.get("query")
    if query is not None:
        fields = tuple(query_fields(session, query))
        text = complete_text(session, node.args["query_text"], [field.name for field in fields])
        view = dataclasses.replace(catalog.view(identifier), fields=fields, query=text)
        catalog.alter_view(identifier, view)
        return
    if node.args.get("rename"):
        catalog.rename_view(identifier, new_identifier(session, node))
        return
    view, reset = catalog.view(identifier), node.args.get("reset") or ()
    options = {**view.options, **dict(node.args.get("options") or ())}
    options = {key: value for key, value in options.items() if key not in reset}
    catalog.alter_view(identifier, dataclasses.replace(view, options=options))


def complete_text(
    session: "SqlSession",
    text: str,
    columns: Sequence[str] = (),
    *,
    own_catalog: bool = False,
    temporary: bool = False,
) -> str:
    """The text of a query with the database in the name of every table, as it is stored.

    Columns take the place of a `*`, so that the query keeps them when its tables change.

    Args:
        session: its catalog is left out of names, its database put into those without.
        text: a query.
        columns: of the query; without them a `*` stays.
        own_catalog: refuse tables of other catalogs.
        temporary: it is of a temporary view, which may read others.

    Raises:
        SqlError: it is no query, or names a table of another catalog.
    """
    query = parse_query(text)
    edits = list(_star_edits(query, text, columns))
    sources = {
        id(source): source
        for scope in traverse_scope(query)
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    }
    for table in sources.values():
        place = table.this.meta["start"]
        if table.catalog == session.catalog_name:
            edits.append((table.args["catalog"].meta["start"], table.args["db"].meta["start"], ""))
        elif table.catalog and own_catalog:
            refuse(
                "a materialized table can read only tables of its own catalog",
                table,
                catalog=table.catalog,
            )
        elif not table.db and table.name in session.temporary_views:
            if not temporary:
                refuse("a stored query cannot read a temporary view", table, view=table.name)
        elif not table.db:
            database = session.database.replace("`", "``")
            edits.append((place, place, f"`{database}`."))
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def _star_edits(
    query: exp.Query, text: str, columns: Sequence[str]
) -> Iterator[tuple[int, int, str]]:
    """Replaces the one `*` or `t.*` of a SELECT: where it is in the text, and its columns."""
    items = query.expressions if isinstance(query, exp.Select) else []
    stars = [number for number, item in enumerate(items) if item.is_star]
    if len(stars) != 1 or any(item.find(exp.UDTF) for item in items):
        return
    number, star = stars[0], items[stars[0]].find(exp.Star)
    names = columns[number : len(columns) - len(items) + number + 1]
    removed = star.args.get("except_") or ()
    others = any(value for key, value in star.args.items() if key != "except_")
    if others or not names or len({name.lower() for name in names}) < len(names):
        return
    place = star.meta["start"]
    qualifier = items[number].args.get("table")  # of `t.*`
    ends = [part.meta["end"] for item in removed for part in item.find_all(exp.Identifier)]
    end = text.index(")", max(ends)) if ends else place
    start = qualifier.meta["start"] if isinstance(qualifier, exp.Identifier) else place
    quoted = (name.replace("`", "``") for name in names)
    yield start, end + 1, ", ".join(f"{text[start:place]}`{name}`" for name in quoted)
