# SPDX-License-Identifier: Apache-2.0
"""Transforms in the pipeline: what a table holds after random histories, against plain Python."""

import hashlib
import itertools

import pytest

from ingest.source.records import POSITION_COLUMNS
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import RenameColumn, SetOption
from storage.format.types.types import parse_type
from storage.table.compaction.compact_table import CompactRequest, compact_table
from tests.inline_executor import InlineExecutor
from tests.unit.ingest.debezium_events import (
    TOPIC,
    connect_block,
    connect_field,
    dumps,
    event,
    with_block,
)
from tests.unit.ingest.table_pipeline import TablePipeline
from tests.unit.ingest.transformed_source import (
    FIELDS,
    PARTITIONS,
    PLACEHOLDER,
    RULE,
    Source,
    micros,
    record,
)

QUICK = [
    *((True, True, "", "kafka"), (True, False, "cross", "kafka"), (True, False, "key", "kafka")),
    *((False, True, "cross", "kafka"), (False, False, "", "kafka")),
    *((False, True, "", "source"), (True, True, "key", "source")),
]
"""Every way of each kind, but not with every other."""
CASES = [
    (full, soft, partition, "kafka")
    for full, soft, partition in itertools.product([True, False], [True, False], PARTITIONS)
    if full or partition != "key"  # refused by name, see below
]
CASES += [(False, True, "", "source"), (True, True, "key", "source"), (False, False, "", "source")]


@pytest.mark.parametrize(
    ("full", "soft", "partition", "ordering"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.full) for case in CASES],
)
def test_random_histories_give_what_plain_python_gives(tmp_path, full, soft, partition, ordering):
    random_history(tmp_path, full, soft, partition, ordering)


@pytest.mark.parametrize(
    "properties",
    [
        "{merge-engine: partial-update, partial-update.remove-record-on-delete: 'true'}",
        "{changelog-producer: lookup}",
        "{deletion-vectors.enabled: 'true', bucket: 3}",
        "{bucket: -1, dynamic-bucket.assigner-parallelism: 3}",
        pytest.param(
            "{bucket: -1, dynamic-bucket.assigner-parallelism: 3, "
            "dynamic-bucket.initial-buckets: 2}",
            marks=pytest.mark.full,
        ),
        "{bucket: -2, postpone.default-bucket-num: 3}",
        pytest.param(
            "{merge-engine: partial-update, partial-update.remove-record-on-delete: 'true', "
            "bucket: -2}",
            marks=pytest.mark.full,
        ),
    ],
)
def test_random_histories_of_other_tables(tmp_path, properties):
    random_history(tmp_path, False, True, "", "kafka", f"    table.properties: {properties}\n")


def random_history(tmp_path, full, soft, partition, ordering, more=""):
    text = f"source.ordering: {ordering}\n"
    text += "tables:\n  - match: shop.*" + RULE + PARTITIONS[partition]
    text += ("    deletes: soft\n" if soft else "") + more
    metadata = soft or bool(partition)
    sink = ", metadata.columns: {columns: [op, table]}" if metadata else ""
    one = TablePipeline(tmp_path, text, TOPIC, sink=sink)
    source = Source(
        f"{full}{soft}{partition}", full=full, soft=soft, partition=partition, metadata=metadata
    )
    for number in range(6):
        tasks = [[source.change() for _ in range(source.random.randrange(1, 25))] for _ in "ab"]
        one.feed(*tasks, commit=False)  # lost before its commit
        one.feed(*tasks)
        assert one.quarantined() == []
        if one.book.table("shop.orders").options.bucket == -2:
            if number % 3 < 2:  # values that the source does not send are found all the same
                continue
            compact_table(one.book.table("shop.orders"), CompactRequest(), InlineExecutor())
        rows = [
            {name: value for name, value in each.items() if name not in POSITION_COLUMNS}
            for each in one.rows("shop.orders")
        ]
        assert source.by_key(rows) == source.lake
    assert one.changes == [("shop.orders", "create table")]
    schema = one.book.table("shop.orders").schema
    assert schema.partition_keys == (("dt",) if partition else ())


