# SPDX-License-Identifier: Apache-2.0
"""ORC files: what Java wrote is read as Java reads it, what we write has Java's types."""

import random

import pyarrow as pa
import pyarrow.orc
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

GOLDEN_FILES = [
    (GoldenTable(case), path)
    for case in ("types_orc", "types_append_orc", "nested_orc")
    for path, _ in GoldenTable(case).files("orc")
]


@QUICK
@given(SEEDS)
def test_random_rows_come_back(tmp_path_factory, seed):
    assert_random_rows_come_back(tmp_path_factory.mktemp("rows"), "orc", seed)


def declared_types(path, columns):
    """Kinds, lengths and attributes of the ORC types, as an untyped footer gives them."""
    schema = pyarrow.orc.ORCFile(path).schema
    return [(f.type, f.metadata) for f in schema if f.name in columns]


@pytest.mark.parametrize(("golden", "path"), GOLDEN_FILES)
def test_our_types_and_ids_are_those_of_java(golden, path, tmp_path):
    fields = golden.schemas[0].fields
    ours = str(tmp_path / "data-0.orc")
    write_file(ours, fields, [])
    names = [field.name for field in fields]
    assert declared_types(ours, names) == declared_types(str(path), names)


def test_char_and_varchar_are_declared_with_their_lengths(tmp_path):
    fields = fields_of(
        ("c", "CHAR(5)"),
        ("l", ArrayType(parse_type("VARCHAR(7)"))),
        ("s", "STRING"),
        ("m", MapType(parse_type("CHAR(3) NOT NULL"), parse_type("INT"))),
    )
    path = tmp_path / "data-0.orc"
    batch = batch_of(fields, [["ab"], [["x"]], ["s"], [[("k", 1)]]])
    for codec in ("none", "zstd", "snappy", "lz4", "zlib"):
        path.unlink(missing_ok=True)
        write_file(str(path), fields, [batch], compression=codec)
        assert read_file(str(path), fields) == [batch]
        content = path.read_bytes()
        # kind 17 (CHAR) or 16 (VARCHAR) in field 1, the length in field 4
        assert content.count(b"\x08\x11\x20\x05") == 1
        assert content.count(b"\x08\x10\x20\x07") == 1
        assert content.count(b"\x08\x11\x20\x03") == 1


def test_blanks_at_the_end_of_a_char_do_not_count(tmp_path):
    """As in Java; at any depth."""
    char = parse_type("CHAR(4)")
    fields = fields_of(
        ("c", char),
        ("a", ArrayType(char)),
        ("r", RowType((DataField(id=9, name="x", type=char),))),
        ("v", "VARCHAR(4)"),
    )
    path = str(tmp_path / "data-0.orc")
    write_file(
        path,
        fields,
        [batch_of(fields, [["a  ", None], [["  b ", None], []], [(" ",), None], ["v ", ""]])],
    )
    (batch,) = read_file(path, fields)
    assert batch == batch_of(fields, [["a", None], [["  b", None], []], [("",), None], ["v ", ""]])


def test_files_without_field_ids_are_read_by_name(tmp_path):
    path = str(tmp_path / "data-0.orc")
    pyarrow.orc.write_table(pa.table({"b": [1, 2], "a": ["x", None]}), path)
    fields = fields_of(("a", "STRING"), ("b", "BIGINT"))
    assert read_file(path, fields) == [batch_of(fields, [["x", None], [1, 2]])]


@pytest.mark.parametrize(
    "options",
    [
        {"orc.stripe.size": "65536"},
        {"file.block-size": "64 kb"},
        {"file.block-size": "64 kb", "orc.stripe.size": "67108864"},
    ],
)
def test_several_stripes_hold_rows_in_order(options, tmp_path):
    fields = fields_of(
        ("k", "BIGINT"),
    )
    path = str(tmp_path / "data-0.orc")
    batches = [batch_of(fields, [[n * n * 7 for n in range(i, 20_000)]]) for i in range(5)]
    size = write_file(path, fields, batches, options=options)
    file = pyarrow.orc.ORCFile(path)
    assert file.nstripes > 1
    assert file.file_length == size
    found = pa.Table.from_batches(read_file(path, fields, batch_rows=7_000))
    assert found == pa.Table.from_batches(batches)


