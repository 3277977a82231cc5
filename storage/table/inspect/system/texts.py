# SPDX-License-Identifier: Apache-2.0
"""Texts in which system tables show partitions, keys and statistics.

Source: SEMANTICS.md §I. Partitions are a row cast to text, `{1, a}`; keys and statistics are the
texts that Java's collections give to the values as Paimon holds them, so a date is its days.
"""

from collections.abc import Iterable, Mapping, Sequence

from storage.format.metadata.layout import value_text
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import decode_row
from storage.format.row.row_codec import RowValue
from storage.format.types.types import AtomicType, DataField, TypeRoot

__all__ = ["field_text", "key_text", "map_text", "partition_text"]

_BYTES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})


def partition_text(schema: TableSchema, partition: bytes) -> str:
    """A framed partition row as text; `{}` of an unpartitioned table."""
    fields = schema.partition_fields
    values = decode_row(partition, [field.type for field in fields])
    texts = (cast_text(value, field) for value, field in zip(values, fields, strict=True))
    return "{" + ", ".join(texts) + "}"


def cast_text(value: RowValue, field: DataField) -> str:
    """A value cast to a string."""
    return "null" if value is None else value_text(value, field, legacy=False)


def key_text(values: Sequence[RowValue], fields: Sequence[DataField]) -> str:
    """A key as the text of a Java array, `[a, 1]`."""
    texts = (field_text(value, field) for value, field in zip(values, fields, strict=True))
    return "[" + ", ".join(texts) + "]"


def map_text(values: Mapping[str, str]) -> str:
    """The text of a sorted Java map, `{a=1, b=null}`."""
    return "{" + ", ".join(f"{name}={values[name]}" for name in _java_sorted(values)) + "}"


def field_text(value: RowValue, field: DataField) -> str:
    """A value as the text of the object that Paimon holds."""
    if value is None:
        return "null"
    type_ = field.type
    if not isinstance(type_, AtomicType):
        return str(value)
    if type_.root in _BYTES:
        return bytes(value).hex()  # Java shows an address, which says nothing
    if type_.root is TypeRoot.DECIMAL:
        return f"{value:f}"
    return value_text(value, field, legacy=True)


def _java_sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
