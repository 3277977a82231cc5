# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from storage.errors import InvalidSchemaChangeError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
    evolve,
)
from storage.format.types.types import parse_type, type_to_json
from tests.golden.json_values import golden_type

ROW = {"type": "ROW", "fields": [{"name": "x", "type": "INT"}, {"name": "y", "type": "STRING"}]}
ARRAY = {"type": "ARRAY", "element": ROW}


def table(**options):
    columns = [("k", "INT"), ("p", "STRING"), ("a", "INT"), ("s", "STRING"), ("r", ROW)]
    return new_schema(
        [(name, golden_type(type_)) for name, type_ in [*columns, ("l", ARRAY)]],
        primary_keys=["k", "p"],
        partition_keys=["p"],
        options={"bucket": "2", **{key.replace("_", "-"): v for key, v in options.items()}},
        now_ms=1,
    )


def changed(*changes, schema=None):
    return evolve(schema or table(), changes, now_ms=5)


def refused(*changes, schema=None, match=""):
    with pytest.raises(InvalidSchemaChangeError, match=match):
        changed(*changes, schema=schema)


def test_each_evolution_is_the_next_schema():
    schema = changed(UpdateTableComment("c"), UpdateComment("a", "d"), UpdateDefault("a", "3"))
    assert (schema.id, schema.time_ms, schema.comment) == (1, 5, "c")
    assert (schema.field("a").description, schema.field("a").default) == ("d", "3")


def test_added_columns_get_fresh_ids_and_the_wanted_place():
    old = table()
    new = golden_type(ROW)
    schema = changed(
        AddColumn("n", new, comment="hi"),
        AddColumn("f", parse_type("BIGINT"), first=True),
        AddColumn("b", parse_type("INT"), after="k"),
    )
    assert schema.field_names == ("f", "k", "b", "p", "a", "s", "r", "l", "n")
    top = old.highest_field_id
    n = schema.field("n")
    ids = [n.id, *(f.id for f in n.type.fields), schema.field("f").id, schema.field("b").id]
    assert ids == list(range(top + 1, top + 6))
    assert schema.highest_field_id == top + 5
    assert n.description == "hi"


def test_dropped_ids_are_never_used_again():
    last = table().field("l")
    schema = changed(DropColumn("l"), AddColumn("l", parse_type("INT")))
    assert schema.field("l").id > max(last.id, *(f.id for f in last.type.element.fields))


def test_nested_fields_are_reached_by_path():
    schema = changed(
        AddColumn(("r", "z"), parse_type("INT"), after="x"),
        RenameColumn(("r", "x"), "xx"),
        UpdateType(("l", "element", "x"), parse_type("BIGINT")),
        DropColumn(("l", "element", "y")),
    )
    assert [f.name for f in schema.field("r").type.fields] == ["xx", "z", "y"]
    (x,) = schema.field("l").type.element.fields
    assert type_to_json(x.type) == "BIGINT"
    refused(AddColumn(("a", "z"), parse_type("INT")), match="does not name")
    refused(AddColumn(("nope", "z"), parse_type("INT")), match="no such column")


def test_refused_additions():
    refused(AddColumn("a", parse_type("INT")), match="exists already")
    refused(AddColumn("n", parse_type("INT NOT NULL")), match="NOT NULL")
    refused(AddColumn("_KEY_n", parse_type("INT")), match="invalid column name")
    refused(AddColumn("n", parse_type("INT"), after="nope"), match="no such column")


@pytest.mark.parametrize(
    ("old", "new"),
    [("INT", "BIGINT"), ("FLOAT", "DOUBLE"), ("CHAR(3)", "STRING"), ("INT", "DECIMAL(10, 0)"),
     ("TIMESTAMP(3)", "TIMESTAMP(6)"), ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)"), ("DATE", "DATE")],
)  # fmt: skip
def test_implicit_casts_are_always_allowed(old, new):
    options = {"disable-explicit-type-casting": "true"}
    schema = new_schema([("c", parse_type(old))], options=options, now_ms=0)
    evolved = changed(UpdateType("c", parse_type(new)), schema=schema)
    assert evolved.field("c").type == parse_type(new)


