# SPDX-License-Identifier: Apache-2.0
"""Positions of keys in configuration files, and several mistakes as one error.

Lines and columns are those of PyYAML's nodes, counted from one.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import yaml

from storage.errors import InvalidOptionError, InvalidRequestError, LakewardError

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
