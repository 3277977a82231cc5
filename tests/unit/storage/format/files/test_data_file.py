# SPDX-License-Identifier: Apache-2.0
"""Data files have the same layout and metadata as Java's."""

import contextlib
import dataclasses
import itertools
import zlib
from typing import ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.clock import ManualClock, SeededIds
from storage.errors import InternalError, StorageUnavailableError, UnsupportedFeatureError
from storage.format.files.data_file import (
    CHANGELOG_PREFIX,
    DataFileNames,
    DataFileOptions,
    KeyValueFileWriter,
    RowFileWriter,
    data_file_name,
    read_key_values,
    read_rows,
)
from storage.format.metadata.file_meta import FileSource
from storage.format.row.row_codec import decode_row
from storage.format.types.types import parse_type
from storage.options.options import TableOptions
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
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
BEFORE_1970 = ("types_orc", "types_append_orc")
"""Have timestamps that cannot be written again as ORC."""
FORMAT_CASES = [
    (case, file_format)
    for case in CASES
    for file_format in ("parquet", "orc", "avro")
    if GoldenTable(case).files(file_format) and case not in BEFORE_1970
]


def layout_text(path):
    """The Parquet schema without its root's name.

    Java marks the inside of a map with an obsolete converted type that readers must ignore.
    """
    return (
        str(pq.ParquetFile(path).schema).split("\n", 2)[2].replace(" key_value (Map)", " key_value")
    )


class TestAgainstJava:
    @pytest.mark.parametrize(("case", "file_format"), FORMAT_CASES)
    def test_rewritten_files_have_the_layout_and_metadata_of_java(
        self, case, file_format, tmp_path
    ):
        golden = GoldenTable(case)
        for path, entry in golden.files(file_format):
            schema = golden.schemas[entry.file.schema_id]
            batches = read_file(path, entry.file, schema)
            meta = rewritten(tmp_path, path, entry.file, schema, batches)
            if file_format == "parquet":
                assert layout_text(tmp_path / meta.file_name) == layout_text(path)
            beside = tuple(
                name.replace(path.name, meta.file_name) for name in entry.file.extra_files
            )
            assert meta == msgspec.structs.replace(
                entry.file,
                file_name=meta.file_name,
                file_size=meta.file_size,
                creation_time_ms=meta.creation_time_ms,
                extra_files=beside,
                embedded_index=meta.embedded_index,
            )
            assert (meta.embedded_index is None) == (entry.file.embedded_index is None)
            again = read_file(tmp_path / meta.file_name, meta, schema)
            assert pa.Table.from_batches(again) == pa.Table.from_batches(batches)

    @pytest.mark.parametrize("case", PARQUET_CASES)
    def test_append_files_read_completely(self, case):
        golden = GoldenTable(case)
        for path, entry in golden.parquet_files():
            schema = golden.schemas[entry.file.schema_id]
            batches = list(read_rows(STORE, str(path), entry.file, schema, schema))
            assert sum(batch.num_rows for batch in batches) == entry.file.row_count
            assert all(batch.schema == schema.arrow_schema for batch in batches)

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


def read_file(path, meta, schema):
    read = read_key_values if schema.primary_keys else read_rows
    return list(read(STORE, str(path), meta, schema, schema))


def rewritten(directory, path, meta, schema, batches):
    """Write the rows of one of Java's files again, with what its table's options say."""
    options = TableOptions.from_strings(schema.options)
    arguments = {
        "id_source": SeededIds(zlib.crc32(path.name.encode())),
        "clock": ManualClock(1_700_000_000_000),
        "source": FileSource(meta.file_source),
    }
    if schema.primary_keys:
        changelog = path.name.startswith("changelog")
        file_options = DataFileOptions.of(options, level=meta.level, changelog=changelog)
        writer = KeyValueFileWriter(
            STORE, str(directory), schema, options=file_options, level=meta.level, **arguments
        )
    else:
        writer = RowFileWriter(
            STORE,
            str(directory),
            schema,
            options=DataFileOptions.of(options),
            first_sequence=meta.min_sequence_number,
            **arguments,
        )
    for batch in batches:
        writer.write(batch)
    (written,) = writer.close()
    return written


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

    def test_an_unknown_format_is_refused_and_leaves_nothing(self, tmp_path):
        writer = writer_of(tmp_path, NUMBERS, options=DataFileOptions(file_format="csv"))
        writer.write(numbers(0, 1))
        with pytest.raises(UnsupportedFeatureError, match="csv"):
            writer.close()
        writer.abort()
        assert list(tmp_path.iterdir()) == []

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


