# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from ingest.decode.events import ObservedField, SchemaDelta, SourceTable
from ingest.decode.types.semantic_types import union_type
from ingest.schema.schema_sync import Decision, NewTable, Refusal, reconcile
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, UpdateType, evolve
from storage.format.types.types import parse_type
from tests.unit.ingest.debezium_events import ORDERS, schema

OTHER = SourceTable("shop", "audit", "orders", "pg")


def delta(key=("id",), offset=5, source=ORDERS, topic="t", **columns):
    fields = tuple(ObservedField(name, parse_type(text)) for name, text in columns.items())
    return SchemaDelta("shop.orders", source, topic, fields, key, offset)


def test_create_keeps_event_order_and_states_its_options():
    decision = reconcile(
        None,
        [delta(name="STRING", id="BIGINT", v="INT")],
        table_properties={"file.compression": "zstd"},
        now_ms=7,
    )
    assert isinstance(decision.action, NewTable)
    assert decision.complete
    made = decision.action.schema
    assert made.field_names == ("name", "id", "v")
    assert made.primary_keys == ("id",)
    assert [field.type.nullable for field in made.fields] == [True, False, True]
    assert made.options == {
        "bucket": "1",
        "file.compression": "zstd",
        "lakeward.source-table": "pg.shop.public.orders",
    }
    assert made.time_ms == 7


def test_configured_bucket_and_key_win():
    decision = reconcile(
        None,
        [delta(key=(), id="BIGINT", v="INT")],
        table_properties={"bucket": "4"},
        primary_key=("id", "v"),
        now_ms=0,
    )
    assert isinstance(decision.action, NewTable)
    assert decision.action.schema.options["bucket"] == "4"
    assert decision.action.schema.primary_keys == ("id", "v")


def test_deltas_of_several_tasks_are_united_in_any_order():
    deltas = [
        delta(id="BIGINT", a="BIGINT"),
        delta(offset=3, id="BIGINT", b="STRING"),
        delta(offset=9, id="BIGINT", a="DOUBLE", c="BOOLEAN"),
    ]
    decisions = [reconcile(None, order, now_ms=0) for order in itertools.permutations(deltas)]
    assert all(decision == decisions[0] for decision in decisions)
    made = decisions[0].action.schema
    assert made.field_names == ("id", "b", "a", "c")
    assert made.field("a").type == parse_type("DOUBLE")


@pytest.mark.parametrize(
    "deltas",
    [
        [delta(key=(), id="BIGINT")],
        [delta(key=("missing",), id="BIGINT")],
        [delta(id="BIGINT"), delta(key=("id", "v"), id="BIGINT", v="INT")],
        [delta(id="BIGINT", _VALUE_KIND="INT")],
    ],
)
def test_tables_that_cannot_be_made_are_refused(deltas):
    decision = reconcile(None, deltas, now_ms=0)
    assert isinstance(decision.action, Refusal)
    assert not decision.complete


def test_second_source_table_does_not_get_in():
    both = [delta(id="BIGINT"), delta(offset=6, source=OTHER, id="BIGINT", extra="INT")]
    decision = reconcile(None, both, now_ms=0)
    assert isinstance(decision.action, NewTable)
    assert decision.action.schema.field_names == ("id",)
    assert not decision.complete
    again = reconcile(decision.action.schema, both[1:], now_ms=0)
    assert isinstance(again.action, Refusal)


def test_add_and_widen_then_nothing_left():
    table = schema(("id", "INT"), ("n", "INT"), ("d", "DECIMAL(6,2)"), ("s", "VARCHAR(4)"))
    wanted = [
        delta(id="BIGINT", n="BIGINT", d="DECIMAL(9,4)", s="STRING", extra="TIMESTAMP(3)"),
        delta(offset=9, extra="TIMESTAMP(6)"),
    ]
    decision = reconcile(table, wanted, now_ms=5)
    assert decision.complete
    assert decision.action == (
        UpdateType("n", parse_type("BIGINT")),
        UpdateType("d", parse_type("DECIMAL(9,4)")),
        AddColumn("extra", parse_type("TIMESTAMP(6)")),
    )
    changed = evolve(table, decision.action, 5)
    assert reconcile(changed, wanted, now_ms=6).action == ()


def test_narrower_types_change_nothing():
    table = schema(("id", "BIGINT"), ("n", "BIGINT"), ("f", "DOUBLE"), ("t", "TIMESTAMP(6)"))
    decision = reconcile(table, [delta(n="SMALLINT", f="FLOAT", t="TIMESTAMP(3)")], now_ms=0)
    assert (decision.action, decision.complete) == ((), True)


def test_incompatible_column_does_not_hold_up_the_others():
    table = schema(("id", "BIGINT"), ("n", "INT"))
    decision = reconcile(table, [delta(n="STRING", extra="INT")], now_ms=0)
    assert decision.action == (AddColumn("extra", parse_type("INT")),)
    assert not decision.complete
    alone = reconcile(table, [delta(n="STRING")], now_ms=0)
    assert isinstance(alone.action, Refusal)
    assert "column n" in alone.action.reason


