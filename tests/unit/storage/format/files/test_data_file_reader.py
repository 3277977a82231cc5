# SPDX-License-Identifier: Apache-2.0
"""Data files read faithfully: projection, row groups, old schemas, nanosecond timestamps."""

import decimal
import gc
import io

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring
import pytest

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.files.data_file import (
    DataFileOptions,
    read_key_values,
    read_rows,
)
from storage.format.files.file_columns import conversion, from_int96, to_int96
from storage.format.files.row_selection import Except
from storage.format.metadata.file_meta import EMPTY_ROW, EMPTY_STATS, DataFileMeta
from storage.format.types.types import parse_type
from tests.unit.storage.key_value_files import (
    NUMBERS,
    STORE,
    key_values,
    numbers,
    read_back,
    schema_of,
    write_all,
    writer_of,
)


class TestReader:
    def test_batches_are_bounded_and_keep_the_order(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 10_000))
        path = f"{tmp_path}/{meta.file_name}"
        batches = list(read_key_values(STORE, path, meta, NUMBERS, NUMBERS, batch_rows=999))
        assert max(batch.num_rows for batch in batches) <= 999
        assert pa.Table.from_batches(batches) == pa.Table.from_batches([numbers(0, 10_000)])

    def test_projection_reads_only_what_was_asked_in_schema_order(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 10))
        table = read_back(tmp_path, meta, NUMBERS, columns=["v"])
        assert table.schema.names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "v"]
        path = f"{tmp_path}/{meta.file_name}"
        (rows,) = read_rows(STORE, path, meta, NUMBERS, NUMBERS, ["v", "k"])
        assert rows.schema.names == ["k", "v"]
        (counted,) = read_rows(STORE, path, meta, NUMBERS, NUMBERS, [])
        assert (counted.num_rows, counted.num_columns) == (10, 0)

    def test_row_groups_are_left_out_by_their_key_ranges(self, tmp_path):
        options = DataFileOptions(row_group_bytes=100_000)
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 20_000), options=options)
        seen = []

        def holds_12345(ranges):
            seen.append(ranges["_KEY_k"])
            return ranges["k"].minimum <= 12_345 <= ranges["k"].maximum

        table = read_back(tmp_path, meta, NUMBERS, keep_row_group=holds_12345)
        assert len(seen) > 4
        assert sum(found.row_count for found in seen) == 20_000
        assert {found.null_count for found in seen} == {0}
        keys = table["k"].to_numpy()
        assert 12_345 in keys
        assert len(keys) < 20_000 / 2

    def test_a_file_may_be_left_out_completely(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 10))
        path = f"{tmp_path}/{meta.file_name}"
        batches = read_key_values(
            STORE, path, meta, NUMBERS, NUMBERS, keep_row_group=lambda ranges: False
        )
        assert list(batches) == []

    def test_damaged_files_are_corrupt_and_name_the_path(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 1000))
        good = (tmp_path / meta.file_name).read_bytes()
        for damaged in (b"", b"PAR1", good[:-5], good[: len(good) // 2], good[100:]):
            (tmp_path / "bad.parquet").write_bytes(damaged)
            bad = msgspec.structs.replace(meta, file_name="bad.parquet")
            with pytest.raises(CorruptDataError, match=r"bad\.parquet"):
                read_back(tmp_path, bad, NUMBERS)

    def test_a_missing_file_is_file_not_found(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 1))
        gone = msgspec.structs.replace(meta, file_name="gone.parquet")
        with pytest.raises(FileNotFoundError):
            read_back(tmp_path, gone, NUMBERS)

    def test_the_format_is_told_by_the_name(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 1))
        for extension in ("orc", "avro"):
            other = msgspec.structs.replace(meta, file_name=f"data-1.{extension}")
            (tmp_path / other.file_name).write_bytes((tmp_path / meta.file_name).read_bytes())
            with pytest.raises(CorruptDataError):
                read_back(tmp_path, other, NUMBERS)
        unknown = msgspec.structs.replace(meta, file_name="data-1.csv")
        with pytest.raises(UnsupportedFeatureError, match="csv"):
            read_back(tmp_path, unknown, NUMBERS)

    def test_column_names_may_hold_dots(self, tmp_path):
        schema = schema_of(("k", "INT NOT NULL"), ("k.x", "INT"), ("a b", "INT"))
        batch = key_values(schema, {"k": [1], "k.x": [2], "a b": [3]})
        (meta,) = write_all(tmp_path, schema, batch)
        assert read_back(tmp_path, meta, schema).to_batches() == [batch]