class TestOptions:
    def of(self, raw, **arguments):
        return DataFileOptions.of(TableOptions.from_strings(raw), **arguments)

    def test_single_levels_have_their_own_format_compression_and_statistics(self):
        raw = {
            "file.format.per.level": "0:avro,3:ORC",
            "file.compression.per.level": "0:snappy",
            "metadata.stats-mode.per.level": "0:none,5:full",
        }
        found = [self.of(raw, level=level) for level in (0, 3, 5, None)]
        assert [o.file_format for o in found] == ["avro", "orc", "parquet", "parquet"]
        assert [o.compression for o in found] == ["snappy", "zstd", "zstd", "zstd"]
        assert [o.stats_mode for o in found] == ["none", "truncate(16)", "full", "truncate(16)"]

    def test_changelog_files_have_their_own_or_those_of_the_level(self):
        raw = {
            "file.format.per.level": "0:avro",
            "file-index.bitmap.columns": "v",
            "changelog-file.prefix": "log-",
        }
        shared = self.of(raw, level=0, changelog=True)
        assert (shared.file_format, shared.prefix, shared.indexes) == ("avro", "log-", ())
        assert len(self.of(raw, level=0).indexes) == 1
        raw |= {
            "changelog-file.format": "orc",
            "changelog-file.compression": "lz4",
            "changelog-file.stats-mode": "none",
        }
        own = self.of(raw, level=0, changelog=True)
        assert (own.file_format, own.compression, own.stats_mode) == ("orc", "lz4", "none")

    def test_append_tables_have_larger_files(self):
        assert self.of({}).target_file_size == 2 * self.of({}, level=0).target_file_size
        assert self.of({"target-file-size": "1 mb"}).target_file_size == 1 << 20

    def test_row_groups_follow_the_block_size_and_a_small_target(self):
        usual = self.of({}, level=0).row_group_bytes
        assert self.of({"file.block-size": "1 mb"}, level=0).row_group_bytes < usual
        assert self.of({"target-file-size": "1 mb"}, level=0).row_group_bytes < usual

    def test_only_the_first_columns_get_statistics(self, tmp_path):
        schema = schema_of(("k", "INT NOT NULL"), ("a", "INT"), ("b", "INT"), ("c", "INT"))
        batch = key_values(schema, {"k": [1], "a": [1], "b": [1], "c": [1]})
        options = DataFileOptions(stats_first_columns=1, field_stats_modes={"c": "full"})
        (meta,) = write_all(tmp_path, schema, batch, options=options)
        assert meta.value_stats_cols == ("k", "c")
        assert meta.key_stats.null_counts == (0,)


class TestThinMode:
    def test_keys_are_left_out_and_read_from_the_values(self, tmp_path):
        batch = numbers(0, 100)
        (meta,) = write_all(tmp_path, NUMBERS, batch, options=DataFileOptions(thin=True))
        (full,) = write_all(tmp_path, NUMBERS, batch, prefix="full-")
        names = pq.read_schema(tmp_path / meta.file_name).names
        assert names == ["_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "v"]
        assert read_back(tmp_path, meta, NUMBERS) == read_back(tmp_path, full, NUMBERS)
        assert (meta.min_key, meta.max_key) == (full.min_key, full.max_key)
        assert meta.key_stats == full.key_stats

    def test_key_statistics_are_those_of_the_value_column(self, tmp_path):
        schema = schema_of(("k", "STRING NOT NULL"), ("v", "STRING"))
        batch = key_values(schema, {"k": ["k" * 150], "v": ["v"]})
        options = DataFileOptions(thin=True, stats_mode="none")
        (meta,) = write_all(tmp_path, schema, batch, options=options)
        types = [schema.fields[0].type]
        assert meta.value_stats_cols == ("k",)
        assert decode_row(meta.value_stats.min_values, types) == ("k" * 128,)
        assert decode_row(meta.key_stats.min_values, types) == ("k" * 128,)
        options = DataFileOptions(thin=True, field_stats_modes={"k": "counts"})
        (meta,) = write_all(tmp_path, schema, batch, options=options, prefix="b-")
        assert decode_row(meta.key_stats.min_values, types) == (None,)


class TestFileIndex:
    OPTIONS: ClassVar = {
        "file-index.bitmap.columns": "v",
        "file-index.in-manifest-threshold": "0 b",
    }

    def options_of(self, **raw):
        return DataFileOptions.of(TableOptions.from_strings({**self.OPTIONS, **raw}), level=0)

    def test_a_large_index_is_a_file_of_its_own(self, tmp_path):
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 50), options=self.options_of())
        assert meta.extra_files == (f"{meta.file_name}.index",)
        assert meta.embedded_index is None
        assert (tmp_path / meta.extra_files[0]).is_file()

    def test_a_small_one_is_in_the_metadata(self, tmp_path):
        options = self.options_of(**{"file-index.in-manifest-threshold": "1 mb"})
        (meta,) = write_all(tmp_path, NUMBERS, numbers(0, 50), options=options)
        assert meta.extra_files == ()
        separate = self.options_of()
        (other,) = write_all(tmp_path, NUMBERS, numbers(0, 50), options=separate, prefix="b-")
        assert meta.embedded_index == (tmp_path / other.extra_files[0]).read_bytes()

    def test_abort_removes_the_index_too(self, tmp_path):
        writer = writer_of(tmp_path, NUMBERS, options=self.options_of())
        writer.write(numbers(0, 50))
        writer.close()
        assert len(list(tmp_path.iterdir())) == 2
        writer.abort()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("operation", [1, 2])
    def test_a_failing_store_leaves_no_index_without_its_file(self, tmp_path, operation):
        file_io = FaultyFileIO(STORE, Fault(operation, "error"))
        writer = writer_of(tmp_path, NUMBERS, file_io=file_io, options=self.options_of())
        writer.write(numbers(0, 50))
        with contextlib.suppress(StorageUnavailableError):
            writer.close()
        writer.abort()
        assert list(tmp_path.iterdir()) == []
