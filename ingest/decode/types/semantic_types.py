# SPDX-License-Identifier: Apache-2.0
"""Meaning of columns: from Connect/Debezium types to Paimon types and to codecs.

`observe` reads one field of a schema block; `observe_mapped` applies `sink.type.mapping`: a mapped
meaning remembers what the column means without it (`natural`), so that a column which exists with
another type is filled as if there were no mapping. `codec_for` selects the codec from such a column
to a column of the target, if there is one; `bare_codec_for` is for events without a schema block,
where only the target's column and the configured facts about the producer are known. `conversions`
and `reference` convert values. Source: CDC.md §1.6; the whole table of
types is types.md.

Decisions:
- TIME columns hold milliseconds whatever their precision says (FORMAT.md §7.3), so finer fractions
  are cut; times outside 0-24 h do not fit.
- Structs, maps and arrays of them are kept as JSON text, exactly as sent.
- Without a schema block temporal integers have no unit. With `time.precision.mode=adaptive` the
  column's precision determines it (<= 3: ms, <= 6: us, else ns), as Debezium chooses it by
  precision.
- Without a schema block a precise decimal has no scale: the column's scale is taken.
- In a column that became STRING values of another type are written as the cast of their type writes
  them, through which files written before the change are read: equal values stay equal.
"""

import dataclasses
import decimal
import enum
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.choices import checked_mapping
from ingest.decode.events import BlockField
from storage.format.types.casts import can_cast
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataType,
    TypeRoot,
    arrow_type,
)

# Which type holds every value of two types: the rule of automatic widening (CDC.md §3).
#
# Pure. DECIMALs are united so that neither integer nor fraction digits are lost, where Paimon takes
# the newer type and may fail on old values; integers and DECIMALs unite to a DECIMAL. A TIME holds
# milliseconds whatever its precision, which the table format does not change.


_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
"""Digits of the largest integers."""

_GUESSED = (TypeRoot.BIGINT, TypeRoot.DECIMAL)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_STRINGS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BINARY = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_PRECISE = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_TIMES = (TypeRoot.TIME, *_PRECISE)
_MAX_PRECISION = 38
_MICROS = 6


def nullable(type_: DataType) -> DataType:
    """The same type, null allowed."""
    return dataclasses.replace(type_, nullable=True)


def union_type(current: DataType, observed: DataType) -> DataType | None:
    """The narrowest type that holds the values of both, of one family or of exact numbers.

    Returns:
        A type with `current`'s nullability; equal to `current` when nothing needs to change; None
        when no such type exists.
    """
    if nullable(current) == nullable(observed):
        return current
    match current, observed:
        case AtomicType(), AtomicType():
            return _union_atomic(current, observed)
        case ArrayType(), ArrayType():
            element = union_type(current.element, observed.element)
            return None if element is None else dataclasses.replace(current, element=element)
        case _:
            return None


def guessed_union(current: DataType, observed: DataType) -> DataType | None:
    """As `union_type`, for a new column, whose types may be guesses from single values.

    What a guessed DOUBLE does not hold is found when the values are converted. No stored rows limit
    the digits of times.
    """
    union = union_type(current, observed)
    match current, observed:
        case AtomicType(), AtomicType() if current.root is observed.root and current.root in _TIMES:
            return dataclasses.replace(
                current, precision=max(current.precision, observed.precision)
            )
    if union is None and isinstance(current, AtomicType) and isinstance(observed, AtomicType):
        if observed.root is TypeRoot.DOUBLE and current.root in _GUESSED:
            return observed if current.root is not TypeRoot.DECIMAL else current
        if current.root is TypeRoot.DOUBLE and observed.root in _GUESSED:
            return current if observed.root is not TypeRoot.DECIMAL else observed
    return union


def _union_atomic(current: AtomicType, observed: AtomicType) -> AtomicType | None:
    a, b = current.root, observed.root
    for family in (_INTEGERS, _FLOATS):
        if a in family and b in family:
            root = max(a, b, key=family.index)
            return current if root is a else dataclasses.replace(current, root=root)
    if a in _STRINGS and b in _STRINGS:
        return _longer(current, observed, TypeRoot.VARCHAR)
    if a in _BINARY and b in _BINARY:
        return _longer(current, observed, TypeRoot.VARBINARY)
    if a in _DIGITS and b is TypeRoot.DECIMAL:
        return _with_integers(observed, _DIGITS[a], current)
    if a is TypeRoot.DECIMAL and b in _DIGITS:
        return _with_integers(current, _DIGITS[b], current)
    if a is not b:
        return None
    if a is TypeRoot.DECIMAL:
        return _union_decimal(current, observed)
    if a in _PRECISE:
        return _finer(current, observed.precision)
    return current


