# SPDX-License-Identifier: Apache-2.0
import json
import pickle

import pytest

from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import DataField, parse_type

INT, STRING = parse_type("INT"), parse_type("STRING")
ROW = parse_type(
    {
        "type": "ROW",
        "fields": [
            {"id": 7, "name": "x", "type": {"type": "ROW", "fields": [
                {"id": 7, "name": "z", "type": "INT"}]}},
            {"id": 7, "name": "y", "type": "INT"},
        ],
    }
)  # fmt: skip


def orders(**parts):
    arguments = {
        "primary_keys": ["day", "id"],
        "partition_keys": ["day"],
        "options": {"bucket": "4"},
        "now_ms": 1,
    }
    columns = [("id", INT), ("day", STRING), ("v", STRING)]
    return new_schema(columns, **{**arguments, **parts})


def test_keys_and_derived_parts():
    schema = orders()
    assert schema.trimmed_primary_keys == schema.bucket_keys == ("id",)
    assert [field.name for field in schema.key_fields] == ["id"]
    assert [field.name for field in schema.partition_fields] == ["day"]
    assert [field.type.nullable for field in schema.fields] == [False, False, True]
    assert schema.num_buckets == 4
    assert schema.arrow_schema.names == ["id", "day", "v"]
    assert schema.field("v").id == schema.highest_field_id == 2


def test_nested_fields_are_numbered_inside_out():
    schema = new_schema([("a", INT), ("r", ROW), ("b", INT)], now_ms=0)
    r = schema.field("r")
    x, y = r.type.fields
    assert (r.id, x.type.fields[0].id, x.id, y.id, schema.field("b").id) == (1, 2, 3, 4, 5)
    assert schema.highest_field_id == 5


def test_fields_keep_their_description_and_default():
    given = DataField(id=99, name="a", type=INT, description="d", default="1")
    (field,) = new_schema([given], now_ms=0).fields
    assert field == DataField(id=0, name="a", type=INT, description="d", default="1")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"primary_keys": ["nope"]}, "primary key is not a column"),
        ({"primary_keys": ["day"]}, "should not be same with partition fields"),
        ({"primary_keys": ["id", "id", "day"]}, "given twice"),
        ({"options": {"bucket-key": "v", "bucket": "2"}}, "should contains all bucket keys"),
        ({"options": {"bucket-key": "day", "bucket": "2"}}, "should not in partition keys"),
    ],
)
def test_keys_that_do_not_fit_are_refused(parts, message):
    with pytest.raises(InvalidRequestError, match=message):
        orders(**parts)


def test_a_primary_key_may_leave_out_the_partition_keys():
    """Each partition then keeps its own row of a key (SEMANTICS.md §G.1)."""
    assert orders(primary_keys=["id"]).trimmed_primary_keys == ("id",)


@pytest.mark.parametrize("name", ["", " ", "_KEY_a", "_SEQUENCE_NUMBER", "rowkind"])
def test_reserved_names_are_refused(name):
    with pytest.raises(InvalidRequestError):
        new_schema([(name, INT)], now_ms=0)


def test_nested_keys_are_refused():
    with pytest.raises(InvalidRequestError, match="nested type"):
        new_schema([("r", ROW), ("v", INT)], primary_keys=["r"], now_ms=0)


def test_json_keeps_unknown_members_and_leaves_out_the_comment():
    value = json.loads(orders().to_json())
    assert "comment" not in value
    value["fromTheFuture"] = [1]
    again = TableSchema.from_json(json.dumps(value).encode())
    assert json.loads(again.to_json()) == value
    assert orders(comment="ü").to_json().decode().count('"comment": "ü"') == 1


def test_null_comment_of_other_writers_is_no_comment():
    value = json.loads(orders().to_json()) | {"comment": None}
    assert TableSchema.from_json(json.dumps(value).encode()).comment is None


@pytest.mark.parametrize(
    ("version", "defaults"),
    [
        ({}, {"bucket": "1", "file.format": "orc"}),
        ({"version": 1}, {"bucket": "1", "file.format": "orc"}),
        ({"version": 2}, {"file.format": "orc"}),
        ({"version": 3}, {}),
    ],
)
def test_old_versions_get_their_defaults(version, defaults):
    value = json.loads(orders(options={}, primary_keys=[]).to_json())
    del value["version"], value["timeMillis"]
    schema = TableSchema.from_json(json.dumps(value | version | {"newer": {"a": 1}}).encode())
    assert schema.options == defaults
    assert schema.time_ms == 0
    assert schema.extra == {"newer": {"a": 1}}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"id":0,"fields":[{"id":0}]}'])
def test_damaged_files_are_named(data):
    with pytest.raises(CorruptDataError):
        TableSchema.from_json(data)


def test_unknown_column_types_are_not_called_damage():
    value = json.loads(orders().to_json())
    value["fields"][2]["type"] = "VARIANT"
    with pytest.raises(UnsupportedFeatureError):
        TableSchema.from_json(json.dumps(value).encode())


def test_unknown_column_and_bad_bucket_option():
    with pytest.raises(NotFoundError, match="nope"):
        orders().field("nope")
    with pytest.raises(InvalidOptionError):
        _ = new_schema([("a", INT)], options={"bucket": "many"}, now_ms=0).num_buckets


def test_schemas_pickle_and_hash():
    schema = orders()
    assert schema.arrow_schema is schema.arrow_schema
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert hash(again) == hash(schema)
