# SPDX-License-Identifier: Apache-2.0
"""Debezium events flattened by `ExtractNewRecordState`, with and without schema block.

The value is the row; members with a prefix (`__op`, `__source_ts_ms`, ...) are metadata. A delete
is a null value (mode `tombstone`, by the Kafka key), a row with `"__deleted": "true"` (mode
`rewrite`; `add.fields.prefix` does not hold for this member), or absent (mode `drop`). With
`rewrite-with-tombstone` it occurs twice; `tombstones: skip` drops the second.

The table comes from the metadata fields `source_table` or `table`, `source_db` or `db`,
`source_schema` or `schema` if the connector adds them, the rest from the topic's name, as for null
values. A topic with several tables therefore needs `rewrite`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ingest.decode.dialects.bare_rows import BLOCK, KeyedRows
from ingest.decode.events import SourceTable
from ingest.decode.json.debezium_json import flat_members
from ingest.decode.json.envelopes import (
    DialectOptions,
    Event,
    Image,
    epoch_ms,
    join_members,
    members_of,
    parse,
)
from ingest.decode.json.layout import Anatomy
from ingest.decode.json.schema_block import SchemaBlock
from ingest.decode.shapes import Shape
from ingest.decode.types.token_values import MEMBERS, NULL, PARSE_ERRORS

_CONTROL = {
    "Heartbeat": "heartbeat",
    "TransactionMetadataValue": "transaction",
    "SchemaChangeValue": "schema_change",
}
_HEARTBEAT_TOPIC = "__debezium-heartbeat"
_TRANSACTION_TOPIC = ".transaction"
_TRUE = (b'"true"', b"true")
_DELETED = "__deleted"
_DELETED_BYTES = msgspec.json.encode(_DELETED)
_OPS = {b'"c"': "c", b'"r"': "r", b'"u"': "u", b'"d"': "d"}
_BOUNDARY = {"status", "id", "event_count", "data_collections"}
_DDL = {"source", "databaseName", "ddl", "tableChanges"}
_NOTHING: Mapping[str, bytes] = {}
_TEXT = msgspec.json.Decoder(str)
_MAX_SOURCES = 65_536
_MOMENT_DIGITS = 19


class DebeziumFlat(KeyedRows):
    """See the module."""

    binary = "bytes"
    times = "adaptive"

    def __init__(self, options: DialectOptions) -> None:
        super().__init__(options)
        self._prefix = options.metadata_prefix
        self.members = flat_members(self._prefix)
        self._prefix_bytes = msgspec.json.encode(self._prefix)[:-1]
        self._metadata_columns = frozenset(options.metadata_columns)
        self._names = [
            (f"{self._prefix}source_{part}", f"{self._prefix}{part}")
            for part in ("table", "db", "schema")
        ]
        self.anatomy = _anatomy(self._prefix, [name for pair in self._names for name in pair])
        self._by_tokens: dict[tuple[str | bytes, ...], SourceTable] = {}

    def is_column(self, name: str) -> bool:
        """Whether a member is a column, not metadata."""
        return not self._is_metadata(name) or name in self._metadata_columns

    def _is_metadata(self, name: str) -> bool:
        return name == _DELETED or (bool(self._prefix) and name.startswith(self._prefix))

    def bare_shape(self, event: Event) -> Shape:
        """See `BareRows.bare_shape`: Debezium's encodings."""
        return Shape(event.source, None, self.facts, self.options.primary_keys)

    def read(self, topic: str, key: bytes | None, value: bytes | None) -> Event | str:
        """See `Dialect.read`."""
        block, payload = (None, None) if value is None else self.split_value(topic, value)
        if payload is None:
            if self.options.tombstones == "skip":
                return "tombstone"
            return self.deleted(topic, self._source(topic, _NOTHING), key)
        control = _control(topic, block, payload)
        if control:
            return control
        row, metadata = self._split_metadata(payload)
        return Event(
            source=self._source(topic, metadata),
            images=(_image(metadata, row, self._prefix),),
            ts_ms=_moment(metadata, self._prefix),
            types=b"" if block is None else block.raw,
            key=key,
        )

    # --- metadata

    def _split_metadata(self, payload: bytes) -> tuple[bytes, Mapping[str, bytes]]:
        """(row, metadata) of a flattened event.

        The transformation puts metadata last, so usually the text is split in two. A quote inside
        of a JSON string is escaped: the mark never matches in a value. If it matches in a nested
        object, the rest after it does not parse. What changed the order of members since may have
        left some metadata before the mark.
        """
        is_split = bool(self._prefix) and self._prefix_bytes in payload
        if not is_split and _DELETED_BYTES not in payload:
            return payload, _NOTHING
        at = payload.find(b"," + self._prefix_bytes) if is_split else -1
        head = payload[: max(at, 0)]
        if (
            at > 0
            and not self._metadata_columns
            and self._prefix_bytes not in head
            and _DELETED_BYTES not in head
        ):
            try:
                trailer = MEMBERS.decode(b"{" + payload[at + 1 :])
            except PARSE_ERRORS:
                trailer = {}
            if trailer and all(map(self._is_metadata, trailer)):
                return payload[:at] + b"}", {name: bytes(raw) for name, raw in trailer.items()}
        members = members_of(payload, "the event")
        metadata = {n: t for n, t in members.items() if self._is_metadata(n)}
        return join_members({n: t for n, t in members.items() if self.is_column(n)}), metadata

    def _source(self, topic: str, metadata: Mapping[str, bytes]) -> SourceTable:
        if not metadata:
            return self.source_of_topic(topic)
        tokens = [metadata.get(name) or metadata.get(alias, NULL) for name, alias in self._names]
        source = self._by_tokens.get((topic, *tokens))
        if source is None:
            if len(self._by_tokens) >= _MAX_SOURCES:
                self._by_tokens.clear()
            source = self._source_table(self.source_of_topic(topic), *map(_text, tokens))
            self._by_tokens[topic, *tokens] = source
        return source

    def _source_table(
        self, topic: SourceTable, table: str, database: str, schema: str
    ) -> SourceTable:
        if not database and not schema:
            database, schema = topic.database, topic.schema
        return SourceTable(database, schema, table or topic.table, topic.server)


