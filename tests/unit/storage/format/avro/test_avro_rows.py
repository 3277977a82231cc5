# SPDX-License-Identifier: Apache-2.0
"""Avro data files: Java's schema to the letter, fastavro as the judge of the bytes."""

import dataclasses
import decimal
import io
import json

import fastavro
import pytest
from hypothesis import given

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.container import BlockReader
from storage.format.avro.rows import BlockError, RecordDecoder
from storage.format.avro.schema import schema_text
from storage.format.files.data_file import SYSTEM_FIELDS
from storage.format.row.row_codec import Timestamp
from storage.format.types.types import (
    KEY_FIELD_ID_START,
    KEY_PREFIX,
    ArrayType,
    DataField,
    MapType,
    MultisetType,
    RowType,
    parse_type,
)
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.random_rows import (
    ATOMIC_TEXTS,
    QUICK,
    SEEDS,
    STORE,
    assert_random_rows_come_back,
    batch_of,
    fields_of,
    read_file,
    write_file,
)

TEXT, NUMBER = parse_type("STRING"), parse_type("INT")
NESTED = fields_of(
    ("a", ArrayType(parse_type("BIGINT NOT NULL"))),
    ("m", MapType(parse_type("STRING NOT NULL"), NUMBER)),
    ("n", MapType(parse_type("INT NOT NULL"), TEXT)),
    ("r", RowType((DataField(id=9, name="x", type=NUMBER), DataField(id=10, name="y", type=TEXT)))),
    ("s", MultisetType(parse_type("STRING NOT NULL"))),
)
NESTED_COLUMNS = [
    [[1, -(2**63)], [], None],
    [[("k", 1), ("", None)], None, []],
    [[(-5, "v")], [], None],
    [(7, None), None, (None, "é")],
    [[("e", 3)], None, []],
]


@QUICK
@given(SEEDS)
def test_random_rows_come_back(tmp_path_factory, seed):
    assert_random_rows_come_back(tmp_path_factory.mktemp("rows"), "avro", seed, ATOMIC_TEXTS)


def header_schema(path):
    with open(path, "rb") as file:
        return fastavro.reader(file).metadata["avro.schema"]


def test_the_schema_is_that_of_java_letter_by_letter():
    (path, _), *_ = GoldenTable("types_append_avro").files("avro")
    assert schema_text(GoldenTable("types_append_avro").schemas[0].fields) == header_schema(path)
    nested = GoldenTable("nested_avro")
    (path, _), *_ = nested.files("avro")
    java = json.loads(header_schema(path))
    java["fields"] = java["fields"][3:]
    assert json.loads(schema_text(nested.schemas[0].fields)) == java


def blocks(path):
    with STORE.open_input(str(path)) as source:
        return [(block.count, block.data()) for block in BlockReader(source, "").blocks()]


@pytest.mark.parametrize("case", ["types_append_avro", "types_avro", "nested_avro"])
def test_records_have_the_bytes_of_java(case, tmp_path):
    golden = GoldenTable(case)
    schema = golden.schemas[0]
    keys = [
        dataclasses.replace(f, id=KEY_FIELD_ID_START + f.id, name=KEY_PREFIX + f.name)
        for f in schema.key_fields
    ]
    fields = (*keys, *SYSTEM_FIELDS, *schema.fields) if schema.primary_keys else schema.fields
    for source, _ in golden.files("avro"):
        batches = read_file(str(source), fields)
        path = str(tmp_path / source.name)
        write_file(path, fields, batches, compression="snappy")
        assert read_file(path, fields) == batches
        assert blocks(path) == blocks(source)


def test_fastavro_reads_what_we_write(tmp_path):
    path = str(tmp_path / "data-0.avro")
    write_file(path, NESTED, [batch_of(NESTED, NESTED_COLUMNS)], compression="deflate")
    with open(path, "rb") as file:
        rows = list(fastavro.reader(file))
    assert rows == [
        {"a": [1, -(2**63)], "m": {"k": 1, "": None}, "n": [{"key": -5, "value": "v"}],
         "r": {"x": 7, "y": None}, "s": {"e": 3}},
        {"a": [], "m": None, "n": [], "r": None, "s": None},
        {"a": None, "m": {}, "n": None, "r": {"x": None, "y": "é"}, "s": {}},
    ]  # fmt: skip


