# SPDX-License-Identifier: Apache-2.0
"""Declarations of procedures, and the values of the arguments of a CALL.

A procedure is declared once: CALL, SHOW PROCEDURES, DESCRIBE PROCEDURE and the reference page read
the declaration. Names of arguments are those of Paimon's Flink and Spark procedures; capitals and
underscores in them do not matter (`consumerId` is `consumer_id`).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from storage.options.values import duration_ms
from storage.sql.errors import refuse, suggestion
from storage.sql.query import constant, instant_ms

if TYPE_CHECKING:
    from storage.sql.session import SqlSession


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a procedure.

    Attributes:
        name: in Paimon's Flink procedures where both engines have it.
        about: what it is.
        type: `text`, `integer`, `boolean`, `time` (a text `2024-01-31 12:00:00` in the session's
            zone, or epoch milliseconds; given as epoch ms), `duration` (given in ms), `pattern` (a
            regular expression, given compiled) or `options` (a text `k=v,…` or a map).
        required: whether it must be given.
        default: its effect when it is missing, for documentation.
        aliases: other names.
    """

    name: str
    about: str
    type: str = "text"
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
        about: what it does.
        arguments: in the order in which they are given without names (Flink's).
        run: returns rows, or None for one row `Success`.
        aliases: other names.
        by_place: chooses the arguments for values without names, where their number or their types
            decide; None: the declared order.
        repeated: whether the last argument may be given several times, without names.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...]
    run: Callable[[Call], pa.Table | None]
    aliases: tuple[str, ...] = ()
    by_place: Callable[[Sequence[Any]], Sequence[str] | None] | None = None
    repeated: bool = False

    def bind(
        self,
        session: "SqlSession",
        node: exp.Expr,
        expressions: Sequence[tuple[str | None, exp.Expr]],
    ) -> Call:
        """The arguments of a CALL.

        Raises:
            SqlError: one is unknown, missing, given twice, or of another type.
        """
        count = len(self.arguments)
        by_place = [expression for name, expression in expressions if name is None]
        if self.repeated and len(expressions) > count and len(by_place) == len(expressions):
            last = [str(literal_value(session, node)) for node in by_place[count - 1 :]]
            expressions = [*expressions[: count - 1], (None, exp.Literal.string(";".join(last)))]
            by_place = [expression for _, expression in expressions]
        places = self._places(session, by_place)
        values: dict[str, Any] = {}
        nodes: dict[str, exp.Expr] = {}
        for place, (name, expression) in enumerate(expressions):
            argument = self._argument_named(name, expression) if name is not None else None
            if argument is None:
                if place >= len(places):
                    refuse(
                        f"{self.name} takes {len(places)} arguments",
                        expression,
                        hint=f"the arguments are {self.signature}",
                    )
                argument = self._argument_named(places[place], expression)
            if argument.name in nodes:
                refuse("an argument is given twice", expression, argument=argument.name)
            nodes[argument.name] = expression
            values[argument.name] = _value(session, expression, argument)
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
        """The arguments as written in a statement."""
        return ", ".join(
            f"{item.name} => {item.type}" if item.required else f"[{item.name} => {item.type}]"
            for item in self.arguments
        )

    def _places(self, session: "SqlSession", values: Sequence[exp.Expr]) -> Sequence[str]:
        names: Sequence[str] | None = None
        if self.by_place is not None:
            names = self.by_place([literal_value(session, node) for node in values])
        return [argument.name for argument in self.arguments] if names is None else names

    def _argument_named(self, name: str, node: exp.Expr) -> Argument:
        arguments: dict[str, Argument] = {}
        for argument in self.arguments:
            arguments |= {_folded(alias): argument for alias in (argument.name, *argument.aliases)}
        match = arguments.get(_folded(name))
        if match is None:
            names = [item.name for item in self.arguments]
            hint = suggestion(name, names, f"the arguments are {self.signature}")
            refuse(f"{self.name} has no such argument", node, hint=hint, argument=name)
        return match


def procedure(
    *arguments: Argument,
    aliases: tuple[str, ...] = (),
    by_place: Callable[[Sequence[Any]], Sequence[str] | None] | None = None,
    repeated: bool = False,
) -> Callable[[Callable[[Call], pa.Table | None]], Procedure]:
    """Declare a function as the procedure of its name; its docstring describes it to users.

    Arguments are the attributes of `Procedure`.
    """

    def declare(function: Callable[[Call], pa.Table | None]) -> Procedure:
        return Procedure(
            name=function.__name__,
            about=" ".join((function.__doc__ or "").split()),
            arguments=arguments,
            run=function,
            aliases=aliases,
            by_place=by_place,
            repeated=repeated,
        )

    return declare


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
    value, kind = literal_value(session, node), argument.type
    if value is None or value == "":
        return None
    form, convert = _KINDS[kind]
    try:
        if kind == "time" and not str(value).isdecimal():
            return instant_ms(session, node)
        return convert(value)
    except (KeyError, ValueError, re.error) as error:
        detail = str(error) if kind in ("duration", "pattern") else ""
    message = f"the argument {argument.name} is {form}"
    return refuse(message, node, argument=argument.name, value=value, detail=detail)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise ValueError(value)  # noqa: TRY004 - as of other texts
    return str(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(value)  # noqa: TRY004 - as of other texts
    return int(str(value))


def _options(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    if isinstance(value, list):
        return {str(key): str(item) for key, item in value}
    options = {}
    for part in str(value).split(","):
        key, sign, text = part.partition("=")
        if not sign or not key.strip():
            raise ValueError(part)
        options[key.strip()] = text.strip()
    return options


_KINDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("a text", _text),
    "integer": ("an integer", _integer),
    "boolean": ("TRUE or FALSE", lambda value: {"true": True, "false": False}[str(value).lower()]),
    "time": ("a time such as '2024-01-31 12:00:00'", _integer),
    "duration": ("a time span such as '1 d' or '30 min'", lambda value: duration_ms(str(value))),
    "pattern": ("a regular expression", lambda value: re.compile(str(value))),
    "options": ("options such as 'key=value,key=value'", _options),
}
"""By type: its description in errors, and the conversion of a value."""


def result_rows(**columns: Sequence[Any]) -> pa.Table:
    """Rows of a procedure."""
    return pa.table(
        {
            name: pa.array(values, pa.string() if not values else None)
            for name, values in columns.items()
        }
    )
