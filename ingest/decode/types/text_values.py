# SPDX-License-Identifier: Apache-2.0
"""Values of another type in a column that became STRING.

Files that were written before such a change are read through the cast of their type, so values
that come after it are written as that cast writes them: equal values stay equal.
"""

from ingest.decode.types.codec_choice import Fit, bare_codec_for, codec_for
from ingest.decode.types.semantic_types import STRING, Codec, Kind, ProducerFacts, Semantic
from storage.format.types.cast_columns import can_cast
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["bare_text_codec", "has_text", "text_codec"]

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
