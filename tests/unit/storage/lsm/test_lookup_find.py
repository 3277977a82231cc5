# SPDX-License-Identifier: Apache-2.0
"""What a lookup finds: every key type, several runs, deleted rows, other schemas."""

import datetime
import decimal
import math
import struct

import numpy as np
import pyarrow as pa
import pyroaring
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.format.files.data_file import key_value_schema
from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.levels import SortedRun
from storage.lsm.lookup import local_copy
from tests.unit.storage.key_value_files import schema_of
from tests.unit.storage.lookup_buckets import (
    Vectors,
    keys_of,
    lookup_in,
    run_of,
    sequences,
    store_at,
)

_DAY = datetime.date(2024, 2, 29)
_NOON = datetime.datetime(2024, 2, 29, 12)  # noqa: DTZ001 - without a zone, like the type
_KEYS = {
    "BOOLEAN": [False, True],
    "TINYINT": [-128, -1, 0, 7, 127],
    "SMALLINT": [-30_000, 0, 30_000],
    "INT": [-(2**31), 0, 5, 2**31 - 1],
    "BIGINT": [-(2**63), -1, 0, 5, 2**63 - 1],
    "FLOAT": [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan],
    "DOUBLE": [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan],
    "DECIMAL(10, 2)": [decimal.Decimal(n).scaleb(-2) for n in (-500, -1, 0, 3, 99_999)],
    "DECIMAL(30, 5)": [decimal.Decimal(n).scaleb(-5) for n in (-(10**25), 0, 1, 10**25)],
    "STRING": ["", "a", "a\0", "ab", "abc" * 50, "ä", "\U0001f600"],
    "CHAR(3)": ["abc", "abd", "b  "],
    "BYTES": [b"", b"\0", b"\0\0", b"\x7f", b"\xff" * 40],
    "DATE": [_DAY + datetime.timedelta(n) for n in (-40_000, 0, 1)],
    "TIME(3)": [datetime.time(0), datetime.time(23, 59, 59, 999_000)],
    "TIMESTAMP(3)": [_NOON + datetime.timedelta(milliseconds=n) for n in (-(10**13), 0, 1)],
    "TIMESTAMP(6)": [_NOON + datetime.timedelta(microseconds=n) for n in (-(10**15), 0, 1)],
    "TIMESTAMP(9)": [_NOON + datetime.timedelta(microseconds=n) for n in (-(10**15), 0, 1)],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [
        (_NOON + datetime.timedelta(microseconds=n)).replace(tzinfo=datetime.UTC) for n in (0, 1)
    ],
}


@pytest.mark.parametrize("kind", _KEYS)
def test_keys_of_every_type_are_found_and_others_are_not(tmp_path, kind):
    values = _KEYS[kind]
    schema = schema_of(("k", f"{kind} NOT NULL"), ("v", "INT"))
    present = values[::2]
    run = run_of(tmp_path, schema, {"k": present, "v": list(range(len(present)))})
    found = lookup_in(tmp_path, schema, store_at(tmp_path / "copies")).find(
        keys_of(schema, {"k": values}), [run]
    )
    assert found.keys.tolist() == list(range(0, len(values), 2))
    assert found.positions.tolist() == list(range(len(present)))
    assert found.rows["v"].to_pylist() == list(range(len(present)))
    assert found.rows.schema == key_value_schema(schema)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_any_nan_is_the_one_nan(tmp_path, kind):
    schema = schema_of(("k", f"{kind} NOT NULL"), ("v", "INT"))
    run = run_of(tmp_path, schema, {"k": [1.0, math.nan], "v": [1, 2]})
    code, width = (("<q", pa.float64()), ("<i", pa.float32()))[kind == "FLOAT"]
    other = {"<q": 0x7FF8_0000_0000_0001 - 2**64 + 2**63, "<i": 0x7FC0_0001 - 2**32 + 2**31}[code]
    asked = pa.Array.from_buffers(width, 1, [None, pa.py_buffer(struct.pack(code, other))])
    assert math.isnan(asked[0].as_py())
    keys = pa.RecordBatch.from_arrays([asked], names=["k"])
    found = lookup_in(tmp_path, schema, store_at(tmp_path / "copies")).find(keys, [run])
    assert found.rows["v"].to_pylist() == [2]


