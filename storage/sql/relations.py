# SPDX-License-Identifier: Apache-2.0
"""The resolution of names in queries: tables at a snapshot, system tables, views.

`t`, `db.t`, `catalog.db.t`, each with an optional `$branch_name` and `$system`; `sys.name` are the
tables of the catalog. Hints, `VERSION AS OF` and `TIMESTAMP AS OF` become dynamic options.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from storage.catalog.catalog import BRANCH_MARK, Catalog, split_branch
from storage.catalog.system_tables import CATALOG_TABLES, catalog_system_table
from storage.errors import InvalidOptionError, NotFoundError
from storage.format.types.types import (
    MAX_MICROS_PRECISION,
    MAX_MILLIS_PRECISION,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowType,
    TypeRoot,
)
from storage.io.object_store_options import REDACTED
from storage.options.options import find_option
from storage.options.table import TABLE_OPTIONS
from storage.sql.errors import locate, refuse, suggestion
from storage.sql.nodes import table_options
from storage.sql.parse.words import text_of
from storage.sql.pushdown import narrowest
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.inspect.system.row_tables import read_optimized_table
from storage.table.scan.predicate import Predicate
from storage.table.scan.row_scan import EngineScan
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

# Data files that DuckDB reads itself, with the values that a scan of the table would give it.
#
# A query that aggregates takes between a tenth and a half less CPU time this way: DuckDB decodes
# into its own vectors and filters by dictionaries and statistics.
#
# Statistics of Parquet do not know NaN, which is greater than all numbers in SQL: DuckDB would skip
# row groups that have it (`can_have_nan`), and take the greatest number for the greatest value,
# from which a computed column protects. Types whose values it reads in another way are left to our
# reader.


_SIMPLE = {
    TypeRoot.CHAR: "VARCHAR",
    TypeRoot.VARCHAR: "VARCHAR",
    TypeRoot.BOOLEAN: "BOOLEAN",
    TypeRoot.BINARY: "BLOB",
    TypeRoot.VARBINARY: "BLOB",
    TypeRoot.TINYINT: "TINYINT",
    TypeRoot.SMALLINT: "SMALLINT",
    TypeRoot.INT: "INTEGER",
    TypeRoot.BIGINT: "BIGINT",
    TypeRoot.FLOAT: "FLOAT",
    TypeRoot.DOUBLE: "DOUBLE",
    TypeRoot.DATE: "DATE",
}
_FRACTIONS = ("FLOAT", "DOUBLE")
_MILLIS = "TIMESTAMP_MS"
_OPTIONS = "hive_partitioning = false, union_by_name = false, can_have_nan = true"


def duckdb_type(type_: DataType) -> str | None:
    """The type that a column of Arrow rows has in DuckDB, where files give the same values.

    Returns:
        None where they may not.
    """
    match type_:
        case AtomicType(root=TypeRoot.DECIMAL):
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case AtomicType(root=TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ):
            if type_.precision > MAX_MICROS_PRECISION:
                return None
            if type_.root is TypeRoot.TIMESTAMP_LTZ:
                return "TIMESTAMP WITH TIME ZONE"
            return _MILLIS if type_.precision <= MAX_MILLIS_PRECISION else "TIMESTAMP"
        case AtomicType():
            return _SIMPLE.get(type_.root)
        case ArrayType(element=element):
            part = _part(element)
            return part and f"{part}[]"
        case MapType(key=key, value=value):
            parts = _part(key), _part(value)
            return f"MAP({parts[0]}, {parts[1]})" if all(parts) else None
        case RowType(fields=fields):
            members = [f"{_quoted(f.name)} {_part(f.type)}" for f in fields if _part(f.type)]
            return f"STRUCT({', '.join(members)})" if len(members) == len(fields) else None
        case _:
            return None


def view_of(scan: EngineScan, remainder: str) -> str:
    """A query for the rows of a scan.

    Args:
        scan: with files.
        remainder: name of a relation with the rows that are not in `scan.files`, if there are any.
    """
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in scan.files)
    columns = ", ".join(map(_column, scan.fields))
    text = f"SELECT {columns} FROM read_parquet([{files}], {_OPTIONS})"
    if scan.complete:
        return text
    names = ", ".join(_quoted(field.name) for field in scan.fields)
    return f"{text} UNION ALL SELECT {names} FROM {_quoted(remainder)}"


def _column(field: DataField) -> str:
    name, type_ = _quoted(field.name), duckdb_type(field.type)
    if type_ in _FRACTIONS:
        return f"-(-{name}) AS {name}"
    return f"CAST({name} AS {type_}) AS {name}"


def _part(type_: DataType) -> str | None:
    """As part of another type, where no statistics or conversions are in the way."""
    name = duckdb_type(type_)
    return None if name in (*_FRACTIONS, _MILLIS) else name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


SYSTEM_DATABASE = "sys"
_GLOBAL = re.compile(r"(?:spark\.)?paimon\.([^.]+)\.([^.]+)\.([^.]+)\.(.+)")
"""`SET 'paimon.<catalog>.<database>.<table>.<option>'`, each name or `*`."""
_EVERYWHERE = "spark.paimon."
_CLOSE, _DYNAMIC_CLOSE = 0.8, 0.6
"""Similarity from which a key counts as a misspelt option."""
_PREFIXES = ("parquet.", "orc.", "avro.", "lakeward.")
OF_JOBS = (
    *("sink.", "source.", "log.", "lookup.async", "lookup.bootstrap-", "lookup.refresh."),
    *("lookup.cache", "lookup.dynamic-partition", "scan.parallelism", "scan.infer-parallelism"),
    *("scan.split-enumerator", "scan.dedicated-split-generation", "scan.watermark.emit."),
    *("scan.watermark.alignment.", "scan.watermark.idle-timeout", "scan.remove-normalize"),
    *("read.stream.", "unaware-bucket.", "precommit-compact", "requiredSparkConfsCheck."),
)
"""First words of options of Flink's and Spark's jobs, which change no rows here."""


@dataclasses.dataclass(frozen=True, slots=True)
class SystemTable:
    """`t$name`."""

    table: FileStoreTable
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogTable:
    """`sys.name`."""

    catalog: Catalog
    name: str


def resolve(session: "SqlSession", node: exp.Table) -> Any:
    """See `SqlSession.resolve`."""
    if not node.db and node.name in session.temporary_views:
        return session.temporary_views[node.name]
    catalog, database = session.catalog_of(node), node.db or session.database
    if database.lower() == SYSTEM_DATABASE:
        if node.name.lower() not in CATALOG_TABLES:
            hint = suggestion(node.name, CATALOG_TABLES, f"there are {', '.join(CATALOG_TABLES)}")
            raise locate(NotFoundError("there is no such table", hint=hint, table=node.name), node)
        return CatalogTable(catalog, node.name)
    base, branch, system = split_name(node)
    options = dynamic_options(session, node, base)
    check_options(options, node, dynamic=True)
    try:
        table = catalog.table(f"{database}.{base}" + (f"{BRANCH_MARK}{branch}" if branch else ""))
    except NotFoundError as error:
        view = None if branch or system else _view(catalog, f"{database}.{base}")
        if view is not None:
            if options:
                refuse("a view takes no options and no time travel", node)
            return view
        if branch and catalog.exists(f"{database}.{base}"):
            rows = system_table(catalog.table(f"{database}.{base}"), "branches")
            branches = rows.column("branch_name").to_pylist()
            hint = suggestion(
                branch, branches, f"there are main{''.join(f', {name}' for name in branches)}"
            )
            no_branch = NotFoundError(
                "there is no such branch", hint=hint, table=base, branch=branch
            )
            raise locate(no_branch, node) from error
        raise locate(_not_found(error, catalog, database, base), node) from error
    options = {key: value for key, value in options.items() if is_of_tables(key)}
    if options:
        table = table.with_options(options)
    return table if system is None else SystemTable(table, system)


def split_name(node: exp.Table) -> tuple[str, str | None, str | None]:
    """Table, branch and system table of a name such as `t$branch_b$files`.

    Raises:
        NotFoundError: there is no such system table.
        SqlError: the name has more parts.
    """
    base, branch, parts = split_branch(node.name)
    if len(parts) > 1:
        refuse("there is no such table", node, hint="write t$files, or t$branch_b$files")
    system = parts[0].lower() if parts else None
    if system is not None and system not in SYSTEM_TABLES:
        hint = suggestion(system, SYSTEM_TABLES, f"there are {', '.join(SYSTEM_TABLES)}")
        error = NotFoundError("there is no system table of this name", hint=hint, name=parts[0])
        raise locate(error, node)
    return base, branch, system


def dynamic_options(session: "SqlSession", node: exp.Table, base: str) -> dict[str, str]:
    """Options of a table in a statement: of SET, of its hint, and of VERSION or TIMESTAMP AS OF."""
    names = (node.catalog or session.catalog_name, node.db or session.database, base)
    options: dict[str, str] = {}
    for key, value in session.options.items():
        match = _GLOBAL.fullmatch(key)
        if match and all(
            pattern in ("*", name) for pattern, name in zip(match.groups(), names, strict=False)
        ):
            options[match[4]] = value
        elif key.startswith(_EVERYWHERE) and find_option(key.removeprefix(_EVERYWHERE)):
            options[key.removeprefix(_EVERYWHERE)] = value
    return {**options, **table_options(node), **_travel(session, node)}


def _travel(session: "SqlSession", node: exp.Table) -> dict[str, str]:
    version = node.args.get("version")
    if not isinstance(version, exp.Version):
        return {}
    state = version.expression
    if str(version.args.get("kind")).upper() != "AS OF" or state is None:
        refuse("only AS OF chooses a state", node)
    if str(version.this).upper() == "VERSION":
        return {"scan.version": str(text_of(state))}
    from storage.sql.query import instant_ms

    if state.find(exp.Column):
        hint = "lookup joins of Flink are ordinary joins here, without FOR SYSTEM_TIME"
        refuse("a state is not chosen by a column", state, hint=hint)
    if isinstance(state, exp.Literal) and not state.is_string:
        return {"scan.timestamp-millis": str(int(state.this) * 1000)}  # Spark: epoch seconds
    return {"scan.timestamp-millis": str(instant_ms(session, state))}


def is_of_tables(key: str) -> bool:
    """Whether an option may have an effect here."""
    return find_option(key) is not None or not key.startswith(OF_JOBS)


def refuse_hidden(options: Mapping[str, str], node: exp.Expr | None) -> None:
    """Refuse values that SHOW wrote in place of secrets, whole or in addresses.

    Raises:
        InvalidOptionError: there is one.
    """
    for key, value in options.items():
        if REDACTED in value:
            hint = "SHOW does not tell secrets: write the true value"
            raise locate(InvalidOptionError("a hidden value", hint=hint, option=key), node)


def check_options(
    options: Mapping[str, str], node: exp.Expr | None = None, *, dynamic: bool = False
) -> None:
    """Refuse keys that are no table options, and hidden values.

    A table keeps keys that are not known, as Paimon's tables do for other engines; but not those
    that are likely a misspelt option. In a hint a key without effect has no purpose.

    Raises:
        InvalidOptionError: there is no such option; suggests one. Or as of `refuse_hidden`.
    """
    refuse_hidden(options, node)
    for key in options:
        if find_option(key) is not None or key.startswith((*_PREFIXES, *OF_JOBS)):
            continue
        keys = [row.key for row in TABLE_OPTIONS]
        hint = suggestion(key, keys, cutoff=_DYNAMIC_CLOSE if dynamic else _CLOSE)
        if hint or dynamic:
            hint = hint or "see the table options in the reference"
            raise locate(InvalidOptionError("there is no such option", hint=hint, option=key), node)


def _view(catalog: Catalog, identifier: str) -> Any:
    try:
        return catalog.view(identifier)
    except (NotFoundError, NotImplementedError):
        return None


def _not_found(error: NotFoundError, catalog: Catalog, database: str, name: str) -> NotFoundError:
    """The same error with a hint at existing names."""
    if database not in (names := catalog.list_databases()):
        hint = suggestion(database, names, f"there are {', '.join(names)}" if names else "")
        return NotFoundError("there is no such database", hint=hint, database=database)
    tables = catalog.list_tables(database)
    listing = f"{database} has {', '.join(tables[:10])}" if tables else f"{database} has no tables"
    hint = suggestion(name, tables, listing)
    context = {key: value for key, value in error.context.items() if key != "warehouse"}
    return NotFoundError(error.message, hint=hint, **context)


def is_view(relation: Any) -> bool:
    """Whether a relation is a view, whose query takes its place."""
    return hasattr(relation, "dialects")


def columns_of(relation: Any) -> pa.Schema | None:
    """Columns of a relation, without reading it; None: only its rows show them."""
    match relation:
        case pa.Table():
            return relation.schema
        case SystemTable(table, "ro"):
            return table.schema.arrow_schema
        case SystemTable() | CatalogTable():
            return None
        case _:
            return relation.schema.arrow_schema


def rows_of(
    relation: Any,
    columns: list[str] | None = None,
    predicate: Predicate | None = None,
    *,
    all_rows: bool = False,
) -> Any:
    """The rows of a relation as an object with Arrow's stream interface.

    It can be read any number of times; rows that do not satisfy the predicate may be among them,
    and an empty list of columns yields one arbitrary column.

    Args:
        all_rows: whether the query needs all of them before it has a result. Then it pays that
            DuckDB reads files itself (`EngineScan.files`), whose checksums are verified before.
    """
    if isinstance(relation, FileStoreTable):
        scan = EngineScan(relation, columns, predicate)
        if all_rows and all(duckdb_type(field.type) for field in scan.fields):
            scan.hand_over()
        return scan
    schema = columns_of(relation)
    if columns == [] and schema is not None:
        columns = [narrowest(schema)]
    match relation:
        case pa.Table():
            return relation if columns is None else relation.select(columns)
        case SystemTable(table, "ro"):
            return read_optimized_table(table, columns, predicate)
        case SystemTable(table, name):
            return system_table(table, name)
        case CatalogTable(catalog, name):
            return catalog_system_table(catalog, name)
        case _:
            return relation.scan(predicate, columns)
