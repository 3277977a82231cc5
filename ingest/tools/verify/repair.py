# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify --repair`: rows that differ are written to the lake as the source has them.

The rows pass through the transforms of the pipeline (filter, computed columns, masks, soft deletes)
and through the table's own writer, so that merge, indexes and changelog producer handle them like
any change. One commit, of the user `<stream>.repair-…`, brings up to `_KEYS_PER_COMMIT` keys.

Why no newer change is overwritten. A row is written as of a read of the source at some moment:

1. Before that read the table is at rest (`at_rest`), so every change made after the read is applied
   after the repair, when the stream continues from the offsets at which the table stopped.
2. The commit is published only on the snapshot of the lake that was read, or one that only
   compactions changed since, while the table is still at rest. Otherwise both sides are read again.
3. A read replica may lag behind what the lake has. It is refused as a source.
"""

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import Settings
from ingest.daemon.requests.request_client import RequestOptions, request_and_wait
from ingest.decode.columns import origin_schema
from ingest.decode.events import OFFSET_COLUMN, SOURCE_TABLE_OPTION
from ingest.errors import ExitCode, exit_code_of
from ingest.observe.text_table import plain
from ingest.state.lease import StreamHeldError, owned_stream
from ingest.state.ownership import Parking
from ingest.state.stream_state import OFFSETS_PROPERTY
from ingest.tools.verify.compare import (
    KEY_HASH,
    UNFIT,
    Columns,
    Compared,
    Comparison,
    Counterpart,
    Find,
    Hashes,
    Kind,
    LeftOut,
    Side,
    TableSide,
    column_hashes,
    combined_hashes,
    differing_keys,
    first_rows,
    hashed,
    hashed_schema,
)
from ingest.tools.verify.fitting import Form
from ingest.transform.row_transform import RowTransform
from ingest.transform.rules import HIDDEN_OPTION, hidden_from_text, present_rule, transform_rule
from storage.clock import Clock, SystemClock
from storage.errors import CommitConflictError, InvalidRequestError, RetryableError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.commit.commit import NOT_COMMITTED
from storage.table.commit.commit_changes import discarded_on
from storage.table.table import FileStoreTable

# Keys that seemed to differ are read again; only what differs then too is reported.
#
# A round reads the keys from the source, waits, reads them from the lake and once more from the
# source. If both reads of the source agree, the key was at rest while the lake had time to follow:
# a lake that still has something else differs. A key whose reads of the source disagree goes into
# the next round; after the last one it is *moving*.


REDACTED = "***"
_LONGEST = 120


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
        text = ", ".join(f"{name} = {_short_text(value)}" for name, value in self.key.items())
        if self.differences:
            texts = [
                f"{name}: source {_short_text(source)}, lake {_short_text(lake)}"
                for name, source, lake in self.differences
            ]
            text += "  " + "; ".join(texts)
        return text

    def document(self) -> dict[str, Any]:
        """As plain values."""
        values: dict[str, Any] = {"kind": self.kind.name.lower(), "key": plain(self.key)}
        if self.differences:
            values["columns"] = {
                name: {"source": plain(source), "lake": plain(lake)}
                for name, source, lake in self.differences
            }
        return values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Confirmed:
    """What remains of the candidates.

    Attributes:
        counts: keys that differ, by kind.
        moving: keys whose reads of the source never agreed.
        settled: keys that do not differ any more.
        unfit: keys among them that the lake's types cannot hold.
        examples: the first of each kind.
        source: rows of the source with keys that differ, as read last; of hashed rows.
        lake: the same of the lake.
        kinds: how keys differ, by the hash of the key.
    """

    counts: dict[Kind, int] = dataclasses.field(default_factory=dict)
    moving: int = 0
    settled: int = 0
    unfit: int = 0
    examples: tuple[Example, ...] = ()
    source: pa.Table | None = None
    lake: pa.Table | None = None
    kinds: dict[int, Kind] = dataclasses.field(default_factory=dict)


def confirm(
    source: Side,
    lake: TableSide,
    columns: Columns,
    comparison: Comparison,
    *,
    rounds: int,
    wait: Callable[[], None] | None,
    examples_per_kind: int,
    masked: Sequence[str] = (),
) -> Confirmed:
    """Read candidates again.

    Args:
        source: one side.
        lake: the other; it is refreshed after every wait.
        columns: what is compared.
        comparison: with the candidates.
        rounds: how often they are read again; 0 = they are reported as they are.
        wait: between the reads of the source and of the lake; None = no waiting.
        examples_per_kind: their number.
        masked: columns whose values no example shows.
    """
    show = _Examples(columns, examples_per_kind, masked)
    candidates, kinds = comparison.candidates, comparison.kinds
    if not columns.keyed:  # whole rows, which cannot be looked up
        return Confirmed(counts=_counts(kinds), examples=tuple(show.of_keys(candidates, kinds)))
    by_hash = dict(zip(candidates.column(KEY_HASH).to_pylist(), kinds, strict=True))
    unfit = _unfit_keys(candidates, columns)
    unfit_kinds = [kind for kind, flag in zip(kinds, unfit, strict=True) if flag]
    unfit_rows = candidates.filter(pa.array(unfit))
    keys = candidates.filter(pa.array(~unfit))
    in_source = in_lake = hashed_schema(columns).empty_table()
    moving: set[int] = set()
    differing: dict[int, Kind] = {}
    for _ in range(max(1, rounds)):
        if not keys.num_rows:
            break
        before = None
        if wait is not None and rounds:
            before = rows_of_keys(source, columns, keys)
            wait()
        lake.refresh()
        in_lake = rows_of_keys(lake, columns, keys)
        in_source = rows_of_keys(source, columns, keys)
        differing = differing_keys(in_source, in_lake)
        moving = set()
        if before is not None:
            moving = differing_keys(before, in_source).keys() & differing.keys()
        keys = first_rows(keys, np.array(list(differing), np.uint64))
    if not rounds:
        examples = show.of_pairs(differing, in_source, in_lake)
        return Confirmed(
            counts=_counts(kinds),
            unfit=len(unfit_kinds),
            examples=(*examples, *show.of_keys(unfit_rows, unfit_kinds)),
            source=in_source,
            lake=in_lake,
            kinds=differing,
        )
    at_rest = {key: kind for key, kind in differing.items() if key not in moving}
    examples = show.of_pairs(at_rest, in_source, in_lake)
    return Confirmed(
        counts=_counts([*at_rest.values(), *unfit_kinds]),
        moving=len(moving),
        unfit=len(unfit_kinds),
        settled=len(by_hash) - len(at_rest) - len(unfit_kinds) - len(moving),
        examples=(*examples, *show.of_keys(unfit_rows, unfit_kinds)),
        source=in_source,
        lake=in_lake,
        kinds=at_rest,
    )


def rows_of_keys(side: Side, columns: Columns, keys: pa.Table) -> pa.Table:
    """The rows of a side that have one of these keys."""
    parts = []
    for start in range(0, keys.num_rows, side.keys_at_once(keys.num_rows)):
        chunk = keys.slice(start, side.keys_at_once(keys.num_rows)).combine_chunks()
        (batch,) = chunk.select(columns.key_names).to_batches()
        hashes = chunk.column(KEY_HASH).combine_chunks()
        for rows in side.of_keys(batch):
            matches = rows.filter(pc.is_in(rows.column(KEY_HASH), value_set=hashes))
            if matches.num_rows:
                parts.append(matches)
    return pa.Table.from_batches(parts, schema=hashed_schema(columns))


def _counts(kinds: Sequence[Kind]) -> dict[Kind, int]:
    return {kind: list(kinds).count(kind) for kind in Kind}


def _unfit_keys(candidates: pa.Table, columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows have a key that the lake's types cannot hold: no side can look it up."""
    unfit = candidates.column(UNFIT)
    if unfit.null_count == len(unfit):
        return np.zeros(len(unfit), bool)
    names = set(columns.key_names)
    return np.array([not names.isdisjoint(dict(row or ())) for row in unfit.to_pylist()], bool)


