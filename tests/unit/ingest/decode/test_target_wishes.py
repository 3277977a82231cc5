# SPDX-License-Identifier: Apache-2.0
"""What targets ask of decoders: columns to leave alone, and old values that must be told."""

import json

import pytest

from ingest.decode.avro import debezium as debezium_avro
from ingest.decode.avro import lanes as avro_lanes
from ingest.decode.events import Target
from ingest.decode.registry import RegisteredSchema
from tests.unit.ingest import avro_events
from tests.unit.ingest.avro_events import Schemas, Writer, envelope, optional
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    message,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import dialect_decoder

WHY = "the event does not tell the old value"


@pytest.fixture(autouse=True)
def few_messages_in_step(monkeypatch):
    monkeypatch.setattr(avro_lanes, "LEAST_MESSAGES", 1)
    monkeypatch.setattr(debezium_avro, "LEAST_MESSAGES", 1)


def bare(target, *changes):
    return decoder({"orders": target}).decode(batch(*(message(*change) for change in changes)))


def blocks(target, *changes):
    names = {name: None for change in changes for row in change[1:] if row for name in row}
    block = connect_block(*(connect_field(n, "string" if n == "extra" else "int64") for n in names))
    values = [with_block(block, event(*change)) for change in changes]
    return decoder({"orders": target}).decode(batch(*values))


def avro(target, *changes):
    names = {name: None for change in changes for row in change[1:] if row for name in row}
    fields = {n: optional("string" if n == "extra" else "long") for n in names}
    schemas = Schemas()
    written = envelope(fields)
    schemas.known[1] = RegisteredSchema("AVRO", json.dumps(written))
    writer = Writer(written, 1)
    whole = [
        (op, *({**dict.fromkeys(names), **row} if row else None for row in images))
        for op, *images in changes
    ]
    values = [writer(avro_events.event(*change)) for change in whole]
    one = avro_events.decoder(schemas, None, targets={"orders": target})
    return one.decode(avro_events.batch(values))


def ogg(target, *changes):
    letters = {"c": "I", "u": "U", "d": "D"}
    values = []
    for op, before, *after in changes:
        value = {"table": "shop.orders", "op_type": letters[op], "op_ts": "2024-01-01 00:00:00.0"}
        value |= {"before": before} if before else {}
        values.append(dumps(value | ({"after": after[0]} if after else {})))
    return dialect_decoder("ogg-json", {"orders": target}).decode(batch(*values))


FORMATS = [bare, blocks, avro, ogg]


@pytest.mark.parametrize("decode", FORMATS)
def test_ignored_columns_are_neither_decoded_nor_asked_for(decode):
    target = Target("shop.orders", schema(("id", "BIGINT")), ignored=frozenset({"extra", "more"}))
    result = decode(
        target,
        ("c", None, {"id": 1, "extra": "x"}),
        ("c", None, {"id": 2}),
        ("c", None, {"id": 3, "extra": None}),
        ("u", {"id": 1, "extra": "x"}, {"id": 4, "extra": "y"}),
        ("d", {"id": 2, "extra": "x"}),
    )
    assert (result.bad, result.deltas) == ([], [])
    assert [(row["kind"], row["id"]) for row in rows(result)] == [
        ("+I", 1),
        ("+I", 2),
        ("+I", 3),
        ("-D", 1),
        ("+I", 4),
        ("-D", 2),
    ]


@pytest.mark.parametrize("decode", FORMATS)
def test_what_is_not_ignored_is_still_asked_for(decode):
    target = Target("shop.orders", schema(("id", "BIGINT")), ignored=frozenset({"extra"}))
    result = decode(target, ("c", None, {"id": 1, "extra": "x", "new": 1}))
    assert [field.name for field in result.deltas[0].fields] == ["new"]


@pytest.mark.parametrize("decode", FORMATS)
def test_old_values_that_must_be_told(decode):
    table = schema(("id", "BIGINT"), ("at", "BIGINT NOT NULL"), ("v", "BIGINT"), key=("id", "at"))
    target = Target("shop.orders", table, needs_before=WHY)
    old = {"id": 1, "at": 1, "v": 1}
    result = decode(
        target,
        ("c", None, old),
        ("u", old, {"id": 1, "at": 1, "v": 2}),
        ("u", None, {"id": 1, "at": 1, "v": 3}),
        ("u", {"id": 1}, {"id": 1, "at": 1, "v": 4}),
        ("u", old, {"id": 1, "at": 2, "v": 5}),
        ("d", {"id": 1}),
        ("d", old),
    )
    told = [record for record in result.bad if record.error_class == "before_image"]
    assert classes(result) == ["before_image"] * len(told)
    assert {record.error for record in told} == {WHY}
    found = [(row["kind"], row["at"], row["v"]) for row in rows(result)]
    unchanged = [("+U", 1, 4)] if decode is ogg else []  # `before` has what changed, no more
    assert found == [
        ("+I", 1, 1),
        ("+U", 1, 2),
        *unchanged,
        ("-D", 1, 1),
        ("+I", 2, 5),
        ("-D", 1, 1),
    ]
    assert len(told) == 3 - len(unchanged)
