# SPDX-License-Identifier: Apache-2.0
"""Files of append tables: value columns only, sequence numbers one after another."""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.clock import ManualClock, SeededIds
from storage.errors import InternalError
from storage.format.files.data_file import (
    DataFileNames,
    DataFileOptions,
    RowFileWriter,
    read_rows,
)
from storage.format.metadata.file_meta import EMPTY_ROW, EMPTY_STATS, FileSource
from storage.format.row.row_codec import decode_row
from storage.options.options import TableOptions
from tests.unit.storage.key_value_files import STORE, schema_of

SCHEMA = schema_of(("a", "BIGINT"), ("b", "STRING"), keys=(), id_=3)


def rows(start, count):
    numbers = np.arange(start, start + count)
    texts = [f"text {number * 7919 % 10007}" for number in numbers]
    return pa.record_batch([pa.array(numbers), pa.array(texts)], schema=SCHEMA.arrow_schema)


def writer_of(directory, **arguments):
    return RowFileWriter(
        STORE,
        str(directory),
        SCHEMA,
        id_source=SeededIds(7),
        clock=ManualClock(1_700_000_000_000),
        **arguments,
    )


def test_metadata_is_that_of_an_append_file(tmp_path):
    writer = writer_of(tmp_path, first_sequence=40, source=FileSource.COMPACT)
    batch = pa.record_batch([[3, 1], ["x", None]], schema=SCHEMA.arrow_schema)
    writer.write(batch)
    (meta,) = writer.close()
    assert (meta.min_key, meta.max_key, meta.key_stats) == (EMPTY_ROW, EMPTY_ROW, EMPTY_STATS)
    assert (meta.min_sequence_number, meta.max_sequence_number) == (40, 41)
    assert (meta.row_count, meta.delete_row_count, meta.level) == (2, 0, 0)
    assert (meta.schema_id, meta.file_source) == (3, FileSource.COMPACT)
    assert meta.value_stats.null_counts == (0, 1)
    types = [field.type for field in SCHEMA.fields]
    assert decode_row(meta.value_stats.min_values, types) == (1, "x")
    assert pq.read_schema(tmp_path / meta.file_name).names == ["a", "b"]
    (stored,) = read_rows(STORE, f"{tmp_path}/{meta.file_name}", meta, SCHEMA, SCHEMA)
    assert stored == batch


def test_sequence_numbers_go_on_from_file_to_file(tmp_path):
    options = DataFileOptions(target_file_size=10_000, row_group_bytes=40_000)
    writer = writer_of(tmp_path, options=options, first_sequence=5)
    for start in range(0, 20_000, 1000):
        writer.write(rows(start, 1000))
    metas = writer.close()
    assert len(metas) > 2
    following = 5
    for meta in metas:
        assert meta.min_sequence_number == following
        following += meta.row_count
        assert meta.max_sequence_number == following - 1
    assert following == 20_005


def test_files_of_new_rows_end_with_the_wanted_number(tmp_path):
    options = DataFileOptions.of(TableOptions.from_strings({"target-file-row-num": "300"}))
    writer = writer_of(tmp_path, options=options)
    writer.write(rows(0, 500))
    writer.write(rows(500, 200))
    assert [meta.row_count for meta in writer.close()] == [300, 300, 100]
    compacting = writer_of(tmp_path / "c", options=options, source=FileSource.COMPACT)
    compacting.write(rows(0, 500))
    assert [meta.row_count for meta in compacting.close()] == [500]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_all_formats_keep_the_rows(tmp_path, file_format):
    options = DataFileOptions.of(TableOptions.from_strings({"file.format": file_format}))
    writer = writer_of(tmp_path, options=options)
    writer.write(rows(0, 500))
    writer.write(rows(500, 500))
    (meta,) = writer.close()
    assert meta.file_name.endswith(f".{file_format}")
    assert meta.file_size == (tmp_path / meta.file_name).stat().st_size
    batches = read_rows(STORE, f"{tmp_path}/{meta.file_name}", meta, SCHEMA, SCHEMA)
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([rows(0, 1000)])


def test_names_go_on_from_writer_to_writer(tmp_path):
    names = DataFileNames(SeededIds(3))
    found = []
    for _ in range(2):
        writer = writer_of(tmp_path, names=names)
        writer.write(rows(0, 1))
        found += writer.close()
    assert [meta.file_name.rpartition("-")[2] for meta in found] == ["0.parquet", "1.parquet"]


def test_nothing_is_made_of_no_rows_and_abort_removes_all(tmp_path):
    writer = writer_of(tmp_path)
    writer.write(rows(0, 0))
    assert writer.close() == ()
    writer.write(rows(0, 10))
    writer.close()
    assert len(list(tmp_path.iterdir())) == 1
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_column_is_our_bug(tmp_path):
    with pytest.raises(InternalError, match="lacks columns"):
        writer_of(tmp_path).write(rows(0, 1).select(["a"]))


def test_bounds_of_texts_and_decimals_are_those_of_all_rows(tmp_path):
    fields = [("a", "STRING"), ("b.c", "STRING"), ("d", "DECIMAL(9, 2)"), ("e", "DECIMAL(30, 2)")]
    schema = schema_of(*fields, ("long", "STRING"), ("never", "STRING"), keys=())
    cents = np.random.default_rng(3).integers(-(10**8), 10**8, 900)
    numbers = [None if cent % 7 == 0 else decimal.Decimal(int(cent)).scaleb(-2) for cent in cents]
    texts = [None if cent % 5 == 0 else f"é{cent:09x}"[: cent % 11] for cent in cents]
    long_texts = [
        text and text + "z" * (5000 if at % 400 == 7 else 0) for at, text in enumerate(texts)
    ]
    columns = [texts, texts, numbers, numbers, long_texts, [None] * 900]
    batch = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, schema.arrow_schema, strict=True)],
        schema=schema.arrow_schema,
    )
    options = DataFileOptions(row_group_bytes=20_000, stats_mode="full")
    clock, ids = ManualClock(1), SeededIds(7)
    writer = RowFileWriter(
        STORE, str(tmp_path), schema, id_source=ids, clock=clock, options=options
    )
    for start in range(0, 900, 100):
        writer.write(batch.slice(start, 100))
    (meta,) = writer.close()
    assert pq.read_metadata(tmp_path / meta.file_name).num_row_groups > 2
    types = [field.type for field in schema.fields]
    for bounds, which in ((meta.value_stats.min_values, min), (meta.value_stats.max_values, max)):
        expected = [
            which((value for value in column if value is not None), default=None)
            for column in columns
        ]
        assert decode_row(bounds, types) == tuple(expected)