@dataclasses.dataclass(frozen=True, slots=True)
class _Examples:
    """Makes examples.

    Attributes:
        columns: what is compared.
        per_kind: number of examples of each kind.
        masked: columns whose values are hidden.
    """

    columns: Columns
    per_kind: int
    masked: Sequence[str]

    def of_keys(self, rows: pa.Table, kinds: Sequence[Kind]) -> list[Example]:
        """Of rows without a counterpart."""
        examples: list[Example] = []
        for kind in Kind:
            indices = [index for index, actual in enumerate(kinds) if actual is kind][
                : self.per_kind
            ]
            examples += [Example(kind, self._key(rows.slice(index, 1))) for index in indices]
        return examples

    def of_pairs(
        self, differing: dict[int, Kind], source: pa.Table, lake: pa.Table
    ) -> list[Example]:
        """Of keys that differ."""
        examples: list[Example] = []
        for kind in Kind:
            keys = [key for key, actual in differing.items() if actual is kind]
            side = lake if kind is Kind.EXTRA else source
            rows = first_rows(side, np.array(keys, np.uint64)).slice(0, self.per_kind)
            for index in range(rows.num_rows):
                row = rows.slice(index, 1)
                hash_ = row.column(KEY_HASH)[0].as_py()
                differences: tuple[tuple[str, Any, Any], ...] = ()
                if kind is Kind.DIFFERENT:
                    counterpart = first_rows(lake, np.array([hash_], np.uint64))
                    differences = self._differences(row, counterpart)
                examples.append(Example(kind, self._key(row), differences))
        return examples

    def _differences(self, lake_rows: pa.Table, two: pa.Table) -> tuple[tuple[str, Any, Any], ...]:
        differences: list[tuple[str, Any, Any]] = []
        for column in self.columns.all:
            hashes = [
                column_hashes(row.column(column.name).combine_chunks())[0]
                for row in (lake_rows, two)
            ]
            if hashes[0] != hashes[1] or column.name in _unfit(lake_rows):
                values = [self._value(row, column.name) for row in (lake_rows, two)]
                differences.append((column.name, values[0], values[1]))
        return tuple(differences)

    def _key(self, row: pa.Table) -> dict[str, Any]:
        return {name: self._value(row, name) for name in self.columns.key_names}

    def _value(self, row: pa.Table, column: str) -> Any:
        if column in self.masked:
            return REDACTED
        if column in (unfit := _unfit(row)):
            return unfit[column]
        scalar = row.column(column)[0]
        try:
            return scalar.as_py()
        except (OverflowError, ValueError):  # a year that Python does not have
            return scalar.cast(pa.string()).as_py()


