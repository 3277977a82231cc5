# SPDX-License-Identifier: Apache-2.0
"""What an expression says, as frozen values; and how one is refused.

Operators are calls, too: `a + b` is `Call("+", (a, b))`. Positions are characters from 0.
"""

import dataclasses
import enum

from storage.errors import InvalidRequestError
from storage.format.types.types import AtomicType

__all__ = [
    "Call",
    "Case",
    "CastTo",
    "ColumnName",
    "Literal",
    "LiteralKind",
    "Node",
    "calls_of",
    "expression_error",
]


class LiteralKind(enum.Enum):
    """How a literal is written."""

    NULL = "NULL"
    BOOLEAN = "a truth value"
    NUMBER = "a number"
    TEXT = "a text"
    BYTES = "bytes"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    INTERVAL = "INTERVAL"


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written.

    Attributes:
        kind: what it is.
        text: the digits, or what stands between the quotes; `3 DAY` of an interval.
        start: first character.
        end: behind the last character.
    """

    kind: LiteralKind
    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnName:
    """A column of the row."""

    name: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator; its name is in lower case."""

    name: str
    arguments: tuple["Node", ...]
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN value … ELSE otherwise END`."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"
    start: int
    end: int


@dataclasses.dataclass(frozen=True, slots=True)
class CastTo:
    """`CAST(part AS type)`; an `attempt` gives null where the cast fails."""

    part: "Node"
    type: AtomicType
    attempt: bool
    start: int
    end: int


Node = Literal | ColumnName | Call | Case | CastTo


def calls_of(node: Node) -> frozenset[str]:
    """Names of the functions and operators in an expression."""
    match node:
        case Call(name, arguments):
            return frozenset({name}).union(*map(calls_of, arguments))
        case CastTo(part):
            return calls_of(part)
        case Case(branches, otherwise):
            parts = [part for branch in branches for part in branch]
            parts += [] if otherwise is None else [otherwise]
            return frozenset[str]().union(*map(calls_of, parts))
        case _:
            return frozenset()


def expression_error(text: str, position: int, detail: str, hint: str = "") -> InvalidRequestError:
    """The error of an expression that is refused.

    Args:
        text: the whole expression.
        position: character from 0; the message counts from 1.
        detail: what is wrong there.
        hint: what to write instead.
    """
    return InvalidRequestError(
        "an expression is refused",
        detail=f"at character {position + 1}: {detail}",
        hint=hint,
        expression=text,
    )
