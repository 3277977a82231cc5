# SPDX-License-Identifier: Apache-2.0
"""What the driver decided about shapes that no schema covers, for later runs.

A request costs a second run of a batch, so a decision holds for the process: columns of the source
that are left out of rows, and types that must not be requested again.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from ingest.decode.column_names import ColumnNames
from ingest.decode.events import AsksTypes
from ingest.errors import SchemaStopError
from ingest.schema.schema_modes import ChangePolicy, Verdict

__all__ = ["AnswerBook", "Answers", "AppliedChanges", "asks_types", "stopped"]


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Of one table.

    Attributes:
        ignored: columns of the source that are left out of rows.
        fixed: columns of the source and types (as text) that request nothing.
    """

    ignored: frozenset[str] = frozenset()
    fixed: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ignored or self.fixed)

    def and_also(self, ignored: Iterable[str], fixed: Iterable[tuple[str, str]]) -> "Answers":
        """With further answers."""
        return Answers(self.ignored | {*ignored}, self.fixed | {*fixed})


class AnswerBook:
    """The answers of all tables."""

    def __init__(self) -> None:
        self._answers: dict[str, Answers] = {}

    def take(
        self,
        name: str,
        ignored: Collection[str],
        fixed: Collection[tuple[str, str]],
        *,
        changed: bool,
    ) -> None:
        """Add answers of a decision; a changed table forgets older ones."""
        known = Answers() if changed else self._answers.get(name, Answers())
        self._answers[name] = known.and_also(ignored, fixed)

    def given(self) -> dict[str, Answers]:
        """All of them, for further runs of the same batch."""
        return {name: each for name, each in self._answers.items() if each}

    def lasting(self, options: Mapping[str, Mapping[str, str]]) -> dict[str, Answers]:
        """Those that hold for further batches.

        A column that was dropped may be there again: whether it is, is found out in each batch.

        Args:
            options: of the tables.
        """
        lasting: dict[str, Answers] = {}
        for name, each in self.given().items():
            dropped = ColumnNames.of(options.get(name, {})).dropped
            lasting[name] = Answers(each.ignored.difference(dropped), each.fixed)
        return {name: each for name, each in lasting.items() if each}


@dataclasses.dataclass(frozen=True, slots=True)
class AppliedChanges:
    """What became of a batch's schema deltas.

    Attributes:
        applied: (table, change) pairs, for people.
        refused: tables some of whose records fit no allowed change, and why.
        verdicts: (table, what became of one change), of all requested changes.
    """

    applied: tuple[tuple[str, str], ...]
    refused: Mapping[str, str]
    verdicts: tuple[tuple[str, Verdict], ...] = ()


def stopped(table: str, verdict: Verdict) -> SchemaStopError:
    """The error that ends the stream before anything of the batch is committed."""
    return SchemaStopError(
        "a schema change stops the stream",
        hint="alter the table by hand or allow the change in the settings, then start again: the "
        "stream resumes exactly here",
        table=table,
        change=verdict.text,
        topic=verdict.topic,
        partition=verdict.partition,
        offset=verdict.offset,
    )


def asks_types(policy: ChangePolicy) -> AsksTypes:
    """Which values of other types a table's records may request.

    Types that events declare are changes of the source's schema. A single deviating value of an
    event that declares none is one only where the table's rules say so.
    """
    return AsksTypes.DECLARED if policy.wanted is None else AsksTypes.ALL
