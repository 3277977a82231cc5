# SPDX-License-Identifier: Apache-2.0
"""What bad records say: which column, type and value; which format a message looks like."""

import pytest

from tests.unit.ingest.debezium_events import (
    SOURCE,
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TABLE = schema(("id", "BIGINT"), ("name", "STRING"))
MONGODB = {"connector": "mongodb", "name": "m", "db": "shop", "collection": "items"}
ENVELOPE = event("c", None, {"id": 1, "name": "a"})
DDL = {"source": SOURCE, "databaseName": "shop", "ddl": "ALTER TABLE t", "tableChanges": []}
CANAL = {
    "type": "INSERT",
    "database": "shop",
    "table": "items",
    "data": [{"id": "1"}],
    "isDdl": False,
    "es": 5,
}
MAXWELL = {
    "type": "insert",
    "database": "shop",
    "table": "items",
    "ts": 5,
    "data": {"id": 1},
}
OGG = {"table": "S.T", "op_type": "I", "after": {"ID": 1}}
DMS = {
    "data": {"id": 1},
    "metadata": {"operation": "insert", "record-type": "data", "table-name": "t"},
}
FLAT = {"id": 1, "__op": "c", "__deleted": "false"}
EVENTS = {
    "debezium-json": ENVELOPE,
    "canal-json": CANAL,
    "maxwell-json": MAXWELL,
    "ogg-json": OGG,
    "aws-dms-json": DMS,
}


def refused(name, *values, table=TABLE, keys=None, evolvable=True, **options):
    """The only error's class and text."""
    one = (
        decoder(table, evolvable=evolvable)
        if name == "debezium-json"
        else dialect_decoder(name, table, **options)
    )
    values = [value if isinstance(value, bytes | None) else dumps(value) for value in values]
    result = one.decode(batch(*values, keys=keys, topic="s.t"))
    found = {(record.error_class, record.error) for record in result.bad}
    assert len(result.bad) == len(values)
    assert len(found) == 1
    return next(iter(found))


@pytest.mark.parametrize("used", EVENTS)
@pytest.mark.parametrize("sent", EVENTS)
def test_events_of_another_format_are_named_with_the_setting_that_reads_them(used, sent):
    if used == sent:
        return
    error_class, error = refused(used, EVENTS[sent])
    assert error_class == "envelope"
    assert f"set source.format: {sent}" in error


@pytest.mark.parametrize("used", ["json", "upsert-json", "debezium-flat"])
@pytest.mark.parametrize("sent", EVENTS)
@pytest.mark.parametrize("table", [TABLE, None], ids=["table", "new"])
def test_events_are_no_rows_of_formats_without_envelope(used, sent, table):
    error_class, error = refused(
        used, EVENTS[sent], EVENTS[sent], table=table, keys=[b'{"id":1}'] * 2
    )
    assert error_class == "envelope"
    assert f"set source.format: {sent}" in error
    assert "make the table with their columns first" in error


def test_a_table_with_an_envelopes_columns_takes_envelopes_as_rows():
    table = schema(
        ("op", "STRING"),
        ("source", "STRING"),
        ("after", "STRING"),
        ("before", "STRING"),
        ("ts_ms", "BIGINT"),
        key=(),
    )
    one = dialect_decoder("json", table)
    result = one.decode(batch(dumps(ENVELOPE), dumps({"op": "x", "source": "y"})))
    assert changes(result, "op", "ts_ms") == [("+I", "c", 2_000), ("+I", "x", None)]
    assert not result.bad


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "op": "c", "source": "web", "before": 1, "after": 2},
        {"id": 1, "op": "c", "source": {"connector": "x"}, "before": None, "after": {}},
        {"op": "c", "source": {"name": "x"}, "before": None, "after": {}, "ts_ms": 5},
        {"type": "insert", "database": "d", "table": "t", "old": None, "ts": 1},
        {"type": "INSERT", "data": [1], "table": "t", "ts": 1},
        {"op_type": "I", "table": "t", "pos": 1, "current_ts": "x"},
        {"data": {"a": 1}, "metadata": {"operation": "load"}},
        {"metadata": "x", "operation": "insert", "_op": "c", "op_ts": 1},
    ],
)
@pytest.mark.parametrize("used", ["json", "upsert-json", "debezium-flat"])
def test_columns_named_like_members_of_messages_are_columns(used, row):
    one = dialect_decoder(used, None, primary_keys=lambda _: (next(iter(row)),))
    result = one.decode(batch(dumps(row), keys=[None], topic="s.t"))
    assert not result.bad
    (delta,) = result.deltas
    assert {field.name for field in delta.fields} == {n for n, v in row.items() if v is not None}