def test_a_key_of_several_columns(tmp_path):
    schema = schema_of(
        ("v", "STRING"), ("b", "INT NOT NULL"), ("a", "STRING NOT NULL"), keys=("a", "b")
    )
    rows = [("x", 1), ("x", 3), ("y", 2), ("y", 3)]
    run = run_of(
        tmp_path,
        schema,
        {"a": [a for a, _ in rows], "b": [b for _, b in rows], "v": [None, "p", "q", None]},
    )
    asked = [("w", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 3), ("z", 0)]
    found = lookup_in(tmp_path, schema, store_at(tmp_path / "copies")).find(
        keys_of(schema, {"a": [a for a, _ in asked], "b": [b for _, b in asked]}), [run]
    )
    assert found.keys.tolist() == [2, 4]
    assert found.rows["v"].to_pylist() == ["p", None]


@pytest.mark.parametrize("kind", ["INT", "STRING", "DECIMAL(30, 2)"])
def test_null_is_a_key_like_others_where_keys_may_be_null(tmp_path, kind):
    values = {"INT": [None, 1, 2], "STRING": [None, "", "a"]}.get(
        kind, [None, decimal.Decimal("0.00"), decimal.Decimal("1.00")]
    )
    schema = schema_of(("k", kind), ("v", "INT"), options={"primary-key.nullable": "true"})
    with_null = run_of(tmp_path, schema, {"k": values[:2], "v": [1, 2]}, level=1)
    without = run_of(tmp_path, schema, {"k": values[1:], "v": [3, 4]}, level=2)
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"))
    keys = keys_of(schema, {"k": values})
    assert lookup.find(keys, [with_null]).rows["v"].to_pylist() == [1, 2]
    assert lookup.find(keys, [without]).keys.tolist() == [1, 2]
    assert lookup.find(keys, [with_null, without]).rows["v"].to_pylist() == [1, 2, 4]
    assert lookup.find(keys.slice(0, 1), [without]).keys.tolist() == []


def test_each_key_is_from_the_first_run_that_has_it(tmp_path):
    schema = schema_of(("k", "BIGINT NOT NULL"), ("v", "STRING"))
    low = run_of(tmp_path, schema, {"k": [1, 4, 7], "v": ["l1", "l4", "l7"]}, level=1)
    high = run_of(
        tmp_path, schema, {"k": list(range(10)), "v": [f"h{n}" for n in range(10)]}, level=5,
        files=3,
    )  # fmt: skip
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"))
    keys = keys_of(schema, {"k": [0, 1, 5, 7, 9, 12]})
    found = lookup.find(keys, [low, high])
    assert found.rows["v"].to_pylist() == ["h0", "l1", "h5", "l7", "h9"]
    assert found.keys.tolist() == [0, 1, 2, 3, 4]
    names = [found.files[number].file_name for number in found.file_of]
    assert names == [
        high.files[0].file_name,
        low.files[0].file_name,
        high.files[1].file_name,
        low.files[0].file_name,
        high.files[2].file_name,
    ]
    assert found.positions.tolist() == [0, 0, 1, 2, 1]
    assert found.positions.dtype == found.keys.dtype == np.int64
    assert found.file_of.dtype == np.int32
    where = lookup.find(keys, [low, high], values=False)
    assert where.rows is None
    assert where.positions.tolist() == found.positions.tolist()
    assert where.file_of.tolist() == found.file_of.tolist()


def test_files_whose_range_has_none_of_the_keys_are_not_copied(tmp_path):
    schema = schema_of(("k", "INT NOT NULL"), ("v", "INT"))
    run = run_of(tmp_path, schema, {"k": list(range(30)), "v": list(range(30))}, files=3)
    store = store_at(tmp_path / "copies")
    lookup = lookup_in(tmp_path, schema, store)
    assert lookup.find(keys_of(schema, {"k": [-5, 40]}), [run]).keys.tolist() == []
    assert store.counters().built_files == 0
    assert lookup.find(keys_of(schema, {"k": [9, 20, 40]}), [run]).keys.tolist() == [0, 1]
    assert store.counters().built_files == 2


