# SPDX-License-Identifier: Apache-2.0
"""What `sink.type.mapping` makes of a source column: the type that a new column gets.

`observe` says what a field of a schema block means; a mapped meaning remembers it (`natural`), so
that a column which exists with another type is filled as if there were no mapping.
"""

import dataclasses

from ingest.decode.json.schema_block import BlockField
from ingest.decode.types.semantic_types import (
    BIGINT,
    SOURCE_TYPE,
    STRING,
    UNSIGNED_BIGINT,
    Kind,
    Semantic,
    is_unsigned_bigint,
    observe,
)
from ingest.decode.types.type_mapping import TypeMapping
from storage.format.types.types import MAX_LENGTH, AtomicType, DataType, TypeRoot

__all__ = ["mapped_type", "observe_mapped"]

_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_SENT_AS_TEXT = (Kind.ZONED, Kind.ISO_DATE, Kind.ISO_TIME, Kind.ISO_TIMESTAMP)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)


def observe_mapped(field: BlockField, mapping: TypeMapping) -> Semantic:
    """Meaning of a field of a schema block, by the words of the mapping."""
    natural = observe(field)
    if not mapping.words:
        return natural
    found = _text(natural) if "to-string" in mapping else _special(field, natural, mapping)
    return natural if found is None else dataclasses.replace(found, natural=natural)


def _text(natural: Semantic) -> Semantic | None:
    """As text; None where it is text anyway."""
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
    if natural.kind is Kind.ZONED and "zoned-to-string" in mapping:
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
