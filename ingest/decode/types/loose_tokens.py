# SPDX-License-Identifier: Apache-2.0
"""Loose JSON tokens made strict: the reference path's half of the `LOOSE_*` and `SQL_*` kinds.

Producers other than Debezium write numbers as text, dates as their database prints them and bytes
with a prefix. Each function here turns one such token into the token that the strict decoder of
`reference` takes; what it does not know it gives back unchanged, for the strict decoder to refuse.
The fast half is `loose_columns`.
"""

import re

import msgspec

__all__ = ["hex_token", "moment_token", "number_token", "truth_token"]

_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_ZERO_DATE = re.compile(r"0000-00-00(?:[T :][0:.]*)?", re.ASCII)
_DATE_LENGTH = 10
_MIDNIGHT = re.compile(r"[T :]00:00:00(?:\.0+)?", re.ASCII)


def _text(token: bytes) -> str | None:
    return msgspec.json.decode(token, type=str) if token[:1] == b'"' else None


def number_token(token: bytes) -> bytes:
    """A number, out of the text that holds one."""
    text = _text(token)
    if text is None or _NUMBER.fullmatch(text) is None:
        return token
    if text.lstrip("-").startswith("."):
        text = text.replace(".", "0.", 1)
    return text.encode()


_TRUTH = {b"1": b"true", b"0": b"false", b"true": b"true", b"false": b"false"}


def truth_token(token: bytes) -> bytes:
    """`true` or `false`, out of 0, 1 and such texts."""
    text = _text(token)
    plain = (b"0" if token == b"-0" else token) if text is None else text.encode()
    return _TRUTH.get(plain, token)


def hex_token(token: bytes) -> bytes:
    """Hexadecimal text without `0x`."""
    return b'"' + token[3:] if token[:3] in (b'"0x', b'"0X') else token


def moment_token(token: bytes, *, whole_days: bool) -> bytes:
    """A date or timestamp in ISO form; `null` for MySQL's zero date.

    Args:
        token: as sent; date and time may be joined by a colon.
        whole_days: for a DATE, whose midnight is cut.
    """
    text = _text(token)
    if text is None:
        return token
    if _ZERO_DATE.fullmatch(text) is not None:
        return b"null"
    day, rest = text[:_DATE_LENGTH], text[_DATE_LENGTH:]
    if whole_days and _MIDNIGHT.fullmatch(rest.removesuffix("Z")) is not None:
        rest = ""
    elif rest[:1] == ":":
        rest = " " + rest[1:]
    return msgspec.json.encode(day + rest)
