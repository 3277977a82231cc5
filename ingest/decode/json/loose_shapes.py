# SPDX-License-Identifier: Apache-2.0
"""Shapes of events with less type information than Debezium's: columns determine the decoding.

A number may be sent as text, a date as its database prints it, bytes in the format's own encoding.
So the column alone determines how a value is decoded, and every value is checked. Types sent beside
the rows (Canal's `mysqlType`) are used for new columns and for widening, and to resolve the numbers
of ENUM and SET members. A type may be open (length or precision unknown): then the values determine
the width of the column.
"""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from ingest.decode.events import SourceTable, TypeRequests
from ingest.decode.json.schema_block import SchemaBlock
from ingest.decode.json.single_event import Tokens
from ingest.decode.shapes import Shape
from ingest.decode.types.semantic_types import (
    STRING,
    Codec,
    Fit,
    Kind,
    ProducerFacts,
    Semantic,
    bare_codec_for,
    mapped_type,
    with_policies,
)
from ingest.decode.types.token_values import NULL, number_token
from ingest.decode.types.unavailable import Placeholder
from ingest.decode.types.widening import guessed_union, nullable, union_type
from storage.format.types.types import ArrayType, AtomicType, DataType, TypeRoot

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
    """How values without a declared encoding are converted to a column of the target.

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
            return with_policies(Codec(kind, column), column, facts)
    return bare_codec_for(column, facts)


@dataclasses.dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column whose type is sent beside the rows.

    Attributes:
        name: of the column.
        type: nullable.
        bounded: whether its length and precision are known rather than assumed.
        observed_type: of an open type: the type that a value's JSON text requires; None = not open.
        kind: MEMBER or MEMBERS where values are numbers of `members`.
        members: of an ENUM or SET.
    """

    name: str
    type: DataType
    bounded: bool = True
    observed_type: Callable[[bytes], DataType] | None = None
    kind: Kind = Kind.TEXT
    members: tuple[str, ...] = ()


class LooseShape(Shape):
    """See the module.

    Args:
        source: the source table.
        types: the columns as the event describes them; None = it does not.
        facts: of the producer.
        primary_keys: configured key columns of a target.
        all_text: whether columns are STRING where `types` is None, whatever their values are.
    """

    def __init__(
        self,
        source: SourceTable,
        types: Sequence[TypedColumn] | None,
        facts: ProducerFacts,
        primary_keys: Callable[[str], Sequence[str]],
        *,
        all_text: bool = False,
    ) -> None:
        block = None if types is None else SchemaBlock(b"", "", (), ())
        super().__init__(source, block, facts, primary_keys)
        self._all_text = all_text
        self.has_open_types = any(column.observed_type for column in types or ())
        self._observed_type_of = {
            column.name: column.observed_type for column in types or () if column.observed_type
        }
        self._fields = [
            (
                column.name,
                Semantic(
                    column.kind,
                    mapped_type(column.type, facts.mapping),
                    bounded=column.bounded,
                    members=column.members,
                ),
            )
            for column in types or ()
        ]

    def _bare(self, type_: DataType) -> Codec | None:
        codec = loose_codec_for(type_, self._facts)
        if isinstance(codec, Fit):
            return None
        if self._all_text and codec.kind is Kind.TEXT_OR_JSON:
            return dataclasses.replace(codec, kind=Kind.TEXT_OR_ANY)
        return codec

    def _new_type(self, token: bytes) -> DataType:
        return STRING if self._all_text else super()._new_type(token)

    # --- open types

    def learn_widths(self, tokens: Tokens) -> None:
        """See `Shape.learn_widths`."""
        for name, type_ in self._missing.items():
            token = tokens.get(name, NULL)
            if token != NULL and name in self._observed_type_of:
                self._missing[name] = self._wider(name, type_, token, guessed_union) or type_

    def learn_types(self, tokens: Tokens, placeholder: Placeholder) -> bool:
        """See `Shape.learn_types`: values of open types may require wider columns."""
        plan, target = self.plan, self.target
        if not self._observed_type_of or plan is None or target is None or not target.evolvable:
            return super().learn_types(tokens, placeholder)
        fixed_names = {name for name, _ in target.fixed}
        changed = False
        for number, column in enumerate(plan.columns):
            name, token = column.member, tokens.get(column.member, NULL)
            keeps = (
                number in plan.key or name in fixed_names or self._facts.mapping.keeps(column.type)
            )
            if token == NULL or name not in self._observed_type_of or keeps:
                continue
            if self._takes(column.name, column.type, token, placeholder):
                continue
            wider = self._wider(name, column.type, token, union_type)
            if wider is not None and self._takes(column.name, wider, token, placeholder):
                self.outgrow(name, nullable(wider))
                changed = True
        return changed

    def _wider(
        self,
        name: str,
        type_: DataType,
        token: bytes,
        union: Callable[[DataType, DataType], DataType | None],
    ) -> DataType | None:
        try:
            observed = self._observed_type_of[name](token)
            return union(type_, mapped_type(observed, self._facts.mapping))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

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
        if semantic.members and isinstance(type_, AtomicType) and type_.root in _TEXTS:
            return Codec(semantic.kind, type_, members=semantic.members)
        codec = self._bare(type_) or Fit.NEVER
        if isinstance(codec, Codec) and codec.kind is Kind.LOOSE_NUMBER and union == codec.type:
            return dataclasses.replace(codec, kind=Kind.LOOSE_FLOAT)  # declared FLOAT or DOUBLE
        return codec

    def _fitting_codec(
        self, name: str, type_: DataType, semantic: Semantic, fixed: bool
    ) -> Codec | Fit:
        if name in self._names.texts:
            return self._bare_codec(name, type_) or Fit.NEVER
        return super()._fitting_codec(name, type_, semantic, fixed)

    @property
    def _asks(self) -> bool:
        return self.target is not None and self.target.type_requests is not TypeRequests.NONE
