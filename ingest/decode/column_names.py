# SPDX-License-Identifier: Apache-2.0
"""Which column of a table holds a column of the source, where the two are not named alike.

A table keeps in its options what its schema alone cannot say, so that every process and every
replay decodes alike (ADR 0011):

* `lakeward.former-names`  JSON, column to its earlier names in the source, newest first: an event
  that was written before a rename still finds the column;
* `lakeward.typed-columns`  JSON, column of the source to the further columns that hold its values
  of types that do not convert (`on.incompatible: new_column`), in the order they were made;
* `lakeward.text-columns`  JSON, column to the type it had before it became STRING: values that are
  no text are written as the cast of that type writes them;
* `lakeward.dropped-columns`  JSON, column to why the table has it no longer: events written before
  the drop do not bring it back;
* `lakeward.ddl-heard`  JSON, source table to the last statement that changed these names, as topic,
  partition and offset: none of them counts twice.
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
    """What names have in common that differ only in letter case or in Unicode normal form."""
    text = name.casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of different names that differ only in letter case or normal form, in their order."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(folded(name), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]


def spelt(name: str, columns: Iterable[str]) -> str:
    """A name as the columns have it, where one of them alone is spelt alike."""
    names = list(columns)
    if name in names:
        return name
    same = [each for each in names if folded(each) == folded(name)]
    return same[0] if len(same) == 1 else name


def reserved_name(names: Iterable[str]) -> str:
    """Why columns cannot be written that are called like Lakeward's own; "" = none is."""
    found = sorted({*names} & {OFFSET_COLUMN, UNAVAILABLE_COLUMN})
    if not found:
        return ""
    return (
        f"column {found[0]} has a name that Lakeward needs for itself: leave it out with "
        "`columns.exclude` in a rule of `tables`, or have the connector rename it"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnNames:
    """What a table's options say about its columns; see the module for the attributes.

    Attributes:
        exact: whether a column is another one when it is spelt otherwise (`source.names.case`).
    """

    former: Names = dataclasses.field(default_factory=dict)
    typed: Names = dataclasses.field(default_factory=dict)
    texts: Mapping[str, DataType] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    heard: Mapping[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    exact: bool = False

    @staticmethod
    def of(options: Mapping[str, str], *, exact: bool = False) -> "ColumnNames":
        """Of a table's options; `exact` is the pipeline's.

        Raises:
            CorruptDataError: an option is not what Lakeward writes.
        """
        keys = (FORMER_OPTION, TYPED_OPTION, TEXT_OPTION, DROPPED_OPTION, HEARD_OPTION)
        found = _parsed(tuple(options.get(key, "") for key in keys))
        return dataclasses.replace(found, exact=True) if exact else found

    @property
    def further(self) -> frozenset[str]:
        """Columns that hold a further type of some other column."""
        return frozenset(name for names in self.typed.values() for name in names)

    def slots(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> tuple[str, ...]:
        """The table's columns that may hold a column of the source, the first that fits wins.

        Args:
            member: name of the source's column.
            columns: of the table.
            present: names of all columns of the event.
        """
        first = self._first(member, columns, present)
        further = self.typed.get(first or member, ())
        own = () if first is None else (first,)
        return own + tuple(name for name in further if name in columns)

    def _first(self, member: str, columns: Collection[str], present: Collection[str]) -> str | None:
        if self.former and (found := self._by_former_name(columns, present).get(member)):
            return found
        if member in columns:
            return None if member in self.further else member
        return None if self.typed.get(member) else self._same_but_case(member, columns, present)

    def _by_former_name(
        self, columns: Collection[str], present: Collection[str]
    ) -> Mapping[str, str]:
        """Members of an event that are columns under a former name, and those columns.

        A member may also be the present name of another column: when the event is so old that this
        other column had a former name as well.
        """
        found: dict[str, str] = {}
        grown = True
        while grown:
            grown = False
            for column, earlier in self.former.items():
                own = column in present and column not in found
                if own or column not in columns or column in found.values():
                    continue
                known = {folded(name) for name in earlier}  # statements do not mind the case
                member = next((n for n in present if folded(n) in known and n not in found), None)
                if member is not None:
                    found[member] = column
                    grown = True
        return found

    def _same_but_case(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> str | None:
        """The column of which a member is another spelling: most databases do not mind the case.

        None where an event has both spellings, or the table does: they are two columns.
        """
        if self.exact:
            return None
        name = folded(member)
        same = [column for column in columns if folded(column) == name]
        if len(same) != 1 or same[0] in self.further:
            return None
        return same[0] if sum(folded(each) == name for each in present) == 1 else None

    def now(self, member: str, columns: Collection[str]) -> str:
        """What a column that the table never had is called now, if it was renamed before."""
        for column, earlier in self.former.items():
            if member in earlier and column not in columns:
                return column
        return member

    def options(self) -> dict[str, str]:
        """As table options; "" where there is nothing to say."""
        texts = {name: type_name(type_) for name, type_ in self.texts.items()}
        return {
            FORMER_OPTION: _text(self.former),
            TYPED_OPTION: _text(self.typed),
            TEXT_OPTION: _text(texts),
            DROPPED_OPTION: _text(self.dropped),
            HEARD_OPTION: _text(self.heard),
        }

    def renamed(self, old: str, new: str) -> "ColumnNames":
        """After a column of the table was renamed."""
        earlier = (old, *(name for name in self.former.get(old, ()) if name != new))
        former = {name: names for name, names in self.former.items() if name != old}
        typed = {new if name == old else name: names for name, names in self.typed.items()}
        texts = {new if name == old else name: type_ for name, type_ in self.texts.items()}
        dropped = {name: why for name, why in self.dropped.items() if name != new}
        return ColumnNames({**former, new: earlier}, typed, texts, dropped, self.heard, self.exact)

    def with_former(self, column: str, earlier: str) -> "ColumnNames":
        """After a column was renamed elsewhere."""
        known = tuple(name for name in self.former.get(column, ()) if name != earlier)
        return dataclasses.replace(self, former={**self.former, column: (earlier, *known)})

    def with_heard(self, source: str, place: tuple[str, int, int]) -> "ColumnNames":
        """After a statement was taken into account."""
        return dataclasses.replace(self, heard={**self.heard, source: place})

    def has_heard(self, source: str, place: tuple[str, int, int]) -> bool:
        """Whether a statement was taken into account before."""
        last = self.heard.get(source)
        return last is not None and last[:2] == place[:2] and last[2] >= place[2]

    def without(self, column: str, why: str) -> "ColumnNames":
        """After a column and its further types were dropped."""
        former = {name: names for name, names in self.former.items() if name != column}
        typed = {name: names for name, names in self.typed.items() if name != column}
        texts = {name: type_ for name, type_ in self.texts.items() if name != column}
        removed = dict.fromkeys((column, *self.former.get(column, ())), why)
        dropped = {**self.dropped, **removed}
        return ColumnNames(former, typed, texts, dropped, self.heard, self.exact)

    def without_former(self, column: str) -> "ColumnNames":
        """After the source lost a column that the table keeps: its former names are free."""
        former = {name: names for name, names in self.former.items() if name != column}
        return dataclasses.replace(self, former=former)

    def with_column(self, column: str) -> "ColumnNames":
        """After a column of that name was made: whatever had the name before is forgotten."""
        former = {
            name: tuple(each for each in names if each != column)
            for name, names in self.former.items()
        }
        dropped = {name: why for name, why in self.dropped.items() if name != column}
        return dataclasses.replace(self, former=former, dropped=dropped)

    def with_further(self, member: str, column: str) -> "ColumnNames":
        """After a column was made for a further type of another."""
        typed = {**self.typed, member: (*self.typed.get(member, ()), column)}
        return dataclasses.replace(self, typed=typed)

    def with_text(self, column: str, type_: DataType) -> "ColumnNames":
        """After a column became STRING; the first type it had counts."""
        return dataclasses.replace(self, texts={column: type_, **self.texts})


NO_NAMES = ColumnNames()
"""Of a table whose options say nothing about its columns."""


def why_no_column(name: str) -> str:
    """Why no column can have a name; "" where one can."""
    if name in (OFFSET_COLUMN, UNAVAILABLE_COLUMN):
        return reserved_name([name])
    try:
        check_column_name(name)
    except InvalidRequestError as error:
        return error.message
    return ""


def free_name(name: str, taken: Iterable[str]) -> str:
    """`<name>_<n>` with the smallest n from 1 that no other name equals, whatever its case."""
    known = {folded(each) for each in taken}
    number = 1
    while folded(f"{name}_{number}") in known:
        number += 1
    return f"{name}_{number}"


@functools.lru_cache(maxsize=4096)
def _parsed(texts: Sequence[str]) -> ColumnNames:
    if not any(texts):
        return ColumnNames()
    try:
        parts = (orjson.loads(text) if text else {} for text in texts)
        former, typed, changed, dropped, heard = parts
        return ColumnNames(
            {name: tuple(names) for name, names in former.items()},
            {name: tuple(names) for name, names in typed.items()},
            {name: parse_type(text) for name, text in changed.items()},
            dict(dropped),
            {name: (topic, part, offset) for name, (topic, part, offset) in heard.items()},
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptDataError(
            "a table's options about its columns cannot be read", value=texts
        ) from error


def _text(names: Mapping[str, object]) -> str:
    kept = {name: value for name, value in names.items() if value}
    return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS).decode() if kept else ""
