# SPDX-License-Identifier: Apache-2.0
"""Results of a comparison, as values: as text for people, as JSON for machines."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ingest.errors import ExitCode, exit_code_of
from ingest.tools.verify.columns import LeftOut
from ingest.tools.verify.compare import Comparison, Kind
from ingest.tools.verify.recheck import Confirmed

_RANGES = "of the key's hash"


@dataclasses.dataclass(slots=True, kw_only=True)
class RepairReport:
    """The result of a repair.

    Attributes:
        dry_run: whether nothing was written.
        upserts: rows written.
        deletes: rows removed, or marked as deleted.
        filtered: keys whose rows the pipeline's filter keeps out of the table.
        unrepaired: keys that still differ, by reason.
        snapshots: of the commits.
    """

    dry_run: bool
    upserts: int = 0
    deletes: int = 0
    filtered: int = 0
    unrepaired: Counter[str] = dataclasses.field(default_factory=Counter)
    snapshots: list[int] = dataclasses.field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self) | {"unrepaired": dict(self.unrepaired)}

    def lines(self) -> Iterable[str]:
        """For people."""
        verb = "would write" if self.dry_run else "wrote"
        yield f"  repair     {verb} {self.upserts:,} rows, {self._remove_verb()} {self.deletes:,}"
        if self.filtered:
            yield f"  filtered   {self.filtered:,} keys: the pipeline's filter keeps them out"
        for reason, count in sorted(self.unrepaired.items()):
            yield f"  unrepaired {count:,} keys: {reason}"

    def _remove_verb(self) -> str:
        return "remove" if self.dry_run else "removed"


@dataclasses.dataclass(slots=True, kw_only=True)
class TableOutcome:
    """The result of one table.

    Attributes:
        table: `database.table`.
        source: what it was compared with.
        snapshot: the lake's snapshot that was read first.
        comparison: of one read of each side.
        confirmed: the differences that remained when keys were read again.
        left_out: columns that were not compared.
        notes: further remarks for the reader.
        position: the end of the source's log that the lake had to reach.
        seconds: how long it took.
        repair: what `--repair` did.
        error: why the comparison failed.
        skipped: why it was not tried.
    """

    table: str
    source: str = ""
    snapshot: int | None = None
    comparison: Comparison = dataclasses.field(default_factory=Comparison)
    confirmed: Confirmed = dataclasses.field(default_factory=Confirmed)
    left_out: tuple[LeftOut, ...] = ()
    notes: list[str] = dataclasses.field(default_factory=list)
    position: str | None = None
    seconds: float = 0.0
    repair: RepairReport | None = None
    error: BaseException | None = None
    skipped: str = ""

    @property
    def outcome(self) -> str:
        """One word: `equal`, `repaired`, `different`, `moving`, `skipped` or `failed`."""
        if self.error is not None:
            return "failed"
        if self.skipped:
            return "skipped"
        if any(self.confirmed.counts.values()) and not self._repaired:
            return "different"
        if not self.comparison.complete or self.confirmed.moving:
            return "moving"
        return "repaired" if self._repaired else "equal"

    @property
    def _repaired(self) -> bool:
        """Whether a repair left nothing that differs."""
        repair = self.repair
        if repair is None or repair.dry_run or repair.unrepaired:
            return False
        return not self.confirmed.unfit

    def document(self) -> dict[str, Any]:
        """As plain values."""
        comparison, confirmed = self.comparison, self.confirmed
        repair = {} if self.repair is None else {"repair": self.repair.document()}
        return {
            "table": self.table,
            "source": self.source,
            "outcome": self.outcome,
            "snapshot": self.snapshot,
            "source_rows": comparison.source_rows,
            "lake_rows": comparison.lake_rows,
            "source_checksum": comparison.source_checksum,
            "lake_checksum": comparison.lake_checksum,
            "ranges": comparison.ranges,
            "ranges_differing": comparison.ranges_differing,
            **{kind.name.lower(): confirmed.counts.get(kind, 0) for kind in Kind},
            "moving": confirmed.moving,
            "settled": confirmed.settled,
            "complete": comparison.complete,
            "examples": [example.document() for example in confirmed.examples],
            "not_compared": {entry.column: entry.reason for entry in self.left_out},
            "notes": self.notes,
            "position": self.position,
            "seconds": round(self.seconds, 3),
            "error": None if self.error is None else str(self.error),
            "skipped": self.skipped or None,
            **repair,
        }

    def lines(self) -> Iterable[str]:
        """For people."""
        if self.error is not None:
            yield f"{self.table}: not compared: {self.error}"
            return
        if self.skipped:
            yield f"{self.table}: skipped: {self.skipped}"
            return
        yield f"{self.table}: {self.outcome} ({self.source})"
        result = self.comparison
        snapshot = "" if self.snapshot is None else f" (snapshot {self.snapshot})"
        yield (
            f"  rows       {result.source_rows:,} in the source, "
            f"{result.lake_rows:,} in the lake{snapshot}"
        )
        if result.source_checksum == result.lake_checksum:
            yield f"  checksum   {result.source_checksum}"
        else:
            yield f"  checksum   source {result.source_checksum}, lake {result.lake_checksum}"
        yield f"  ranges     {result.ranges:,} {_RANGES}, {result.ranges_differing:,} differ"
        yield from self._keys()
        for entry in self.left_out:
            yield f"  not compared  {entry.column}: {entry.reason}"
        for note in self.notes:
            yield f"  note       {note}"
        yield from self._examples()
        rate = max(result.source_rows, result.lake_rows) / self.seconds if self.seconds else 0
        yield f"  took       {self.seconds:.1f} s, {rate:,.0f} rows/s"

    def _keys(self) -> Iterable[str]:
        keys = self.confirmed
        parts = [f"{keys.counts.get(kind, 0):,} {kind.value}" for kind in Kind]
        least = "" if self.comparison.complete else "at least "
        yield f"  keys       {least}{', '.join(parts)}"
        if self.repair is not None:
            yield from self.repair.lines()
        if keys.settled:
            yield f"  settled    {keys.settled:,} keys differed at first, and not when read again"
        if keys.moving:
            yield (
                f"  moving     {keys.moving:,} keys changed in the source whenever they were read"
            )

    def _examples(self) -> Iterable[str]:
        for kind in Kind:
            examples = [example for example in self.confirmed.examples if example.kind is kind]
            if examples:
                yield f"  {kind.value}:"
                yield from (f"    {example.line}" for example in examples)
                rest = self.confirmed.counts.get(kind, 0) - len(examples)
                if rest > 0:
                    yield f"    … and {rest:,} more"


def exit_code(outcomes: Iterable[TableOutcome]) -> int:
    """Of the process: a difference outranks a failure, a failure outranks moving keys."""
    results = list(outcomes)
    if any(result.outcome == "different" for result in results):
        return int(ExitCode.DIFFERENT)
    failed = [result.error for result in results if result.error is not None]
    if failed:
        return exit_code_of(failed[0])
    return int(ExitCode.RETRY) if any(result.outcome == "moving" for result in results) else 0
