# SPDX-License-Identifier: Apache-2.0
"""Row events of one writer schema, many in step: the fast path of Avro decoding.

`storage.format.avro.lanes` walks all messages of a schema at once, each as a block of one record
(ADR 0007). The results are columns of sources, operations and row images; odd messages are found by
bisection and left to the reference path. Data plane: no object per row.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.arrays import NodeMaker, plain
from ingest.decode.avro.connect_schema import AvroSchema, branches
from ingest.decode.events import SourceTable
from ingest.decode.json.debezium_json import SPECIAL_MEMBERS
from storage.errors import UnsupportedFeatureError
from storage.format.avro.columns import Node, RowNode
from storage.format.avro.lanes import LaneDecoder, OddDataError
from storage.format.avro.schema import INTEGERS, kind_of

LEAST_MESSAGES = 16
"""For fewer messages a walk costs more than the reference path."""

_BESIDE = 4
"""Bisection ends at so many messages: the reference path is faster for them than a walk."""

_SOURCE = ("db", "schema", "table", "name")
_STAMP = "ts_ms"
_OP_TYPE = pa.binary(1)

_Codes: TypeAlias = npt.NDArray[np.uint8]
_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class RowColumns:
    """Row images, column-wise.

    Attributes:
        present: whether the event has the image.
        fields: schema of each column, by name.
        arrays: the values, as from `avro_arrays.plain`; null where there is no image.
    """

    present: _Mask
    fields: dict[str, Any]
    arrays: dict[str, pa.Array]


@dataclasses.dataclass(frozen=True, slots=True)
class EventColumns:
    """Row events, column-wise.

    Attributes:
        sources: text columns `db`, `schema`, `table` and `name`, as far as the schema has them.
        stamps: `source.ts_ms` [epoch ms], or None.
        ops: code of the operation's letter; 0 where it is not a single byte.
        after: row images after.
        before: row images before, the requested columns only; None if the schema has none.
        requested: columns of `before` that were requested.
    """

    sources: dict[str, pa.Array]
    stamps: pa.Array | None
    ops: _Codes
    after: RowColumns
    before: RowColumns | None
    requested: frozenset[str]

    def source(self) -> SourceTable | None:
        """The source table of all events; None if there are several."""
        names = {}
        for name, column in self.sources.items():
            first = column[0]
            if not pc.all(pc.equal(column, first)).as_py():
                return None
            names[name] = first.as_py()
        return SourceTable(
            names.get("db", ""), names.get("schema", ""), names["table"], names.get("name", "")
        )

    def source_ids(self) -> npt.NDArray[np.int64]:
        """A number per event, equal for events of one source table."""
        ids = np.zeros(len(self.ops), np.int64)
        for column in self.sources.values():
            codes = column.dictionary_encode()
            ids = ids * len(codes.dictionary) + codes.indices.to_numpy()
        return ids


class EnvelopeLanes:
    """Decodes messages of one writer schema.

    1. `of` returns None unless the schema is one of row events that can be decoded in step;
    2. `events` and `deleted` any number of times.

    Raises:
        OddDataError, UnsupportedFeatureError: the messages cannot be decoded in step.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._tree = schema.tree
        self._fields = schema.fields
        image = branches(self._fields["after"])[0]
        self.columns = tuple(field["name"] for field in image["fields"])
        self._image = {field["name"]: field["type"] for field in image["fields"]}
        self._decoders: dict[frozenset[str] | None, tuple[LaneDecoder, dict[str, Node]]] = {}
        self._walker = LaneDecoder(schema.tree, None, {}, 0)

    @classmethod
    def of(cls, schema: AvroSchema) -> "EnvelopeLanes | None":
        """The decoder of a schema; None if it is not an envelope, or one for the reference path."""
        if not _is_envelope(schema.fields):
            return None
        try:
            lanes = cls(schema)
            lanes._decoder(None)
            lanes._decoder(frozenset())
        except (OddDataError, UnsupportedFeatureError):
            return None
        return lanes

    def events(self, payloads: Sequence[bytes], key: Collection[str]) -> EventColumns:
        """Decode events, of `before` some columns only.

        Args:
            payloads: values without their id prefix; at least one.
            key: columns of `before` to decode.

        Raises:
            OddDataError: a message is malformed.
        """
        fields = self._fields
        requested = frozenset(key)
        nodes, raw = self._walk(payloads, requested)
        try:
            source = self._row(nodes["source"], branches(fields["source"])[0], raw)
            ops = raw[nodes["op"].index]
            return EventColumns(
                {
                    name: source.arrays[name].fill_null("")
                    for name in _SOURCE
                    if name in source.arrays
                },
                source.arrays.get(_STAMP),
                _op_codes(ops),
                self._row(nodes["after"], branches(fields["after"])[0], raw),
                self._row(nodes["before"], branches(fields["before"])[0], raw)
                if "before" in nodes
                else None,
                requested,
            )
        except ValueError as error:  # a text that is not UTF-8
            raise OddDataError from error

    def sound(self, payloads: Sequence[bytes]) -> bool:
        """Whether all messages can be walked."""
        try:
            self._walker.decode([(payload, 1) for payload in payloads])
        except OddDataError:
            return False
        return True

    def deleted(self, payloads: Sequence[bytes]) -> RowColumns:
        """All columns of `before`.

        Raises:
            OddDataError: a message is malformed.
        """
        nodes, raw = self._walk(payloads, None)
        try:
            return self._row(nodes["before"], branches(self._fields["before"])[0], raw)
        except ValueError as error:
            raise OddDataError from error

    def _walk(
        self, payloads: Sequence[bytes], key: frozenset[str] | None
    ) -> tuple[dict[str, Node], list[pa.Array]]:
        decoder, nodes = self._decoder(key)
        return nodes, decoder.decode([(payload, 1) for payload in payloads])

    def _decoder(self, key: frozenset[str] | None) -> tuple[LaneDecoder, dict[str, Node]]:
        """The decoder of events with these columns of `before`; None: of deleted rows."""
        if key not in self._decoders:
            maker, fields = NodeMaker(), self._fields
            nodes: dict[str, Node] = {}
            if "before" in fields:
                nodes["before"] = maker.node(fields["before"], key)
            if key is not None:
                nodes["after"] = maker.node(fields["after"])
                nodes["source"] = maker.node(fields["source"], frozenset({*_SOURCE, _STAMP}))
                nodes["op"] = maker.node(fields["op"])
            decoder = LaneDecoder(self._tree, None, nodes, maker.count)
            self._decoders[key] = decoder, nodes
        return self._decoders[key]

    def _row(self, node: Node, tree: Any, raw: Sequence[pa.Array]) -> RowColumns:
        children = node.children if isinstance(node, RowNode) else {}
        fields = {field["name"]: field["type"] for field in tree["fields"]}
        present = raw[node.index].is_valid().to_numpy(zero_copy_only=False)
        arrays = {name: plain(fields[name], child, raw) for name, child in children.items()}
        return RowColumns(present, fields, arrays)


