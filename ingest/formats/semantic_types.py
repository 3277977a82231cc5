# SPDX-License-Identifier: Apache-2.0
"""What a column means: from Connect/Debezium types to Paimon types and to a way of decoding.

`observe` reads one field of a schema block; `codec_for` decides how its values get into a column of
the target, or that they need a wider column, or that they do not fit. `bare_codec_for` does the
same for events without a schema block, where only the column and the configured facts about the
producer are known. Source: CDC.md §2.6. How values are converted: `conversions` and `reference`.

Rulings:
- TIME columns hold milliseconds whatever their precision says (FORMAT.md §7.3), so finer fractions
  are cut; times outside 0-24 h do not fit.
- Without a schema block temporal integers have no unit. With `time.precision.mode=adaptive` the
  column's precision tells it (<= 3: ms, <= 6: us, else ns), as Debezium chooses it by precision.
- Without a schema block a precise decimal has no scale: the column's scale is taken.
- Structs, maps and arrays of them are kept as JSON text, exactly as sent.
"""

import dataclasses
import enum

import pyarrow as pa

from ingest.formats.schema_block import BlockField
from ingest.formats.widening import nullable, union_type
from storage.format.arrow_types import arrow_type
from storage.format.types import MAX_LENGTH, ArrayType, AtomicType, DataType, TypeRoot

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "DOUBLE",
    "STRING",
    "Codec",
    "Fit",
    "Kind",
    "ProducerFacts",
    "Semantic",
    "bare_codec_for",
    "codec_for",
    "observe",
]

_MAX_PRECISION = 38