def _finer(current: AtomicType, precision: int) -> AtomicType | None:
    """A timestamp with more digits of a second.

    Nanoseconds reach from 1677 to 2262: rows with a later moment, as 9999-12-31, would no longer
    be readable, nor the table writable.
    """
    if current.precision <= _MICROS < precision:
        return None
    return dataclasses.replace(current, precision=max(current.precision, precision))


def _with_integers(number: AtomicType, digits: int, current: AtomicType) -> AtomicType | None:
    """A DECIMAL that has room for integers of so many digits, too."""
    precision = max(number.precision - number.scale, digits) + number.scale
    if precision > _MAX_PRECISION:
        return None
    return dataclasses.replace(number, precision=precision, nullable=current.nullable)


def _longer(current: AtomicType, observed: AtomicType, root: TypeRoot) -> AtomicType:
    if observed.length <= current.length or observed.length == MAX_LENGTH:
        return current  # the source gives no length: values are checked one by one
    return dataclasses.replace(current, root=root, length=observed.length)


def _union_decimal(current: AtomicType, observed: AtomicType) -> AtomicType | None:
    scale = max(current.scale, observed.scale)
    integers = max(current.precision - current.scale, observed.precision - observed.scale)
    if integers + scale > _MAX_PRECISION:
        return None
    return dataclasses.replace(current, precision=integers + scale, scale=scale)


class Infinity(enum.Enum):
    """What becomes of infinite dates and timestamps, which no column can hold."""

    REFUSE = "the record is bad"
    NULL = "infinity-to-null"
    BOUNDS = "infinity-to-bounds"


@dataclasses.dataclass(frozen=True, slots=True)
class TypeMapping:
    """Options of `sink.type.mapping`: the type of a new column where there is a choice.

    Eight are those of Paimon's CDC actions (`--type_mapping`). The type of a column that exists
    does not change because of them.

    Attributes:
        words: of `MAPPING_WORDS`; `of` checks them.
    """

    words: frozenset[str] = frozenset()

    @staticmethod
    def of(words: Iterable[str]) -> "TypeMapping":
        """The mapping that a setting describes.

        Raises:
            InvalidOptionError: a word is unknown, or contradicts another.
        """
        return TypeMapping(frozenset(checked_mapping(words)))

    @property
    def infinity(self) -> Infinity:
        """What becomes of infinite dates and timestamps."""
        chosen = [policy for policy in Infinity if policy.value in self.words]
        return chosen[0] if chosen else Infinity.REFUSE

    def keeps(self, type_: DataType) -> bool:
        """Whether a column of a type is never widened."""
        if "no-change" in self.words:
            return True
        decimal = isinstance(type_, AtomicType) and type_.root is TypeRoot.DECIMAL
        return decimal and "decimal-no-change" in self.words

    def __contains__(self, word: str) -> bool:
        return word in self.words


DEFAULT_MAPPING = TypeMapping()