def test_no_keys_and_no_runs_find_nothing(tmp_path):
    schema = schema_of(("k", "INT NOT NULL"), ("v", "INT"))
    run = run_of(tmp_path, schema, {"k": [1], "v": [1]})
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"))
    for keys, runs in (([], [run]), ([1], [])):
        found = lookup.find(keys_of(schema, {"k": keys}), runs)
        assert len(found.keys) == len(found.positions) == len(found.file_of) == 0
        assert found.rows.num_rows == 0
        assert found.rows.schema == key_value_schema(schema)


@pytest.mark.parametrize("bitmap", [pyroaring.BitMap, pyroaring.BitMap64])
def test_deleted_rows_are_not_found_and_the_next_run_is_asked(tmp_path, bitmap):
    schema = schema_of(("k", "STRING NOT NULL"), ("v", "INT"))
    low = run_of(tmp_path, schema, {"k": ["a", "b", "c"], "v": [1, 2, 3]}, level=1)
    high = run_of(tmp_path, schema, {"k": ["a", "b", "c"], "v": [4, 5, 6]}, level=2)
    deletions = Vectors(**{low.files[0].file_name: bitmap([0, 2]),
                           high.files[0].file_name: bitmap([2])})  # fmt: skip
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"), deletions=deletions)
    found = lookup.find(keys_of(schema, {"k": ["a", "b", "c"]}), [low, high])
    assert found.keys.tolist() == [0, 1]
    assert found.rows["v"].to_pylist() == [4, 2]
    del deletions.vectors[low.files[0].file_name]  # vectors change while copies stay
    again = lookup.find(keys_of(schema, {"k": ["a", "b", "c"]}), [low, high])
    assert again.rows["v"].to_pylist() == [1, 2, 3]


def test_retractions_are_found_as_such(tmp_path):
    schema = schema_of(("k", "INT NOT NULL"), ("v", "INT"))
    run = run_of(tmp_path, schema, {"k": [1, 2], "v": [1, None]},
                 kinds=[RowKind.INSERT.value, RowKind.DELETE.value])  # fmt: skip
    found = lookup_in(tmp_path, schema, store_at(tmp_path / "copies")).find(
        keys_of(schema, {"k": [1, 2]}), [run]
    )
    assert found.rows[VALUE_KIND].to_pylist() == [RowKind.INSERT.value, RowKind.DELETE.value]


def test_rows_of_an_older_schema_come_in_todays(tmp_path):
    old = schema_of(("k", "INT NOT NULL", 0), ("v", "INT", 1), ("gone", "STRING", 2), id_=0)
    new = schema_of(
        ("more", "STRING", 3), ("k", "INT NOT NULL", 0), ("renamed", "BIGINT", 1), id_=1
    )
    run = run_of(tmp_path, old, {"k": [1, 2], "v": [10, 20], "gone": ["x", "y"]})
    store = store_at(tmp_path / "copies")
    before = lookup_in(tmp_path, old, store).find(keys_of(old, {"k": [2]}), [run])
    assert before.rows["gone"].to_pylist() == ["y"]
    lookup = lookup_in(tmp_path, new, store, schemas={0: old, 1: new})
    found = lookup.find(keys_of(new, {"k": [2, 3]}), [run])
    assert found.rows.schema == key_value_schema(new)
    assert found.rows["renamed"].to_pylist() == [20]
    assert found.rows["more"].to_pylist() == [None]
    assert store.counters().built_files == 2


def test_nested_values_and_many_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(local_copy, "_CHUNK_ROWS", 100)
    monkeypatch.setattr(local_copy, "_READ_ROWS", 40)
    fields = [
        {"id": 10, "name": "a", "type": "INT"},
        {"id": 11, "name": "b", "type": "STRING"},
    ]
    schema = schema_of(
        ("k", "BIGINT NOT NULL"),
        ("list", {"type": "ARRAY", "element": "INT"}),
        ("row", {"type": "ROW", "fields": fields}),
    )
    rows = 1000
    values = {
        "k": [3 * n for n in range(rows)],
        "list": [None if n % 7 == 0 else [n] * (n % 4) for n in range(rows)],
        "row": [{"a": n, "b": None if n % 3 else f"{n}"} for n in range(rows)],
    }
    run = run_of(tmp_path, schema, values)
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"))
    asked = list(range(0, 3 * rows, 2))
    found = lookup.find(keys_of(schema, {"k": asked}), [run])
    expected = [n for n in range(rows) if 3 * n % 2 == 0]
    assert found.positions.tolist() == expected
    for name in ("list", "row"):
        assert found.rows[name].to_pylist() == [values[name][n] for n in expected]


