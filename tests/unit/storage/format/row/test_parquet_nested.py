# SPDX-License-Identifier: Apache-2.0
"""Nested columns in Parquet files, and what of a file Java's readers look at."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from storage.errors import InvalidOptionError
from storage.format.row.row_codec import Timestamp
from storage.format.types.types import ArrayType, DataField, MapType, RowType, parse_type
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.random_rows import (
    QUICK,
    SEEDS,
    assert_random_rows_come_back,
    batch_of,
    fields_of,
    read_file,
    write_file,
)

NANOS = parse_type("TIMESTAMP(9)")
INSIDE = fields_of(
    ("t", NANOS),
    ("a", ArrayType(NANOS)),
    ("m", MapType(parse_type("INT NOT NULL"), NANOS)),
    ("r", RowType((DataField(id=9, name="x", type=NANOS),))),
)
EARLY, LATE = Timestamp(-2, 999_999), Timestamp(1_715_693_696_123, 456_789)


@QUICK
@given(SEEDS)
def test_random_rows_come_back(tmp_path_factory, seed):
    assert_random_rows_come_back(tmp_path_factory.mktemp("rows"), "parquet", seed)


def nanoseconds():
    return batch_of(
        INSIDE,
        [
            [EARLY, None, LATE],
            [[EARLY, None], [], None],
            [[(1, LATE), (2, None)], None, []],
            [(EARLY,), None, (None,)],
        ],
    )


def test_timestamps_with_nanoseconds_are_int96_at_any_depth(tmp_path):
    path = str(tmp_path / "data-0.parquet")
    write_file(path, INSIDE, [nanoseconds()])
    file = pq.ParquetFile(path)
    leaves = {file.schema.column(i).path: file.schema.column(i).physical_type for i in range(5)}
    assert leaves.pop("m.key_value.key") == "INT32"
    assert set(leaves.values()) == {"INT96"}
    group = file.metadata.row_group(0)
    assert not any(group.column(i).is_stats_set for i in (0, 1, 3, 4)), "INT96 has no order"
    assert read_file(path, INSIDE) == [nanoseconds()]


def test_floats_have_no_range_at_any_depth(tmp_path):
    """It would not cover NaN, and readers would skip row groups that have one."""
    path = str(tmp_path / "data-0.parquet")
    texts = {"k": "INT", "d": "DOUBLE", "r": "ROW<x FLOAT>", "many": "ARRAY<DOUBLE>"}
    columns = fields_of(*((name, parse_type(text)) for name, text in texts.items()))
    write_file(path, columns, [batch_of(columns, [[1], [2.0], [(3.0,)], [[4.0]]])])
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(4)] == [True, False, False, False]


def test_nested_nanoseconds_of_other_writers_are_read(tmp_path):
    path = tmp_path / "data-0.parquet"
    pq.write_table(pa.Table.from_batches([nanoseconds()]), path)
    assert read_file(str(path), INSIDE) == [nanoseconds()]
    pq.write_table(
        pa.Table.from_batches([nanoseconds()]), path, use_deprecated_int96_timestamps=True
    )
    assert read_file(str(path), INSIDE) == [nanoseconds()]


def test_the_nested_file_of_java_has_the_layout_of_ours(tmp_path):
    golden = GoldenTable("nested_parquet")
    fields = golden.schemas[0].fields
    for source, _ in golden.files("parquet"):
        batches = read_file(str(source), fields)
        path = str(tmp_path / source.name)
        write_file(path, fields, batches)
        assert read_file(path, fields) == batches
        ours, java = pq.ParquetFile(path).schema_arrow, pq.ParquetFile(source).schema_arrow
        assert [java.field(f.name).type for f in fields] == [
            ours.field(f.name).type for f in fields
        ]


def test_fields_of_a_row_are_found_by_name(tmp_path):
    path = str(tmp_path / "data-0.parquet")
    text, number = parse_type("STRING"), parse_type("INT")
    x = DataField(id=1, name="x", type=number)
    y = DataField(id=2, name="y", type=text)
    write_file(
        path,
        fields_of(("r", RowType((x, y)))),
        [batch_of(fields_of(("r", RowType((x, y)))), [[(1, "a"), None]])],
    )
    z = DataField(id=3, name="z", type=number)
    (batch,) = read_file(path, fields_of(("r", RowType((y, z, x)))))
    assert batch.column("r").to_pylist() == [{"y": "a", "z": None, "x": 1}, None]


def test_options_for_pages_and_dictionaries_are_carried_out(tmp_path):
    fields = fields_of(("k", "BIGINT"))
    batch = batch_of(fields, [[n % 7 for n in range(5000)]])
    path = str(tmp_path / "data-0.parquet")
    write_file(path, fields, [batch])
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).has_dictionary_page
    write_file(
        str(tmp_path / "data-1.parquet"),
        fields,
        [batch],
        options={"parquet.enable.dictionary": "false", "parquet.page.size": "1024"},
    )
    plain = pq.ParquetFile(tmp_path / "data-1.parquet").metadata.row_group(0).column(0)
    assert not plain.has_dictionary_page
    with pytest.raises(InvalidOptionError, match=r"parquet\.page\.size"):
        write_file(
            str(tmp_path / "data-2.parquet"), fields, [], options={"parquet.page.size": "1 kb"}
        )
