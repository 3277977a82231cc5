# SPDX-License-Identifier: Apache-2.0
"""A changed key whose new row lacks unchanged values: when the old row is surely known."""

import dataclasses
import json

import pytest

from ingest.decode.avro.debezium import DebeziumAvroDecoder
from ingest.decode.events import MOVED, UNAVAILABLE_COLUMN, Target, Toast
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.outcome import key_columns
from ingest.decode.registry import AVRO, RegisteredSchema
from ingest.source.records import RawBatch
from tests.unit.ingest.avro_events import SOURCE as AVRO_SOURCE
from tests.unit.ingest.avro_events import Extra, Schemas, Writer, envelope, key_schema
from tests.unit.ingest.debezium_events import (
    TOPIC,
    classes,
    connect_block,
    connect_field,
    dumps,
    event,
    rows,
    schema,
)

MISSING = "__debezium_unavailable_value"
TABLE = schema(("id", "BIGINT"), ("n", "INT"), ("v", "STRING"))
V = TABLE.field("v").id
FIELDS = [connect_field("id", "int64"), connect_field("n", "int32"), connect_field("v", "string")]
TARGET = Target("shop.orders", TABLE, toast=Toast.KEEP, finds_old_rows=True)


@dataclasses.dataclass
class Record:
    """Of one event: op, key, image, headers."""

    op: str
    key: int
    row: dict | None = None
    headers: tuple = ()


def delete(key, new=None):
    headers = () if new is None else (("__debezium.newkey", b'{"id":%d}' % new),)
    return Record("d", key, {"id": key, "n": None, "v": None}, headers)


def tombstone(key):
    return Record("", key)


def create(key, old=None, v=MISSING, op="c"):
    headers = () if old is None else (("__debezium.oldkey", b'{"id":%d}' % old),)
    return Record(op, key, {"id": key, "n": 5, "v": v}, headers)


def payload(record):
    images = (record.row, None) if record.op == "d" else (None, record.row)
    return event(record.op, *images)


def decode(encoding, records, target=TARGET):
    def resolve(source, _):
        return target

    schemas = Schemas()
    options = DialectOptions()
    if encoding == "avro":
        fields = {"id": "long", "n": ["null", "int"], "v": ["null", "string"]}
        value, key = Writer(envelope(fields), 1), Writer(key_schema(id="long"), 2)
        for number, writer in ((1, value), (2, key)):
            schemas.known[number] = RegisteredSchema(AVRO, json.dumps(writer.schema))
        keys = [key({"id": record.key}) for record in records]
        values = [
            value(payload(r) | {"source": AVRO_SOURCE, "transaction": None}) if r.op else None
            for r in records
        ]
        decoder = DebeziumAvroDecoder(schemas, 4, options, resolve)
    else:
        block = connect_block(*FIELDS)
        whole = encoding == "block"
        keys = [dumps({"id": record.key}) for record in records]
        if whole:
            keys = [b'{"schema":{"type":"struct"},"payload":%b}' % key for key in keys]
        values = [
            dumps({"schema": block, "payload": payload(r)} if whole else payload(r))
            if r.op
            else None
            for r in records
        ]
        decoder = EnvelopeDecoder(DebeziumJson(options), resolve)
    extras = {at: Extra(record.headers, 1) for at, record in enumerate(records)}
    offsets = list(range(10, 10 + len(records)))
    return decoder.decode(RawBatch(TOPIC, 0, offsets, keys, values, extras=extras))


EVERYWHERE = pytest.mark.parametrize("encoding", ["bare", "block", "avro"])


@EVERYWHERE
@pytest.mark.parametrize("between", [[], [tombstone(1)]], ids=["", "tombstone"])
def test_the_new_row_follows_the_delete_of_its_old_key(encoding, between):
    before = [create(1, v="x"), create(7, v="y")]
    result = decode(encoding, [*before, delete(1, 2), *between, create(2, 1), create(3, v="z")])
    assert result.bad == []
    at = 13 + len(between)
    found = [(r["kind"], r["id"], r["offset"], r[UNAVAILABLE_COLUMN]) for r in rows(result)]
    assert found == [
        ("+I", 1, 10, None),
        ("+I", 7, 11, None),
        ("-D", 1, 12, None),
        ("-D", 1, at, None),
        ("+I", 2, at, [MOVED, V]),
        ("+I", 3, at + 1, None),
    ]


@EVERYWHERE
@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([create(2)], "the row is new"),
        ([create(2, 1)], "right before"),
        ([tombstone(1), create(2, 1)], "right before"),
        ([delete(1, 2), tombstone(1), tombstone(1), create(2, 1)], "right before"),
        ([delete(1, 2), create(9, v="x"), create(2, 1)], "right before"),
        ([delete(1), create(2, 1)], "another change"),
        ([delete(1, 3), create(2, 1)], "another change"),
        ([delete(4, 2), create(2, 1)], "another key"),
        ([delete(1, 2), create(2)], "the row is new"),
    ],
)
def test_what_is_not_surely_known_is_bad(encoding, records, why):
    result = decode(encoding, records)
    assert classes(result) == ["unavailable_value"]
    assert why in result.bad[0].error
    assert result.bad[0].offset == 9 + len(records)


@EVERYWHERE
def test_a_table_of_several_tasks_refuses(encoding):
    target = dataclasses.replace(TARGET, finds_old_rows=False)
    result = decode(encoding, [delete(1, 2), tombstone(1), create(2, 1)], target)
    assert classes(result) == ["unavailable_value"]
    assert "tables of one bucket" in result.bad[0].error
    null = dataclasses.replace(target, toast=Toast.NULL)
    result = decode(encoding, [delete(1, 2), tombstone(1), create(2, 1)], null)
    assert [(row["kind"], row["v"]) for row in rows(result)] == [("-D", None), ("+I", None)]


def test_an_update_tells_both_keys_itself():
    record = event("u", {"id": 1, "n": 1, "v": None}, {"id": 2, "n": 1, "v": MISSING})
    raw = RawBatch(TOPIC, 0, [5], [None], [dumps(record)])
    result = EnvelopeDecoder(DebeziumJson(DialectOptions()), lambda _, __: TARGET).decode(raw)
    assert [(r["kind"], r["id"], r[UNAVAILABLE_COLUMN]) for r in rows(result)] == [
        ("-D", 1, None),
        ("+I", 2, [MOVED, V]),
    ]


def test_a_key_may_have_columns_that_are_called_schema_and_payload():
    assert key_columns(b'{"schema":"a","payload":"b","id":1}') == {"schema", "payload", "id"}
    assert key_columns(b'{"schema":null,"payload":{"id":1}}') == {"id"}
    assert key_columns(b"") is key_columns(b"junk") is key_columns(b"[1]") is None
