# SPDX-License-Identifier: Apache-2.0
import pytest

from storage.errors import InvalidSchemaChangeError
from storage.format.schema import new_schema
from storage.format.schema_changes import (
    AddColumn,
    DropColumn,
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
from storage.format.type_text import parse_type, type_to_json
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
    refused(AddColumn(("a", "z"), parse_type("INT")), match="does not lead to")
    refused(AddColumn(("nope", "z"), parse_type("INT")), match="no such column")


def test_refused_additions():
    refused(AddColumn("a", parse_type("INT")), match="exists already")
    refused(AddColumn("n", parse_type("INT NOT NULL")), match="NOT NULL")
    refused(AddColumn("_KEY_n", parse_type("INT")), match="not a name")
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
    refused(DropColumn("b"), schema=schema, match="does not exist")


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
