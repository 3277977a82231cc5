# SPDX-License-Identifier: Apache-2.0
"""Row events of any JSON format to change batches: the common engine of all formats.

1. Events with known layouts are walked by compiled code (`layout`), many at once.
2. A dialect parses the envelopes of the others (`envelopes`). Row images of one shape are then
   decoded with a generated msgspec struct and converted by column. Layouts are learned from events
   that yielded rows here, or that have the columns found so far of a table that does not exist.
   Without compiled code all events take this path.
3. Events refused there take the reference path (`single_event`) one by one: it decides.

A record with several rows (Canal) is applied completely or not at all.

If a column missing in an update means "unchanged" (`DialectOptions.missing_columns`), it is a value
that the source did not send, like PostgreSQL's TOAST placeholder: `Target.toast` determines its
handling.

Error classes of bad records: as `debezium_json`.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from ingest.compiled.loading import scanner
from ingest.decode.columns import (
    MemberReader,
    OriginReader,
    RequestedOrigins,
    RowPlan,
    decode_all,
    folded,
    is_value,
    metadata_column,
)
from ingest.decode.events import (
    MEMBERS,
    NULL,
    PARSE_ERRORS,
    BadRecord,
    DecodeResult,
    EventRefusedError,
    Resolver,
    SourceTable,
    Toast,
    split_message,
)
from ingest.decode.json.envelopes import Dialect, Event, Image
from ingest.decode.json.layout import Layouts, WalkedRows
from ingest.decode.json.single_event import (
    SingleRow,
    Tokens,
    UncoveredError,
    before_tokens,
    blames_columns,
    decode_images,
    key_tokens,
    named_by_key,
    no_old_key,
    row_image,
)
from ingest.decode.outcome import (
    ConvertedRows,
    KeyColumns,
    OldKeys,
    Outcome,
    convert_columns,
    convert_marked,
    json_keys,
    new_rows_lacking,
)
from ingest.decode.schema_change_events import JsonValue, plain_value
from ingest.decode.shapes import Fate, FreshShapes, Shape
from ingest.decode.types.conversions import Placeholder
from ingest.decode.types.semantic_types import ProducerFacts
from ingest.source.records import RawBatch
from storage.errors import InternalError

_NAMED: Mapping[str, Callable[[Event], str | None]] = {
    "op": lambda event: event.images[0].op,
    "server": lambda event: event.source.server or None,
    "database": lambda event: event.source.database or None,
    "schema": lambda event: event.source.schema or None,
    "table": lambda event: event.source.table,
}


class DialectOrigins:
    """See the module; an `metadata_columns.OriginReader`."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._readers: dict[tuple[str, ...], MemberReader] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `metadata_columns.OriginReader`."""
        members = tuple(name for name in names if name not in _NAMED)
        if members not in self._readers:
            self._readers[members] = MemberReader(self._dialect.members, members)
        cut = self._dialect.metadata_text
        messages = [
            None if (value := raw.values[at]) is None else cut(raw.topic, value) for at in places
        ]
        columns = self._readers[members].columns(messages)
        event_names = [name for name in names if name in _NAMED]
        if event_names:
            read = self._dialect.read
            events = [read(raw.topic, raw.keys[at], raw.values[at]) for at in places]
            for name in event_names:
                get = _NAMED[name]
                values = [get(event) if isinstance(event, Event) else None for event in events]
                columns[name] = metadata_column(name, values)
        return columns


_CHUNK = 2_000
"""Events whose structs are alive at once: 1,000-5,000 measured best (PEERS.md §3), by cache."""

_WALKED_CHUNK = 8_000
"""Events that are walked at once."""

_FIRST_CHUNK = 200
"""Events of a new topic that are decoded without the scan, to learn layouts."""

_MAX_WALKED = 8
"""Shapes of one topic with learned layouts: every event may be compared with all of them."""

_MAX_SHAPES = 4_096
"""Shapes of one topic; far above any number of table versions, to bound memory."""

