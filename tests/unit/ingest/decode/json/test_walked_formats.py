# SPDX-License-Identifier: Apache-2.0
"""Layouts of formats other than Debezium's envelopes: what is walked, and what must not be."""

import json

import pytest

from ingest.decode.events import Target, Toast
from ingest.decode.json.envelopes import DialectOptions
from tests.bench import decode_events
from tests.bench.decode_formats import FORMATS, messages, table
from tests.unit.ingest.agreeing_paths import rows_of
from tests.unit.ingest.debezium_events import batch, schema
from tests.unit.ingest.dialect_decoders import dialect_decoder
from tests.unit.ingest.every_way import by_reference
from tests.unit.ingest.walking import walking

SMALL = schema(("id", "BIGINT"), ("name", "STRING"), ("n", "INT"))


def comparable(result):
    changes = sorted(result.changes, key=lambda change: change.target)
    rows = [(rows_of(c.rows), c.min_source_ts_ms, c.max_source_ts_ms) for c in changes]
    bad = [(record.offset, record.error_class, record.error) for record in result.bad]
    return rows, bad, result.counts, result.deltas


def walked(name, learned, values, *, schema_=SMALL, keys=None, **options):
    """How many of some messages the scan takes after others, checked against the reference."""
    keys = keys or [None] * len(values)
    options = {"topic": "d.orders", **options}
    topic = options.pop("topic")
    results = []
    for way in (walking, by_reference):
        with way():
            one = dialect_decoder(name, schema_, **options)
            if way is walking:
                one.decode(batch(*learned, keys=[b'{"id":1}'] * len(learned), topic=topic))
            results.append(one.decode(batch(*values, keys=keys, topic=topic)))
    assert comparable(results[0]) == comparable(results[1])
    assert results[1].walked == 0
    return results[0].walked


def canal(*rows, op="INSERT", old=None, **more):
    value = {
        "data": list(rows),
        "database": "d",
        "es": 1_760_000_000_000,
        "isDdl": False,
        "mysqlType": {"id": "bigint", "name": "text", "n": "int"},
        "old": old,
        "table": "orders",
        "ts": 1_760_000_000_001,
        "type": op,
    }
    return json.dumps({**value, **more}, separators=(",", ":")).encode()


def row(id_, name="x", n="5"):
    return {"id": str(id_), "name": name, "n": n}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_walked(name):
    format_, write, rows = FORMATS[name]
    written = messages(write, 200, rows)
    keys, values = zip(*written, strict=True)
    mode = {"decimal_handling_mode": "string"} if format_ == "debezium-flat" else {}
    found = walked(
        format_,
        values[:100],
        values[100:],
        schema_=table(),
        keys=keys[100:],
        topic="shop.orders",
        **mode,
    )
    assert found == 100


def _odd_byte(at):
    return b'"0,}n{[\\:\xff'[at % 11 : at % 11 + 1]


@pytest.mark.parametrize("name", [name for name in FORMATS if "10 rows" not in name])
def test_damaged_messages_are_read_alike(name):
    """Every byte replaced, and every length cut."""
    format_, write, rows = FORMATS[name]
    mode = {"decimal_handling_mode": "string"} if format_ == "debezium-flat" else {}
    written = messages(write, 40, rows)
    for key, value in written[3:6]:
        values = [value[:at] for at in range(1, len(value), 3)]
        values += [value[:at] + _odd_byte(at) + value[at + 1 :] for at in range(len(value))]
        taken = walked(
            format_,
            [value for _, value in written],
            [*values, value],
            schema_=table(),
            keys=[key] * (len(values) + 1),
            topic="shop.orders",
            **mode,
        )
        assert 0 < taken < len(values)


