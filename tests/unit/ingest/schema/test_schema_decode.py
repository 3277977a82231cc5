# SPDX-License-Identifier: Apache-2.0
"""From a shape that the table does not cover, through the decision, to rows of the new schema."""

import pytest

from ingest.decode.events import Target
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.schema.routing import Answers, ChangePolicy, type_requests_of
from ingest.schema.schema_draft import ChangeOrigin, Draft
from ingest.schema.schema_sync import reconcile
from storage.format.metadata.schema_changes import evolve
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_block,
    connect_field,
    event,
    message,
    rows,
    schema,
    with_block,
)

PLACE = ChangeOrigin("pg.shop.public.orders", "t", 0, 5)
TYPES = {
    "INT": ("int32", None),
    "BIGINT": ("int64", None),
    "STRING": ("string", None),
    "BOOLEAN": ("boolean", None),
    "DOUBLE": ("double", None),
    "DATE": ("int32", "io.debezium.time.Date"),
    "TIMESTAMP(3)": ("int64", "io.debezium.time.Timestamp"),
    "BYTES": ("bytes", None),
}


class Lake:
    """One table, a decoder and the driver's answers to it."""

    def __init__(self, mode, incompatible=None, declared=True, key=("id",), **columns):
        self.policy = ChangePolicy.of(mode, (), (), incompatible)
        self.schema = schema(*{"id": "BIGINT", **columns}.items(), key=key)
        self.answers = Answers()
        self.declared = declared
        self.runs = 0
        self.decoder = EnvelopeDecoder(DebeziumJson(DialectOptions()), self.resolve)

    def resolve(self, source, topic):
        del source, topic
        return Target(
            "shop.orders",
            self.schema,
            ignored=self.answers.ignored,
            fixed=tuple(sorted(self.answers.fixed)),
            type_requests=type_requests_of(self.policy),
        )

    def value(self, types, row, op="c", before=None):
        if not self.declared:
            return message(op, before, row)
        fields = [connect_field("id", "int64")]
        fields += [connect_field(n, TYPES[t][0], TYPES[t][1]) for n, t in types.items()]
        return with_block(connect_block(*fields), event(op, before, row))

    def take(self, *values):
        """Decode as a batch with its second runs does."""
        for _ in range(6):
            self.runs += 1
            result = self.decoder.decode(batch(*values))
            if not result.deltas:
                return result
            decision = reconcile(self.schema, result.deltas, policy=self.policy, now_ms=0)
            assert decision.stop is None
            if isinstance(decision.action, tuple) and decision.action:
                self.schema = evolve(self.schema, decision.action, 0)
            self.answers = self.answers.and_also(decision.ignored, decision.fixed)
        raise AssertionError("does not settle")

    def ddl(self, **steps):
        draft = Draft(self.schema, self.policy)
        for name, other in steps.items():
            if other is None:
                draft.drop(name, PLACE)
            else:
                draft.rename(name, other, PLACE)
        changes = draft.finish(0).action
        if changes:
            self.schema = evolve(self.schema, changes, 0)


def plain(result):
    return [{k: v for k, v in row.items() if k not in ("kind", "offset")} for row in rows(result)]


DECLARED = pytest.mark.parametrize("declared", [True, False], ids=["declared", "bare"])


@DECLARED
def test_ignored_columns_are_left_out_and_the_others_flow(declared):
    lake = Lake("ignore", declared=declared, name="STRING")
    types = {"name": "STRING", "more": "INT", "tree": "STRING"}
    first = lake.take(
        lake.value(types, {"id": 1, "name": "a", "more": 7, "tree": None}),
        lake.value(types, {"id": 2, "name": "b", "more": None, "tree": "x"}),
    )
    assert plain(first) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert (first.bad, first.counts) == ([], {"op.c": 2})
    runs = lake.runs
    lake.take(lake.value(types, {"id": 3, "name": "c", "more": 1, "tree": "t"}))
    assert lake.runs == runs + 1  # the answer holds
    gone = lake.take(
        lake.value(types, None, "d", {"id": 3, "name": "c", "more": 1, "tree": "t"}),
        lake.value(types, {"id": 4, "name": "d", "more": 1, "tree": "t"}, "u", {"id": 3}),
    )
    assert [row["kind"] for row in rows(gone)] == ["-D", "-D", "+I"]


@DECLARED
def test_new_column_takes_the_values_of_the_new_type(declared):
    lake = Lake("lenient", "new_column", declared=declared, qty="INT")
    text, number = {"qty": "STRING"}, {"qty": "INT"}
    result = lake.take(
        lake.value(number, {"id": 1, "qty": 1}),
        lake.value(text, {"id": 2, "qty": "two"}),
        lake.value(number, {"id": 3, "qty": 3}),
        lake.value(text, {"id": 4, "qty": None}),
        lake.value(text, {"id": 5, "qty": "five"}, "u", {"id": 5, "qty": "4"}),
    )
    assert plain(result) == [
        {"id": 1, "qty": 1, "qty_1": None},
        {"id": 2, "qty": None, "qty_1": "two"},
        {"id": 3, "qty": 3, "qty_1": None},
        {"id": 4, "qty": None, "qty_1": None},
        {"id": 5, "qty": None, "qty_1": "five"},
    ]


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("INT", 7, "7"),
        ("BOOLEAN", True, "true"),
        ("DOUBLE", 1.5, "1.5"),
        ("DATE", 19_000, "2022-01-08"),
        ("TIMESTAMP(3)", 1_000_123, "1970-01-01 00:16:40.123"),
    ],
)
def test_string_keeps_values_of_both_types_as_the_table_shows_the_old_ones(type_, value, text):
    lake = Lake("lenient", "string", v=type_)
    new, old = {"v": "STRING"}, {"v": type_}
    result = lake.take(
        lake.value(new, {"id": 1, "v": "word"}), lake.value(old, {"id": 2, "v": value})
    )
    assert plain(result) == [{"id": 1, "v": "word"}, {"id": 2, "v": text}]
    single = lake.take(lake.value(old, {"id": 4, "v": value}, "u", {"id": 3, "v": value}))
    assert [row["v"] for row in rows(single)] == [text, text]  # the reference path says the same


