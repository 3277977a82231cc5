# SPDX-License-Identifier: Apache-2.0
"""Events in Avro, with schema ids of a registry: Debezium's, and upserts.

The fast path decodes all row events of one writer schema in step (`lanes`, ADR 0007) and
converts whole columns. What it refuses, and every message that is not a row event, is rewritten as
the equivalent JSON event, with its schema, and decoded by `EnvelopeDecoder`, which decides: both
formats yield the same rows, bad records, deltas and counts.

Error classes of bad records: those of `debezium_json`, and `avro` (no schema id, not Avro, or bytes
that are not a value of their schema), `schema_id` (unknown to the registry). A registry that does
not answer is an error of the call, never of a record.

Source: CDC.md §1.7.
"""

import bisect
import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.connect_schema import branches
from ingest.decode.avro.lanes import (
    LEAST_MESSAGES,
    EnvelopeLanes,
    EventColumns,
    NodeMaker,
    RowColumns,
    convert_sound,
    plain,
    sound_runs,
)
from ingest.decode.avro.writer_schemas import (
    AvroRecords,
    FramingError,
    Part,
    WriterSchema,
    usual_subject,
)
from ingest.decode.bare_rows import UpsertJson
from ingest.decode.columns import (
    Member,
    MemberReader,
    OriginReader,
    RequestedOrigins,
    RowPlan,
    metadata_type,
)
from ingest.decode.events import (
    BadRecord,
    DecodeResult,
    EventRefusedError,
    Resolver,
    SourceTable,
    split_message,
    text_format_hint,
)
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import (
    ENVELOPE_MEMBERS,
    DebeziumJson,
    DialectOptions,
    truncated_table,
)
from ingest.decode.outcome import (
    ConvertedRows,
    KeyMoves,
    Outcome,
    convert_columns,
    new_rows_lacking,
    united,
)
from ingest.decode.registry import RegisteredSchema, SchemaId
from ingest.decode.shapes import Fate, FreshShapes, Shape
from ingest.decode.types.conversions import Placeholder
from ingest.decode.types.semantic_types import Codec
from ingest.source.records import RawBatch
from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.avro.lanes import LaneDecoder, Node, OddDataError, RowNode
from storage.format.avro.schema import kind_of

_REFUSALS = (OddDataError, UnsupportedFeatureError, ValueError)