def early_batches():
    """Rows from 1970 on first, so that stripes are written before the first early one is seen."""
    fields = fields_of(
        ("k", "INT NOT NULL"),
        ("t", "TIMESTAMP(6)"),
        ("l", ArrayType(parse_type("TIMESTAMP(9)"))),
        ("r", RowType((DataField(id=9, name="x", type=parse_type("TIMESTAMP(3)")),))),
        ("m", MapType(parse_type("INT NOT NULL"), parse_type("TIMESTAMP(6)"))),
    )
    chance = random.Random(3)

    def instant(first, step):
        nanos = chance.randrange(1_000_000) // step * step
        return Timestamp(chance.randint(first, 10**12), nanos)

    def rows(first, count):
        return [
            (
                chance.choice([None, instant(first, 1000)]),
                [None, instant(first, 1)][: chance.randrange(3)],
                chance.choice([None, (None,), (instant(first, 1_000_000),)]),
                [(1, instant(first, 1000))][: chance.randrange(2)],
            )
            for _ in range(count)
        ]

    batches, start = [], 0
    for first, count in ((0, 3000), (0, 3000), (-(10**12), 3000), (-(10**12), 500)):
        columns = [list(column) for column in zip(*rows(first, count), strict=True)]
        batches.append(batch_of(fields, [list(range(start, start + count)), *columns]))
        start += count
    return fields, batches


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("settings", [{}, {"orc.stripe.size": "16384"}])
@pytest.mark.parametrize("stride", ["1000", "10000"])
def test_fractions_of_seconds_before_1970_are_kept(codec, settings, stride, tmp_path):
    fields, batches = early_batches()
    path = str(tmp_path / "data-0.orc")
    options = {**settings, "orc.row.index.stride": stride}
    size = write_file(path, fields, batches, compression=codec, options=options)
    file = pyarrow.orc.ORCFile(path)
    assert size == file.file_length
    assert (file.nstripes > 2) == bool(settings and codec == "none")
    assert pa.Table.from_batches(read_file(path, fields)) == pa.Table.from_batches(batches)


def test_an_early_instant_is_stored_as_java_stores_it(tmp_path):
    """Seconds since 2015, one more when negative; nanoseconds never negative."""
    fields = fields_of(("t", "TIMESTAMP(9)"))
    values = [Timestamp(-1_500), Timestamp(-2_000), Timestamp(-1_001, 999_999), Timestamp(-1)]
    path = tmp_path / "data-0.orc"
    write_file(str(path), fields, [batch_of(fields, [values])], compression="none")
    epoch = 1_420_070_400
    seconds = [zigzag(second - epoch) for second in (-1, -2, -1, 0)]
    nanos = [5 << 3 | 7, 0, 999_999_999 << 3, 999 << 3 | 5]
    content = path.read_bytes()
    for numbers in (seconds, nanos):
        assert b"\x78\x03" + b"".join(n.to_bytes(5, "big") for n in numbers) in content
    # the last second before 1970 comes back as the first one after it, in Java as well
    assert read_file(str(path), fields) == [batch_of(fields, [[*values[:3], Timestamp(999)]])]


def zigzag(number):
    return (number << 1) ^ (number >> 63)


@pytest.mark.parametrize(("golden", "source"), GOLDEN_FILES)
def test_rows_of_java_come_back_from_a_file_of_ours(golden, source, tmp_path):
    fields = golden.schemas[0].fields
    batches = read_file(str(source), fields)
    path = str(tmp_path / "data-0.orc")
    write_file(path, fields, batches)
    assert read_file(path, fields) == batches


def test_malformed_options_are_named(tmp_path):
    with pytest.raises(InvalidOptionError, match=r"orc\.stripe\.size"):
        write_file(
            str(tmp_path / "data-0.orc"), fields_of(("k", "INT")), [],
            options={"orc.stripe.size": "much"},
        )  # fmt: skip