NAMED = {
    "id": "1",
    "op": "c",
    "before": "b",
    "after": "a",
    "_op": "x",
    "table": "t",
    "type": "INSERT",
    "ts": "5",
    "data": "d",
    "old": "o",
    "current_ts": "now",
    "metadata": "m",
    "mysqlType": "int",
    "op_type": "I",
    "pk.id": "2",
    "__op": "d",
    "schema": "s",
    "payload": "p",
    "_isMissing": "y",
    "BI_": "z",
}
CARRIERS = {
    "debezium-json": event("c", None, NAMED),
    "canal-json": {**CANAL, "data": [NAMED], "pkNames": ["id"]},
    "maxwell-json": {**MAXWELL, "data": NAMED, "primary_key_columns": ["id"]},
    "ogg-json": {**OGG, "after": NAMED, "primary_keys": ["id"]},
    "aws-dms-json": {**DMS, "data": NAMED},
    "json": NAMED,
    "upsert-json": NAMED,
}


@pytest.mark.parametrize("name", CARRIERS)
def test_columns_of_any_name_are_stored(name):
    def one(table):
        options = {"primary_keys": lambda _: ("id",)}
        if name == "debezium-json":
            return decoder(table, **options)
        return dialect_decoder(name, table, **options)

    raw = batch(dumps(CARRIERS[name]), keys=[b'{"id":"1"}'], topic="s.t")
    (delta,) = one(None).decode(raw).deltas
    assert delta.fields == observed(**dict.fromkeys(NAMED, "STRING"))
    result = one(schema(*((column, "STRING") for column in NAMED))).decode(raw)
    (row,) = rows(result)
    assert {column: row[column] for column in NAMED} == NAMED
    assert not result.bad


@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_mongodbs_events_are_named(op):
    for used in ("debezium-json", "json", "canal-json"):
        document = '{"_id": {"$oid": "1"}}'
        value = {"before": None, "after": document, "source": MONGODB, "op": op, "ts_ms": 5}
        error_class, error = refused(used, value)
        assert error_class == "envelope"
        assert "Debezium's MongoDB connector, which is not supported" in error


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (event("x", None, {"id": 1}), 'op "x" is not known: Debezium\'s are c, r, u, d, t and m'),
        (event("c", None, {"id": 1}, table=None), "the source block names no table"),
        ({"op": "c", "after": {"id": 1}}, "without a source block"),
        ({"id": 1}, "upsert-json"),
        (FLAT, "set source.format: debezium-flat"),
        ({"key": {"id": 1}, "value": ENVELOPE}, "source.lines: archived"),
        ({"schema": {"dataColumn": []}, "payload": {"op": "INSERT"}}, "Alibaba Cloud"),
        ({"magic": "atMSG", "type": "DT", "message": {}}, "Qlik Replicate"),
    ],
)
def test_what_is_no_row_event_of_debezium_says_why(value, said):
    error_class, error = refused("debezium-json", value)
    assert error_class == "envelope"
    assert said in error


@pytest.mark.parametrize("used", ["debezium-json", "json", "debezium-flat", *EVENTS])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\0\0\0\0\7\0\2\x08abcd", "Protobuf is not supported"),
        (b'\0\0\0\0\7{"id":1}', "JSON with a schema registry's id before it"),
        (b"\x08\x96\x01\x12\x07testing", "binary data"),
    ],
)
def test_bytes_that_are_no_json_are_named(used, value, said):
    error_class, error = refused(used, value)
    assert error_class == "json"
    assert said in error


def test_text_with_a_control_character_is_not_taken_for_binary_data():
    error_class, error = refused("debezium-json", b'{"op":"c","after":{"id":1,"name":"a\x01"')
    assert error_class == "json"
    assert "binary" not in error


@pytest.mark.parametrize(
    "odd",
    [
        DDL,
        {**DDL, "ddl": None, "tableChanges": None},
        {**DDL, "schemaName": "public", "ts_ms": 5, "ddl": None},
        {"source": {"server": "s"}, "databaseName": "", "ddl": "", "position": {}},
        {"source": {}, "databaseName": None, "tableChanges": [{"type": "CREATE", "id": '"t"'}]},
    ],
)
def test_schema_changes_in_any_form_are_counted_or_named(odd):
    result = decoder(TABLE).decode(batch(dumps(odd)))
    assert result.counts == {"schema_change": 1}
    for used in ("canal-json", "maxwell-json", "ogg-json"):
        _, error = refused(used, odd)
        assert "a schema change of Debezium" in error


def test_a_schema_member_that_is_no_block_is_said_to_be_none():
    error_class, error = refused(
        "debezium-json", {"schema": {"fields": []}, "payload": {"op": "c"}}
    )
    assert error_class == "envelope"
    assert "no schema block of Connect" in error


# --- values


@pytest.mark.parametrize(
    ("type_", "value", "said"),
    [
        ("INT", "x", 'column v (INT): expected an integer; the value is the string "x"'),
        ("INT", 1 << 40, f"column v (INT): {1 << 40} is out of the range"),
        ("BIGINT", True, "expected an integer; the value is the boolean true"),
        ("STRING", 5, "column v (STRING): expected a string; the value is the number 5"),
        ("BOOLEAN", {"a": 1}, 'expected true or false; the value is the object {"a":1}'),
        ("DECIMAL(9,2)", [1], "column v (DECIMAL(9, 2)): expected"),
        ("DECIMAL(9,2)", 1.234, "has more than 2 fraction digits; the value is the number 1.234"),
        ("VARCHAR(2)", "abc", "column v (VARCHAR(2)): 3 is longer"),
        ("BYTES", "?", "column v (BYTES): not base64"),
    ],
)
def test_a_refused_value_is_shown_with_its_column_and_type(type_, value, said):
    table = schema(("id", "BIGINT"), ("v", type_))
    error_class, error = refused(
        "debezium-json", event("c", None, {"id": 1, "v": value}), table=table, evolvable=False
    )
    assert error_class == "type"
    assert said in error


