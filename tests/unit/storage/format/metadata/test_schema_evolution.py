# SPDX-License-Identifier: Apache-2.0
"""Schema changes of whole tables: old files, new rows, compaction and filters together."""

import datetime
import decimal

import pytest

from storage.errors import CorruptDataError
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetOption,
    UpdateDefault,
    UpdateType,
)
from storage.format.types.types import parse_type
from storage.table.scan.predicate import Compare, IsNull, Op
from tests.table_kit import make_table, rows_of, write

ADDRESS = {
    "type": "ROW",
    "fields": [
        {"id": 0, "name": "city", "type": "STRING"},
        {"id": 0, "name": "zip", "type": "INT"},
    ],
}


def nested_table(tmp_path, file_format):
    """A table of rows and lists of rows."""
    columns = [
        ("k", "INT"),
        ("v", "STRING"),
        ("r", ADDRESS),
        ("l", {"type": "ARRAY", "element": ADDRESS}),
    ]
    return make_table(tmp_path, columns=columns, options={"file.format": file_format})


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_old_and_new_files_read_alike_before_and_after_compaction(tmp_path, file_format):
    table = nested_table(tmp_path, file_format)
    home = {"city": "Bern", "zip": 3000}
    write(table, 1, [("+I", 1, "10", home, [home, None]), ("+I", 2, "20", None, None)])
    table = table.alter(
        [
            UpdateType("v", parse_type("BIGINT")),
            RenameColumn(("r", "city"), "town"),
            UpdateType(("r", "zip"), parse_type("STRING")),
            AddColumn(("r", "country"), parse_type("STRING"), first=True),
            DropColumn(("l", "element", "zip")),
            AddColumn(("l", "element", "floor"), parse_type("INT")),
            MoveColumn("l", after="k"),
        ]
    )
    new = {"country": "CH", "town": "Chur", "zip": "7000"}
    write(table, 2, [("+I", 3, [{"city": "Chur", "floor": 1}], 30, new)])
    expected = [
        (1, [{"city": "Bern", "floor": None}, None], 10,
         {"country": None, "town": "Bern", "zip": "3000"}),
        (2, None, 20, None),
        (3, [{"city": "Chur", "floor": 1}], 30, new),
    ]  # fmt: skip
    assert rows_of(table) == expected
    assert rows_of(table, filter=Compare(Op.EQ, "v", 20)) == expected[1:2]
    write(table, 3, [("+U", 1, None, 11, None)], full=True)
    assert rows_of(table) == [(1, None, 11, None), *expected[1:]]


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        ("INT", 383, "TINYINT", 127),
        ("STRING", "abcdef", "VARCHAR(3)", "abc"),
        ("DOUBLE", 1e10, "STRING", "1.0E10"),
        ("DECIMAL(5, 3)", decimal.Decimal("1.005"), "DECIMAL(4, 2)", decimal.Decimal("1.01")),
        ("STRING", "2024-01-02", "DATE", datetime.date(2024, 1, 2)),
    ],
)
def test_filters_see_the_present_type(tmp_path, old, value, new, expected):
    """Bounds of the stored values are not those of the values as they are read."""
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", old)])
    write(table, 1, [("+I", 1, value), ("+I", 2, None)])
    table = table.alter([UpdateType("v", parse_type(new))])
    assert rows_of(table) == [(1, expected), (2, None)]
    assert rows_of(table, filter=Compare(Op.EQ, "v", expected)) == [(1, expected)]
    assert rows_of(table, filter=IsNull("v")) == [(2, None)]


def test_a_value_that_cannot_follow_stops_the_read_and_can_be_mended(tmp_path):
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "STRING")])
    write(table, 1, [("+I", 1, "five")])
    changed = table.alter([UpdateType("v", parse_type("INT"))])
    with pytest.raises(CorruptDataError, match="value=`five`"):
        changed.to_arrow()
    assert rows_of(changed.alter([UpdateType("v", parse_type("STRING"))])) == [(1, "five")]


def test_a_changed_default_counts_for_later_writes_only(tmp_path):
    table = make_table(tmp_path, columns=[("k", "INT"), ("v", "INT")])
    write(table, 1, [("+I", 1, None)])
    table = table.alter([UpdateDefault("v", "7")])
    write(table, 2, [("+I", 2, None), ("+I", 3, 5)])
    table = table.alter([UpdateDefault("v", "8")])
    write(table, 3, [("+I", 4, None)])
    assert rows_of(table) == [(1, None), (2, 7), (3, 5), (4, 8)]


def test_default_values_as_option_are_shown_and_filtered(tmp_path):
    table = make_table(
        tmp_path,
        columns=[("k", "INT"), ("v", "INT")],
        options={"fields.v.default-value": "7", "file-index.bitmap.columns": "v"},
    )
    write(table, 1, [("+I", 1, None), ("+I", 2, 5)])
    assert rows_of(table) == [(1, 7), (2, 5)]
    assert rows_of(table, filter=Compare(Op.EQ, "v", 7)) == [(1, 7)]
    assert rows_of(table, filter=IsNull("v")) == []
    assert rows_of(table, filter=Compare(Op.EQ, "v", 7), columns=["k"]) == [(1,)]
    table = table.alter([SetOption("fields.v.default-value", "8")])
    assert rows_of(table) == [(1, 8), (2, 5)]


def test_levels_have_their_own_formats_and_an_upgraded_file_keeps_its_own(tmp_path):
    table = make_table(
        tmp_path,
        columns=[("k", "INT"), ("v", "INT")],
        options={"file.format.per.level": "0:avro", "target-file-size": "1 b"},
    )
    write(table, 1, [("+I", 1, 1)], compaction=False)
    files = {path.suffix for path in tmp_path.rglob("bucket-0/*")}
    assert files == {".avro"}
    write(table, 2, [("+I", 2, 2)], full=True)
    assert rows_of(table) == [(1, 1), (2, 2)]
    # both files are large for their target and alone, so they only changed their level
    assert {path.suffix for path in tmp_path.rglob("bucket-0/*")} == {".avro"}
    write(table, 3, [("+I", 1, 3)], full=True)
    assert rows_of(table) == [(1, 3), (2, 2)]
    assert ".parquet" in {path.suffix for path in tmp_path.rglob("bucket-0/*")}