class AvroOrigins:
    """See the module; an `metadata_columns.OriginReader`."""

    def __init__(self, records: AvroRecords) -> None:
        self._framing = records.framing
        self._records = records
        self._readers: dict[tuple[str, ...], MemberReader] = {}
        self._lanes: dict[tuple[WriterSchema, tuple[str, ...]], _OriginLanes | None] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `metadata_columns.OriginReader`."""
        members = tuple(name for name in names if name in ENVELOPE_MEMBERS)
        if not members:
            return {}
        groups = self._groups(raw, places)
        parts = [self._columns(raw, group, members) for group in groups.values()]
        if len(parts) == 1:
            return parts[0]
        order = pa.array([index for _, _, indices in groups.values() for index, _ in indices])
        inverse = pc.sort_indices(order)
        return {
            name: pa.concat_arrays([columns[name] for columns in parts]).take(inverse)
            for name in members
        }

    def _groups(
        self, raw: RawBatch, places: Sequence[int]
    ) -> "dict[tuple[int, int], tuple[WriterSchema, int, list[tuple[int, int]]]]":
        """Records by schema: (schema, start of values, [(index, place)])."""
        headers = self._framing.has_headers(raw)
        by_prefix: dict[bytes, tuple[WriterSchema, int]] = {}
        groups: dict[tuple[int, int], tuple[WriterSchema, int, list[tuple[int, int]]]] = {}
        for index, at in enumerate(places):
            prefix = b"" if headers else self._framing.prefix(raw.values[at] or b"")
            cached = by_prefix.get(prefix)
            if cached is None:
                cached = self._records.value_writer(raw, at)
                if not headers:
                    by_prefix[prefix] = cached
            writer, begin = cached
            groups.setdefault((id(writer), begin), (writer, begin, []))[2].append((index, at))
        return groups

    def _columns(
        self,
        raw: RawBatch,
        group: tuple[WriterSchema, int, list[tuple[int, int]]],
        names: tuple[str, ...],
    ) -> dict[str, pa.Array]:
        writer, begin, indices = group
        values = [raw.values[at] or b"" for _, at in indices]
        if len(values) >= LEAST_MESSAGES:
            lanes = self._lanes_of(writer, names)
            if lanes is not None:
                try:
                    return lanes.columns([value[begin:] for value in values])
                except _REFUSALS:
                    pass
        if names not in self._readers:
            self._readers[names] = MemberReader(ENVELOPE_MEMBERS, names)
        return self._readers[names].columns([_as_json(writer, value, begin) for value in values])

    def _lanes_of(self, writer: WriterSchema, names: tuple[str, ...]) -> "_OriginLanes | None":
        key = writer, names
        if key not in self._lanes:
            try:
                self._lanes[key] = _OriginLanes(writer, names) if writer.lanes else None
            except _REFUSALS:
                self._lanes[key] = None
        return self._lanes[key]


def _as_json(writer: WriterSchema, value: bytes, begin: int) -> bytes | None:
    try:
        return split_message(writer.as_bare_json(value, begin)).payload
    except EventRefusedError:
        return None


class _OriginLanes:
    """The members of one writer schema's events.

    Args:
        writer: schema of envelopes that are decoded in step.
        names: of metadata.
    """

    def __init__(self, writer: WriterSchema, names: tuple[str, ...]) -> None:
        self._members = {name: ENVELOPE_MEMBERS[name][0] for name in names}
        self._trees: dict[tuple[str, ...], Any] = {}
        fields = writer.schema.fields
        maker = NodeMaker()
        self._nodes: dict[str, Node] = {}
        for top in sorted({member.path[0] for member in self._members.values()}):
            if top not in fields:
                continue
            inner = {m.path[1] for m in self._members.values() if m.path[0] == top and m.path[1:]}
            record = branches(fields[top])[0]
            nested = record["fields"] if inner and kind_of(record) == "record" else []
            self._trees[(top,)] = fields[top]
            self._trees.update({(top, f["name"]): f["type"] for f in nested if f["name"] in inner})
            selection = frozenset(f["name"] for f in nested) & inner
            self._nodes[top] = maker.node(fields[top], selection if inner else None)
        self._decoder = LaneDecoder(writer.schema.tree, None, self._nodes, maker.count)

    def columns(self, payloads: Sequence[bytes]) -> dict[str, pa.Array]:
        """Columns by name.

        Raises:
            OddDataError, ValueError: a message is malformed, or not convertible by Arrow.
        """
        raw = self._decoder.decode([(payload, 1) for payload in payloads])
        return {
            name: self._column(name, member, raw, len(payloads))
            for name, member in self._members.items()
        }

    def _column(self, name: str, member: Member, raw: Sequence[pa.Array], count: int) -> pa.Array:
        type_ = metadata_type(name)
        tree = self._trees.get(member.path)
        node: Node | None = self._nodes.get(member.path[0])
        if len(member.path) > 1:
            node = node.children.get(member.path[1]) if isinstance(node, RowNode) else None
        if node is None or tree is None:
            return pa.nulls(count, type_)
        array = plain(tree, node, raw)
        if name == "op":
            array = pc.utf8_lower(array)
        if pa.types.is_timestamp(type_) and pa.types.is_integer(array.type):
            return array.cast(pa.timestamp("ms")).cast(type_)
        kinds = {kind_of(branch) for branch in branches(tree)}
        if kinds & {"float", "double", "bytes", "fixed", "record", "array", "map"}:
            raise OddDataError
        return array.cast(type_)


_Mask: TypeAlias = npt.NDArray[np.bool_]


def converted_rows(plan: RowPlan, rows: RowColumns, placeholder: Placeholder) -> ConvertedRows:
    """The target's columns.

    Rows without image, or with values that fit no column, are refused too.
    """
    count = len(rows.present)

    def column_of(number: int, codec: Codec, refused: set[int]) -> pa.Array:
        member = plan.columns[number].member
        source = rows.arrays.get(member)
        if source is None:
            return pa.nulls(count, codec.arrow)
        return convert_sound(codec, rows.fields[member], source, refused)

    converted = convert_columns(plan, count, column_of, placeholder)
    refused = ~rows.present
    refused[converted.refused] = True
    untaken = [column.member for column in plan.columns if column.codec is None]
    for name in (*untaken, *plan.null_only):
        if name in rows.arrays:
            refused[_valid(rows.arrays[name])] = True
    return dataclasses.replace(converted, refused=np.flatnonzero(refused))


def _valid(array: pa.Array) -> _Mask:
    mask: _Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def key_changes(plan: RowPlan, events: EventColumns) -> _Mask:
    """Events whose `before` has another key than `after`, or none although the target needs it.

    May include false positives, never false negatives.
    """
    before = events.before
    changed = np.zeros(len(events.ops), np.bool_)
    required = bool(plan.target.needs_before)
    if before is None or not before.present.any():
        return changed | required
    comparable = before.present.copy()
    for name in plan.key_names:
        old, new = before.arrays.get(name), events.after.arrays.get(name)
        if old is None or new is None:  # a key column that the events lack
            return changed | required
        comparable &= _valid(old)
        if pa.types.is_nested(old.type):
            changed |= True
        else:
            differs = pc.not_equal(old, new).fill_null(True)
            changed |= differs.to_numpy(zero_copy_only=False)
    return changed & comparable | (~comparable & required)


_CHUNK = 5_000
"""Events decoded in step: with half as many each takes a third longer (ADR 0007)."""

_CHUNK_BYTES = 64 << 20
"""Of events decoded in step: they are joined, and addressed by eight-byte offsets."""

_DELETE, _UPDATE = ord("d"), ord("u")
_NO_POSITIONS = np.zeros(0, np.int64)
_ROW_OPS = np.zeros(256, np.bool_)
_ROW_OPS[list(b"cru")] = True


class DebeziumAvroDecoder(AvroRecords):
    """Decodes raw batches; caches schemas and shapes between calls.

    Args:
        schemas: id to registered schema: `SchemaRegistry(settings).schema`.
        id_bytes: of the id before a value: 4, or 8 for Apicurio's own format.
        options: as for JSON.
        resolve: source table and topic to target; called once per shape and call of `decode`.

    Attributes:
        origins: reads metadata of records.
    """

    def __init__(
        self,
        schemas: Callable[[SchemaId], RegisteredSchema],
        id_bytes: int,
        options: DialectOptions,
        resolve: Resolver,
    ) -> None:
        super().__init__(schemas, id_bytes)
        self._options = options
        self._resolve = RequestedOrigins(resolve)
        self._shapes: dict[tuple[str, SourceTable, bytes], Shape] = {}
        self.placeholder = Placeholder(options.unavailable_value_placeholder)
        self.as_json = EnvelopeDecoder(DebeziumJson(options), self._resolve.plain)
        self.origins = AvroOrigins(self)

    def truncated(self, raw: RawBatch, at: int) -> SourceTable | None:
        """See `AvroRecords.truncated`."""
        return truncated_table(self.json_value(raw, at))

    def decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records of one topic and partition.

        Args:
            raw: in offset order.

        Returns:
            Every record exactly once: as rows, a count, a bad record or pending a delta.

        Raises:
            RetryableError: the registry does not answer.
            AccessDeniedError, InvalidRequestError: the registry refuses, or is not one.

        Cost: 3-6 us a row event of 600 bytes; any other message 50-200 us.
        """
        result = _Decoding(self, FreshShapes(self._resolve, raw.topic), raw).run()
        return self._resolve.filled(result, raw, self.origins)

    def shape(self, topic: str, source: SourceTable, writer: WriterSchema) -> Shape:
        """The shape of a row event, created on first use."""
        key = topic, source, writer.schema.block
        if key not in self._shapes:
            self._shapes[key] = Shape(
                source, writer.block, self.as_json.facts, self._options.primary_keys
            )
        return self._shapes[key]


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Records of one schema.

    Attributes:
        writer: the schema.
        begin: start of their values.
        places: positions in the raw batch, ascending.
    """

    writer: WriterSchema
    begin: int
    places: Sequence[int]

    def only(self, mask: npt.NDArray[np.bool_]) -> "_Group":
        """The records of a mask."""
        places = [self.places[index] for index in np.flatnonzero(mask).tolist()]
        return _Group(self.writer, self.begin, places)

    def within(self, start: int, end: int) -> "_Group":
        """The records of a range."""
        return _Group(self.writer, self.begin, self.places[start:end])


class _Decoding:
    """One call of `decode`."""

    def __init__(self, decoder: DebeziumAvroDecoder, fresh: FreshShapes, raw: RawBatch) -> None:
        self._decoder = decoder
        self._fresh = fresh
        self._raw = raw
        self._headers = decoder.framing.has_headers(raw)
        self._outcome = Outcome(raw)
        self._undecoded: list[_Group] = []
        """Records for the reference path."""
        self._waiting: dict[int, tuple[int, list[_Group]]] = {}
        """By shape: the record that requests a delta, and those that wait for it."""

    def run(self) -> DecodeResult:
        for start in range(0, len(self._raw), _CHUNK):
            self._chunk(start, min(start + _CHUNK, len(self._raw)))
        results = [self._as_json(self._undecoded)]
        results.append(self._as_json(self._refused_waiting(results[0])))
        without_bad = [dataclasses.replace(result, bad=[]) for result in results]
        return united([self._outcome.finish(), *without_bad])

    def _value(self, at: int) -> bytes:
        value = self._raw.values[at]
        if value is None:
            raise InternalError("a tombstone was not filtered out")
        return value

    # --- which schema

    def _writer(self, schema_id: SchemaId) -> WriterSchema:
        return self._decoder.writers.of(schema_id, usual_subject(self._raw.topic, Part.VALUE))

    def _chunk(self, start: int, end: int) -> None:
        places: Sequence[int] = range(start, end)
        values = self._raw.values[start:end]
        if end - start > 1 and sum(map(len, filter(None, values))) > _CHUNK_BYTES:
            middle = (start + end) // 2
            self._chunk(start, middle)
            self._chunk(middle, end)
            return
        if None in values:
            places = [at for at in places if self._raw.values[at] is not None]
            self._outcome.count("tombstone", end - start - len(places))
        framed: dict[tuple[SchemaId, int], list[int]] = {}
        for batch in self._alike(places):
            self._frame(batch, framed)
        for (schema_id, begin), members in framed.items():
            try:
                group = _Group(self._writer(schema_id), begin, members)
            except EventRefusedError as error:
                self._doubtful(members, error)
            else:
                self._events(group)

    def _alike(self, places: Sequence[int]) -> Collection[list[int]]:
        """Groups of records with certainly equal ids."""
        if self._headers or not places:
            return [[at] for at in places]
        values = [value for at in places if (value := self._raw.values[at]) is not None]
        prefix = self._decoder.framing.prefix
        first = prefix(values[0])
        whole = len(first) == self._decoder.framing.prefix_bytes
        if whole and sum([value.startswith(first) for value in values]) == len(values):
            return [[*places]]
        groups: dict[bytes, list[int]] = {}
        for at, value in zip(places, values, strict=True):
            groups.setdefault(prefix(value), []).append(at)
        return groups.values()

    def _frame(self, places: list[int], framed: dict[tuple[SchemaId, int], list[int]]) -> None:
        """Find the id of records with a common prefix."""
        framing, at = self._decoder.framing, places[0]
        try:
            header_id = framing.header_id(self._raw, at, Part.VALUE) if self._headers else None
            frame = framing.id_before(self._value(at)) if header_id is None else (header_id, 0)
        except FramingError as error:
            self._doubtful(places, EventRefusedError("avro", str(error)))
        else:
            framed.setdefault(frame, []).extend(places)

    def _doubtful(self, places: Sequence[int], refused: EventRefusedError) -> None:
        """Records that are bad unless a header, not read yet, names their schema."""
        framing = self._decoder.framing
        for at in places:
            try:
                header_id = None if self._headers else framing.header_id(self._raw, at, Part.VALUE)
                if header_id is None:
                    text = f"{refused}{text_format_hint(self._raw.values[at])}"
                    self._outcome.refuse(at, EventRefusedError(refused.error_class, text))
                else:
                    self._undecoded.append(_Group(self._writer(header_id), 0, [at]))
            except FramingError as error:
                self._outcome.refuse(at, EventRefusedError("avro", str(error)))
            except EventRefusedError as error:
                self._outcome.refuse(at, error)

    # --- row events in step

    def _events(self, group: _Group) -> None:
        writer, lanes = group.writer, group.writer.lanes
        if lanes is None:
            self._undecoded.append(group)
            return
        payloads = [self._value(at)[group.begin :] for at in group.places]
        if not writer.key_names:
            self._learn_key(writer, lanes, payloads[:1])
        for indices, events in sound_runs(lanes, payloads, writer.key_names):
            part = _Group(writer, group.begin, [group.places[index] for index in indices])
            if events is None:
                self._undecoded.append(part)
            else:
                self._sound(part, [payloads[index] for index in indices], events)

    def _learn_key(
        self, writer: WriterSchema, lanes: EnvelopeLanes, payloads: Sequence[bytes]
    ) -> None:
        """Inspect one event, so that a new schema's events are not walked twice."""
        with contextlib.suppress(OddDataError):
            source = lanes.events(payloads, ()).source()
            if source is not None and source.table:
                plan = self._shape(source, writer).plan
                writer.key_names |= frozenset(() if plan is None else plan.key_names)

    def _sound(self, group: _Group, payloads: Sequence[bytes], events: EventColumns) -> None:
        source = events.source()
        if source is None:
            ids = events.source_ids()
            for source_id in np.unique(ids):
                self._events(group.only(ids == source_id))
            return
        shape = self._shape(source, group.writer)
        if not source.table or shape.fate in (Fate.CONFLICT, Fate.NO_KEY, Fate.REFUSED):
            self._undecoded.append(group)
        elif shape.fate is Fate.ROWS:
            self._row_events(shape, group, payloads, events)
        else:
            rows = _ROW_OPS[events.ops] | (events.ops == _DELETE)
            self._undecoded.append(group.only(~rows))
            if shape.fate is Fate.UNROUTED:
                self._outcome.count("unrouted", int(rows.sum()))
            elif rows.any():
                self._wait(shape, group.only(rows))

    def _shape(self, source: SourceTable, writer: WriterSchema) -> Shape:
        return self._fresh.of(self._decoder.shape(self._raw.topic, source, writer))

    def _row_events(
        self, shape: Shape, group: _Group, payloads: Sequence[bytes], events: EventColumns
    ) -> None:
        plan, writer = shape.plan, group.writer
        if plan is None or writer.lanes is None:
            raise InternalError("a shape without plan")
        if not events.requested.issuperset(plan.key_names):
            writer.key_names |= frozenset(plan.key_names)
            self._events(group)
            return
        ops, deletes = events.ops, events.ops == _DELETE
        rows = converted_rows(plan, events.after, self._decoder.placeholder)
        refused = ~_ROW_OPS[ops] | (key_changes(plan, events) & (ops == _UPDATE))
        refused[rows.refused] = True
        letters = ops.tobytes().decode("latin-1")
        refused[new_rows_lacking(letters, rows.unavailable)] = True
        self._add(plan, rows, group, ops, events.stamps, ~refused)
        self._undecoded.append(group.only(refused & ~deletes))
        index = np.flatnonzero(deletes)
        if len(index):
            times = events.stamps.take(pa.array(index)) if events.stamps is not None else None
            self._deletes(plan, group.only(deletes), [payloads[i] for i in index.tolist()], times)

    def _deletes(
        self,
        plan: RowPlan,
        group: _Group,
        payloads: Sequence[bytes],
        stamps: pa.Array | None,
    ) -> None:
        rows = None
        if group.writer.lanes is not None and len(payloads) >= LEAST_MESSAGES:
            with contextlib.suppress(OddDataError):
                rows = group.writer.lanes.deleted(payloads)
        if rows is None:
            self._undecoded.append(group)
            return
        converted = converted_rows(plan, rows, self._decoder.placeholder)
        ops = np.full(len(payloads), _DELETE, np.uint8)
        refused = np.zeros(len(payloads), np.bool_)
        refused[converted.refused] = True
        refused[new_rows_lacking("d" * len(payloads), converted.unavailable)] = True
        self._add(plan, converted, group, ops, stamps, ~refused)
        self._undecoded.append(group.only(refused))

    def _add(
        self,
        plan: RowPlan,
        rows: ConvertedRows,
        group: _Group,
        ops: npt.NDArray[np.uint8],
        stamps: pa.Array | None,
        row_mask: npt.NDArray[np.bool_],
    ) -> None:
        columns, unavailable = rows.columns, dict(rows.unavailable)
        if not row_mask.all():
            mask = pa.array(row_mask)
            columns = [column.filter(mask) for column in columns]
            unavailable = {index: absent[row_mask] for index, absent in unavailable.items()}
            stamps = None if stamps is None else stamps.filter(mask)
            group, ops = group.only(row_mask), ops[row_mask]
        if not len(ops):
            return
        letters = ops.tobytes().decode("ascii")
        offsets = self._outcome.offsets(group.places)
        self._outcome.rows_of(plan).add_columns(
            columns, letters, offsets, _ends(stamps), _NO_POSITIONS, unavailable
        )
        for op in sorted(set(letters)):
            self._outcome.count(f"op.{op}", letters.count(op))

    # --- events that wait for a schema change

    def _wait(self, shape: Shape, group: _Group) -> None:
        """One row event requests the delta, through the reference path; the others wait."""
        if id(shape) not in self._waiting:
            self._waiting[id(shape)] = group.places[0], []
            self._undecoded.append(group.within(0, 1))
            group = group.within(1, len(group.places))
        self._waiting[id(shape)][1].append(group)

    def _refused_waiting(self, result: DecodeResult) -> list[_Group]:
        """Count events that wait for a delta; those whose request failed are decoded."""
        bad = {record.offset for record in result.bad}
        refused: list[_Group] = []
        for first, groups in self._waiting.values():
            if self._raw.offsets[first] in bad:
                refused += groups
            else:
                self._outcome.count("pending", sum(len(group.places) for group in groups))
        return refused

    # --- the reference path

    def _as_json(self, groups: Sequence[_Group]) -> DecodeResult:
        """Decode records as JSON events; bad ones are recorded in their original form."""
        messages: dict[int, bytes] = {}
        for group in groups:
            for at in group.places:
                try:
                    messages[at] = group.writer.as_json(self._value(at), group.begin)
                except EventRefusedError as error:
                    self._outcome.refuse(at, error)
        places = sorted(messages)
        raw = RawBatch(
            self._raw.topic,
            self._raw.partition,
            [self._raw.offsets[at] for at in places],
            [self._decoder.json_key(self._raw, at) for at in places],
            [messages[at] for at in places],
        )
        decoder = self._decoder
        moves = KeyMoves(
            self._raw,
            lambda at: decoder.json_key(self._raw, at),
            lambda at: decoder.operation_at(self._raw, at) == "op.d",
        )
        result = self._decoder.as_json.decode(raw, lambda at: moves.old_key(places[at]))
        by_offset = dict(zip(raw.offsets, places, strict=True)) if result.bad else {}
        for record in result.bad:
            error_class = "avro" if record.error_class == "json" else record.error_class
            refused = EventRefusedError(error_class, record.error)
            self._outcome.refuse(by_offset[record.offset], refused, record.target)
        return result


