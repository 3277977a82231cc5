# SPDX-License-Identifier: Apache-2.0
import datetime
import pathlib
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from storage.catalog.catalog import Catalog, FileSystemCatalog
from storage.clock import IdSource, ManualClock
from storage.errors import (
    CorruptDataError,
    InternalError,
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, RenameColumn
from storage.format.types.types import parse_type
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO
from storage.table.format_table import FormatTable

COLUMNS = (("a", "INT"), ("b", "STRING"), ("dt", "DATE"), ("p", "STRING"))
ROWS = [
    {
        "a": number,
        "b": None if number == 3 else f"x{number}",
        "dt": datetime.date(2024, 1, 1 + number % 2),
        "p": None if number % 5 == 0 else "p/q",
    }
    for number in range(10)
]


def make(
    warehouse: pathlib.Path | str,
    file_format: str = "csv",
    *,
    columns: Sequence[tuple[str, str]] = COLUMNS,
    partitions: Sequence[str] = ("dt", "p"),
    file_io: FileIO | None = None,
    ids: IdSource | None = None,
    **options: str,
) -> FormatTable:
    catalog = FileSystemCatalog(
        str(warehouse),
        file_io or LocalFileIO(durable=False),
        clock=ManualClock(),
        ids=ids,
    )
    schema = new_schema(
        [(name, parse_type(text)) for name, text in columns],
        partition_keys=partitions,
        options={"type": "format-table", "file.format": file_format, **options},
        now_ms=0,
    )
    catalog.create_table("db.t", schema)
    found = catalog.table("db.t")
    assert isinstance(found, FormatTable)
    return found


def batch(table: FormatTable, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=table.schema.arrow_schema)


def rows_of(table: FormatTable, *arguments: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow(*arguments).to_pylist(), key=str)


def files(table: FormatTable) -> list[str]:
    root = pathlib.Path(table.location)
    found = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    return sorted(path for path in found if not path.startswith("schema/"))


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("csv", {}),
        ("csv", {"file.compression": "gzip", "header": "true"}),
        ("csv", {"format-table.file.compression": "bzip2"}),
        ("json", {}),
        ("json", {"compression": "zstd"}),
        ("parquet", {}),
        ("parquet", {"file.compression": "zstd"}),
        ("orc", {}),
    ],
)
def test_rows_are_written_and_read(
    tmp_path: pathlib.Path, file_format: str, options: dict[str, str]
) -> None:
    table = pickle.loads(pickle.dumps(make(tmp_path, file_format, **options)))
    assert table.append_rows([batch(table, ROWS[:6]), batch(table, ROWS[6:])]) == 10
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["a"]) == ROWS
    assert table.to_arrow().schema == table.schema.arrow_schema
    assert rows_of(table, "a > 5 and dt = '2024-01-02'", ["b"]) == [{"b": "x7"}, {"b": "x9"}]
    assert table.to_arrow(columns=["p"]).num_rows == 10
    assert sum(batch.num_rows for batch in table.to_batches(columns=[])) == 10
    assert [row["a"] for row in rows_of(table, "p is null")] == [0, 5]


def test_partitions_are_hive_directories(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path)
    table.append_rows([batch(table, ROWS)])
    assert {path.rpartition("/")[0] for path in files(table)} == {
        "dt=2024-01-01/p=__DEFAULT_PARTITION__",
        "dt=2024-01-01/p=p%2Fq",
        "dt=2024-01-02/p=__DEFAULT_PARTITION__",
        "dt=2024-01-02/p=p%2Fq",
    }
    assert all(path.rpartition("/")[2].startswith("data-") for path in files(table))
    assert table.partitions().num_rows == 4


def test_only_directories_with_wanted_rows_are_listed(tmp_path: pathlib.Path) -> None:
    class Counting(LocalFileIO):
        listed: list[str]

        def list(self, path: str) -> Any:
            self.listed.append(path)
            return super().list(path)

    counting = Counting(durable=False)
    counting.listed = []
    table = make(tmp_path, file_io=counting)
    table.append_rows([batch(table, ROWS)])
    counting.listed.clear()
    splits = table.scan("dt = '2024-01-01' and p = 'p/q' and a >= 0").plan()
    assert len(splits) == 1
    assert not any("2024-01-02" in path for path in counting.listed)


def test_only_values_in_paths(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, **{"format-table.partition-path-only-value": "true"})
    table.append_rows([batch(table, ROWS)])
    assert any(path.startswith("2024-01-01/__DEFAULT_PARTITION__/") for path in files(table))
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["a"]) == ROWS


