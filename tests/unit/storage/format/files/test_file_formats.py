# SPDX-License-Identifier: Apache-2.0
"""What all three formats of data files have in common."""

import random

import pyarrow as pa
import pyroaring
import pytest

from storage.errors import (
    CorruptDataError,
    InternalError,
    InvalidOptionError,
    LakewardError,
    UnsupportedFeatureError,
)
from storage.format.files.file_formats import FORMATS, format_of, open_sink
from storage.format.files.row_selection import Except, Only
from storage.format.types.types import ArrayType, parse_type
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.random_rows import batch_of, fields_of, read_file, write_file

INTS = ArrayType(parse_type("INT"))
SIMPLE = fields_of(("k", "INT NOT NULL"), ("s", "STRING"), ("l", INTS))
FLIPS = 120


def simple(start, count):
    numbers = list(range(start, start + count))
    return batch_of(
        SIMPLE,
        [numbers, [None if n % 3 == 0 else f"v{n}" for n in numbers], [[n, None] for n in numbers]],
    )


def test_the_last_extension_tells_the_format():
    assert format_of("data-1.zstd.orc") == "orc"
    assert format_of("bucket-0/data-1.snappy.parquet") == "parquet"
    with pytest.raises(UnsupportedFeatureError, match="csv"):
        format_of("data-1.csv")


@pytest.mark.parametrize("file_format", FORMATS)
class TestEveryFormat:
    def path(self, tmp_path, file_format):
        return str(tmp_path / f"data-0.{file_format}")

    def test_rows_come_back_in_order_and_in_bounded_batches(self, file_format, tmp_path):
        path = self.path(tmp_path, file_format)
        size = write_file(path, SIMPLE, [simple(0, 50), simple(50, 50)])
        assert size == (tmp_path / f"data-0.{file_format}").stat().st_size
        batches = read_file(path, SIMPLE, batch_rows=30)
        assert all(0 < batch.num_rows <= 30 for batch in batches)
        assert pa.Table.from_batches(batches) == pa.Table.from_batches([simple(0, 100)])

    def test_columns_are_found_by_name_and_absent_ones_left_out(self, file_format, tmp_path):
        path = self.path(tmp_path, file_format)
        write_file(path, SIMPLE, [simple(0, 5)])
        asked = fields_of(("l", INTS), ("nothing", "INT"), ("k", "INT NOT NULL"))
        (batch,) = read_file(path, asked)
        assert batch.schema.names == ["l", "k"]
        assert batch.column("k").to_pylist() == [0, 1, 2, 3, 4]

    def test_without_columns_the_number_of_rows_remains(self, file_format, tmp_path):
        path = self.path(tmp_path, file_format)
        write_file(path, SIMPLE, [simple(0, 70)])
        batches = read_file(path, (), batch_rows=30)
        assert sum(batch.num_rows for batch in batches) == 70
        chosen = read_file(path, (), selection=Only(pyroaring.BitMap([3, 50])))
        assert sum(batch.num_rows for batch in chosen) == 2

    @pytest.mark.parametrize("groups", [1, 4])
    def test_a_selection_speaks_of_positions_in_the_file(self, file_format, groups, tmp_path):
        path = self.path(tmp_path, file_format)
        rows = 200 // groups
        write_file(path, SIMPLE, [simple(i * rows, rows) for i in range(groups)])
        wanted = [0, 7, 99, 100, 199]
        for selection, numbers in (
            (Only(pyroaring.BitMap(wanted)), wanted),
            (Except(pyroaring.BitMap(range(1, 199))), [0, 199]),
            (Only(pyroaring.BitMap()), []),
        ):
            batches = read_file(path, SIMPLE, batch_rows=33, selection=selection)
            assert [n for b in batches for n in b.column("k").to_pylist()] == numbers

    def test_a_file_without_rows_is_valid(self, file_format, tmp_path):
        path = self.path(tmp_path, file_format)
        write_file(path, SIMPLE, [])
        assert read_file(path, SIMPLE) == []

    def test_every_compression(self, file_format, tmp_path):
        codecs = {
            "parquet": ("zstd", "snappy", "lz4", "gzip", "none"),
            "orc": ("zstd", "snappy", "lz4", "zlib", "none"),
            "avro": ("zstd", "snappy", "deflate", "bzip2", "xz", "null"),
        }
        for codec in codecs[file_format]:
            path = str(tmp_path / f"{codec}.{file_format}")
            write_file(path, SIMPLE, [simple(0, 40)], compression=codec)
            assert pa.Table.from_batches(read_file(path, SIMPLE)).num_rows == 40

    def test_an_unknown_compression_is_named(self, file_format, tmp_path):
        with pytest.raises(InvalidOptionError, match="lzo"):
            write_file(self.path(tmp_path, file_format), SIMPLE, [], compression="lzo")

    def test_a_null_where_none_may_be_is_our_bug(self, file_format, tmp_path):
        loose = batch_of(fields_of(("k", "INT"), ("s", "STRING"), ("l", INTS)),
                         [[1, None], ["a", "b"], [[], []]])  # fmt: skip
        with pytest.raises(InternalError):
            write_file(self.path(tmp_path, file_format), SIMPLE, [loose])

    def test_a_column_of_another_type_is_damage(self, file_format, tmp_path):
        path = self.path(tmp_path, file_format)
        write_file(path, SIMPLE, [simple(0, 5)])
        asked = fields_of(("s", INTS))
        with pytest.raises(CorruptDataError, match="data-0"):
            read_file(path, asked)

    def test_a_missing_file_is_missing(self, file_format, tmp_path):
        with pytest.raises(FileNotFoundError):
            read_file(self.path(tmp_path, file_format), SIMPLE)

    def test_what_is_no_file_of_the_format_is_damage(self, file_format, tmp_path):
        path = tmp_path / f"data-0.{file_format}"
        for content in (b"", b"x", b"no such format " * 100):
            path.write_bytes(content)
            with pytest.raises(CorruptDataError, match="data-0"):
                read_file(str(path), SIMPLE)

    def test_damage_is_found_or_harmless_but_never_another_error(self, file_format, tmp_path):
        golden = GoldenTable(f"nested_{file_format}")
        (source, _), *_ = golden.files(file_format)
        whole = source.read_bytes()
        path = tmp_path / f"data-0.{file_format}"
        chance = random.Random(7)
        texts = []
        for _ in range(FLIPS):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged[: chance.choice([len(whole), chance.randrange(len(whole))])])
            try:
                read_file(str(path), golden.schemas[0].fields)
            except (CorruptDataError, UnsupportedFeatureError) as error:
                texts.append(str(error))
        assert len(texts) > FLIPS // 3
        assert all("data-0" in text for text in texts)


def test_errors_of_all_formats_are_ours():
    with pytest.raises(LakewardError, match="csv"):
        open_sink("csv", None, SIMPLE)