class Kind(enum.Enum):
    """How the JSON value of a column is read."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    FLOAT = "number read as a double; also the strings NaN, Infinity, -Infinity"
    TEXT = "string"
    TEXT_OR_JSON = "string, or an object or array kept as JSON text; expected to be a string"
    JSON = "the same, expected to be an object or array"
    BASE64 = "base64 string"
    BASE64_URL = "URL-safe base64 string"
    HEX = "hexadecimal string"
    DECIMAL_BYTES = "base64 string of the big-endian unscaled number, or a JSON number"
    DECIMAL_NUMBER = "the same, expected to be a JSON number"
    DECIMAL_TEXT = "string of decimal digits"
    DECIMAL_PLAIN = "JSON number, into a decimal"
    VARIABLE_DECIMAL = "struct of scale and base64 unscaled number"
    DAYS = "days since the epoch"
    TIME = "integer since midnight"
    EPOCH = "integer since the epoch"
    ZONED = "ISO timestamp with offset"
    ISO_DATE = "ISO date, maybe with Z"
    ISO_TIME = "ISO time, maybe with Z"
    ISO_TIMESTAMP = "ISO timestamp, maybe with Z"
    BITS = "base64 string of little-endian bits"
    LOOSE_INTEGER = "integer, or text of one"
    LOOSE_FLOAT = "number, or text of one"
    LOOSE_DECIMAL = "number or text of one, into a decimal"
    LOOSE_BOOLEAN = "true, false, 0, 1, or text of one of them"
    LOOSE_HEX = "hexadecimal string, maybe with 0x"
    LATIN1 = "string of one character a byte"
    SQL_DATE = "date as databases print it; MySQL's zero date is null"
    SQL_TIMESTAMP = "timestamp as databases print it; MySQL's zero date is null"
    ARRAY = "array"


@dataclasses.dataclass(frozen=True, slots=True)
class Semantic:
    """Meaning of a source column.

    Attributes:
        kind: how its JSON is read.
        type: the Paimon type a new column gets; nullable.
        unit: `ms`, `us` or `ns` of TIME and EPOCH.
        scale: of DECIMAL_BYTES.
        bounded: whether `type`'s precision is known from the source rather than assumed.
        element: of ARRAY.
    """

    kind: Kind
    type: DataType
    unit: str = ""
    scale: int = 0
    bounded: bool = True
    element: "Semantic | None" = None


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How one target column is filled.

    Attributes:
        kind: how the JSON is read.
        type: the column's type.
        unit: of TIME and EPOCH integers.
        scale: of DECIMAL_BYTES.
        element: of ARRAY.
    """

    kind: Kind
    type: DataType
    unit: str = ""
    scale: int = 0
    element: "Codec | None" = None

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type of the column."""
        return arrow_type(self.type)


class Fit(enum.Enum):
    """Why there is no codec."""

    WIDEN = "the column needs a wider type"
    NEVER = "the types do not convert"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFacts:
    """`source.debezium.*`: what the producer was configured with and events do not carry."""

    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    time_precision_mode: str = "adaptive"


STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
BOOLEAN = AtomicType(TypeRoot.BOOLEAN)
BIGINT = AtomicType(TypeRoot.BIGINT)
DOUBLE = AtomicType(TypeRoot.DOUBLE)
_INT = AtomicType(TypeRoot.INT)

_DATE = Semantic(Kind.DAYS, AtomicType(TypeRoot.DATE))


def _time(unit: str, precision: int) -> Semantic:
    return Semantic(Kind.TIME, AtomicType(TypeRoot.TIME, precision=precision), unit)


def _epoch(unit: str, precision: int) -> Semantic:
    return Semantic(Kind.EPOCH, AtomicType(TypeRoot.TIMESTAMP, precision=precision), unit)


def _iso(kind: Kind, root: TypeRoot, precision: int) -> Semantic:
    return Semantic(kind, AtomicType(root, precision=precision))


_LITERALS = {
    "int8": Semantic(Kind.INTEGER, AtomicType(TypeRoot.TINYINT)),
    "int16": Semantic(Kind.INTEGER, AtomicType(TypeRoot.SMALLINT)),
    "int32": Semantic(Kind.INTEGER, _INT),
    "int64": Semantic(Kind.INTEGER, BIGINT),
    "float": Semantic(Kind.FLOAT, AtomicType(TypeRoot.FLOAT)),
    "float32": Semantic(Kind.FLOAT, AtomicType(TypeRoot.FLOAT)),
    "double": Semantic(Kind.FLOAT, DOUBLE),
    "float64": Semantic(Kind.FLOAT, DOUBLE),
    "boolean": Semantic(Kind.BOOLEAN, BOOLEAN),
    "string": Semantic(Kind.TEXT, STRING, bounded=False),
    "bytes": Semantic(Kind.BASE64, _BYTES, bounded=False),
}
_JSON = Semantic(Kind.JSON, STRING, bounded=False)

_NAMED = {
    ("io.debezium.time.Date", "int32"): _DATE,
    ("org.apache.kafka.connect.data.Date", "int32"): _DATE,
    ("io.debezium.time.Time", "int32"): _time("ms", 3),
    ("io.debezium.time.MicroTime", "int64"): _time("us", 6),
    ("io.debezium.time.NanoTime", "int64"): _time("ns", 9),
    ("org.apache.kafka.connect.data.Time", "int32"): _time("ms", 3),
    ("org.apache.kafka.connect.data.Time", "int64"): _time("ms", 3),
    ("io.debezium.time.Timestamp", "int64"): _epoch("ms", 3),
    ("io.debezium.time.MicroTimestamp", "int64"): _epoch("us", 6),
    ("io.debezium.time.NanoTimestamp", "int64"): _epoch("ns", 9),
    ("org.apache.kafka.connect.data.Timestamp", "int64"): _epoch("ms", 3),
    ("io.debezium.time.ZonedTimestamp", "string"): _iso(Kind.ZONED, TypeRoot.TIMESTAMP_LTZ, 6),
    ("io.debezium.time.IsoDate", "string"): _iso(Kind.ISO_DATE, TypeRoot.DATE, 0),
    ("io.debezium.time.IsoTime", "string"): _iso(Kind.ISO_TIME, TypeRoot.TIME, 6),
    ("io.debezium.time.IsoTimestamp", "string"): _iso(Kind.ISO_TIMESTAMP, TypeRoot.TIMESTAMP, 6),
    # any scale per row: text is the one type that loses nothing
    ("io.debezium.data.VariableScaleDecimal", "struct"): Semantic(
        Kind.VARIABLE_DECIMAL, STRING, bounded=False
    ),
}
_DECIMAL = ("org.apache.kafka.connect.data.Decimal", "bytes")
_BITS = ("io.debezium.data.Bits", "bytes")
_MAX_INTEGER_BITS = 63


def observe(field: BlockField) -> Semantic:
    """Meaning of a field of a schema block; unknown names mean what their literal type says."""
    named = (field.name or "", field.type)
    if named == _DECIMAL:
        return _observe_decimal(field)
    if named == _BITS:
        length = _parameter(field, "length")
        small = length is not None and length <= _MAX_INTEGER_BITS
        return Semantic(Kind.BITS, BIGINT if small else _BYTES)
    if field.type == "array" and field.items is not None:
        element = observe(field.items)
        if element.kind in (Kind.JSON, Kind.ARRAY, Kind.VARIABLE_DECIMAL):
            return _JSON
        return Semantic(Kind.ARRAY, ArrayType(element.type), element=element)
    return _NAMED.get(named) or _LITERALS.get(field.type, _JSON)


def _observe_decimal(field: BlockField) -> Semantic:
    scale = _parameter(field, "scale") or 0
    precision = _parameter(field, "connect.decimal.precision")
    if not 0 <= scale <= _MAX_PRECISION or (precision or 0) > _MAX_PRECISION:
        # DECIMAL cannot hold it; its digits as text can
        return Semantic(Kind.DECIMAL_BYTES, STRING, scale=scale, bounded=False)
    type_ = AtomicType(TypeRoot.DECIMAL, precision=precision or _MAX_PRECISION, scale=scale)
    return Semantic(Kind.DECIMAL_BYTES, type_, scale=scale, bounded=precision is not None)


def _parameter(field: BlockField, name: str) -> int | None:
    text = (field.parameters or {}).get(name)
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def codec_for(
    semantic: Semantic, column: DataType, facts: ProducerFacts, *, fixed: bool = False
) -> Codec | Fit:
    """How values of a source column get into a column of the target.

    Args:
        semantic: of the source column.
        column: type of the target column.
        facts: of the producer.
        fixed: the column's type cannot change (a key column), so values that do not fit are bad
            records instead of a reason to widen.
    """
    if semantic.kind is Kind.ARRAY:
        return _array_codec(semantic, column, facts)
    if not isinstance(column, AtomicType):
        return Fit.NEVER
    converted = _cross_family(semantic, column, facts)
    if converted is not None:
        return converted
    union = union_type(nullable(column), semantic.type)
    if union is None and not _checked_by_value(semantic, column):
        return Fit.NEVER
    narrow = semantic.bounded and union != nullable(column)
    scale_grows = semantic.kind is Kind.DECIMAL_BYTES and semantic.scale > column.scale
    if (narrow or scale_grows) and not fixed:
        return Fit.WIDEN if union is not None else Fit.NEVER
    return Codec(semantic.kind, column, semantic.unit, semantic.scale)


def _checked_by_value(semantic: Semantic, column: AtomicType) -> bool:
    return isinstance(semantic.type, AtomicType) and semantic.type.root is column.root


def _array_codec(semantic: Semantic, column: DataType, facts: ProducerFacts) -> Codec | Fit:
    if not isinstance(column, ArrayType) or semantic.element is None:
        return Fit.NEVER
    element = codec_for(semantic.element, column.element, facts, fixed=True)
    if isinstance(element, Fit):
        return element
    return Codec(Kind.ARRAY, column, element=element)


def _cross_family(semantic: Semantic, column: AtomicType, facts: ProducerFacts) -> Codec | None:
    """The documented conversions between families that lose nothing or fail on the value."""
    kind, root = semantic.kind, column.root
    if root is TypeRoot.DECIMAL:
        if kind is Kind.TEXT:
            return Codec(Kind.DECIMAL_TEXT, column)
        if kind is Kind.VARIABLE_DECIMAL:
            return Codec(kind, column)
        if kind is Kind.INTEGER:
            return Codec(Kind.DECIMAL_PLAIN, column)
    if kind is Kind.TEXT and root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return Codec(_binary_kind(facts), column)
    if kind is Kind.INTEGER and root is TypeRoot.DOUBLE and semantic.type != BIGINT:
        return Codec(Kind.FLOAT, column)
    if kind in (Kind.DECIMAL_BYTES, Kind.VARIABLE_DECIMAL) and root is TypeRoot.VARCHAR:
        # digits as text, whichever way the column came to be STRING
        return Codec(kind, column, scale=semantic.scale)
    if kind is Kind.BITS and root in (TypeRoot.BIGINT, TypeRoot.VARBINARY):
        return Codec(kind, column)
    return None


_BINARY_KINDS = {"hex": Kind.HEX, "base64-url-safe": Kind.BASE64_URL}


def _binary_kind(facts: ProducerFacts) -> Kind:
    return _BINARY_KINDS.get(facts.binary_handling_mode, Kind.BASE64)


_BARE = {
    TypeRoot.CHAR: Kind.TEXT_OR_JSON,
    TypeRoot.VARCHAR: Kind.TEXT_OR_JSON,
    TypeRoot.BOOLEAN: Kind.BOOLEAN,
    TypeRoot.TINYINT: Kind.INTEGER,
    TypeRoot.SMALLINT: Kind.INTEGER,
    TypeRoot.INT: Kind.INTEGER,
    TypeRoot.BIGINT: Kind.INTEGER,
    TypeRoot.FLOAT: Kind.FLOAT,
    TypeRoot.DOUBLE: Kind.FLOAT,
    TypeRoot.TIMESTAMP_LTZ: Kind.ZONED,
}
_BARE_DECIMALS = {"string": Kind.DECIMAL_TEXT, "double": Kind.DECIMAL_PLAIN}
_ISO_KINDS = {
    TypeRoot.DATE: Kind.ISO_DATE,
    TypeRoot.TIME: Kind.ISO_TIME,
    TypeRoot.TIMESTAMP: Kind.ISO_TIMESTAMP,
}


def bare_codec_for(column: DataType, facts: ProducerFacts) -> Codec | Fit:
    """How values without a schema block get into a column of the target."""
    if isinstance(column, ArrayType):
        element = bare_codec_for(column.element, facts)
        return element if isinstance(element, Fit) else Codec(Kind.ARRAY, column, element=element)
    if not isinstance(column, AtomicType):
        return Fit.NEVER
    root = column.root
    if root in _BARE:
        return Codec(_BARE[root], column)
    if root is TypeRoot.DECIMAL:
        kind = _BARE_DECIMALS.get(facts.decimal_handling_mode, Kind.DECIMAL_BYTES)
        return Codec(kind, column, scale=column.scale)
    if root in _ISO_KINDS:
        return _bare_temporal(column, facts.time_precision_mode)
    return Codec(_binary_kind(facts), column)


def _bare_temporal(column: AtomicType, mode: str) -> Codec:
    if mode == "isostring":
        return Codec(_ISO_KINDS[column.root], column)
    if column.root is TypeRoot.DATE:
        return Codec(Kind.DAYS, column)
    unit = "ms" if column.precision <= 3 else "us" if column.precision <= 6 else "ns"
    if mode == "connect":
        unit = "ms"
    if column.root is TypeRoot.TIME:
        micro = mode == "adaptive_time_microseconds"
        return Codec(Kind.TIME, column, "us" if micro else unit)
    return Codec(Kind.EPOCH, column, unit)
