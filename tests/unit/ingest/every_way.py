# SPDX-License-Identifier: Apache-2.0
"""The same row events through every way of decoding: JSON with block, bare JSON, Avro; each column
by column, and one by one as the reference has it."""

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from ingest.decode.avro import debezium as debezium_avro
from ingest.decode.avro import lanes as avro_lanes
from ingest.decode.avro import writer_schemas
from ingest.decode.events import DecodeResult, SourceTable, Target, Toast
from ingest.decode.json import envelope_decoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.registry import AVRO, RegisteredSchema
from ingest.decode.types.semantic_types import TypeMapping
from ingest.source.records import RawBatch
from storage.format.metadata.schema import TableSchema
from tests.unit.ingest.avro_events import SOURCE as AVRO_SOURCE
from tests.unit.ingest.avro_events import Schemas, Writer, envelope
from tests.unit.ingest.debezium_events import TOPIC, connect_block, dumps, event
from tests.unit.ingest.walking import walking

__all__ = ["BARE", "EveryWay", "avro_row", "avro_type", "by_columns", "by_reference", "stored"]

_AVRO = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float"}
BARE = ("bare", "bare reference")


def _none(decoding: Any, shape: Any, places: Any, events: Sequence[Any]) -> list[int]:
    return list(range(len(events)))


def _all(_: Any, events: Sequence[Any]) -> list[int]:
    return list(range(len(events)))


def _refused(*_: Any) -> Any:
    raise AssertionError("the reference path was asked")


@contextlib.contextmanager
def by_columns(*, strictly: bool = False) -> Iterator[None]:
    """Few Avro messages are decoded in step, too, and few JSON events walked.

    `strictly`: nothing else may happen.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(walking())
        for module in (avro_lanes, debezium_avro):
            stack.enter_context(mock.patch.object(module, "LEAST_MESSAGES", 1))
        if strictly:
            stack.enter_context(mock.patch.object(envelope_decoder, "decode_images", _refused))
        yield


@contextlib.contextmanager
def by_reference(*, of_rows: bool = False) -> Iterator[None]:
    """Every row event goes alone through the reference path.

    `of_rows`: but columns that wait for a change of the schema are recognised.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(envelope_decoder._Decoding, "_columns", _none))
        if not of_rows:
            stack.enter_context(mock.patch.object(envelope_decoder, "_unrecognised", _all))
        stack.enter_context(mock.patch.object(envelope_decoder, "scanner", return_value=None))
        lanes = mock.patch.object(writer_schemas.EnvelopeLanes, "of", return_value=None)
        stack.enter_context(lanes)
        yield


class EveryWay:
    """Events of one table, in each encoding.

    Args:
        fields: of the schema block.
        rows: images after.
        target: the table; None = it does not exist.
        op: of the events.
        mapping: words of `sink.type.mapping`.
        options: of the decoder.
    """

    def __init__(
        self,
        fields: Sequence[dict[str, Any]],
        rows: Sequence[Mapping[str, Any]],
        target: TableSchema | None,
        *,
        op: str = "c",
        mapping: Sequence[str] = (),
        toast: Toast = Toast.FAIL,
        **options: Any,
    ) -> None:
        self._fields = fields
        self._rows = rows
        self._target = Target("shop.orders", target, toast=toast)
        self._op = op
        self._options = DialectOptions(**{"type_mapping": TypeMapping.of(mapping), **options})

    def all(self, *, strictly: bool = False, bare: bool = True) -> dict[str, DecodeResult]:
        """Results by the name of the way."""
        found: dict[str, DecodeResult] = {}
        for name, context in (("", by_columns(strictly=strictly)), (" reference", by_reference())):
            with context:
                found["block" + name] = self.block()
                found["avro" + name] = self.avro()
                if bare:
                    found["bare" + name] = self.bare()
        return found

    def block(self) -> DecodeResult:
        """JSON with a schema block."""
        prefix = b'{"schema":' + dumps(connect_block(*self._fields)) + b',"payload":'
        return self._json([prefix + payload + b"}" for payload in self._payloads()])

    def bare(self) -> DecodeResult:
        """JSON without."""
        return self._json(self._payloads())

    def avro(self) -> DecodeResult:
        """Avro, as Connect's converter writes it."""
        columns = {field["field"]: avro_type(field, field["field"]) for field in self._fields}
        schema = envelope(columns)
        writer = Writer(schema, 1)
        schemas = Schemas()
        schemas.known[1] = RegisteredSchema(AVRO, json.dumps(schema))
        values = [
            writer(self._event(avro_row(self._fields, row)) | {"source": AVRO_SOURCE})
            for row in self._rows
        ]
        decoder = debezium_avro.DebeziumAvroDecoder(schemas, 4, self._options, self._resolve)
        # the key of Avro records has a schema of its own; these tables exist or are not made
        return decoder.decode(self._raw(values))

    def _event(self, row: Mapping[str, Any]) -> dict[str, Any]:
        images = (row, None) if self._op == "d" else (None, row)
        return event(self._op, *images) | {"transaction": None}

    def _payloads(self) -> list[bytes]:
        return [dumps(self._event(row)) for row in self._rows]

    def _json(self, values: Sequence[bytes]) -> DecodeResult:
        decoder = envelope_decoder.EnvelopeDecoder(DebeziumJson(self._options), self._resolve)
        return decoder.decode(self._raw(values))

    def _raw(self, values: Sequence[bytes]) -> RawBatch:
        keys: list[bytes | None] = [b'{"id":%d}' % n for n in range(len(values))]
        return RawBatch(TOPIC, 0, list(range(len(values))), keys, list(values))

    def _resolve(self, _: SourceTable, __: str) -> Target:
        return self._target


def stored(result: DecodeResult, name: str = "v") -> list[Any]:
    """Values of a column, in offset order; text where NaN could not be compared."""
    return [value for change in result.changes for value in change.rows.column(name).to_pylist()]


def avro_type(field: Mapping[str, Any], path: str, *, element: bool = False) -> Any:
    kind = field["type"]
    properties: dict[str, Any] = {}
    if field.get("name"):
        properties = {"connect.name": field["name"], "connect.version": 1}
    if field.get("parameters"):
        properties["connect.parameters"] = field["parameters"]
    if kind in ("int8", "int16"):
        properties["connect.type"] = kind
    if kind == "array":
        inner: Any = {"type": kind, "items": avro_type(field["items"], path, element=True)}
    elif kind == "map":
        inner = {"type": kind, "values": avro_type(field["values"], path, element=True)}
    elif kind == "struct":
        members = [
            {"name": f["field"], "type": avro_type(f, f"{path}_{f['field']}")}
            for f in field["fields"]
        ]
        inner = {"type": "record", "name": f"R_{path}", "fields": members}
    else:
        inner = {"type": _AVRO.get(kind, kind)}
    optional = field.get("optional", not element)
    return ["null", {**inner, **properties}] if optional else {**inner, **properties}


def avro_row(fields: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    return {f["field"]: _avro_value(f, row.get(f["field"])) for f in fields}


def _avro_value(field: Mapping[str, Any], value: Any) -> Any:
    if value is None:
        return None
    match field["type"]:
        case "bytes":
            return base64.b64decode(value)
        case "struct":
            return avro_row(field["fields"], value)
        case "array":
            return [_avro_value(field["items"], item) for item in value]
        case "map":
            return {name: _avro_value(field["values"], item) for name, item in value.items()}
        case "float" | "float32" | "double" | "float64":
            return float(value)
    return value
