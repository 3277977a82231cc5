# SPDX-License-Identifier: Apache-2.0
import datetime

import pytest

from ingest.decode.events import SourceTable
from tests.unit.ingest.debezium_events import batch, classes, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TABLE = schema(("id", "BIGINT"), ("name", "STRING"), ("at", "TIMESTAMP(3)"))
MOMENT = "2020-12-15T05:47:42.724458Z"


def message(operation, data, *, record_type="data", metadata=(), **more):
    return dumps(
        {
            "data": data,
            "metadata": {
                "timestamp": MOMENT,
                "record-type": record_type,
                "operation": operation,
                "partition-key-type": "schema-table",
                "schema-name": "crm",
                "table-name": "leads",
                "transaction-id": 87_978_110_091_475,
                **dict(metadata),
            },
            **more,
        }
    )


def row(key, name="Zoë", at="2020-01-09T04:13:38Z"):
    return {"id": key, "name": name, "at": at}


def decode(*values, table=TABLE, **options):
    one = dialect_decoder("aws-dms-json", table, **options)
    return one.decode(batch(*values, topic="dms"))


def test_each_operation_becomes_its_row_kind():
    result = decode(
        message("load", row(1)),
        message("insert", row(2)),
        message("update", row(2, "b")),
        message("delete", row(1)),
        None,
    )
    at = datetime.datetime.fromisoformat("2020-01-09T04:13:38")
    assert changes(result, "id", "name", "at") == [
        ("+I", 1, "Zoë", at),
        ("+I", 2, "Zoë", at),
        ("+U", 2, "b", at),
        ("-D", 1, "Zoë", at),
    ]
    assert result.counts == {"op.r": 1, "op.c": 1, "op.u": 1, "op.d": 1, "tombstone": 1}
    change = result.changes[0]
    moment = datetime.datetime.fromisoformat(MOMENT).timestamp() * 1_000
    assert (change.target, change.max_source_ts_ms) == ("crm.leads", round(moment))


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (message("update", row(3), **{"before-image": {"id": 2}}), {}),
        (message("update", row(3), old={"id": 2}), {"before_image_field": "old"}),
        (message("update", {**row(3), "BI_id": 2}), {}),
        (message("update", {**row(3), "was_id": 2}), {"before_image_prefix": "was_"}),
    ],
)
def test_change_of_key_with_every_kind_of_before_image(value, options):
    assert changes(decode(value, **options), "id", "name") == [("-D", 2, "Zoë"), ("+I", 3, "Zoë")]


def test_before_images_that_do_not_change_the_key():
    values = [
        message("update", row(3, "b"), **{"before-image": row(3, "a")}),
        message("update", {**row(4, "b"), "BI_id": 4, "BI_name": "a"}),
        message("insert", {**row(5), "BI_id": None}),
        message("delete", {"BI_id": 6, "BI_name": "a"}),
    ]
    result = decode(*values)
    assert changes(result, "id", "name") == [
        ("+U", 3, "b"),
        ("+U", 4, "b"),
        ("+I", 5, "Zoë"),
        ("-D", 6, "a"),
    ]


def test_a_column_with_the_prefix_of_before_images_is_a_column():
    values = [
        message("load", {**row(1), "BI_score": 7}),
        message("insert", {**row(2), "BI_score": 8}),
        message("update", {**row(2), "BI_score": 9}),
        message("update", {**row(3), "BI_id": 2, "BI_score": 9}),
        message("delete", {**row(3), "BI_score": 9}),
    ]
    (delta,) = decode(values[2], evolvable=True).deltas
    assert delta.fields == observed(BI_score="BIGINT")
    (delta,) = decode(*values, table=None, primary_keys=lambda _: ("id",)).deltas
    assert delta.fields == observed(id="BIGINT", name="STRING", at="STRING", BI_score="BIGINT")
    table = schema(
        ("id", "BIGINT"), ("name", "STRING"), ("at", "TIMESTAMP(3)"), ("BI_score", "INT")
    )
    assert changes(decode(*values, table=table), "id", "BI_score") == [
        ("+I", 1, 7),
        ("+I", 2, 8),
        ("+U", 2, 9),
        ("-D", 2, 9),
        ("+I", 3, 9),
        ("-D", 3, 9),
    ]