class Kind(enum.Enum):
    """How the JSON value of a column is read."""

    INTEGER = "integer"
    BOOLEAN = "boolean"
    FLOAT = "number read as a double; also the strings NaN, Infinity, -Infinity"
    NUMBER = "number of no declared type, into the float that holds it exactly; also the strings"
    SINGLE = "as FLOAT, of a source column of 32 bits: the digits stand for the nearest such number"
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
    TIME_MICROS = "integer since midnight, of any size and sign, into microseconds"
    TIME_TEXT = "integer since midnight, of any size and sign, into text"
    EPOCH = "integer since the epoch"
    ZONED = "ISO timestamp with offset"
    ISO_DATE = "ISO date, maybe with Z"
    ISO_TIME = "ISO time, maybe with Z"
    ISO_TIMESTAMP = "ISO timestamp, maybe with Z"
    BITS = "base64 string of little-endian bits"
    TEXT_OR_STRUCT = "as TEXT_OR_JSON; a struct of scale and value is a decimal, kept as digits"
    STRUCT = "as TEXT_OR_STRUCT, expected to be an object or array"
    ANY_TEXT = "anything but null, kept as text as it was sent"
    BASE64_TEXT = "base64 string, kept as it is"
    UTF8 = "string, into its UTF-8 bytes"
    AS_TEXT = "whatever `element` reads, into text"
    INTEGER_OR_BITS = "integer, or base64 string of little-endian bits; expected to be an integer"
    BITS_OR_INTEGER = "as INTEGER_OR_BITS, expected to be a string"
    LOOSE_INTEGER = "integer, or text of one"
    LOOSE_FLOAT = "number, or text of one"
    LOOSE_NUMBER = "as LOOSE_FLOAT, of no declared type: into the float that holds it exactly"
    LOOSE_DECIMAL = "number or text of one, into a decimal"
    LOOSE_BOOLEAN = "true, false, 0, 1, or text of one of them"
    LOOSE_HEX = "hexadecimal string, maybe with 0x"
    LATIN1 = "string of one character a byte"
    SQL_DATE = "date as databases print it; MySQL's zero date is null"
    SQL_TIMESTAMP = "timestamp as databases print it; MySQL's zero date is null"
    TEXT_OR_ANY = "as TEXT_OR_JSON; numbers, true and false are kept as they were sent"
    MEMBER = "number of one of `members`, from 1, or text of it; another text stays as it is"
    MEMBERS = "number whose bits stand for `members`, or text of it; another text stays as it is"
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
        unsigned: whether the source's integers of 64 bits have no sign.
        natural: what the column means without `sink.type.mapping`; None = the same.
        width: bytes of BITS that do not fit BIGINT; 0 = as many as are sent.
        members: of MEMBER and MEMBERS.
    """

    kind: Kind
    type: DataType
    unit: str = ""
    scale: int = 0
    bounded: bool = True
    element: "Semantic | None" = None
    unsigned: bool = False
    natural: "Semantic | None" = None
    width: int = 0
    members: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How one target column is filled.

    Attributes:
        kind: how the JSON is read.
        type: the column's type.
        unit: of TIME and EPOCH integers.
        scale: of DECIMAL_BYTES.
        element: of ARRAY and AS_TEXT; of TEXT_OR_JSON for values that are neither; None = none.
        unsigned: of integers: a negative number stands for 2^64 more.
        infinity: how infinite dates and timestamps are handled.
        cuts: whether fractions of a second in texts that are finer than the column's are cut.
        exact: of TIME and ISO_TIME: whether fractions finer than milliseconds are refused, not cut.
        width: of BITS in a BYTES column: so many bytes, connectors leave out zeros; 0 = as sent.
        members: of MEMBER and MEMBERS.
    """

    kind: Kind
    type: DataType
    unit: str = ""
    scale: int = 0
    element: "Codec | None" = None
    unsigned: bool = False
    infinity: Infinity = Infinity.REFUSE
    width: int = 0
    members: tuple[str, ...] = ()
    cuts: bool = False
    exact: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type of the column."""
        return arrow_type(self.type)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFacts:
    """`source.debezium.*`: what the producer was configured with and events do not carry.

    `mapping` is `sink.type.mapping` of the pipeline.
    """

    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    time_precision_mode: str = "adaptive"
    mapping: TypeMapping = DEFAULT_MAPPING


STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
BOOLEAN = AtomicType(TypeRoot.BOOLEAN)
BIGINT = AtomicType(TypeRoot.BIGINT)
DOUBLE = AtomicType(TypeRoot.DOUBLE)
UNSIGNED_BIGINT = AtomicType(TypeRoot.DECIMAL, precision=20, scale=0)
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
MAX_PADDED_BITS = 8 * 1024  # longer ones are PostgreSQL's BIT VARYING without a length
SOURCE_TYPE = "__debezium.source.column.type"
"""Parameter of a field: the column's type in the database (`column.propagate.source.type`)."""

_SMALL_NUMBER = re.compile("-?[0-9]{1,9}")
_WRAPPED_SCALES = range(1_001, 2_048)
"""PostgreSQL's scales go from -1000 to 1000; the connector adds 2048 to negative ones."""


def observe(field: BlockField) -> Semantic:
    """Meaning of a field of a schema block; unknown names mean what their literal type says."""
    key = (field.name or "", field.type)
    if key == _DECIMAL:
        return _observe_decimal(field)
    if key == _BITS:
        length = _parameter(field, "length")
        small = length is not None and length <= _MAX_INTEGER_BITS
        width = 0 if length is None or length > MAX_PADDED_BITS else (length + 7) // 8
        return Semantic(Kind.BITS, BIGINT if small else _BYTES, width=width)
    if field.type == "array" and field.items is not None:
        if field.items.type == "array":
            return _JSON
        element = observe(field.items)
        if element.kind in (Kind.JSON, Kind.ARRAY, Kind.VARIABLE_DECIMAL):
            return _JSON
        return Semantic(Kind.ARRAY, ArrayType(element.type), element=element)
    semantic = _NAMED.get(key) or _LITERALS.get(field.type, _JSON)
    if semantic.type == BIGINT and is_unsigned_bigint(field):
        return dataclasses.replace(semantic, unsigned=True)
    return semantic


