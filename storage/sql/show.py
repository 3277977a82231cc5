# SPDX-License-Identifier: Apache-2.0
"""SHOW, DESCRIBE and EXPLAIN: metadata as rows; USE, SET and RESET: the session."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from storage.catalog.catalog import DEFAULT_DATABASE
from storage.catalog.system_tables import CATALOG_TABLES
from storage.errors import NotFoundError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import type_from_arrow, type_name
from storage.io.object_store_options import redacted_options
from storage.sql import engine, nodes
from storage.sql.engine import connect
from storage.sql.errors import SqlError, locate, refuse, suggestion
from storage.sql.query import plan_query, time_zone
from storage.sql.relations import SYSTEM_DATABASE, CatalogTable, SystemTable, is_view, rows_of
from storage.table.format_table import FormatTable
from storage.table.inspect.system.columns import shown_options
from storage.table.inspect.system.registry import system_table
from storage.table.materialized_table import MATERIALIZED_TABLE
from storage.table.scan.predicate import And, Between, Compare, In, IsNull, Like, Not, Or, Predicate
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

_MISSPELT = 0.85
"""Similarity from which an option of SET counts as a misspelt known one."""


def show(session: "SqlSession", node: nodes.Show) -> pa.Table:
    """SHOW."""
    kind, of = node.args["kind"], node.this
    match kind:
        case "catalogs":
            return _names("catalog_name", sorted(session.catalogs), node)
        case "current catalog" | "current database" | "current namespace":
            place = {"catalog": session.catalog_name, "namespace": session.database}
            columns = {
                "catalog": {"current_catalog_name": session.catalog_name},
                "database": {"current_database_name": session.database},
            }.get(kind.split()[1], place)
            return _rows({name: [value] for name, value in columns.items()})
        case "databases" | "schemas" | "namespaces":
            catalog = session.named_catalog(of.db) if of is not None else session.catalog
            # every catalog of Paimon has the default one, which is created with its first table
            names = sorted({*catalog.list_databases(), DEFAULT_DATABASE})
            return _names("database_name", names, node)
        case "table extended":
            return _table_details(session, node)
        case "tables" | "views" | "materialized tables":
            return _names(f"{kind.split()[-1][:-1]}_name", _objects(session, node), node)
        case "procedures":
            from storage.sql.procedures import PROCEDURES

            matches = _matcher(node.args.get("like") or "*")
            listed = sorted(name for name in PROCEDURES if matches(name) or matches(f"sys.{name}"))
            return _rows({"procedure_name": [f"sys.{name}" for name in listed]})
        case "create catalog":
            return _rows({"create_catalog": [_create_catalog(session, of.name)]})
        case "create database":
            return _rows({"create_database": [_create_database(session, of)]})
        case _:
            return _of_table(session, kind, node)


def _of_table(session: "SqlSession", kind: str, node: nodes.Show) -> pa.Table:
    relation = session.resolve(node.this)
    query = getattr(relation, "query", None)
    match kind:
        case "create view":
            if not is_view(relation):
                refuse("this is a table", node.this, hint="SHOW CREATE TABLE")
            return _rows({"create_view": [_create_view(_quoted(session, node.this), relation)]})
        case "create table":
            if is_view(relation):
                refuse("this is a view", node.this, hint="SHOW CREATE VIEW")
            schema = _schema(relation, node.this)
            return _rows({"create_table": [_create_table(_quoted(session, node.this), schema)]})
        case "columns":
            return _names("column_name", [name for name, *_ in _columns(relation)], node)
        case "partitions":
            return _partitions(relation, node)
        case "tags" | "branches":
            if not isinstance(relation, FileStoreTable):
                refuse(f"only tables have {kind}", node.this)
            name = kind.removesuffix("es").removesuffix("s")
            return system_table(relation, kind).select([f"{name}_name"]).rename_columns([name])
        case _:
            options = dict(
                relation.options if query is not None else _schema(relation, node.this).options
            )
            if query is None and relation.schema.primary_keys:  # as Spark shows it
                options["primary-key"] = ",".join(relation.schema.primary_keys)
            like = node.args.get("like")
            entries = shown_options(
                {key: text for key, text in options.items() if like in (None, key)}
            )
            return _pairs(dict(sorted(entries.items())))


def describe(session: "SqlSession", node: nodes.Describe) -> pa.Table:
    """DESCRIBE: columns of a table, view or query; properties of a catalog; arguments."""
    match node.args["kind"]:
        case "catalog":
            catalog = session.named_catalog(node.this.name)
            return _pairs({"name": node.this.name, **redacted_options(catalog.options)})
        case "database":
            target = session.catalog_of(node.this).database(node.this.db)
            facts = {"name": target.name, "comment": target.comment or ""}
            return _pairs({**facts, **redacted_options(target.properties)})
        case "procedure":
            from storage.sql.procedures import describe_procedure

            return describe_procedure(node.this.name)
        case "query":
            with session.query(node.this) as reader:
                rows = _arrow_columns(reader.schema)
            return _described(rows)
        case _:
            pass
    target = session.resolve(node.this)
    rows = _columns(target)
    path = node.args.get("column")
    if path:
        names = [name for name, *_ in rows]
        rows = [row for row in rows if row[0] == path[0]]
        if not rows:
            hint = suggestion(path[0], names, f"there are {', '.join(names)}")
            error = NotFoundError("there is no such column", hint=hint, column=path[0])
            raise locate(error, node.this)
    described = _described(rows)
    if node.args.get("extended"):
        return pa.concat_tables([described, _described(_table_facts(target))])
    return described


def explain(session: "SqlSession", node: nodes.Explain) -> pa.Table:
    """EXPLAIN: the scan of each table, and the plan of DuckDB."""
    plan = plan_query(session, node.this)
    lines = ["== Scans =="]
    for name, columns, predicate in plan.scans:
        lines.append(f"{name}: columns {'all' if columns is None else ', '.join(columns)}")
        lines.append(f"  pushed filter: {'none' if predicate is None else _condition(predicate)}")
    connection = engine.connect(time_zone(session), plan.relations)
    lines.append("== Physical plan ==")
    lines += engine.explained(connection, plan.text, plan.relations, node.this, plan.columns)
    return _rows({"plan": lines})


def _condition(predicate: Predicate) -> str:
    """A predicate as SQL."""
    match predicate:
        case And(parts) | Or(parts):
            word = " AND " if isinstance(predicate, And) else " OR "
            return "(" + word.join(map(_condition, parts)) + ")"
        case Not(part):
            return f"NOT {_condition(part)}"
        case IsNull(column):
            return f"{column} IS NULL"
        case In(column, literals):
            return f"{column} IN ({', '.join(map(repr, literals))})"
        case Between(column, low, high):
            return f"{column} BETWEEN {low!r} AND {high!r}"
        case Like(column, pattern):
            return f"{column} LIKE {pattern!r}"
        case Compare(op, column, literal):
            return f"{column} {op.value} {literal!r}"


# ---------------------------------------------------------------------------------- parts


def _rows(columns: Mapping[str, Sequence[str | None]]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _pairs(facts: Mapping[str, str]) -> pa.Table:
    return _rows({"key": list(facts), "value": list(facts.values())})


def _names(column: str, names: Iterable[str], node: nodes.Show) -> pa.Table:
    pattern = node.args.get("like")
    matches = _matcher(pattern) if pattern is not None else lambda _name: True
    return _rows({column: [name for name in names if matches(name)]})


def _matcher(pattern: str) -> Any:
    """A test of names: `%` and `*` stand for any characters, `_` for one, `|` for or."""
    parts = re.split(r"([%*_|])", pattern)
    words = {"%": ".*", "*": ".*", "_": ".", "|": "|"}
    text = "".join(words.get(part, re.escape(part)) for part in parts)
    return re.compile(text, re.IGNORECASE | re.DOTALL).fullmatch


def _objects(session: "SqlSession", node: nodes.Show) -> list[str]:
    of, kind = node.this, node.args["kind"]
    catalog = session.catalog if of is None else session.catalog_of(of)
    database = session.database if of is None else of.db
    if database == SYSTEM_DATABASE:
        return sorted(CATALOG_TABLES) if kind == "tables" else []
    names = catalog.list_databases()
    if database == DEFAULT_DATABASE and database not in names:
        return []
    if database not in names:
        hint = suggestion(database, names, f"there are {', '.join(names)}" if names else "")
        raise locate(NotFoundError("there is no such database", hint=hint, database=database), node)
    if kind == "views":
        return sorted({*catalog.list_views(database), *session.temporary_views})
    if kind in ("tables", "table extended"):
        return catalog.list_tables(database)
    tables = catalog.tables_of_type(MATERIALIZED_TABLE, database)
    return [name.removeprefix(f"{database}.") for name in tables]


def _schema(relation: Any, node: exp.Table) -> TableSchema:
    schema = getattr(relation, "schema", None)
    if not isinstance(schema, TableSchema):
        refuse("this is a system table", node, hint="DESCRIBE shows its columns")
    return schema


Column = tuple[str, str, str, str | None, str | None, str | None]
"""Name, type, whether null is allowed, key, default, comment."""


def _columns(relation: Any) -> list[Column]:
    if isinstance(relation, SystemTable | CatalogTable):
        return _arrow_columns(rows_of(relation).schema)
    if is_view(relation):
        return [
            (field.name, type_name(field.type), "true", None, None, field.description)
            for field in relation.fields
        ]
    schema: TableSchema = relation.schema
    keys = dict.fromkeys(schema.primary_keys, "PRIMARY KEY")
    for name in schema.partition_keys:
        keys[name] = f"{keys[name]}, PARTITION" if name in keys else "PARTITION"
    return [
        (
            field.name,
            type_name(field.type).removesuffix(" NOT NULL"),
            "true" if field.type.nullable else "false",
            keys.get(field.name),
            field.default,
            field.description,
        )
        for field in schema.fields
    ]


def _arrow_columns(schema: pa.Schema) -> list[Column]:
    return [
        (field.name, type_name(type_from_arrow(field.type)), "true", None, None, None)
        for field in schema
    ]


def _described(rows: Sequence[Column]) -> pa.Table:
    names = ("name", "type", "null", "key", "default", "comment")
    return _rows({name: [row[number] for row in rows] for number, name in enumerate(names)})


def _table_facts(relation: Any) -> list[Column]:
    schema = getattr(relation, "schema", None)
    if not isinstance(schema, TableSchema):
        return []
    facts = {
        "# comment": schema.comment or "",
        "# primary key": ", ".join(schema.primary_keys),
        "# partitioned by": ", ".join(schema.partition_keys),
        "# schema id": str(schema.id),
        "# location": relation.layout.root,
        **{f"# option {key}": text for key, text in sorted(shown_options(schema.options).items())},
    }
    return [(name, value, "", None, None, None) for name, value in facts.items() if value]


def _partitions(relation: Any, node: nodes.Show) -> pa.Table:
    schema = _schema(relation, node.this)
    if not schema.partition_keys:
        refuse("the table is not partitioned", node.this, table=node.this.name)
    if isinstance(relation, FormatTable):
        rows = relation.partition_names()
    else:
        rows = system_table(relation, "partitions").column("partition").to_pylist()
    partition = node.args.get("partition") or {}
    names = []
    for row in rows:
        values = dict(part.partition("=")[::2] for part in str(row).split("/"))
        if all(values.get(key) == value for key, value in partition.items()):
            names.append(str(row))
    return _rows({"partition": sorted(names)})


# ------------------------------------------------------------------------- CREATE as text


def _name(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _quoted(session: "SqlSession", node: exp.Table) -> str:
    database, table = session.identifier(node).split(".", 1)
    return f"{_name(node.catalog or session.catalog_name)}.{_name(database)}.{_name(table)}"


def _with(options: Mapping[str, str]) -> str:
    parts = ",\n".join(f"  {_text(key)} = {_text(value)}" for key, value in options.items())
    return f"\nWITH (\n{parts}\n)" if options else ""


def _create_table(name: str, schema: TableSchema) -> str:
    lines = []
    for field in schema.fields:
        line = f"  {_name(field.name)} {type_name(field.type)}"
        if field.default is not None:
            line += f" DEFAULT {_text(field.default)}"
        if field.description is not None:
            line += f" COMMENT {_text(field.description)}"
        lines.append(line)
    if schema.primary_keys:
        keys = ", ".join(map(_name, schema.primary_keys))
        lines.append(f"  PRIMARY KEY ({keys}) NOT ENFORCED")
    text = f"CREATE TABLE {name} (\n" + ",\n".join(lines) + "\n)"
    if schema.comment is not None:
        text += f" COMMENT {_text(schema.comment)}"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({', '.join(map(_name, schema.partition_keys))})"
    return text + _with(shown_options(schema.options))


def _table_details(session: "SqlSession", node: nodes.Show) -> pa.Table:
    """SHOW TABLE EXTENDED: tables with what is known of each, or of one of its partitions."""
    database = session.database if node.this is None else node.this.db
    matches = _matcher(node.args.get("like") or "*")
    names = [name for name in _objects(session, node) if matches(name)]
    if node.args.get("partition") and not names:
        refuse("there is no such table", node, name=node.args.get("like"))
    texts = []
    for name in names:
        catalog = session.catalog if node.this is None else session.catalog_of(node.this)
        table = catalog.table(f"{database}.{name}")
        if node.args.get("partition"):
            texts.append(_partition_details(table, node, name))
            continue
        schema = table.schema
        options = shown_options(schema.options)
        if schema.primary_keys:
            options = {**options, "primary-key": ",".join(schema.primary_keys)}
        listed = ", ".join(f"{key}={value}" for key, value in sorted(options.items()))
        facts = {
            "Catalog": session.catalog_name,
            "Namespace": database,
            "Table": name,
            "Type": "MANAGED",
            "Comment": schema.comment or "",
            "Provider": "paimon",
            "Table Properties": f"[{listed}]",
            "Partition Columns": ", ".join(map(_name, schema.partition_keys)),
        }
        lines = [f"{key}: {value}" for key, value in facts.items() if value]
        lines += ["Schema: root", *(f" |-- {f.name}: {type_name(f.type)}" for f in schema.fields)]
        texts.append("\n".join(lines))
    return pa.table(
        {
            "namespace": pa.array([database] * len(names), pa.string()),
            "tableName": pa.array(names, pa.string()),
            "isTemporary": pa.array([False] * len(names), pa.bool_()),
            "information": pa.array(texts, pa.string()),
        }
    )


def _partition_details(table: Any, node: nodes.Show, name: str) -> str:
    of = nodes.Show(kind="partitions", this=exp.to_table(name), partition=node.args["partition"])
    names = _partitions(table, of).column(0).to_pylist()
    if not names:
        refuse("there is no such partition", node, table=name)
    rows = system_table(table, "partitions").to_pylist()
    row = next(row for row in rows if row["partition"] == names[0])
    values = ", ".join(names[0].split("/"))
    count, size = row["record_count"], row["file_size_in_bytes"]
    return f"Partition Values: [{values}]\nPartition Statistics: {count} rows, {size} bytes"


def _create_view(name: str, view: Any) -> str:
    columns = ", ".join(_name(field.name) for field in view.fields)
    comment = "" if view.comment is None else f" COMMENT {_text(view.comment)}"
    options = f" TBLPROPERTIES ({_pairs_text(view.options)})" if view.options else ""
    return f"CREATE VIEW {name} ({columns}){comment}{options} AS\n{view.query}"


def _pairs_text(options: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(key)} = {_text(value)}" for key, value in options.items())


def _create_catalog(session: "SqlSession", name: str) -> str:
    options = {"type": "paimon", **redacted_options(session.named_catalog(name).options)}
    return f"CREATE CATALOG {_name(name)}{_with(options)}"


def _create_database(session: "SqlSession", node: exp.Table) -> str:
    entry = session.catalog_of(node).database(node.db)
    comment = "" if not entry.comment else f" COMMENT {_text(entry.comment)}"
    return (
        f"CREATE DATABASE {_name(entry.name)}{comment}{_with(redacted_options(entry.properties))}"
    )


def use_catalog(session: "SqlSession", node: nodes.UseCatalog) -> None:
    """USE CATALOG."""
    session.named_catalog(node.this.name)
    session.catalog_name, session.database = node.this.name, DEFAULT_DATABASE


def use_database(session: "SqlSession", node: nodes.UseDatabase) -> None:
    """USE [catalog.]database."""
    name = node.this.db
    if (
        not node.this.catalog
        and name in session.catalogs
        and (name not in session.catalog.list_databases())
    ):  # Spark: USE takes catalogs as well
        session.catalog_name, session.database = name, DEFAULT_DATABASE
        return
    catalog = session.catalog_of(node.this)
    always = (SYSTEM_DATABASE, DEFAULT_DATABASE)
    if name not in always and name not in (names := catalog.list_databases()):
        hint = suggestion(name, names, f"there are {', '.join(names)}" if names else "")
        raise locate(NotFoundError("there is no such database", hint=hint, database=name), node)
    if node.this.catalog:
        session.catalog_name = node.this.catalog
    session.database = name


def refresh(session: "SqlSession", node: nodes.Refresh) -> None:
    """REFRESH TABLE: statements read a table as it is now; only its existence is checked."""
    session.resolve(node.this)


def set_option(session: "SqlSession", node: nodes.SetOption) -> pa.Table | None:
    """SET: set an option, or show one or all."""
    key, value = node.args.get("key_text"), node.args.get("value")
    if key is not None and value is not None:
        if key in nodes.ZONE_OPTIONS:
            _require_zone(node, value)
        elif hint := suggestion(key, nodes.ZONE_OPTIONS, cutoff=_MISSPELT):
            refuse("there is no such session option", node, hint=hint, option=key)
        session.options[key] = value
        return None
    options = {name: text for name, text in session.options.items() if key in (None, name)}
    return _pairs(options)


def _require_zone(node: nodes.SetOption, zone: str) -> None:
    try:
        connect(zone).close()
    except SqlError as error:
        raise locate(error, node) from error.__cause__


def reset_option(session: "SqlSession", node: nodes.ResetOption) -> None:
    """RESET: unset one option or all."""
    key = node.args.get("key_text")
    if key is None:
        session.options.clear()
    else:
        session.options.pop(key, None)