def pipeline(directory, rule, more="", *, batches=0):
    """A stream by a rule of its tables, behind so many batches of one record each."""
    one = TablePipeline(directory, f"tables:\n  - match: shop.*\n{rule}{more}", TOPIC)
    one.offset = one.batches = batches
    return one


def described(op, before, after, **types):
    """A record whose schema block has fields more, or of other types, than `FIELDS`."""
    fields = {field["field"]: field for field in FIELDS}
    fields |= {name: connect_field(name, types[name]) for name in types}
    value = with_block(connect_block(*fields.values()), event(op, before, after))
    return dumps({"id": after["id"]}), value


def row(key, **values):
    made = {
        "id": key,
        "qty": 1,
        "price": 2,
        "note": "n",
        "email": "e@x",
        "secret": "s",
        "created_at": micros(1),
    }
    return made | values


def held(one, *names):
    return sorted(tuple(each[name] for name in names) for each in one.rows("shop.orders"))


def test_a_row_without_a_result_goes_whole_to_quarantine_and_the_others_go_on(tmp_path):
    one = pipeline(tmp_path, '    computed: ["each = 100 DIV qty"]\n')
    records = [record("c", None, row(1)), record("c", None, row(2, qty=0))]
    (result, _) = sorted(one.feed(records), key=lambda each: each.table, reverse=True)
    assert result.rows == {"insert": 1}
    assert held(one, "id", "each") == [(1, 100)]
    assert one.quarantined() == [("transform", "division by zero in `100 DIV qty`")]
    (bad,) = one.rows(one.book.quarantine)
    assert (bad["offset"], bad["key"], bad["value"]) == (1, *records[1])


def test_both_rows_of_a_key_change_fail_together(tmp_path):
    one = pipeline(tmp_path, '    computed: ["each = 100 DIV qty"]\n')
    one.feed([record("c", None, row(1))])
    one.feed([record("u", row(1), row(2, qty=0))])
    assert held(one, "id") == [(1,)]
    assert [error_class for error_class, _ in one.quarantined()] == ["transform"]


def test_excluded_columns_may_come_grow_and_go(tmp_path):
    one = pipeline(tmp_path, "    columns.exclude: [secret, later]\n")
    one.feed([record("c", None, row(1))])
    for number, (type_, value) in enumerate([("int32", 5), ("string", "x")], 2):
        wide = row(number) | {"later": value}
        one.feed([described("c", None, wide, later=type_)])
    assert one.changes == [("shop.orders", "create table")]
    assert one.quarantined() == []
    assert held(one, "id") == [(1,), (2,), (3,)]
    assert "secret" not in one.rows("shop.orders")[0]


def test_excluded_columns_of_events_without_schema(tmp_path):
    one = pipeline(tmp_path, "    columns.exclude: [secret, later]\n")
    bare = [row(1), row(2) | {"later": {"a": [1]}}, row(3) | {"later": None}, row(4)]
    records = [(dumps({"id": r["id"]}), dumps(event("c", None, r))) for r in bare]
    one.feed(records[:1])
    one.feed(records[1:])
    one.feed([(dumps({"id": 2}), dumps(event("u", None, bare[1] | {"qty": 7})))])
    assert one.changes == [("shop.orders", "create table")]
    assert one.quarantined() == []
    assert held(one, "id", "qty") == [(1, 1), (2, 7), (3, 1), (4, 1)]


def test_a_rule_that_grew_adds_its_columns_before_the_next_rows(tmp_path):
    pipeline(tmp_path, "").feed([record("c", None, row(1))])
    rule = '    computed: ["total = price * qty"]\n    deletes: soft\n'
    two = pipeline(tmp_path, rule, batches=1)
    two.feed([record("u", None, row(1, qty=4)), record("c", None, row(2))], commit=False)
    assert [name for name, _ in two.changes] == ["shop.orders"] * 2
    two.feed([record("u", None, row(1, qty=4)), record("c", None, row(2))])
    two.feed([record("d", {"id": 2})])
    assert len(two.changes) == 2
    names = ("id", "total", "_cdc_deleted")
    assert held(two, *names) == [(1, 8, False), (2, 2, True)]


