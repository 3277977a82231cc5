# SPDX-License-Identifier: Apache-2.0
"""Row events of any dialect to change batches.

A dialect takes the envelopes apart (`envelopes`). Row images of one shape are then decoded with a
generated msgspec struct and converted by the column; what that refuses goes alone through the
reference path, which has the last word. A record with several rows (Canal) is used whole or not at
all.

Where a column that an update lacks means "unchanged" (`DialectOptions.missing_columns`), it is a
value that the source did not send, as PostgreSQL's TOAST placeholder is: `Target.toast` says what
becomes of it.

Error classes of bad records: as `debezium_json`.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from ingest.decode.decode_plan import RowPlan
from ingest.decode.events import BadRecord, DecodeResult, Resolver, SourceTable, Toast
from ingest.decode.json.envelopes import Dialect, DialectOptions, Event, Image, members_of
from ingest.decode.json.fast_rows import decode_all, is_value
from ingest.decode.json.member_columns import MemberReader, metadata_column
from ingest.decode.json.schema_block import split_message
from ingest.decode.json.single_event import (
    EventRefusedError,
    SingleRow,
    Tokens,
    UncoveredError,
    before_tokens,
    blames_columns,
    decode_images,
    key_tokens,
    named_by_key,
)
from ingest.decode.origin import AskedOrigins
from ingest.decode.outcome import Outcome
from ingest.decode.row_batches import convert_marked, new_rows_lacking
from ingest.decode.shapes import Fate, FreshShapes, Shape
from ingest.decode.types.token_values import NULL
from ingest.decode.types.unavailable import Placeholder
from ingest.source.records import RawBatch
from storage.errors import InternalError

__all__ = ["EnvelopeDecoder"]

_NAMED: Mapping[str, Callable[[Event], str | None]] = {
    "op": lambda event: event.images[0].op,
    "server": lambda event: event.source.server or None,
    "database": lambda event: event.source.database or None,
    "schema": lambda event: event.source.schema or None,
    "table": lambda event: event.source.table,
}


class DialectOrigins:
    """See the module; an `origin.OriginReader`.

    Args:
        dialect: of the format.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._readers: dict[tuple[str, ...], MemberReader] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `origin.OriginReader`."""
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
"""Events whose structs are alive at once, as for Debezium's."""

_MAX_SHAPES = 4_096
"""Shapes of one topic; far above any number of table versions, so that memory stays bounded."""

