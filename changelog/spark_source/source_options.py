# SPDX-License-Identifier: Apache-2.0
"""The options of `format("lakeward")`: table, view, projection and filter.

A table is named by `path` (its directory, as in `load(path)`), or by `warehouse` and `table`.
Either may end in `$branch_<name>` and in the name of a system table: `db.t$branch_dev$snapshots`.
Every option of a table (docs/reference/table-options.md) may be set for this read or write only,
and every option of an object store; options of a catalog begin with `catalog.`. Spark passes all
keys in lower case.
"""

import dataclasses
import datetime
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema

from storage.catalog.catalog import Catalog
from storage.catalog.options import STORE_PREFIXES
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.options.options import find_option
from storage.options.table import TABLE_OPTIONS
from storage.table.scan import predicate as own
from storage.table.scan.predicate import (
    Op,
    Predicate,
    literal_scalar,
    parse_predicate,
    require_known,
)
from storage.table.table import FileStoreTable
from storage.table.table_types import typed_table

READ_CHANGELOG = "read.changelog"

OWN_OPTIONS = {
    "path": "directory of the table",
    "warehouse": "directory or URL of a warehouse; goes with `table`",
    "table": "`database.table` in the warehouse",
    "columns": "columns to read, separated by commas; Spark prunes none for Python sources",
    "filter": "rows wanted, as SQL: `id > 5 and dt = '2026-01-31'`",
    READ_CHANGELOG: "whether rows come with `_row_kind`; a stream of a keyed table must say it",
    "max.snapshots.per.trigger": "snapshots that one micro-batch takes in at most",
    "max.rows.per.trigger": "changes after which a micro-batch takes in no further snapshot",
    "commit.user": "name of a batch write, which then happens at most once per number",
    "commit.identifier": "its number, growing; in a `foreachBatch` that of the micro-batch",
    "overwrite.partition": "what an overwrite replaces: `dt=2026-01-31,hh=10`",
}
"""Options of the source itself, with their meaning."""

WRITE_OPTIONS = frozenset({"commit.user", "commit.identifier", "overwrite.partition"})
LIMITS = frozenset({"max.snapshots.per.trigger", "max.rows.per.trigger"})
READ_OPTIONS = frozenset({"columns", "filter", READ_CHANGELOG}) | LIMITS

_SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark adds to those of the source."""

_CATALOG_PREFIX = "catalog."
"""Prefix of catalog options: `catalog.metastore`, `catalog.uri`, …"""

_BRANCH = "branch_"
_MARK = "$"
_SYSTEM_DATABASE = "sys"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write.

    Attributes:
        path: directory of the table, without suffixes; None: by warehouse and name.
        warehouse: of the table; None: by path.
        table: `database.table`, without suffixes.
        branch: of the table; None: its main one.
        system_table: name of a system table; None: the rows themselves.
        columns: projection, in order; None: all.
        predicate: row filter; None: all.
        table_options: override those of the table.
        catalog_options: of the catalog, without `catalog.`.
        reader_options: the other options of `OWN_OPTIONS`, by key.
    """

    path: str | None
    warehouse: str | None
    table: str | None
    branch: str | None
    system_table: str | None
    columns: tuple[str, ...] | None
    predicate: Predicate | None
    table_options: Mapping[str, str]
    store_options: Mapping[str, str]
    catalog_options: Mapping[str, str]
    reader_options: Mapping[str, str]

    @staticmethod
    def parse(options: Mapping[str, str]) -> "SourceOptions":
        """Read Spark's options.

        Raises:
            InvalidOptionError: an option is unknown, missing, or contradicts another.
            InvalidRequestError: the filter cannot be parsed.
        """
        entries = {key.lower(): str(value) for key, value in options.items()}
        source = {key: value for key, value in entries.items() if key in OWN_OPTIONS}
        store = {key: value for key, value in entries.items() if key.startswith(STORE_PREFIXES)}
        catalog = {key: value for key, value in entries.items() if key.startswith(_CATALOG_PREFIX)}
        known_keys = {*source, *store, *catalog, *_SPARKS}
        table_keys = [key for key in entries if key not in known_keys]
        for key in table_keys:
            _check_known(key)
        path, warehouse, table = source.get("path"), source.get("warehouse"), source.get("table")
        _check_place(path, warehouse, table)
        if path and catalog:
            raise InvalidOptionError(
                "a table opened by path has no catalog",
                hint="give `warehouse` and `table` instead of `path`",
                key=min(catalog),
            )
        base, branch, system = _unmarked(path or table or "")
        filter_text = source.get("filter", "").strip()
        return SourceOptions(
            path=base if path else None,
            warehouse=None if path else warehouse,
            table=None if path else base,
            branch=branch,
            system_table=system,
            columns=_names(source["columns"]) if source.get("columns") else None,
            predicate=parse_predicate(filter_text) if filter_text else None,
            table_options={key: entries[key] for key in table_keys},
            store_options=store,
            catalog_options={
                key.removeprefix(_CATALOG_PREFIX): value for key, value in catalog.items()
            },
            reader_options=source,
        )

    @property
    def reads_changelog(self) -> bool:
        """Whether rows have their kinds."""
        return bool(self.flag(READ_CHANGELOG))

    def flag(self, key: str) -> bool | None:
        """A boolean; None if the option is not set.

        Raises:
            InvalidOptionError: it is neither `true` nor `false`.
        """
        text = self.reader_options.get(key)
        if text is None:
            return None
        if text.strip().lower() not in ("true", "false"):
            raise InvalidOptionError("option is neither true nor false", key=key, value=text)
        return text.strip().lower() == "true"

    @property
    def catalog_table(self) -> str | None:
        """Name of a system table of the whole catalog, `sys.<name>`; None: of a table."""
        database, _, name = (self.table or "").partition(".")
        return name if database == _SYSTEM_DATABASE else None

    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return Catalog.open(self.warehouse or "", {**self.store_options, **self.catalog_options})

    def open(self) -> FileStoreTable | Any:
        """The table, with its dynamic options.

        Raises:
            NotFoundError: there is no such table, branch, tag, or snapshot.
            InvalidOptionError: the options contradict each other or those of the table.
        """
        if self.path is not None:
            store = self.store_options or None
            core = FileStoreTable.open(self.path, options=store, branch=self.branch)
            table = typed_table(core)
        else:
            mark = f"{_MARK}{_BRANCH}{self.branch}" if self.branch else ""
            table = self.catalog().table(f"{self.table}{mark}")
        return table.with_options(self.table_options) if self.table_options else table

    def refuse(self, keys: Iterable[str], what: str) -> None:
        """Refuse options that would be ignored.

        Args:
            what: what does not support them.

        Raises:
            InvalidOptionError: one is set.
        """
        for key in sorted(keys):
            if key in self.reader_options:
                raise InvalidOptionError(f"{what} has no such option", hint="remove it", key=key)

    def count(self, key: str) -> int | None:
        """A positive integer; None if the option is not set.

        Raises:
            InvalidOptionError: it is not.
        """
        if key not in self.reader_options:
            return None
        number = self.number(key)
        if number < 1:
            raise InvalidOptionError("option is not positive", key=key, value=number)
        return number

    def number(self, key: str) -> int:
        """A non-negative integer of an option that is set.

        Raises:
            InvalidOptionError: it is not.
        """
        text = self.reader_options[key].strip()
        if not text.isdecimal():
            raise InvalidOptionError("option is not a non-negative integer", key=key, value=text)
        return int(text)


