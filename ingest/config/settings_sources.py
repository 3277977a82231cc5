# SPDX-License-Identifier: Apache-2.0
"""From YAML files, environment variables and flags to one flat map of dotted keys.

Owns interpolation (`${NAME}`, `${NAME:-default}`, `${file:/path}`, `$${` for a literal `${`),
flattening, and the precedence flag > environment > file. It knows which keys hold maps, not what
any value means. What came out of a file reference stays marked, so that no message shows it.
"""

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ingest.config.locations import Places
from storage.errors import InvalidOptionError, NotFoundError

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Given",
    "Interpolated",
    "flatten",
    "interpolate",
    "read_document",
    "shown",
]

ENVIRONMENT_PREFIX = "LAKEWARD__"

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")


class Interpolated(str):
    """A text that references were replaced in.

    Attributes:
        template: the text before, fit for messages.
        secret: whether a `${file:}` took part.
    """

    __slots__ = ("secret", "template")

    template: str
    secret: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """A raw value and where it came from (`file`, `environment`, `flag`)."""

    value: Any
    origin: str


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice: the second would silently win."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in result:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key `{key}` is given twice", key_node.start_mark
            )
        result[key] = loader.construct_object(value_node, deep=True)
    return result


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def read_document(path: Path | str, places: Places | None = None) -> dict[str, Any]:
    """The map in a YAML file; `-` is standard input.

    Args:
        path: of the file.
        places: takes in where its keys are.

    Raises:
        NotFoundError: there is no such file.
        InvalidOptionError: it is not YAML or not a map; names line and column.
    """
    name = str(path)
    try:
        text = sys.stdin.read() if name == "-" else Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(
            "there is no such configuration file", hint="name it with -c", path=name
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
        twice = "given twice" in str(getattr(error, "problem", ""))
        raise InvalidOptionError(
            "the configuration is not valid YAML",
            detail=_yaml_problem(error),
            hint="remove one of them, or put both together"
            if twice
            else "look at the quotes, brackets and indentation before that place",
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
    """Replace references in every text of a value.

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
        if reference.startswith("source."):  # of an event, filled in by `routing`
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
            hint="check the path, and who may read the file",
            key=where,
        ) from error


def shown(value: object) -> str:
    """A raw value as messages may show it: references stay references."""
    return value.template if isinstance(value, Interpolated) else str(value)


def flatten(
    document: Mapping[str, Any], maps: Sequence[str], origin: str, prefix: str = ""
) -> dict[str, Given]:
    """Nested sections as dotted keys; `a: {b.c: 1}` and `a.b.c: 1` mean the same.

    Args:
        document: sections.
        maps: keys whose value is a map that is kept as it is.
        origin: where the document came from.
        prefix: key of the document inside its parent.

    Raises:
        InvalidOptionError: one key is given in two spellings, or a section is no map.
    """
    flat: dict[str, Given] = {}
    for name, value in document.items():
        key = _join(prefix, str(name))
        if isinstance(value, Mapping) and key not in maps and not _inside(key, maps):
            inner = flatten(value, maps, origin, key)
        elif value is None and key not in maps:
            inner = {}
        else:
            inner = {key: Given(value, origin)}
        for each, given in inner.items():
            if each in flat:
                raise InvalidOptionError("a setting is given twice", key=each)
            flat[each] = given
    return flat


def _inside(key: str, maps: Sequence[str]) -> bool:
    return any(key.startswith(each + ".") for each in maps)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
