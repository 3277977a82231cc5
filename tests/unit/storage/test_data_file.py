# SPDX-License-Identifier: Apache-2.0
"""Key-value files have the same Parquet layout and metadata as Java's."""

import dataclasses
import itertools
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.clock import SeededIds
from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.data_file import (
    CHANGELOG_PREFIX,
    DataFileNames,
    DataFileOptions,
    data_file_name,
    read_key_values,
    read_rows,
)
from storage.format.file_meta import EMPTY_STATS, FileSource
from storage.format.parquet import ParquetSink, parquet_field
from storage.format.row_codec import decode_row
from storage.format.type_text import parse_type
from storage.io.faulty import Fault, FaultyFileIO, SimulatedCrash
from storage.options import TableOptions
from tests.unit.storage.golden_tables import CASES, GoldenTable
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

PARQUET_CASES = [case for case in CASES if GoldenTable(case).parquet_files()]


def layout_text(path):
    """The Parquet schema without its root's name.

    Java marks the inside of a map with an obsolete converted type that readers must ignore.
    """
    return (
        str(pq.ParquetFile(path).schema).split("\n", 2)[2].replace(" key_value (Map)", " key_value")
    )


class TestAgainstJava:
    @pytest.mark.parametrize("case", PARQUET_CASES)
    def test_rewritten_files_have_the_layout_and_metadata_of_java(self, case, tmp_path):
        golden = GoldenTable(case)
        schemas = golden.schemas
        for path, entry in golden.parquet_files():
            schema = schemas[entry.file.schema_id]
            if not schema.primary_keys:
                continue
            batches = list(read_key_values(STORE, str(path), entry.file, schema, schema))
            (meta,) = write_all(
                tmp_path,
                schema,
                *batches,
                options=dataclasses.replace(
                    DataFileOptions.of(TableOptions.from_strings(schema.options)),
                    dense_stats=schema.options.get("metadata.stats-dense-store") != "false",
                ),
                names=DataFileNames(SeededIds(zlib.crc32(path.name.encode()))),
                level=entry.file.level,
                source=FileSource(entry.file.file_source),
            )
            if "thin" not in case:
                assert layout_text(tmp_path / meta.file_name) == layout_text(path)
            assert without_int96_bounds(meta, schema) == without_int96_bounds(
                dataclasses.replace(
                    entry.file,
                    file_name=meta.file_name,
                    file_size=meta.file_size,
                    creation_time_ms=meta.creation_time_ms,
                    extra_files=(),
                    embedded_index=None,
                ),
                schema,
            )
            assert read_back(tmp_path, meta, schema).to_batches() == (
                pa.Table.from_batches(batches).to_batches()
            )

    @pytest.mark.parametrize("case", PARQUET_CASES)
    def test_append_files_read_completely(self, case):
        golden = GoldenTable(case)
        for path, entry in golden.parquet_files():
            schema = golden.schemas[entry.file.schema_id]
            batches = list(read_rows(STORE, str(path), entry.file, schema, schema))
            assert sum(batch.num_rows for batch in batches) == entry.file.row_count
            assert all(batch.schema == schema.arrow_schema for batch in batches)

    def test_append_layout_is_that_of_java(self, tmp_path):
        golden = GoldenTable("types_append_parquet")
        for path, entry in golden.parquet_files():
            schema = golden.schemas[entry.file.schema_id]
            (batch,) = read_rows(STORE, str(path), entry.file, schema, schema)
            with STORE.open_output(f"{tmp_path}/{path.name}") as output:
                sink = ParquetSink(output, pa.schema([parquet_field(f) for f in schema.fields]))
                sink.write(batch.columns)
                sink.close()
            assert layout_text(tmp_path / path.name) == layout_text(path)

    @pytest.mark.parametrize("case", ["schema_evolution_pk", "schema_evolution_append"])
    def test_files_of_old_schemas_read_under_the_newest(self, case):
        golden = GoldenTable(case)
        schemas = golden.schemas
        newest = schemas[max(schemas)]
        for path, entry in golden.parquet_files():
            old = schemas[entry.file.schema_id]
            (batch,) = read_rows(STORE, str(path), entry.file, old, newest)
            (stored,) = read_rows(STORE, str(path), entry.file, old, old)
            assert batch.schema == newest.arrow_schema
            batch.validate(full=True)
            for field in newest.fields:
                same = [f for f in old.fields if f.id == field.id]
                if not same:
                    assert batch.column(field.name).null_count == batch.num_rows
                elif field.name != "r":
                    expected = stored.column(same[0].name).cast(batch.column(field.name).type)
                    assert batch.column(field.name) == expected
            if old.id == 0:
                renamed = batch.column("r").field("xx")
                assert renamed == stored.column("r").field("x")
                assert batch.column("r").field("z").null_count == batch.num_rows


