# SPDX-License-Identifier: Apache-2.0
"""Maps columns of the source to columns of a table whose names differ.

The table's options store what its schema cannot express, so that every process and every replay
decodes in the same way (ADR 0011):

* `lakeward.former-names`  JSON, column to its earlier names in the source, newest first: an event
  written before a rename still finds the column;
* `lakeward.typed-columns`  JSON, column of the source to the further columns that hold its values
  of types that do not convert (`on.incompatible: new_column`), in order of creation;
* `lakeward.text-columns`  JSON, column to its type before it became STRING: values that are not
  text are written as the cast of that type writes them;
* `lakeward.dropped-columns`  JSON, column to the reason for which it was dropped: events written
  before the drop do not add it again;
* `lakeward.ddl-heard`  JSON, source table to the last statement that changed these names, as topic,
  partition and offset: no statement is applied twice.
"""

import dataclasses
import functools
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence

import orjson

from ingest.decode.events import OFFSET_COLUMN, UNAVAILABLE_COLUMN
from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.schema import check_column_name
from storage.format.types.type_text import parse_type, type_name
from storage.format.types.types import DataType

FORMER_OPTION = "lakeward.former-names"
TYPED_OPTION = "lakeward.typed-columns"
TEXT_OPTION = "lakeward.text-columns"
DROPPED_OPTION = "lakeward.dropped-columns"
HEARD_OPTION = "lakeward.ddl-heard"

Names = Mapping[str, tuple[str, ...]]


def folded(name: str) -> str:
    """Canonical form of names that differ only in letter case or in Unicode normal form."""
    text = name.casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of distinct names that differ only in letter case or normal form, in order."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(folded(name), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]


def spelt(name: str, columns: Iterable[str]) -> str:
    """The spelling of a name among the columns, if exactly one of them matches."""
    names = list(columns)
    if name in names:
        return name
    matches = [column for column in names if folded(column) == folded(name)]
    return matches[0] if len(matches) == 1 else name


