# SPDX-License-Identifier: Apache-2.0
"""Which codec gets the values of a source column into a column of the target, if any does.

`codec_for` knows what the column means (`semantic_types`); `bare_codec_for` is for events without a
schema block, where only the target's column and the configured facts about the producer are known.

Rulings:
- Without a schema block temporal integers have no unit. With `time.precision.mode=adaptive` the
  column's precision determines it (<= 3: ms, <= 6: us, else ns), as Debezium chooses it by
  precision.
- Without a schema block a precise decimal has no scale: the column's scale is taken.
- In a column that became STRING values of another type are written as the cast of their type writes
  them, through which files written before the change are read: equal values stay equal.
"""

import dataclasses
import enum

from ingest.decode.types.semantic_types import (
    BIGINT,
    DOUBLE,
    STRING,
    UNSIGNED_BIGINT,
    Codec,
    Infinity,
    Kind,
    ProducerFacts,
    Semantic,
)
from ingest.decode.types.widening import nullable, union_type
from storage.format.types.casts import can_cast
from storage.format.types.types import ArrayType, AtomicType, DataType, TypeRoot

__all__ = [
    "Fit",
    "bare_codec_for",
    "bare_text_codec",
    "codec_for",
    "has_text",
    "text_codec",
    "with_policies",
]

_MAX_PRECISION = 38
_MOMENTS = (TypeRoot.DATE, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_INSTANTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_FAMILIES = (
    {TypeRoot.CHAR, TypeRoot.VARCHAR},
    {TypeRoot.BINARY, TypeRoot.VARBINARY},
)


class Fit(enum.Enum):
    """Why there is no codec."""

    WIDEN = "the column needs a wider type"
    NEVER = "the types do not convert"


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
    if semantic.natural is not None and not _same_family(semantic.type, column):
        return codec_for(semantic.natural, column, facts, fixed=fixed)
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
    """A codec with the policies for moments; others are equal whatever these are."""
    infinity = facts.mapping.infinity if column.root in _MOMENTS else Infinity.REFUSE
    cuts = "cut-fractions" in facts.mapping and column.root in _INSTANTS
    return dataclasses.replace(codec, infinity=infinity, cuts=cuts)


def _same_family(type_: DataType, column: DataType) -> bool:
    """Whether a column may have been made for a mapped type."""
    if not isinstance(type_, AtomicType) or not isinstance(column, AtomicType):
        return False
    return any({type_.root, column.root} <= family for family in (*_FAMILIES, {type_.root}))


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
    if kind is Kind.FLOAT and root is TypeRoot.DOUBLE and semantic.type != DOUBLE:
        return Codec(Kind.SINGLE, column)
    if root is TypeRoot.DECIMAL:
        return _into_decimal(semantic, column)
    if kind is Kind.AS_TEXT:
        return _as_text_codec(semantic, column, facts)
    if kind in _AS_MAPPED:
        return Codec(kind, column, semantic.unit)
    if kind is Kind.TEXT and root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
        return Codec(_binary_kind(facts), column)
    if kind is Kind.INTEGER and root is TypeRoot.DOUBLE and semantic.type != BIGINT:
        return Codec(Kind.FLOAT, column)
    if kind in (Kind.DECIMAL_BYTES, Kind.VARIABLE_DECIMAL) and root is TypeRoot.VARCHAR:
        # digits as text, whichever way the column came to be STRING
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
    own = None if natural is None else codec_for(natural, natural.type, facts)
    return Codec(Kind.AS_TEXT, column, element=own) if isinstance(own, Codec) else None


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
    """How values without a schema block get into a column of the target."""
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


_TEXTS = (Kind.TEXT_OR_JSON, Kind.JSON, Kind.TEXT_OR_ANY)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)


def has_text(type_: DataType) -> bool:
    """Whether every value of a type has a text of its own."""
    if isinstance(type_, AtomicType) and type_.root in _BYTES:
        return False
    return can_cast(type_, STRING)


def text_codec(semantic: Semantic, facts: ProducerFacts) -> Codec | None:
    """How declared values of another type get into a STRING column; None = not at all."""
    if not has_text(semantic.type):
        return None
    natural = codec_for(semantic, semantic.type, facts, fixed=True)
    return None if isinstance(natural, Fit) else Codec(Kind.AS_TEXT, STRING, element=natural)


def bare_text_codec(codec: Codec, earlier: DataType, facts: ProducerFacts) -> Codec:
    """A STRING column's codec for undeclared values that also takes those of its earlier type."""
    natural = bare_codec_for(earlier, facts)
    if isinstance(natural, Fit) or natural.kind in _TEXTS:
        return codec
    return Codec(codec.kind, codec.type, codec.unit, codec.scale, natural)
