# SPDX-License-Identifier: Apache-2.0
"""What commands are built from: click's groups, commands and options, as Lakeward uses them.

A group imports the module of a command only when that command is called or its own help is asked
for; its list of commands needs no import. A command is a function of its `Arguments` that returns
the exit code. Whatever it raises becomes a message, a hint and an exit code here (`report`).
"""

import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

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
        metavar: stands for the value in help.
    """

    def __init__(self, parse: Callable[[str], Any], metavar: str) -> None:
        self._parse = parse
        self.name = metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """See click."""
        return self.name

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


def option(names: str, kind: str | click.ParamType[Any], text: str, **more: Any) -> Decorator:
    """An option with a value.

    Args:
        names: such as `-c --config`; a name without dashes is that of the attribute.
        kind: of value; a text stands for any text, and for itself in help.
        text: its help.
        more: for click; and `section`, the heading that help lists it under.
    """
    kinds = {"metavar": kind} if isinstance(kind, str) else {"type": kind}
    return click.option(*names.split(), cls=_Option, help=text, **kinds, **more)


def flag(name: str, text: str, **more: Any) -> Decorator:
    """An option without a value; arguments as of `option`."""
    return click.option(name, cls=_Option, is_flag=True, help=text, **more)


def positional(name: str, **more: Any) -> Decorator:
    """An argument that is given by its position."""
    return click.argument(name, **more)


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
            code = int(run(Arguments(**ctx.params)))
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` closed the pipe: not an error, nothing more to write
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (LakewardError, OSError) as error:
            _LOG.debug("the command failed", exc_info=error)
            return report(error, as_json=bool(ctx.params.get("json")))
        return code


class Lazy:
    """Commands of a module that is not imported yet, under one heading of a group's list.

    Args:
        section: the heading.
        module: has each command in an attribute of its name, with `_` for `-`.
        about: one line for each name.
    """

    def __init__(self, section: str, module: str, about: Mapping[str, str]) -> None:
        self.section = section
        self.about = about
        self._module = module

    def load(self, name: str) -> click.Command:
        """Import one."""
        module = importlib.import_module(self._module)
        found: click.Command = getattr(module, name.replace("-", "_"))
        return found


class Group(_Page, click.Group):
    """Commands by name; `lazy` ones are imported when they are called."""

    def __init__(self, *args: Any, lazy: Sequence[Lazy] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._sections = lazy
        self._lazy = {name: each for each in lazy for name in each.about}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click; in the order in which they were added."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        lazy = self._lazy.get(cmd_name)
        return super().get_command(ctx, cmd_name) if lazy is None else lazy.load(cmd_name)

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
        for heading, rows in self._headings().items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click; nothing is imported for it."""
        found = [
            CompletionItem(name, help=about)
            for rows in self._headings().values()
            for name, about in rows
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def _headings(self) -> dict[str, list[tuple[str, str]]]:
        """Names of commands with one line each, by heading."""
        added = [(name, each.short_help or "") for name, each in self.commands.items()]
        headings = {"Commands": added}
        for lazy in self._sections:
            headings.setdefault(lazy.section, []).extend(lazy.about.items())
        return headings


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


def group(name: str, text: str, *, examples: str = "", lazy: Sequence[Lazy] = ()) -> Group:
    """A group of commands. Arguments as of `command`."""
    about = text.strip().partition("\n")[0].rstrip(".")
    return Group(name, help=text, short_help=about, examples=examples, lazy=lazy)


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
