# SPDX-License-Identifier: Apache-2.0
"""The fast decoding path gives exactly what the reference path gives, on hostile events too.

`OddEvents` makes the events; every captured event of a real connector is compared as well. A third
opinion on plain values is orjson's.
"""

import json
import random
from pathlib import Path

import orjson
import pytest

from ingest.decode.avro.debezium import DebeziumAvroDecoder
from ingest.decode.events import DecodeResult, Target, Toast
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.registry import AVRO, RegisteredSchema
from ingest.decode.types.conversions import Placeholder
from ingest.decode.types.semantic_types import TypeMapping
from ingest.source.records import RawBatch
from storage.format.metadata.schema import new_schema
from storage.format.types.types import RowKind, parse_type
from tests.unit.ingest.agreeing_paths import assert_paths_agree, rows_of
from tests.unit.ingest.avro_events import SOURCE as AVRO_SOURCE
from tests.unit.ingest.avro_events import Schemas, Writer, envelope
from tests.unit.ingest.captured_events import captures, load
from tests.unit.ingest.debezium_events import TOPIC, connect_block, dumps, event, message
from tests.unit.ingest.every_way import avro_row, avro_type, by_reference
from tests.unit.ingest.odd_events import COLUMNS, FIELDS, OddEvents

BATCH = 1_200
TABLE = new_schema(
    [(name, parse_type(type_)) for name, (type_, _) in COLUMNS.items()],
    primary_keys=("id", "region"),
    options={},
    now_ms=0,
)
PREFIX = b'{"schema":' + dumps(connect_block(*FIELDS)) + b',"payload":'
PLAIN = {"id": int, "region": str, "big": int, "n": int, "ok": bool, "d": (int, float), "text": str}
"""Columns whose values are the JSON values, and what orjson makes of those."""
PLACEHOLDER = Placeholder("__debezium_unavailable_value")

BITS = "bits-to-bigint"
SETTINGS = [
    (Toast.FAIL, True, (BITS,)),
    (Toast.KEEP, False, ("infinity-to-bounds", BITS)),
    (Toast.NULL, True, ("infinity-to-null", "unsigned-bigint-to-decimal", "no-change", BITS)),
]
"""Of consecutive batches: what becomes of values not sent, whether columns may come, mappings."""


def setting(number):
    toast, evolvable, words = SETTINGS[number % len(SETTINGS)]
    target = Target("shop.orders", TABLE, evolvable, toast=toast)
    options = DialectOptions(type_mapping=TypeMapping.of(words))
    return options, lambda source, _: target if source.table == "orders" else None


def raw(values):
    keys = [b'{"id":%d,"region":"eu"}' % n if n % 3 else None for n in range(len(values))]
    return RawBatch(TOPIC, 0, list(range(len(values))), keys, list(values))


def comparable(result: DecodeResult):
    """Everything of a result."""
    rows = {
        change.target: (rows_of(change.rows), change.min_source_ts_ms, change.max_source_ts_ms)
        for change in result.changes
    }
    bad = [(record.offset, record.error_class, record.error) for record in result.bad]
    deltas = {(d.target, str(d.fields), d.primary_key, d.offset) for d in result.deltas}
    return rows, bad, deltas, result.counts


def assert_same(fast, reference):
    for one, other in zip(comparable(fast), comparable(reference), strict=True):
        assert one == other


def compare_json(number, payloads):
    """Decode a batch both ways; how many records became rows or were refused."""
    options, resolve = setting(number)
    block = number % 2 == 0
    values = [PREFIX + payload + b"}" for payload in payloads] if block else payloads
    fast = EnvelopeDecoder(DebeziumJson(options), resolve).decode(raw(values))
    with by_reference():
        reference = EnvelopeDecoder(DebeziumJson(options), resolve).decode(raw(values))
    assert_same(fast, reference)
    assert sum(fast.counts.values()) + len(fast.bad) == len(values)
    compare_plain(fast, payloads)
    return sum(fast.counts.get(f"op.{op}", 0) for op in "crud"), len(fast.bad)


def compare_plain(result, payloads):
    """What orjson reads is what the rows have, wherever orjson can read it."""
    for change in result.changes:
        columns = {name: change.rows.column(name).to_pylist() for name in PLAIN}
        kinds = change.rows.column("_VALUE_KIND").to_pylist()
        for at, offset in enumerate(change.rows.column("_OFFSET").to_pylist()):
            if kinds[at] == RowKind.DELETE:
                continue
            try:
                after = orjson.loads(payloads[offset])["after"]
            except ValueError:  # half a character, a name that is no UTF-8
                continue
            for name, kind in PLAIN.items():
                given = after.get(name)
                if isinstance(given, kind) and not PLACEHOLDER.is_value(given):
                    given = float(given) if name == "d" else given
                    assert columns[name][at] == given, (name, payloads[offset])


