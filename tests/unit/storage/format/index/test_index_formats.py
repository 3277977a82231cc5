# SPDX-License-Identifier: Apache-2.0
"""File indexes by themselves: hashes, payloads, the container, and what damage does to them."""

import datetime
import decimal
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptDataError, InvalidOptionError
from storage.format.index.bitmap import bitmap_of, decode, encode
from storage.format.index.builder import (
    BITMAP,
    BLOOM,
    BSI,
    INDEX_TYPES,
    RANGE_BITMAP,
    FileIndexBuilder,
    FileIndexSpec,
    can_index,
    encode_container,
    is_rounded,
    open_index,
    read_container,
    takes,
)
from storage.format.index.hashing import hash_column, parameters, xxh64
from storage.format.index.values import FileSource, MemorySource, Window, byte_view
from storage.format.types.types import DataField, arrow_type, parse_type
from storage.io.local import LocalFileIO
from tests.property.profiles import profile


def a_type(text: str) -> Any:
    """An atomic type."""
    return parse_type(text)


STRING = a_type("STRING")


def whole(data: bytes) -> Window:
    return Window(MemorySource(data, "file.index"), 0, len(data))


def build(kind: str, type_: Any, columns: Sequence[pa.Array], **options: Any) -> bytes:
    builder = FileIndexSpec(kind, "c", None, options).builder(type_)
    for column in columns:
        builder.add(column)
    payload = builder.finish()
    assert payload is not None
    return payload


def opened(kind: str, type_: Any, columns: Sequence[pa.Array], **options: Any) -> Any:
    return open_index(kind, whole(build(kind, type_, columns, **options)), type_)


def assert_sound_or_reported(action: Callable[[], object]) -> None:
    """Damage is reported with its place or not noticed; nothing else comes of it."""
    try:
        action()
    except CorruptDataError as error:
        found = error.context
    else:
        return
    assert found["path"] == "file.index"
    assert found["offset"] >= 0


# ------------------------------------------------------------------------------- hashing


@given(st.lists(st.binary(max_size=140), max_size=40), st.integers(0, 3))
def test_xxh64_is_the_public_hash(values: list[bytes], cut: int) -> None:
    column = pa.array(values, pa.binary())[cut:]
    found = xxh64(*byte_view(column)).tolist()
    assert found == [xxhash.xxh64_intdigest(value) for value in values[cut:]]


def test_hashes_of_many_rows_and_of_slices() -> None:
    values = ["x" * (n % 97) + str(n) for n in range(40_000)]
    column = pa.array([*values, None])[100:]
    hashes, valid = hash_column(column, STRING)
    assert hashes[:-1].tolist() == [xxhash.xxh64_intdigest(v.encode()) for v in values[100:]]
    assert valid.tolist() == [True] * 39_900 + [False]


def test_large_strings_and_empty_columns() -> None:
    column = pa.array(["a", "hello"], pa.large_string())
    assert xxh64(*byte_view(column)).tolist() == [
        xxhash.xxh64_intdigest(v.encode()) for v in ("a", "hello")
    ]
    assert len(xxh64(*byte_view(pa.array([], pa.string())))) == 0


# ---------------------------------------------------------------------------- properties

INTS = st.integers(-(1 << 63) + 1, (1 << 63) - 1) | st.integers(-20, 20)
DAY = datetime.date(1970, 1, 1)
COLUMNS = {
    "BIGINT": INTS,
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(1 << 15), (1 << 15) - 1),
    "INT": st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 5),
    "BOOLEAN": st.booleans(),
    "STRING": st.text(max_size=6),
    "FLOAT": st.floats(width=32, allow_nan=False) | st.just(math.nan),
    "DOUBLE": st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, math.nan, math.inf]),
    "DECIMAL(18, 4)": st.decimals(-(10**13), 10**13, allow_nan=False, places=4),
    "DATE": st.dates(),
    "TIME(3)": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(3)": st.datetimes().map(lambda t: t.replace(microsecond=0)),
    "TIMESTAMP(6)": st.datetimes(),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": st.datetimes(timezones=st.just(datetime.UTC)),
}


def order(value: Any) -> Any:
    """A sort key of the order indexes keep: -0.0 below 0.0, NaN above everything."""
    if isinstance(value, float):
        return (math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))
    return value.encode() if isinstance(value, str) else value


