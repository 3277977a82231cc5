# SPDX-License-Identifier: Apache-2.0
"""Masks: columns that are written unreadable.

    sha256, sha256('salt')    hexadecimal digest of the salt followed by the string or bytes
    md5, md5('salt')          the same; not collision-resistant, for old systems only
    last(4), first(4)         that many characters; empty for a value that would be shown whole
    redact, redact('***')     the same string for every value
    null                      null

Null stays null. Values that are no strings are masked in the string form that a cast to STRING
gives. A salt is a secret: it is in no message and no `repr`.
"""

import dataclasses
import re

import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.suggestion import nearest
from ingest.transform.functions.text_functions import ALGORITHMS, hex_digests
from ingest.transform.functions.type_rules import STRING, is_bytes, nullable
from storage.errors import InvalidRequestError
from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_columns import can_cast
from storage.format.types.cast_texts import to_text
from storage.format.types.type_text import type_name
from storage.format.types.types import DataType

MASK_NAMES = ("sha256", "md5", "first", "last", "redact", "null")
_MASK = re.compile(
    r"\s*(?P<name>\w+)\s*(?:\(\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<bare>[^')(]*?))\s*\))?\s*"
)
_REDACTED = "***"


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """How a column is masked.

    Attributes:
        name: one of `MASK_NAMES`.
        count: characters shown by `first` and `last`.
        text: the salt, or the string that replaces every value.
    """

    name: str
    count: int = 0
    text: str = dataclasses.field(default="", repr=False)

    @property
    def keeps_apart(self) -> bool:
        """Whether different values stay different, so that a key may have this mask."""
        return self.name in ALGORITHMS

    def result_type(self, source: DataType) -> DataType:
        """The type of the masked column; null keeps the type, all others make a STRING.

        Raises:
            InvalidRequestError: the type has no text.
        """
        if self.name == "null":
            return nullable(source)
        if self.name in ("first", "last") and is_bytes(source):
            raise InvalidRequestError(
                "bytes have no characters to show", hint="use sha256, redact or null"
            )
        if self.name != "redact" and not is_bytes(source) and not can_cast(source, STRING):
            raise InvalidRequestError(
                "this mask does not support the column's type",
                hint="use redact or null",
                type=type_name(source),
                mask=self.name,
            )
        return STRING

    def apply(self, column: pa.Array, source: DataType) -> pa.Array:
        """The masked values; null stays null."""
        if self.name == "null":
            return pa.nulls(len(column), arrow_type(source))
        if self.name == "redact":
            replacement = pa.scalar(self.text, pa.string())
            return pc.if_else(column.is_valid(), replacement, pa.scalar(None, pa.string()))
        if self.name in ALGORITHMS:
            plain = column if is_bytes(source) else _texts(column, source)
            return hex_digests(plain, self.name, self.text.encode())
        return self._part(_texts(column, source))

    def _part(self, texts: pa.Array) -> pa.Array:
        if self.name == "first":
            part = pc.utf8_slice_codeunits(texts, 0, self.count)
        else:
            part = pc.utf8_slice_codeunits(texts, -self.count)
        whole = pc.less_equal(pc.utf8_length(texts), self.count)
        return pc.if_else(whole, pa.scalar(""), part)


def parse_mask(text: str) -> Mask:
    """Read a mask.

    Raises:
        InvalidRequestError: there is no such mask, or its argument does not fit. The argument is
            not shown, for it may be a salt.
    """
    match = _MASK.fullmatch(text)
    name = "" if match is None else match["name"].lower()
    if match is None or name not in MASK_NAMES:
        word = re.match(r"\s*\w*", text)
        raise InvalidRequestError(
            "there is no such mask",
            hint=nearest(name, MASK_NAMES)
            or "masks are sha256, md5, first(n), last(n), redact, null",
            mask="" if word is None else word.group().strip(),
        )
    quoted, bare = match["text"], (match["bare"] or "").strip()
    argument = quoted.replace("''", "'") if quoted is not None else bare
    if name in ("first", "last"):
        if re.fullmatch(r"[1-9]\d{0,3}", argument) is None:
            raise _wrong(name, f"write it like: {name}(4)")
        return Mask(name, count=int(argument))
    if name == "null" and argument:
        raise _wrong(name, "write it like: null")
    if name == "redact" and not argument:
        argument = _REDACTED
    return Mask(name, text=argument)


def _wrong(name: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError("invalid mask argument", hint=hint, mask=name)


def _texts(column: pa.Array, source: DataType) -> pa.Array:
    return column if pa.types.is_string(column.type) else to_text(column, source)
