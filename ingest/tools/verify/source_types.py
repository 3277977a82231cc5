# SPDX-License-Identifier: Apache-2.0
"""How a column of a database is read, by its type there: SQL expression and form.

Texts are selected where the driver's values would lose something (infinite times, zero dates, a
year after 9999) or cost more than parsing a column of texts at once. What a connector sends in a
shape of its own, for which there is no rule here, is left out of the comparison and reported.
"""

import dataclasses
import re
from collections.abc import Callable, Collection

from ingest.decode.types.semantic_types import MAX_PADDED_BITS
from ingest.tools.verify.fitting import Form
from storage.format.types.types import ArrayType, AtomicType, DataType, TypeRoot


@dataclasses.dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        name: as in the database.
        type: as the database names it, lowercase, such as `numeric(10,2)`.
    """

    name: str
    type: str

    @property
    def base(self) -> str:
        """The type without what is in brackets."""
        return re.sub(r"\s*\([^)]*\)", "", self.type).strip()


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How a column is read.

    Attributes:
        expression: SQL, `{}` for the quoted column.
        form: how its texts are compared.
        bits: texts are bit strings.
        pages: whether a value that was read, given back as a parameter, compares with the column
            as the column's values compare in ORDER BY.
        refusal: why it is not compared; "" = it is.
    """

    expression: str = "{}"
    form: Form = Form.PLAIN
    bits: bool = False
    pages: bool = True
    refusal: str = ""


_NO_RULE = "no rule says how a connector writes {}"


def way_of(
    dialect: str, column: SourceColumn, lake: DataType, mapping: Collection[str] = ()
) -> Way:
    """How a column is read.

    Args:
        dialect: SQLAlchemy's name of the kind of database.
        column: of the source.
        lake: type of the lake's column.
        mapping: the pipeline's `sink.type.mapping`.
    """
    if isinstance(lake, ArrayType):
        nested = dialect == "postgresql" and column.base.endswith("[]")
        way = _postgres_array(column) if nested else Way()
    elif not isinstance(lake, AtomicType):
        return Way(refusal="nested types of a database are not compared")
    else:
        way = _WAYS.get(dialect, _unsupported_way)(column, lake.root)
    if dialect == "postgresql" and column.base in _INFINITE:
        way = dataclasses.replace(way, expression=_finite(column.base, mapping))
    if isinstance(lake, AtomicType) and lake.root in (TypeRoot.VARCHAR, TypeRoot.CHAR):
        return _as_text(column, way)
    return way


_INFINITE = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp without time zone": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamp with time zone": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}


def _finite(base: str, mapping: Collection[str]) -> str:
    """What the pipeline writes for PostgreSQL's infinities; as texts they equal nothing."""
    if "infinity-to-null" in mapping:
        return "CASE WHEN isfinite({0}) THEN CAST({0} AS text) END"
    if "infinity-to-bounds" in mapping:
        low, high = _INFINITE[base]
        return (
            f"CASE CAST({{0}} AS text) WHEN 'infinity' THEN '{high}' "
            f"WHEN '-infinity' THEN '{low}' ELSE CAST({{0}} AS text) END"
        )
    return "CAST({} AS text)"


def _as_text(column: SourceColumn, way: Way) -> Way:
    """The rules of STRING columns."""
    base = column.base
    if base in _NUMBERS and way.form is Form.PLAIN:
        return dataclasses.replace(way, form=Form.NUMBER)
    if base.endswith("[]"):
        return dataclasses.replace(way, form=Form.JSON)
    if base in _NOT_AS_TEXT:
        return Way(refusal=_NO_RULE.format(f"{base} as text"))
    if base == "time" and way.expression == _MYSQL_TEXT and "(" in column.type:
        return dataclasses.replace(way, expression=_MYSQL_SHORT_TIME, pages=False)
    return way


_NOT_AS_TEXT = frozenset(
    {
        *("real", "double precision", "bytea", "date", *_INFINITE),
        *("float", "double", "datetime", "timestamp", "binary", "varbinary"),
        *("blob", "tinyblob", "mediumblob", "longblob"),
    }
)
_MYSQL_TEXT = "CAST({} AS CHAR)"
_MYSQL_SHORT_TIME = "TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({} AS CHAR)))"
"""Of a TIME with digits after the second: without zeros at its end, as connectors write it."""

_NUMBERS = ("numeric", "decimal", "number")

# --- PostgreSQL

