# SPDX-License-Identifier: Apache-2.0
"""What a comparison found, as values: for people as text, for machines as JSON."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ingest.errors import ExitCode, exit_code_of
from ingest.observe.text_table import plain
from ingest.tools.verify.columns import LeftOut
from ingest.tools.verify.compare import Kind

__all__ = ["Example", "RepairReport", "TableOutcome", "exit_code"]

_LONGEST = 120
_WORDS = {Kind.MISSING: "missing", Kind.EXTRA: "extra", Kind.DIFFERENT: "different"}


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One key that differs.

    Attributes:
        kind: how.
        key: values by column.
        differences: of `DIFFERENT`: column, value in the source, value in the lake.
    """

    kind: Kind
    key: Mapping[str, Any]
    differences: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def line(self) -> str:
        """For people."""
        text = ", ".join(f"{name} = {_short(value)}" for name, value in self.key.items())
        if self.differences:
            each = [
                f"{name}: source {_short(one)}, lake {_short(two)}"
                for name, one, two in self.differences
            ]
            text += "  " + "; ".join(each)
        return text

    def document(self) -> dict[str, Any]:
        """As plain values."""
        values: dict[str, Any] = {"kind": _WORDS[self.kind], "key": plain(self.key)}
        if self.differences:
            values["columns"] = {
                name: {"source": plain(one), "lake": plain(two)}
                for name, one, two in self.differences
            }
        return values


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
        done = "would write" if self.dry_run else "wrote"
        yield f"  repair     {done} {self.upserts:,} rows, {self._removed()} {self.deletes:,}"
        if self.filtered:
            yield f"  filtered   {self.filtered:,} keys: the pipeline's filter keeps them out"
        for reason, count in sorted(self.unrepaired.items()):
            yield f"  unrepaired {count:,} keys: {reason}"

    def _removed(self) -> str:
        return "remove" if self.dry_run else "removed"


@dataclasses.dataclass(slots=True, kw_only=True)
class TableOutcome:
    """What became of one table.

    Attributes:
        table: `database.table`.
        source: what it was compared with.
        snapshot: the lake's snapshot that was read first.
        source_rows: rows of the source.
        lake_rows: rows of the lake.
        source_checksum: of all rows.
        lake_checksum: of all rows.
        ranges: how many there were.
        range_kind: of what they are ranges.
        ranges_differing: how many differed.
        counts: confirmed keys by kind.
        unfit: those of them whose key the lake's types cannot hold.
        moving: keys that changed in the source whenever they were read.
        settled: keys that differed at first and were equal when read again.
        complete: whether all keys that differ were found.
        examples: the first of each kind.
        left_out: columns that were not compared.
        notes: what else a reader should know.
        position: where the source's log ended when the lake was waited for.
        seconds: how long it took.
        repair: what `--repair` did.
        error: why it could not be done.
        skipped: why it was not tried.
    """

    table: str
    source: str = ""
    snapshot: int | None = None
    source_rows: int = 0
    lake_rows: int = 0
    source_checksum: str = ""
    lake_checksum: str = ""
    ranges: int = 0
    range_kind: str = "of the key's hash"
    ranges_differing: int = 0
    counts: dict[Kind, int] = dataclasses.field(default_factory=dict)
    unfit: int = 0
    moving: int = 0
    settled: int = 0
    complete: bool = True
    examples: tuple[Example, ...] = ()
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
        if any(self.counts.values()) and not self._repaired:
            return "different"
        if self._repaired and self.complete and not self.moving:
            return "repaired"
        return "equal" if not self.moving and self.complete else "moving"

    @property
    def _repaired(self) -> bool:
        """Whether a repair left nothing that differs."""
        repair = self.repair
        if repair is None or repair.dry_run or repair.unrepaired:
            return False
        return not self.unfit

    def document(self) -> dict[str, Any]:
        """As plain values."""
        repair = {} if self.repair is None else {"repair": self.repair.document()}
        return {
            "table": self.table,
            "source": self.source,
            "outcome": self.outcome,
            "snapshot": self.snapshot,
            "source_rows": self.source_rows,
            "lake_rows": self.lake_rows,
            "source_checksum": self.source_checksum,
            "lake_checksum": self.lake_checksum,
            "ranges": self.ranges,
            "ranges_differing": self.ranges_differing,
            **{word: self.counts.get(kind, 0) for kind, word in _WORDS.items()},
            "moving": self.moving,
            "settled": self.settled,
            "complete": self.complete,
            "examples": [each.document() for each in self.examples],
            "not_compared": {each.column: each.reason for each in self.left_out},
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
        snapshot = "" if self.snapshot is None else f" (snapshot {self.snapshot})"
        yield (
            f"  rows       {self.source_rows:,} in the source, "
            f"{self.lake_rows:,} in the lake{snapshot}"
        )
        if self.source_checksum == self.lake_checksum:
            yield f"  checksum   {self.source_checksum}"
        else:
            yield f"  checksum   source {self.source_checksum}, lake {self.lake_checksum}"
        yield f"  ranges     {self.ranges:,} {self.range_kind}, {self.ranges_differing:,} differ"
        yield from self._keys()
        for each in self.left_out:
            yield f"  not compared  {each.column}: {each.reason}"
        for note in self.notes:
            yield f"  note       {note}"
        for kind in Kind:
            shown = [each for each in self.examples if each.kind is kind]
            if shown:
                yield f"  {kind.value}:"
                yield from (f"    {each.line}" for each in shown)
                rest = self.counts.get(kind, 0) - len(shown)
                if rest > 0:
                    yield f"    … and {rest:,} more"
        rate = max(self.source_rows, self.lake_rows) / self.seconds if self.seconds else 0
        yield f"  took       {self.seconds:.1f} s, {rate:,.0f} rows/s"

    def _keys(self) -> Iterable[str]:
        parts = [f"{self.counts.get(kind, 0):,} {kind.value}" for kind in Kind]
        least = "" if self.complete else "at least "
        yield f"  keys       {least}{', '.join(parts)}"
        if self.repair is not None:
            yield from self.repair.lines()
        if self.settled:
            yield f"  settled    {self.settled:,} keys differed at first, and not when read again"
        if self.moving:
            yield f"  moving     {self.moving:,} keys changed in the source whenever they were read"


def _short(value: object) -> str:
    text = "NULL" if value is None else repr(plain(value)) if _quoted(value) else str(plain(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _quoted(value: object) -> bool:
    return isinstance(value, str | bytes)


def exit_code(outcomes: Iterable[TableOutcome]) -> int:
    """Of the process: a difference counts more than a failure, that more than moving keys."""
    found = list(outcomes)
    if any(each.outcome == "different" for each in found):
        return int(ExitCode.DIFFERENT)
    failed = [each.error for each in found if each.error is not None]
    if failed:
        return exit_code_of(failed[0])
    return int(ExitCode.RETRY) if any(each.outcome == "moving" for each in found) else 0