@pytest.mark.parametrize(
    ("old", "new"),
    [("BIGINT", "INT"), ("STRING", "INT"), ("DATE", "TIMESTAMP(3)"), ("INT", "STRING"),
     ("BOOLEAN", "INT"), ("STRING", "BYTES")],
)  # fmt: skip
def test_explicit_casts_can_be_disabled(old, new):
    schema = new_schema([("c", parse_type(old))], now_ms=0)
    assert changed(UpdateType("c", parse_type(new)), schema=schema).field("c").type == parse_type(
        new
    )
    strict = changed(SetOption("disable-explicit-type-casting", "true"), schema=schema)
    refused(UpdateType("c", parse_type(new)), schema=strict, match="without losing information")


@pytest.mark.parametrize(
    ("old", "new"),
    [("BYTES", "INT"), ("DATE", "INT"), ("DATE", "BOOLEAN"), ("INT", ROW), (ROW, ARRAY)],
)
def test_other_casts_do_not_exist(old, new):
    schema = new_schema([("c", golden_type(old))], now_ms=0)
    refused(UpdateType("c", golden_type(new)), schema=schema, match="cannot be converted")


def test_type_change_keeps_nullability_and_id():
    schema = changed(UpdateType("a", parse_type("BIGINT NOT NULL")))
    assert schema.field("a").type.nullable
    assert schema.field("a").id == table().field("a").id


def test_keys_stay_what_they_are():
    for key in ("k", "p"):
        refused(UpdateType(key, parse_type("BIGINT")), match="primary key or partition key")
        refused(DropColumn(key), match="cannot be dropped")
        refused(UpdateNullability(key, nullable=True), match="cannot be null")
    refused(RenameColumn("p", "q"), match="cannot rename partition column")


def test_renaming_follows_into_keys_and_options():
    schema = new_schema(
        [(name, parse_type("INT")) for name in ("k", "a", "b")],
        primary_keys=["k"],
        options={
            "bucket-key": "k",
            "sequence.field": "a,b",
            "fields.a.aggregate-function": "sum",
            "fields.a,b.sequence-group": "k, a",
            "unrelated": "a",
        },
        now_ms=0,
    )
    evolved = changed(RenameColumn("k", "kk"), RenameColumn("a", "aa"), schema=schema)
    assert evolved.primary_keys == ("kk",)
    assert evolved.options == {
        "bucket-key": "kk",
        "sequence.field": "aa,b",
        "fields.aa.aggregate-function": "sum",
        "fields.aa,b.sequence-group": "kk,aa",
        "unrelated": "a",
    }
    refused(RenameColumn("a", "b"), schema=schema, match="exists already")
    refused(DropColumn("b"), schema=schema, match="can not be found")


def test_columns_move():
    schema = changed(MoveColumn("s", first=True), MoveColumn("k"), MoveColumn("p", after="a"))
    assert schema.field_names == ("s", "a", "p", "r", "l", "k")


def test_the_last_column_stays():
    schema = new_schema([("c", parse_type("INT"))], now_ms=0)
    refused(DropColumn("c"), schema=schema, match="last column")


def test_not_null_needs_permission():
    refused(UpdateNullability("a", nullable=False), match="cannot become NOT NULL")
    allow = SetOption("alter-column-null-to-not-null.disabled", "false")
    schema = changed(allow, UpdateNullability("a", nullable=False))
    assert not schema.field("a").type.nullable


def test_options_fixed_by_data():
    assert changed(SetOption("bucket", "8")).options["bucket"] == "8"
    assert "x" not in changed(SetOption("x", "1"), RemoveOption("x")).options
    refused(SetOption("bucket", "-1"), match="dynamic buckets")
    refused(RemoveOption("bucket"), match="reset")
    refused(SetOption("merge-engine", "first-row"), match="once the table has data")
    refused(SetOption("deletion-vectors.enabled", "true"), match="modifiable")
    refused(
        RemoveOption("ignore-delete"),
        schema=table(ignore_delete="true"),
        match="from true to false",
    )
    schema = evolve(table(), [SetOption("merge-engine", "first-row")], 5, has_snapshots=False)
    assert schema.options["merge-engine"] == "first-row"
    with pytest.raises(InvalidSchemaChangeError, match="kind of a table"):
        evolve(table(), [SetOption("type", "format-table")], 5, has_snapshots=False)


