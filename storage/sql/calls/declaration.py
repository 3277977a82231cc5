# SPDX-License-Identifier: Apache-2.0
"""Declarations of procedures, and the values of the arguments of a CALL.

A procedure is declared once: CALL, SHOW PROCEDURES, DESCRIBE PROCEDURE and the reference page read
the declaration. Names of arguments are those of Paimon's Flink and Spark procedures; capitals and
underscores in them do not matter (`consumerId` is `consumer_id`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from storage.sql.errors import refuse, suggestion
from storage.sql.query import constant, instant_ms

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["SUCCESS", "Argument", "Call", "Procedure", "result_rows", "succeeded"]

SUCCESS = "Success"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a procedure.

    Attributes:
        name: in Paimon's Flink procedures where both engines have it.
        type: `text`, `integer`, `boolean`, `time` (a text `2024-01-31 12:00:00` in the session's
            zone, or epoch milliseconds; given as epoch ms) or `options` (a text `k=v,…` or a map).
        about: what it is.
        required: whether it must be given.
        default: what holds without it, for readers.
        aliases: other names.
    """

    name: str
    type: str = "text"
    about: str
    required: bool = False
    default: str = ""
    aliases: tuple[str, ...] = ()


class Call:
    """A CALL with its arguments, by their declared names; None where one is not given."""

    def __init__(
        self, session: "SqlSession", node: exp.Expr, name: str, values: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.node = node
        self.name = name
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def text(self, name: str) -> str:
        """An argument that is given."""
        return str(self._values[name])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """A procedure.

    Attributes:
        name: without `sys.`.
        about: what it does; of one that is refused, why, and what to do instead.
        arguments: in the order in which they are given without names (Flink's).
        run: gives rows; None: the procedure is refused by name.
        aliases: other names.
        by_count: arguments by how many are given without names, where that is another order.
        by_place: chooses the arguments for values without names, where their types decide.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...] = ()
    run: Callable[[Call], pa.Table] | None = None
    aliases: tuple[str, ...] = ()
    by_count: Mapping[int, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    by_place: Callable[[Sequence[Any]], Sequence[str] | None] | None = None

    def bind(
        self,
        session: "SqlSession",
        node: exp.Expr,
        given: Sequence[tuple[str | None, exp.Expr]],
    ) -> Call:
        """The arguments of a CALL.

        Raises:
            SqlError: one is unknown, missing, given twice, or of another type.
        """
        places = self._places(session, [one for name, one in given if name is None], node)
        values: dict[str, Any] = {}
        nodes: dict[str, exp.Expr] = {}
        for place, (name, one) in enumerate(given):
            argument = self._named(name, one) if name is not None else None
            if argument is None:
                if place >= len(places):
                    refuse(
                        f"{self.name} takes {len(places)} arguments",
                        one,
                        hint=f"they are {self.signature}",
                    )
                argument = self._named(places[place], one)
            if argument.name in nodes:
                refuse("an argument is given twice", one, argument=argument.name)
            nodes[argument.name] = one
            values[argument.name] = _value(session, one, argument)
        for argument in self.arguments:
            if values.setdefault(argument.name, None) is None and argument.required:
                refuse(
                    f"{self.name} needs the argument {argument.name}",
                    node,
                    hint=f"CALL sys.{self.name}({self.signature})",
                )
        return Call(session, node, self.name, values)

    @property
    def signature(self) -> str:
        """The arguments as a person writes them."""
        return ", ".join(
            f"{one.name} => {one.type}" if one.required else f"[{one.name} => {one.type}]"
            for one in self.arguments
        )

    def _places(
        self, session: "SqlSession", given: Sequence[exp.Expr], node: exp.Expr
    ) -> Sequence[str]:
        names: Sequence[str] | None = self.by_count.get(len(given))
        if names is None and self.by_place is not None:
            names = self.by_place([literal_value(session, one) for one in given])
        return [one.name for one in self.arguments] if names is None else names

    def _named(self, name: str, node: exp.Expr) -> Argument:
        known: dict[str, Argument] = {}
        for argument in self.arguments:
            known |= {_folded(one): argument for one in (argument.name, *argument.aliases)}
        found = known.get(_folded(name))
        if found is None:
            names = [one.name for one in self.arguments]
            hint = suggestion(name, names, f"the arguments are {self.signature}")
            refuse(f"{self.name} has no such argument", node, hint=hint, argument=name)
        return found


def literal_value(session: "SqlSession", node: exp.Expr) -> Any:
    """The value of an expression without columns; literals need no query."""
    match node:
        case exp.Literal(is_string=True):
            return str(node.this)
        case exp.Literal() if str(node.this).isdigit():
            return int(str(node.this))
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case _:
            return constant(session, node)


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _value(session: "SqlSession", node: exp.Expr, argument: Argument) -> Any:
    """The value of an argument; None: null, or an empty text, which Flink gives for "not given"."""
    value = literal_value(session, node)
    if value is None or value == "":
        return None
    kind = argument.type
    try:
        if kind == "integer" and not isinstance(value, bool):
            return int(str(value))
        if kind == "boolean":
            return {"true": True, "false": False}[str(value).lower()]
        if kind == "time":
            return int(str(value)) if str(value).isdigit() else instant_ms(session, node)
        if kind == "options":
            return _options(value)
    except (KeyError, ValueError):
        pass
    else:
        if kind == "text" and not isinstance(value, dict | list):
            return str(value)
    return refuse(
        f"the argument {argument.name} is {_A[kind]}", node, argument=argument.name, value=value
    )


_A = {
    "text": "a text",
    "integer": "an integer",
    "boolean": "TRUE or FALSE",
    "time": "a time such as '2024-01-31 12:00:00'",
    "options": "options such as 'key=value,key=value'",
}


def _options(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(one) for key, one in value.items()}
    if isinstance(value, list):
        return {str(key): str(one) for key, one in value}
    found = {}
    for part in str(value).split(","):
        key, sign, text = part.partition("=")
        if not sign or not key.strip():
            raise ValueError(part)
        found[key.strip()] = text.strip()
    return found


def result_rows(**columns: Sequence[Any]) -> pa.Table:
    """Rows of a procedure."""
    return pa.table(
        {
            name: pa.array(values, pa.string() if not values else None)
            for name, values in columns.items()
        }
    )


def succeeded() -> pa.Table:
    """The row of procedures without results of their own."""
    return result_rows(result=[SUCCESS])