def run_json(events, seed):
    made = OddEvents(seed)
    taken = [compare_json(n, made.payloads(BATCH)) for n in range(-(-events // BATCH))]
    rows, bad = (sum(column) for column in zip(*taken, strict=True))
    return rows, bad


def run_avro(events, seed):
    columns = {field["field"]: avro_type(field, field["field"]) for field in FIELDS}
    schema = envelope(columns)
    writer, schemas = Writer(schema, 1), Schemas()
    schemas.known[1] = RegisteredSchema(AVRO, json.dumps(schema))
    made, rng = OddEvents(seed), random.Random(seed)
    bad = 0
    for number in range(-(-events // BATCH)):
        values = [_avro_message(writer, row, rng) for row in made.sound_rows(BATCH)]
        options, resolve = setting(number)
        fast = DebeziumAvroDecoder(schemas, 4, options, resolve).decode(raw(values))
        with by_reference():
            reference = DebeziumAvroDecoder(schemas, 4, options, resolve).decode(raw(values))
        assert_same(fast, reference)
        bad += len(fast.bad)
    return bad


EDGES = {
    "day": [-622_191_234, 2_146_033_979, -(2**31), 2**31 - 1],
    "ts": [2**63 - 1, -(2**63), 9_223_372_036_825_200_000],
    "ns": [2**63 - 1, -(2**63), 0],
    "t": [86_400_000_000, -1, 2**62],
    "tz": ["infinity", "-infinity", "2026-02-30T00:00:00Z", "", "2026-01-01T00:00:00.1234567Z"],
    "tiny": [200, -129, 2**31 - 1],
    "f": [float("nan"), 3.4e38, float("-inf")],
    "d": [float("nan"), float("inf"), -0.0],
    "short": ["sixsix", "\U0001f600" * 5, "\0"],
    "doc": ["__debezium_unavailable_value", ""],
    "text": ["__debezium_unavailable_value", "x" * 70_000],
    "amount": ["", "AP//////////", "gA=="],
    "many": [list(b"__debezium_unavailable_value"), []],
}


def _avro_message(writer, row, rng):
    if rng.random() < 0.1:
        name = rng.choice(sorted(EDGES))
        row = {**row, name: rng.choice(EDGES[name])}
    op = rng.choice("crud")
    image = avro_row(FIELDS, row)
    before = {"c": None, "r": None}.get(op, image)
    if op == "u" and rng.random() < 0.3:
        before = {**image, "id": image["id"] + rng.randrange(2)}
    table = {"table": "other"} if rng.random() < 0.02 else {}
    data = writer(
        event(op, before, None if op == "d" else image)
        | {"source": {**AVRO_SOURCE, **table}, "transaction": None}
    )
    if rng.random() < 0.03:
        at = rng.randrange(len(data))
        return rng.choice([data[:at], data[:at] + rng.randbytes(1) + data[at + 1 :], data + b"\0"])
    return data


def test_json_paths_agree():
    rows, bad = run_json(3 * BATCH, seed=1)
    assert rows > BATCH
    assert bad > BATCH // 4


def test_avro_paths_agree():
    assert run_avro(BATCH, seed=2) > 20


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_json_paths_agree_on_many_events(seed):
    rows, bad = run_json(24_000, seed=100 + seed)
    assert (rows > 10_000, bad > 1_000) == (True, True)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_avro_paths_agree_on_many_events(seed):
    assert run_avro(8_000, seed=200 + seed) > 100


@pytest.mark.parametrize("size", [100, 1 << 20, pytest.param(1 << 24, marks=pytest.mark.full)])
def test_large_rows_agree(size):
    text = '"\\\U0001f600é' * (size // 10)
    row = json.loads(OddEvents(3)._object(OddEvents(3)._row())) | {"text": text}
    payloads = [message("c", None, row), message("u", row, row | {"n": 2**40})]
    for number in (0, 1):
        assert sum(compare_json(number, payloads)) == 2


@pytest.mark.parametrize(
    "path", captures(["json", "json-schema", "avro"]), ids=lambda path: path.name.split(".jsonl")[0]
)
def test_paths_agree_on_captured_events(path: Path) -> None:
    assert assert_paths_agree(load(path)) > 0
