# SPDX-License-Identifier: Apache-2.0
"""What each mode does with each kind of change, and what becomes of types that do not convert."""

import pytest

from ingest.config.choices import ChangeKind, kinds_named
from ingest.decode.columns import ColumnNames, free_name
from ingest.decode.events import ObservedField, SchemaDelta
from ingest.schema.routing import ChangePolicy, Mode, Outcome, PolicyDecision
from ingest.schema.schema_draft import ChangeOrigin, Draft
from ingest.schema.schema_sync import NewTable, Refusal, reconcile
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, evolve
from storage.format.types.types import parse_type, type_name
from tests.unit.ingest.debezium_events import ORDERS

PLACE = ChangeOrigin("pg.shop.public.orders", "t", 0, 5)
TABLE = {"id": "BIGINT", "qty": "INT", "name": "STRING", "day": "DATE", "raw": "BYTES"}


def existing(**columns):
    pairs = [(name, parse_type(text)) for name, text in (columns or TABLE).items()]
    return new_schema(pairs, primary_keys=("id",), options={"bucket": "1"}, now_ms=0)


def asked(**columns):
    fields = tuple(ObservedField(name, parse_type(text)) for name, text in columns.items())
    return SchemaDelta("shop.orders", ORDERS, "t", fields, ("id",), 5, partition=2)


def policy(mode="lenient", incompatible=None, include=(), exclude=()):
    return ChangePolicy.of(mode, include, exclude, incompatible)


def columns_after(table, decision):
    if isinstance(decision.action, Refusal) or not decision.action:
        return {field.name: type_name(field.type) for field in table.fields}
    return {field.name: type_name(field.type) for field in evolve(table, decision.action, 0).fields}


def outcomes(decision):
    return [(each.kind.value, each.column, each.outcome.value) for each in decision.verdicts]


# --- names of kinds


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("add.column", ["add.column"]),
        ("drop", ["drop.column", "drop.table"]),
        ("column", ["add.column", "alter.column.type", "rename.column", "drop.column"]),
        ("table", ["create.table", "truncate.table", "drop.table"]),
        ("ALTER", ["alter.column.type"]),
        ("column.type", ["alter.column.type"]),
    ],
)
def test_kinds_have_partial_names(name, kinds):
    assert [kind.value for kind in kinds_named(name)] == kinds


@pytest.mark.parametrize(("name", "meant"), [("add.colum", "add.column"), ("drops", "drop")])
def test_an_unknown_kind_is_refused_with_what_may_be_meant(name, meant):
    with pytest.raises(ValueError, match=f"did you mean `{meant}`"):
        kinds_named(name)


# --- kinds and modes

MADE, KEPT, STOP = PolicyDecision.MAKE, PolicyDecision.KEEP, PolicyDecision.STOP


@pytest.mark.parametrize(
    ("kind", "evolve_", "try_evolve", "lenient", "ignore", "exception"),
    [
        ("create.table", MADE, MADE, MADE, MADE, MADE),
        ("add.column", MADE, MADE, MADE, KEPT, STOP),
        ("alter.column.type", MADE, MADE, MADE, KEPT, STOP),
        ("rename.column", MADE, MADE, MADE, KEPT, STOP),
        ("drop.column", MADE, MADE, MADE, KEPT, STOP),
        ("truncate.table", MADE, MADE, KEPT, KEPT, STOP),
        ("drop.table", MADE, MADE, KEPT, KEPT, STOP),
    ],
)
def test_rulings(kind, evolve_, try_evolve, lenient, ignore, exception):
    wanted = (evolve_, try_evolve, lenient, ignore, exception)
    modes = (Mode.EVOLVE, Mode.TRY_EVOLVE, Mode.LENIENT, Mode.IGNORE, Mode.EXCEPTION)
    found = tuple(policy(mode).decide(ChangeKind(kind)) for mode in modes)
    assert found == wanted
    excluded = [policy(mode, exclude=[kind]).decide(ChangeKind(kind)) for mode in modes]
    assert set(excluded) == {KEPT}


def test_lenient_makes_destructive_changes_that_are_included_by_name():
    named = policy(include=["truncate.table"])
    assert named.decide(ChangeKind.TRUNCATE_TABLE) is MADE
    assert named.decide(ChangeKind.ADD_COLUMN) is KEPT