def test_a_rule_that_does_not_fit_stops_no_other_table_and_waits_for_its_column(tmp_path):
    pipeline(tmp_path, "").feed([record("c", None, row(1))])
    two = pipeline(tmp_path, '    computed: ["shout = upper(later)"]\n', batches=1)
    two.feed([record("c", None, row(2))])
    ((error_class, error),) = two.quarantined()
    assert error_class == "transform"
    assert "there is no column `later`" in error
    later = row(3) | {"later": "x"}
    two.feed([described("c", None, later, later="string")])
    assert held(two, "id", "later", "shout") == [(1, None, None), (3, "x", "X")]


def test_types_that_the_table_does_not_show_widen_too(tmp_path):
    rule = '    mask: {qty: md5}\n    columns.exclude: [price]\n    filter: "price > 0"\n'
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(1))])
    wide = row(2, qty=1 << 40, price=1 << 40)
    one.feed([described("c", None, wide, qty="int64", price="int64")])
    digests = [hashlib.md5(text).hexdigest() for text in (b"1", str(1 << 40).encode())]
    assert held(one, "id", "qty") == [(1, digests[0]), (2, digests[1])]
    assert len(one.changes) == 2
    assert one.quarantined() == []


def test_a_source_column_with_the_name_of_a_made_one_is_refused_by_name(tmp_path):
    one = pipeline(tmp_path, '    computed: ["later = upper(note)"]\n')
    one.feed([record("c", None, row(1))])
    later = row(2) | {"later": "x"}
    one.feed([described("c", None, later, later="string")])
    one.feed([record("c", None, row(3))])
    assert held(one, "id", "later") == [(1, "N"), (3, "N")]
    assert "later" in one.quarantined()[0][1]


@pytest.mark.parametrize("op", ["u", "d"])
def test_a_computed_key_needs_the_old_value(tmp_path, op):
    one = pipeline(tmp_path, PARTITIONS["key"])
    one.feed([record("c", None, row(1)), record("c", None, row(2))])
    before = None if op == "u" else dict.fromkeys(row(1)) | {"id": 1}
    one.feed([record(op, before, None if op == "d" else row(1, qty=9))])
    assert held(one, "id", "qty") == [(1, 1), (2, 1)]
    ((error_class, error),) = one.quarantined()
    assert error_class == "before_image"
    assert "comes from created_at" in error
    assert "REPLICA IDENTITY FULL" in error


def test_a_value_that_was_not_sent_beside_one_that_was(tmp_path):
    one = pipeline(tmp_path, '    computed: ["both = concat(note, email)"]\n')
    one.feed([record("c", None, row(1))])
    one.feed([record("u", None, row(1, note=PLACEHOLDER, qty=5))])
    assert held(one, "id", "qty", "both") == [(1, 1, "ne@x")]
    ((error_class, error),) = one.quarantined()
    assert error_class == "transform"
    assert "`both` is computed from `note`, `email`" in error


def test_columns_that_a_rule_names_and_the_source_does_not_have_are_told(tmp_path, caplog):
    pipeline(tmp_path, "    mask: {emial: sha256}\n").feed([record("c", None, row(1))])
    (told,) = (each for each in caplog.records if hasattr(each, "reason"))
    assert told.table == "shop.orders"
    assert told.reason == "mask: there is no column `emial`; did you mean `email`?"


def test_a_table_that_cannot_be_made_as_the_rule_says_is_not_made(tmp_path):
    one = pipeline(tmp_path, '    computed: ["shout = upper(later)"]\n')
    one.feed([record("c", None, row(1))])
    assert one.changes == []
    assert [error_class for error_class, _ in one.quarantined()] == ["schema"]


def test_shards_are_columns_that_expressions_see(tmp_path):
    route = "route: [{source-table: '.*', sink-table: shop.orders, shard: {column: _shard}}]\n"
    one = pipeline(tmp_path, '    computed: ["where = concat(_shard, note)"]\n', route)
    one.feed([record("c", None, row(1))])
    one.feed([record("u", None, row(1, note="m"))])
    assert held(one, "_shard", "id", "where") == [("shop", 1, "shopm")]