_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NAMES = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EnvelopeDecoder:
    """Decodes raw batches of one format; keeps the shapes it has seen between calls.

    Args:
        options: see `DialectOptions`.
        resolve: source table and topic to target; asked once per shape and call of `decode`.

    Attributes:
        dialect: class of the format; set by subclasses.
        origins: reads metadata of records (`origin.OriginReader`).
    """

    dialect: ClassVar[type[Dialect]]

    def __init__(self, options: DialectOptions, resolve: Resolver) -> None:
        self._dialect = self.dialect(options)
        self.origins = DialectOrigins(self._dialect)
        self._resolve = AskedOrigins(resolve)
        self._placeholder = Placeholder(options.unavailable_value_placeholder)
        self._shapes: dict[str, dict[tuple[SourceTable, bytes, bool], Shape]] = {}

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic and partition.

        Args:
            raw: in offset order.

        Returns:
            Every record exactly once: as rows, a count, a bad record or behind a delta.
        """
        fresh = FreshShapes(self._resolve, raw.topic)
        result = _Decoding(self, self._dialect, self._placeholder, fresh, raw).run()
        return self._resolve.filled(result, raw, self.origins)

    def truncated(self, raw: RawBatch, at: int) -> SourceTable | None:
        """The table that a record counted as `op.t` is about; None of any other record."""
        value = raw.values[at]
        try:
            return None if value is None else self._dialect.truncated(value)
        except EventRefusedError:
            return None

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
            shape = shapes[key] = self._dialect.shape(event)
        return shape


class _Decoding:
    """One call of `decode`."""

    def __init__(
        self,
        decoder: EnvelopeDecoder,
        dialect: Dialect,
        placeholder: Placeholder,
        fresh: FreshShapes,
        raw: RawBatch,
    ) -> None:
        self._decoder = decoder
        self._dialect = dialect
        self._placeholder = placeholder
        self._unsent_token = msgspec.json.encode(dialect.options.unavailable_value_placeholder)
        self._raw = raw
        self._outcome = Outcome(raw)
        self._fresh = fresh

    def run(self) -> DecodeResult:
        for start in range(0, len(self._raw), _CHUNK):
            self._chunk(start, min(start + _CHUNK, len(self._raw)))
        return self._outcome.finish()

    def _chunk(self, start: int, end: int) -> None:
        raw, read = self._raw, self._dialect.read
        grouped: dict[int, tuple[Shape, list[int], list[Event]]] = {}
        source: SourceTable | None = None
        types, of_key = b"", False
        places: list[int] = []
        events: list[Event] = []
        for at in range(start, end):
            try:
                event = read(raw.topic, raw.keys[at], raw.values[at])
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
            events = [self._settled(shape, event) for event in events]
        if shape.fate is Fate.ROWS:
            for index in self._columns(shape, places, events):
                self._single(shape, places[index], events[index])
        elif shape.fate is Fate.UNROUTED:
            self._outcome.count("unrouted", len(places))
        elif shape.fate is Fate.PENDING:
            for at, event in zip(places, events, strict=True):
                self._withhold(shape, at, event)
        else:
            self._outcome.refuse_shape(shape, places)

    def _settled(self, shape: Shape, event: Event) -> Event:
        columns = () if shape.plan is None else shape.plan.index.keys()
        try:
            return self._dialect.settled(event, shape.key_names, columns)
        except EventRefusedError:
            return event  # the reference path says what is wrong

    # --- what the schema does not cover

    def _withhold(self, shape: Shape, at: int, event: Event) -> None:
        """Count a row event whose target does not cover it; note the change to ask for."""
        try:
            if not shape.knows_key and not shape.learn_key(self._dialect.key_names(event)):
                self._outcome.refuse_keyless(shape, at)
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
        if self._dialect.key_is_row:
            self._fill_keys(plan, rows, [events[owner].key for owner in owners])
        odd.update(
            owners[index]
            for index, image in enumerate(images)
            if image.op == "u" and self._is_odd_update(plan, image, rows[index])
        )
        converted = convert_marked(plan, rows, self._placeholder)
        unavailable = _united(converted.unavailable, self._unsent(plan, images))
        odd.update(owners[index] for index in converted.refused.tolist())
        ops = "".join(image.op for image in images)
        odd.update(owners[index] for index in new_rows_lacking(ops, unavailable))
        left_out = np.flatnonzero(np.isin(owners, list(odd))) if odd else np.empty(0, np.int64)
        self._outcome.rows_of(plan).add_columns(
            converted.columns,
            ops,
            self._outcome.offsets([places[owner] for owner in owners]),
            [events[owner].ts_ms for owner in owners],
            left_out,
            unavailable,
        )
        taken = (event.images[0].op for index, event in enumerate(events) if index not in odd)
        for op, records in Counter(taken).items():
            self._outcome.count(f"op.{op}", records)
        return sorted(odd)

    def _fill_keys(self, plan: RowPlan, rows: list[Any], keys: Sequence[bytes | None]) -> None:
        """Key columns that are in the Kafka key only, as upsert streams may have them."""
        for row, key in zip(rows, keys, strict=True):
            if not key or row is plan.empty_row or None not in [get(row) for get in plan.key_parts]:
                continue
            try:
                named = plan.decode_key(split_message(key).payload)
            except _PARSE_ERRORS:
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
        except _PARSE_ERRORS:
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
            rows = [row for image in event.images for row in self._rows(plan, event, image)]
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

    def _rows(self, plan: RowPlan, event: Event, image: Image) -> list[SingleRow]:
        key = event.key if self._dialect.key_is_row else None
        before = {} if image.op not in "ud" else _before(plan, image)
        if event.of_key:
            before = {name: before[name] for name in plan.key_names if name in before}
        after: Tokens = {}
        if image.op != "d":
            if image.after is None:
                raise EventRefusedError("envelope", f"op {image.op} without the row after")
            after = _tokens(image.after)
            if image.op == "u" and self._dialect.partial_updates:
                after = self._completed(plan, after)
            after = _with_key(plan, after, key)
            before = {**after, **before} if before else {}
        return decode_images(plan, image.op, before, after, key, event.ts_ms, self._placeholder)

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


def _tokens(text: bytes | None) -> dict[str, bytes]:
    return {} if text is None else members_of(text, "a row")


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


def _before(plan: RowPlan, image: Image) -> Tokens:
    return {} if image.before is None else before_tokens(plan, image.op, image.before)


def _names(text: bytes | None) -> set[str]:
    try:
        return set() if text is None else set(_NAMES.decode(text))
    except _PARSE_ERRORS:
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