def test_we_read_what_fastavro_writes(tmp_path):
    """Other record names, other unions, blocks of any codec, unknown columns in between."""
    schema = {
        "type": "record", "name": "Other", "fields": [
            {"name": "skip", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
            {"name": "r", "type": [{"type": "record", "name": "Inner", "fields": [
                {"name": "y", "type": "string"}, {"name": "extra", "type": ["null", "double"]},
                {"name": "x", "type": "long"}]}, "null"]},
            {"name": "skipped", "type": ["null", "Inner"]},
            {"name": "d", "type": {"type": "fixed", "name": "F", "size": 4,
                                   "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "f", "type": "float"},
        ],
    }  # fmt: skip
    inner = {"y": "a", "extra": 1.5, "x": -3}
    row = {"skip": {"k": [1, 2]}, "r": inner, "skipped": inner, "d": decimal.Decimal("-1.50"),
           "f": 0.5}  # fmt: skip
    fields = fields_of(
        ("f", "DOUBLE"),
        ("d", "DECIMAL(9, 2)"),
        (
            "r",
            RowType((DataField(id=9, name="x", type=NUMBER), DataField(id=8, name="y", type=TEXT))),
        ),
    )
    for codec in ("null", "deflate", "snappy", "bzip2", "xz"):
        out = io.BytesIO()
        fastavro.writer(out, schema, [row, {**row, "r": None, "skipped": None}], codec=codec)
        path = tmp_path / f"{codec}.avro"
        path.write_bytes(out.getvalue())
        (batch,) = read_file(str(path), fields)
        assert batch == batch_of(
            fields, [[0.5, 0.5], [decimal.Decimal("-1.50")] * 2, [(-3, "a"), None]]
        )


def test_blocks_hold_about_64_kilobytes(tmp_path):
    fields = fields_of(("s", "STRING"))
    path = str(tmp_path / "data-0.avro")
    write_file(path, fields, [batch_of(fields, [["x" * 100] * 5000])], compression="null")
    with open(path, "rb") as file:
        blocks = list(fastavro.block_reader(file))
    sizes = [block.num_records * 103 for block in blocks]
    assert sum(block.num_records for block in blocks) == 5000
    assert all(64_000 - 103 < size <= 64_000 + 103 for size in sizes[:-1])


def test_equal_rows_give_equal_files(tmp_path):
    contents = []
    for name in ("a.avro", "b.avro"):
        write_file(str(tmp_path / name), NESTED, [batch_of(NESTED, NESTED_COLUMNS)])
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]


def test_the_codec_option_goes_before_the_compression(tmp_path):
    path = str(tmp_path / "data-0.avro")
    write_file(path, NESTED, [], compression="zstd", options={"avro.codec": "snappy"})
    with open(path, "rb") as file:
        assert fastavro.reader(file).metadata["avro.codec"] == "snappy"


@pytest.mark.parametrize("text", ["TIMESTAMP(9)", "TIMESTAMP(7) WITH LOCAL TIME ZONE"])
def test_types_avro_cannot_hold_are_refused(text, tmp_path):
    with pytest.raises(UnsupportedFeatureError, match="precision"):
        write_file(str(tmp_path / "data-0.avro"), fields_of(("t", text)), [])


def test_the_unit_of_a_timestamp_comes_from_the_file(tmp_path):
    stored = fields_of(("t", "TIMESTAMP(3)"))
    path = str(tmp_path / "data-0.avro")
    write_file(path, stored, [batch_of(stored, [[Timestamp(-5)]])])
    wider = fields_of(("t", "TIMESTAMP(6)"))
    assert read_file(path, wider) == [batch_of(wider, [[Timestamp(-5)]])]


class TestDamagedRecords:
    FIELDS = fields_of(("k", "BIGINT NOT NULL"), ("s", "STRING"), ("l", ArrayType(NUMBER)))

    def decoder(self):
        return RecordDecoder(schema_text(self.FIELDS), self.FIELDS)

    DAMAGED = {
        "empty": (b"", 1),
        "more": (b"\x02", 2),
        "union": (b"\x02\x04\x02\x00", 1),
        "long": (b"\x02\x02\xff\xff\xff\xff\x0f", 1),
        "negative": (b"\x02\x02\x01\x02\x00", 1),
        "items": (b"\x02\x00\x02\xff\xff\xff\xff\x0f\x00", 1),
        "rest": (b"\x02\x00\x00\x00", 1),
        "none": (b"\x02", 0),
    }

    @pytest.mark.parametrize(("data", "count"), DAMAGED.values(), ids=DAMAGED)
    def test_are_found(self, data, count):
        with pytest.raises(BlockError):
            self.decoder().decode([(data, count)])

    @pytest.mark.parametrize("after", [0, 15, 29])
    @pytest.mark.parametrize(("data", "count"), DAMAGED.values(), ids=DAMAGED)
    def test_are_found_among_sound_blocks(self, data, count, after):
        blocks = [(b"\x02\x02\x02a\x02\x02\x02\x06\x00", 1)] * 29
        blocks.insert(after, (data, count))
        with pytest.raises(BlockError) as error:
            self.decoder().decode(blocks)
        assert error.value.position == after

    def test_a_number_beyond_64_bits_is_found(self):
        for repeats in (1, 30):
            with pytest.raises(ValueError, match="64 bits"):
                self.decoder().decode([(b"\xff" * 10 + b"\x7f\x00\x00", 1)] * repeats)

    def test_a_number_that_does_not_fit_its_column_is_damage(self, tmp_path):
        path = str(tmp_path / "data-0.avro")
        write_file(path, fields_of(("k", "INT")), [batch_of(fields_of(("k", "INT")), [[300]])])
        with pytest.raises(CorruptDataError, match="data-0"):
            read_file(path, fields_of(("k", "TINYINT")))