def requested(format_, values, key):
    """What events of a table that does not exist request, checked against the reference.

    Damaged events, new columns and other types are among them. Also how many the scan takes.
    """
    first = values[3]
    odd = [first[:at] + _odd_byte(at) + first[at + 1 :] for at in range(0, len(first), 3)]
    odd += [value.replace(b'"status"', b'"more"').replace(b"1", b"1.5", 1) for value in values[:9]]
    parts = (values[:20], values[20:], [*values[:20], *odd], values)
    results = {}
    for way in (walking, by_reference):
        with way():
            decoder = dialect_decoder(format_, None, primary_keys=lambda _: ("id",))
            results[way] = [
                decoder.decode(batch(*part, keys=[key] * len(part), topic="shop.orders"))
                for part in parts
            ]
    assert list(map(comparable, results[walking])) == list(map(comparable, results[by_reference]))
    taken = results[walking][1]
    return taken.deltas, taken.walked


@pytest.mark.parametrize("name", FORMATS)
def test_events_of_a_missing_table_request_the_same_columns(name):
    format_, write, rows = FORMATS[name]
    keys, values = map(list, zip(*messages(write, 60, rows), strict=True))
    deltas, taken = requested(format_, values, keys[0])
    assert deltas
    assert taken == (0 if format_ == "aws-dms-json" else 40)


@pytest.mark.parametrize("types", ["declared", "guessed"])
def test_envelopes_of_a_missing_table_request_the_same_columns(types):
    values = decode_events.payloads(60)
    if types == "declared":
        prefix = b'{"schema":' + decode_events.block() + b',"payload":'
        values = [prefix + value + b"}" for value in values]
    deltas, taken = requested("debezium-json", values, b'{"id":1}')
    assert len(deltas[0].fields) == len(decode_events.COLUMNS)
    assert taken == 40


def test_rows_of_an_array_are_used_together():
    learned = [canal(row(1), row(2))]
    values = [canal(row(3), row(4)), canal(row(5)), canal(row(6), row(7, n="x"), row(8))]
    values += [canal(row(9), {"id": "10"}), canal(*(row(at) for at in range(20, 60)))]
    assert walked("canal-json", learned, values) == 3


def test_updates_of_an_array_are_compared_row_by_row():
    learned = [canal(row(1), op="UPDATE", old=[{"n": "4"}])]
    values = [
        canal(row(2), row(3), op="UPDATE", old=[{"n": "4"}, {"name": "y", "n": None}]),
        canal(row(4), row(5), op="UPDATE", old=[{"n": "4"}, {"id": "6"}]),  # another key
        canal(row(7), row(8), op="UPDATE", old=[{"n": "4"}, {"id": "8", "n": "1"}]),
        canal(row(9), row(10), op="UPDATE", old=[{"n": "4"}]),
        canal(row(11), op="UPDATE", old=[{}]),
        canal(row(12), op="UPDATE", old=[{"\u0069d": "12"}]),
        canal(row(13), op="UPDATE", old=[{"\u00e9": "12"}]),
    ]
    values.append(values[0].replace(b'"name":"y"', b'"i\\u0064":"77"'))  # the key, spelt otherwise
    assert walked("canal-json", learned, values) == 4


def test_moments_without_a_number_are_left_to_the_other_path():
    learned = [canal(row(1))]
    assert walked("canal-json", learned, [canal(row(2), es=None)]) == 0
    assert walked("canal-json", learned, [canal(row(2), ts=None)]) == 1
    assert walked("canal-json", learned, [canal(row(2), ts="x"), canal(row(3), es=-5)]) == 0


def flat(id_=1, name='"x"', **added):
    more = "".join(f',"__{n}":{json.dumps(value)}' for n, value in added.items())
    return f'{{"id":{id_},"name":{name},"n":5{more}}}'.encode()


def test_metadata_of_flattened_events():
    learned = [flat(op="c", table="orders", source_ts_ms=1_760_000_000_000, deleted="false")]
    values = [
        flat(2, op="u", table="orders", source_ts_ms=1_760_000_000, deleted="false"),
        flat(3, op="d", table="orders", source_ts_ms=1_760_000_000_001, deleted="false"),
        flat(4, op="u", table="others", source_ts_ms=1_760_000_000_001, deleted="false"),
        flat(5, op="u", table="orders", source_ts_ms="1760000000001", deleted="false"),
        flat(6, op="u", table="orders", source_ts_ms=1_760_000_000_001, deleted="true"),
        flat(7, op="x", table="orders", source_ts_ms=1_760_000_000_001, deleted="false"),
    ]
    assert walked("debezium-flat", learned, values, topic="d.orders") == 2
    deleted = [flat(8, op="c", deleted="true")]
    assert walked("debezium-flat", deleted, [flat(9, op="u", deleted="true")]) == 0
    assert walked("debezium-flat", deleted, [flat(9, op="c", deleted="true")]) == 1