def test_columns_that_look_like_the_before_images_of_others_of_the_table():
    both = schema(("id", "BIGINT"), ("BI_id", "BIGINT"), ("score", "INT"), ("BI_score", "INT"))
    value = {"id": 1, "BI_id": 2, "score": 3, "BI_score": 4}
    result = decode(message("insert", value), message("update", value), table=both)
    assert changes(result, *value) == [("+I", 1, 2, 3, 4), ("+U", 1, 2, 3, 4)]
    assert not result.bad
    (delta,) = decode(message("load", value), table=None, primary_keys=lambda _: ("id",)).deltas
    assert delta.fields == observed(id="BIGINT", BI_id="BIGINT", score="BIGINT", BI_score="BIGINT")


def test_a_key_with_the_prefix_of_before_images():
    table = schema(("BI_id", "BIGINT"), ("name", "STRING"), key=("BI_id",))
    result = decode(
        message("update", {"BI_id": 2, "name": "b", "BI_BI_id": 1}),
        message("delete", {"BI_id": 2}),
        table=table,
    )
    assert changes(result, "BI_id", "name") == [("-D", 1, "b"), ("+I", 2, "b"), ("-D", 2, None)]


def test_the_value_before_of_a_column_that_is_null_now_is_no_column():
    value = message("update", {"id": 2, "BI_id": 2, "BI_name": "a", "BI_other": 5})
    table = schema(("id", "BIGINT"), ("name", "STRING"), ("BI_other", "INT"))
    result = decode(value, table=table)
    assert changes(result, "id", "name", "BI_other") == [("+U", 2, None, 5)]


def test_before_images_of_a_table_whose_partition_is_in_its_key():
    table = schema(("id", "BIGINT"), ("region", "STRING"), key=("id", "region"))
    result = decode(message("update", {"id": 2, "region": "e", "BI_id": 1}), table=table)
    assert changes(result, "id", "region") == [("-D", 1, "e"), ("+I", 2, "e")]


def test_a_nested_before_image_has_the_columns_names():
    table = schema(("id", "BIGINT"), ("BI_score", "INT"))
    value = message(
        "update", {"id": 3, "BI_score": 1}, **{"before-image": {"id": 2, "BI_score": 0}}
    )
    assert changes(decode(value, table=table), "id", "BI_score") == [("-D", 2, 0), ("+I", 3, 1)]


def test_values_of_every_type():
    table = schema(("id", "BIGINT"), ("d", "DECIMAL(38,10)"), ("raw", "BYTES"), ("b", "BOOLEAN"))
    value = message("insert", "@").replace(
        b'"@"',
        b'{"id":"1","d":1234567890123456789012345678.0123456789,"raw":"0x00ffE9","b":1}',
    )
    (found,) = rows(decode(value, table=table))
    assert (found["id"], found["raw"], found["b"]) == (1, b"\x00\xff\xe9", True)
    assert str(found["d"]) == "1234567890123456789012345678.0123456789"


def test_control_records_are_counted():
    operations = ["create-table", "drop-table", "rename-table", "add-column", "truncate-table"]
    result = decode(*[message(name, None, record_type="control") for name in operations])
    assert result.counts == {"schema_change": 4, "op.t": 1}


def test_null_columns_may_be_left_out():
    assert changes(decode(message("update", {"id": 1})), "id", "name") == [("+U", 1, None)]
    refused = decode(message("update", {"id": 1}), missing_columns="unchanged")
    assert classes(refused) == ["unavailable_value"]


def test_a_new_table_needs_a_configured_key():
    value = message("load", {**row(1), "n": 1.5})
    assert classes(decode(value, table=None)) == ["no_primary_key"]
    (delta,) = decode(value, table=None, primary_keys=lambda _: ("id",)).deltas
    assert delta.fields == observed(id="BIGINT", name="STRING", at="STRING", n="DOUBLE")
    assert (delta.source, delta.primary_key) == (SourceTable("", "crm", "leads"), ("id",))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"nul", "json"),
        (b"7", "envelope"),
        (dumps({"data": row(1)}), "envelope"),
        (dumps({"data": row(1), "metadata": {}}), "envelope"),
        (message("merge", row(1)), "envelope"),
        (message("insert", row(1), record_type="odd"), "envelope"),
        (message("insert", None), "envelope"),
        (message("insert", [1]), "envelope"),
        (message("insert", row(1), metadata={"table-name": None}), "envelope"),
        (message("insert", row(None)), "no_primary_key"),
        (message("insert", row(1, at="noon")), "type"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, expected):
    good = message("insert", row(5))
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]