def test_tables_without_a_key_only_get_what_satisfies_the_filter(tmp_path):
    text = (
        "source.format: json\n"
        'tables: [{match: shop.*, filter: "v > 0", computed: ["w = 10 DIV (v - 3)"], '
        'partition.by: ["p = v % 2"]}]\n'
    )
    one = TablePipeline(
        tmp_path, text, "shop.clicks", sink=", metadata.columns: {columns: [topic]}"
    )
    one.feed([(None, dumps({"v": v, "s": "x"})) for v in (1, -1, 3, 4)], commit=False)
    one.feed([(None, dumps({"v": v, "s": "x"})) for v in (1, -1, 3, 4)])
    found = sorted(one.rows("shop.clicks"), key=lambda each: each["v"])
    assert found == [
        {"v": 1, "s": "x", "w": -5, "p": 1, "_cdc_topic": "shop.clicks"},
        {"v": 4, "s": "x", "w": 10, "p": 0, "_cdc_topic": "shop.clicks"},
    ]
    assert one.quarantined() == [("transform", "division by zero in `10 DIV (v - 3)`")]


def test_a_masked_key(tmp_path):
    one = pipeline(tmp_path, "    mask: {id: \"sha256('salt')\"}\n    deletes: soft\n")
    one.feed([record("c", None, row(key)) for key in (1, 2, 3)])
    one.feed(
        [record("u", row(1), row(4)), record("d", {"id": 2}), record("u", None, row(3, qty=7))]
    )
    digest = {key: hashlib.sha256(f"salt{key}".encode()).hexdigest() for key in range(5)}
    assert held(one, "id", "qty", "_cdc_deleted") == sorted(
        [(digest[1], 1, True), (digest[2], 1, True), (digest[3], 7, False), (digest[4], 1, False)]
    )
    assert one.quarantined() == []


def test_a_column_that_replaces_its_source_column(tmp_path):
    rule = (
        '    columns.exclude: [note, id]\n    computed: ["note = upper(note)", "id = id + 100"]\n'
    )
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(key, note="a")) for key in (1, 2)])
    one.feed([record("u", None, row(1, note="b")), record("d", {"id": 2})])
    assert held(one, "id", "note") == [(101, "B")]
    assert one.quarantined() == []


def test_what_a_key_is_computed_from_may_widen(tmp_path):
    rule = '    primary.key: [k]\n    computed: ["k = concat(note, CAST(qty AS STRING))"]\n'
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(1))])
    one.feed([described("u", row(1), row(1, qty=1 << 40), qty="int64")])
    assert held(one, "k", "qty") == [(f"n{1 << 40}", 1 << 40)]
    assert one.quarantined() == []


def test_a_table_that_somebody_made_learns_the_types_that_it_does_not_show(tmp_path):
    rule = '    columns.exclude: [price, secret]\n    computed: ["total = price * qty"]\n'
    one = pipeline(tmp_path, rule)
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    columns = [
        ("id", parse_type("BIGINT")),
        ("qty", parse_type("INT")),
        ("total", parse_type("BIGINT")),
    ]
    catalog.create_table(
        "shop.orders", new_schema(columns, primary_keys=("id",), options={"bucket": "1"})
    )
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(1, qty=3))], commit=False)
    one.feed([record("c", None, row(1, qty=3))])
    assert held(one, "id", "qty", "total", "note") == [(1, 3, 6, "n")]
    assert one.quarantined() == []
    settled = len(one.changes)
    one.feed([record("c", None, row(2))])
    assert len(one.changes) == settled


def test_a_rule_against_the_columns_of_the_table_stops_this_table_alone(tmp_path):
    pipeline(tmp_path, "").feed([record("c", None, row(1))])
    two = pipeline(tmp_path, '    computed: ["note = upper(email)"]\n', batches=1)
    two.feed([record("c", None, row(2)), record("c", None, row(3))])
    assert held(two, "id") == [(1,)]
    assert [error_class for error_class, _ in two.quarantined()] == ["schema"] * 2
    assert "note" in two.quarantined()[0][1]