def without_int96_bounds(meta, schema):
    """Java has no bounds for INT96 columns, since Parquet has none; we compute them."""
    names = meta.value_stats_cols or schema.field_names
    fields = [schema.field(name) for name in names]
    types = [field.type for field in fields]
    keep = [getattr(type_, "precision", 0) <= 6 or type_.root.value == "DECIMAL" for type_ in types]
    stats = meta.value_stats
    low, high = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    bounds = [(a, b) for a, b, kept in zip(low, high, keep, strict=True) if kept]
    return dataclasses.replace(meta, value_stats=EMPTY_STATS), str(bounds), stats.null_counts


class TestWriter:
    def test_metadata_describes_the_rows(self, tmp_path):
        schema = schema_of(("k", "INT NOT NULL"), ("v", "STRING"), id_=4)
        batch = key_values(
            schema,
            {"k": [1, 5, 9, 12], "v": ["a", None, "c", None]},
            kinds=[0, 3, 2, 1],
            sequences=[40, 7, 8, 9],
        )
        (meta,) = write_all(tmp_path, schema, batch, level=3, source=FileSource.COMPACT)
        types = [parse_type("INT NOT NULL")]
        assert (meta.row_count, meta.delete_row_count) == (4, 2)
        assert (meta.min_sequence_number, meta.max_sequence_number) == (7, 40)
        assert (decode_row(meta.min_key, types), decode_row(meta.max_key, types)) == ((1,), (12,))
        assert (meta.level, meta.schema_id, meta.file_source) == (3, 4, 1)
        assert meta.creation_time_ms == 1_700_000_000_000
        assert meta.file_size == (tmp_path / meta.file_name).stat().st_size
        assert meta.key_stats.null_counts == (0,)
        assert meta.value_stats.null_counts == (0, 2)
        assert meta.value_stats_cols is None
        assert read_back(tmp_path, meta, schema).to_batches() == [batch]

    def test_no_rows_make_no_file(self, tmp_path):
        writer = writer_of(tmp_path, NUMBERS)
        writer.write(numbers(0, 0))
        assert writer.close() == ()
        assert list(tmp_path.iterdir()) == []

    def test_files_roll_at_the_target_size_in_key_order(self, tmp_path):
        options = DataFileOptions(target_file_size=40_000, row_group_bytes=60_000)
        batches = [numbers(start, 3000) for start in range(0, 30_000, 3000)]
        metas = write_all(tmp_path, NUMBERS, *batches, options=options)
        assert len(metas) > 2
        types = [parse_type("BIGINT NOT NULL")]
        bounds = [(decode_row(m.min_key, types)[0], decode_row(m.max_key, types)[0]) for m in metas]
        assert bounds[0][0] == 0
        assert bounds[-1][1] == 29_999
        assert all(b[0] == a[1] + 1 for a, b in itertools.pairwise(bounds))
        assert all(m.file_size < 100_000 for m in metas)
        tables = [read_back(tmp_path, m, NUMBERS) for m in metas]
        assert pa.concat_tables(tables) == pa.Table.from_batches(batches)
        assert [m.row_count for m in metas] == [t.num_rows for t in tables]

    def test_one_large_batch_becomes_several_row_groups(self, tmp_path):
        options = DataFileOptions(row_group_bytes=200_000)
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 40_000), options=options)
        file = pq.ParquetFile(tmp_path / meta.file_name)
        assert file.num_row_groups > 3
        rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert max(rows) - min(rows) < file.num_row_groups

    def test_names_are_shared_by_data_and_changelog_files(self, tmp_path):
        names = DataFileNames(SeededIds(3))
        (log,) = write_all(tmp_path, NUMBERS, numbers(0, 2), names=names, prefix=CHANGELOG_PREFIX)
        (data,) = write_all(tmp_path, NUMBERS, numbers(0, 2), names=names)
        uuid = log.file_name[len("changelog-") : -len("-0.parquet")]
        assert len(uuid) == 36
        assert log.file_name == f"changelog-{uuid}-0.parquet"
        assert data.file_name == f"data-{uuid}-1.parquet"

    def test_a_name_can_tell_the_compression(self):
        options = DataFileOptions(suffix_includes_compression=True)
        assert data_file_name("data-", "u", 3, options) == "data-u-3.zstd.parquet"
        assert data_file_name("x-", "u", 0, DataFileOptions()) == "x-u-0.parquet"

    def test_abort_removes_finished_and_open_files(self, tmp_path):
        options = DataFileOptions(target_file_size=1, row_group_bytes=1)
        writer = writer_of(tmp_path, NUMBERS, options=options)
        writer.write(numbers(0, 100))
        writer.write(numbers(100, 100))
        assert len(list(tmp_path.iterdir())) >= 2
        writer.abort()
        assert list(tmp_path.iterdir()) == []
        options = DataFileOptions(row_group_bytes=1)
        other = writer_of(tmp_path, NUMBERS, options=options)
        other.write(numbers(0, 100))
        assert len(list(tmp_path.iterdir())) == 1
        other.abort()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("mode", ["before", "torn", "after"])
    def test_a_crash_while_writing_is_not_swallowed(self, tmp_path, mode):
        file_io = FaultyFileIO(STORE, Fault(1, mode))
        writer = writer_of(tmp_path, NUMBERS, file_io=file_io)
        writer.write(numbers(0, 100))
        with pytest.raises(SimulatedCrash):
            writer.close()

    def test_a_batch_without_a_column_is_our_bug(self, tmp_path):
        with pytest.raises(InternalError, match="lacks"):
            writer_of(tmp_path, NUMBERS).write(numbers(0, 3).drop_columns(["v"]))

    def test_a_null_in_a_not_null_column_is_our_bug(self, tmp_path):
        batch = key_values(NUMBERS, {"k": [1, None], "v": ["a", "b"]})
        with pytest.raises(InternalError, match="do not fit"):
            write_all(tmp_path, NUMBERS, batch)

    def test_only_parquet_is_written(self, tmp_path):
        with pytest.raises(UnsupportedFeatureError, match="parquet"):
            writer_of(tmp_path, NUMBERS, options=DataFileOptions(file_format="orc"))

    def test_only_encodings_that_old_readers_know(self, tmp_path):
        schema = schema_of(("k", "INT NOT NULL"), ("s", "STRING"), ("b", "BOOLEAN"),
                           ("d", "DOUBLE"))  # fmt: skip
        rows = 5000
        half = rows // 2
        values = {"k": list(range(rows)), "s": ["x", "y"] * half, "b": [True, None] * half}
        batch = key_values(schema, {**values, "d": [0.5] * rows})
        (meta,) = write_all(tmp_path, schema, batch)
        group = pq.ParquetFile(tmp_path / meta.file_name).metadata.row_group(0)
        chunks = [group.column(i) for i in range(group.num_columns)]
        encodings = {chunk.path_in_schema: set(chunk.encodings) for chunk in chunks}
        assert set().union(*encodings.values()) <= {"PLAIN", "RLE", "RLE_DICTIONARY"}
        assert "RLE_DICTIONARY" in encodings["s"]
        assert "RLE_DICTIONARY" not in encodings["k"] | encodings["_SEQUENCE_NUMBER"]
        assert {chunk.compression for chunk in chunks} == {"ZSTD"}
        assert pq.ParquetFile(tmp_path / meta.file_name).metadata.metadata is None

    def test_statistics_modes_follow_the_options(self, tmp_path):
        schema = schema_of(("k", "STRING NOT NULL"), ("v", "STRING"), ("w", "STRING"))
        long = "a very long string value > 16"
        batch = key_values(schema, {"k": ["k" * 150], "v": [long], "w": [long]})
        options = DataFileOptions(field_stats_modes={"w": "none"})
        (meta,) = write_all(tmp_path, schema, batch, options=options)
        assert meta.value_stats_cols == ("k", "v")
        types = [field.type for field in schema.fields[:2]]
        assert decode_row(meta.value_stats.max_values, types) == ("k" * 15 + "l", long[:15] + "j")
        (low,) = decode_row(meta.key_stats.min_values, types[:1])
        assert low == "k" * 128
        assert decode_row(meta.min_key, types[:1]) == ("k" * 150,)
        sparse = dataclasses.replace(options, dense_stats=False)
        (meta,) = write_all(tmp_path, schema, batch, options=sparse, prefix="b-")
        assert meta.value_stats_cols is None
        assert meta.value_stats.null_counts == (0, 0, None)
