# SPDX-License-Identifier: Apache-2.0
"""Single JSON tokens: what the reference path reads values from, and why it refuses them.

Producers other than Debezium write numbers as text, dates as their database prints them and bytes
with a prefix. The `*_token` functions turn such a token into the one that the strict decoder of
`reference` takes; what they do not know they give back unchanged, for it to refuse. The fast half
of the `LOOSE_*` and `SQL_*` kinds is in `conversions` and `time_columns`.
"""

import re

import msgspec

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


NULL = b"null"

MEMBERS: "msgspec.json.Decoder[dict[str, msgspec.Raw]]" = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)
"""Members of an object with the text of their values."""

PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders of msgspec raise."""

_INTEGER = re.compile(rb"-?\d{1,100}")
_MAX_SHOWN = 60
_KINDS = {
    b'"': "the string",
    b"{": "the object",
    b"[": "the array",
    b"t": "the boolean",
    b"f": "the boolean",
    b"n": "the",
}
_MAX_SHOWN_BITS = 400


class ValueRefusedError(ValueError):
    """The value does not fit the column; the text says why."""


class UnavailableValueError(ValueRefusedError):
    """The value is the placeholder of a value that the source does not have."""


class UnrepresentableError(ValueRefusedError):
    """The source's value has no counterpart in the column's type; the text says what to choose."""


def refusal(expected: str) -> ValueRefusedError:
    """The error of a token that is something else than expected; who reports it adds the token."""
    return ValueRefusedError(f"expected {expected}")


def shown_value(token: bytes) -> str:
    """A value's JSON kind and the begin of its text, for messages."""
    kind = _KINDS.get(token[:1], "the number")
    rest = "…" if len(token) > _MAX_SHOWN else ""
    return f"{kind} {token[:_MAX_SHOWN].decode('utf-8', 'backslashreplace')}{rest}"


def short_number(number: object) -> str:
    """A number's text, not all of it where it is long."""
    if isinstance(number, int) and number.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {number.bit_length()} bits"
    text = str(number)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def string_of(token: bytes, expected: str) -> str:
    """The text of a JSON string.

    Raises:
        ValueRefusedError: it is not valid.
    """
    if token[:1] != b'"':
        raise refusal(expected)
    return msgspec.json.decode(token, type=str)


def integer_of(token: bytes, expected: str = "an integer") -> int:
    """The number of a JSON integer.

    Raises:
        ValueRefusedError: it is not valid.
    """
    if _INTEGER.fullmatch(token) is None:
        raise refusal(expected)
    return int(token)


def in_range(number: int, low: int, high: int, what: str) -> int:
    """The number.

    Raises:
        ValueRefusedError: it is out of range.
    """
    if not low <= number <= high:
        raise ValueRefusedError(f"{short_number(number)} is out of the range of {what}")
    return number
