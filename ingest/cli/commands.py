# SPDX-License-Identifier: Apache-2.0
"""Building blocks of commands: Lakeward's variants of click's groups, commands and options.

A group imports the module of a command only when that command or its help is called; its list of
commands needs no import. A command is a function of its `Arguments` that returns the exit code.
`report` turns exceptions into a message, a hint and an exit code.
"""

import importlib
import inspect
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

_LOG = logging.getLogger(__name__)

Arguments = SimpleNamespace
"""Values of a command line: one attribute per option and argument."""

Run = Callable[[Arguments], int]
Decorator = Callable[[Any], Any]


class Value(click.ParamType[Any]):
    """Type of an option: a parser whose `ValueError` is a usage error."""

    def __init__(self, parse: Callable[[str], Any], metavar: str) -> None:
        self._parse = parse
        self.name = metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """See click."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click; a default is already a value."""
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
    """Declare an option with a value.

    Args:
        names: such as `-c --config`; a name without dashes is that of the attribute.
        kind: type of the value; a string accepts any text and is the metavar.
        text: help text.
        more: passed to click; `section` is the heading of the option in help.
    """
    kinds = {"metavar": kind} if isinstance(kind, str) else {"type": kind}
    return click.option(*names.split(), cls=_Option, help=text, **kinds, **more)


def flag(name: str, text: str, **more: Any) -> Decorator:
    """Declare an option without a value; arguments as for `option`."""
    return click.option(name, cls=_Option, is_flag=True, help=text, **more)


def positional(name: str, **more: Any) -> Decorator:
    """Declare a positional argument."""
    return click.argument(name, **more)


def combine(*decorators: Decorator) -> Decorator:
    """Combine declarations into one decorator, in the order of help."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def refuse(message: str) -> NoReturn:
    """End the command with a usage error."""
    raise click.UsageError(message, click.get_current_context())


def choose_one(arguments: Arguments, *names: str, required: bool = False) -> None:
    """Refuse more than one of these options, and none if one is `required`."""
    values = {name: getattr(arguments, name) for name in names}
    chosen_names = [
        name
        for name, value in values.items()
        if value is not None and value is not False and value != ()
    ]
    flags = ["--" + name.replace("_", "-") for name in names]
    if len(chosen_names) > 1:
        refuse(f"specify only one of {', '.join(flags)}")
    if required and not chosen_names:
        refuse(f"specify one of {', '.join(flags)}")


class _Page:
    """Help with text and examples that are not reformatted."""

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
    """One command; `examples` are printed after the options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click; options by section."""
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
        """Call the command; return the exit code."""
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
    """Commands of a module that is imported on demand, under one heading of a group's help.

    Args:
        section: heading.
        module: module with one attribute per command, named like it, with `_` for `-`.
        about: one line of help per command.
    """

    def __init__(self, section: str, module: str, about: Mapping[str, str]) -> None:
        self.section = section
        self.about = about
        self._module = module

    def load(self, name: str) -> click.Command:
        """Import one command."""
        module = importlib.import_module(self._module)
        loaded: click.Command = getattr(module, name.replace("-", "_"))
        return loaded


class Group(_Page, click.Group):
    """A group of commands; `lazy` ones are imported when they are called."""

    def __init__(self, *args: Any, lazy: Sequence[Lazy] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._sections = lazy
        self._lazy = {name: commands for commands in lazy for name in commands.about}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See click; in the order of declaration."""
        return [*self.commands, *self._lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See click."""
        lazy = self._lazy.get(cmd_name)
        return super().get_command(ctx, cmd_name) if lazy is None else lazy.load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click; suggestions for a misspelt name include lazy commands."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=names, ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click; imports nothing."""
        for heading, rows in self._headings().items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """See click; imports nothing."""
        items = [
            CompletionItem(name, help=about)
            for rows in self._headings().values()
            for name, about in rows
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _headings(self) -> dict[str, list[tuple[str, str]]]:
        """Return names of commands with one line each, by heading."""
        added = [(name, command.short_help or "") for name, command in self.commands.items()]
        headings = {"Commands": added}
        for lazy in self._sections:
            headings.setdefault(lazy.section, []).extend(lazy.about.items())
        return headings


def command(
    name: str,
    *parameters: Decorator,
    text: str = "",
    examples: str = "",
    into: Group | None = None,
) -> Callable[[Run], Command]:
    """Make a function a command, whose help text is its docstring.

    Args:
        name: name of the command.
        parameters: options and arguments, in the order of help.
        text: help text instead of the docstring; its first line is shown in the help of the group.
        examples: command lines, printed after the options; default: those of the group with it.
        into: group of the command, unless the group declares it as `Lazy`.
    """
    if into is not None and not examples:
        lines = [line for line in into.examples.splitlines() if f" {into.name} {name} " in line]
        examples = "\n".join(["Examples:", *lines]) if lines else ""

    def decorate(run: Run) -> Command:
        help_text = (text or inspect.getdoc(run) or "").strip()
        about = help_text.partition("\n")[0].rstrip(".")
        make = click.command(name, cls=Command, help=help_text, short_help=about, examples=examples)
        created: Command = make(combine(*parameters)(run))
        if into is not None:
            into.add_command(created)
        return created

    return decorate


def group(name: str, text: str, *, examples: str = "", lazy: Sequence[Lazy] = ()) -> Group:
    """Create a group of commands; arguments as for `command`."""
    about = text.strip().partition("\n")[0].rstrip(".")
    return Group(name, help=text, short_help=about, examples=examples, lazy=lazy)


def report(error: BaseException, *, as_json: bool) -> int:
    """Print an error and its hint to standard error; return the exit code."""
    from ingest.config.settings_sources import mistakes_of

    kind = kind_of(error)
    if isinstance(error, LakewardError):
        mistakes = [(_sentence(mistake), mistake.hint) for mistake in mistakes_of(error)]
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
    location = context.pop("at", "")  # file:line:column of a configuration file
    facts = ", ".join(f"{key} = {value}" for key, value in context.items())
    text = error.message + (f" ({facts})" if facts else "")
    text += f": {error.detail}" if error.detail else ""
    return f"{location}: {text}" if location else text
