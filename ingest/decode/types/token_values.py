# SPDX-License-Identifier: Apache-2.0
"""Single JSON tokens: what the reference path reads values from, and why it refuses them."""

import re

import msgspec

__all__ = [
    "NULL",
    "UnavailableValueError",
    "UnrepresentableError",
    "ValueRefusedError",
    "in_range",
    "integer_of",
    "refusal",
    "short_number",
    "shown_value",
    "string_of",
]

NULL = b"null"
_INTEGER = re.compile(rb"-?\d{1,100}")
_SHOWN = 60
_KINDS = {
    b'"': "the string",
    b"{": "the object",
    b"[": "the array",
    b"t": "the boolean",
    b"f": "the boolean",
    b"n": "the",
}
_SHOWN_BITS = 400


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
    rest = "…" if len(token) > _SHOWN else ""
    return f"{kind} {token[:_SHOWN].decode('utf-8', 'backslashreplace')}{rest}"


def short_number(number: object) -> str:
    """A number's text, not all of it where it is long."""
    if isinstance(number, int) and number.bit_length() > _SHOWN_BITS:
        return f"a number of {number.bit_length()} bits"
    text = str(number)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def string_of(token: bytes, expected: str) -> str:
    """The text of a JSON string.

    Raises:
        ValueRefusedError: it is none.
    """
    if token[:1] != b'"':
        raise refusal(expected)
    return msgspec.json.decode(token, type=str)


def integer_of(token: bytes, expected: str = "an integer") -> int:
    """The number of a JSON integer.

    Raises:
        ValueRefusedError: it is none.
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