def test_string_of_undeclared_values():
    lake = Lake("lenient", "string", declared=False, v="INT")
    result = lake.take(
        lake.value({}, {"id": 1, "v": 5}),
        lake.value({}, {"id": 2, "v": "word"}),
        lake.value({}, {"id": 3, "v": 6}),
        lake.value({}, {"id": 4, "v": True}),
    )
    assert [row["v"] for row in plain(result)] == ["5", "word", "6", "true"]


def test_quarantined_rows_ask_once_and_other_rows_flow():
    lake = Lake("lenient", qty="INT")
    text = {"qty": "STRING"}
    result = lake.take(
        lake.value(text, {"id": 1, "qty": "x"}), lake.value(text, {"id": 2, "qty": None})
    )
    assert plain(result) == [{"id": 2, "qty": None}]
    assert classes(result) == ["type"]
    runs = lake.runs
    assert classes(lake.take(lake.value(text, {"id": 3, "qty": "x"}))) == ["type"]
    assert lake.runs == runs + 1


@DECLARED
def test_rows_of_the_old_and_the_new_name_meet_in_one_column(declared):
    lake = Lake("evolve", declared=declared, qty="INT")
    lake.take(lake.value({"qty": "INT"}, {"id": 1, "qty": 1}))
    lake.ddl(qty="amount")
    old, new = {"qty": "INT"}, {"amount": "INT"}
    result = lake.take(
        lake.value(old, {"id": 1, "qty": 1}),
        lake.value(new, {"id": 2, "amount": 2}),
        lake.value(old, {"id": 3, "qty": 3}),
        lake.value(old, {"id": 3, "qty": 4}, "u", {"id": 3, "qty": 3}),
        lake.value(new, {"id": 4, "amount": 4}),
        lake.value(old, None, "d", {"id": 9, "qty": 9}),
    )
    assert result.bad == []
    assert plain(result) == [
        {"id": 1, "amount": 1},
        {"id": 2, "amount": 2},
        {"id": 3, "amount": 3},
        {"id": 3, "amount": 4},
        {"id": 4, "amount": 4},
        {"id": 9, "amount": 9},
    ]
    assert lake.schema.field_names == ("id", "amount")


@DECLARED
def test_a_new_column_may_take_a_former_name(declared):
    lake = Lake("evolve", declared=declared, qty="INT")
    lake.ddl(qty="amount")
    both = {"amount": "INT", "qty": "STRING"}
    result = lake.take(
        lake.value({"qty": "INT"}, {"id": 1, "qty": 1}),
        lake.value(both, {"id": 2, "amount": 2, "qty": "two"}),
    )
    assert (
        plain(result)
        == [
            {"id": 1, "amount": 1, "qty": None},
            {"id": 2, "amount": 2, "qty": "two"},
        ]
        or not declared
    )


@DECLARED
def test_a_renamed_key_column_is_found_under_both_names(declared):
    lake = Lake("evolve", declared=declared, v="INT")
    lake.ddl(id="number")

    def value(name, row, **more):
        if not declared:
            return message("c", None, row)
        fields = [connect_field(name, "int64"), connect_field("v", "int32")]
        return with_block(connect_block(*fields), event("c", None, row))

    result = lake.take(value("id", {"id": 1, "v": 1}), value("number", {"number": 2, "v": 2}))
    assert (result.bad, plain(result)) == ([], [{"number": 1, "v": 1}, {"number": 2, "v": 2}])


@DECLARED
def test_two_columns_that_differ_in_case_only_are_kept_apart(declared):
    lake = Lake("lenient", declared=declared, qty="INT")
    result = lake.take(
        lake.value({"qty": "INT", "QTY": "STRING"}, {"id": 1, "qty": 1, "QTY": "one"})
    )
    assert plain(result) == [{"id": 1, "qty": 1, "QTY_1": "one"}]


def test_shards_with_fewer_columns_give_null_and_drop_nothing():
    lake = Lake("evolve", a="INT", b="INT")
    result = lake.take(
        lake.value({"a": "INT"}, {"id": 1, "a": 1}),
        lake.value({"b": "INT", "c": "INT"}, {"id": 2, "b": 2, "c": 3}),
    )
    assert plain(result) == [
        {"id": 1, "a": 1, "b": None, "c": None},
        {"id": 2, "a": None, "b": 2, "c": 3},
    ]