@pytest.mark.parametrize(
    ("current", "observed", "union"),
    [
        ("TINYINT", "BIGINT", "BIGINT"),
        ("BIGINT", "INT", "BIGINT"),
        ("INT NOT NULL", "BIGINT", "BIGINT NOT NULL"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("DECIMAL(6,2)", "DECIMAL(6,4)", "DECIMAL(8,4)"),
        ("DECIMAL(38,2)", "DECIMAL(38,4)", None),
        ("DECIMAL(10,2)", "DECIMAL(8,2)", "DECIMAL(10,2)"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6)"),
        ("TIMESTAMP(6)", "TIMESTAMP(9)", None),
        ("TIMESTAMP(9)", "TIMESTAMP(6)", "TIMESTAMP(9)"),
        ("TIMESTAMP(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", None),
        ("TIME(3)", "TIME(6)", "TIME(3)"),
        ("CHAR(3)", "VARCHAR(9)", "VARCHAR(9)"),
        ("VARCHAR(9)", "STRING", "VARCHAR(9)"),
        ("VARBINARY(3)", "VARBINARY(9)", "VARBINARY(9)"),
        ("INT", "FLOAT", None),
        ("INT", "DECIMAL(10,0)", "DECIMAL(10,0)"),
        ("BIGINT", "DECIMAL(6,2)", "DECIMAL(21,2)"),
        ("BIGINT NOT NULL", "DECIMAL(20,0)", "DECIMAL(20,0) NOT NULL"),
        ("DECIMAL(6,2)", "TINYINT", "DECIMAL(6,2)"),
        ("DECIMAL(6,2)", "BIGINT", "DECIMAL(21,2)"),
        ("BIGINT", "DECIMAL(38,38)", None),
        ("INT", "STRING", None),
        ("DATE", "TIMESTAMP(3)", None),
        (
            {"type": "ARRAY", "element": "BIGINT"},
            {"type": "ARRAY", "element": "INT"},
            {"type": "ARRAY", "element": "BIGINT"},
        ),
        (
            {"type": "ARRAY", "element": "INT"},
            {"type": "ARRAY", "element": "BIGINT"},
            {"type": "ARRAY", "element": "BIGINT"},
        ),
        ({"type": "ARRAY", "element": "INT"}, {"type": "ARRAY", "element": "DATE"}, None),
        ({"type": "ARRAY", "element": "INT"}, "STRING", None),
    ],
)
def test_union_of_types(current, observed, union):
    expected = None if union is None else parse_type(union)
    assert union_type(parse_type(current), parse_type(observed)) == expected


UNITED = [
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "BOOLEAN"),
    *("DECIMAL(5,2)", "DECIMAL(20,0)", "DECIMAL(38,10)", "CHAR(3)", "VARCHAR(5)", "STRING"),
    *("BINARY(2)", "VARBINARY(4)", "BYTES", "TIME(0)", "TIME(3)", "TIME(6)", "TIME(9)"),
    *("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"),
    *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
]


@pytest.mark.parametrize("current", UNITED)
def test_the_table_format_allows_every_union(current):
    """A change that is requested and always refused would stop a stream with `evolve`."""
    table = schema(("id", "BIGINT"), ("v", current))
    for observed in UNITED:
        union = union_type(parse_type(current), parse_type(observed))
        if union not in (None, parse_type(current)):
            decision = reconcile(table, [delta(v=observed)], now_ms=1)
            assert decision.complete
            assert evolve(table, decision.action, 1).field("v").type == union


def test_tables_without_a_primary_key_are_refused():
    columns = [("id", parse_type("BIGINT NOT NULL")), ("v", parse_type("STRING"))]
    existing = new_schema(columns, primary_keys=(), options={"bucket": "-1"}, now_ms=0)
    decision = reconcile(existing, [delta()], now_ms=1)
    assert "without a primary key" in decision.action.reason
    assert not decision.complete


def test_reasons_are_told_once_each_and_at_no_great_length():
    assert Decision((), ("no key", "no column", "no key")).why == "no key; no column"
    assert len(Decision((), ("a" * 5_000, "b")).why) == 2_000


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_guesses_of_several_tasks_about_a_new_column_unite(order):
    table = schema(("id", "BIGINT"), ("old", "BIGINT"))
    guesses = [delta(offset=5, n=guess) for guess in ("BIGINT", "DOUBLE", "DECIMAL(24,4)")]
    made = reconcile(table, [guesses[at] for at in order], now_ms=5)
    assert made.complete
    assert evolve(table, made.action, 5).field("n").type == parse_type("DECIMAL(24,4)")
    known = reconcile(table, [delta(offset=5, old="DOUBLE")], now_ms=5)
    assert not known.complete  # of a column that is there nothing is guessed
