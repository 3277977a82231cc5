# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import pickle

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO
from storage.table.table_types import ObjectTable


def schema(**options: str) -> TableSchema:
    return TableSchema(
        id=0, fields=(), highest_field_id=-1, options={"type": "object-table", **options}
    )


def make(tmp_path: pathlib.Path) -> tuple[ObjectTable, pathlib.Path]:
    objects = tmp_path / "objects"
    objects.mkdir()
    catalog = FileSystemCatalog(str(tmp_path / "w"), LocalFileIO(durable=False))
    catalog.create_table("db.t", schema(**{"object-location": str(objects)}))
    table = catalog.table("db.t")
    assert isinstance(table, ObjectTable)
    return table, objects


def names(table: ObjectTable, **state: int) -> list[str]:
    return sorted(table.scan(columns=["name"], **state).to_arrow()["name"].to_pylist())


def test_columns_are_paimons(tmp_path: pathlib.Path) -> None:
    table, _ = make(tmp_path)
    assert [(field.name, str(field.type)) for field in table.schema.arrow_schema][:7] == [
        ("path", "string"),
        ("parent_path", "string"),
        ("name", "string"),
        ("length", "int64"),
        ("mtime", "timestamp[ms, tz=UTC]"),
        ("atime", "timestamp[ms, tz=UTC]"),
        ("owner", "string"),
    ]
    assert len(table.schema.fields) == 13


def test_a_refresh_lists_the_objects(tmp_path: pathlib.Path) -> None:
    table, objects = make(tmp_path)
    (objects / "sub").mkdir()
    (objects / "a.txt").write_text("12345")
    (objects / "sub" / "b.png").write_bytes(b"x")
    os.utime(objects / "a.txt", (1_700_000_000, 1_700_000_000))
    assert pickle.loads(pickle.dumps(table)).refresh() == 2
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["name"])
    assert {key: value for key, value in rows[0].items() if value is not None} == {
        "path": f"{objects}/a.txt",
        "parent_path": str(objects),
        "name": "a.txt",
        "length": 5,
        "mtime": rows[0]["mtime"],
    }
    assert rows[0]["mtime"].timestamp() == 1_700_000_000
    assert rows[1]["parent_path"] == f"{objects}/sub"
    assert table.to_arrow("length > 1", ["name"]).to_pylist() == [{"name": "a.txt"}]


def test_every_refresh_is_a_snapshot(tmp_path: pathlib.Path) -> None:
    table, objects = make(tmp_path)
    (objects / "a").write_text("1")
    table.refresh()
    (objects / "a").unlink()
    (objects / "b").write_text("1")
    (objects / "c").write_text("1")
    assert table.refresh() == 2
    (objects / "b").unlink()
    (objects / "c").unlink()
    assert table.refresh() == 0
    assert names(table) == []
    assert names(table, snapshot=1) == ["a"]
    assert names(table, snapshot=2) == ["b", "c"]
    assert table.with_options({"scan.snapshot-id": "1"}).to_arrow().num_rows == 1


def test_many_objects_are_one_commit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.table.table_types._ROWS", 2)
    table, objects = make(tmp_path)
    for number in range(5):
        (objects / str(number)).touch()
    assert table.refresh() == 5
    assert table.snapshots.ids() == [1]


def test_the_store_of_the_objects_may_be_another(tmp_path: pathlib.Path) -> None:
    store = ObjectStoreFileIO.in_memory()
    store.write_bytes("s3://memory/in/x/1.jpg", b"abc")
    catalog = FileSystemCatalog(str(tmp_path / "w"), LocalFileIO(durable=False))
    table = catalog.create_table("db.t", schema(**{"object-location": "s3://memory/in"}))
    assert table.refresh(file_io=store) == 1
    assert table.to_arrow()["path"].to_pylist() == ["s3://memory/in/x/1.jpg"]
    same = FileSystemCatalog("s3://memory/w", store)
    table = same.create_table("db.t", schema(**{"object-location": "s3://memory/in"}))
    assert table.refresh() == 1


def test_what_is_no_object_table(tmp_path: pathlib.Path) -> None:
    catalog = FileSystemCatalog(str(tmp_path))
    with pytest.raises(InvalidOptionError, match="needs a directory"):
        catalog.create_table("db.t", schema())
    own = new_schema(
        [("a", parse_type("INT"))],
        options={"type": "object-table", "object-location": "/x"},
        now_ms=0,
    )
    with pytest.raises(InvalidRequestError, match="columns of an object table are fixed"):
        catalog.create_table("db.t", own)
