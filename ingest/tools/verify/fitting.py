# SPDX-License-Identifier: Apache-2.0
"""Values as database drivers return them, as columns of a lake table's Arrow types.

A whole column is converted by Arrow when its Python types show that nothing can be lost; else value
by value, exactly. A value that the lake's type cannot hold is *unfit*: null in the column, and kept
as text, so that it equals no value of the lake.

Rules: a time is cut to milliseconds, a timestamp to the column's precision (both as the pipeline
stores them); a zoned timestamp is its instant in UTC, and one without zone where one is expected,
or the reverse, is taken to be UTC; MySQL's zero dates are null, as Debezium sends them.

Values that mean the same are then brought to one form (`canonical`). Most columns are compared by
their values. Two kinds of STRING columns are not, because their writers may render the same value
in several ways: JSON documents (space, order of keys) and numbers (zeros at the end). JSON costs a
Python step per distinct text of a batch. And MySQL's TIMESTAMP of zero is null when a connector
takes a snapshot and 1970-01-01 00:00:00 when it follows the log; no real TIMESTAMP is that moment,
so both are null here.
"""

import dataclasses
import datetime
import decimal
import enum
import json
import re
import struct
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.semantic_types import MAX_PADDED_BITS
from storage.format.types.types import ArrayType, AtomicType, DataType, TypeRoot