def is_unsigned_bigint(field: BlockField) -> bool:
    """Whether the connector says that the column is BIGINT UNSIGNED."""
    source = (field.parameters or {}).get(SOURCE_TYPE, "").upper()
    return source.startswith("BIGINT") and ("UNSIGNED" in source or "ZEROFILL" in source)


def _observe_decimal(field: BlockField) -> Semantic:
    scale = _parameter(field, "scale") or 0
    precision = _parameter(field, "connect.decimal.precision")
    if precision is not None and precision < 1:  # no connector says so
        precision = None
    if scale in _WRAPPED_SCALES and precision is not None:
        integers = precision + _WRAPPED_SCALES.stop - scale
        if 1 <= integers <= _MAX_PRECISION:
            type_ = AtomicType(TypeRoot.DECIMAL, precision=integers, scale=0)
            return Semantic(Kind.DECIMAL_BYTES, type_, scale=scale)
    if not 0 <= scale <= (precision or _MAX_PRECISION) <= _MAX_PRECISION:
        # DECIMAL cannot hold it; its digits as text can
        return Semantic(Kind.DECIMAL_BYTES, STRING, scale=scale, bounded=False)
    type_ = AtomicType(TypeRoot.DECIMAL, precision=precision or _MAX_PRECISION, scale=scale)
    return Semantic(Kind.DECIMAL_BYTES, type_, scale=scale, bounded=precision is not None)


def _parameter(field: BlockField, name: str) -> int | None:
    text = (field.parameters or {}).get(name)
    return int(text) if text is not None and _SMALL_NUMBER.fullmatch(text) else None


_SENT_AS_TEXT = (Kind.ZONED, Kind.ISO_DATE, Kind.ISO_TIME, Kind.ISO_TIMESTAMP)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BINARIES = (TypeRoot.BINARY, TypeRoot.VARBINARY)


def observe_mapped(field: BlockField, mapping: TypeMapping) -> Semantic:
    """Meaning of a field of a schema block, by the words of the mapping."""
    natural = observe(field)
    if not mapping.words:
        return natural
    semantic = _text(natural) if "to-string" in mapping else _special(field, natural, mapping)
    return natural if semantic is None else dataclasses.replace(semantic, natural=natural)


def _text(natural: Semantic) -> Semantic | None:
    """As text; None where it is text already."""
    if natural.type == STRING:
        return None
    text = Semantic(Kind.TEXT, STRING, bounded=False)
    if natural.kind in _SENT_AS_TEXT:
        return text
    if natural.kind is Kind.DECIMAL_BYTES:
        return dataclasses.replace(text, kind=natural.kind, scale=natural.scale)
    if natural.kind is Kind.TIME:
        return dataclasses.replace(text, kind=Kind.TIME_TEXT, unit=natural.unit)
    if natural.kind is Kind.ARRAY:
        return dataclasses.replace(text, kind=Kind.JSON)
    if natural.type == _BYTES:
        return dataclasses.replace(text, kind=Kind.BASE64_TEXT)
    return dataclasses.replace(text, kind=Kind.AS_TEXT)


def _special(field: BlockField, natural: Semantic, mapping: TypeMapping) -> Semantic | None:
    if natural.kind is Kind.TIME:
        if "time-to-bigint" in mapping:
            return Semantic(Kind.TIME_MICROS, BIGINT, natural.unit)
        if "time-to-string" in mapping:
            return Semantic(Kind.TIME_TEXT, STRING, natural.unit, bounded=False)
    if (natural.kind is Kind.ZONED and "zoned-to-string" in mapping) or (
        natural.kind is Kind.ISO_TIME and "time-to-string" in mapping
    ):
        return Semantic(Kind.TEXT, STRING, bounded=False)
    if "unsigned-bigint-to-decimal" in mapping:
        if natural.unsigned:
            return dataclasses.replace(natural, type=UNSIGNED_BIGINT)
        if _is_whole(natural) and is_unsigned_bigint(field):
            return dataclasses.replace(natural, type=UNSIGNED_BIGINT, bounded=True)
    if "bigint-unsigned-to-bigint" in mapping and _is_whole(natural) and is_unsigned_bigint(field):
        return dataclasses.replace(natural, type=BIGINT, bounded=True)
    source = (field.parameters or {}).get(SOURCE_TYPE, "").upper()
    if "longtext-to-bytes" in mapping and source == "LONGTEXT" and natural.kind is Kind.TEXT:
        return Semantic(Kind.UTF8, _BYTES, bounded=False)
    return None