def test_types_inside_lists_and_maps_change_by_path():
    nested = {"type": "MAP", "key": "STRING", "value": {"type": "ARRAY", "element": "INT"}}
    schema = new_schema([("m", parse_type(nested)), ("l", golden_type(ARRAY))], now_ms=0)
    evolved = changed(
        UpdateType(("m", "value", "element"), parse_type("BIGINT")),
        UpdateType(("l", "element", "x"), parse_type("STRING")),
        UpdateNullability(("l", "element", "y"), nullable=True),
        schema=schema,
    )
    assert type_to_json(evolved.field("m").type)["value"]["element"] == "BIGINT"
    assert type_to_json(evolved.field("l").type)["element"]["fields"][0]["type"] == "STRING"
    refused(UpdateType(("m", "key"), parse_type("BIGINT")), schema=schema, match="no such column")
    refused(UpdateType(("m", "element"), parse_type("INT")), schema=schema, match="no such column")
    refused(UpdateType(("l", "element", "z"), parse_type("INT")), schema=schema, match="z")
    refused(UpdateType(("m", "value"), parse_type("INT")), schema=schema, match="losing")


def test_nested_fields_are_moved_and_dropped():
    schema = changed(
        AddColumn(("r", "z"), parse_type("INT"), before="y"),
        MoveColumn(("r", "x")),
        MoveColumn(("l", "element", "y"), first=True),
        DropColumn(("r", "y")),
    )
    assert [field.name for field in schema.field("r").type.fields] == ["z", "x"]
    assert [field.name for field in schema.field("l").type.element.fields] == ["y", "x"]
    refused(DropColumn(("r", "x")), DropColumn(("r", "y")), match="last column")
    refused(MoveColumn("a", first=True, before="s"), match="only one of")


def test_columns_are_placed_before_another_and_before_partitions():
    assert changed(MoveColumn("s", before="k")).field_names[0] == "s"
    assert changed(AddColumn("n", parse_type("INT"), before="a")).field_names[2] == "n"
    old = table(**{"add-column-before-partition": "true"})
    added = changed(AddColumn("n", parse_type("INT")), schema=old)
    assert added.field_names[:3] == ("k", "n", "p")
    last = changed(AddColumn("n", parse_type("INT"), after="a"), schema=old)
    assert last.field_names[3] == "n"


def test_defaults_are_values_of_their_columns():
    assert changed(UpdateDefault("r", "{1, a}")).field("r").default == "{1, a}"
    refused(UpdateDefault("a", "three"), match="unsupported default")
    refused(UpdateDefault("r", "{1}"), match="unsupported default")
    refused(
        UpdateDefault("s", "x"), UpdateType("s", parse_type("INT")), match="unsupported default"
    )
    assert changed(UpdateDefault("a", None)).field("a").default is None


def test_the_primary_key_goes_only_without_data():
    refused(DropPrimaryKey(), match="non-empty")
    schema = evolve(table(), [DropPrimaryKey()], 5, has_snapshots=False)
    assert (schema.primary_keys, schema.partition_keys) == ((), ("p",))


def test_members_of_columns_that_nobody_knows_are_kept():
    text = (
        b'{"version":3,"id":0,"fields":[{"id":0,"name":"a","type":"INT","mask":{"by":"x"}},'
        b'{"id":1,"name":"r","type":{"type":"ROW","fields":[{"id":2,"name":"x","type":"INT",'
        b'"tags":[1]}]}}],"highestFieldId":2,"partitionKeys":[],"primaryKeys":[],"options":{},'
        b'"timeMillis":0}'
    )
    schema = TableSchema.from_json(text)
    evolved = changed(UpdateComment("a", "c"), UpdateType(("r", "x"), parse_type("BIGINT")),
                      schema=schema)  # fmt: skip
    fields = json.loads(evolved.to_json())["fields"]
    assert fields[0]["mask"] == {"by": "x"}
    assert fields[0]["description"] == "c"
    assert fields[1]["type"]["fields"][0]["tags"] == [1]