def test_a_refused_value_is_shown_in_part():
    table = schema(("id", "BIGINT"), ("v", "INT"))
    for value in ("x" * 5_000, 10**90 + 0.5, [1] * 5_000):
        _, error = refused("maxwell-json", {**MAXWELL, "data": {"id": 1, "v": value}}, table=table)
        assert error.startswith("column v (INT): ")
        assert len(error) < 300


def test_a_declared_type_that_does_not_convert_is_said_so():
    table = schema(("id", "BIGINT"), ("v", "BOOLEAN"))
    block = connect_block(connect_field("id", "int64"), connect_field("v", "string"))
    error_class, error = refused(
        "debezium-json", with_block(block, event("c", None, {"id": 1, "v": "abc"})), table=table
    )
    assert error_class == "type"
    assert error == (
        "column v (BOOLEAN): the source's type does not convert to the column's; "
        'the value is the string "abc"'
    )


def test_null_in_a_not_null_column_names_its_type():
    table = schema(("id", "BIGINT"), ("v", "INT NOT NULL"))
    _, error = refused("debezium-json", event("c", None, {"id": 1, "v": None}), table=table)
    assert error == "column v (INT NOT NULL): null in a NOT NULL column"


# --- keys

ROUTED = dumps({"id": 1, "__dbz__physicalTableIdentifier": "shard1"})
BLOCK = connect_block(connect_field("id", "int64"), connect_field("name", "string"))


@pytest.mark.parametrize("block", [True, False])
def test_a_member_of_the_key_that_the_row_lacks_is_named(block):
    values = [with_block(BLOCK, ENVELOPE) if block else dumps(ENVELOPE)] * 2
    error_class, error = refused("debezium-json", *values, table=None, keys=[ROUTED] * 2)
    assert error_class == "no_primary_key"
    assert "the record's key has __dbz__physicalTableIdentifier, which the row does not" in error
    assert "primary.key" in error
    one = decoder(None, primary_keys=lambda _: ("id",))
    result = one.decode(batch(*values, keys=[ROUTED] * 2))
    assert not result.bad
    (delta,) = result.deltas
    assert delta.fields == observed(id="BIGINT", name="STRING")
    assert delta.primary_key == ("id",)


def test_a_key_that_is_configured_and_not_in_the_row_is_named():
    one = decoder(None, primary_keys=lambda _: ("id", "nix"))
    result = one.decode(batch(with_block(BLOCK, ENVELOPE)))
    assert classes(result) == ["no_primary_key"]
    assert result.bad[0].error == "primary.key names nix, which the row does not have"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (None, "the record has no key; set primary.key"),
        (b"1", "the record's key names no columns; set primary.key"),
        (b'{"schema":{"type":"int64"},"payload":1}', "names no columns; set primary.key"),
        (b"Struct{id=1}", "StringConverter, which has no types: set the connector's key.converter"),
        (b"\0\0\0\0\1\2", "it looks like bytes of a schema registry's serializer"),
    ],
)
def test_why_a_record_has_no_key_is_said(key, said):
    for values in ([with_block(BLOCK, ENVELOPE)], [dumps(ENVELOPE)]):
        result = decoder(None).decode(batch(*values, keys=[key]))
        assert classes(result) == ["no_primary_key"]
        assert said in result.bad[0].error
        assert "set primary.key for the table" in result.bad[0].error


def described(name, *names):
    fields = [connect_field(each, "int64" if each == "id" else "string") for each in names]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"s.t.{name}"}


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("name", ["upsert-json", "debezium-flat"])
def test_members_of_the_key_beyond_a_configured_key_make_no_columns(name, block):
    options = {"primary_keys": lambda _: ("id",)}
    key = {"id": 1, "__dbz__sourceIdentifier": "shard1"}
    value = {"id": 1, "name": "a"}
    if block:
        key = {"schema": described("Key", *key), "payload": key}
        value = {"schema": described("Value", *value), "payload": value}
    raw = batch(dumps(value), None, keys=[dumps(key)] * 2, topic="s.t")
    deltas = dialect_decoder(name, None, **options).decode(raw).deltas
    assert {field for delta in deltas for field in delta.fields} == {
        *observed(id="BIGINT", name="STRING")
    }
    result = dialect_decoder(name, TABLE, **options).decode(raw)
    assert [(row["kind"], row["id"]) for row in rows(result)] == [("+U", 1), ("-D", 1)]
    assert not result.bad
    assert not result.deltas
