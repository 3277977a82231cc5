# SPDX-License-Identifier: Apache-2.0
"""Shapes of events whose JSON says less than Debezium's: values are read as the column wants them.

A number may come as text, a date as its database prints it, bytes in the format's own encoding. So
the column alone decides how a value is read, and every value is checked. Types that come beside the
rows (Canal's `mysqlType`) serve for new columns and for widening only.
"""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from ingest.formats.codec_choice import Fit, bare_codec_for, cuts_fractions, infinity_of
from ingest.formats.events import AsksTypes, SourceTable
from ingest.formats.loose_tokens import number_token
from ingest.formats.mapped_types import mapped_type
from ingest.formats.schema_block import SchemaBlock
from ingest.formats.semantic_types import (
    Codec,
    Kind,
    ProducerFacts,
    Semantic,
)
from ingest.formats.shapes import Shape
from ingest.formats.widening import nullable, union_type
from storage.format.types import ArrayType, AtomicType, DataType, TypeRoot

__all__ = ["LooseShape", "TypedColumn", "loose_codec_for"]

_KINDS = {
    TypeRoot.BOOLEAN: Kind.LOOSE_BOOLEAN,
    TypeRoot.TINYINT: Kind.LOOSE_INTEGER,
    TypeRoot.SMALLINT: Kind.LOOSE_INTEGER,
    TypeRoot.INT: Kind.LOOSE_INTEGER,
    TypeRoot.BIGINT: Kind.LOOSE_INTEGER,
    TypeRoot.FLOAT: Kind.LOOSE_NUMBER,
    TypeRoot.DOUBLE: Kind.LOOSE_NUMBER,
    TypeRoot.DECIMAL: Kind.LOOSE_DECIMAL,
}
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_TEXT_MOMENTS = {TypeRoot.DATE: Kind.SQL_DATE, TypeRoot.TIMESTAMP: Kind.SQL_TIMESTAMP}
_BYTES = {"latin1": Kind.LATIN1, "hex": Kind.LOOSE_HEX}


def loose_codec_for(column: DataType, facts: ProducerFacts) -> Codec | Fit:
    """How any value of the right meaning gets into a column of the target.

    Args:
        column: type of the column.
        facts: of the producer; `time_precision_mode` other than `isostring` = times are integers,
            `binary_handling_mode` may be `latin1` too.
    """
    if isinstance(column, ArrayType):
        element = loose_codec_for(column.element, facts)
        return element if isinstance(element, Fit) else Codec(Kind.ARRAY, column, element=element)
    if isinstance(column, AtomicType):
        root, kind = column.root, _KINDS.get(column.root)
        if root in _TEXTS and "to-string" not in facts.mapping:
            kind = Kind.TEXT_OR_JSON
        if facts.time_precision_mode == "isostring":
            kind = _TEXT_MOMENTS.get(root, kind)
        if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
            kind = _BYTES.get(facts.binary_handling_mode)
        if kind is not None:
            infinity, cuts = infinity_of(column, facts), cuts_fractions(column, facts)
            return Codec(kind, column, infinity=infinity, cuts=cuts)
    return bare_codec_for(column, facts)


@dataclasses.dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column whose type comes beside the rows.

    Attributes:
        name: of the column.
        type: nullable.
        bounded: whether its length and precision are known rather than assumed.
    """

    name: str
    type: DataType
    bounded: bool = True


class LooseShape(Shape):
    """See the module.

    Args:
        source: the source table.
        types: the columns as the event describes them; None = it does not.
        facts: of the producer.
        primary_keys: configured key columns of a target.
    """

    def __init__(
        self,
        source: SourceTable,
        types: Sequence[TypedColumn] | None,
        facts: ProducerFacts,
        primary_keys: Callable[[str], Sequence[str]],
    ) -> None:
        block = None if types is None else SchemaBlock(b"", "", (), ())
        super().__init__(source, block, facts, primary_keys)
        self._fields = [
            (
                column.name,
                Semantic(
                    Kind.TEXT, mapped_type(column.type, facts.mapping), bounded=column.bounded
                ),
            )
            for column in types or ()
        ]

    def _bare(self, type_: DataType) -> Codec | None:
        codec = loose_codec_for(type_, self._facts)
        return None if isinstance(codec, Fit) else codec

    def _number(self, token: bytes) -> bytes:
        try:
            return number_token(token)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return token

    def _block_codec(self, type_: DataType, semantic: Semantic, fixed: bool) -> Codec | Fit:
        union = union_type(nullable(type_), semantic.type)
        if union is None and self._asks and not fixed:
            return Fit.NEVER
        if semantic.bounded and not fixed and union not in (None, nullable(type_)):
            return Fit.WIDEN
        codec = self._bare(type_) or Fit.NEVER
        if isinstance(codec, Codec) and codec.kind is Kind.LOOSE_NUMBER and union == codec.type:
            return dataclasses.replace(codec, kind=Kind.LOOSE_FLOAT)  # declared FLOAT or DOUBLE
        return codec

    def _fitting(self, name: str, type_: DataType, semantic: Semantic, fixed: bool) -> Codec | Fit:
        if name in self._names.texts:
            return self._bare_codec(name, type_) or Fit.NEVER
        return super()._fitting(name, type_, semantic, fixed)

    @property
    def _asks(self) -> bool:
        return self.target is not None and self.target.asks_types is not AsksTypes.NONE