def _check_place(path: str | None, warehouse: str | None, table: str | None) -> None:
    if path and (warehouse or table):
        raise InvalidOptionError(
            "conflicting options for the table",
            hint="give `path` alone, or `warehouse` and `table`",
            path=path,
        )
    if path or (warehouse and table):
        return
    raise InvalidOptionError(
        "no table given",
        hint='give its directory, load("/lake/db.db/orders"), or the options `warehouse` and '
        "`table` (`db.orders`)",
        missing="table" if warehouse else "path",
    )


def _unmarked(name: str) -> tuple[str, str | None, str | None]:
    """A name without its suffixes, the branch, the system table."""
    head, slash, last = name.rpartition("/")
    base, *marks = last.split(_MARK)
    branch = system = None
    if marks and marks[0].startswith(_BRANCH):
        branch = marks.pop(0).removeprefix(_BRANCH)
    if marks:
        system = marks.pop(0)
    if marks or branch == "" or system == "" or not base:
        raise InvalidOptionError(
            "not a table name",
            hint="write `db.t`, `db.t$branch_dev`, `db.t$snapshots` or `db.t$branch_dev$snapshots`",
            table=name,
        )
    return f"{head}{slash}{base}", branch, system


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip().strip("`") for part in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise InvalidOptionError(
            "empty or duplicate column names", hint="write `id,name`", columns=text
        )
    return names


def _check_known(key: str) -> None:
    if find_option(key) is not None or key.startswith(("lakeward.", "parquet.", "orc.", "avro.")):
        return
    keys: Sequence[str] = [*OWN_OPTIONS, *(row.key for row in TABLE_OPTIONS)]
    matches = difflib.get_close_matches(key, keys, 1)
    raise InvalidOptionError(
        "there is no such option",
        hint=f"did you mean `{matches[0]}`?" if matches else "see docs/reference/table-options.md",
        key=key,
    )


# Columns between Paimon and Spark: the Spark types of columns, and their values.
#
# CHAR and VARCHAR are strings, MULTISET is a map to counts, timestamps without zone stay without.
# TIME is an INT, milliseconds of the day, since Spark refuses plans with its own TIME type unless a
# setting allows them. Spark has microseconds: finer timestamps are truncated in reading. Data
# plane: whole columns.


_COMPARISONS: Mapping[type[Filter], Op] = {
    EqualTo: Op.EQ,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GE,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LE,
}
_PATTERNS: Mapping[type[Filter], str] = {
    StringStartsWith: "{}%",
    StringEndsWith: "%{}",
    StringContains: "%{}%",
}
_LIKE_MARKS = frozenset("%_\\\n\r")


