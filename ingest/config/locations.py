# SPDX-License-Identifier: Apache-2.0
"""Where in its files a configuration says what, and several mistakes as one error.

Lines and columns are those of PyYAML's nodes, counted from one.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import yaml

from storage.errors import InvalidOptionError, InvalidRequestError, LakewardError

__all__ = ["Mistakes", "Places", "SeveralMistakesError", "mistakes_of", "named"]

_QUOTED = re.compile(r"`([a-z][\w.\[\]-]*)")
_LAST = re.compile(r"(\.[^.\[\]]+|\[\d+\])$")


class SeveralMistakesError(InvalidOptionError):
    """More than one mistake; all of them are in `mistakes_of(error)`, and as text in its detail."""


class Places:
    """Positions of keys, of several files; later ones win."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._items: dict[str, int] = {}
        self._elsewhere: tuple[str, ...] = ()

    def read(self, name: str, text: str) -> None:
        """Take in a file; one that is no YAML has no places."""
        try:
            root = yaml.compose(text, yaml.SafeLoader)
        except yaml.YAMLError:
            return
        before = dict(self._items)
        self._walk(root, "", name, before)

    def _walk(self, node: yaml.Node | None, key: str, name: str, before: Mapping[str, int]) -> None:
        if isinstance(node, yaml.MappingNode):
            for named, value in node.value:
                if not isinstance(named, yaml.ScalarNode):
                    continue
                inner = f"{key}.{named.value}" if key else named.value
                self._note(inner, named, name)
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
        self._found[key] = f"{name}:{mark.line + 1}:{mark.column + 1}"

    def forget(self, keys: Iterable[str]) -> None:
        """Keys whose values come from elsewhere, with everything below them."""
        self._elsewhere = (*self._elsewhere, *keys)

    def of(self, key: str) -> str:
        """`file:line:column` of a key, or of what it is in; "" when no file has it."""
        if any(key == each or key.startswith(f"{each}.") for each in self._elsewhere):
            return ""
        while key:
            if key in self._found:
                return self._found[key]
            shorter = _LAST.sub("", key)
            key = "" if shorter == key else shorter
        return ""

    def told(self, text: str) -> str:
        """The place of the first key that a text quotes in backticks; "" when there is none."""
        named = (match.group(1) for match in _QUOTED.finditer(text))
        return next((self.of(key) for key in named if key in self._found), "")

    def locate(self, error: LakewardError) -> None:
        """Give the mistakes of an error their places, as the context value `at`."""
        for each in mistakes_of(error):
            if "at" in each.context:
                continue
            key = each.context.get("key")
            place = self.of(str(key)) if key else self.told(f"{each.message} {each.hint}")
            if place:
                each.context = {"at": place, **each.context}
        if isinstance(error, SeveralMistakesError):
            error.detail = _all_of(mistakes_of(error))


@contextlib.contextmanager
def named(key: str, facts: Mapping[str, str] | None = None, below: str = "") -> Iterator[None]:
    """Give errors of the body the key of the setting that they are about.

    Args:
        key: of errors that name none.
        facts: keys for errors with a context value of such a name, which takes the place of `{}`.
        below: put before keys that errors name.
    """
    try:
        yield
    except InvalidRequestError as error:
        known = error.context.get("key")
        if known is None:
            about = [name for name in facts or {} if name in error.context]
            found = (facts or {})[about[0]].format(error.context[about[0]]) if about else key
            error.context = {"key": found, **error.context}
        elif below:
            error.context = {**error.context, "key": f"{below}.{known}"}
        raise


class Mistakes:
    """Collects what is wrong, to say all of it at once."""

    def __init__(self) -> None:
        self.found: list[LakewardError] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Take an error of the body; what follows goes on."""
        try:
            yield
        except LakewardError as error:
            self.found += mistakes_of(error)

    def check(self) -> None:
        """End here if something was wrong.

        Raises:
            LakewardError: the mistake; `SeveralMistakesError` when there are more.
        """
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise _several(self.found)


def _several(found: Sequence[LakewardError]) -> SeveralMistakesError:
    error = SeveralMistakesError(
        f"there are {len(found)} mistakes in the configuration",
        detail=_all_of(found),
    )
    error.__cause__ = ExceptionGroup("mistakes", list(found))
    return error


def _all_of(found: Iterable[LakewardError]) -> str:
    return "; ".join(str(each) for each in found)


def mistakes_of(error: LakewardError) -> list[LakewardError]:
    """The single mistakes of an error; itself if it is one."""
    group = error.__cause__
    if isinstance(error, SeveralMistakesError) and isinstance(group, ExceptionGroup):
        return [each for each in group.exceptions if isinstance(each, LakewardError)]
    return [error]