CASES = {
    "new": {"note": "STRING"},
    "wider": {"qty": "BIGINT"},
    "other": {"qty": "DATE"},
}
ALTER, ADD = "alter.column.type", "add.column"


@pytest.mark.parametrize(
    ("mode", "case", "columns", "said", "more"),
    [
        ("lenient", "new", {"note": "STRING"}, (ADD, "note", "applied"), {}),
        ("lenient", "wider", {"qty": "BIGINT"}, (ALTER, "qty", "applied"), {}),
        ("lenient", "other", {}, (ALTER, "qty", "refused"), {"fixed": (("qty", "DATE"),)}),
        ("evolve", "new", {"note": "STRING"}, (ADD, "note", "applied"), {}),
        ("evolve", "wider", {"qty": "BIGINT"}, (ALTER, "qty", "applied"), {}),
        ("evolve", "other", {}, None, {"stop": "qty"}),
        ("try_evolve", "new", {"note": "STRING"}, (ADD, "note", "applied"), {}),
        ("try_evolve", "wider", {"qty": "BIGINT"}, (ALTER, "qty", "applied"), {}),
        ("try_evolve", "other", {}, (ALTER, "qty", "refused"), {"fixed": (("qty", "DATE"),)}),
        ("ignore", "new", {}, (ADD, "note", "ignored"), {"ignored": ("note",)}),
        ("ignore", "wider", {}, (ALTER, "qty", "ignored"), {"fixed": (("qty", "BIGINT"),)}),
        ("ignore", "other", {}, (ALTER, "qty", "ignored"), {"fixed": (("qty", "DATE"),)}),
        ("exception", "new", {}, None, {"stop": "note"}),
        ("exception", "wider", {}, None, {"stop": "qty"}),
        ("exception", "other", {}, None, {"stop": "qty"}),
    ],
)
def test_what_each_mode_does_with_what_rows_show(mode, case, columns, said, more):
    table = existing()
    decision = reconcile(table, [asked(**CASES[case])], policy=policy(mode), now_ms=0)
    assert columns_after(table, decision) == {**columns_after(table, Empty()), **columns}
    assert outcomes(decision) == ([said] if said else [])
    assert decision.ignored == more.get("ignored", ())
    assert decision.fixed == more.get("fixed", ())
    assert decision.parked == ""
    stop = decision.stop
    assert (stop.column if stop else None) == more.get("stop")
    if stop:
        assert (stop.topic, stop.partition, stop.offset) == ("t", 2, 5)


class Empty:
    action = ()


@pytest.mark.parametrize("mode", list(Mode))
def test_a_missing_table_is_made_in_every_mode_unless_excluded(mode):
    delta = asked(id="BIGINT", v="INT")
    made = reconcile(None, [delta], policy=policy(mode), now_ms=0)
    assert isinstance(made.action, NewTable)
    assert outcomes(made) == [("create.table", "", "applied")]
    refused = reconcile(None, [delta], policy=policy(mode, exclude=["create.table"]), now_ms=0)
    assert isinstance(refused.action, Refusal)
    assert outcomes(refused) == [("create.table", "", "refused")]


@pytest.mark.parametrize("mode", ["evolve", "try_evolve", "lenient", "exception"])
def test_excluded_kinds_leave_the_table_and_the_rows_as_they_are(mode):
    table = existing()
    wanted = asked(note="STRING", qty="BIGINT")
    decision = reconcile(
        table, [wanted], policy=policy(mode, exclude=["add.column", ALTER]), now_ms=0
    )
    assert decision.action == ()
    assert (decision.ignored, decision.fixed) == (("note",), (("qty", "BIGINT"),))
    assert decision.stop is None
    assert [each.outcome for each in decision.verdicts] == [Outcome.IGNORED] * 2


# --- types that do not convert


