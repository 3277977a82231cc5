# SPDX-License-Identifier: Apache-2.0
"""Values whose JSON form determines their type, or that become text: shared by both decoding paths.

A column-wise loop and a single value call the same functions here, so that they cannot disagree.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from ingest.decode.types.decimal_columns import ConversionError, unscaled_digits
from storage.format.types.cast_columns import column_cast
from storage.format.types.types import MAX_LENGTH, AtomicType, DataType, TypeRoot

_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_UNSIGNED_RANGE = 1 << 64


class _VariableDecimal(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    scale: int
    value: str


_VARIABLE = msgspec.json.Decoder(_VariableDecimal)


def json_text(token: bytes) -> str | None:
    """A text, or the JSON text of an object or array; None for null.

    Raises:
        ConversionError: it is something else.
        msgspec.MsgspecError, UnicodeDecodeError: it is no JSON.
    """
    first = token[:1]
    if first in (b"{", b"["):
        # Raw is only skimmed for well-formedness; a full parse also proves strings and escapes
        msgspec.json.decode(token)
        return token.decode()
    if first == b"n":
        return None
    if first == b'"':
        return msgspec.json.decode(token, type=str)
    raise ConversionError("neither text, object nor array")


def struct_text(token: bytes) -> str | None:
    """As `json_text`; of Debezium's VariableScaleDecimal the digits.

    Without a schema block nothing but its two members identifies it. Debezium has no other struct
    with them, and documents come as text.
    """
    if token[:1] == b"{":
        try:
            parts = _VARIABLE.decode(token)
            return unscaled_digits(base64.b64decode(parts.value, validate=True), parts.scale)
        except (msgspec.MsgspecError, binascii.Error, ValueError):
            pass
    return json_text(token)


def any_text(token: bytes) -> str | None:
    """As `json_text`; numbers, true and false as they were sent."""
    if token[:1] in b'{["n':
        return json_text(token)
    return token.decode("ascii")


def member_text(value: int | str | None, members: Sequence[str]) -> str | None:
    """The member of an ENUM by its number; 0 is MySQL's empty text for a value that is none.

    Raises:
        ConversionError: there is no such member.
    """
    number = _number_of(value)
    if number is None:
        return None if value is None else str(value)
    if number > len(members):
        if value in members:
            return str(value)
        raise ConversionError(f"{value} is not the number of any of {len(members)} members")
    return members[number - 1] if number else ""


def members_text(value: int | str | None, members: Sequence[str]) -> str | None:
    """The members of a SET by the bits of a number, with commas between.

    Raises:
        ConversionError: there are no such members.
    """
    number = _number_of(value)
    if number is None:
        return None if value is None else str(value)
    if number >> len(members):
        if value in members:
            return str(value)
        raise ConversionError(f"{value} has bits beyond those of {len(members)} members")
    return ",".join(name for at, name in enumerate(members) if number >> at & 1)


def _number_of(value: int | str | None) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 21 else None
    if value is not None and value < 0:
        raise ConversionError("negative number of a member")
    return value


def texts_of(array: pa.Array, type_: DataType) -> pa.Array:
    """A column as text, by the casts of the table format."""
    return column_cast(type_, _STRING)(array)


def unsigned_digits(token: bytes) -> bytes:
    """The token of a 64-bit integer as the unsigned number with the same bits."""
    return str(int(token) + _UNSIGNED_RANGE).encode() if token[:1] == b"-" else token


def storage_column(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Array of `type_` from storage values (`reference`)."""
    return pa.array(values, _storage_type(type_)).cast(type_)


def _storage_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_storage_type(type_.value_type))
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type_) else type_
