# SPDX-License-Identifier: Apache-2.0
"""What commands are built from: click's groups, commands and options, as Lakeward uses them.

A group imports the module of a command only when that command is called or its own help is asked
for; its list of commands needs no import. A command is a function of its `Arguments` that returns
the exit code. Whatever it raises becomes a message, a hint and an exit code here (`report`).
"""

import dataclasses
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

import click

from ingest.errors import kind_of
from storage.errors import LakewardError

__all__ = [
    "Arguments",
    "Command",
    "Group",
    "Lazy",
    "Value",
    "choose_one",
    "combine",
    "command",
    "flag",
    "group",
    "option",
    "positional",
    "refuse",
]

_LOG = logging.getLogger(__name__)

Arguments = SimpleNamespace
"""What a command was called with: one attribute for each option and argument."""

Run = Callable[[Arguments], int]
Decorator = Callable[[Any], Any]


class Value(click.ParamType[Any]):
    """An option's value by a function of its text; a `ValueError` of it is a usage error.

    Args:
        parse: gives the value.
        name: of the kind of value.
    """

    def __init__(self, parse: Callable[[str], Any], name: str = "value") -> None:
        self._parse = parse
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click; a default is a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Option(click.Option):
    def __init__(self, *args: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def option(*names: str, **attributes: Any) -> Decorator:
    """An option; `section` is the heading that help lists it under.

    A callable `type` that is no type of click's parses the text.
    """
    return click.option(*names, cls=_Option, **_typed(attributes))


def flag(name: str, text: str, **attributes: Any) -> Decorator:
    """An option without a value."""
    return option(name, is_flag=True, help=text, **attributes)


def positional(name: str, **attributes: Any) -> Decorator:
    """An argument without a name; a `type` as of `option`."""
    return click.argument(name, **_typed(attributes))


def _typed(attributes: dict[str, Any]) -> dict[str, Any]:
    parse = attributes.get("type")
    if callable(parse) and not isinstance(parse, type | click.ParamType):
        attributes["type"] = Value(parse)
    return attributes


def combine(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which help lists them."""

    def decorate(function: Any) -> Any:
        for each in reversed(decorators):
            function = each(function)
        return function

    return decorate


def refuse(message: str) -> NoReturn:
    """End the command as wrongly used."""
    raise click.UsageError(message, click.get_current_context())


def choose_one(arguments: Arguments, *names: str, required: bool = False) -> None:
    """Refuse more than one of these options, and none where one is `required`."""
    values = {name: getattr(arguments, name) for name in names}
    given = [
        name
        for name, value in values.items()
        if value is not None and value is not False and value != ()
    ]
    flags = ["--" + name.replace("_", "-") for name in names]
    if len(given) > 1:
        refuse(f"give one of {', '.join(flags)}, not several")
    if required and not given:
        refuse(f"give one of {', '.join(flags)}")


class _Page:
    """Help whose text and examples stand as they are written."""

    def __init__(self, *args: Any, examples: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        if text := (getattr(self, "help", None) or ""):
            formatter.write(f"\n{text.strip()}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click."""
        if self.examples:
            formatter.write(f"\n{self.examples.strip()}\n")


class Command(_Page, click.Command):
    """One command; `examples` are printed below the options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click; options by their sections."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                heading = getattr(parameter, "section", "Options")
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> int:
        """Call the command; the exit code."""
        run: Any = self.callback
        try:
            return int(run(Arguments(**ctx.params)))
        except BrokenPipeError:  # `| head` closed the pipe: not an error, nothing more to write
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (LakewardError, OSError) as error:
            _LOG.debug("the command failed", exc_info=error)
            return report(error, as_json=bool(ctx.params.get("json")))


@dataclasses.dataclass(frozen=True, slots=True)
class Lazy:
    """A command that is not imported yet.

    Attributes:
        where: `module:name` of the command.
        about: one line for the list of commands.
        section: heading of the list.
    """

    where: str
    about: str
    section: str = "Commands"

    def load(self) -> click.Command:
        """Import it."""
        module, _, name = self.where.partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found


class Group(_Page, click.Group):
    """Commands by name; `lazy` ones are imported when they are called."""

    command_class = Command

    def __init__(
        self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._lazy = dict(lazy or {})

    def command(self, *args: Any, **attributes: Any) -> Any:
        """See click; options as of `command`."""
        return super().command(*args, **attributes)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click; in the order in which they were added."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        lazy = self._lazy.get(cmd_name)
        return super().get_command(ctx, cmd_name) if lazy is None else lazy.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click; names that are near the wrong one are those of lazy commands, too."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=names, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click; nothing is imported for it."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, each in self.commands.items():
            about = each.short_help or ""
            sections.setdefault("Commands", []).append((name, about))
        for name, lazy in self._lazy.items():
            sections.setdefault(lazy.section, []).append((name, lazy.about))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)


def command(
    name: str, text: str, *parameters: Decorator, examples: str = "", into: Group | None = None
) -> Callable[[Run], Command]:
    """Make a function a command.

    Args:
        name: what it is called by.
        text: its help; the first line is shown in the list of a group that it is added to.
        parameters: options and arguments, in the order of the help.
        examples: command lines and more, printed below the options.
        into: the group that it belongs to, unless that names it as `Lazy`.
    """

    def decorate(run: Run) -> Command:
        about = text.strip().partition("\n")[0].rstrip(".")
        make = click.command(name, cls=Command, help=text, short_help=about, examples=examples)
        made: Command = make(combine(*parameters)(run))
        if into is not None:
            into.add_command(made)
        return made

    return decorate


def group(
    name: str,
    text: str,
    *,
    examples: str = "",
    lazy: Mapping[str, Lazy] | None = None,
    into: Group | None = None,
) -> Group:
    """A group of commands. Arguments as of `command`."""
    about = text.strip().partition("\n")[0].rstrip(".")
    made = Group(name, help=text, short_help=about, examples=examples, lazy=lazy)
    if into is not None:
        into.add_command(made)
    return made


def report(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong on standard error, and what to do; the exit code."""
    from ingest.config.locations import mistakes_of

    kind = kind_of(error)
    if isinstance(error, LakewardError):
        mistakes = [(_sentence(each), each.hint) for each in mistakes_of(error)]
    else:
        mistakes = [(f"{type(error).__name__}: {error}", kind.action)]
    if as_json:
        document: dict[str, Any] = {"error": type(error).__name__}
        document |= {"message": mistakes[0][0], "hint": mistakes[0][1]}
        if len(mistakes) > 1:
            document["mistakes"] = [{"message": text, "hint": hint} for text, hint in mistakes]
        print(json.dumps(document), file=sys.stderr)
        return int(kind.exit_code)
    for message, hint in mistakes:
        print(f"lakeward: {message}", file=sys.stderr)
        if hint:
            print(f"  hint: {hint}", file=sys.stderr)
    return int(kind.exit_code)


def _sentence(error: LakewardError) -> str:
    context = dict(error.context)
    place = context.pop("at", "")  # of a configuration file, as compilers write it
    facts = ", ".join(f"{key} = {value}" for key, value in context.items())
    text = error.message + (f" ({facts})" if facts else "")
    text += f": {error.detail}" if error.detail else ""
    return f"{place}: {text}" if place else text