_NO_ROWS = np.empty(0, np.int64)


class EnvelopeDecoder:
    """Decodes raw batches of one format; caches shapes between calls.

    Args:
        dialect: of the format.
        resolve: source table and topic to target; called once per shape and call of `decode`.

    Attributes:
        origins: reads metadata of records.
        key_columns: column names of a record's key.
        json_value: a record's value as a JSON message; None if it has none.
    """

    key_columns: Final[KeyColumns] = staticmethod(json_keys)
    json_value: Final[JsonValue] = staticmethod(plain_value)

    def __init__(self, dialect: Dialect, resolve: Resolver) -> None:
        self._dialect = dialect
        self.origins: OriginReader = dialect.origins() or DialectOrigins(dialect)
        self._resolve = RequestedOrigins(resolve)
        self._placeholder = Placeholder(dialect.options.unavailable_value_placeholder)
        self._shapes: dict[str, dict[tuple[SourceTable, bytes, bool], Shape]] = {}
        self._layouts: dict[str, list[tuple[Shape, Layouts]]] = {}

    def decode(self, raw: RawBatch, old_key: OldKeys | None = None) -> DecodeResult:
        """Decode records of one topic and partition.

        Args:
            raw: in offset order.
            old_key: returns the previous key of a record's new row; None: the records contain it.

        Returns:
            Every record exactly once: as rows, a count, a bad record or pending a delta.

        Cost: 0.5-1 us a row event of 600 bytes that is walked, 2-4 us any other; a bad record
        50-200 us.
        """
        fresh = FreshShapes(self._resolve, raw.topic)
        result = _Decoding(self, self._dialect, self._placeholder, fresh, raw, old_key).run()
        return self._resolve.filled(result, raw, self.origins)

    def truncated(self, raw: RawBatch, at: int) -> SourceTable | None:
        """The table of a record counted as `op.t`; None for any other record."""
        value = raw.value(at)
        try:
            return None if value is None else self._dialect.truncated(value)
        except EventRefusedError:
            return None

    @property
    def facts(self) -> ProducerFacts:
        """The producer's facts about values."""
        return self._dialect.facts

    @property
    def key_is_row(self) -> bool:
        """Whether the members of Kafka keys are the columns of the primary key."""
        return self._dialect.key_is_row

    def operation(self, topic: str, record: BadRecord) -> str:
        """Name of the count of a record that yielded rows, for callers that remove the rows."""
        event = self._dialect.read(topic, record.key, record.value)
        return event if isinstance(event, str) else f"op.{event.images[0].op}"

    def shape(self, topic: str, event: Event) -> Shape:
        """The shape of an event, created on first use.

        Raises:
            EventRefusedError: the event's description of its types cannot be parsed.
        """
        shapes = self._shapes.setdefault(topic, {})
        key = (event.source, event.types, event.of_key and bool(event.types))
        shape = shapes.get(key)
        if shape is None:
            if len(shapes) >= _MAX_SHAPES:
                shapes.clear()
                self._layouts.pop(topic, None)
            shape = shapes[key] = self._dialect.shape(event)
        return shape

    def known_layouts(self, topic: str) -> Sequence[tuple[Shape, Layouts]]:
        """Layouts of a topic's events, those of the most recent shape first."""
        return self._layouts.get(topic, ())

    def layouts(self, topic: str, shape: Shape, plan: RowPlan) -> Layouts:
        """Layouts of a shape and its plan, created on first use."""
        cached = self._layouts.setdefault(topic, [])
        for candidate, layouts in cached:
            if candidate is shape and layouts.plan is plan:
                return layouts
        older = [pair for pair in cached if pair[0] is not shape]
        layouts = Layouts(plan, self._dialect.anatomy, partial=self._dialect.partial_updates)
        self._layouts[topic] = [(shape, layouts), *older][:_MAX_WALKED]
        return layouts