@st.composite
def cases(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    some = draw(st.lists(COLUMNS[name], min_size=1, max_size=4))
    one = st.sampled_from(some) | COLUMNS[name] | st.none()
    values = draw(st.lists(one, max_size=30))
    probes = [*some, draw(COLUMNS[name])]
    return parse_type(name), values, probes, draw(st.integers(0, 30))


@profile(short=50, long=480)
@given(cases())
def test_an_index_finds_exactly_the_rows(case: Any) -> None:
    type_, values, probes, cut = case
    column = pa.array(values, arrow_type(type_))
    options = {BITMAP: [{"version": 1}, {"index-block-size": 64}], RANGE_BITMAP: [{}, _CHUNKS]}
    for kind in (BITMAP, BSI, RANGE_BITMAP):
        if not can_index(kind, type_):
            continue
        for settings_ in options.get(kind, [{}]):
            index = opened(kind, type_, [column[:cut], column[cut:]], **settings_)
            assert_exact(kind, index, type_, values, probes)


_CHUNKS = {"chunk-size": 20}


def assert_exact(kind: str, index: Any, type_: Any, values: list[Any], probes: list[Any]) -> None:
    valid = [row for row, value in enumerate(values) if value is not None]
    keys = {row: order(values[row]) for row in valid}
    assert list(index.valid_rows()) == valid
    assert set(index.null_rows()) == set(range(len(values))) - set(valid)
    for probe in probes:
        literal, key = pa.array([probe], arrow_type(type_)), order(probe)
        if math.isnan(probe) if isinstance(probe, float) else False:
            same = [row for row in valid if math.isnan(values[row])]
        else:
            same = [row for row in valid if keys[row] == key]
        assert list(index.equal_to(literal)) == same
        for inclusive in (False, True):
            extra = set(same) if inclusive else set()
            above = index.above(literal, inclusive)
            below = index.below(literal, inclusive)
            if kind == BITMAP:
                assert above is below is None
                continue
            rest = [row for row in valid if row not in same]
            assert set(above) == extra | {row for row in rest if keys[row] > key}
            assert set(below) == extra | {row for row in rest if keys[row] < key}
    both = pa.array(probes, arrow_type(type_))
    assert set(index.equal_to(both)) == {
        row for probe in probes for row in index.equal_to(pa.array([probe], arrow_type(type_)))
    }


@settings(max_examples=80, deadline=None)
@given(cases())
def test_a_bloom_filter_never_loses_a_value(case: Any) -> None:
    type_, values, probes, cut = case
    if not can_index(BLOOM, type_):
        return
    column = pa.array(values, arrow_type(type_))
    index = opened(BLOOM, type_, [column[:cut], column[cut:]], items=1000, fpp=0.001)
    for value in values:
        if value is not None:
            assert index.equal_to(pa.array([value], arrow_type(type_))) is None
    found = index.equal_to(pa.array(probes, arrow_type(type_)))
    assert found is None or not found
    assert index.null_rows() is index.valid_rows() is None
    assert index.above(column[:1], True) is index.below(column[:1], True) is None


def test_a_bloom_filter_keeps_its_promise() -> None:
    type_ = a_type("BIGINT")
    payload = build(BLOOM, type_, [pa.array(np.arange(5_000))], items=5_000, fpp=0.02)
    index: Any = open_index(BLOOM, whole(payload), type_)
    passed = sum(index.equal_to(pa.array([n])) is None for n in range(10_000, 14_000))
    assert passed < 4_000 * 0.03
    empty = opened(BLOOM, type_, [], items=10)
    assert empty.equal_to(pa.array([0])) == pyroaring.BitMap()


def test_large_indexes_of_many_blocks_and_containers() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.integers(-5_000, 5_000, 150_000)
    texts = pa.array(np.char.mod("value-%d", numbers))
    for kind, type_, column in (
        (BITMAP, a_type("BIGINT"), pa.array(numbers)),
        (BITMAP, STRING, texts),
        (RANGE_BITMAP, STRING, texts),
        (RANGE_BITMAP, a_type("BIGINT"), pa.array(numbers)),
        (BSI, a_type("BIGINT"), pa.array(numbers)),
    ):
        index = opened(kind, type_, [column[:70_000], column[70_000:]])
        for row in (0, 77_777, 149_999):
            rows = np.flatnonzero(numbers == numbers[row]).tolist()
            assert list(index.equal_to(column[row : row + 1])) == rows
        above = index.above(column[:1], False)
        if above is not None and type_ != STRING:
            assert list(above) == np.flatnonzero(numbers > numbers[0]).tolist()


def test_a_number_without_absolute_value_leaves_the_index_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    least = -(1 << 63)
    field = DataField(id=0, name="c", type=a_type("BIGINT"))
    builder = FileIndexBuilder([field], [FileIndexSpec(BSI, "c"), FileIndexSpec(BITMAP, "c")])
    builder.add([pa.array([1, least])])
    container = read_container(MemorySource(builder.finish(), "p"))
    assert list(container.columns["c"]) == [BITMAP]
    assert "-2^63" in caplog.text
    index = opened(BSI, field.type, [pa.array([-3, 4, None])])
    literal = pa.array([least])
    assert set(index.equal_to(literal)) == set()
    assert set(index.above(literal, False)) == {0, 1}
    assert set(index.below(literal, True)) == set()


def test_rounded_timestamps() -> None:
    assert is_rounded(a_type("TIMESTAMP(9)"))
    assert not is_rounded(a_type("TIMESTAMP(6)"))
    column = pa.array([1_500, 1_999, -1], pa.timestamp("ns"))
    index = opened(BITMAP, a_type("TIMESTAMP(9)"), [column])
    assert set(index.equal_to(column[:1])) == {0, 1}
    assert set(index.equal_to(column[2:])) == {2}


# -------------------------------------------------------------------------------- bitmaps


@given(st.sets(st.integers(0, 300_000), max_size=60), st.integers(0, 70_000))
def test_bitmaps_survive_writing_and_reading(rows: set[int], run: int) -> None:
    bitmap = pyroaring.BitMap(rows) | pyroaring.BitMap(range(run, 2 * run))
    data = encode(bitmap)
    found, end = decode(whole(b"xx" + data + b"yy"), 2, rows=400_000)
    assert found == bitmap
    assert end == 2 + len(data)
    assert bitmap_of(np.array(sorted(bitmap), np.int64)) == bitmap


@profile(short=80, long=800)
@given(st.data())
def test_damaged_bitmaps_are_reported(data: st.DataObject) -> None:
    rows = pyroaring.BitMap(range(0, 9_000, 2)) | pyroaring.BitMap(range(70_000, 80_000))
    raw = bytearray(encode(rows | pyroaring.BitMap([200_000])))
    places = st.integers(0, 60) | st.integers(0, len(raw) - 1)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(places)] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.sampled_from([len(raw), len(raw) // 2, 9]))]
    assert_sound_or_reported(lambda: decode(whole(bytes(raw)), 0, rows=1 << 20))


def test_rows_beyond_the_file_are_damage() -> None:
    with pytest.raises(CorruptDataError, match="row 5 of 5"):
        decode(whole(encode(pyroaring.BitMap([5]))), 0, rows=5)


# --------------------------------------------------------------------------------- damage


PAYLOADS = [
    (BLOOM, "INT", {"items": 10}, [1, 2, 3, None]),
    (BITMAP, "INT", {"version": 1}, [1, 2, 1, None, 3, 1]),
    (BITMAP, "STRING", {"index-block-size": 40}, ["a", "b", "a", None, None, "c", "dd"]),
    (BSI, "BIGINT", {}, [1, -2, None, 5, 5]),
    (RANGE_BITMAP, "STRING", {"chunk-size": 12}, ["a", "b", None, "c", "dd", "a"]),
    (RANGE_BITMAP, "INT", {}, [1, 3, 5, None, 7]),
]


@profile(short=80, long=1000)
@given(st.sampled_from(PAYLOADS), st.data())
def test_damaged_payloads_are_reported_and_nothing_else(payload: Any, data: st.DataObject) -> None:
    kind, name, options, values = payload
    type_ = a_type(name)
    column = pa.array(values, arrow_type(type_))
    raw = bytearray(build(kind, type_, [column], **options))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))

    def ask() -> None:
        index: Any = open_index(kind, whole(bytes(raw)), type_)
        index.valid_rows()
        index.null_rows()
        for literal in (column[:1], column[1:2], column[4:5]):
            if literal.null_count == 0 and len(literal):
                index.equal_to(literal)
                index.above(literal, True)
                index.below(literal, False)

    assert_sound_or_reported(ask)


