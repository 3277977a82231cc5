# SPDX-License-Identifier: Apache-2.0
"""Read YAML files, environment variables and flags into one flat map of dotted keys.

Implements interpolation (`${NAME}`, `${NAME:-default}`, `${file:/path}`, `$${` for a literal `${`)
and flattening. It knows which keys hold maps, but not the meaning of values. Values of file
references are marked, so that no message shows them.
"""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from storage.errors import InvalidOptionError, InvalidRequestError, LakewardError, NotFoundError

# Positions of keys in configuration files, and several mistakes as one error.
#
# Lines and columns are those of PyYAML's nodes, counted from one.


_QUOTED = re.compile(r"`([a-z][\w.\[\]-]*)")
_LAST = re.compile(r"(\.[^.\[\]]+|\[\d+\])$")


class SeveralMistakesError(InvalidOptionError):
    """Several mistakes: `mistakes_of(error)` returns them, its detail has their texts."""


class KeyPositions:
    """Positions of keys in several files; later files override earlier ones."""

    def __init__(self) -> None:
        self._positions: dict[str, str] = {}
        self._items: dict[str, int] = {}
        self._elsewhere: tuple[str, ...] = ()

    def read(self, name: str, text: str) -> None:
        """Record the positions of a file; ignored if it is not YAML."""
        try:
            root = yaml.compose(text, yaml.SafeLoader)
        except yaml.YAMLError:
            return
        before = dict(self._items)
        self._walk(root, "", name, before)

    def _walk(self, node: yaml.Node | None, key: str, name: str, before: Mapping[str, int]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key_node, value in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    continue
                inner = f"{key}.{key_node.value}" if key else key_node.value
                self._note(inner, key_node, name)
                self._walk(value, inner, name, before)
        elif isinstance(node, yaml.SequenceNode):
            # the lists of rules of several files are one list
            first = before.get(key, 0) if key in ("tables", "route") else 0
            for number, item in enumerate(node.value, first):
                self._note(f"{key}[{number}]", item, name)
                self._walk(item, f"{key}[{number}]", name, before)
            self._items[key] = first + len(node.value)

    def _note(self, key: str, node: yaml.Node, name: str) -> None:
        mark = node.start_mark
        self._positions[key] = f"{name}:{mark.line + 1}:{mark.column + 1}"

    def forget(self, keys: Iterable[str]) -> None:
        """Drop the positions of keys whose values do not come from a file, and of inner keys."""
        self._elsewhere = (*self._elsewhere, *keys)

    def of(self, key: str) -> str:
        """Return `file:line:column` of a key or its nearest parent; "" if no file has it."""
        if any(key == prefix or key.startswith(f"{prefix}.") for prefix in self._elsewhere):
            return ""
        while key:
            if key in self._positions:
                return self._positions[key]
            parent = _LAST.sub("", key)
            key = "" if parent == key else parent
        return ""

    def of_quoted(self, text: str) -> str:
        """Return the position of the first key in backticks in a text; "" if there is none."""
        keys = (match.group(1) for match in _QUOTED.finditer(text))
        return next((self.of(key) for key in keys if key in self._positions), "")

    def locate(self, error: LakewardError) -> None:
        """Add the positions of mistakes to their context, as `at`."""
        for mistake in mistakes_of(error):
            if "at" in mistake.context:
                continue
            key = mistake.context.get("key")
            text = f"{mistake.message} {mistake.hint}"
            position = self.of(str(key)) if key else self.of_quoted(text)
            if position:
                mistake.context = {"at": position, **mistake.context}
        if isinstance(error, SeveralMistakesError):
            error.detail = _all_of(mistakes_of(error))


@contextlib.contextmanager
def add_key(key: str, facts: Mapping[str, str] | None = None, below: str = "") -> Iterator[None]:
    """Add the key of the setting to errors of the body.

    Args:
        key: key for errors without one.
        facts: key by name of a context value of the error, which replaces `{}`.
        below: prefix of keys that errors have.
    """
    try:
        yield
    except InvalidRequestError as error:
        context_key = error.context.get("key")
        if context_key is None:
            names = [name for name in facts or {} if name in error.context]
            if names:
                key = (facts or {})[names[0]].format(error.context[names[0]])
            error.context = {"key": key, **error.context}
        elif below:
            error.context = {**error.context, "key": f"{below}.{context_key}"}
        raise


class Mistakes:
    """Collects mistakes, to report all of them at once."""

    def __init__(self) -> None:
        self.errors: list[LakewardError] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Collect an error of the body and continue after it."""
        try:
            yield
        except LakewardError as error:
            self.errors += mistakes_of(error)

    def check(self) -> None:
        """Raise what was collected.

        Raises:
            LakewardError: the mistake; `SeveralMistakesError` if there are several.
        """
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise _several(self.errors)


def _several(mistakes: Sequence[LakewardError]) -> SeveralMistakesError:
    error = SeveralMistakesError(
        f"{len(mistakes)} mistakes in the configuration",
        detail=_all_of(mistakes),
    )
    error.__cause__ = ExceptionGroup("mistakes", list(mistakes))
    return error


def _all_of(mistakes: Iterable[LakewardError]) -> str:
    return "; ".join(map(str, mistakes))


def mistakes_of(error: LakewardError) -> list[LakewardError]:
    """Return the mistakes of an error: those that it contains, or itself."""
    group = error.__cause__
    if isinstance(error, SeveralMistakesError) and isinstance(group, ExceptionGroup):
        return [mistake for mistake in group.exceptions if isinstance(mistake, LakewardError)]
    return [error]


ENVIRONMENT_PREFIX = "LAKEWARD__"

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")


class Interpolated(str):
    """A string after interpolation.

    Attributes:
        template: the string before interpolation, for messages.
        secret: whether it contains the content of a `${file:}`.
    """

    __slots__ = ("secret", "template")

    template: str
    secret: bool


@dataclasses.dataclass(frozen=True, slots=True)
class RawValue:
    """A raw value and its origin (`file`, `environment`, `flag`)."""

    value: Any
    origin: str


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in result:
            raise yaml.constructor.ConstructorError(
                None, None, f"duplicate key `{key}`", key_node.start_mark
            )
        result[key] = loader.construct_object(value_node, deep=True)
    return result


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def read_document(path: Path | str, places: KeyPositions | None = None) -> dict[str, Any]:
    """Read the map in a YAML file; `-` is standard input.

    Args:
        places: records the positions of its keys.

    Raises:
        NotFoundError: the file does not exist.
        InvalidOptionError: it is not YAML or not a map; names line and column.
    """
    name = str(path)
    try:
        text = sys.stdin.read() if name == "-" else Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            "the configuration file does not exist", hint="check the path of -c", path=name
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(
            "the configuration file cannot be read", detail=str(error), path=name
        ) from error
    if places is not None:
        places.read("<stdin>" if name == "-" else name, text)
    try:
        document = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = {"path": name}
        if mark is not None:
            where = {"at": f"{name}:{mark.line + 1}:{mark.column + 1}"}
        duplicate = "duplicate key" in str(getattr(error, "problem", ""))
        raise InvalidOptionError(
            "the configuration is not valid YAML",
            detail=_yaml_problem(error),
            hint="remove one of them, or merge them"
            if duplicate
            else "check quotes, brackets and indentation before it; quote `${…}` in `{}`",
            **where,
        ) from error
    if not isinstance(document, dict):
        raise InvalidOptionError(
            "the configuration must be a map of sections",
            hint="start with `source:`, `sink:` and `pipeline:`",
            path=name,
        )
    return document


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", maxsplit=1)[0]
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def interpolate(value: object, environ: Mapping[str, str], where: str = "") -> object:
    """Replace references in all strings of a value.

    Raises:
        InvalidOptionError: a variable is not set or a file cannot be read; names the key.
    """
    if isinstance(value, str):
        return _interpolate_text(value, environ, where)
    if isinstance(value, Mapping):
        return {k: interpolate(v, environ, _join(where, str(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [interpolate(v, environ, f"{where}[{i}]") for i, v in enumerate(value)]
    return value


def _interpolate_text(text: str, environ: Mapping[str, str], where: str) -> str:
    if "${" not in text:
        return text
    secret = False

    def replace(match: re.Match[str]) -> str:
        nonlocal secret
        reference = match.group(1)
        if reference is None:
            return "${"
        if reference.startswith("source."):  # reference to an event, resolved by `routing`
            return match.group(0)
        if reference.startswith("file:"):
            secret = True
            return _file_text(reference[len("file:") :], where)
        return _variable(reference, environ, where)

    result = Interpolated(_REFERENCE.sub(replace, text))
    result.template = text
    result.secret = secret
    return result


def _variable(reference: str, environ: Mapping[str, str], where: str) -> str:
    name, marker, default = reference.partition(":-")
    value = environ.get(name)
    if marker:
        return value or default
    if value is None:
        raise InvalidOptionError(
            "an environment variable is not set",
            hint=f"export {name}, or write ${{{name}:-default}}",
            key=where,
            variable=name,
        )
    return value


def _file_text(path: str, where: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptionError(
            "a referenced file cannot be read",
            detail=str(error),
            hint="check the path and its permissions",
            key=where,
        ) from error


def read_catalog_file(path: str) -> dict[str, str]:
    """Read the options of a catalog: a YAML map of Paimon's names, `warehouse` among them.

    Nested maps are dotted keys, `${NAME}` and `${file:}` are replaced.

    Raises:
        InvalidOptionError: it is not a map of strings, or a reference cannot be resolved.
        NotFoundError: there is no such file.
    """
    options: dict[str, str] = {}
    _catalog_options(interpolate(read_document(path), os.environ), "", options)
    return options


def _catalog_options(value: object, key: str, options: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _catalog_options(inner, _join(key, str(name)), options)
    elif isinstance(value, bool):
        options[key] = str(value).lower()
    elif isinstance(value, str | int | float):
        options[key] = str(value)
    else:
        raise InvalidOptionError("a catalog option is not a string", key=key, value=value)


def display_text(value: object) -> str:
    """Format a raw value for messages: references stay references."""
    return value.template if isinstance(value, Interpolated) else str(value)


def flatten(
    document: Mapping[str, Any], maps: Sequence[str], origin: str, prefix: str = ""
) -> dict[str, RawValue]:
    """Flatten nested sections to dotted keys; `a: {b.c: 1}` and `a.b.c: 1` are equal.

    Args:
        document: sections.
        maps: keys whose values are maps that are not flattened.
        origin: origin of the document.
        prefix: key of the document in its parent.

    Raises:
        InvalidOptionError: one key is given in two spellings.
    """
    flat: dict[str, RawValue] = {}
    for name, value in document.items():
        key = _join(prefix, str(name))
        if isinstance(value, Mapping) and key not in maps and not _inside(key, maps):
            inner = flatten(value, maps, origin, key)
        elif value is None and key not in maps:
            inner = {}
        else:
            inner = {key: RawValue(value, origin)}
        for inner_key, entry in inner.items():
            if inner_key in flat:
                raise InvalidOptionError("duplicate setting", key=inner_key)
            flat[inner_key] = entry
    return flat


def _inside(key: str, maps: Sequence[str]) -> bool:
    return any(key.startswith(name + ".") for name in maps)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