class _Decoding:
    """One call of `decode`."""

    def __init__(
        self,
        decoder: EnvelopeDecoder,
        dialect: Dialect,
        placeholder: Placeholder,
        fresh: FreshShapes,
        raw: RawBatch,
        old_key: OldKeys | None,
    ) -> None:
        self._decoder = decoder
        self._dialect = dialect
        self._placeholder = placeholder
        self._unsent_token = msgspec.json.encode(dialect.options.unavailable_value_placeholder)
        self._raw = raw
        self._outcome = Outcome(raw)
        self._fresh = fresh
        self._old_key = dialect.old_keys(raw) if old_key is None else old_key
        self._scan = scanner(len(raw))

    def run(self) -> DecodeResult:
        start, end = 0, len(self._raw)
        while start < end:
            size = _CHUNK
            if self._scan is not None:
                layouts = self._decoder.known_layouts(self._raw.topic)
                size = _WALKED_CHUNK if layouts else _FIRST_CHUNK
            self._chunk(start, min(start + size, end))
            start += size
        return self._outcome.finish()

    def _chunk(self, start: int, end: int) -> None:
        positions: Sequence[int] = range(start, end)
        if self._scan is not None and self._decoder.known_layouts(self._raw.topic):
            filled, nulls = self._raw.with_value(start, end)
            positions = sorted([*self._walk(filled), *nulls])
        for at in range(0, len(positions), _CHUNK):
            self._events(positions[at : at + _CHUNK])

    def _walk(self, positions: Sequence[int]) -> Sequence[int]:
        """Decode events with known layouts; return the positions of the others, ascending."""
        for shape, layouts in list(self._decoder.known_layouts(self._raw.topic)):
            plan = layouts.plan
            walked = np.zeros(len(positions), bool)
            for rows in layouts.walk(self._scan, self._raw.payloads, positions):
                if not len(rows):
                    continue
                if self._plan_in_use(self._fresh.of(shape)) is not plan:
                    break  # layouts of the new plan are learned from its first events
                indices, owners = rows.events, np.arange(len(rows))
                if layouts.anatomy.is_array:
                    firsts = rows.firsts
                    indices, owners = rows.events[firsts], np.cumsum(firsts) - 1
                places = positions
                if len(indices) < len(positions):
                    places = [positions[index] for index in indices.tolist()]
                if shape.fate is Fate.PENDING:
                    odd = self._withhold_walked(shape, plan, places, owners, rows)
                else:
                    converted = convert_columns(plan, len(rows), rows.column, self._placeholder)
                    odd = self._add(plan, places, owners, rows.ops, rows.stamps, converted)
                walked[indices] = True
                walked[indices[odd]] = False
            if walked.any():
                self._outcome.walked += int(walked.sum())
                positions = [positions[index] for index in np.flatnonzero(~walked).tolist()]
            if not positions:
                break
        return positions

    def _plan_in_use(self, shape: Shape) -> RowPlan | None:
        """The plan by which events of a shape can be walked."""
        if shape.fate is Fate.ROWS:
            return shape.plan
        walked = shape.fate is Fate.PENDING and shape.knows_key and not self._dialect.asks_table
        return shape.waiting_plan if walked else None

    def _withhold_walked(
        self,
        shape: Shape,
        plan: RowPlan,
        places: Sequence[int],
        owners: np.ndarray,
        rows: WalkedRows,
    ) -> list[int]:
        """Withhold events whose columns are known; return the indices of the others."""
        refused: set[int] = set()
        for number, column in enumerate(plan.columns):
            if column.codec is not None and not shape.has_declared_types:
                rows.column(number, column.codec, refused)
        odd = {int(owners[row]) for row in refused}
        self._outcome.withhold(shape, [at for i, at in enumerate(places) if i not in odd])
        return sorted(odd)

    def _events(self, positions: Sequence[int]) -> None:
        raw, read = self._raw, self._dialect.read
        grouped: dict[int, tuple[Shape, list[int], list[Event]]] = {}
        source: SourceTable | None = None
        types, of_key = b"", False
        places: list[int] = []
        events: list[Event] = []
        keys, values = raw.keys, raw.values_for(len(positions))
        for at in positions:
            try:
                event = read(raw.topic, keys[at], values[at])
                if isinstance(event, str):
                    self._outcome.count(event)
                    continue
                if event.source is not source or event.types != types or event.of_key != of_key:
                    shape = self._fresh.of(self._decoder.shape(raw.topic, event))
                    _, places, events = grouped.setdefault(id(shape), (shape, [], []))
                    source, types, of_key = event.source, event.types, event.of_key
            except EventRefusedError as error:
                self._outcome.refuse(at, error)
                continue
            places.append(at)
            events.append(event)
        for shape, places, events in grouped.values():
            self._group(shape, places, events)

    def _group(self, shape: Shape, places: list[int], events: list[Event]) -> None:
        if self._dialect.asks_table and shape.fate in (Fate.ROWS, Fate.PENDING):
            events = [self._with_table(shape, event) for event in events]
        if shape.fate is Fate.ROWS:
            odd = self._columns(shape, places, events)
            self._learn(shape, _plan_of(shape), places, odd)
            for index in odd:
                self._single(shape, places[index], events[index])
        elif shape.fate is Fate.UNROUTED:
            self._outcome.count("unrouted", len(places))
        elif shape.fate is Fate.PENDING:
            self._pending(shape, places, events)
        else:
            self._outcome.refuse_shape(shape, places)

    def _learn(
        self, shape: Shape, plan: RowPlan, places: Sequence[int], odd: Collection[int]
    ) -> None:
        """Learn layouts from events that fit a plan."""
        if self._scan is None or len(odd) == len(places):
            return
        layouts = self._decoder.layouts(self._raw.topic, shape, plan)
        odd_indices = set(odd)
        values = self._raw.values_for(len(places))
        samples = [at for index, at in enumerate(places) if index not in odd_indices]
        samples = [at for at in samples if values[at] is not None]
        layouts.learn(values, samples, functools.partial(self._dialect.prefix, self._raw.topic))

    def _with_table(self, shape: Shape, event: Event) -> Event:
        columns = () if shape.plan is None else shape.plan.index.keys()
        try:
            return self._dialect.with_table(event, shape.key_names, columns)
        except EventRefusedError:
            return event  # the reference path reports the error

    # --- events that the schema does not cover

    def _pending(self, shape: Shape, places: list[int], events: list[Event]) -> None:
        """Take events of a table that does not exist, or that waits for columns."""
        plan = shape.waiting_plan
        if plan is None or not shape.knows_key:
            odd = list(range(len(events)))
        else:
            odd = _unrecognised(plan, events)
            excluded = {*odd}
            self._outcome.withhold(shape, [at for i, at in enumerate(places) if i not in excluded])
            if plan is self._plan_in_use(shape):
                self._learn(shape, plan, places, odd)
        for index in odd:
            self._withhold(shape, places[index], events[index])

    def _withhold(self, shape: Shape, at: int, event: Event) -> None:
        """Count a row event that its target does not cover; add the schema change to request."""
        try:
            if not self._learn_key(shape, at, event):
                return
            if _recognises(shape.pending_plan, event):
                self._outcome.withhold(shape, [at])
                return
            if self._is_mistaken(shape, at):
                return
            if shape.block is None:
                rows = [_tokens(_new_row(image)) for image in event.images]
                for tokens in rows:
                    shape.learn_columns(shape.key_of(tokens) if event.of_key else tokens)
                if self._dialect.key_is_row:  # types of what the row has are not those of the key
                    given = {n for tokens in rows for n, token in tokens.items() if token != NULL}
                    key = shape.key_of(key_tokens(event.key))
                    shape.learn_columns({n: v for n, v in key.items() if n not in given})
            elif shape.has_open_types:
                for image in event.images:
                    shape.learn_widths(_tokens(_new_row(image)))
        except EventRefusedError as error:
            self._outcome.refuse(at, error, shape.target_name)
            return
        self._outcome.withhold(shape, [at])

    def _learn_key(self, shape: Shape, at: int, event: Event) -> bool:
        """Whether the key of a missing table is known; if not the record is bad."""
        if shape.knows_key:
            return True
        lacking = self._dialect.lacking_key(event)
        unknown = lacking and not shape.has_configured_key
        if unknown or not shape.learn_key(self._dialect.key_names(event)):
            self._outcome.refuse_keyless(shape, at, lacking)
            return False
        return True

    def _is_mistaken(self, shape: Shape, at: int) -> bool:
        """Refuse a record that does not fit the table's columns if it is not a row at all."""
        why = self._dialect.mistaken(self._raw.value(at))
        if why:
            self._outcome.refuse(at, EventRefusedError("envelope", why), shape.target_name)
        return bool(why)

    # --- rows

    def _columns(self, shape: Shape, places: list[int], events: list[Event]) -> list[int]:
        """The fast path. Returns the indices of events that it refuses, ascending."""
        plan = _plan_of(shape)
        owners = [index for index, event in enumerate(events) for _ in event.images]
        images = [image for event in events for image in event.images]
        texts = [_new_row(image) for image in images]
        rows, failed = decode_all(plan.decode_row, texts)
        odd = {owners[index] for index in failed}
        for index in failed:
            rows[index] = plan.empty_row
        if self._dialect.fills_keys:
            self._fill_keys(plan, rows, [events[owner].key for owner in owners])
        odd.update(
            owners[index]
            for index, image in enumerate(images)
            if (image.op == "u" and self._is_odd_update(plan, image, rows[index]))
            or (events[owners[index]].of_key and plan.has_values(rows[index]))
        )
        converted = convert_marked(plan, rows, self._placeholder)
        ops = "".join([image.op for image in images])
        stamps = [events[owner].ts_ms for owner in owners]
        unsent = self._unsent(plan, images)
        if unsent:
            unavailable = _united(converted.unavailable, unsent)
            converted = dataclasses.replace(converted, unavailable=unavailable)
        return self._add(plan, places, np.array(owners), ops, stamps, converted, odd)

    def _add(
        self,
        plan: RowPlan,
        places: Sequence[int],
        owners: np.ndarray,
        ops: str,
        stamps: Sequence[int | None] | np.ndarray,
        converted: ConvertedRows,
        odd: Collection[int] = (),
    ) -> list[int]:
        """Add the rows of events.

        Args:
            plan: of the rows.
            places: positions of the events.
            owners: of each row the index of its event, ascending.
            ops: of each row.
            stamps: of each row.
            converted: the rows.
            odd: indices of events to exclude.

        Returns:
            The indices of excluded events, ascending.
        """
        refused = [*converted.refused.tolist(), *new_rows_lacking(ops, converted.unavailable)]
        excluded = sorted({*odd, *owners[refused].tolist()}) if refused else sorted(odd)
        excluded_rows = np.flatnonzero(np.isin(owners, excluded)) if excluded else _NO_ROWS
        several = len(owners) > len(places)
        self._outcome.rows_of(plan).add_columns(
            converted.columns,
            ops,
            self._outcome.offsets([places[at] for at in owners.tolist()] if several else places),
            stamps,
            excluded_rows,
            converted.unavailable,
        )
        letters = np.delete(np.frombuffer(ops.encode(), np.uint8), excluded_rows)
        if several:
            events = np.delete(owners, excluded_rows)
            letters = letters[np.r_[True, events[1:] != events[:-1]]] if len(events) else letters
        for op in "crud":
            count = int(np.count_nonzero(letters == ord(op)))
            if count:
                self._outcome.count(f"op.{op}", count)
        return excluded

    def _fill_keys(self, plan: RowPlan, rows: list[Any], keys: Sequence[bytes | None]) -> None:
        """Add key columns that are only in the Kafka key, as in upsert streams."""
        for row, key in zip(rows, keys, strict=True):
            if not key or row is plan.empty_row or None not in [get(row) for get in plan.key_parts]:
                continue
            try:
                key_row = plan.decode_key(split_message(key).payload)
            except PARSE_ERRORS:
                continue  # the reference path reports the error
            for index, get in zip(plan.key, plan.key_parts, strict=True):
                if get(row) is None:
                    setattr(row, f"f{index}", get(key_row))

    def _is_odd_update(self, plan: RowPlan, image: Image, row: Any) -> bool:
        """Whether an update may change the key, or is refused: it takes the reference path."""
        strict = self._dialect.partial_updates and plan.target.toast is Toast.FAIL
        if strict and _lacking(plan, _names(image.after)):
            return True
        required = bool(plan.target.needs_before)
        if image.before is None:
            return required
        try:
            old = plan.decode_key(image.before)
        except PARSE_ERRORS:
            return True
        if required and None in [get(old) for get in plan.key_parts]:
            return True
        return any(get(old) not in (None, get(row)) for get in plan.key_parts)

    def _unsent(self, plan: RowPlan, images: Sequence[Image]) -> Mapping[int, np.ndarray]:
        """By column index the mask of rows that lack it because it is unchanged."""
        masks: dict[int, np.ndarray] = {}
        if not self._dialect.partial_updates or plan.target.toast is Toast.FAIL:
            return masks
        for index, image in enumerate(images):
            for name in _lacking(plan, _names(image.after)) if image.op == "u" else ():
                mask = masks.setdefault(plan.index[name], np.zeros(len(images), bool))
                mask[index] = True
        return masks

    def _single(self, shape: Shape, at: int, event: Event) -> None:
        """The reference path."""
        if self._dialect.partial_updates:  # a null under another spelling is not a missing column
            shape.learn_names(_all_tokens(event), self._placeholder)
        plan = _plan_of(shape)
        if _recognises(shape.pending_plan, event, plan):
            self._outcome.withhold(shape, [at])
            return
        try:
            rows = [row for image in event.images for row in self._rows(plan, at, event, image)]
        except (UncoveredError, EventRefusedError) as error:
            if self._is_mistaken(shape, at):
                return
            tokens = _all_tokens(event) if blames_columns(error) else {}
            if self._outcome.untaken(shape, at, error, tokens, self._placeholder):
                self._single(shape, at, event)
            return
        for row in rows:
            self._outcome.rows_of(plan).add_single(self._raw.offsets[at], row)
        self._outcome.count(f"op.{event.images[0].op}")
        for image in event.images:
            with contextlib.suppress(EventRefusedError):  # of a delete only the key may be valid
                tokens = _tokens(_new_row(image))
                shape.learn_nulls(tokens)
                shape.learn_values(tokens)

    def _rows(self, plan: RowPlan, at: int, event: Event, image: Image) -> list[SingleRow]:
        dialect = self._dialect
        key = event.key if dialect.key_is_row else None
        before: Tokens = {}
        if image.before is not None:
            before = before_tokens(plan, image.op, image.before)
        if event.of_key:
            before = {name: before[name] for name in plan.key_names if name in before}
        after: Tokens = {}
        if image.op != "d":
            if image.after is None:
                raise EventRefusedError("envelope", f"op {image.op} without after")
            after = _tokens(image.after)
            if image.op == "u" and dialect.partial_updates:
                after = self._completed(plan, after)
            if dialect.fills_keys:
                after = _with_key(plan, after, key)
            if before and not dialect.whole_before:
                before = {**after, **before}
        old_key = no_old_key if self._old_key is None else functools.partial(self._old_key, at)
        ts_ms, placeholder = event.ts_ms, self._placeholder
        return decode_images(plan, image.op, before, after, key, ts_ms, placeholder, old_key)

    def _completed(self, plan: RowPlan, after: Tokens) -> Tokens:
        """A row with placeholders for columns that the update lacks."""
        lacking = _lacking(plan, after)
        if lacking and plan.target.toast is Toast.FAIL:
            raise EventRefusedError(
                "unavailable_value",
                f"the update does not carry column {', '.join(lacking)}, which may be unchanged: "
                "have the producer send whole rows, or set missing columns to null",
            )
        return {**after, **dict.fromkeys(lacking, self._unsent_token)} if lacking else after


