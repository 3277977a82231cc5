# SPDX-License-Identifier: Apache-2.0
"""Debezium JSON, with and without schema block, to change batches.

Events whose layout is known are walked by compiled code (`layout`). The typed path decodes payloads
of a known shape with generated msgspec structs and converts whole columns, too; layouts are learned
of what it takes. What it refuses is routed (another table, another schema block, a heartbeat, ...)
and, if it still does not decode, goes alone through the reference path, which has the last word.

Error classes of bad records: `json` (not JSON), `envelope` (no event we know), `type` (a value does
not fit its column), `unrepresentable` (no column of that type holds the value; the message names
the word of `sink.type.mapping` to choose), `schema` (a column that the table lacks and may not
get), `no_primary_key`, `unavailable_value` (PostgreSQL's TOAST placeholder),
`source_table_conflict` (the target is filled from another source table), `table_name` (the target
may not have its name).

Source: CDC.md §1, measured choices in PEERS.md §3.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from ingest.decode.decode_plan import RowPlan
from ingest.decode.dialects.debezium_origin import EnvelopeOrigins
from ingest.decode.events import BadRecord, DecodeResult, Resolver, SourceTable
from ingest.decode.json.fast_rows import (
    cut_payloads,
    decode_all,
    op_of,
    recognises,
    row_images,
    stamps_of,
)
from ingest.decode.json.scanning import scanner
from ingest.decode.json.schema_block import SchemaBlock, split_message
from ingest.decode.json.single_event import (
    EventRefusedError,
    Tokens,
    UncoveredError,
    blames_columns,
    control_kind,
    decode_event,
    key_tokens,
    row_source,
    row_tokens,
)
from ingest.decode.key_check import operation
from ingest.decode.key_moves import KeyMoves, OldKeys
from ingest.decode.origin import AskedOrigins
from ingest.decode.outcome import Outcome
from ingest.decode.row_batches import (
    ConvertedRows,
    convert_columns,
    convert_marked,
    new_rows_lacking,
)
from ingest.decode.shapes import Fate, FreshShapes, Shape
from ingest.decode.topic_state import TopicState
from ingest.decode.types.semantic_types import ProducerFacts
from ingest.decode.types.type_mapping import DEFAULT_MAPPING, TypeMapping
from ingest.decode.types.unavailable import Placeholder
from ingest.source.records import RawBatch
from storage.errors import InternalError

__all__ = ["DebeziumJsonDecoder", "DebeziumOptions"]

_CHUNK = 2_000
"""Events whose structs are alive at once: 1,000-5,000 measured best (PEERS.md §3), by cache."""

_WALKED_CHUNK = 8_000
"""Events that are walked at once."""

_FIRST_CHUNK = 200
"""Events of a new topic that are decoded by the typed path, so that layouts can be learned."""


def _no_keys(_: str) -> tuple[str, ...]:
    return ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumOptions:
    """Facts about the producer and the pipeline that events do not carry.

    Attributes:
        decimal_handling_mode: `precise`, `string` or `double`.
        binary_handling_mode: `bytes`, `base64`, `base64-url-safe` or `hex`.
        time_precision_mode: `adaptive`, `adaptive_time_microseconds`, `connect` or `isostring`.
        unavailable_value_placeholder: text of the placeholder for values the source lacks.
        primary_keys: configured key columns of a target `db.table`; empty = the Kafka key's.
        type_mapping: types of new columns where there is a choice.
    """

    decimal_handling_mode: str = "precise"
    binary_handling_mode: str = "bytes"
    time_precision_mode: str = "adaptive"
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    primary_keys: Callable[[str], Sequence[str]] = _no_keys
    type_mapping: TypeMapping = DEFAULT_MAPPING

    @property
    def facts(self) -> ProducerFacts:
        """What values mean."""
        return ProducerFacts(
            decimal_handling_mode=self.decimal_handling_mode,
            binary_handling_mode=self.binary_handling_mode,
            time_precision_mode=self.time_precision_mode,
            mapping=self.type_mapping,
        )


class DebeziumJsonDecoder:
    """Decodes raw batches; keeps the shapes it has seen between calls.

    Args:
        options: see `DebeziumOptions`.
        resolve: source table and topic to target; asked once per shape and call of `decode`.

    Attributes:
        key_is_row: whether the members of a Kafka key are the key columns of the row.
        origins: reads metadata of records (`origin.OriginReader`).
    """

    def __init__(self, options: DebeziumOptions, resolve: Resolver) -> None:
        self._options = options
        self._resolve = AskedOrigins(resolve)
        self.key_is_row = True
        self._placeholder = Placeholder(options.unavailable_value_placeholder)
        self._facts = options.facts
        self._topics: dict[str, TopicState] = {}
        self.origins = EnvelopeOrigins(self._topics)

    def decode(self, raw: RawBatch, old_key: OldKeys | None = None) -> DecodeResult:
        """Decode records of one topic and partition.

        Args:
            raw: in offset order.
            old_key: says what key the new row of a record had before; None: their headers say it.

        Returns:
            Every record exactly once: as rows, a count, a bad record or behind a delta.

        Cost: 2-4 us a row event of 600 bytes; a bad record 50-200 us.
        """
        state = self._topics.setdefault(raw.topic, TopicState())
        moves = KeyMoves(raw, raw.keys.__getitem__, functools.partial(_deletes, raw))
        result = _Decoding(
            self, state, FreshShapes(self._resolve, raw.topic), raw, old_key or moves.old_key
        ).run()
        return self._resolve.filled(result, raw, self.origins)

    def operation(self, topic: str, record: BadRecord) -> str:
        """The name under which a record was counted before it was taken out."""
        del topic
        return operation(record)

    def shape(self, state: TopicState, source: SourceTable, block: SchemaBlock | None) -> Shape:
        """The shape of a row event, made on first sight."""
        key = (source, None if block is None else block.raw)
        shape = state.shapes.get(key)
        if shape is None:
            shape = Shape(source, block, self._facts, self._options.primary_keys)
            state.shapes[key] = shape
        return shape

    @property
    def placeholder(self) -> Placeholder:
        """Of unavailable values."""
        return self._placeholder


class _Decoding:
    """One call of `decode`."""

    def __init__(
        self,
        decoder: DebeziumJsonDecoder,
        state: TopicState,
        fresh: FreshShapes,
        raw: RawBatch,
        old_key: OldKeys,
    ) -> None:
        self._old_key = old_key
        self._decoder = decoder
        self._state = state
        self._fresh = fresh
        self._raw = raw
        self._outcome = Outcome(raw)
        self._scan = scanner(len(raw))

    def run(self) -> DecodeResult:
        start, end = 0, len(self._raw)
        while start < end:
            size = _CHUNK
            if self._scan is not None:
                size = _WALKED_CHUNK if self._state.walked else _FIRST_CHUNK
            self._chunk(start, min(start + size, end))
            start += size
        return self._outcome.finish()

    def _chunk(self, start: int, end: int) -> None:
        positions = self._raw.with_value(start, end)
        if len(positions) < end - start:
            self._outcome.count("tombstone", end - start - len(positions))
        if self._scan is not None:
            positions = self._walk(positions)
        for at in range(0, len(positions), _CHUNK):
            self._typed(positions[at : at + _CHUNK])

    def _walk(self, positions: Sequence[int]) -> Sequence[int]:
        """Take events whose layout is known; returns the positions of the others, ascending."""
        for shape, layouts in list(self._state.walked):
            taken = np.zeros(len(positions), bool)
            for rows in layouts.walk(self._scan, self._raw.payloads, positions):
                if not len(rows):
                    continue
                if self._fresh.of(shape).fate is not Fate.ROWS or shape.plan is not layouts.plan:
                    break  # the typed path learns layouts of the new plan
                indices = rows.rows + rows.first
                some = positions
                if len(rows) < len(positions):
                    some = [positions[index] for index in indices.tolist()]
                ops, stamps = rows.ops, rows.stamps
                placeholder = self._decoder.placeholder
                converted = convert_columns(layouts.plan, len(rows), rows.column, placeholder)
                refused = self._add(layouts.plan, some, ops, stamps, converted)
                taken[indices] = True
                taken[indices[refused]] = False
            if taken.any():
                self._outcome.walked += int(taken.sum())
                positions = [positions[index] for index in np.flatnonzero(~taken).tolist()]
            if not positions:
                break
        return positions

    def _typed(self, positions: Sequence[int]) -> None:
        current = self._state.current
        if current is not None and self._fresh.of(current).fate is Fate.ROWS:
            positions = self._columns(
                current, positions, cut_payloads(self._raw.values, current.prefix, positions)
            )
        grouped: dict[int, tuple[Shape, list[int], list[bytes]]] = {}
        for at in positions:
            routed = self._route(at)
            if routed is not None:
                shape, payload = routed
                _, places, payloads = grouped.setdefault(id(shape), (shape, [], []))
                places.append(at)
                payloads.append(payload)
        for shape, places, payloads in grouped.values():
            self._group(shape, places, payloads)

    # --- routing

    def _route(self, at: int) -> tuple[Shape, bytes] | None:
        """Shape and payload of a row event; every other message is settled here."""
        value = self._raw.values[at]
        if value is None:
            raise InternalError("a tombstone was not set aside")
        try:
            block, payload, prefix = self._state.split(value)
            source = None if block is not None and block.row is None else row_source(payload)
            if source is None:
                self._outcome.count(control_kind(self._raw.topic, block, payload))
                return None
        except EventRefusedError as error:
            self._outcome.refuse(at, error)
            return None
        shape = self._decoder.shape(self._state, source, block)
        shape.prefix = prefix or shape.prefix
        return self._fresh.of(shape), payload

    def _group(self, shape: Shape, places: list[int], payloads: list[bytes]) -> None:
        if shape.fate is Fate.ROWS:
            left = self._columns(shape, places, payloads)
            by_place = dict(zip(places, payloads, strict=True)) if left else {}
            for at in left:
                self._single(shape, at, by_place[at])
            if len(left) < len(places):
                self._state.current = shape
        elif shape.fate is Fate.UNROUTED:
            self._outcome.count("unrouted", len(places))
        elif shape.fate is Fate.PENDING:
            for at, payload in zip(places, payloads, strict=True):
                self._withhold(shape, at, payload)
        else:
            self._outcome.refuse_shape(shape, places)

    def _withhold(self, shape: Shape, at: int, payload: bytes) -> None:
        """Count a row event whose target does not cover it; note the change to ask for."""
        try:
            if not shape.knows_key:
                names = key_tokens(self._raw.keys[at])
                row = {} if shape.block is not None else row_tokens(payload)
                lacking = [name for name in names if row and name not in row]
                if (lacking and not shape.has_configured_key) or not shape.learn_key(names):
                    self._outcome.refuse_keyless(shape, at, lacking)
                    return
            if shape.block is None and not recognises(shape.pending_plan, payload):
                shape.learn_columns(row_tokens(payload))
                shape.learn_columns(shape.key_of(key_tokens(self._raw.keys[at])))
        except EventRefusedError as error:
            self._outcome.refuse(at, error, shape.target_name)
            return
        self._outcome.withhold(shape, at)

    # --- rows

    def _columns(
        self, shape: Shape, positions: Sequence[int], payloads: Iterable[bytes | None]
    ) -> list[int]:
        """The typed path. Returns the positions that it does not take, ascending."""
        plan = shape.plan
        if plan is None:
            raise InternalError("a shape without plan")
        payloads = list(payloads)
        events, failed = decode_all(plan.decode, payloads)
        if failed:
            gone = set(failed)
            kept = [index for index in range(len(payloads)) if index not in gone]
            left = [positions[index] for index in failed]
            positions = [positions[index] for index in kept]
            payloads = [payloads[index] for index in kept]
            events = [events[index] for index in kept]
        else:
            left = []
        if not events:
            return left
        ops, rows, odd = row_images(plan, events, payloads)
        converted = convert_marked(plan, rows, self._decoder.placeholder)
        refused = self._add(plan, positions, ops, stamps_of(events), converted, odd)
        if self._scan is not None:
            taken = np.delete(np.array(positions), refused).tolist()
            self._state.layouts(shape, plan).learn(self._raw.values, taken, shape.prefix)
        if len(refused):
            left = sorted(left + [positions[index] for index in refused.tolist()])
        return left

    def _add(
        self,
        plan: RowPlan,
        positions: Sequence[int],
        ops: str,
        stamps: Sequence[int | None] | np.ndarray,
        converted: ConvertedRows,
        odd: Sequence[int] = (),
    ) -> np.ndarray:
        """Add rows, one for each position; returns the indices of those that are left out."""
        odd = [*odd, *new_rows_lacking(ops, converted.unavailable)]
        refused = converted.refused
        if odd:
            refused = np.union1d(refused, np.array(odd, np.int64))
        offsets = self._outcome.offsets(positions)
        rows = self._outcome.rows_of(plan)
        rows.add_columns(converted.columns, ops, offsets, stamps, refused, converted.unavailable)
        if len(refused):
            ops = np.delete(np.frombuffer(ops.encode(), np.uint8), refused).tobytes().decode()
        for op in "cudr":
            count = ops.count(op)
            if count:
                self._outcome.count(f"op.{op}", count)
        return refused

    def _single(self, shape: Shape, at: int, payload: bytes) -> None:
        """The reference path."""
        plan = shape.plan
        if plan is None:
            raise InternalError("a shape without plan")
        try:
            if recognises(shape.pending_plan, payload, plan.known):
                self._outcome.withhold(shape, at)
                return
            old_key = functools.partial(self._old_key, at)
            key, placeholder = self._raw.keys[at], self._decoder.placeholder
            rows = decode_event(plan, payload, key, placeholder, old_key)
        except (UncoveredError, EventRefusedError) as error:
            tokens: Tokens = {}
            if blames_columns(error):
                with contextlib.suppress(EventRefusedError):  # of a delete the key alone is read
                    tokens = row_tokens(payload)
            placeholder = self._decoder.placeholder
            if self._outcome.untaken(shape, at, error, tokens, placeholder):
                self._single(shape, at, payload)
            return
        for row in rows:
            self._outcome.rows_of(plan).add_single(self._raw.offsets[at], row)
        self._outcome.count(f"op.{op_of(payload)}")
        with contextlib.suppress(EventRefusedError):  # of a delete the key alone may be sound
            tokens = row_tokens(payload)
            shape.learn_nulls(tokens)
            shape.learn_values(tokens)


def _deletes(raw: RawBatch, at: int) -> bool:
    try:
        return op_of(split_message(raw.values[at] or b"").payload) == "d"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