def _is_whole(natural: Semantic) -> bool:
    return natural.kind is Kind.DECIMAL_BYTES and natural.scale == 0


def mapped_type(type_: DataType, mapping: TypeMapping) -> DataType:
    """The type of a new column whose type an event of another format declares."""
    if "to-string" in mapping:
        return STRING
    if not isinstance(type_, AtomicType):
        return type_
    if "char-to-string" in mapping and type_.root in _TEXTS:
        return STRING
    if "bigint-unsigned-to-bigint" in mapping and type_ == UNSIGNED_BIGINT:
        return BIGINT
    return type_


_MOMENTS = (TypeRoot.DATE, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_INSTANTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_FAMILIES = ({*_TEXTS}, {*_BINARIES})


class Fit(enum.Enum):
    """Why there is no codec."""

    WIDEN = "the column needs a wider type"
    NEVER = "the types do not convert"


def codec_for(
    semantic: Semantic, column: DataType, facts: ProducerFacts, *, fixed: bool = False
) -> Codec | Fit:
    """How values of a source column are converted to a column of the target.

    Args:
        semantic: of the source column.
        column: type of the target column.
        facts: of the producer.
        fixed: the column's type cannot change (a key column), so values that do not fit are bad
            records instead of a reason to widen.
    """
    if semantic.natural is not None and not _same_family(semantic.type, column):
        return codec_for(semantic.natural, column, facts, fixed=fixed)
    if semantic.kind is Kind.ARRAY:
        return _array_codec(semantic, column, facts, fixed=fixed)
    if not isinstance(column, AtomicType):
        return Fit.NEVER
    union = union_type(nullable(column), semantic.type)
    converted = _cross_family(semantic, column, facts)
    if converted is not None:
        grows = converted.kind is Kind.DECIMAL_PLAIN and union not in (None, nullable(column))
        return Fit.WIDEN if grows and not fixed else converted
    if union is None and not _checked_by_value(semantic, column):
        return Fit.NEVER
    if semantic.type == DOUBLE and column.root is TypeRoot.FLOAT and fixed:
        return Codec(Kind.NUMBER, column)
    narrow = semantic.bounded and union != nullable(column)
    # a scale beyond that of any DECIMAL is one of `_WRAPPED_SCALES`: there is no fraction
    scale_grows = semantic.kind is Kind.DECIMAL_BYTES and (
        column.scale < semantic.scale <= _MAX_PRECISION
    )
    if (narrow or scale_grows) and not fixed:
        return Fit.WIDEN if union is not None else Fit.NEVER
    codec = Codec(semantic.kind, column, semantic.unit, semantic.scale, unsigned=semantic.unsigned)
    return with_policies(codec, column, facts)


def with_policies(codec: Codec, column: AtomicType, facts: ProducerFacts) -> Codec:
    """A codec with the policies for dates and timestamps; other codecs do not depend on them."""
    infinity = facts.mapping.infinity if column.root in _MOMENTS else Infinity.REFUSE
    cuts = "cut-fractions" in facts.mapping and column.root in _INSTANTS
    return dataclasses.replace(codec, infinity=infinity, cuts=cuts)


def of_key(codec: Codec | None) -> Codec | None:
    """The codec of a key column: two keys of the source must not become one."""
    if codec is None or codec.kind not in (Kind.TIME, Kind.ISO_TIME):
        return codec
    return dataclasses.replace(codec, exact=True)


def _same_family(type_: DataType, column: DataType) -> bool:
    """Whether a column may have been made for a mapped type."""
    if not isinstance(type_, AtomicType) or not isinstance(column, AtomicType):
        return False
    return any({type_.root, column.root} <= family for family in (*_FAMILIES, {type_.root}))


def _checked_by_value(semantic: Semantic, column: AtomicType) -> bool:
    return isinstance(semantic.type, AtomicType) and semantic.type.root is column.root


def _array_codec(
    semantic: Semantic, column: DataType, facts: ProducerFacts, *, fixed: bool
) -> Codec | Fit:
    if not isinstance(column, ArrayType) or semantic.element is None:
        return Fit.NEVER
    element = codec_for(semantic.element, column.element, facts, fixed=fixed)
    if isinstance(element, Fit):
        return element
    return Codec(Kind.ARRAY, column, element=element)


def _cross_family(semantic: Semantic, column: AtomicType, facts: ProducerFacts) -> Codec | None:
    """The documented conversions between families that lose nothing or fail on the value."""
    kind, root = semantic.kind, column.root
    if kind is Kind.FLOAT and root is TypeRoot.DOUBLE and semantic.type != DOUBLE:
        return Codec(Kind.SINGLE, column)
    if root is TypeRoot.DECIMAL:
        return _into_decimal(semantic, column)
    if kind is Kind.AS_TEXT:
        return _as_text_codec(semantic, column, facts)
    if kind in _AS_MAPPED:
        return Codec(kind, column, semantic.unit)
    if kind is Kind.TEXT and root in _BINARIES and facts.binary_handling_mode != "bytes":
        return Codec(_binary_kind(facts), column)
    if kind is Kind.INTEGER and root is TypeRoot.DOUBLE and semantic.type != BIGINT:
        return Codec(Kind.FLOAT, column)
    if kind in (Kind.DECIMAL_BYTES, Kind.VARIABLE_DECIMAL) and root is TypeRoot.VARCHAR:
        # digits as text, for whatever reason the column is STRING
        return Codec(kind, column, scale=semantic.scale)
    if kind is Kind.DECIMAL_BYTES and semantic.type == BIGINT and root is TypeRoot.BIGINT:
        return Codec(kind, column, scale=semantic.scale)
    if kind is Kind.BITS and root in (TypeRoot.BIGINT, TypeRoot.VARBINARY):
        return Codec(kind, column, width=semantic.width if root is TypeRoot.VARBINARY else 0)
    return None


def _into_decimal(semantic: Semantic, column: AtomicType) -> Codec | None:
    if semantic.kind is Kind.TEXT:
        return Codec(Kind.DECIMAL_TEXT, column)
    if semantic.kind is Kind.VARIABLE_DECIMAL:
        return Codec(semantic.kind, column)
    if semantic.kind is Kind.INTEGER:
        return Codec(Kind.DECIMAL_PLAIN, column, unsigned=semantic.unsigned)
    return None


_AS_MAPPED = (Kind.TIME_MICROS, Kind.TIME_TEXT, Kind.UTF8, Kind.BASE64_TEXT)


def _as_text_codec(semantic: Semantic, column: AtomicType, facts: ProducerFacts) -> Codec | None:
    natural = semantic.natural
    codec = None if natural is None else codec_for(natural, natural.type, facts)
    return Codec(Kind.AS_TEXT, column, element=codec) if isinstance(codec, Codec) else None


_BINARY_KINDS = {"hex": Kind.HEX, "base64-url-safe": Kind.BASE64_URL}


def _binary_kind(facts: ProducerFacts) -> Kind:
    return _BINARY_KINDS.get(facts.binary_handling_mode, Kind.BASE64)


_BARE = {
    TypeRoot.CHAR: Kind.TEXT_OR_STRUCT,
    TypeRoot.VARCHAR: Kind.TEXT_OR_STRUCT,
    TypeRoot.BOOLEAN: Kind.BOOLEAN,
    TypeRoot.TINYINT: Kind.INTEGER,
    TypeRoot.SMALLINT: Kind.INTEGER,
    TypeRoot.INT: Kind.INTEGER,
    TypeRoot.BIGINT: Kind.INTEGER,
    TypeRoot.FLOAT: Kind.NUMBER,
    TypeRoot.DOUBLE: Kind.NUMBER,
    TypeRoot.TIMESTAMP_LTZ: Kind.ZONED,
}
_BARE_DECIMALS = {"string": Kind.DECIMAL_TEXT, "double": Kind.DECIMAL_PLAIN}
_ISO_KINDS = {
    TypeRoot.DATE: Kind.ISO_DATE,
    TypeRoot.TIME: Kind.ISO_TIME,
    TypeRoot.TIMESTAMP: Kind.ISO_TIMESTAMP,
}


def bare_codec_for(column: DataType, facts: ProducerFacts) -> Codec | Fit:
    """How values without a schema block are converted to a column of the target."""
    if isinstance(column, ArrayType):
        element = bare_codec_for(column.element, facts)
        return element if isinstance(element, Fit) else Codec(Kind.ARRAY, column, element=element)
    if not isinstance(column, AtomicType):
        return Fit.NEVER
    root, mapping = column.root, facts.mapping
    if root is TypeRoot.VARCHAR and "to-string" in mapping:
        return Codec(Kind.ANY_TEXT, column)
    if root is TypeRoot.BIGINT and "bits-to-bigint" in mapping:
        return Codec(Kind.INTEGER_OR_BITS, column)
    if root in _BARE:
        return with_policies(Codec(_BARE[root], column), column, facts)
    if root is TypeRoot.DECIMAL:
        kind = _BARE_DECIMALS.get(facts.decimal_handling_mode, Kind.DECIMAL_BYTES)
        whole = nullable(column) == UNSIGNED_BIGINT and "unsigned-bigint-to-decimal" in mapping
        return Codec(kind, column, scale=column.scale, unsigned=whole)
    if root in _ISO_KINDS:
        return with_policies(_bare_temporal(column, facts.time_precision_mode), column, facts)
    return Codec(_binary_kind(facts), column)


_UNITS = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}
"""By `time.precision.mode` with one unit for all times and timestamps."""