@pytest.mark.parametrize("mode", ["lenient", "evolve", "try_evolve", "ignore", "exception"])
@pytest.mark.parametrize(
    ("wanted", "column", "type_", "result"),
    [
        ("quarantine_rows", "qty", "DATE", "fixed"),
        ("quarantine_table", "qty", "DATE", "parked"),
        ("fail", "qty", "DATE", "stop"),
        ("new_column", "qty", "DATE", {"qty_1": "DATE"}),
        ("string", "qty", "DATE", {"qty": "STRING"}),
        ("string", "name", "DATE", {}),  # is STRING already: only the rows' texts are new
        ("string", "raw", "INT", {"raw_1": "INT"}),  # bytes have no text
        ("string", "qty", "BYTES", {"qty_1": "BYTES"}),
    ],
)
def test_on_incompatible(mode, wanted, column, type_, result):
    table = existing()
    decision = reconcile(table, [asked(**{column: type_})], policy=policy(mode, wanted), now_ms=0)
    before = columns_after(table, Empty())
    if mode == "exception":
        assert decision.stop is not None
        assert columns_after(table, decision) == before
        return
    if mode == "ignore" and isinstance(result, dict):
        result = "fixed"  # nothing is done to the table
    if isinstance(result, dict):
        assert columns_after(table, decision) == {**before, **result}
        assert decision.complete
    else:
        assert columns_after(table, decision) == before
    assert bool(decision.parked) == (result == "parked")
    assert (decision.stop is not None) == (result == "stop")
    assert bool(decision.fixed) == (result == "fixed")


@pytest.mark.parametrize("mode", ["evolve", "try_evolve"])
def test_a_change_to_text_is_made_where_changes_are_made_as_they_are(mode):
    table = existing()
    decision = reconcile(table, [asked(qty="STRING")], policy=policy(mode), now_ms=0)
    schema = evolve(table, decision.action, 0)
    assert type_name(schema.field("qty").type) == "STRING"
    assert ColumnNames.of(schema.options).texts == {"qty": parse_type("INT")}


def test_each_further_type_gets_its_own_column_once():
    table = existing()
    rule = policy("lenient", "new_column")
    for type_ in ("DATE", "BYTES", "DATE", "BIGINT"):
        decision = reconcile(table, [asked(qty=type_)], policy=rule, now_ms=0)
        if decision.action:
            table = evolve(table, decision.action, 0)
    assert table.field_names == (*TABLE, "qty_1", "qty_2")
    assert ColumnNames.of(table.options).typed == {"qty": ("qty_1", "qty_2")}
    assert type_name(table.field("qty").type) == "BIGINT"


def test_several_types_in_one_batch_are_settled_alike_in_any_order():
    rule = policy("lenient", "new_column")
    deltas = [asked(qty="DATE"), asked(qty="BIGINT", note="INT"), asked(note="BIGINT")]
    found = []
    for some in (deltas, deltas[::-1]):
        decision = reconcile(existing(), some, policy=rule, now_ms=0)
        found.append(columns_after(existing(), decision))
    assert (
        found[0]
        == found[1]
        == {
            **columns_after(existing(), Empty()),
            "qty": "BIGINT",
            "qty_1": "DATE",
            "note": "BIGINT",
        }
    )


@pytest.mark.parametrize("types", [("BIGINT", "STRING"), ("STRING", "BIGINT")])
def test_a_column_that_widens_and_becomes_text_in_one_batch_is_text(types):
    deltas = [asked(qty=type_) for type_ in types]
    decision = reconcile(existing(), deltas, policy=policy("evolve"), now_ms=0)
    assert (decision.stop, columns_after(existing(), decision)["qty"]) == (None, "STRING")


def test_replayed_deltas_change_nothing():
    table = existing()
    wanted = [asked(qty="DATE", note="INT", name="BOOLEAN")]
    for rule in (policy("lenient", "new_column"), policy("lenient", "string")):
        decision = reconcile(table, wanted, policy=rule, now_ms=0)
        changed = evolve(table, decision.action, 0)
        again = reconcile(changed, wanted, policy=rule, now_ms=0)
        assert (again.action, again.verdicts) == ((), ())


# --- odd names


def test_a_column_that_differs_in_case_only_gets_a_name_of_its_own():
    decision = reconcile(existing(), [asked(QTY="STRING")], now_ms=0)
    schema = evolve(existing(), decision.action, 0)
    assert schema.field_names[-1] == "QTY_1"
    assert ColumnNames.of(schema.options).typed == {"QTY": ("QTY_1",)}


@pytest.mark.parametrize("name", ["_KEY_x", "_SEQUENCE_NUMBER", "_VALUE_KIND", "rowkind", " "])
def test_names_that_paimon_keeps_for_itself_are_refused_alone(name):
    decision = reconcile(existing(), [asked(**{name: "INT", "ok": "INT"})], now_ms=0)
    assert columns_after(existing(), decision)["ok"] == "INT"
    assert not decision.complete
    assert [each.outcome for each in decision.verdicts] == [Outcome.REFUSED, Outcome.APPLIED]