def _ends(stamps: pa.Array | None) -> list[int]:
    """The minimum and maximum of stamps."""
    if stamps is None or stamps.null_count == len(stamps):
        return []
    ends = pc.min_max(stamps)
    return [ends["min"].as_py(), ends["max"].as_py()]


# Upsert streams in Avro, with schema ids of a registry: key and row, a null value deletes.
#
# Each record is rewritten as the equivalent JSON message, with its schema, and decoded by
# `EnvelopeDecoder`, so both formats have the same semantics. A key that is not Avro (a plain text)
# counts as missing: rows must then have their key columns, and a null value is a bad record.
#
# Error classes of bad records: as `upsert_json`, and `avro` and `schema_id` as `debezium_avro`.


class UpsertAvroDecoder(AvroRecords):
    """Decodes raw batches; caches schemas and shapes between calls.

    Args:
        schemas: id to registered schema: `SchemaRegistry(settings).schema`.
        id_bytes: of the id before a value: 4, or 8 for Apicurio's own format.
        options: as for JSON.
        resolve: source table and topic to target; called once per shape and call of `decode`.
    """

    def __init__(
        self,
        schemas: Callable[[SchemaId], RegisteredSchema],
        id_bytes: int,
        options: DialectOptions,
        resolve: Resolver,
    ) -> None:
        super().__init__(schemas, id_bytes)
        self._resolve = RequestedOrigins(resolve)
        self._as_json = EnvelopeDecoder(UpsertJson(options), self._resolve.plain)

    def decode(self, raw: RawBatch) -> DecodeResult:
        """See `DebeziumAvroDecoder.decode`. Cost: about 80 us a record."""
        outcome = Outcome(raw)
        places: list[int] = []
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for at in range(len(raw)):
            try:
                key, value = self._messages(raw, at)
            except EventRefusedError as error:
                outcome.refuse(at, error)
                continue
            places.append(at)
            keys.append(key)
            values.append(value)
        offsets = [raw.offsets[at] for at in places]
        rewritten = RawBatch(raw.topic, raw.partition, offsets, keys, values)
        result = self._as_json.decode(rewritten)
        if result.changes:  # rewritten records have no headers, and another key
            result = self._resolve.filled(result, raw, self._reader(rewritten))
        by_offset = dict(zip(offsets, places, strict=True)) if result.bad else {}
        for record in result.bad:
            refused = EventRefusedError(record.error_class, record.error)
            outcome.refuse(by_offset[record.offset], refused, record.target)
        return dataclasses.replace(result, bad=outcome.finish().bad)

    def origins(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `metadata_columns.OriginReader`."""
        pairs = [self._messages(raw, at) for at in places]
        offsets = [raw.offsets[at] for at in places]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        rewritten = RawBatch(raw.topic, raw.partition, offsets, keys, values)
        return self._as_json.origins(rewritten, range(len(places)), names)

    def _reader(self, rewritten: RawBatch) -> OriginReader:
        """Reads metadata from the rewritten records."""

        def read(
            raw: RawBatch, places: Sequence[int], names: Collection[str]
        ) -> Mapping[str, pa.Array]:
            positions = [bisect.bisect_left(rewritten.offsets, raw.offsets[at]) for at in places]
            return self._as_json.origins(rewritten, positions, names)

        return read

    def operation_at(self, raw: RawBatch, at: int) -> str:
        """See `AvroRecords.operation_at`."""
        try:
            key, value = self._messages(raw, at)
        except EventRefusedError:
            return "op."
        rewritten = BadRecord(raw.offsets[at], raw.timestamp_ms(at), key, value, (), "", "")
        return self._as_json.operation(raw.topic, rewritten)

    def _messages(self, raw: RawBatch, at: int) -> tuple[bytes | None, bytes | None]:
        """Key and value as JSON with their schemas."""
        deletes = raw.values[at] is None
        try:
            key = self.message(raw, at, Part.KEY)
        except EventRefusedError:
            if deletes:
                raise
            key = None
        return key, None if deletes else self.message(raw, at, Part.VALUE)