def pushed_predicate(spark_filter: Filter, schema: pa.Schema) -> Predicate | None:
    """Spark's filter as a predicate of `storage`, if the semantics are identical.

    Excluded are conditions on parts of a column, on types whose values are converted for Spark
    (finer than microseconds, TIME), and texts with wildcards of LIKE.

    Args:
        schema: columns as `storage` types.

    Returns:
        None if Spark has to filter.
    """
    if isinstance(spark_filter, Not):
        part = pushed_predicate(spark_filter.child, schema)
        return None if part is None else own.Not(part)
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    name = path[0]
    if isinstance(spark_filter, IsNull):
        return own.IsNull(name)
    if isinstance(spark_filter, IsNotNull):
        return own.Not(own.IsNull(name))
    type_ = schema.field(name).type
    return _compared(spark_filter, name, type_) if _keeps_values(type_) else None


def _compared(spark_filter: Filter, name: str, type_: pa.DataType) -> Predicate | None:
    value: Any = getattr(spark_filter, "value", None)
    if isinstance(spark_filter, In):
        return (
            own.In(name, tuple(value))
            if all(_literal_matches(item, type_) for item in value)
            else None
        )
    pattern = _PATTERNS.get(type(spark_filter))
    if pattern is not None:
        plain = isinstance(value, str) and not _LIKE_MARKS & set(value)
        return own.Like(name, pattern.format(value)) if plain else None
    if not _literal_matches(value, type_):
        return None
    if isinstance(spark_filter, EqualNullSafe):
        if value is None:
            return own.IsNull(name)
        return own.And((own.Not(own.IsNull(name)), own.Compare(Op.EQ, name, value)))
    op = _COMPARISONS.get(type(spark_filter))
    return None if op is None else own.Compare(op, name, value)


_EXACT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
)


def _keeps_values(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.unit != "ns"
    return any(is_of(type_) for is_of in _EXACT)


def _literal_matches(value: Any, type_: pa.DataType) -> bool:
    """Whether a literal can be compared without conversion; null always can."""
    if value is None:
        return True
    if pa.types.is_timestamp(type_):
        if not isinstance(value, datetime.datetime):
            return False
        if (value.tzinfo is None) is not (type_.tz is None):
            return False
        if type_.unit == "ms" and value.microsecond % 1000:
            return False  # Arrow would truncate it
    elif pa.types.is_string(type_) is not isinstance(value, str):
        return False
    try:
        return literal_scalar(value, type_) is not None
    except (pa.ArrowException, InvalidRequestError, OverflowError):
        return False


BATCH_BYTES = 16 << 20
"""Of one batch for Spark, which holds it in the memory of the JVM as a whole [bytes]."""

_SIMPLE = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
}


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of Arrow columns as `storage` types.

    Raises:
        UnsupportedFeatureError: Spark has no such type.
    """
    return spark.StructType([_spark_field(field) for field in schema])


def arrow_schema_of(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark exchanges rows."""
    result: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return result


def chosen_columns(schema: spark.StructType, stored_schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns that a read requests, perhaps by `DataFrameReader.schema`.

    Args:
        schema: of the read.
        stored_schema: Arrow columns as `storage` types.

    Raises:
        InvalidRequestError: a column is missing, or of another type.
    """
    names = tuple(field.name for field in schema.fields)
    require_known(names, stored_schema.names)
    for field in schema.fields:
        column_type = _spark_field(stored_schema.field(field.name)).dataType
        if column_type.simpleString() != field.dataType.simpleString():
            raise InvalidRequestError(
                "a column's type differs from the requested one",
                hint="leave `.schema(…)` out, and cast",
                column=field.name,
                type=column_type.simpleString(),
                wanted=field.dataType.simpleString(),
            )
    return names


def spark_batches(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Spark's types, in batches that fit its memory.

    Args:
        batch: columns as `storage` types, in the order of the schema.
        schema: of `arrow_schema_of`.
    """
    arrays = [
        _converted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    pieces = max(1, -(-rows.nbytes // BATCH_BYTES))
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _spark_field(field: pa.Field) -> spark.StructField:
    return spark.StructField(field.name, _spark_type(field.type, field.name), field.nullable)


def _spark_type(type_: pa.DataType, name: str) -> spark.DataType:
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if pa.types.is_decimal(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return spark.TimestampNTZType() if type_.tz is None else spark.TimestampType()
    if pa.types.is_time(type_):
        return spark.IntegerType()
    if pa.types.is_list(type_):
        item = type_.value_field
        return spark.ArrayType(_spark_type(item.type, name), item.nullable)
    if pa.types.is_map(type_):
        value = type_.item_field
        return spark.MapType(
            _spark_type(type_.key_type, name), _spark_type(value.type, name), value.nullable
        )
    if pa.types.is_struct(type_):
        fields: Sequence[pa.Field] = [type_.field(at) for at in range(type_.num_fields)]
        return spark.StructType([_spark_field(field) for field in fields])
    raise UnsupportedFeatureError(
        "Spark has no type for a column",
        hint="leave it out with the option `columns`",
        column=name,
        type=type_,
    )


def _converted(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    if column.type == target_type:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(target_type, safe=False)