_UNFIT = (ValueError, TypeError, OverflowError, AttributeError, pa.ArrowException)
_DIGITS = decimal.Context(prec=1_000_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001
_WIDE = re.compile(r"(\d{4,6})(-\d\d-\d\d)(?:[ T](\d.*?))?( BC)?")
_MS_PER_DAY = 86_400_000
_LONGEST = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Fitted:
    """A column.

    Attributes:
        column: as long as the values.
        unfit: (row, text of the value) of values that the type cannot hold, ascending.
    """

    column: pa.Array
    unfit: tuple[tuple[int, str], ...] = ()


def fit(values: Sequence[Any], type_: DataType, arrow: pa.DataType, bits: bool = False) -> Fitted:
    """Convert a column.

    Args:
        values: as the driver returned them, None for null.
        type_: of the lake's column.
        arrow: its Arrow type.
        bits: texts of digits are bit strings.
    """
    kinds = frozenset(map(type, values)) - {type(None)}
    if not kinds:
        return Fitted(pa.nulls(len(values), arrow))
    quick = None if bits else _quick_way(kinds, arrow)
    if quick is not None:
        try:
            return Fitted(cut_to_precision(quick(values, arrow), type_))
        except _UNFIT:
            pass
    convert = _one_by_one(type_, arrow, bits)
    fitted: list[Any] = []
    unfit: list[tuple[int, str]] = []
    for row, value in enumerate(values):
        try:
            fitted.append(None if value is None else convert(value))
        except _UNFIT:
            fitted.append(None)
            unfit.append((row, _shown_value(value)))
    return Fitted(_assembled(fitted, arrow), tuple(unfit))


def _assembled(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """The column of values of `_one_by_one`, which converts dates and timestamps to counts."""
    if pa.types.is_timestamp(arrow):
        return pa.array(values, pa.int64()).view(arrow)
    if pa.types.is_date32(arrow):
        return pa.array(values, pa.int32()).view(arrow)
    return pa.array(values, arrow)


# --- whole columns


_Quick = Callable[[Sequence[Any], pa.DataType], pa.Array]


def _quick_way(kinds: frozenset[type], arrow: pa.DataType) -> _Quick | None:
    for accepts, allowed, way in _QUICK:
        if kinds <= allowed and accepts(arrow):
            return way
    return None


def _straight(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array(values, arrow)


def _floats(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    doubles = pa.array(values, pa.float64())
    if arrow == pa.float64():
        return doubles
    floats = doubles.cast(arrow, safe=False)
    if not pc.is_inf(floats).equals(pc.is_inf(doubles)):
        raise OverflowError
    return floats


def _parsed_dates(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(arrow)


def _parsed_times(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    texts = pc.binary_join_element_wise("1970-01-01T", pa.array(values, pa.string()), "")
    nanos = texts.cast(pa.timestamp("ns")).cast(pa.int64())
    return pc.divide(nanos, 1_000_000).cast(pa.int32()).view(arrow)


def _parsed_timestamps(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    texts = pa.array(values, pa.string())
    unit = "ns" if arrow.unit == "ns" else "us"
    zoned, naive = pa.timestamp(unit, "UTC"), pa.timestamp(unit)
    try:
        instants = texts.cast(zoned if arrow.tz else naive)
    except pa.ArrowInvalid:
        instants = texts.cast(naive if arrow.tz else zoned)
    return _in_unit(instants.view(pa.int64()), unit, arrow)


def _timestamps(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    unit = "ns" if arrow.unit == "ns" else "us"
    instants = pa.array(values, pa.timestamp(unit, arrow.tz))
    return _in_unit(instants.view(pa.int64()), unit, arrow)


def _in_unit(counts: pa.Array, unit: str, arrow: pa.DataType) -> pa.Array:
    if unit != arrow.unit:  # us to ms, rounding down also before the epoch
        counts = _floored(counts, 1_000, multiply=False)
    return counts.view(arrow)


def _floored(counts: pa.Array, step: int, *, multiply: bool = True) -> pa.Array:
    values = np.asarray(pc.fill_null(counts, 0)) // step
    nulls = np.asarray(pc.is_null(counts)) if counts.null_count else None
    return pa.array(values * step if multiply else values, pa.int64(), mask=nulls)


_STR = frozenset({str})
_QUICK: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type], _Quick], ...] = (
    (pa.types.is_boolean, frozenset({bool}), _straight),
    (pa.types.is_integer, frozenset({int}), _straight),
    (pa.types.is_floating, frozenset({float}), _floats),
    (pa.types.is_decimal, frozenset({decimal.Decimal, int}), _straight),
    (pa.types.is_string, _STR, _straight),
    (pa.types.is_binary, frozenset({bytes, memoryview, bytearray}), _straight),
    (pa.types.is_date, frozenset({datetime.date}), _straight),
    (pa.types.is_date, _STR, _parsed_dates),
    (pa.types.is_time, _STR, _parsed_times),
    (pa.types.is_timestamp, _STR, _parsed_timestamps),
    (pa.types.is_timestamp, frozenset({datetime.datetime}), _timestamps),
)


def cut_to_precision(column: pa.Array, type_: DataType) -> pa.Array:
    """Timestamps without digits that the column's precision does not have; others as they are."""
    if not pa.types.is_timestamp(column.type) or not isinstance(type_, AtomicType):
        return column
    digits = {"ms": 3, "us": 6, "ns": 9}[column.type.unit]
    if type_.precision >= digits:
        return column
    step = 10 ** (digits - type_.precision)
    return _floored(column.view(pa.int64()), step).view(column.type)


# --- value by value


def _one_by_one(type_: DataType, arrow: pa.DataType, bits: bool) -> Callable[[Any], Any]:
    """The converter of values for an Arrow array of the type; it raises one of `_UNFIT`."""
    if isinstance(type_, ArrayType):
        element = _one_by_one(type_.element, arrow.value_type, bits)
        return lambda value: _assembled(
            [None if v is None else element(v) for v in _listed(value)], arrow.value_type
        ).to_pylist()
    if not isinstance(type_, AtomicType):
        return lambda value: pa.scalar(value, arrow)
    root = type_.root
    if root is TypeRoot.DECIMAL:
        return lambda value: _decimal(value, arrow)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return lambda value: _timestamp(value, type_, arrow)
    if root is TypeRoot.DATE:
        return _date
    if bits and root in _BITS:
        return _BITS[root]
    return lambda value: pa.scalar(_VALUE_OF[root](value), arrow).as_py()


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("not a list")
    return list(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    if value in (0, 1):
        return bool(value)
    raise ValueError("neither true nor false")


def _integer(value: Any) -> int:
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if isinstance(value, str):
        return _microseconds(value) if ":" in value else int(value)
    number = int(value)
    if number != value:
        raise ValueError("not an integer")
    return number


def _microseconds(text: str) -> int:
    """Of a time as MySQL prints it, which may be below zero or longer than a day."""
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    count = total * 1_000_000 + int(fraction[:6].ljust(6, "0"))
    return -count if text.startswith("-") else count


def _single(value: Any) -> float:
    (number,) = struct.unpack("<f", struct.pack("<f", float(value)))  # OverflowError above FLOAT
    return float(number)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode()
    if isinstance(value, decimal.Decimal):
        return plain_number(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_text)
    if isinstance(value, set | frozenset):
        return ",".join(sorted(map(str, value)))
    return str(value)


def plain_number(value: decimal.Decimal) -> str:
    """Digits without exponent; NaN and infinities by name."""
    return format(value, "f") if value.is_finite() else str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    return bytes(memoryview(value))


def _date(value: Any) -> int | None:
    """Days since the epoch."""
    if isinstance(value, str):
        if _zero_date(value):
            return None
        date, time = _parsed(value)
        if time.strip("0:."):
            raise ValueError("a date with a time")
        return int(date.astype(np.int64))
    if isinstance(value, datetime.datetime):
        if value.time() != datetime.time():
            raise ValueError("a date with a time")
        value = value.date()
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    raise TypeError("not a date")


def _parsed(text: str) -> tuple[np.datetime64, str]:
    """The day of a text, of any year, and the rest of the text."""
    match = _WIDE.fullmatch(text.strip())
    if match is None:
        raise ValueError("not a date")
    year, day, time, before_christ = match.groups()
    number = 1 - int(year) if before_christ else int(year)
    sign = "-" if number < 0 else ""
    return np.datetime64(f"{sign}{abs(number):04}{day}", "D"), time or ""


def _zero_date(text: str) -> bool:
    """Whether it is a zero date of MySQL: year, month or day are zero."""
    parts = text[:10].split("-")
    return len(parts) == 3 and (parts[1] == "00" or parts[2] == "00")


def _time(value: Any) -> datetime.time:
    if isinstance(value, str):
        value = datetime.time.fromisoformat(value)
    if isinstance(value, datetime.timedelta):
        millis = value // datetime.timedelta(milliseconds=1)
    else:
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        millis = seconds * 1000 + value.microsecond // 1000
    if not 0 <= millis < _MS_PER_DAY:
        raise ValueError("not within a day")
    return (_EPOCH + datetime.timedelta(milliseconds=millis)).time()


def _timestamp(value: Any, type_: AtomicType, arrow: pa.DataType) -> int | None:
    """The integer that Arrow stores."""
    if isinstance(value, str):
        if _zero_date(value):
            return None
        column = _timestamp_of_text(value, arrow)
    elif isinstance(value, datetime.datetime):
        column = _timestamps([value], arrow)
    elif isinstance(value, datetime.date):
        column = _timestamps([datetime.datetime(value.year, value.month, value.day)], arrow)  # noqa: DTZ001
    else:
        raise TypeError("not a timestamp")
    return int(cut_to_precision(column, type_).view(pa.int64())[0].as_py())


def _timestamp_of_text(text: str, arrow: pa.DataType) -> pa.Array:
    try:
        return _parsed_timestamps([text], arrow)
    except pa.ArrowInvalid:  # the year is not of four digits
        day, time = _parsed(text)
        within = _parsed_timestamps([f"1970-01-01 {time or '00:00:00'}"], arrow).view(pa.int64())
        units = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
        count = int(day.astype(np.int64)) * units[arrow.unit] + within[0].as_py()
        return pa.array([count], pa.int64()).view(arrow)


def _decimal(value: Any, arrow: pa.DataType) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | decimal.Decimal):
        raise TypeError("not a number")
    exact = decimal.Decimal(repr(value)) if isinstance(value, float) else decimal.Decimal(value)
    if not exact.is_finite():
        raise ValueError("not finite")
    scaled = exact.quantize(decimal.Decimal(1).scaleb(-arrow.scale), context=_DIGITS)
    if scaled != exact:
        raise ValueError("more digits than the column has")
    pa.scalar(scaled, arrow)
    return scaled


_VALUE_OF: dict[TypeRoot, Callable[[Any], Any]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _integer,
    TypeRoot.SMALLINT: _integer,
    TypeRoot.INT: _integer,
    TypeRoot.BIGINT: _integer,
    TypeRoot.FLOAT: _single,
    TypeRoot.DOUBLE: float,
    TypeRoot.CHAR: _text,
    TypeRoot.VARCHAR: _text,
    TypeRoot.BINARY: _bytes,
    TypeRoot.VARBINARY: _bytes,
    TypeRoot.TIME: _time,
}


def _bit_number(value: Any) -> int:
    return int(value, 2) if isinstance(value, str) else _integer(value)


def _bit_bytes(value: Any) -> bytes:
    """Big-endian, as many bytes as the bits need."""
    if isinstance(value, str):
        return int(value or "0", 2).to_bytes((len(value) + 7) // 8, "big")
    return _bytes(value)


_BITS: dict[TypeRoot, Callable[[Any], Any]] = {
    TypeRoot.BOOLEAN: lambda value: _boolean(_bit_number(value)),
    TypeRoot.TINYINT: _bit_number,
    TypeRoot.SMALLINT: _bit_number,
    TypeRoot.INT: _bit_number,
    TypeRoot.BIGINT: _bit_number,
    TypeRoot.BINARY: _bit_bytes,
    TypeRoot.VARBINARY: _bit_bytes,
}


def _shown_value(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


# --- equal values in one form


class Form(enum.Enum):
    """How the texts of a column are compared; the value is what a report says."""

    PLAIN = "value"
    JSON = "JSON value"
    NUMBER = "number"
    NO_EPOCH = "value; 1970-01-01 is null"


def canonical(column: pa.Array, form: Form) -> pa.Array:
    """The column in its form; as it is where its type has no such form."""
    if form is Form.NO_EPOCH and pa.types.is_timestamp(column.type):
        epoch = pc.equal(column.view(pa.int64()), 0)
        return pc.if_else(epoch, pa.scalar(None, column.type), column)
    if form in (Form.PLAIN, Form.NO_EPOCH) or not pa.types.is_string(column.type):
        return column
    if form is Form.NUMBER:
        return _numbers(column)
    encoded = column.dictionary_encode()
    texts = [json_text(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def json_text(text: str) -> str:
    """A JSON document without space, keys sorted, numbers exact; other text as it is."""
    try:
        document = json.loads(text, parse_float=_Number, parse_int=_Number, parse_constant=_refuse)
        return _json_text(document)
    except (ValueError, RecursionError):
        return text


class _Number(decimal.Decimal):
    """A number of a document: equal numbers have one text."""

    @property
    def text(self) -> str:
        if not self:
            return "0"
        digits = self.normalize(decimal.Context(prec=len(self.as_tuple().digits) or 1))
        return str(digits)


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _json_text(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)}:{_json_text(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    if isinstance(value, _Number):
        return value.text
    return json.dumps(value, ensure_ascii=False)


def _numbers(column: pa.Array) -> pa.Array:
    """Plain digits without zeros at the end of a fraction."""
    short = pc.replace_substring_regex(column, r"^(-?\d+\.\d*?)0+$", r"\1")
    short = pc.replace_substring_regex(short, r"^(-?\d+)\.$", r"\1")
    return pc.replace_substring_regex(short, r"^-0$", "0")


# How a column of a database is read, by its type there: SQL expression and form.
#
# Texts are selected where the driver's values would lose something (infinite times, zero dates, a
# year after 9999) or cost more than parsing a column of texts at once. What a connector sends in a
# shape of its own, for which there is no rule here, is left out of the comparison and reported.


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