def _bare_temporal(column: AtomicType, mode: str) -> Codec:
    if mode == "isostring":
        return Codec(_ISO_KINDS[column.root], column)
    if column.root is TypeRoot.DATE:
        return Codec(Kind.DAYS, column)
    adaptive = "ms" if column.precision <= 3 else "us" if column.precision <= 6 else "ns"
    unit = _UNITS.get(mode, adaptive)
    if column.root is TypeRoot.TIME:
        return Codec(Kind.TIME, column, "us" if mode == "adaptive_time_microseconds" else unit)
    return Codec(Kind.EPOCH, column, unit)


_JSON_TEXTS = (Kind.TEXT_OR_JSON, Kind.JSON, Kind.TEXT_OR_ANY)


def has_text(type_: DataType) -> bool:
    """Whether every value of a type has a text of its own."""
    if isinstance(type_, AtomicType) and type_.root in _BINARIES:
        return False
    return can_cast(type_, STRING)


def text_codec(semantic: Semantic, facts: ProducerFacts) -> Codec | None:
    """How declared values of another type are converted to a STRING column; None = not at all."""
    if not has_text(semantic.type):
        return None
    natural = codec_for(semantic, semantic.type, facts, fixed=True)
    return None if isinstance(natural, Fit) else Codec(Kind.AS_TEXT, STRING, element=natural)