def test_files_of_others_are_read(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, columns=(("a", "INT"), ("b", "STRING"), ("p", "INT")), partitions=["p"])
    root = pathlib.Path(table.location)
    for name in ("p=1/part-0.csv", "p=1/sub/part-1", "p=2/x.csv"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{len(name)},{name}\n")
    for name in ("p=1/_SUCCESS", "p=1/.part-0.crc", "p=1/_temporary/0/part-0", "_x/p=3/y", "p=1/e"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("" if name.endswith("e") else "9,hidden\n")
    assert rows_of(table, None, ["b", "p"]) == [
        {"b": "p=1/part-0.csv", "p": 1},
        {"b": "p=1/sub/part-1", "p": 1},
        {"b": "p=2/x.csv", "p": 2},
    ]
    (root / "p=x").mkdir()
    with pytest.raises(CorruptDataError, match="no value of its partition column"):
        table.to_arrow()


def test_day_numbers_of_paimon_are_dates(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, columns=(("a", "INT"), ("dt", "DATE")), partitions=["dt"])
    directory = pathlib.Path(table.location) / "dt=19723"
    directory.mkdir(parents=True)
    (directory / "part").write_text("1\n")
    assert rows_of(table) == [{"a": 1, "dt": datetime.date(2024, 1, 1)}]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_columns_are_found_by_name(tmp_path: pathlib.Path, file_format: str) -> None:
    table = make(tmp_path, file_format, columns=(("a", "INT"), ("b", "STRING")), partitions=())
    path = pathlib.Path(table.location) / "other"
    rows = pa.table({"b": ["x"], "c": [1.5]})
    (pq if file_format == "parquet" else orc).write_table(rows, path)
    assert rows_of(table) == [{"a": None, "b": "x"}]


def test_row_groups_without_wanted_rows_are_not_read(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, "parquet", columns=(("a", "BIGINT"),), partitions=())
    rows = pa.table({"a": pa.array(range(100_000), pa.int64())})
    pq.write_table(rows, pathlib.Path(table.location) / "f", row_group_size=10_000)
    assert table.to_arrow("a = 55555").to_pylist() == [{"a": 55555}]
    assert table.to_arrow("a >= 99998")["a"].to_pylist() == [99998, 99999]


def test_overwrite_replaces_the_partitions_that_get_rows(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path)
    table.append_rows([batch(table, ROWS)])
    new = {"a": 100, "b": "new", "dt": datetime.date(2024, 1, 1), "p": None}
    assert table.overwrite_rows([batch(table, [new])]) == 1
    kept = [row for row in ROWS if (row["dt"].day, row["p"]) != (1, None)]
    assert rows_of(table) == sorted([*kept, new], key=str)


def test_overwrite_of_a_named_partition(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path)
    table.append_rows([batch(table, ROWS)])
    new = {"a": 100, "b": "new", "dt": datetime.date(2024, 1, 2), "p": "z"}
    table.overwrite_rows([batch(table, [new])], partition={"dt": "2024-01-02"})
    kept = [row for row in ROWS if row["dt"].day == 1]
    assert rows_of(table) == sorted([*kept, new], key=str)
    with pytest.raises(InvalidRequestError, match="does not belong"):
        table.overwrite_rows([batch(table, [new])], partition={"dt": "2024-01-01"})
    with pytest.raises(InvalidRequestError, match="no such partition column"):
        table.overwrite_rows([], partition={"a": 1})
    table.overwrite_rows([], partition={"p": None})
    assert not any(row["p"] is None for row in rows_of(table))


def test_overwrite_of_the_table(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, **{"dynamic-partition-overwrite": "false"})
    table.append_rows([batch(table, ROWS)])
    table.overwrite_rows([batch(table, ROWS[:1])])
    assert rows_of(table) == ROWS[:1]
    unpartitioned = make(tmp_path / "other", partitions=())
    unpartitioned.append_rows([batch(unpartitioned, ROWS)])
    unpartitioned.overwrite_rows([])
    assert unpartitioned.to_arrow().num_rows == 0
    assert unpartitioned.latest().schema.id == 0  # schema files are none of its data


def test_dropping_and_truncating(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path)
    table.append_rows([batch(table, ROWS)])
    assert table.drop_partitions([{"p": None}]) == 2
    assert {row["p"] for row in rows_of(table)} == {"p/q"}
    assert table.partitions().num_rows == 2
    with pytest.raises(InvalidRequestError, match="no partition is selected"):
        table.drop_partitions([{}])
    assert table.truncate() == 2
    assert rows_of(table) == []


def test_files_are_rolled(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, partitions=(), **{"target-file-row-num": "4"})
    table.append_rows([batch(table, ROWS)])
    assert len(files(table)) == 3
    assert rows_of(table) == sorted(ROWS, key=str)
    small = make(tmp_path / "small", "json", partitions=(), **{"target-file-size": "1 b"})
    small.append_rows([batch(small, ROWS[:1]), batch(small, ROWS[1:2])])
    assert len(files(small)) == 2


def test_a_write_that_fails_leaves_nothing(tmp_path: pathlib.Path) -> None:
    class Failing(LocalFileIO):
        puts = 0

        def put_if_absent(self, path: str, data: bytes) -> bool:
            if "data-" in path:
                self.puts += 1
                if self.puts > 2:
                    raise StorageUnavailableError("the store is away")
            return super().put_if_absent(path, data)

    failing = Failing(durable=False)
    table = make(tmp_path, file_io=failing)
    with pytest.raises(StorageUnavailableError):
        table.append_rows([batch(table, ROWS)])
    assert files(table) == []
    failing.puts = -10
    table.append_rows([batch(table, ROWS)])
    before = files(table)
    failing.puts = 2
    with pytest.raises(StorageUnavailableError):
        table.overwrite_rows([batch(table, ROWS)])
    assert files(table) == before


def test_a_name_that_is_taken_is_not_overwritten(tmp_path: pathlib.Path) -> None:
    class Same:
        def uuid(self) -> str:
            return "same"

    table = make(tmp_path, partitions=(), ids=Same())
    table.append_rows([batch(table, ROWS[:1])])
    with pytest.raises(InternalError, match="the name of an existing one"):
        table.append_rows([batch(table, ROWS[1:2])])
    assert rows_of(table) == ROWS[:1]


def test_rows_that_do_not_fit_are_refused(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, columns=(("a", "INT NOT NULL"), ("b", "STRING")), partitions=())
    with pytest.raises(InvalidRequestError, match="cannot write null"):
        table.append_rows([pa.RecordBatch.from_pydict({"a": [None], "b": ["x"]})])
    kinds = pa.array([3], pa.int8())
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int32()), pa.array(["x"]), kinds], names=["a", "b", "_VALUE_KIND"]
    )
    with pytest.raises(InvalidRequestError, match="only inserts"):
        table.append_rows([rows])
    assert files(table) == []