def test_keys_with_equal_hashes_are_told_apart(tmp_path, monkeypatch):
    real = local_copy.key_words

    def few(columns, types, seed):
        return real(columns, types, seed) & np.uint64(0x3 << 62)

    monkeypatch.setattr(local_copy, "key_words", few)
    monkeypatch.setattr("storage.lsm.lookup.local_copy.key_words", few)
    schema = schema_of(("k", "STRING NOT NULL"), ("v", "INT"))
    run = run_of(tmp_path, schema, {"k": [f"{n:03}" for n in range(0, 200, 2)],
                                    "v": list(range(100))})  # fmt: skip
    found = lookup_in(tmp_path, schema, store_at(tmp_path / "copies")).find(
        keys_of(schema, {"k": [f"{n:03}" for n in range(200)]}), [run]
    )
    assert found.keys.tolist() == list(range(0, 200, 2))
    assert found.rows["v"].to_pylist() == list(range(100))


def test_only_the_key_columns_are_touched_without_values(tmp_path):
    schema = schema_of(("k", "STRING NOT NULL"), ("v", "STRING"))
    run = run_of(tmp_path, schema, {"k": ["a", "b"], "v": ["x" * 1000, "y" * 1000]})
    lookup = lookup_in(tmp_path, schema, store_at(tmp_path / "copies"))
    lookup.find(keys_of(schema, {"k": ["a"]}), [run])
    taken = []
    (copy,) = lookup.store._open.values()
    copy.rows = lambda positions: taken.append(positions)
    assert lookup.find(keys_of(schema, {"k": ["b"]}), [run], values=False).rows is None
    assert taken == []


_TEXT = st.text(st.sampled_from("ab\0ä"), max_size=3)
_KEY = st.tuples(st.integers(-3, 3), _TEXT)


@pytest.mark.parametrize("names", [("a",), ("b",), ("a", "b")])
@settings(max_examples=25, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(st.data())
def test_lookup_is_that_of_a_dict(tmp_path_factory, names, data):
    folder = tmp_path_factory.mktemp("bucket")
    schema = schema_of(("a", "INT NOT NULL"), ("b", "STRING NOT NULL"), ("v", "INT"), keys=names)
    columns = [("a", "b").index(name) for name in names]

    def by_key(rows):
        return {tuple(row[i] for i in columns): row for row in rows}

    levels = data.draw(st.lists(st.lists(_KEY, min_size=1, max_size=12), min_size=1, max_size=3))
    runs: list[SortedRun] = []
    vectors, expected = {}, {}
    for level, rows in enumerate(levels, 1):
        present = by_key(rows)
        count = len(present)
        numbers = [100 * level + n for n in range(count)]
        run = run_of(
            folder, schema,
            {"a": [row[0] for row in present.values()], "b": [row[1] for row in present.values()],
             "v": numbers},
            level=level, files=data.draw(st.integers(1, 3)), sequences=numbers,
        )  # fmt: skip
        runs.append(run)
        order = sorted(range(count), key=lambda n, keys=list(present): [
            part.encode() if isinstance(part, str) else part for part in keys[n]])  # fmt: skip
        position = 0
        keys = list(present)
        for file in run.files:
            gone = data.draw(st.sets(st.integers(0, file.row_count - 1)))
            vectors[file.file_name] = pyroaring.BitMap(gone)
            for inside in range(file.row_count):
                number = order[position]
                position += 1
                if inside not in gone:
                    expected.setdefault(keys[number], numbers[number])
    asked = by_key(data.draw(st.lists(_KEY, max_size=20)))
    batch = keys_of(
        schema,
        {"a": [row[0] for row in asked.values()], "b": [row[1] for row in asked.values()]},
    )
    lookup = lookup_in(folder, schema, store_at(folder / "copies"), deletions=Vectors(**vectors))
    found = lookup.find(batch, runs)
    wanted = {
        number: expected[key]
        for number, key in enumerate(
            tuple(row[name] for name in names) for row in batch.to_pylist()
        )
        if key in expected
    }
    assert sequences(found) == wanted
    assert found.rows["v"].to_pylist() == list(wanted.values())