def reserved_name(names: Iterable[str]) -> str:
    """Why columns with names of Lakeward's own cannot be written; "" = there are none."""
    conflicts = sorted({*names} & {OFFSET_COLUMN, UNAVAILABLE_COLUMN})
    if not conflicts:
        return ""
    return (
        f"column {conflicts[0]} has a name that Lakeward needs for itself: leave it out with "
        "`columns.exclude` in a rule of `tables`, or have the connector rename it"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of a table's columns, from its options; see the module for the attributes.

    Attributes:
        exact: whether names are case-sensitive (`source.names.case`).
    """

    former: Names = dataclasses.field(default_factory=dict)
    typed: Names = dataclasses.field(default_factory=dict)
    texts: Mapping[str, DataType] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    applied_ddl: Mapping[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    exact: bool = False

    @staticmethod
    def of(options: Mapping[str, str], *, exact: bool = False) -> "ColumnNames":
        """Parse a table's options; `exact` is the pipeline's.

        Raises:
            CorruptDataError: an option is malformed.
        """
        keys = (FORMER_OPTION, TYPED_OPTION, TEXT_OPTION, DROPPED_OPTION, HEARD_OPTION)
        names = _parsed(tuple(options.get(key, "") for key in keys))
        return dataclasses.replace(names, exact=True) if exact else names

    @property
    def further(self) -> frozenset[str]:
        """Columns that hold a further type of another column."""
        return frozenset(name for names in self.typed.values() for name in names)

    def slots(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> tuple[str, ...]:
        """The table's candidate columns for a column of the source; the first that fits is used.

        Args:
            member: name of the source's column.
            columns: of the table.
            present: names of all columns of the event.
        """
        first = self._first(member, columns, present)
        further = self.typed.get(first or member, ())
        head = () if first is None else (first,)
        return head + tuple(name for name in further if name in columns)

    def _first(self, member: str, columns: Collection[str], present: Collection[str]) -> str | None:
        if self.former and (column := self._by_former_name(columns, present).get(member)):
            return column
        if member in columns:
            return None if member in self.further else member
        return None if self.typed.get(member) else self._same_but_case(member, columns, present)

    def _by_former_name(
        self, columns: Collection[str], present: Collection[str]
    ) -> Mapping[str, str]:
        """Members of an event with former names of columns, and those columns.

        A member may also be the current name of another column: in an event so old that the other
        column had a former name too.
        """
        mapping: dict[str, str] = {}
        changed = True
        while changed:
            changed = False
            for column, earlier in self.former.items():
                is_current = column in present and column not in mapping
                if is_current or column not in columns or column in mapping.values():
                    continue
                keys = {folded(name) for name in earlier}  # statements ignore case
                member = next((n for n in present if folded(n) in keys and n not in mapping), None)
                if member is not None:
                    mapping[member] = column
                    changed = True
        return mapping

    def _same_but_case(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> str | None:
        """The column with another spelling of a member's name: most databases ignore case.

        None if an event or the table has both spellings: they are two columns.
        """
        if self.exact:
            return None
        name = folded(member)
        matches = [column for column in columns if folded(column) == name]
        if len(matches) != 1 or matches[0] in self.further:
            return None
        return matches[0] if sum(folded(spelling) == name for spelling in present) == 1 else None

    def current_name(self, member: str, columns: Collection[str]) -> str:
        """Current name of a column that the table never had, if it was renamed before."""
        for column, earlier in self.former.items():
            if member in earlier and column not in columns:
                return column
        return member

    def options(self) -> dict[str, str]:
        """As table options; "" for empty ones."""
        texts = {name: type_name(type_) for name, type_ in self.texts.items()}
        return {
            FORMER_OPTION: _text(self.former),
            TYPED_OPTION: _text(self.typed),
            TEXT_OPTION: _text(texts),
            DROPPED_OPTION: _text(self.dropped),
            HEARD_OPTION: _text(self.applied_ddl),
        }

    def renamed(self, old: str, new: str) -> "ColumnNames":
        """After a rename of a column of the table."""
        earlier = (old, *(name for name in self.former.get(old, ()) if name != new))
        former = {name: names for name, names in self.former.items() if name != old}
        typed = {new if name == old else name: names for name, names in self.typed.items()}
        texts = {new if name == old else name: type_ for name, type_ in self.texts.items()}
        dropped = {name: why for name, why in self.dropped.items() if name != new}
        return ColumnNames(
            {**former, new: earlier}, typed, texts, dropped, self.applied_ddl, self.exact
        )

    def with_former(self, column: str, earlier: str) -> "ColumnNames":
        """After a column was renamed elsewhere."""
        previous = tuple(name for name in self.former.get(column, ()) if name != earlier)
        return dataclasses.replace(self, former={**self.former, column: (earlier, *previous)})

    def with_applied(self, source: str, place: tuple[str, int, int]) -> "ColumnNames":
        """After a statement was applied."""
        return dataclasses.replace(self, applied_ddl={**self.applied_ddl, source: place})

    def has_applied(self, source: str, place: tuple[str, int, int]) -> bool:
        """Whether a statement was already applied."""
        last_mark = self.applied_ddl.get(source)
        return last_mark is not None and last_mark[:2] == place[:2] and last_mark[2] >= place[2]

    def without(self, column: str, reason: str) -> "ColumnNames":
        """After a column and its further types were dropped."""
        former = {name: names for name, names in self.former.items() if name != column}
        typed = {name: names for name, names in self.typed.items() if name != column}
        texts = {name: type_ for name, type_ in self.texts.items() if name != column}
        removed = dict.fromkeys((column, *self.former.get(column, ())), reason)
        dropped = {**self.dropped, **removed}
        return ColumnNames(former, typed, texts, dropped, self.applied_ddl, self.exact)

    def without_former(self, column: str) -> "ColumnNames":
        """After the source dropped a column that the table keeps: its former names are free."""
        former = {name: names for name, names in self.former.items() if name != column}
        return dataclasses.replace(self, former=former)

    def with_column(self, column: str) -> "ColumnNames":
        """After a column of that name was added: former uses of the name are removed."""
        former = {
            name: tuple(alias for alias in names if alias != column)
            for name, names in self.former.items()
        }
        dropped = {name: why for name, why in self.dropped.items() if name != column}
        return dataclasses.replace(self, former=former, dropped=dropped)

    def with_further(self, member: str, column: str) -> "ColumnNames":
        """After a column was added for a further type of another."""
        typed = {**self.typed, member: (*self.typed.get(member, ()), column)}
        return dataclasses.replace(self, typed=typed)

    def with_text(self, column: str, type_: DataType) -> "ColumnNames":
        """After a column became STRING; its first type is kept."""
        return dataclasses.replace(self, texts={column: type_, **self.texts})


NO_NAMES = ColumnNames()
"""Of a table without such options."""


def why_no_column(name: str) -> str:
    """Why a column cannot have a name; "" = it can."""
    if name in (OFFSET_COLUMN, UNAVAILABLE_COLUMN):
        return reserved_name([name])
    try:
        check_column_name(name)
    except InvalidRequestError as error:
        return error.message
    return ""


def free_name(name: str, used_names: Iterable[str]) -> str:
    """`<name>_<n>` with the smallest n from 1 that is unused, ignoring case."""
    folded_names = {folded(column) for column in used_names}
    number = 1
    while folded(f"{name}_{number}") in folded_names:
        number += 1
    return f"{name}_{number}"


@functools.lru_cache(maxsize=4096)
def _parsed(texts: Sequence[str]) -> ColumnNames:
    if not any(texts):
        return ColumnNames()
    try:
        parts = (orjson.loads(text) if text else {} for text in texts)
        former, typed, changed, dropped, applied_ddl = parts
        return ColumnNames(
            {name: tuple(names) for name, names in former.items()},
            {name: tuple(names) for name, names in typed.items()},
            {name: parse_type(text) for name, text in changed.items()},
            dict(dropped),
            {name: (topic, part, offset) for name, (topic, part, offset) in applied_ddl.items()},
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptDataError("a table's column options cannot be read", value=texts) from error


def _text(names: Mapping[str, object]) -> str:
    entries = {name: value for name, value in names.items() if value}
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS).decode() if entries else ""
