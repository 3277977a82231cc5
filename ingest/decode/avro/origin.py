# SPDX-License-Identifier: Apache-2.0
"""What Avro events know of a change besides its row: a walk of its own for the wanted members.

All events of one writer schema are walked in step (`storage.format.avro.lanes`), `before` and
`after` are only stepped over. What that refuses is read as JSON, event by event.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.arrays import NodeMaker, plain
from ingest.decode.avro.connect_schema import branches
from ingest.decode.avro.framing import Framing
from ingest.decode.avro.lanes import LEAST_MESSAGES
from ingest.decode.avro.records import AvroRecords
from ingest.decode.avro.writer_schemas import WriterSchema
from ingest.decode.dialects.debezium_origin import ENVELOPE_MEMBERS
from ingest.decode.json.member_columns import Member, MemberReader, metadata_type
from ingest.decode.json.schema_block import split_message
from ingest.decode.json.single_event import EventRefusedError
from ingest.source.records import RawBatch
from storage.errors import UnsupportedFeatureError
from storage.format.avro.columns import Node, RowNode
from storage.format.avro.lanes import LaneDecoder, OddDataError
from storage.format.avro.schema import kind_of

__all__ = ["AvroOrigins"]

_REFUSALS = (OddDataError, UnsupportedFeatureError, ValueError)


class AvroOrigins:
    """See the module; an `origin.OriginReader`.

    Args:
        framing: how ids are found.
        records: reads single records.
    """

    def __init__(self, framing: Framing, records: AvroRecords) -> None:
        self._framing = framing
        self._records = records
        self._readers: dict[tuple[str, ...], MemberReader] = {}
        self._lanes: dict[tuple[WriterSchema, tuple[str, ...]], _OriginLanes | None] = {}

    def __call__(
        self, raw: RawBatch, places: Sequence[int], names: Collection[str]
    ) -> Mapping[str, pa.Array]:
        """See `origin.OriginReader`."""
        wanted = tuple(name for name in names if name in ENVELOPE_MEMBERS)
        if not wanted:
            return {}
        groups = self._groups(raw, places)
        found = [self._columns(raw, group, wanted) for group in groups.values()]
        if len(found) == 1:
            return found[0]
        order = pa.array([index for _, _, indices in groups.values() for index, _ in indices])
        back = pc.sort_indices(order)
        return {
            name: pa.concat_arrays([columns[name] for columns in found]).take(back)
            for name in wanted
        }

    def _groups(
        self, raw: RawBatch, places: Sequence[int]
    ) -> "dict[tuple[int, int], tuple[WriterSchema, int, list[tuple[int, int]]]]":
        """Records by schema: (schema, where values begin, [(index, place)])."""
        headers = self._framing.has_headers(raw)
        by_prefix: dict[bytes, tuple[WriterSchema, int]] = {}
        groups: dict[tuple[int, int], tuple[WriterSchema, int, list[tuple[int, int]]]] = {}
        for index, at in enumerate(places):
            prefix = b"" if headers else self._framing.prefix(raw.values[at] or b"")
            known = by_prefix.get(prefix)
            if known is None:
                known = self._records.value_writer(raw, at)
                if not headers:
                    by_prefix[prefix] = known
            writer, begin = known
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
            known = record["fields"] if inner and kind_of(record) == "record" else []
            self._trees[(top,)] = fields[top]
            self._trees.update({(top, f["name"]): f["type"] for f in known if f["name"] in inner})
            wanted = frozenset(f["name"] for f in known) & inner
            self._nodes[top] = maker.node(fields[top], wanted if inner else None)
        self._decoder = LaneDecoder(writer.schema.tree, None, self._nodes, maker.count)

    def columns(self, payloads: Sequence[bytes]) -> dict[str, pa.Array]:
        """Columns by name.

        Raises:
            OddDataError, ValueError: a message is not sound, or has what Arrow cannot convert.
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