def test_what_needs_snapshots_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match="a format table has no `create_tag`"):
        table.create_tag("x")
    with pytest.raises(UnsupportedFeatureError, match="no snapshots"):
        table.with_options({"scan.snapshot-id": "1"})
    with pytest.raises(UnsupportedFeatureError, match="no snapshots"):
        table.scan(snapshot=1)
    with pytest.raises(AttributeError):
        _ = table.no_such_thing
    with pytest.raises(InvalidRequestError, match="no such column"):
        table.scan("z = 1")
    with pytest.raises(InvalidRequestError, match="no such column"):
        table.scan(columns=["z"])


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"file_format": "avro"}, UnsupportedFeatureError, "cannot have this format"),
        ({"file_format": "text"}, UnsupportedFeatureError, "one column"),
        ({"columns": (("a", "INT"),), "partitions": ["a"]}, InvalidRequestError, "all columns"),
        ({"csv.quote-character": ","}, InvalidOptionError, "must differ"),
        ({"file.compression": "lzo"}, InvalidOptionError, "no compression"),
        ({"primary-key": "a"}, InvalidRequestError, "primary-key"),
        ({"type": "lance-table"}, UnsupportedFeatureError, "type"),
    ],
)
def test_what_cannot_be_made(
    tmp_path: pathlib.Path, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make(tmp_path, **arguments)
    assert FileSystemCatalog(str(tmp_path)).list_tables("db") == []


def test_a_catalog_may_switch_format_tables_off(tmp_path: pathlib.Path) -> None:
    make(tmp_path)
    off = Catalog.open(str(tmp_path), {"format-table.enabled": "false"})
    with pytest.raises(UnsupportedFeatureError, match="switched off"):
        off.table("db.t")
    with pytest.raises(UnsupportedFeatureError, match="switched off"):
        off.create_table("db.other", off.schemas("db.t").read(0))


def test_csv_in_an_ordinary_table_is_refused(tmp_path: pathlib.Path) -> None:
    schema = new_schema([("a", parse_type("INT"))], options={"file.format": "csv"}, now_ms=0)
    with pytest.raises(UnsupportedFeatureError):
        FileSystemCatalog(str(tmp_path)).create_table("db.t", schema)


def test_columns_can_be_added(tmp_path: pathlib.Path) -> None:
    table = make(tmp_path, "json", columns=(("a", "INT"),), partitions=())
    table.append_rows([batch(table, [{"a": 1}])])
    table = table.alter([AddColumn(("b",), parse_type("STRING"), None)])
    table.append_rows([batch(table, [{"a": 2, "b": "x"}])])
    assert rows_of(table) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    renamed = table.alter([RenameColumn(("a",), "c")])
    assert renamed.schema.field_names == ("c", "b")


def test_object_stores(tmp_path: pathlib.Path) -> None:
    table = make("s3://memory/w", file_io=ObjectStoreFileIO.in_memory())
    table.append_rows([batch(table, ROWS)])
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["a"]) == ROWS
    assert len(table.scan("dt = '2024-01-01'").plan()) == 2
    table.overwrite_rows([batch(table, ROWS[:1])])
    assert table.drop_partitions([{"dt": "2024-01-02"}]) == 2
    table.truncate()
    assert rows_of(table) == []