def _is_envelope(fields: dict[str, Any]) -> bool:
    """Whether these are the fields of a row event that can be decoded in step."""
    if not {"after", "source", "op"} <= fields.keys():
        return False
    images = [_only_record(fields[name]) for name in ("before", "after") if name in fields]
    source = _only_record(fields["source"])
    if None in images or source is None or any(image is not images[0] for image in images):
        return False
    origin = {field["name"]: _only_kind(field["type"]) for field in source["fields"]}
    texts = [origin[name] for name in _SOURCE if name in origin]
    return (
        "table" in origin
        and origin.keys().isdisjoint(SPECIAL_MEMBERS)
        and _only_kind(fields["op"]) == "string"
        and texts.count("string") == len(texts)
        and origin.get(_STAMP, "long") in INTEGERS
    )


def _only_kind(tree: Any) -> str:
    parts = branches(tree)
    return kind_of(parts[0]) if len(parts) == 1 else ""


def _only_record(tree: Any) -> dict[str, Any] | None:
    return branches(tree)[0] if _only_kind(tree) == "record" else None


def _op_codes(ops: pa.Array) -> _Codes:
    letters = pc.equal(pc.binary_length(ops), 1).fill_null(False)
    if not pc.all(letters).as_py():
        ops = pc.if_else(letters, ops, pa.scalar(b"\0"))
    buffers = ops.cast(_OP_TYPE).buffers()
    return np.frombuffer(buffers[1], np.uint8, len(ops))


def sound_runs(
    lanes: EnvelopeLanes, payloads: Sequence[bytes], key: Collection[str]
) -> Iterator[tuple[Sequence[int], EventColumns | None]]:
    """Decode messages, except the odd ones.

    Yields:
        (positions, events); events is None for messages left to the reference path.
    """
    pending: list[Sequence[int]] = [range(len(payloads))]
    while pending:
        span = pending.pop()
        if len(span) < LEAST_MESSAGES:
            yield span, None
            continue
        batch = payloads if len(span) == len(payloads) else [payloads[at] for at in span]
        try:
            yield span, lanes.events(batch, key)
            continue
        except OddDataError:
            odd = _odd(lanes, batch)
        if odd:
            yield [span[index] for index in odd], None
            rest = sorted(set(range(len(span))).difference(odd))
            pending += [[span[index] for index in rest]] if rest else []
        elif len(span) == 1:
            yield span, None
        else:  # a text that is not UTF-8
            middle = len(span) // 2
            pending += [span[middle:], span[:middle]]


def _odd(lanes: EnvelopeLanes, payloads: Sequence[bytes]) -> list[int]:
    """Positions of messages that cannot be walked, and of a few neighbours."""
    positions: list[int] = []
    pending = [(0, len(payloads))]
    while pending:
        start, end = pending.pop()
        if lanes.sound(payloads[start:end]):
            continue
        if end - start <= _BESIDE:
            positions += range(start, end)
        else:
            middle = (start + end) // 2
            pending += [(middle, end), (start, middle)]
    return sorted(positions)