@profile(short=60, long=600)
@given(st.data())
def test_a_damaged_container_is_reported(data: st.DataObject) -> None:
    raw = bytearray(encode_container({"a": {BLOOM: b"xyz", BITMAP: None}, "列": {BSI: b"12"}}))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, 20, 3, 0]))]
    source = MemorySource(bytes(raw), "file.index")
    assert_sound_or_reported(lambda: read_container(source).payloads())


# ------------------------------------------------------------------------------ container


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.dictionaries(st.text(max_size=4), st.binary(max_size=9) | st.none(), max_size=3),
        max_size=4,
    )
)
def test_a_container_comes_back(columns: dict[str, dict[str, bytes | None]]) -> None:
    data = encode_container(columns)
    assert read_container(MemorySource(data, "p")).payloads() == columns


def test_names_are_modified_utf_8() -> None:
    data = encode_container({"\0a😀": {}})
    assert b"\x00\x09\xc0\x80a\xed\xa0\xbd\xed\xb8\x80" in data


def test_a_container_in_a_file_is_read_in_few_requests(tmp_path: pathlib.Path) -> None:
    class Counting(LocalFileIO):
        opened = 0

        def open_input(self, path: str) -> pa.NativeFile:
            type(self).opened += 1
            return super().open_input(path)

    path = f"{tmp_path}/x.index"
    big = bytes(range(256)) * 2_000
    Counting().write_bytes(path, encode_container({"a": {BITMAP: b"small"}, "b": {BSI: big}}))
    container: Any = read_container(FileSource(Counting(), path))
    window = container.columns["b"][BSI]
    assert container.columns["a"][BITMAP].read(0, 5) == b"small"
    assert Counting.opened == 1
    assert window.read(500_000, 100) == big[500_000:500_100]
    assert window.read(500_050, 50) == big[500_050:500_100]
    assert Counting.opened == 2
    with pytest.raises(CorruptDataError, match="outside of itself"):
        window.read(len(big), 1)
    with pytest.raises(CorruptDataError, match="is missing"):
        FileSource(Counting(), f"{tmp_path}/y.index")