def _text(token: bytes) -> str:
    """A name in metadata; "" if there is none.

    Raises:
        EventRefusedError: it is not JSON.
    """
    return parse(_TEXT.decode, token, "a name") if token[:1] == b'"' else ""


def _anatomy(prefix: str, names: Sequence[str]) -> Anatomy:
    reserved = (*BLOCK, frozenset(_BOUNDARY), frozenset(_DDL))
    is_odd = None if prefix and _DELETED.startswith(prefix) else _DELETED.__eq__
    if not prefix:
        return Anatomy(default_op="u", reserved=reserved, is_odd=is_odd)
    return Anatomy(
        operations=_OPS,
        op=(f"{prefix}op",),
        default_op="u",
        deletes=f"{prefix}deleted",
        stamps=((f"{prefix}source_ts_ms",), (f"{prefix}ts_ms",)),
        is_epoch=True,
        constant=frozenset((name,) for name in names),
        prefix=prefix,
        reserved=reserved,
        is_odd=is_odd,
    )


def _image(metadata: Mapping[str, bytes], row: bytes, prefix: str) -> Image:
    op = _OPS.get(metadata.get(f"{prefix}op", NULL), "u")
    if op == "d" or any(metadata.get(n) in _TRUE for n in (_DELETED, f"{prefix}deleted")):
        return Image("d", row, None)
    return Image(op, None, row)


def _moment(metadata: Mapping[str, bytes], prefix: str) -> int | None:
    for name in ("source_ts_ms", "ts_ms"):
        token = metadata.get(f"{prefix}{name}", NULL).strip(b'"')
        if token.isdigit() and len(token) <= _MOMENT_DIGITS:
            return epoch_ms(int(token))
    return None


def _is_boundary(members: Mapping[str, bytes]) -> bool:
    names = members.keys() - {"ts_ms"}
    return names == _BOUNDARY and members["status"] in (b'"BEGIN"', b'"END"')


def _control(topic: str, block: SchemaBlock | None, payload: bytes) -> str:
    """The kind of a message of the connector that is not a row; empty = a row."""
    if block is not None:
        kind = _CONTROL.get(block.name.rpartition(".")[2])
        if kind is not None:
            return kind
    if topic.startswith(_HEARTBEAT_TOPIC):
        return "heartbeat"
    if topic.endswith(_TRANSACTION_TOPIC) and _is_boundary(members_of(payload, "the event")):
        return "transaction"  # a table may have this name
    if b'"tableChanges":' in payload and members_of(payload, "the event").keys() >= _DDL:
        return "schema_change"
    return ""