def test_columns_that_an_update_lacks():
    """They are unchanged, which layouts do not say."""
    partial = [b'{"id":1,"n":2}', b'{"id":2,"n":3}']
    options = {"missing_columns": "unchanged", "toast": Toast.KEEP}
    assert walked("upsert-json", partial[:1], partial[1:], **options) == 0
    assert walked("upsert-json", partial[:1], partial[1:]) == 1


def test_keys_beside_the_row():
    values = [b'{"name":"a","n":2}', b'{"name":"b","n":3}']
    keys = [b'{"id":7}', b'{"id":8}']
    assert walked("upsert-json", values, values, keys=keys) == 0


def test_a_column_with_a_prefix_of_old_values():
    metadata = {"record-type": "data", "operation": "update", "schema-name": "d"}
    metadata["table-name"] = "orders"
    value = {"data": {"id": 1, "name": "x", "n": 5, "BI_id": 1, "BI_n": 4}, "metadata": metadata}
    values = [json.dumps(value).encode()] * 2
    assert walked("aws-dms-json", values, values) == 0


def test_schema_blocks_are_constant():
    fields = [{"type": "int64", "field": "id"}, {"type": "string", "field": "name"}]
    block = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")).encode()
    bare = schema(("id", "BIGINT"), ("name", "STRING"))

    def message(id_, text=block):
        return b'{"schema":%b,"payload":{"id":%d,"name":"x"}}' % (text, id_)

    assert walked("upsert-json", [message(1)], [message(2)], schema_=bare) == 1
    other = block.replace(b"int64", b"int32")
    assert walked("upsert-json", [message(1)], [message(2, other)], schema_=bare) == 0


def test_an_update_that_must_name_the_old_key():
    def resolve(needs):
        return {"orders": Target("d.orders", SMALL, needs_before=needs)}

    learned = [canal(row(1), op="UPDATE", old=[{"n": "4"}])]
    values = [canal(row(2), op="UPDATE", old=[{"n": "4"}])]
    values += [canal(row(3), op="UPDATE", old=[{"id": "3", "n": "4"}])]
    assert walked("canal-json", learned, values, schema_=resolve("")) == 2
    known = [canal(row(1), op="UPDATE", old=[{"id": "1", "n": "4"}])]
    assert walked("canal-json", known, values, schema_=resolve("why")) == 1


def test_options_of_a_format_without_metadata():
    assert DialectOptions(metadata_prefix="").metadata_prefix == ""
    values = [b'{"id":1,"name":"x","n":5}', b'{"id":2,"name":"y","n":6}']
    assert walked("debezium-flat", values[:1], values, metadata_prefix="") == 2


@pytest.mark.parametrize(
    "moment",
    [
        "2026-11-02 22:14:36.000500",
        "2026-11-02T22:14:36Z",
        "2026-02-30 00:00:00",
        "1969-12-31 23:59:59",
        "2026-11-02T22:14:36.1+02:00",
        "soon",
        "",
        None,
    ],
)
def test_moments_that_are_text(moment):
    def operation(id_, op_ts):
        after = {"id": id_, "name": "x", "n": 5}
        value = {"table": "d.orders", "op_type": "I", "op_ts": op_ts, "after": after}
        return json.dumps(value, separators=(",", ":")).encode()

    learned = [operation(1, "2026-11-02 22:14:36")]
    values = [operation(2, moment), operation(3, "2026-11-02 22:14:37.123")]
    assert walked("ogg-json", learned, values) == 2
    assert walked("ogg-json", learned, values[:1]) == 1
