# SPDX-License-Identifier: Apache-2.0
"""Row events of any JSON format to change batches: the one engine of all formats.

1. Events whose layout is known are walked by compiled code (`layout`), many at once.
2. Of the others a dialect takes the envelopes apart (`envelopes`). Row images of one shape are
   then decoded with a generated msgspec struct and converted by the column. Layouts are learned
   from what gave rows here. Where there is no compiled code, all events come here.
3. What that refuses goes alone through the reference path (`single_event`): it has the last word.

A record with several rows (Canal) is used whole or not at all.

Where a column that an update lacks means "unchanged" (`DialectOptions.missing_columns`), it is a
value that the source did not send, as PostgreSQL's TOAST placeholder is: `Target.toast` says what
becomes of it.

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

from ingest.decode.decode_plan import RowPlan, decode_all, is_value
from ingest.decode.events import (
    BadRecord,
    DecodeResult,
    EventRefusedError,
    Resolver,
    SourceTable,
    Toast,
)
from ingest.decode.json.envelopes import Dialect, Event, Image
from ingest.decode.json.layout import Layouts
from ingest.decode.json.member_columns import MemberReader, metadata_column
from ingest.decode.json.scanning import scanner
from ingest.decode.json.schema_block import split_message
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
from ingest.decode.key_check import KeyColumns, OldKeys, json_keys
from ingest.decode.metadata_columns import OriginReader, RequestedOrigins
from ingest.decode.outcome import (
    ConvertedRows,
    Outcome,
    convert_columns,
    convert_marked,
    new_rows_lacking,
)
from ingest.decode.schema_change_events import JsonValue, plain_value
from ingest.decode.shapes import Fate, FreshShapes, Shape
from ingest.decode.types.semantic_types import ProducerFacts
from ingest.decode.types.token_values import MEMBERS, NULL, PARSE_ERRORS
from ingest.decode.types.unavailable import Placeholder
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
        wanted = tuple(name for name in names if name not in _NAMED)
        if wanted not in self._readers:
            self._readers[wanted] = MemberReader(self._dialect.members, wanted)
        cut = self._dialect.metadata_text
        messages = [
            None if (value := raw.values[at]) is None else cut(raw.topic, value) for at in places
        ]
        found = self._readers[wanted].columns(messages)
        named = [name for name in names if name in _NAMED]
        if named:
            read = self._dialect.read
            events = [read(raw.topic, raw.keys[at], raw.values[at]) for at in places]
            for name in named:
                get = _NAMED[name]
                values = [get(event) if isinstance(event, Event) else None for event in events]
                found[name] = metadata_column(name, values)
        return found


_CHUNK = 2_000
"""Events whose structs are alive at once: 1,000-5,000 measured best (PEERS.md §3), by cache."""

_WALKED_CHUNK = 8_000
"""Events that are walked at once."""

_FIRST_CHUNK = 200
"""Events of a new topic that are decoded without the scan, so that layouts can be learned."""

_MAX_WALKED = 8
"""Shapes of one topic whose layouts are learned: every event may be compared with all of them."""

_MAX_SHAPES = 4_096
"""Shapes of one topic; far above any number of table versions, so that memory stays bounded."""

_NO_ROWS = np.empty(0, np.int64)


class EnvelopeDecoder:
    """Decodes raw batches of one format; keeps the shapes it has seen between calls.

    Args:
        dialect: of the format.
        resolve: source table and topic to target; called once per shape and call of `decode`.

    Attributes:
        origins: reads metadata of records.
        key_columns: column names of a record's key.
        json_value: a record's value as a JSON message; None when it has none.
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
            old_key: says what key the new row of a record had before; None: the records say it.

        Returns:
            Every record exactly once: as rows, a count, a bad record or behind a delta.

        Cost: 0.5-1 us a row event of 600 bytes that is walked, 2-4 us another one; a bad record
        50-200 us.
        """
        fresh = FreshShapes(self._resolve, raw.topic)
        result = _Decoding(self, self._dialect, self._placeholder, fresh, raw, old_key).run()
        return self._resolve.filled(result, raw, self.origins)

    def truncated(self, raw: RawBatch, at: int) -> SourceTable | None:
        """The table that a record counted as `op.t` is about; None of any other record."""
        value = raw.values[at]
        try:
            return None if value is None else self._dialect.truncated(value)
        except EventRefusedError:
            return None

    @property
    def facts(self) -> ProducerFacts:
        """What values mean."""
        return self._dialect.facts

    @property
    def key_is_row(self) -> bool:
        """Whether the members of Kafka keys are the columns of the primary key."""
        return self._dialect.key_is_row

    def operation(self, topic: str, record: BadRecord) -> str:
        """The name under which a record that gave rows was counted, for who takes the rows out."""
        event = self._dialect.read(topic, record.key, record.value)
        return event if isinstance(event, str) else f"op.{event.images[0].op}"

    def shape(self, topic: str, event: Event) -> Shape:
        """The shape of an event, made on first sight.

        Raises:
            EventRefusedError: the event's description of its types is not understood.
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
        """Layouts of a topic's events, those of the last learned shape first."""
        return self._layouts.get(topic, ())

    def layouts(self, topic: str, shape: Shape, plan: RowPlan) -> Layouts:
        """Of a shape and its plan, made on first sight."""
        known = self._layouts.setdefault(topic, [])
        for other, layouts in known:
            if other is shape and layouts.plan is plan:
                return layouts
        others = [pair for pair in known if pair[0] is not shape]
        layouts = Layouts(plan, self._dialect.anatomy, partial=self._dialect.partial_updates)
        self._layouts[topic] = [(shape, layouts), *others][:_MAX_WALKED]
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
                known = self._decoder.known_layouts(self._raw.topic)
                size = _WALKED_CHUNK if known else _FIRST_CHUNK
            self._chunk(start, min(start + size, end))
            start += size
        return self._outcome.finish()

    def _chunk(self, start: int, end: int) -> None:
        positions: Sequence[int] = range(start, end)
        if self._scan is not None and self._decoder.known_layouts(self._raw.topic):
            filled = self._raw.with_value(start, end)
            nulls = () if len(filled) == len(positions) else {*positions} - {*filled}
            positions = sorted([*self._walk(filled), *nulls])
        for at in range(0, len(positions), _CHUNK):
            self._events(positions[at : at + _CHUNK])

    def _walk(self, positions: Sequence[int]) -> Sequence[int]:
        """Take events whose layout is known; returns the positions of the others, ascending."""
        for shape, layouts in list(self._decoder.known_layouts(self._raw.topic)):
            plan = layouts.plan
            taken = np.zeros(len(positions), bool)
            for rows in layouts.walk(self._scan, self._raw.payloads, positions):
                if not len(rows):
                    continue
                if self._fresh.of(shape).fate is not Fate.ROWS or shape.plan is not plan:
                    break  # layouts of the new plan are learned from its first events
                indices, owners = rows.events, np.arange(len(rows))
                if layouts.anatomy.is_array:
                    firsts = rows.firsts
                    indices, owners = rows.events[firsts], np.cumsum(firsts) - 1
                places = positions
                if len(indices) < len(positions):
                    places = [positions[index] for index in indices.tolist()]
                converted = convert_columns(plan, len(rows), rows.column, self._placeholder)
                odd = self._add(plan, places, owners, rows.ops, rows.stamps, converted)
                taken[indices] = True
                taken[indices[odd]] = False
            if taken.any():
                self._outcome.walked += int(taken.sum())
                positions = [positions[index] for index in np.flatnonzero(~taken).tolist()]
            if not positions:
                break
        return positions

    def _events(self, positions: Sequence[int]) -> None:
        raw, read = self._raw, self._dialect.read
        grouped: dict[int, tuple[Shape, list[int], list[Event]]] = {}
        source: SourceTable | None = None
        types, of_key = b"", False
        places: list[int] = []
        events: list[Event] = []
        keys, values = raw.keys, raw.values
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
            self._learn(shape, places, odd)
            for index in odd:
                self._single(shape, places[index], events[index])
        elif shape.fate is Fate.UNROUTED:
            self._outcome.count("unrouted", len(places))
        elif shape.fate is Fate.PENDING:
            for at, event in zip(places, events, strict=True):
                self._withhold(shape, at, event)
        else:
            self._outcome.refuse_shape(shape, places)

    def _learn(self, shape: Shape, places: Sequence[int], odd: Sequence[int]) -> None:
        """Learn layouts from events that gave rows."""
        plan = _plan_of(shape)
        if self._scan is None or len(odd) == len(places):
            return
        layouts = self._decoder.layouts(self._raw.topic, shape, plan)
        left = set(odd)
        values = self._raw.values
        taken = [at for index, at in enumerate(places) if index not in left]
        taken = [at for at in taken if values[at] is not None]
        layouts.learn(values, taken, functools.partial(self._dialect.prefix, self._raw.topic))

    def _with_table(self, shape: Shape, event: Event) -> Event:
        columns = () if shape.plan is None else shape.plan.index.keys()
        try:
            return self._dialect.with_table(event, shape.key_names, columns)
        except EventRefusedError:
            return event  # the reference path says what is wrong

    # --- what the schema does not cover

    def _withhold(self, shape: Shape, at: int, event: Event) -> None:
        """Count a row event whose target does not cover it; note the schema change to request."""
        try:
            if not self._learn_key(shape, at, event):
                return
            if _recognises(shape.pending_plan, event):
                self._outcome.withhold(shape, at)
                return
            if self._is_mistaken(shape, at):
                return
            if shape.block is None:
                for image in event.images:
                    tokens = _tokens(image.before if image.op == "d" else image.after)
                    shape.learn_columns(shape.key_of(tokens) if event.of_key else tokens)
                if self._dialect.key_is_row:
                    shape.learn_columns(shape.key_of(key_tokens(event.key)))
            elif shape.has_open_types:
                for image in event.images:
                    shape.learn_widths(_tokens(image.before if image.op == "d" else image.after))
        except EventRefusedError as error:
            self._outcome.refuse(at, error, shape.target_name)
            return
        self._outcome.withhold(shape, at)

    def _learn_key(self, shape: Shape, at: int, event: Event) -> bool:
        """Whether the key of a table that does not exist is known; if not the record is bad."""
        if shape.knows_key:
            return True
        lacking = self._dialect.lacking_key(event)
        unknown = lacking and not shape.has_configured_key
        if unknown or not shape.learn_key(self._dialect.key_names(event)):
            self._outcome.refuse_keyless(shape, at, lacking)
            return False
        return True

    def _is_mistaken(self, shape: Shape, at: int) -> bool:
        """Refuse a record that the table's columns do not take if it is no row at all."""
        why = self._dialect.mistaken(self._raw.values[at])
        if why:
            self._outcome.refuse(at, EventRefusedError("envelope", why), shape.target_name)
        return bool(why)

    # --- rows

    def _columns(self, shape: Shape, places: list[int], events: list[Event]) -> list[int]:
        """The fast path. Returns the indices of events that it does not take, ascending."""
        plan = _plan_of(shape)
        owners = [index for index, event in enumerate(events) for _ in event.images]
        images = [image for event in events for image in event.images]
        texts = [image.before if image.op == "d" else image.after for image in images]
        rows, failed = decode_all(plan.decode_row, texts)
        odd = {owners[index] for index in failed}
        for index in failed:
            rows[index] = plan.empty_row
        if self._dialect.fills_keys:
            self._fill_keys(plan, rows, [events[owner].key for owner in owners])
        odd.update(
            owners[index]
            for index, image in enumerate(images)
            if image.op == "u" and self._is_odd_update(plan, image, rows[index])
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
            odd: indices of events that are to be left out.

        Returns:
            The indices of events that were left out, ascending.
        """
        refused = [*converted.refused.tolist(), *new_rows_lacking(ops, converted.unavailable)]
        left = sorted({*odd, *owners[refused].tolist()}) if refused else sorted(odd)
        left_out = np.flatnonzero(np.isin(owners, left)) if left else _NO_ROWS
        several = len(owners) > len(places)
        self._outcome.rows_of(plan).add_columns(
            converted.columns,
            ops,
            self._outcome.offsets([places[at] for at in owners.tolist()] if several else places),
            stamps,
            left_out,
            converted.unavailable,
        )
        letters = np.delete(np.frombuffer(ops.encode(), np.uint8), left_out)
        if several:
            kept = np.delete(owners, left_out)
            letters = letters[np.r_[True, kept[1:] != kept[:-1]]] if len(kept) else letters
        for op in "crud":
            count = int(np.count_nonzero(letters == ord(op)))
            if count:
                self._outcome.count(f"op.{op}", count)
        return left

    def _fill_keys(self, plan: RowPlan, rows: list[Any], keys: Sequence[bytes | None]) -> None:
        """Key columns that are in the Kafka key only, as upsert streams may have them."""
        for row, key in zip(rows, keys, strict=True):
            if not key or row is plan.empty_row or None not in [get(row) for get in plan.key_parts]:
                continue
            try:
                named = plan.decode_key(split_message(key).payload)
            except PARSE_ERRORS:
                continue  # the reference path says what is wrong
            for index, get in zip(plan.key, plan.key_parts, strict=True):
                if get(row) is None:
                    setattr(row, f"f{index}", get(named))

    def _is_odd_update(self, plan: RowPlan, image: Image, row: Any) -> bool:
        """Whether an update may change the key, or is refused: for the reference path."""
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
        """By column index the mask of rows that lack it because it did not change."""
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
        if self._dialect.partial_updates:  # a null under another spelling is no missing column
            shape.learn_names(_all_tokens(event), self._placeholder)
        plan = _plan_of(shape)
        if _recognises(shape.pending_plan, event, plan):
            self._outcome.withhold(shape, at)
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
            with contextlib.suppress(EventRefusedError):  # of a delete the key alone may be sound
                tokens = _tokens(image.before if image.op == "d" else image.after)
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
        """A row with the placeholder in columns that the update lacks."""
        lacking = _lacking(plan, after)
        if lacking and plan.target.toast is Toast.FAIL:
            raise EventRefusedError(
                "unavailable_value",
                f"the update does not carry column {', '.join(lacking)}, which may be unchanged: "
                "have the producer send whole rows, or set missing columns to null",
            )
        return {**after, **dict.fromkeys(lacking, self._unsent_token)} if lacking else after


def _united(
    masks: Mapping[int, np.ndarray], others: Mapping[int, np.ndarray]
) -> Mapping[int, np.ndarray]:
    """Masks by column, in either."""
    if not others:
        return masks
    return {**masks, **{n: mask | masks.get(n, False) for n, mask in others.items()}}


def _plan_of(shape: Shape) -> RowPlan:
    if shape.plan is None:
        raise InternalError("a shape without plan")
    return shape.plan


def _tokens(text: bytes | None) -> Tokens:
    return {} if text is None else row_image(text, "the row")


def _all_tokens(event: Event) -> Tokens:
    """Columns of all rows of an event, each with one row's value; of what is no row, none."""
    found: dict[str, bytes] = {}
    for image in event.images:
        try:
            tokens = _tokens(image.before if image.op == "d" else image.after)
        except EventRefusedError:  # the event is refused for another of its rows already
            continue
        found.update({n: token for n, token in tokens.items() if token != NULL or n not in found})
    return found


def _with_key(plan: RowPlan, tokens: Tokens, key: bytes | None) -> Tokens:
    lacking = [name for name in plan.key_names if tokens.get(name, NULL) == NULL]
    if not lacking or key is None:
        return tokens
    named = named_by_key(plan, key)
    return {**tokens, **{name: named[name] for name in lacking if name in named}}


def _names(text: bytes | None) -> set[str]:
    try:
        return set() if text is None else set(MEMBERS.decode(text))
    except PARSE_ERRORS:
        return set()


def _lacking(plan: RowPlan, names: "set[str] | Tokens") -> list[str]:
    """Columns that the shape has and the row does not; key columns have rules of their own.

    A row may have a column by its own name that other rows call otherwise.
    """
    return [
        column.member
        for number, column in enumerate(plan.columns)
        if column.codec is not None
        and column.member not in names
        and (column.name not in names or column.name in plan.index)
        and number not in plan.key
    ]


def _recognises(plan: RowPlan | None, event: Event, known: RowPlan | None = None) -> bool:
    """Whether a plan that gives out no rows has all of an event's columns.

    Args:
        plan: made from what was learned in earlier events.
        event: the event.
        known: what the table has; the event must have a value for some other column.
    """
    if plan is None:
        return False
    texts = [image.before if image.op == "d" else image.after for image in event.images]
    rows, failed = decode_all(plan.decode_row, texts)
    if failed or not all(map(plan.holds_numbers, rows)):
        return False
    befores = [image.before for image in event.images if image.op == "u" and image.before]
    if decode_all(plan.decode_row, befores)[1]:
        return False
    if known is None:
        return True
    new = [
        get
        for column, get in zip(plan.columns, plan.getters, strict=True)
        if column.member not in known.known
    ]
    return any(is_value(get(row)) for row in rows for get in new)
