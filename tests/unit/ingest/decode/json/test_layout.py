# SPDX-License-Identifier: Apache-2.0
"""Walked events: what is taken, what is left to other paths, and that the rows are the same."""

import base64
import binascii
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.events import Target, Toast
from ingest.decode.json import envelope_decoder, layout
from ingest.source.records import PADDING
from tests.unit.ingest.agreeing_paths import rows_of
from tests.unit.ingest.debezium_events import (
    batch,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    message,
    schema,
    with_block,
)
from tests.unit.ingest.walking import compiled_scan, walking

COLUMNS = (("id", "BIGINT"), ("name", "STRING"), ("price", "DECIMAL(9,2)"), ("ok", "BOOLEAN"))
TABLE = schema(*COLUMNS, ("score", "DOUBLE"), ("seen", "TIMESTAMP(6)"), ("tags", "STRING"))
PLAIN = {
    "id": 7,
    "name": "Ada",
    "price": "AMg=",
    "ok": True,
    "score": 1.5,
    "seen": 1_760_000_000_000_000,
    "tags": None,
}


def image(**values):
    return {**PLAIN, **values}


def token(name, text):
    """A create event with one value as JSON text."""
    return message("c", None, image(**{name: "@@"})).replace(b'"@@"', text)


def walked(values, table=TABLE, learned=(), **options):
    """What the scan makes of events after some were seen, checked against the typed path."""
    learned = [*learned, message("c", None, PLAIN)]
    fresh = decoder(table, **options)
    fresh.decode(batch(*learned))
    typed = fresh.decode(batch(*values))
    with walking():
        one = decoder(table, **options)
        one.decode(batch(*learned))
        found = one.decode(batch(*values))
    assert typed.walked == 0
    assert found.counts == typed.counts
    assert [(b.offset, b.error) for b in found.bad] == [(b.offset, b.error) for b in typed.bad]
    changes = [sorted(each.changes, key=lambda change: change.target) for each in (found, typed)]
    for mine, other in zip(*changes, strict=True):
        mine.rows.validate(full=True)
        assert rows_of(mine.rows) == rows_of(other.rows)
        assert mine.min_source_ts_ms == other.min_source_ts_ms
        assert mine.max_source_ts_ms == other.max_source_ts_ms
    return found.walked


def test_events_of_a_learned_layout_are_walked():
    values = [message("c", None, image(id=number, name=f"n{number}")) for number in range(50)]
    assert walked(values) == 50


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", b"0"),
        ("id", b"-5"),
        ("id", b"12345678"),
        ("id", b"123456789"),
        ("id", b"999999999999999999"),
        ("name", b"null"),
        ("name", b'""'),
        ("name", b'"eight888"'),
        ("name", '"h\u00e9llo \u65e5\u672c"'.encode()),
        ("name", rb'"\u00e9\ud83d\ude00\n\t\"\\\/\b\f\r"'),
        ("price", b'"/w=="'),
        ("price", b"null"),
        ("ok", b"false"),
        ("ok", b"null"),
        ("score", b"-0.25e-7"),
        ("score", b"3"),
        ("seen", b"-1"),
    ],
)
def test_values_that_are_walked(name, text):
    assert walked([token(name, text)]) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", b"1000000000000000000"),
        ("id", b"9223372036854775808"),
        ("id", b"-0"),
        ("id", b"01"),
        ("id", b"1.0"),
        ("id", b"1e2"),
        ("id", b"null"),
        ("id", b'"7"'),
        ("id", b" 7"),
        ("id", b""),
        ("name", b"7"),
        ("name", rb'"\ud83d"'),
        ("name", rb'"\ud83d\u0041"'),
        ("name", rb'"\x"'),
        ("name", b'"\xff"'),
        ("name", b'"a\nb"'),
        ("name", b'"\xc3"'),
        ("name", b'"__debezium_unavailable_value"'),
        ("price", b'"A"'),
        ("price", b'"////////////////////////"'),
        ("price", b'"AB=="'),
        ("price", b"1.5"),
        ("ok", b"1"),
        ("ok", b"tru"),
        ("score", b"1e400"),
        ("score", b"-0"),
        ("score", b'"NaN"'),
        ("score", b"1."),
        ("seen", b"9223372036854775807"),
        ("tags", b'"a","z":1'),
        ("tags", b'"a","z":null'),
        ("tags", b'"a","id":8'),
    ],
)
def test_values_that_are_left_to_other_paths(name, text):
    plain = message("c", None, PLAIN)
    taken = walked([plain, token(name, text), plain])
    assert taken == 2 or (name, text) == ("price", b'"AB=="')


def test_every_damage_of_a_byte_is_noticed():
    whole = message("u", image(), image(name="\u00e9 and more", tags='["x"]'))
    values = [
        whole[:at] + other + whole[at + 1 :] for at in range(len(whole)) for other in (b"", b"\\")
    ]
    values += [whole[:at] for at in range(len(whole))]
    for start in range(0, len(values), 400):
        walked([*values[start : start + 400], whole], learned=[whole])


