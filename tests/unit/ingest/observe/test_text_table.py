# SPDX-License-Identifier: Apache-2.0
import datetime
import decimal
import json

import pyarrow as pa
import pytest

from ingest.observe.text_table import aligned, csv_text, human_size, human_time, json_line, rows_of


def test_numbers_go_right_and_texts_left():
    text = aligned(["id", "name", "ok"], [[1, "a", True], [1000, None, False]], indent="  ")
    assert text.splitlines() == [
        "    id  name  ok",
        "  ----  ----  -----",
        "     1  a     true",
        "  1000  null  false",
    ]


def test_long_and_unprintable_texts_stay_on_their_line():
    (line,) = aligned(["x"], [["a\nb\x1b[31m" + "y" * 100]]).splitlines()[2:]
    assert line.startswith("a·b·[31m")
    assert len(line) == 60
    assert line.endswith("…")


def test_table_without_rows_is_its_head():
    assert aligned(["a", "bb"], []) == "a  bb\n-  --"


def test_json_keeps_values_exactly():
    row = {
        "d": decimal.Decimal("1.10"),
        "b": b"\x00\xff",
        "t": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        "n": [None, {"k": datetime.date(2026, 1, 2)}],
        "big": 2**63 - 1,
        "text": "ü\n",
    }
    assert json.loads(json_line(row)) == {
        "d": "1.10",
        "b": "AP8=",
        "t": "2026-01-02T03:04:05.000006+00:00",
        "n": [None, {"k": "2026-01-02"}],
        "big": 2**63 - 1,
        "text": "ü\n",
    }


def test_csv_quotes_and_keeps_null_apart_from_nothing_else():
    text = csv_text(["a", "b"], [['say "hi", Ada', None], [True, [1, 2]]])
    assert text == 'a,b\n"say ""hi"", Ada",\ntrue,"[1, 2]"\n'


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_234, "1.23 kB"), (999_600, "1000 kB"), (5_230_000, "5.23 MB")],
)
def test_sizes(size, text):
    assert human_size(size) == text


def test_times_are_utc_to_the_millisecond():
    assert human_time(1_767_225_600_007) == "2026-01-01 00:00:00.007"


def test_rows_of_tables_and_batches():
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    assert rows_of(table) == [[1, "x"], [2, None]]
    assert rows_of(table.to_batches()[0]) == rows_of(table)
