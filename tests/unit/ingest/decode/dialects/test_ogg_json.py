# SPDX-License-Identifier: Apache-2.0
import datetime

import pytest

from ingest.decode.events import SourceTable, Toast
from tests.unit.ingest.debezium_events import batch, classes, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TABLE = schema(
    ("CODE", "STRING"), ("ORDERED", "TIMESTAMP(6)"), ("AMOUNT", "DECIMAL(12,2)"), key=("CODE",)
)


def message(op, before=None, after=None, **more):
    value = {
        "table": "GG.ORDERS",
        "op_type": op,
        "op_ts": "2013-06-02 22:14:41.000000",
        "current_ts": "2015-09-18T10:17:49.899000",
        "pos": "00000000000000004338",
        "primary_keys": ["CODE"],
        "tokens": {"R": "AADPkvAAEAAEqLzAAC"},
    }
    images = {"before": before, "after": after}
    return dumps({**value, **{k: v for k, v in images.items() if v is not None}, **more})


def row(code, amount=520, ordered="1994-09-30 15:33:00"):
    return {"CODE": code, "ORDERED": ordered, "AMOUNT": amount}


def decode(*values, table=TABLE, **options):
    one = dialect_decoder("ogg-json", table, **options)
    return one.decode(batch(*values, topic="ogg"))


def test_each_op_type_becomes_its_row_kind():
    result = decode(
        message("I", None, row("Jürgen", "520.00")),
        message("I", None, row("B", 17520)),
        message("U", row("B", 17520), row("B", "9999999999.99")),
        message("D", row("Jürgen"), None),
        message("T"),
        None,
    )
    assert [
        (kind, code, str(amount)) for kind, code, amount in changes(result, "CODE", "AMOUNT")
    ] == [
        ("+I", "Jürgen", "520.00"),
        ("+I", "B", "17520.00"),
        ("+U", "B", "9999999999.99"),
        ("-D", "Jürgen", "520.00"),
    ]
    assert result.counts == {"op.c": 2, "op.u": 1, "op.d": 1, "op.t": 1, "tombstone": 1}
    assert result.changes[0].target == "GG.ORDERS"
    moment = datetime.datetime(2013, 6, 2, 22, 14, 41, tzinfo=datetime.UTC)
    assert result.changes[0].max_source_ts_ms == round(moment.timestamp() * 1_000)


def test_both_ways_of_printing_a_date():
    values = [
        message("I", None, row("A", 1, "1994-09-30:15:33:00")),
        message("I", None, row("B", 1, "1994-09-30 15:33:00.000001000")),
        message("I", None, row("C", 1, "1994-09-30T15:33:00.5")),
    ]
    moment = datetime.datetime.fromisoformat("1994-09-30T15:33:00")
    assert [at - moment for _, at in changes(decode(*values), "ORDERED")] == [
        datetime.timedelta(0),
        datetime.timedelta(microseconds=1),
        datetime.timedelta(seconds=0.5),
    ]
    days = schema(("CODE", "STRING"), ("ORDERED", "DATE"), ("AMOUNT", "INT"), key=("CODE",))
    result = decode(message("I", None, row("A", 1, "1994-09-30:00:00:00")), values[0], table=days)
    assert changes(result, "ORDERED") == [("+I", datetime.date(1994, 9, 30))]
    assert classes(result) == ["type"]


def test_change_of_key_is_delete_and_insert():
    result = decode(message("U", row("A", 1), row("B", 2)), message("U", row("B", 2), row("B", 3)))
    assert [(kind, code, int(n)) for kind, code, n in changes(result, "CODE", "AMOUNT")] == [
        ("-D", "A", 1),
        ("+I", "B", 2),
        ("+U", "B", 3),
    ]


def test_an_update_of_changed_columns_is_completed_from_before():
    result = decode(message("U", row("A", 1), {"CODE": "A", "AMOUNT": 2}))
    (found,) = rows(result)
    assert (found["kind"], int(found["AMOUNT"])) == ("+U", 2)
    assert found["ORDERED"] == datetime.datetime.fromisoformat("1994-09-30T15:33:00")