def test_an_abandoned_writer_leaves_nothing_behind(tmp_path):
    for schema, values in ((NUMBERS, {"v": ["x"]}), (NANOS, {c: [1] for c in "nmuz"})):
        writer = writer_of(tmp_path, schema, options=DataFileOptions(row_group_bytes=1))
        writer.write(key_values(schema, {"k": [1], **values}))
        assert len(list(tmp_path.iterdir())) == 1
        del writer
        gc.collect()
        assert list(tmp_path.iterdir()) == []


class TestEvolution:
    def read_as(self, tmp_path, old, new, values):
        (meta,) = write_all(tmp_path, old, key_values(old, values))
        return read_back(tmp_path, meta, old, new)

    def test_columns_are_found_by_id(self, tmp_path):
        old = schema_of(("k", "INT NOT NULL", 0), ("a", "INT", 1), ("b", "STRING", 2))
        new = schema_of(
            ("n", "INT", 3), ("renamed", "INT", 1), ("k", "INT NOT NULL", 0), ("b", "STRING", 4),
            id_=1,
        )  # fmt: skip
        table = self.read_as(tmp_path, old, new, {"k": [1, 2], "a": [3, None], "b": ["x", "y"]})
        assert table.select(["n", "renamed", "k", "b"]).to_pydict() == {
            "n": [None, None],
            "renamed": [3, None],
            "k": [1, 2],
            "b": [None, None],
        }

    @pytest.mark.parametrize(
        ("old", "new", "value", "expected"),
        [
            ("TINYINT", "BIGINT", -128, -128),
            ("INT", "DOUBLE", 16_777_217, 16_777_217.0),
            ("BIGINT", "FLOAT", 2**53 + 1, float(2**53)),
            ("FLOAT", "DOUBLE", 1.5, 1.5),
            ("INT", "DECIMAL(12, 2)", -5, decimal.Decimal("-5.00")),
            ("BIGINT", "DECIMAL(20, 1)", 2**62, decimal.Decimal(2**62)),
            ("DECIMAL(9, 2)", "DECIMAL(20, 4)", decimal.Decimal("1.25"), decimal.Decimal("1.2500")),
            ("VARCHAR(3)", "STRING", "äb", "äb"),
            ("BINARY(2)", "BYTES", b"\x00\xff", b"\x00\xff"),
            ("INT", "STRING", -7, "-7"),
            ("BOOLEAN", "STRING", True, "true"),
            ("BIGINT", "INT", 2**31 + 5, -(2**31) + 5),
            ("STRING", "INT", "-7.9", -7),
            ("STRING", "VARCHAR(3)", "äbcd", "äbc"),
            ("DECIMAL(10, 2)", "DECIMAL(3, 1)", decimal.Decimal("-0.05"), decimal.Decimal("-0.1")),
            ("DECIMAL(10, 2)", "DECIMAL(3, 1)", decimal.Decimal("99.95"), None),
            ("DOUBLE", "STRING", 1e10, "1.0E10"),
            ("INT", "VARCHAR(2)", 123, "12"),
        ],
    )
    def test_types_are_cast_as_java_does(self, tmp_path, old, new, value, expected):
        first = schema_of(("k", "INT NOT NULL"), ("v", old))
        second = schema_of(("k", "INT NOT NULL"), ("v", new))
        table = self.read_as(tmp_path, first, second, {"k": [1, 2], "v": [value, None]})
        assert table["v"].to_pylist() == [expected, None]
        assert table.schema.field("v") == second.arrow_schema.field("v")

    def test_finer_timestamps_keep_the_instant(self, tmp_path):
        first = schema_of(("k", "INT NOT NULL"), ("v", "TIMESTAMP(3)"))
        second = schema_of(("k", "INT NOT NULL"), ("v", "TIMESTAMP(9)"))
        table = self.read_as(tmp_path, first, second, {"k": [1], "v": [1_700_000_000_123]})
        assert table["v"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_000_000]

    def test_a_value_that_cannot_follow_is_named(self, tmp_path):
        first = schema_of(("k", "INT NOT NULL"), ("old", "STRING", 1))
        second = schema_of(("k", "INT NOT NULL"), ("new", "INT", 1))
        with pytest.raises(CorruptDataError) as failure:
            self.read_as(tmp_path, first, second, {"k": [1, 2], "old": ["5", "five"]})
        text = str(failure.value)
        assert "column=`new`" in text
        assert "value=`five`" in text
        assert "data-" in text

    def test_a_value_that_is_not_wanted_does_no_harm(self, tmp_path):
        first = schema_of(("k", "INT NOT NULL"), ("v", "STRING"))
        second = schema_of(("k", "INT NOT NULL"), ("v", "INT"))
        batch = key_values(first, {"k": [1, 2], "v": ["five", "6"]})
        (meta,) = write_all(tmp_path, first, batch)
        table = read_back(tmp_path, meta, first, second, selection=Except(pyroaring.BitMap([0])))
        assert table["v"].to_pylist() == [6]

    def test_changes_that_no_schema_change_makes_are_refused_before_reading(self):
        with pytest.raises(UnsupportedFeatureError, match="column=`c`"):
            conversion(parse_type("DATE"), parse_type("INT"), "c")

    def test_nested_rows_in_lists_and_maps_follow_ids(self, tmp_path):
        def nested(x_name, x_type, extra):
            fields = [{"id": 5, "name": x_name, "type": x_type}, *extra]
            row = {"type": "ROW", "fields": fields}
            return (
                {"type": "ARRAY", "element": row},
                {"type": "MAP", "key": "STRING NOT NULL", "value": row},
            )

        old_list, old_map = nested("x", "INT", [{"id": 6, "name": "y", "type": "STRING"}])
        new_list, new_map = nested("xx", "BIGINT", [{"id": 7, "name": "y", "type": "STRING"}])
        old = schema_of(("k", "INT NOT NULL"), ("l", old_list), ("m", old_map))
        new = schema_of(("k", "INT NOT NULL"), ("l", new_list), ("m", new_map))
        row = {"x": 1, "y": "lost"}
        values = {"k": [1, 2, 3], "l": [[row, None], None, []], "m": [[("a", row)], None, []]}
        table = self.read_as(tmp_path, old, new, values)
        table.validate(full=True)
        assert table["l"].to_pylist() == [[{"xx": 1, "y": None}, None], None, []]
        assert table["m"].to_pylist() == [[("a", {"xx": 1, "y": None})], None, []]

    def test_a_dropped_and_added_nested_field_of_equal_type_is_null(self, tmp_path):
        def row(field_id):
            return {"type": "ROW", "fields": [{"id": field_id, "name": "x", "type": "INT"}]}

        old = schema_of(("k", "INT NOT NULL"), ("r", row(5)))
        new = schema_of(("k", "INT NOT NULL"), ("r", row(6)))
        table = self.read_as(tmp_path, old, new, {"k": [1, 2], "r": [{"x": 1}, None]})
        assert table["r"].to_pylist() == [{"x": None}, None]

    def test_partial_files_give_null_for_columns_they_do_not_hold(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 2))
        partial = msgspec.structs.replace(meta, write_cols=("k",))
        assert read_back(tmp_path, partial, NUMBERS)["v"].null_count == 2