def test_evolve_stops_at_what_the_table_does_not_take():
    decision = reconcile(existing(), [asked(_KEY_x="INT")], policy=policy("evolve"), now_ms=0)
    assert "_KEY_x" in str(decision.stop)
    assert "rename the column" in str(decision.action)


def test_a_thousand_columns_at_once_keep_their_order():
    names = [f"c{number}" for number in range(1000)]
    decision = reconcile(existing(), [asked(**dict.fromkeys(names, "STRING"))], now_ms=0)
    assert evolve(existing(), decision.action, 0).field_names == (*TABLE, *names)


def test_free_names():
    assert free_name("a", ["a", "A_1", "a_2"]) == "a_3"


# --- what DDL says


def drafted(rule, table=None, **steps):
    draft = Draft(table or existing(), rule)
    for name, other in steps.items():
        if other is None:
            draft.drop(name, PLACE)
        else:
            draft.rename(name, other, PLACE)
    return draft.finish(0)


@pytest.mark.parametrize("mode", ["evolve", "try_evolve"])
def test_a_rename_keeps_the_field_and_its_former_name(mode):
    table = existing()
    done = drafted(policy(mode), qty="amount")
    schema = evolve(table, done.action, 0)
    assert schema.field("amount").id == table.field("qty").id
    assert ColumnNames.of(schema.options).former == {"amount": ("qty",)}
    again = drafted(policy(mode), schema, qty="amount")
    assert (again.action, again.verdicts) == ((), ())


def test_a_chain_of_renames_keeps_all_former_names():
    schema = existing()
    for old, new in (("qty", "a"), ("a", "b"), ("b", "qty")):
        schema = evolve(schema, drafted(policy("evolve"), schema, **{old: new}).action, 0)
    assert ColumnNames.of(schema.options).former == {"qty": ("b", "a")}


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [("lenient", "ignored"), ("ignore", "ignored"), ("exception", None), ("evolve", "applied")],
)
def test_drops_and_renames_by_mode(mode, outcome):
    for steps in ({"qty": None}, {"qty": "amount"}):
        done = drafted(policy(mode), **steps)
        assert [each.outcome for each in done.verdicts] == ([outcome] if outcome else [])
        assert (done.stop is not None) == (outcome is None)
        assert bool(done.action) == (outcome == "applied")


def test_a_dropped_column_does_not_come_back_by_rows_written_before():
    table = existing()
    schema = evolve(table, drafted(policy("evolve"), qty=None).action, 0)
    assert "qty" not in schema.field_names
    late = reconcile(schema, [asked(qty="INT")], policy=policy("evolve"), now_ms=0)
    assert (late.action, late.ignored) == ((), ("qty",))
    draft = Draft(schema, policy("evolve"))
    draft.restore("qty")
    restored = evolve(schema, draft.finish(0).action, 0)
    back = reconcile(restored, [asked(qty="INT")], policy=policy("evolve"), now_ms=0)
    assert evolve(restored, back.action, 0).field_names[-1] == "qty"


def test_a_key_column_is_renamed_and_never_dropped():
    schema = evolve(existing(), drafted(policy("evolve"), id="number").action, 0)
    assert schema.primary_keys == ("number",)
    refused = drafted(policy("try_evolve"), id=None)
    assert refused.action == ()
    assert [each.outcome for each in refused.verdicts] == [Outcome.REFUSED]


def test_a_drop_in_one_of_several_source_tables_changes_nothing():
    draft = Draft(existing(), policy("evolve"))
    draft.drop("qty", PLACE, shared=True)
    draft.drop("never there", PLACE, shared=True)
    done = draft.finish(0)
    assert done.action == ()
    assert [(each.column, each.outcome) for each in done.verdicts] == [("qty", Outcome.IGNORED)]


def test_changes_that_the_pipeline_needs_are_made_in_every_mode():
    for mode in Mode:
        draft = Draft(existing(), policy(mode))
        draft.need(AddColumn("made", parse_type("INT")))
        done = draft.finish(0)
        assert evolve(existing(), done.action, 0).field_names[-1] == "made"
        assert [each.reason for each in done.verdicts] == ["made by the pipeline"]


@pytest.mark.parametrize("mode", ["lenient", "ignore"])
def test_statements_about_columns_that_never_came_say_nothing_where_nothing_is_followed(mode):
    done = drafted(policy(mode), never=None, also_never="later")
    assert (done.action, done.verdicts) == ((), ())