def _united(
    masks: Mapping[int, np.ndarray], other_masks: Mapping[int, np.ndarray]
) -> Mapping[int, np.ndarray]:
    """The union of masks by column."""
    if not other_masks:
        return masks
    return {**masks, **{n: mask | masks.get(n, False) for n, mask in other_masks.items()}}


def _plan_of(shape: Shape) -> RowPlan:
    if shape.plan is None:
        raise InternalError("a shape without plan")
    return shape.plan


def _tokens(text: bytes | None) -> Tokens:
    return {} if text is None else row_image(text, "the row")


def _all_tokens(event: Event) -> Tokens:
    """Columns of all rows of an event, each with the value of one row."""
    values: dict[str, bytes] = {}
    for image in event.images:
        try:
            tokens = _tokens(_new_row(image))
        except EventRefusedError:  # the event was already refused for another of its rows
            continue
        values.update({n: token for n, token in tokens.items() if token != NULL or n not in values})
    return values


def _with_key(plan: RowPlan, tokens: Tokens, key: bytes | None) -> Tokens:
    lacking = [name for name in plan.key_names if tokens.get(name, NULL) == NULL]
    if not lacking or key is None:
        return tokens
    key_tokens = named_by_key(plan, key)
    return {**tokens, **{name: key_tokens[name] for name in lacking if name in key_tokens}}


