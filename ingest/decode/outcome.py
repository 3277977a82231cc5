# SPDX-License-Identifier: Apache-2.0
"""What becomes of the records of one raw batch, gathered until all of them are decoded.

Every record ends here exactly once: as rows, a count, a bad record or behind a delta.
"""

from collections import Counter
from collections.abc import Sequence

from ingest.decode.decode_plan import RowPlan
from ingest.decode.events import (
    OWN_TABLE_OPTION,
    SOURCE_TABLE_OPTION,
    BadRecord,
    DecodeResult,
    SchemaDelta,
    Target,
)
from ingest.decode.json.single_event import EventRefusedError, Tokens, UncoveredError
from ingest.decode.row_batches import TargetRows
from ingest.decode.shapes import Fate, Shape
from ingest.decode.types.unavailable import Placeholder
from ingest.source.records import RawBatch

__all__ = ["Outcome", "bad_record"]

_REFUSALS = {
    Fate.REFUSED: ("schema", "the table does not exist and could not be created"),
    Fate.CONFLICT: ("source_table_conflict", "the target is filled from another source table"),
    Fate.NO_KEY: (
        "no_primary_key",
        "the table has no primary key, which rows of this format need",
    ),
}


def bad_record(raw: RawBatch, at: int, error_class: str, error: str, target: str = "") -> BadRecord:
    """A record of a batch, whole, with what is wrong with it; arguments as in `BadRecord`."""
    return BadRecord(
        offset=raw.offsets[at],
        timestamp_ms=raw.timestamp_ms(at),
        key=raw.keys[at],
        value=raw.values[at],
        headers=tuple(raw.headers(at)),
        error_class=error_class,
        error=error,
        target=target,
    )


def _because(text: str, target: Target | None) -> str:
    why = "" if target is None else target.why_frozen
    return f"{text}: {why}" if why else text


def _why_keyless(shape: Shape, lacking: Sequence[str]) -> str:
    names = ", ".join(lacking or shape.lacking_key)
    if not names:
        return "no primary key: the record's key names none; set primary.key for the table"
    if shape.has_configured_key:
        return f"primary.key names {names}, which the row does not have"
    return (
        f"the record's key has {names}, which the row does not have (Debezium's topic routing adds "
        "such members): set primary.key for the table to the columns of the row that are its key; "
        "where rows of several tables have equal keys, give their route a shard too"
    )


def _owned(target: Target) -> str:
    """By which one, and what to do about it."""
    options = {} if target.schema is None else target.schema.options
    if OWN_TABLE_OPTION in options:
        return f": {target.identifier} is a table of Lakeward's own ({options[OWN_TABLE_OPTION]})"
    owner = options.get(SOURCE_TABLE_OPTION, "")
    return f": {target.identifier} is that of {owner}; send one of them elsewhere with `route`"