NANOS = schema_of(
    ("k", "INT NOT NULL"),
    ("n", "TIMESTAMP(9)"),
    ("m", "TIMESTAMP(3)"),
    ("u", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("z", "TIMESTAMP(7) WITH LOCAL TIME ZONE"),
)


class TestNanoseconds:
    EDGES = (0, 1, -1, 1_715_693_696_123_456_789, -(2**63) + 2_000_000_000, 2**63 - 2_000_000_000)

    def test_int96_is_written_per_column_and_reads_back_exactly(self, tmp_path):
        count = len(self.EDGES) + 1
        nanos = [*self.EDGES, None]
        batch = key_values(
            NANOS,
            {"k": list(range(count)), "n": nanos, "m": [1] * count, "u": [2] * count, "z": nanos},
        )
        (meta,) = write_all(tmp_path, NANOS, batch)
        schema = pq.ParquetFile(tmp_path / meta.file_name).schema
        physical = {schema.column(i).name: schema.column(i).physical_type for i in range(8)}
        assert physical["n"] == physical["z"] == "INT96"
        assert physical["m"] == physical["u"] == "INT64"
        assert meta.file_size == (tmp_path / meta.file_name).stat().st_size
        assert read_back(tmp_path, meta, NANOS).to_batches() == [batch]
        # an independent reader agrees where its own arithmetic does not overflow
        plain = pq.read_table(tmp_path / meta.file_name)
        assert plain["n"].cast(pa.int64()).to_pylist() == nanos

    def test_slices_and_several_row_groups(self, tmp_path):
        count = 3000
        nanos = pa.array(np.arange(count) * 999_999_999_999, pa.timestamp("ns"))
        whole = key_values(
            NANOS,
            {"k": list(range(count)), "n": nanos, "m": [None] * count, "u": [2] * count,
             "z": [None, 5, 6] * (count // 3)},
        )  # fmt: skip
        options = DataFileOptions(row_group_bytes=20_000)
        batches = (whole.slice(1, 1500), whole.slice(1501))
        (meta,) = write_all(tmp_path, NANOS, *batches, options=options)
        table = read_back(tmp_path, meta, NANOS, batch_rows=700)
        assert table.combine_chunks() == pa.Table.from_batches([whole.slice(1)])

    def test_java_rounds_towards_zero_before_1970(self):
        java = np.array([(-999_999_999, 2_440_588)], dtype=[("n", "<i8"), ("d", "<i4")])
        raw = pa.Array.from_buffers(pa.binary(12), 1, [None, pa.py_buffer(java)])
        read = from_int96(raw, pa.timestamp("ns"), name="n")
        assert read.cast(pa.int64()).to_pylist() == [-999_999_999]

    @pytest.mark.parametrize("julian_day", [1_721_426, 2_300_000, 2_550_000, 5_373_484])
    def test_instants_outside_the_range_are_refused_not_wrapped(self, julian_day):
        stored = np.array([(0, 2_440_588), (5, julian_day)], dtype=[("n", "<i8"), ("d", "<i4")])
        raw = pa.Array.from_buffers(pa.binary(12), 2, [None, pa.py_buffer(stored)])
        with pytest.raises(UnsupportedFeatureError, match="1677"):
            from_int96(raw, pa.timestamp("ns"), name="n")

    def test_nulls_hide_whatever_bytes_they_cover(self):
        column = pa.array([None, 5, None], pa.timestamp("ns", "UTC"))
        assert from_int96(to_int96(column), column.type, name="n") == column
        assert from_int96(to_int96(column.slice(1)), column.type, name="n") == column.slice(1)

    def test_nanoseconds_inside_nested_columns_survive(self, tmp_path):
        array = {"type": "ARRAY", "element": "TIMESTAMP(9)"}
        schema = schema_of(("k", "INT NOT NULL"), ("l", array), ("n", "TIMESTAMP(9)"))
        batch = key_values(schema, {"k": [1, 2], "l": [[1, None, -5], None], "n": [7, None]})
        (meta,) = write_all(tmp_path, schema, batch)
        assert read_back(tmp_path, meta, schema).to_batches() == [batch]

    def test_nested_int96_of_others_reads(self, tmp_path):
        array = {"type": "ARRAY", "element": "TIMESTAMP(9) WITH LOCAL TIME ZONE"}
        schema = schema_of(("l", array), keys=())
        stored = pa.table({"l": pa.array([[1, None, -5], None], pa.list_(pa.timestamp("ns")))})
        out = io.BytesIO()
        pq.write_table(stored, out, use_deprecated_int96_timestamps=True, store_schema=False)
        (tmp_path / "a.parquet").write_bytes(out.getvalue())
        meta = DataFileMeta(
            file_name="a.parquet", file_size=1, row_count=2, min_key=EMPTY_ROW, max_key=EMPTY_ROW,
            key_stats=EMPTY_STATS, value_stats=EMPTY_STATS, min_sequence_number=0,
            max_sequence_number=1, schema_id=0, level=0,
        )  # fmt: skip
        (batch,) = read_rows(STORE, f"{tmp_path}/a.parquet", meta, schema, schema)
        expected = pa.array([[1, None, -5], None], schema.arrow_schema.field("l").type)
        assert batch.column("l") == expected