def _names(text: bytes | None) -> set[str]:
    try:
        return set() if text is None else set(MEMBERS.decode(text))
    except PARSE_ERRORS:
        return set()


def _lacking(plan: RowPlan, names: "set[str] | Tokens") -> list[str]:
    """Columns that the shape has and the row lacks; key columns have separate rules.

    A row may spell the name of a column differently from other rows.
    """
    return [
        column.member
        for number, column in enumerate(plan.columns)
        if column.codec is not None
        and column.member not in names
        and (column.name not in names or column.name in plan.index)
        and number not in plan.key
    ]


def _recognises(plan: RowPlan | None, event: Event, table_plan: RowPlan | None = None) -> bool:
    """Whether a plan that yields no rows has all of an event's columns.

    Args:
        plan: learned from earlier events.
        table_plan: the table's; rows must have keys, and a value for what it has in no spelling.
    """
    if plan is None or _unrecognised(plan, [event]):
        return False
    if table_plan is None:
        return True
    new = [
        get
        for column, get in zip(plan.columns, plan.getters, strict=True)
        if folded(column.member) not in table_plan.folded_names
    ]
    rows, _ = decode_all(plan.decode_row, [_new_row(image) for image in event.images])
    if event.of_key or not all(is_value(get(row)) for row in rows for get in plan.key_parts):
        return False
    return any(is_value(get(row)) for row in rows for get in new)


def _unrecognised(plan: RowPlan, events: Sequence[Event]) -> list[int]:
    """Indices of events with columns or values that a plan lacks, ascending."""
    images = [(index, image) for index, event in enumerate(events) for image in event.images]
    rows, failed = decode_all(plan.decode_row, [_new_row(image) for _, image in images])
    odd = {images[at][0] for at in failed}
    if plan.numbers:
        rows_of = zip(images, rows, strict=True)
        odd.update(i for (i, _), row in rows_of if row and not plan.holds_numbers(row))
    updates = [(i, image.before) for i, image in images if image.op == "u" and image.before]
    _, failed = decode_all(plan.decode_row, [before for _, before in updates])
    odd.update(updates[at][0] for at in failed)
    return sorted(odd)


def _new_row(image: Image) -> bytes | None:
    return image.before if image.op == "d" else image.after
