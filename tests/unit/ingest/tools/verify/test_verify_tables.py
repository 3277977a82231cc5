# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify` with another lake table and with Parquet files."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.errors import ExitCode
from tests.unit.ingest.tools.verify.kit import Pair

X, Y = ({"id": number, "name": name, "type": "DOUBLE"} for number, name in enumerate("xy"))
COLUMNS = (
    ("id", "STRING"),
    ("tags", {"type": "ARRAY", "element": "STRING"}),
    ("facts", {"type": "MAP", "key": "STRING", "value": "INT"}),
    ("place", {"type": "ROW", "fields": [X, Y]}),
    ("n", "DECIMAL(20, 2)"),
)
ROWS = [
    (f"k{i}", ["a", None, str(i)], [("one", i), ("two", 2)], {"x": i / 2, "y": None}, Decimal(i))
    for i in range(200)
]


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path)


def against(pair, name):
    return ["--against", f"{pair.warehouse}:{name}"]


def test_equal_to_another_table_whatever_its_layout(pair, capsys):
    pair.lake(COLUMNS, ROWS)
    other = pair.lake(COLUMNS, ROWS[:100], name="shop.other", options={"bucket": "5"})
    pair.put(other, [*reversed(ROWS[100:]), *ROWS[:3]])
    code, found = pair.run(capsys, *against(pair, "shop.other"))
    assert (code, found["outcome"], found["lake_rows"]) == (0, "equal", 200)


def test_nested_values_that_differ_are_told(pair, capsys):
    changed = [list(row) for row in ROWS]
    changed[1][1] = ["a", "1", None]
    changed[2][2] = [("one", 2), ("two", 3)]
    changed[3][3] = {"x": 1.5, "y": 0.0}
    changed[4][2] = list(reversed(ROWS[4][2]))  # the order of entries means nothing
    pair.lake(COLUMNS, ROWS)
    pair.lake(COLUMNS, changed, name="shop.other")
    code, found = pair.run(capsys, *against(pair, "shop.other"))
    assert code == ExitCode.DIFFERENT
    told = {each["key"]["id"]: list(each["columns"]) for each in found["examples"]}
    assert told == {"k1": ["tags"], "k2": ["facts"], "k3": ["place"]}


def test_columns_of_wider_types_convert(pair, capsys):
    pair.lake((("id", "BIGINT"), ("d", "DOUBLE")), [(1, 0.5)])
    pair.lake((("id", "INT"), ("d", "FLOAT")), [(1, 0.5)], name="shop.other")
    assert pair.run(capsys, *against(pair, "shop.other"))[0] == 0


def test_columns_that_do_not_convert_are_named(pair, capsys):
    pair.lake((("id", "INT"), ("d", "INT")), [(1, 1)])
    pair.lake((("id", "INT"), ("d", "STRING")), [(1, "x")], name="shop.other")
    code, found = pair.run(capsys, *against(pair, "shop.other"))
    assert (code, found["outcome"]) == (ExitCode.CONFIG, "failed")
    assert "--exclude d" in found["error"]


def parquet(folder, name, ids):
    folder.mkdir(exist_ok=True)
    table = pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "at": pa.array([datetime.datetime.fromtimestamp(i, datetime.UTC) for i in ids]),
            "name": pa.array([f"n{i}" for i in ids]).dictionary_encode(),
        }
    )
    pq.write_table(table, folder / name)


PARQUET = (("id", "BIGINT"), ("at", "TIMESTAMP_LTZ(6)"), ("name", "STRING"), ("made", "INT"))


def parquet_rows(ids):
    return [(i, datetime.datetime.fromtimestamp(i, datetime.UTC), f"n{i}", i) for i in ids]


def test_equal_to_parquet_files_of_a_directory_and_of_one_file(pair, tmp_path, capsys):
    parquet(tmp_path / "export", "a.parquet", range(50))
    parquet(tmp_path / "export", "b.parquet", range(50, 80))
    (tmp_path / "export" / "_SUCCESS").touch()
    pair.lake(PARQUET, parquet_rows(range(80)))
    code, found = pair.run(capsys, "--against", str(tmp_path / "export"))
    assert (code, found["not_compared"]) == (0, {"made": "not in the other table"})
    one = str(tmp_path / "export" / "a.parquet")
    code, found = pair.run(capsys, "--against", one, "--key-range", "..49")
    assert (code, found["source_rows"]) == (0, 50)
    code, found = pair.run(capsys, "--against", one, "--show", "1")
    assert (code, found["extra"]) == (ExitCode.DIFFERENT, 30)


def test_no_parquet_files_is_an_error(pair, tmp_path, capsys):
    pair.lake(PARQUET)
    (tmp_path / "empty").mkdir()
    assert pair.run(capsys, "--against", str(tmp_path / "empty"))[0] == ExitCode.CONFIG


def test_several_tables_by_a_glob(pair, capsys):
    pair.lake(PARQUET, parquet_rows([1]), name="shop.a")
    pair.lake(PARQUET, parquet_rows([1]), name="shop.b")
    assert pair.run(capsys, *against(pair, "shop.a"), table="shop.?")[0] == 0
    code, _ = pair.run(capsys, *against(pair, "shop.a"), table="none.*")
    assert code == ExitCode.CONFIG