# -------------------------------------------------------------------------------- options


def test_filters_that_cannot_be() -> None:
    for items, fpp in ((0, 0.1), (10, 0), (10, 1), (1 << 40, 0.001)):
        with pytest.raises(InvalidOptionError):
            parameters(items, fpp)


def test_every_index_says_what_it_takes() -> None:
    assert "DECIMAL up to precision 18" in takes(BSI)
    assert "TIMESTAMP up to precision 6" in takes(RANGE_BITMAP)
    for kind in INDEX_TYPES:
        assert not can_index(kind, a_type("DECIMAL(19, 2)"))
    assert not can_index(RANGE_BITMAP, a_type("TIMESTAMP(9)"))
    assert can_index(BLOOM, a_type("BYTES"))


def test_an_unknown_index_of_a_later_version_is_left_alone() -> None:
    assert open_index("global", whole(b"x"), STRING) is None
    assert open_index(BSI, whole(b"x"), STRING) is None


def test_an_index_without_rows_has_no_value() -> None:
    index: Any = open_index(BITMAP, None, STRING)
    literal = pa.array(["a"])
    assert not index.equal_to(literal)
    assert not index.above(literal, True)
    assert not index.below(literal, True)
    assert not index.valid_rows()
    assert index.null_rows() is None


def test_a_value_that_fits_no_block_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="index-block-size"):
        build(BITMAP, STRING, [pa.array(["x" * 100])], **{"index-block-size": 64})
    with pytest.raises(InvalidOptionError, match="version"):
        build(BITMAP, STRING, [pa.array(["x"])], version=3)


def test_decimals_are_indexed_by_their_digits() -> None:
    type_ = a_type("DECIMAL(10, 2)")
    column = pa.array([decimal.Decimal("-1.25"), None, decimal.Decimal("3.00")], arrow_type(type_))
    index = opened(BSI, type_, [column[1:], column[:1]])
    assert set(index.below(pa.array([decimal.Decimal("0.00")], arrow_type(type_)), False)) == {2}


def test_keys_of_maps_are_indexed_by_their_values() -> None:
    type_ = parse_type({"type": "MAP", "key": "STRING", "value": "INT"})
    rows = [[("a", 1), ("b", 2)], None, [("b", 3)], [], [("a", None)], [("c", 5), ("a", 4)]]
    column = pa.array(rows, arrow_type(type_))
    field = DataField(id=0, name="m", type=type_)
    specs = [FileIndexSpec(kind, "m", key) for key in "ab" for kind in (BITMAP, BSI)]
    for cut in range(7):
        builder = FileIndexBuilder([field], specs)
        builder.add([column[:cut]])
        builder.add([column[cut:]])
        container: Any = read_container(MemorySource(builder.finish(), "p"))
        assert list(container.columns) == ["m[a]", "m[b]"]
        for name, expected in (("m[a]", {0: 1, 5: 4}), ("m[b]", {0: 2, 2: 3})):
            for kind in (BITMAP, BSI):
                index: Any = open_index(kind, container.columns[name][kind], a_type("INT"))
                assert set(index.valid_rows()) == set(expected)
                for row, value in expected.items():
                    assert set(index.equal_to(pa.array([value], pa.int32()))) == {row}
    builder = FileIndexBuilder([field], specs)
    container = read_container(MemorySource(builder.finish(), "p"))
    assert container.columns["m[a]"] == {BITMAP: None, BSI: None}