def bare_text_codec(codec: Codec, earlier: DataType, facts: ProducerFacts) -> Codec:
    """A STRING column's codec for undeclared values that also takes those of its earlier type."""
    natural = bare_codec_for(earlier, facts)
    if isinstance(natural, Fit) or natural.kind in _JSON_TEXTS:
        return codec
    return Codec(codec.kind, codec.type, codec.unit, codec.scale, natural)


# Exact decimals by the column: from unscaled bytes and from digits.
#
# Numpy does the byte work, Arrow the checks, except where Arrow's own checks have holes; those are
# closed here (see the comments).


_WORD_BYTES = 8
_DECIMAL_BYTES = 16
_SIGN_BIT = 0x80
_MAX_DIGITS = 38

MAX_SCALE = 2_047
"""Largest scale, either way, that is written out as digits; no event has a larger one."""

DECIMAL_CONTEXT = decimal.Context(prec=100_000, traps=[decimal.Inexact, decimal.InvalidOperation])
"""Exact arithmetic for single decimals: anything that would round raises."""


class ConversionError(ValueError):
    """Some value of a column does not fit; which one is for the caller to find."""


def require(condition: bool, what: str) -> None:
    """Raise ConversionError unless the condition holds."""
    if not condition:
        raise ConversionError(what)


def every(mask: pa.Array) -> bool:
    """Whether a mask is true wherever it is not null."""
    return pc.all(mask, min_count=0).as_py() is not False


def arrow_array(values: Sequence[Any] | pa.Array, type_: pa.DataType) -> pa.Array:
    """An array of Python values, or of the scan's integers, texts and bytes.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError, OverflowError: a value does not fit.
    """
    if isinstance(values, pa.Array):
        if values.type == type_:
            return values
        integers = pa.types.is_integer(values.type) and pa.types.is_integer(type_)
        if integers or (pa.types.is_string(values.type) and pa.types.is_floating(type_)):
            return values.cast(type_)
        values = values.to_pylist()  # casts of other types would take more than a list does
    return pa.array(values, type_)


def decimals_from_bytes(
    values: Sequence[bytes | None] | pa.Array, scale: int, target: pa.Decimal128Type
) -> pa.Array:
    """Decimals from big-endian two's complement unscaled numbers.

    Args:
        values: unscaled numbers, None for null.
        scale: theirs.
        target: type of the column.

    Raises:
        ValueError: a number is empty, does not fit or would lose digits.

    Cost: about 0.1 us a value.
    """
    numbers = arrow_array(values, pa.binary())
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), target)  # whatever the scale is
    words = _signed_words(numbers)
    growth = max(0, target.scale - scale)
    if growth == 0 and scale == target.scale:
        source = target
    else:
        # so many digits fewer, because Arrow's rescaling may wrap around without an error
        require(growth < _MAX_DIGITS and scale <= _MAX_DIGITS, "no common scale")
        source = pa.decimal128(_MAX_DIGITS - growth, scale)
    numbers = pa.Decimal128Array.from_buffers(source, len(values), words)
    numbers.validate(full=True)
    return numbers if source is target else numbers.cast(target)