def test_a_column_in_no_image_is_not_guessed():
    value = message("U", {"CODE": "A", "AMOUNT": 1}, {"CODE": "A", "AMOUNT": 2})
    result = decode(message("U", row("B"), row("B")), value)
    assert classes(result) == ["unavailable_value"]
    assert "ORDERED" in result.bad[0].error
    assert changes(result, "CODE") == [("+U", "B")]
    as_null = decode(value, missing_columns="null")
    assert changes(as_null, "CODE", "ORDERED") == [("+U", "A", None)]


def test_a_column_in_no_image_is_kept_where_the_table_can():
    values = [
        message("U", {"CODE": "A"}, {"CODE": "A", "AMOUNT": 2}),
        message("U", row("B"), row("B")),
        message("U", {"CODE": "C"}, {"CODE": "C", "AMOUNT": "2e0"}),
    ]
    result = decode(*values, toast=Toast.KEEP)
    assert changes(result, "CODE", "ORDERED", "_UNAVAILABLE") == [
        ("+U", "A", None, [1]),
        ("+U", "B", datetime.datetime.fromisoformat("1994-09-30T15:33:00"), None),
        ("+U", "C", None, [1]),
    ]
    as_null = decode(*values, toast=Toast.NULL)
    assert [r["ORDERED"] is None for r in rows(as_null)] == [True, False, True]
    moved = decode(message("U", {"CODE": "A"}, {"CODE": "Z", "AMOUNT": 2}), toast=Toast.KEEP)
    assert classes(moved) == ["unavailable_value"]


def test_flags_of_missing_columns_are_no_columns():
    flagged = {
        "CODE": "A",
        "CODE_isMissing": False,
        "ORDERED": None,
        "ORDERED_isMissing": True,
        "AMOUNT": None,
        "AMOUNT_isMissing": False,
    }
    result = decode(message("D", flagged), message("U", row("A", 1), flagged))
    assert changes(result, "CODE", "ORDERED", "AMOUNT") == [
        ("-D", "A", None, None),
        ("+U", "A", datetime.datetime.fromisoformat("1994-09-30T15:33:00"), None),
    ]
    real = schema(("CODE", "STRING"), ("X_isMissing", "BOOLEAN"), key=("CODE",))
    value = message("I", None, {"CODE": "A", "X_isMissing": True})
    assert changes(decode(value, table=real), "X_isMissing") == [("+I", True)]
    both = schema(("CODE", "STRING"), ("X", "INT"), ("X_isMissing", "STRING"), key=("CODE",))
    value = message("I", None, {"CODE": "A", "X": 1, "X_isMissing": "no"})
    assert changes(decode(value, table=both), "X", "X_isMissing") == [("+I", 1, "no")]
    both = schema(("CODE", "STRING"), ("X", "INT"), ("X_isMissing", "BOOLEAN"), key=("CODE",))
    value = message("I", None, {"CODE": "A", "X": 1, "X_isMissing": True})
    assert changes(decode(value, table=both), "X", "X_isMissing") == [("+I", 1, True)]


def test_a_new_table():
    value = message("I", None, {**row("A", 1.5), "N": 5}, table="CDB.GG.ORDERS")
    (delta,) = decode(value, table=None).deltas
    assert delta.fields == observed(CODE="STRING", ORDERED="STRING", AMOUNT="DOUBLE", N="BIGINT")
    assert (delta.primary_key, delta.source) == (("CODE",), SourceTable("CDB", "GG", "ORDERS"))
    keyless = decode(message("I", None, row("A"), primary_keys=None), table=None)
    assert classes(keyless) == ["no_primary_key"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"{}", "envelope"),
        (message("X", None, row("A")), "envelope"),
        (message("I", None, None), "envelope"),
        (message("U", row("A"), None), "envelope"),
        (message("D", None, row("A")), "envelope"),
        (message("I", None, "x"), "envelope"),
        (message("U", [1], row("A")), "envelope"),
        (message("I", None, row("A"), table=None), "envelope"),
        (dumps({"table": "GG.ORDERS", "op_type": "I", "CODE": "A"}), "envelope"),
        (message("I", None, row(None)), "no_primary_key"),
        (message("D", {"AMOUNT": 1}), "no_primary_key"),
        (message("I", None, row("A", "lots")), "type"),
        (message("I", None, row("A", 1, "yesterday")), "type"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, expected):
    good = message("I", None, row("G"))
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]