_POSTGRES_AS_IS = frozenset(
    {
        *("smallint", "integer", "bigint", "oid", "boolean", "numeric", "bytea"),
        *("text", "character varying", "character", "name"),
    }
)
_POSTGRES_NOT = frozenset(
    {
        *("point", "line", "lseg", "box", "path", "polygon", "circle"),
        *("geometry", "geography", "tsquery"),
    }
)
_POSTGRES_BY_LAKE = {
    # microseconds; a month has 365.25 / 12 days
    ("interval", TypeRoot.BIGINT): "CAST((((EXTRACT(YEAR FROM {0}) * 12 + EXTRACT(MONTH FROM {0})) "
    "* 30.4375 + EXTRACT(DAY FROM {0})) * 86400 + EXTRACT(HOUR FROM {0}) * 3600 "
    "+ EXTRACT(MINUTE FROM {0}) * 60 + EXTRACT(SECOND FROM {0})) * 1000000 AS bigint)",
    ("time with time zone", TypeRoot.VARCHAR): (
        "CAST(CAST({} AT TIME ZONE 'UTC' AS time) AS text) || 'Z'"
    ),
}
"""What Debezium sends of types that have several forms, by the type that the lake chose."""


def _postgres(column: SourceColumn, lake: TypeRoot) -> Way:
    base = column.base
    if base in _POSTGRES_AS_IS:
        return Way()
    if base in ("real", "double precision"):
        return Way(pages=False)
    if base in ("interval", "time with time zone"):
        expression = _POSTGRES_BY_LAKE.get((base, lake))
        refused = Way(refusal=_NO_RULE.format(base))
        return refused if expression is None else Way(expression, pages=False)
    if base in _POSTGRES_NOT:
        return Way(refusal=_NO_RULE.format(base))
    if base in ("json", "jsonb"):
        return Way("CAST({} AS text)", Form.JSON, pages=False)
    if base == "hstore":
        return Way("CAST(hstore_to_json({}) AS text)", Form.JSON, pages=False)
    if base == "money":
        return Way("CAST({} AS numeric)", pages=False)
    if base == "inet":  # a cast would add /32
        return Way("NULLIF(format('%s', {}), '')")
    if base in ("bit", "bit varying"):
        return Way(_postgres_bits(column), bits=True, pages=False)
    return Way("CAST({} AS text)")


def _postgres_bits(column: SourceColumn) -> str:
    """Connectors omit leading zeros, and do not send the length of a varying string."""
    length = re.search(r"\((\d+)\)", column.type)
    if length is None or int(length.group(1)) > MAX_PADDED_BITS:
        return "CAST({} AS text)"
    return f"lpad(CAST({{}} AS text), {length.group(1)}, '0')"


_POSTGRES_LISTS = frozenset(
    {
        *("smallint", "integer", "bigint", "boolean", "numeric", "real", "double precision"),
        *("text", "character varying", "character", "date", "bytea"),
        *("timestamp without time zone", "timestamp with time zone"),
    }
)


def _postgres_array(column: SourceColumn) -> Way:
    if column.base.removesuffix("[]") in _POSTGRES_LISTS:
        return Way(pages=False)
    if column.base.count("[]") > 1:
        return Way(pages=False)
    return Way("CAST({} AS text[])", pages=False)


# --- MySQL and MariaDB

_SPATIAL = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
        *("multipolygon", "geometrycollection", "geomcollection"),
    }
)


def _mysql(column: SourceColumn, lake: TypeRoot) -> Way:
    del lake
    base = column.base.replace(" unsigned", "").replace(" zerofill", "")
    if base in _SPATIAL:
        return Way(refusal=_NO_RULE.format(base))
    if base == "float":  # as text a FLOAT has six digits; as DOUBLE all of them
        return Way("({} * 1e0)", pages=False)
    if base == "double":
        return Way(pages=False)
    if base == "timestamp":
        return Way(_MYSQL_TEXT, Form.NO_EPOCH)
    if base in ("date", "datetime", "time"):
        return Way(_MYSQL_TEXT)
    if base == "json":
        return Way(form=Form.JSON, pages=False)
    if base == "bit":
        return Way(bits=True, pages=False)
    if base in ("enum", "set"):  # ordered by number, compared by text
        return Way(pages=False)
    if base == "uuid":
        return Way("CAST({} AS CHAR)", pages=False)
    return Way()


# --- others


def _sqlite(column: SourceColumn, lake: TypeRoot) -> Way:
    del lake
    if column.base in ("json", "jsonb"):
        return Way(form=Form.JSON)
    return Way()


def _unsupported_way(column: SourceColumn, lake: TypeRoot) -> Way:
    del lake
    return Way(pages=False)


_WAYS: dict[str, Callable[[SourceColumn, TypeRoot], Way]] = {
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
    "sqlite": _sqlite,
}
