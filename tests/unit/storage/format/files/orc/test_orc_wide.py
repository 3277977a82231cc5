# SPDX-License-Identifier: Apache-2.0
"""The second way to decode ORC timestamps gives what the library gives where it gives anything."""

import random

import pyarrow as pa
import pytest
from hypothesis import given

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.files.orc import orc
from storage.format.files.orc.orc import decode_unsigned
from storage.format.files.orc.tail import read_tail
from storage.format.row.row_codec import Timestamp
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    MapType,
    RowType,
    parse_type,
)
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
YEAR_1, YEAR_9999 = Timestamp(-62_135_596_800_000), Timestamp(253_402_300_799_999, 999_000)


def rows_batch(fields, rows):
    return batch_of(fields, list(zip(*rows, strict=True)))


@pytest.mark.parametrize(
    ("encoded", "numbers"),
    [
        ("0a2710", [10_000] * 5),
        ("5e035ca1ab1edeadbeef", [23_713, 43_806, 57_005, 48_879]),
        (
            "8e132b2107d01e00147028323c46505a646e78828c96a0aab4befce8",
            [2030, 2000, 2020, 1_000_000, *range(2040, 2200, 10)],
        ),
        ("c609020222424246", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
        ("c0040a01", [10, 9, 8, 7, 6]),
    ],
    ids=["short repeat", "direct", "patched base", "delta", "fixed delta"],
)
def test_numbers_of_the_second_encoding(encoded, numbers):
    data = bytes.fromhex(encoded)
    assert decode_unsigned(data, version_2=True).tolist() == numbers
    assert decode_unsigned(data * 2, version_2=True).tolist() == numbers * 2
    for cut in range(1, len(data)):
        with pytest.raises((ValueError, LookupError)):
            decode_unsigned(data[:cut], version_2=True)


@pytest.mark.parametrize(
    ("encoded", "numbers"),
    [
        ("610007", [7] * 100),
        ("61ff64", list(range(100, 0, -1))),
        ("fb020306070b", [2, 3, 6, 7, 11]),
    ],
)
def test_numbers_of_the_first_encoding(encoded, numbers):
    assert decode_unsigned(bytes.fromhex(encoded), version_2=False).tolist() == numbers


@pytest.fixture
def every_stripe_refused(monkeypatch):
    """As if each stripe held a timestamp that the library refuses."""
    found = orc._raw_stripe

    def refuse(file, index, rows, columns):
        if any(_has_timestamp(field.type) for field in file.schema):
            raise pa.ArrowInvalid("is out of range for nanosecond resolution")
        return found(file, index, rows, columns)

    monkeypatch.setattr(orc, "_raw_stripe", refuse)


def _has_timestamp(type_):
    if pa.types.is_timestamp(type_):
        return True
    return any(_has_timestamp(type_.field(i).type) for i in range(type_.num_fields))


@QUICK
@given(SEEDS)
def test_random_rows_come_back(tmp_path_factory, seed):
    with pytest.MonkeyPatch.context() as patch:
        every_stripe_refused.__wrapped__(patch)
        assert_random_rows_come_back(tmp_path_factory.mktemp("rows"), "orc", seed)


@pytest.mark.parametrize(("golden", "path"), GOLDEN_FILES)
def test_files_of_java_read_the_same(golden, path, request):
    fields = golden.schemas[0].fields
    expected = read_file(str(path), fields)
    request.getfixturevalue("every_stripe_refused")
    assert read_file(str(path), fields) == expected


def nested_fields(text):
    type_ = parse_type(text)
    required = AtomicType(type_.root, False, precision=type_.precision)
    row = RowType((DataField(id=10, name="x", type=parse_type("INT")),
                   DataField(id=11, name="t", type=type_)))  # fmt: skip
    return fields_of(
        ("t", type_),
        ("a", ArrayType(type_)),
        ("m", MapType(required, type_)),
        ("r", row),
        ("n", ArrayType(row)),
    )


@pytest.mark.parametrize(
    "text",
    [
        f"TIMESTAMP({precision}){zone}"
        for precision in (0, 1, 3, 4, 6)
        for zone in ("", " WITH LOCAL TIME ZONE")
    ],
)
@pytest.mark.parametrize("compression", ["zstd", "none", "lz4"])
def test_timestamps_of_all_years_come_back_at_any_depth(tmp_path, text, compression):
    fields = nested_fields(text)
    coarse = parse_type(text).precision <= 3
    late = Timestamp(YEAR_9999.millis) if coarse else YEAR_9999
    early = Timestamp(-62_135_596_799_999) if coarse else Timestamp(-62_135_596_799_999, 1_000)
    rows = [
        [YEAR_1, [late, None, early], [(YEAR_1, late)], (1, None), [None, (2, late)]],
        [None, None, None, None, None],
        [late, [], [(late, None), (early, early)], (None, early), []],
        [Timestamp(1_000), [Timestamp(0)], [], (3, Timestamp(-86_400_000)), [(None, None)]],
    ]
    batch = rows_batch(fields, rows)
    path = str(tmp_path / "data-0.orc")
    write_file(path, fields, [batch], compression=compression)
    assert pa.Table.from_batches(read_file(path, fields)) == pa.Table.from_batches([batch])
    assert pa.Table.from_batches(read_file(path, fields[3:4])) == pa.Table.from_batches(
        [batch.select(["r"])]
    )


def test_nanoseconds_outside_of_their_range_are_refused_with_the_column(tmp_path):
    path = str(tmp_path / "data-0.orc")
    written = fields_of(("k", "INT"), ("t", "TIMESTAMP(6)"))
    write_file(path, written, [rows_batch(written, [[1, YEAR_9999]])])
    with pytest.raises(UnsupportedFeatureError, match="1677 to 2262") as caught:
        read_file(path, fields_of(("k", "INT"), ("t", "TIMESTAMP(9)")))
    assert caught.value.context["column"] == "t"
    assert caught.value.context["path"] == path


def test_only_the_stripes_that_need_it_are_decoded_this_way(tmp_path, monkeypatch):
    fields = fields_of(("k", "INT"), ("t", "TIMESTAMP(3)"))
    path = str(tmp_path / "data-0.orc")
    chance = random.Random(0)
    plain = [[chance.getrandbits(30), Timestamp(chance.getrandbits(40))] for _ in range(20_000)]
    rows = [*plain, [20_000, YEAR_1]]
    parts = [rows_batch(fields, rows[at : at + 5_000]) for at in range(0, len(rows), 5_000)]
    write_file(path, fields, parts, options={"orc.stripe.size": "65536"})
    with pa.OSFile(path) as source:
        stripes = len(read_tail(source, path).stripes)
    seen = []
    read = orc._WideStripes.read
    monkeypatch.setattr(
        orc._WideStripes, "read", lambda self, *args: seen.append(args[0]) or read(self, *args)
    )
    found = pa.Table.from_batches(read_file(path, fields))
    assert found == pa.Table.from_batches([rows_batch(fields, rows)])
    assert stripes > 1
    assert seen == [stripes - 1]


def test_damage_in_the_nanoseconds_is_corrupt_data(tmp_path):
    fields = fields_of(("t", "TIMESTAMP(6)"))
    path = tmp_path / "data-0.orc"
    rows = [[Timestamp(YEAR_1.millis + n, n % 1000 * 1_000)] for n in range(400)]
    write_file(str(path), fields, [rows_batch(fields, rows)], compression="none")
    whole = path.read_bytes()
    refused = 0
    for at in range(3, len(whole) - 400, 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read_file(str(path), fields)
        except (CorruptDataError, UnsupportedFeatureError):
            refused += 1
    assert refused > 0