def unscaled_digits(unscaled: bytes, scale: int) -> str:
    """Digits of one unscaled number.

    Raises:
        ConversionError: it is empty or its scale is beyond `MAX_SCALE`.
    """
    require(bool(unscaled) and abs(scale) <= MAX_SCALE, "an empty number or an odd scale")
    number = decimal.Decimal(int.from_bytes(unscaled, "big", signed=True))
    return plain_digits(number.scaleb(-scale, DECIMAL_CONTEXT))


def whole_digits(unscaled: bytes, scale: int) -> str:
    """Digits of one unscaled number that has no fraction, whatever its scale.

    Raises:
        ConversionError: it is empty, has a fraction, or its scale is odd.
    """
    require(0 <= scale <= MAX_SCALE, "an odd scale")
    number, fraction = divmod(int.from_bytes(unscaled, "big", signed=True), 10**scale)
    require(bool(unscaled) and not fraction, "an empty number or a fraction")
    return format(decimal.Decimal(number), "f")  # which knows no limit of digits


def plain_digits(number: decimal.Decimal) -> str:
    """A decimal without exponent.

    Raises:
        ConversionError: its exponent is beyond `MAX_SCALE`.
    """
    exponent = number.as_tuple().exponent
    require(isinstance(exponent, int) and abs(exponent) <= MAX_SCALE, "an odd scale")
    return format(number, "f")


def _signed_words(values: pa.Array) -> list[pa.Buffer | None]:
    """Buffers of a decimal128 array from big-endian two's complement numbers of any length <= 16.

    Args:
        values: binary array with offset 0.
    """
    validity, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[: len(values) + 1]
    lengths = np.diff(offsets)
    widest = int(lengths.max(initial=0))
    require(widest <= _DECIMAL_BYTES, "a number of more than 16 bytes")
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        require(bool((lengths[present] > 0).all()), "an empty number")
    else:
        require(bool((lengths > 0).all()), "an empty number")
    if widest == 0:
        return [validity, pa.py_buffer(bytes(_DECIMAL_BYTES * len(values)))]
    data = np.frombuffer(data_buffer, np.uint8)
    words = _narrow_words if widest <= _WORD_BYTES else _wide_words
    return [validity, pa.py_buffer(words(data, offsets, lengths, widest))]


def _narrow_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    last = len(data) - 1
    first = data[np.minimum(offsets[:-1], last)]
    low = np.where((first >= _SIGN_BIT) & (lengths > 0), np.int64(-1), np.int64(0))
    for step in range(widest):
        digit = data[np.minimum(offsets[:-1] + step, last)]
        low = np.where(step < lengths, (low << 8) | digit, low)
    words = np.empty((len(low), 2), np.int64)
    words[:, 0] = low
    words[:, 1] = low >> 63
    return words


def _wide_words(
    data: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, widest: int
) -> np.ndarray:
    first = data[np.minimum(offsets[:-1], len(data) - 1)]
    negative = (first >= _SIGN_BIT) & (lengths > 0)
    words = np.zeros((len(lengths), _DECIMAL_BYTES), np.uint8)
    words[negative] = 0xFF
    for step in range(widest):
        rows = np.flatnonzero(lengths > step)
        words[rows, step] = data[offsets[1:][rows] - 1 - step]
    # Arrow's check of precision passes the one number whose absolute value has no 128 bits
    lowest = np.zeros(_DECIMAL_BYTES, np.uint8)
    lowest[-1] = _SIGN_BIT
    require(not (words == lowest).all(axis=1).any(), "too many digits")
    return words


def decimals_from_text(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Decimals from text, where Arrow is sure to notice what does not fit.

    Arrow 26 wraps around without an error beyond 128 bits, in parsing and in rescaling (39 ones or
    `3.4e38` into DECIMAL(38, 10) give some number), so long texts and exponents are refused here
    and left to the reference path.
    """
    content = (texts.buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    require(b"e" not in content and b"E" not in content, "an exponent")
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    require(longest <= _MAX_DIGITS, "a long text")
    if longest + target.scale > _MAX_DIGITS:
        points = pc.find_substring(texts, ".")
        integers = pc.if_else(pc.less(points, 0), pc.binary_length(texts), points)
        require((pc.max(integers).as_py() or 0) + target.scale <= _MAX_DIGITS, "many digits")
    return texts.cast(target)