@pytest.mark.parametrize("toast", Toast)
def test_operations(toast):
    changed = message("u", image(id=1), image(id=2))
    values = [
        message("r", None, PLAIN),
        message("u", image(), image(name="new")),
        message("u", None, PLAIN),
        message("u", image(), image(tags="__debezium_unavailable_value")),
        changed,
        message("d", PLAIN, None),
        None,
        message("d", {"id": 7}, None),
        message("D", PLAIN, None),
        message("c", None, None),
        message("t", None, None),
    ]
    target = Target("shop.orders", TABLE, True, toast=toast)
    learned = [message("d", PLAIN, None), message("u", image(), PLAIN)]
    assert walked(values, {"orders": target}, learned) >= 4


def test_an_update_without_the_row_before_where_it_is_needed():
    target = Target("shop.orders", TABLE, True, needs_before=frozenset({"name"}))
    values = [message("u", None, PLAIN), message("u", image(), PLAIN), message("c", None, PLAIN)]
    assert walked(values, {"orders": target}, [message("u", image(), PLAIN)]) == 2


def test_layouts_with_a_schema_block_and_other_orders_of_members():
    block = connect_block(
        connect_field("id", "int64"),
        connect_field("name", "string"),
        connect_field("ok", "boolean"),
    )
    rows = [{"id": 1, "name": "a", "ok": True}, {"ok": False, "id": 2, "name": None}]
    values = [with_block(block, event("c", None, rows[at % 2])) for at in range(20)]
    values.insert(3, message("c", None, PLAIN))
    values.insert(9, json.dumps({"schema": block, "payload": event("c", None, rows[0])}).encode())
    table = schema(("id", "BIGINT"), ("name", "STRING"), ("ok", "BOOLEAN"))
    assert walked(values, table, values[:2]) == 20


def test_tables_of_one_topic():
    tables = {name: Target(f"shop.{name}", schema(*COLUMNS), True) for name in ("a", "b")}
    tables["orders"] = Target("shop.orders", TABLE, True)
    row = {name: PLAIN[name] for name, _ in COLUMNS}
    values = [message("c", None, row, table="ab"[at % 2]) for at in range(20)]
    assert walked(values, tables, values[:2]) == 20


def test_what_varies_behind_the_row():
    others = (None, "x", 5, True, 1.5, [1, {"a": "\u00e9"}], {"deep": [[[]], {}]})
    values = [message("c", None, PLAIN, sequence=other, ts_ms=None) for other in others]
    assert walked(values) == len(values)
    assert walked([message("c", None, PLAIN, ts_ms=-5)]) == 0
    assert walked([message("c", None, PLAIN, db="other")]) == 0


def test_events_are_walked_in_pieces(monkeypatch):
    monkeypatch.setattr(layout, "_MOST_BYTES", 1_000)
    values = [message("c", None, image(id=n, name="x" * (n * 40))) for n in range(40)]
    largest = len([value for value in values if len(value) > 1_000])
    assert walked(values) == 40 - largest


def test_a_decoder_that_walks_in_vain_stops_for_a_while(monkeypatch):
    scan = compiled_scan()
    monkeypatch.setattr(envelope_decoder, "scanner", lambda _: scan)
    monkeypatch.setattr(layout, "_LEAST_LEARNED", 1)
    one = decoder(TABLE)
    plain, odd = message("c", None, PLAIN), dumps(event("c", None, PLAIN)).replace(b":", b": ", 1)
    one.decode(batch(plain))
    assert one.decode(batch(plain)).walked == 1
    monkeypatch.setattr(layout, "_LEAST_LEARNED", 1_000)
    one.decode(batch(*[odd.replace(b"7", b"1e0")] * 9))
    assert one.decode(batch(plain)).walked == 0
    for _ in range(layout._PAUSE):
        one.decode(batch(plain))
    assert one.decode(batch(plain)).walked == 1


def test_without_compiled_functions_nothing_is_walked(monkeypatch):
    monkeypatch.setattr(envelope_decoder, "scanner", lambda _: None)
    one = decoder(TABLE)
    plain = message("c", None, PLAIN)
    assert [one.decode(batch(plain, plain)).walked for _ in range(3)] == [0, 0, 0]


@given(st.lists(st.binary(max_size=12) | st.text("ABab09+/=-", max_size=12), max_size=5))
def test_base64_is_decoded_as_python_does(parts):
    """Only texts that an encoder writes: with padding, and without bits behind the last byte."""
    texts = [base64.b64encode(one) if isinstance(one, bytes) else one.encode() for one in parts]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    data = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
    offsets, out = np.empty(len(texts) + 1, np.int32), np.empty(len(data) + PADDING, np.uint8)
    size = compiled_scan().copy_base64(data, len(texts), ends[:-1], ends[1:], offsets, out)
    found = [bytes(out[one:end]) for one, end in itertools.pairwise(offsets)] if size >= 0 else None
    assert found == _decoded(texts)


def _decoded(texts):
    try:
        decoded = [base64.b64decode(text, validate=True) for text in texts]
    except binascii.Error:
        return None
    return decoded if [*map(base64.b64encode, decoded)] == texts else None