class Outcome:
    """See the module.

    1. `count`, `refuse`, `withhold` and the rows of `rows_of`, in any order;
    2. `finish` once.

    Args:
        raw: the batch.

    Attributes:
        walked: records that became rows by the compiled scan.
    """

    def __init__(self, raw: RawBatch) -> None:
        self._raw = raw
        self._counts: Counter[str] = Counter()
        self._bad: list[BadRecord] = []
        self._rows: dict[Target, TargetRows] = {}
        self._by_id: dict[int, tuple[Target, TargetRows]] = {}
        """The same, found without hashing a schema of many columns."""
        self._matched: set[tuple[str, str, str]] = set()
        self.walked = 0
        self._withheld: dict[int, tuple[Shape, list[int]]] = {}

    def count(self, name: str, records: int = 1) -> None:
        """Count records by fate."""
        self._counts[name] += records

    def rows_of(self, plan: RowPlan) -> TargetRows:
        """Where rows of a plan are put: those of all plans of one target together."""
        target = plan.target
        if plan.matched:
            self._matched |= plan.matched
        known = self._by_id.get(id(target))
        if known is not None:
            return known[1]
        rows = self._rows.get(target)
        if rows is None:
            rows = self._rows[target] = TargetRows(target)
        self._by_id[id(target)] = target, rows  # kept alive, so that its id stays its own
        return rows

    def offsets(self, positions: Sequence[int]) -> Sequence[int]:
        """Offsets of records."""
        offsets = self._raw.offsets
        if isinstance(positions, range):
            return offsets[positions.start : positions.stop]
        return [offsets[at] for at in positions]

    def refuse(self, at: int, error: EventRefusedError, target: str = "") -> None:
        """A record is bad; `target` is the table it is for, where that is known."""
        self._bad.append(bad_record(self._raw, at, error.error_class, str(error), target))

    def refuse_shape(self, shape: Shape, positions: Sequence[int]) -> None:
        """Records are bad because of what their table is (`Shape.fate`)."""
        error_class, text = _REFUSALS[shape.fate]
        target = shape.target
        if target is not None and target.refusal:
            error_class, text = target.refusal_class, target.refusal
        elif target is not None and shape.fate is Fate.CONFLICT:
            text = f"{text}{_owned(target)}"
        elif shape.fate is Fate.REFUSED and shape.refusal:
            text = shape.refusal
        elif target is not None and shape.fate is Fate.REFUSED:
            text = _because(text, target)
        refused = EventRefusedError(error_class, text)
        for at in positions:
            self.refuse(at, refused, shape.target_name)

    def refuse_keyless(self, shape: Shape, at: int, lacking: Sequence[str] = ()) -> None:
        """A record is bad because no primary key can be known from it.

        Args:
            shape: of the record.
            at: its position.
            lacking: key columns that the row does not have.
        """
        refused = EventRefusedError("no_primary_key", _why_keyless(shape, lacking))
        self.refuse(at, refused, shape.target_name)

    def uncovered(self, shape: Shape, at: int, error: UncoveredError, row: Tokens) -> None:
        """A record has columns that its table lacks: it waits for them, or is bad."""
        if shape.block is not None or shape.target is None or not shape.target.evolvable:
            names = ", ".join(error.tokens)
            text = _because(f"the table has no column {names}", shape.target)
            self.refuse(at, EventRefusedError("schema", text), shape.target_name)
            return
        try:
            shape.learn_columns(error.tokens, row)
        except EventRefusedError as refused:
            self.refuse(at, refused, shape.target_name)
            return
        self.withhold(shape, at)

    def untaken(
        self,
        shape: Shape,
        at: int,
        error: UncoveredError | EventRefusedError,
        tokens: Tokens,
        placeholder: Placeholder,
    ) -> bool:
        """What becomes of a record that its shape's plan did not take.

        Args:
            shape: of the record.
            at: its position.
            error: why it was not taken.
            tokens: its row; empty = no column is to blame.
            placeholder: of unavailable values.

        Returns:
            True: nothing yet, the plan is another one now and is to be tried; False: the record is
            done.
        """
        if tokens and shape.learn_names(tokens, placeholder):
            return True
        if isinstance(error, UncoveredError):
            self.uncovered(shape, at, error, tokens)
        elif tokens and shape.learn_types(tokens, placeholder):
            self.withhold(shape, at)
        else:
            self.refuse(at, error, shape.target_name)
        return False

    def withhold(self, shape: Shape, at: int) -> None:
        """A record waits for a change of the schema."""
        self._withheld.setdefault(id(shape), (shape, []))[1].append(at)

    def finish(self) -> DecodeResult:
        """The result. Withheld records that give no ground for a schema change are bad."""
        deltas: list[SchemaDelta] = []
        for shape, places in self._withheld.values():
            delta = shape.delta(self._raw.topic, self._raw.offsets[min(places)])
            if delta is not None:
                deltas.append(delta)
                self._counts["pending"] += len(places)
                continue
            refused = EventRefusedError("no_primary_key", "no value for the key")
            for at in places:
                self.refuse(at, refused, shape.target_name)
        batches = [rows.finish() for rows in self._rows.values()]
        return DecodeResult(
            changes=[batch for batch in batches if batch is not None],
            bad=sorted(self._bad, key=lambda record: record.offset),
            deltas=deltas,
            counts=dict(+self._counts),
            matched=frozenset(self._matched),
            walked=self.walked,
        )