def _unfit(row: pa.Table) -> dict[str, str]:
    return dict(row.column(UNFIT)[0].as_py() or ())


def _short_text(value: object) -> str:
    text = "NULL" if value is None else repr(plain(value)) if _quoted(value) else str(plain(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def _quoted(value: object) -> bool:
    return isinstance(value, str | bytes)


# Results of a comparison, as values: as text for people, as JSON for machines.


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


# A table at rest: while a command writes it, its pipeline does not.
#
# Two writers of a bucket take sequence numbers from the snapshot they began with, so a batch in
# progress may commit rows that lose against older ones of the command. Hence the command owns the
# stream where no daemon runs; where one does, the daemon parks the table between two batches, and
# resumes it afterwards from the offsets at which it stopped.
#
# After a kill the table may stay parked. The next run finds it parked for this reason and resumes
# it.


REASON = "lakeward verify --repair"
"""Why the table is parked."""

_TIMEOUT_S = 600.0


@contextlib.contextmanager
def at_rest(
    settings: Settings, table: FileStoreTable, name: str, clock: Clock
) -> Iterator[Callable[[], None]]:
    """Keep a pipeline from writing a table.

    Yields:
        A check that raises `RetryableError` or `FencedError` if it may write again.

    Raises:
        RetryableError: the daemon did not answer.
    """
    with contextlib.ExitStack() as stack:
        try:
            _, ownership = stack.enter_context(owned_stream(settings, clock=clock))
            require = ownership.require_owned
            if _parked_reason(settings, table, name) == REASON:  # resume it at the next start
                stack.callback(_request, settings, "resume", name, clock, wait=False)
        except StreamHeldError:
            require = stack.enter_context(_parked(settings, table, name, clock))
        yield require


@contextlib.contextmanager
def _parked(
    settings: Settings, table: FileStoreTable, name: str, clock: Clock
) -> Iterator[Callable[[], None]]:
    before = _parked_reason(settings, table, name)
    if before is None:
        _request(settings, "pause", name, clock, reason=REASON)

    def require() -> None:
        if _parked_reason(settings, table, name) is None:
            raise RetryableError(
                "the table was resumed while it was repaired",
                hint="run it again, and let it resume the table",
                table=name,
            )

    try:
        require()
        yield require
    finally:
        if before in (None, REASON):
            _request(settings, "resume", name, clock)


def resume_killed(settings: Settings, table: FileStoreTable, name: str) -> None:
    """Resume a table that a killed repair left parked; its daemon must run.

    Raises:
        RetryableError: the daemon did not answer.
    """
    if _parked_reason(settings, table, name) == REASON:
        _request(settings, "resume", name, SystemClock())


def _parked_reason(settings: Settings, table: FileStoreTable, name: str) -> str | None:
    """Why a table is parked; None = it is not."""
    parking = Parking(table.file_io, settings.sink.warehouse, settings.pipeline.name)
    parking.load()
    entry = parking.parked().get(name)
    return None if entry is None else entry.reason


def _request(
    settings: Settings, kind: str, name: str, clock: Clock, *, wait: bool = True, **arguments: str
) -> None:
    options = RequestOptions(wait=wait, timeout_s=_TIMEOUT_S, clock=clock)
    request_and_wait(settings, kind, {"tables": [name], **arguments}, options)


NOT_IN_SOURCE = "not in the source"

_KEYS_PER_COMMIT = 20_000
_ATTEMPTS = 5
_CHANGES = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Rows to write for some keys.

    Attributes:
        rows: columns of the table, then `_VALUE_KIND`.
        expected: the table's rows of these keys afterwards, hashed.
        keys: the key columns and the hashes of the keys.
        base: snapshot of the table that was read; None = it has none.
    """

    rows: pa.Table
    expected: pa.Table
    keys: pa.Table
    base: int | None


class Repair:
    """The repair of one table.

    Args:
        settings: of the pipeline that fills the table.
        name: `database.table`.
        columns: what was compared.
        source: that side of the comparison.
        lake: the other.
        find: looks up a column in the source.
        open_source: opens the source with other columns.

    Raises:
        InvalidRequestError: rows of the table cannot be repaired; says why.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        name: str,
        table: FileStoreTable,
        columns: Columns,
        source: Side,
        lake: TableSide,
        find: Find,
        open_source: Callable[[Columns], Side],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._stream = settings.pipeline.name
        self._name = name
        self._table = table
        self._columns = columns
        self._source, self._lake = source, lake
        self._clock = clock
        self._rule = present_rule(transform_rule(settings, name), table.schema)
        self._refuse_tables()
        hidden = hidden_from_text(table.schema.options.get(HIDDEN_OPTION, ""))
        zone = settings.sink.time_zone
        self._transform = RowTransform.of(self._rule, table.schema, hidden=hidden, zone=zone)
        self._absent: dict[str, str] = {}
        self._read = self._columns_to_read(find)
        self._fresh = open_source(self._read)
        fields = [field for field in table.schema.fields if field.name not in columns.key_names]
        self._all_columns = Columns(
            columns.keys, tuple(Compared(field.name, field.type, field.name) for field in fields)
        )
        self._lake_side = TableSide(table, name, self._all_columns)

    # --- what cannot be repaired

    def _refuse_tables(self) -> None:
        schema, options = self._table.schema, self._table.options
        reason = ""
        computed = {name for name, _ in self._rule.assignments}
        left_out = [
            key
            for key in schema.primary_keys
            if key not in self._columns.key_names and key not in computed
        ]
        streams = self._other_streams()
        if not schema.primary_keys or not self._columns.keyed:
            reason = "it has no primary key"
        elif options.merge_engine != "deduplicate":
            reason = f"its merge engine {options.merge_engine} makes rows of several changes"
        elif options.rowkind_field is not None:
            reason = "its rows carry their own kind (rowkind.field)"
        elif schema.options.get(SOURCE_TABLE_OPTION, "").startswith("shared:"):
            reason = "several source tables fill it"
        elif left_out:
            reason = f"the source does not have {', '.join(left_out)} of its key"
        elif any(key.form is not Form.PLAIN for key in self._columns.keys):
            reason = "texts of its key may be written in several ways"
        elif streams:
            reason = f"another pipeline writes it, too ({streams[0]})"
        if reason:
            raise InvalidRequestError(
                f"the table cannot be repaired: {reason}",
                hint="take a new snapshot of it with `lakeward resnapshot`",
                table=self._name,
            )

    def _other_streams(self) -> list[str]:
        snapshot = self._table.latest_snapshot()
        properties = {} if snapshot is None else snapshot.properties or {}
        own_property = OFFSETS_PROPERTY + self._stream
        return sorted(
            name.removeprefix(OFFSETS_PROPERTY)
            for name in properties
            if name.startswith(OFFSETS_PROPERTY) and name != own_property
        )

    def _columns_to_read(self, find: Find) -> Columns:
        """The source's columns that rows are made from; missing ones are added to `_absent`."""
        items: dict[str, Compared] = {}
        for field in self._transform.decode_schema.fields:
            counterpart = find(field.name, field.type)
            if isinstance(counterpart, Counterpart):  # as the connector writes it, in no other form
                items[field.name] = Compared(field.name, field.type, counterpart.name)
            else:
                self._absent[field.name] = counterpart
        masked = sorted(self._absent.keys() & self._rule.mask.keys())
        if masked:
            raise InvalidRequestError(
                "the table cannot be repaired: the source does not have a masked column",
                column=masked[0],
                table=self._name,
            )
        rest = tuple(item for name, item in items.items() if name not in self._columns.key_names)
        return Columns(self._columns.keys, rest)

    # --- the work

    def run(self, keys: pa.Table, *, dry_run: bool) -> RepairReport:
        """Repair the rows of some keys.

        Raises:
            RetryableError: the daemon did not answer, or the table did not come to rest.
            LakewardError: a side cannot be read or written.
        """
        report = RepairReport(dry_run=dry_run)
        parts = [
            keys.slice(start, _KEYS_PER_COMMIT)
            for start in range(0, keys.num_rows, _KEYS_PER_COMMIT)
        ]
        if dry_run:
            for part in parts:
                self._count(self._change(part, report), report)
        elif parts:
            with at_rest(self._settings, self._table, self._name, self._clock) as require_rest:
                self._refuse_new_schema()
                for part in parts:
                    self._commit(part, report, require_rest)
        return report

    def _refuse_new_schema(self) -> None:
        if self._table.latest().schema.id != self._table.schema.id:
            raise RetryableError(
                "the schema of the table changed meanwhile", hint="run it again", table=self._name
            )

    def _commit(
        self, keys: pa.Table, report: RepairReport, require_rest: Callable[[], None]
    ) -> None:
        attempt = 0
        while True:
            attempt += 1
            draft = RepairReport(dry_run=False)
            change = self._change(keys, draft)
            try:
                if change.rows.num_rows:
                    report.snapshots.append(self._write(change, require_rest))
                break
            except CommitConflictError:
                if attempt == _ATTEMPTS:
                    raise
        report.filtered += draft.filtered
        report.unrepaired += draft.unrepaired
        self._count(change, report)
        self._check_result(change, report)

    def _write(self, change: "_Change", require_rest: Callable[[], None]) -> int:
        """Write and commit rows; the snapshot."""
        user = f"{self._stream}.repair-{self._table.ids.uuid()}"
        with self._table.new_write(user) as write:
            for batch in change.rows.combine_chunks().to_batches():
                write.write(batch)
            messages = write.prepare_commit()
        with discarded_on(self._table, messages, NOT_COMMITTED):
            result = self._table.new_commit(user).commit(
                messages,
                BATCH_COMMIT_IDENTIFIER,
                before_publish=functools.partial(self._check, user, change.base, require_rest),
            )
        return result.append_snapshot_id or 0

    def _check(
        self,
        user: str,
        base: int | None,
        require_rest: Callable[[], None],
        latest: Snapshot | None,
    ) -> None:
        """Refuse to publish on a snapshot that another writer committed after the lake was read.

        If the rows are published already and only their compaction is pending, it is allowed.

        Raises:
            CommitConflictError: there is such a snapshot; nothing was committed.
        """
        newest = 0 if latest is None else latest.id
        snapshots = [self._table.snapshots.read(i) for i in range((base or 0) + 1, newest + 1)]
        if any(snapshot.commit_user == user for snapshot in snapshots):
            return
        for snapshot in snapshots:
            if snapshot.commit_kind in (CommitKind.APPEND, CommitKind.OVERWRITE):
                raise CommitConflictError(
                    "the table was written meanwhile", table=self._name, snapshot=snapshot.id
                )
        require_rest()

    def _count(self, change: _Change, report: RepairReport) -> None:
        report.upserts += change.expected.num_rows
        report.deletes += change.rows.num_rows - change.expected.num_rows

    def _check_result(self, change: _Change, report: RepairReport) -> None:
        """Count the keys of which the table now has other rows than were written."""
        self._lake_side.refresh()
        stored = self._living(self._stored_rows(change.keys))
        wrong = differing_keys(change.expected, stored)
        if wrong:
            report.unrepaired["the table's own order of rows kept another row"] += len(wrong)

    # --- the rows

    def _change(self, keys: pa.Table, report: RepairReport) -> _Change:
        """The rows to write for the keys of which the sides still differ."""
        self._lake_side.refresh()
        self._lake.snapshot_id = self._lake_side.snapshot_id
        differing = differing_keys(
            rows_of_keys(self._source, self._columns, keys),
            rows_of_keys(self._lake, self._columns, keys),
        )
        keys = first_rows(keys, np.array(list(differing), np.uint64))
        stored = self._stored_rows(keys)
        fresh = rows_of_keys(self._fresh, self._read, keys)
        excluded = _Excluded(report.unrepaired)
        excluded.add("a value does not fit the lake's type", _keys_where(fresh, UNFIT))
        hashes = np.asarray(fresh.column(KEY_HASH))
        values, counts = np.unique(hashes, return_counts=True)
        excluded.add("the source has several rows with the key", values[counts > 1])
        fresh = excluded.without(fresh)
        upserts = self._transformed(fresh, stored, excluded, report)
        stored = excluded.without(stored)
        retracted = self._retracted(stored, upserts)
        rows = pa.concat_tables([retracted, upserts.cast(retracted.schema)])
        whole = upserts.select(self._all_columns.schema.names).cast(self._all_columns.schema)
        parts = [hashed(batch, self._all_columns) for batch in whole.combine_chunks().to_batches()]
        expected = pa.Table.from_batches(parts, schema=hashed_schema(self._all_columns))
        return _Change(rows, expected, excluded.without(keys), self._lake_side.snapshot_id)

    def _stored_rows(self, keys: pa.Table) -> pa.Table:
        return rows_of_keys(self._lake_side, self._all_columns, keys)

    def _transformed(
        self, fresh: pa.Table, stored: pa.Table, excluded: "_Excluded", report: RepairReport
    ) -> pa.Table:
        """Transform rows of the source to rows of the table, as the pipeline does.

        Returns:
            Columns of the table and `_VALUE_KIND`.
        """
        decode = self._transform.decode_schema
        before = pc.index_in(fresh.column(KEY_HASH), value_set=stored.column(KEY_HASH))
        before = before.combine_chunks()
        unknown = np.zeros(fresh.num_rows, bool)
        arrays: list[pa.Array] = []
        for field in decode.arrow_schema:
            reason = self._absent.get(field.name)
            if reason is None:
                column = fresh.column(field.name).combine_chunks()
            else:  # the pipeline cannot read it from the source either: keep the stored value
                column = pa.nulls(fresh.num_rows, field.type)
                if field.name in stored.column_names:
                    column = stored.column(field.name).combine_chunks().take(before)
                new = np.asarray(pc.is_null(before))
                if reason != NOT_IN_SOURCE:
                    unknown |= new
                if not field.nullable:
                    unknown |= np.asarray(pc.is_null(column))
            arrays.append(column)
        inserts = pa.scalar(int(RowKind.INSERT), pa.int8())
        kinds = pc.if_else(
            pc.is_null(before), inserts, pa.scalar(int(RowKind.UPDATE_AFTER), pa.int8())
        )
        hashes = np.asarray(fresh.column(KEY_HASH))
        excluded.add("a column has no rule by which it is read from the source", hashes[unknown])
        offsets = pa.array(np.arange(fresh.num_rows, dtype=np.int64))
        rows = pa.RecordBatch.from_arrays(
            [*arrays, kinds, offsets], names=[*decode.field_names, VALUE_KIND, OFFSET_COLUMN]
        ).filter(pa.array(~unknown))
        origin = pa.RecordBatch.from_arrays(
            [pa.array(["r"] * rows.num_rows, pa.string())], schema=origin_schema(["op"])
        )
        result = self._transform.apply(rows, origin, now_ms=self._clock.now_ms())
        if len(result.failed):
            positions = np.asarray(rows.column(OFFSET_COLUMN))
            excluded.add("a transform has no result", hashes[positions[result.failed]])
        output = pa.Table.from_batches([result.rows])
        mask = pc.is_in(output.column(VALUE_KIND), pa.array(list(map(int, _CHANGES)), pa.int8()))
        report.filtered += output.num_rows - pc.sum(mask).as_py() if output.num_rows else 0
        return output.filter(mask).drop_columns([OFFSET_COLUMN])

    def _retracted(self, stored: pa.Table, new_rows: pa.Table) -> pa.Table:
        """Stored rows whose primary key no new row has, as deletes."""
        stored = self._living(stored).select(self._table.schema.field_names)
        keys = self._table.schema.primary_keys
        old, new = (_hashes_of(rows, keys) for rows in (stored, new_rows))
        stored = stored.filter(pa.array(~np.isin(old, new)))
        kind = RowKind.DELETE
        if self._rule.soft_delete:
            kind = RowKind.UPDATE_AFTER
            at = stored.schema.get_field_index(self._rule.deleted_column)
            deleted = pa.array([True] * stored.num_rows, pa.bool_())
            stored = stored.set_column(at, stored.schema.field(at), deleted)
        kinds = pa.array([int(kind)] * stored.num_rows, pa.int8())
        schema = pa.schema([*self._table.schema.arrow_schema, new_rows.schema.field(VALUE_KIND)])
        return pa.Table.from_arrays([*stored.columns, kinds], schema=schema)

    def _living(self, stored: pa.Table) -> pa.Table:
        """Rows without those that are marked as deleted."""
        if not self._rule.soft_delete:
            return stored
        deleted = pc.fill_null(stored.column(self._rule.deleted_column), False)
        return stored.filter(pc.invert(deleted))


@dataclasses.dataclass(slots=True, eq=False)
class _Excluded:
    """Keys that are not repaired.

    Attributes:
        counts: of them by reason.
        keys: their hashes.
    """

    counts: Counter[str]
    keys: Hashes = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, reason: str, keys: Hashes) -> None:
        """Leave keys out."""
        new = np.setdiff1d(keys, self.keys)
        if len(new):
            self.counts[reason] += len(new)
            self.keys = np.union1d(self.keys, new)

    def without(self, rows: pa.Table) -> pa.Table:
        """Rows of other keys."""
        return rows.filter(pa.array(~np.isin(np.asarray(rows.column(KEY_HASH)), self.keys)))


def _keys_where(rows: pa.Table, column: str) -> Hashes:
    """Hashes of keys of rows in which a column is not null."""
    return np.asarray(rows.filter(pc.is_valid(rows.column(column))).column(KEY_HASH))


def _hashes_of(rows: pa.Table, names: Sequence[str]) -> Hashes:
    hashes = [column_hashes(rows.column(name).combine_chunks()) for name in names]
    return combined_hashes(hashes, rows.num_rows)
