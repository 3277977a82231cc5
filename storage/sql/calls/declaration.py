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

from storage.errors import InvalidRequestError
from storage.format.row.binary_row import decode_row
from storage.format.row.row_codec import from_row_values
from storage.options.values import duration_ms
from storage.sql.errors import locate, refuse, suggestion
from storage.sql.query import constant, instant_ms
from storage.sql.relations import check_options, is_of_tables
from storage.table.scan.predicate import columns_of, mask, parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import live_partitions

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


# Shared parts of procedures: tables by name, and partitions by text or condition.


TABLE = Argument("table", "the table, `database.table` or `table`", required=True)
PARTITIONS = Argument(
    "partitions",
    "partitions by their values: `,` between values of one, `;` between partitions: "
    "`dt=2024-01-31,hh=01;dt=2024-02-01`",
    aliases=("partition",),
)
WHERE = Argument("where", "partitions by a condition on partition columns: `dt > '5'`")
OPTIONS = Argument("options", "options of the table for this call alone", type="options")


def table_node(call: Call, name: str) -> exp.Table:
    """`catalog.database.table` as a name in a statement."""
    parts = [part.strip("`") for part in name.split(".")]
    if len(parts) > 3 or not all(parts):
        refuse("no name of a table", call.node, table=name)
    padded = [None] * (3 - len(parts)) + [exp.to_identifier(part, quoted=True) for part in parts]
    return exp.Table(this=padded[2], db=padded[1], catalog=padded[0])


def called_table(call: Call, name: str | None = None) -> FileStoreTable:
    """The table of a call, with its options.

    Raises:
        NotFoundError: there is no such table or branch.
        InvalidOptionError: an option is unknown.
        SqlError: the name is of no table.
    """
    name = call.text("table") if name is None else name
    try:
        table = call.session.resolve(table_node(call, name))
    except InvalidRequestError as error:
        raise locate(error, call.node) from error
    if not isinstance(table, FileStoreTable):
        refuse("procedures work on tables", call.node, table=name)
    try:
        options = call["options"] or {}
    except KeyError:
        options = {}
    options = {key: text for key, text in options.items() if is_of_tables(key)}
    check_options(options, call.node)
    return table.with_options(options) if options else table


def parse_partitions(call: Call, text: str) -> tuple[Mapping[str, Any], ...]:
    """Values of partitions; of a text such as `dt=1,hh=2;dt=3`.

    Raises:
        SqlError: it is not of this form.
    """
    partitions = []
    for part in text.split(";"):
        if not part.strip():
            continue
        values: dict[str, str] = {}
        for pair in part.split(","):
            name, sign, value = pair.partition("=")
            if not sign or not name.strip():
                refuse(
                    "no partition", call.node, hint="write 'dt=2024-01-31,hh=01;dt=…'", text=pair
                )
            values[name.strip()] = value.strip().strip("'\"")
        partitions.append(values)
    return tuple(partitions)


def chosen_partitions(call: Call, table: FileStoreTable) -> tuple[Mapping[str, Any], ...] | None:
    """Values of the partitions that `partitions` or `where` chooses; (): all; None: none.

    Raises:
        SqlError: both are given, or a condition is on other columns.
    """
    text, where = call["partitions"], call["where"]
    if text and where:
        refuse("partitions and where cannot be given together", call.node)
    if text:
        return parse_partitions(call, text)
    if not where:
        return ()
    predicate = parse_predicate(where)
    fields = table.schema.partition_fields
    other_columns = columns_of(predicate) - {field.name for field in fields}
    if other_columns:
        keys = ", ".join(table.schema.partition_keys) or "nothing"
        refuse(
            "where takes partition columns only",
            call.node,
            hint=f"the table is partitioned by {keys}",
            name=sorted(other_columns)[0],
        )
    types = [field.type for field in fields]
    rows = [decode_row(entry.partition, types) for entry in live_partitions(table)]
    columns = [
        from_row_values([row[place] for row in rows], field.type)
        for place, field in enumerate(fields)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    return tuple(batch.filter(mask(predicate, batch)).to_pylist()) or None
