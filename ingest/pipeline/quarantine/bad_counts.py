# SPDX-License-Identifier: Apache-2.0
"""Bad records of a run of a batch, counted by the table that they are for."""

import dataclasses
from collections import Counter

from ingest.decode.events import BadRecord

__all__ = ["BadCounts"]

_TEXT = 300

Example = tuple[str, int, int, str]


@dataclasses.dataclass(slots=True)
class BadCounts:
    """See the module; every run of a batch counts all of them anew.

    Attributes:
        found: per table and error class those that the batch brings to the table; what its limits
            are about. Records whose table is not known are none's.
        kept: those of them, and of no table (`""`), that go to the quarantine table.
        skipped: those that the table's rule leaves out.
        first: per table of `found` topic, partition, offset and error of the first.
    """

    found: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    kept: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    skipped: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    first: dict[str, Example] = dataclasses.field(default_factory=dict)

    def find(self, topic: str, partition: int, record: BadRecord) -> None:
        """Count one in `found`."""
        _count(self.found, record)
        self._exemplify(record.target, (topic, partition, record.offset, record.error[:_TEXT]))

    def keep(self, record: BadRecord) -> None:
        """Count one in `kept`."""
        _count(self.kept, record)

    def skip(self, record: BadRecord) -> None:
        """Count one in `skipped`."""
        _count(self.skipped, record)

    def add(self, other: "BadCounts") -> None:
        """Add another task's."""
        for mine, theirs in (
            (self.found, other.found),
            (self.kept, other.kept),
            (self.skipped, other.skipped),
        ):
            for table, classes in theirs.items():
                mine.setdefault(table, Counter()).update(classes)
        for table, example in other.first.items():
            self._exemplify(table, example)

    def _exemplify(self, table: str, example: Example) -> None:
        self.first[table] = min(example, self.first.get(table, example))


def _count(counts: dict[str, Counter[str]], record: BadRecord) -> None:
    counts.setdefault(record.target, Counter())[record.error_class] += 1
