# SPDX-License-Identifier: Apache-2.0
"""A delete needs its key, an update its key and the row after: bad values of the row before do not
keep a row in the table."""

import pytest

from tests.changelog_kit import changes_of
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    event,
    message,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.every_way import EveryWay
from tests.unit.ingest.row_streams import DIALECTS, ItemStream, changed

TIMESTAMP = "io.debezium.time.Timestamp"
EVERY = pytest.mark.parametrize("form", DIALECTS)
BAD = ['"x"', "1e99", "true", '{"a":1}', "[1]"]
"""Tokens that a BIGINT does not take."""


def row(key, number, name='"a"'):
    return f'{{"id":{key},"n":{number},"name":{name}}}'


def stream(directory, form, *, columns=None, **more):
    one = ItemStream(directory, form, **more)
    columns = columns or {"id": "BIGINT", "n": "BIGINT", "name": "STRING"}
    one.put(row(1, 10), row(2, 20), row(3, 30), row(4, 40))
    assert one.types() == columns
    return one


@EVERY
@pytest.mark.parametrize("token", BAD)
def test_a_delete_with_a_bad_value(tmp_path, form, token):
    one = stream(tmp_path, form)
    one.delete(row(1, token), row(2, 20), row(3, 5, "[]"))
    assert (one.rows(), one.bad()) == ([(4, 40, "a")], [])


@EVERY
def test_a_delete_with_text_that_is_none(tmp_path, form):
    one = stream(tmp_path, form)
    one.run(
        changed(form, "d", b'{"id":1,"n":10,"name":"\xff"}'),
        changed(form, "d", b'{"id":2,"n":20,"name":"a\xc3"}'),
        changed(form, "d", row(3, 30)),
    )
    assert (one.rows(), one.bad()) == ([(4, 40, "a")], [])


def test_a_delete_with_a_name_that_is_no_text(tmp_path):
    one = stream(tmp_path, "debezium-json")
    one.run(changed("debezium-json", "d", b'{"id":1,"n":10,"na\xff":"a"}'))
    assert (len(one.rows()), one.bad()) == (3, [])


@EVERY
def test_a_delete_needs_a_good_key(tmp_path, form):
    one = stream(tmp_path, form)
    one.delete(row('"x"', 10), row(2**70, 10))
    assert (len(one.rows()), one.bad()) == (4, ["type", "type"])


@pytest.mark.parametrize("form", [form for form in DIALECTS if form != "debezium-flat"])
def test_an_update_needs_nothing_of_the_row_before_but_its_key(tmp_path, form):
    one = stream(tmp_path, form)
    one.update(row(1, '"x"'), row(1, 11))
    one.update(row(2, "[1]"), row(22, 20))  # its key changes: the old row is deleted
    assert one.rows() == [(1, 11, "a"), (3, 30, "a"), (4, 40, "a"), (22, 20, "a")]
    one.update(row('"x"', 30), row(3, 33))  # no row of the table has such a key
    assert one.rows()[1] == (3, 33, "a")
    assert one.bad() == []


@EVERY
def test_a_bad_value_of_the_row_after_is_bad(tmp_path, form):
    one = stream(tmp_path, form)
    one.update(row(1, 10), row(1, '"x"'))
    assert (one.bad(), one.rows()[0]) == (["type"], (1, 10, "a"))


@EVERY
def test_columns_that_the_table_may_not_get_keep_no_row(tmp_path, form):
    one = stream(tmp_path, form, pipeline=", schema.change.behavior: ignore")
    one.delete('{"id":1,"n":10,"name":"a","more":7}')
    assert (len(one.rows()), one.bad()) == (3, [])


def test_a_refused_column_keeps_no_row():
    table = schema(("id", "BIGINT"), ("n", "BIGINT"))
    one = decoder(table, evolvable=False)
    gone = {"id": 1, "n": 2, "_KEY_x": 5}
    result = one.decode(batch(message("d", gone), message("c", None, gone)))
    assert [(found["kind"], found["n"]) for found in rows(result)] == [("-D", 2)]
    assert classes(result) == ["schema"]


@pytest.mark.parametrize("evolvable", [True, False])
def test_a_delete_after_an_incompatible_change(evolvable):
    block = connect_block(connect_field("id", "int64"), connect_field("n", "string"))
    table = schema(("id", "BIGINT"), ("n", "BIGINT"))
    values = [with_block(block, event("d", {"id": key, "n": "x"})) for key in (1, 2)]
    result = decoder(table, evolvable=evolvable).decode(batch(*values))
    assert [(r["kind"], r["id"], r["n"]) for r in rows(result)] == [
        ("-D", 1, None),
        ("-D", 2, None),
    ]
    assert result.bad == []


def test_deletes_in_every_encoding():
    fields = [connect_field("id", "int64"), connect_field("day", "int64", TIMESTAMP)]
    table = schema(("id", "BIGINT"), ("day", "TIMESTAMP(3)"))
    images = [{"id": 1, "day": 2**63 - 1}, {"id": 2, "day": 7}]
    for name, result in EveryWay(fields, images, table, op="d").all().items():
        assert [r["kind"] for r in rows(result)] == ["-D", "-D"], name
        assert rows(result)[0]["day"] is None, name
    texts = [connect_field("id", "int64"), connect_field("n", "string")]
    numbers = schema(("id", "BIGINT"), ("n", "BIGINT"))
    way = EveryWay(texts, [{"id": 1, "n": "x"}, {"id": 2, "n": "7"}], numbers, op="d")
    for name, result in way.all().items():
        assert [(r["kind"], r["n"]) for r in rows(result)] == [("-D", None)] * 2, name


ORDERED = ", table.properties: {sequence.field: n}"
SUMMED = ", table.properties: {merge-engine: aggregation, fields.n.aggregate-function: sum}"


@EVERY
@pytest.mark.parametrize("rule", [ORDERED, SUMMED])
def test_a_value_that_a_delete_counts_by_must_be_good(tmp_path, form, rule):
    one = stream(tmp_path, form, rule=rule)
    one.delete(row(1, '"x"'))
    assert (one.bad(), len(one.rows())) == (["type"], 4)
    if rule is ORDERED:
        one.delete(row(1, 11, "[1]"))
        assert (one.bad(), len(one.rows())) == (["type"], 3)


@EVERY
def test_a_retraction_has_null_for_the_bad_value(tmp_path, form):
    one = stream(tmp_path, form, rule=", table.properties: {changelog-producer: input}")
    one.delete(row(1, '"x"'))
    assert changes_of(one.table, one.table.snapshots.latest_id()) == [("-D", 1, None, "a")]


@EVERY
def test_a_soft_delete_keeps_the_stored_value(tmp_path, form):
    one = ItemStream(tmp_path, form, rule=", deletes: soft")
    one.put(row(1, 10), row(2, 20))
    one.delete(row(1, '"x"'))
    assert one.bad() == []
    assert [tuple(found.values())[:4] for found in one.local.rows(one.name)] == [
        (1, 10, "a", True),
        (2, 20, "a", False),
    ]
