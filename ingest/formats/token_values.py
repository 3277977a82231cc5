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
    "string_of",
]

NULL = b"null"
_INTEGER = re.compile(rb"-?\d{1,100}")
_SHOWN = 60
_SHOWN_BITS = 400


class ValueRefusedError(ValueError):
    """The value does not fit the column; the text says why."""


class UnavailableValueError(ValueRefusedError):
    """The value is the placeholder of a value that the source does not have."""


class UnrepresentableError(ValueRefusedError):
    """The source's value has no counterpart in the column's type; the text says what to choose."""


def refusal(expected: str, token: bytes) -> ValueRefusedError:
    """The error of a token that is something else than expected."""
    shown = token[:_SHOWN].decode("utf-8", "backslashreplace")
    return ValueRefusedError(f"expected {expected}, got {shown}")


def string_of(token: bytes, expected: str) -> str:
    """The text of a JSON string.

    Raises:
        ValueRefusedError: it is none.
    """
    if token[:1] != b'"':
        raise refusal(expected, token)
    return msgspec.json.decode(token, type=str)


def integer_of(token: bytes, expected: str = "an integer") -> int:
    """The number of a JSON integer.

    Raises:
        ValueRefusedError: it is none.
    """
    if _INTEGER.fullmatch(token) is None:
        raise refusal(expected, token)
    return int(token)


def in_range(number: int, low: int, high: int, what: str) -> int:
    """The number.

    Raises:
        ValueRefusedError: it is out of range.
    """
    if not low <= number <= high:
        size = number.bit_length()
        shown = str(number) if size <= _SHOWN_BITS else f"a number of {size} bits"
        raise ValueRefusedError(f"{shown} is out of the range of {what}")
    return number
