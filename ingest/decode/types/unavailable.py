# SPDX-License-Identifier: Apache-2.0
"""Debezium's placeholder for a value it does not have: an unchanged TOAST column of PostgreSQL.

The placeholder takes a form per column type (CDC.md §1.4). It must never be stored as a value.
"""

import base64
import functools
import hashlib
import uuid
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.types.conversions import CONVERSION_ERRORS, convert, wire_type
from ingest.decode.types.semantic_types import Codec, Kind

_TEXT_KINDS = (
    Kind.TEXT,
    Kind.TEXT_OR_JSON,
    Kind.JSON,
    Kind.TEXT_OR_STRUCT,
    Kind.STRUCT,
    Kind.ANY_TEXT,
    Kind.TEXT_OR_ANY,
    Kind.MEMBER,
    Kind.MEMBERS,
    Kind.BASE64_TEXT,
)


_DOCUMENTS = (Kind.JSON, Kind.STRUCT, Kind.ANY_TEXT, Kind.AS_TEXT)
"""Text columns in which values that were objects or arrays are JSON text."""

_NUMBER_LIST = r"^\[[-+0-9.eE,\s]*\]$"
_ESCAPED_FORM = r'^(?:\{\s*"[^"\\]*\\|\[\s*"[^"\\]*\\.(?:[^"\\]|\\.)*"\s*\]$)'
"""An object whose first name has an escape, or an array of one text with an escape: a form of the
placeholder that is spelt so has none of the needles. (An object whose first name is the placeholder
without escapes has one.)"""


class Placeholder:
    """All forms of one configured text (`unavailable.value.placeholder`)."""

    def __init__(self, text: str) -> None:
        data = text.encode()
        encodings = (base64.b64encode(data), base64.urlsafe_b64encode(data))
        # as text, and as bytes in each `binary.handling.mode`
        self._texts = tuple(
            dict.fromkeys([text, *(form.decode() for form in encodings), data.hex()])
        )
        self._text = text
        self._codes = list(data)
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        self._uuid = str(uuid.UUID(bytes=digest, version=3))
        self._needles = tuple(form.encode() for form in (*self._texts, self._uuid))
        self._converted: dict[Codec, tuple[pa.Scalar, ...]] = {}

    @property
    def needles(self) -> tuple[bytes, ...]:
        """A record in which none of these is found has no such value."""
        return self._needles

    def is_value(self, value: Any) -> bool:
        """Whether a parsed JSON value is the placeholder in any form."""
        if isinstance(value, str):
            return value in self._texts or self._is_map_text(value)
        if isinstance(value, dict):
            return value == {self._text: self._text}
        if isinstance(value, list):
            return value == self._codes or (
                len(value) == 1 and value[0] in (*self._texts, self._uuid)
            )
        return False

    def _is_map_text(self, value: str) -> bool:
        if self._text not in value:
            return False
        return "".join(value.split()) == f'{{"{self._text}":"{self._text}"}}'

    def suspects(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        """Rows of a converted column that may hold the placeholder.

        Returns:
            A mask without nulls, or None when there is surely none. May name too many rows, never
            too few.

        Cost: a few substring searches over the buffer of a text column; for other types a
        comparison with what the placeholder would become, where it converts at all.
        """
        if codec.kind is Kind.ARRAY:
            return self._suspect_lists(codec, column)
        if codec.kind in _TEXT_KINDS:
            masks = [pc.match_substring(column, needle) for needle in self._present_needles(column)]
        else:
            masks = [pc.equal(column, form) for form in self._forms(codec)]
        if codec.kind in _DOCUMENTS:
            masks += self._documents(codec, column)
        if not masks:
            return None
        return pc.fill_null(functools.reduce(pc.or_, masks), False)

    def exact(self, codec: Codec, column: pa.Array, suspects: pa.Array) -> pa.Array:
        """Which of the suspects surely hold the placeholder and nothing else.

        Args:
            codec: of the column.
            column: converted.
            suspects: what `suspects` gave for it.

        Returns:
            A mask without nulls; suspects outside of it need a closer look at the event.
        """
        if codec.kind in _TEXT_KINDS:
            texts = pa.array([*self._texts], pa.string())
            return pc.fill_null(pc.is_in(column, value_set=texts.cast(column.type)), False)
        if codec.kind in (Kind.ARRAY, Kind.AS_TEXT):  # suspected for the number of elements
            return pa.array(np.zeros(len(column), bool))
        return suspects

    def _documents(self, codec: Codec, column: pa.Array) -> list[pa.Array]:
        """Masks of JSON texts that may be the placeholder without containing any of its texts."""
        if codec.kind is not Kind.AS_TEXT:
            texts = [pc.match_substring_regex(column, _ESCAPED_FORM)]
            lists = pc.match_substring_regex(column, _NUMBER_LIST)
            sizes = [len(self._codes)]
        elif codec.element is not None and codec.element.kind is Kind.ARRAY:
            texts, lists = [], pc.starts_with(column, "[")
            sizes = [1, len(self._codes)]  # elements were converted, whatever they were
        else:
            return []
        commas = pc.count_substring(column, ",")
        return texts + [pc.and_(lists, pc.equal(commas, size - 1)) for size in sizes]

    def _present_needles(self, column: pa.Array) -> list[bytes]:
        data = column.buffers()[2]
        content = b"" if data is None else data.to_pybytes()
        return [needle for needle in self._needles if needle in content]

    def _forms(self, codec: Codec) -> tuple[pa.Scalar, ...]:
        """What the placeholder's texts become in a column, as far as they convert."""
        if codec not in self._converted:
            forms = (_converted(codec, text) for text in self._texts)
            self._converted[codec] = tuple(form for form in forms if form is not None)
        return self._converted[codec]

    def _suspect_lists(self, codec: Codec, column: pa.Array) -> pa.Array | None:
        """Lists of a suspicious length; their elements are compared only where that is cheap."""
        if codec.element is None:
            return None
        lengths = pc.list_value_length(column)
        mask = pc.equal(lengths, len(self._codes))
        if self.suspects(codec.element, column.values) is not None:
            mask = pc.or_(mask, pc.equal(lengths, 1))
        mask = pc.fill_null(mask, False)
        return mask if pc.any(mask, min_count=0).as_py() else None


def _converted(codec: Codec, text: str) -> pa.Scalar | None:
    try:
        value = msgspec.json.decode(msgspec.json.encode(text), type=wire_type(codec))
        return convert(codec, [value])[0]
    except CONVERSION_ERRORS:
        return None