def test_a_rule_whose_result_has_another_type_than_the_column_takes_nothing(tmp_path):
    rule = "    deletes: soft\n"
    first = '    computed: ["_cdc_deleted = upper(note)"]\n'
    pipeline(tmp_path, first).feed([record("c", None, row(1))])
    two = pipeline(tmp_path, rule, batches=1)
    two.feed([record("c", None, row(2)), record("c", None, row(3))])
    assert held(two, "id") == [(1,)]
    assert [error_class for error_class, _ in two.quarantined()] == ["transform"] * 2
    assert "another type" in two.quarantined()[0][1]
    assert two.changes == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PARTITIONS["key"], PARTITIONS["key"].replace("yyyy-MM", "yyyy")),
        ("    mask: {id: \"sha256('a')\"}\n", "    mask: {id: \"sha256('b')\"}\n"),
        ("    mask: {id: sha256}\n", ""),
        (
            '    primary.key: [k]\n    computed: ["a = upper(note)", "k = concat(a, email)"]\n',
            '    primary.key: [k]\n    computed: ["a = lower(note)", "k = concat(a, email)"]\n',
        ),
    ],
)
def test_rules_that_would_make_other_keys_of_the_same_rows_are_refused(tmp_path, first, second):
    one = pipeline(tmp_path, first)
    one.feed([record("c", None, row(1))])
    two = pipeline(tmp_path, second, batches=1)
    two.feed([record("u", row(1), row(1, qty=9))])
    assert held(two, "qty") == [(1,)]
    ((error_class, error),) = two.quarantined()
    assert error_class == "transform"
    assert "changes how keys" in error
    same = pipeline(tmp_path, first + '    filter: "qty > 0"\n', batches=2)
    same.feed([record("u", row(1), row(1, qty=9))])
    assert held(same, "qty") == [(9,)]


MODES = ["evolve", "try_evolve", "lenient", "ignore", "exception"]


@pytest.mark.parametrize("mode", MODES)
def test_rules_and_modes_of_schema_changes(tmp_path, mode):
    """Columns that a rule makes are no changes of the source: every mode adds them."""
    behaviour = f"pipeline.schema.change.behavior: {mode}\n"
    one = pipeline(tmp_path, "    columns.exclude: [secret]\n", behaviour)
    one.feed([record("c", None, row(1))])
    rule = '    columns.exclude: [secret, later]\n    computed: ["total = price * qty"]\n'
    two = pipeline(tmp_path, rule, behaviour, batches=1)
    later = row(2) | {"later": 5}
    two.feed([described("c", None, later, later="int32")])
    assert held(two, "id", "total") == [(1, None), (2, 2)]
    assert two.quarantined() == []
    if mode != "ignore":
        return
    for number in (3, 4):
        more = row(number) | {"more": 5}
        two.feed([described("c", None, more, more="int32")])
    assert held(two, "id", "total") == [(1, None), (2, 2), (3, 2), (4, 2)]
    assert "more" not in two.rows("shop.orders")[0]


def test_a_mask_does_not_come_off_by_a_rename(tmp_path):
    rule = (
        "    mask: {email: sha256}\n    filter: \"note <> 'no'\"\n"
        '    computed: ["shout = upper(note)"]\n'
    )
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(1))])
    table = one.book.table("shop.orders")
    former = SetOption("lakeward.former-names", '{"mail":["email"],"text":["note"]}')
    table.alter([RenameColumn("email", "mail"), RenameColumn("note", "text"), former])
    two = pipeline(tmp_path, rule, batches=1)
    names = {"email": "mail", "note": "text"}
    after = {names.get(name, name): value for name, value in row(2).items()}
    fields = [{**f, "field": names.get(f["field"], f["field"])} for f in FIELDS]
    renamed = with_block(connect_block(*fields), event("c", None, after))
    two.feed([(dumps({"id": 2}), renamed), record("c", None, row(3)), record("u", None, row(1))])
    assert two.quarantined() == []
    digest = hashlib.sha256(b"e@x").hexdigest()
    assert held(two, "id", "mail", "shout", "text") == [(k, digest, "N", "n") for k in (1, 2, 3)]


def test_a_mask_does_not_come_off_by_a_new_type(tmp_path):
    rule = '    mask: {email: "null"}\n    on.incompatible: new_column\n'
    one = pipeline(tmp_path, rule)
    one.feed([record("c", None, row(1))])
    one.feed([described("c", None, row(2, email=1234), email="int64")])
    assert one.quarantined() == []
    assert held(one, "id", "email", "email_1") == [(1, None, None), (2, None, None)]
