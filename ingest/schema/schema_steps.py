# SPDX-License-Identifier: Apache-2.0
"""The parts of a draft (`schema_draft`): where a change was asked for, its steps, what came out."""

import dataclasses
from collections.abc import Callable

from ingest.decode.column_names import ColumnNames
from ingest.decode.events import SchemaDelta
from ingest.schema.schema_modes import ChangeKind, Outcome, Verdict
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import RemoveOption, SchemaChange, SetOption
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["Drafted", "Place", "Step", "is_text", "option_changes", "said_of", "same"]


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a change was asked for."""

    source: str
    topic: str
    partition: int
    offset: int

    @staticmethod
    def of(delta: SchemaDelta) -> "Place":
        """Of a row event."""
        return Place(delta.source.address, delta.topic, delta.partition, delta.offset)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """What came out of a draft.

    Attributes:
        changes: of the table, none = it stays as it is.
        verdicts: of every change asked for.
        reasons: why records stay that no schema covers.
        ignored: columns of the source to leave out of rows.
        fixed: columns of the source and types (as text) that are not to be asked for again.
        parked: why the table is to be parked; "" = it is not.
        stop: why the stream is to stop.
    """

    changes: tuple[SchemaChange, ...]
    verdicts: tuple[Verdict, ...]
    reasons: tuple[str, ...]
    ignored: tuple[str, ...]
    fixed: tuple[tuple[str, str], ...]
    parked: str
    stop: Verdict | None


@dataclasses.dataclass(slots=True)
class Step:
    """A change to try, what is said of it, and what it makes of the table's names."""

    change: SchemaChange | None
    verdict: Verdict | None
    names: Callable[[ColumnNames], ColumnNames]

    def widen(self, change: SchemaChange, type_: DataType) -> None:
        """The same with another type."""
        self.change = change
        if self.verdict is not None:
            self.verdict = dataclasses.replace(self.verdict, new=type_name(type_))


def same(names: ColumnNames) -> ColumnNames:
    """For steps that change no names."""
    return names


def said_of(kind: ChangeKind, column: str, old: str, new: str, place: Place) -> Verdict:
    """A verdict for a change that is made, to be changed where it is not."""
    return Verdict(
        kind=kind,
        column=column,
        old=old,
        new=new,
        outcome=Outcome.APPLIED,
        source=place.source,
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
    )


def is_text(type_: DataType) -> bool:
    """Whether a column of the type holds text."""
    return isinstance(type_, AtomicType) and type_.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


def option_changes(existing: TableSchema, names: ColumnNames) -> list[SchemaChange]:
    """Changes of the table's options that make them say what `names` says."""
    changes: list[SchemaChange] = []
    for key, text in names.options().items():
        if text and existing.options.get(key) != text:
            changes.append(SetOption(key, text))
        elif not text and key in existing.options:
            changes.append(RemoveOption(key))
    return changes
