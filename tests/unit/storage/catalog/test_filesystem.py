# SPDX-License-Identifier: Apache-2.0
import pathlib
import pickle
import shutil
from collections.abc import Iterable

import pytest

from storage.catalog.catalog import Catalog, FileSystemCatalog
from storage.errors import (
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn, DropColumn, SetOption
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.io.object_store import ObjectStoreFileIO
from storage.table.branches import create_branch
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, rows_of, write

INT = parse_type("INT")


def schema(**options: str) -> TableSchema:
    return new_schema(
        [("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1", **options}, now_ms=0
    )


@pytest.fixture
def catalog(tmp_path: pathlib.Path) -> FileSystemCatalog:
    return FileSystemCatalog(str(tmp_path / "w"), file_io=LocalFileIO(durable=False))


def test_databases_and_tables_are_directories(catalog: FileSystemCatalog) -> None:
    assert catalog.list_databases() == []  # there is no warehouse yet
    catalog.create_database("b")
    catalog.create_database("a")
    assert catalog.list_databases() == ["a", "b"]
    root = pathlib.Path(catalog.warehouse)
    assert list((root / "a.db").iterdir()) == []
    table = catalog.create_table("db.t", schema())
    assert catalog.table("db.t").schema == table.schema
    assert pathlib.Path(table.layout.root) == root / "db.db" / "t"
    assert [p.name for p in (root / "db.db" / "t").rglob("*") if p.is_file()] == ["schema-0"]


def test_a_table_that_was_dropped_is_gone_for_those_who_hold_it(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    FileSystemCatalog(str(tmp_path), file_io=LocalFileIO(durable=False)).drop_table("db.t")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    with pytest.raises(NotFoundError):
        table.latest()
    fresh = make_table(tmp_path, seed=77)
    write(fresh, 1, [("+I", 2, "b")])
    assert rows_of(fresh) == [(2, "b")]


def test_directories_of_names_that_are_not_allowed_are_not_listed(
    catalog: FileSystemCatalog,
) -> None:
    catalog.create_table("db.t", schema())
    root = pathlib.Path(catalog.warehouse)
    for name in ("sys.db", "a.b.db", ".db", " a.db", "a$b.db"):
        (root / name).mkdir()
    for name in ("a.b", "a$b", "a:b"):
        shutil.copytree(root / "db.db" / "t", root / "db.db" / name)
    assert catalog.list_databases() == ["db"]
    assert catalog.list_tables("db") == ["t"]


def test_a_directory_without_schema_is_no_table(catalog: FileSystemCatalog) -> None:
    (pathlib.Path(catalog.warehouse) / "db.db" / "stray").mkdir(parents=True)
    assert catalog.list_tables("db") == []
    assert not catalog.exists("db.stray")
    with pytest.raises(NotFoundError):
        catalog.table("db.stray")


@pytest.mark.parametrize(
    "name",
    [
        ".",
        ".t",
        "db.a/b",
        "db.a$files",
        "d b/.t",
        "db. t",
        "../x.t",
        "db..",
        "db.a:b",
    ],
)
def test_names_that_are_not_allowed(catalog: FileSystemCatalog, name: str) -> None:
    with pytest.raises(InvalidRequestError):
        catalog.create_table(name, schema())
    assert catalog.list_databases() == []


def test_opening_by_path(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    opened = FileStoreTable.open(table.layout.root)  # with ids that travel
    assert rows_of(opened) == [(1, "a")]
    copied = pickle.loads(pickle.dumps(opened))
    assert rows_of(copied) == [(1, "a")]
    assert copied.options == opened.options
    assert rows_of(FileStoreTable.open(f"file://{table.layout.root}/")) == [(1, "a")]
    with pytest.raises(NotFoundError):
        FileStoreTable.open(str(tmp_path / "nothing"))


def test_versions_of_a_table(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    newer = table.alter([AddColumn("w", INT)])
    assert newer.schema.id == 1
    assert newer.latest() is newer
    assert table.latest().schema.id == 1
    assert newer.with_schema(0).schema.field_names == ("k", "v")
    assert table.alter([]).schema.id == 1
    with pytest.raises(NotFoundError):
        table.with_schema(9)
    assert newer.alter([DropColumn("w")]).schema.id == 2


def test_dropping_asks_a_store_little_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ObjectStoreFileIO.in_memory()
    catalog = FileSystemCatalog("s3://memory/w", file_io=store)
    table = catalog.create_table("db.t", schema())
    for number in range(50):
        store.write_bytes(f"{table.layout.root}/bucket-0/data-{number}.parquet", b"1")
    asked: list[list[str]] = []
    real = ObjectStoreFileIO.delete_many

    def counted(self: ObjectStoreFileIO, paths: Iterable[str]) -> int:
        asked.append(list(paths))
        return real(self, asked[-1])

    monkeypatch.setattr(ObjectStoreFileIO, "delete_many", counted)
    monkeypatch.setattr(ObjectStoreFileIO, "delete", None)
    catalog.drop_table("db.t")
    assert [len(paths) for paths in asked] == [50, 1]
    assert "/schema/" in asked[1][0]
    assert not list(store.walk("s3://memory/w"))


def test_a_drop_that_leaves_files_keeps_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStoreFileIO.in_memory()
    catalog = FileSystemCatalog("s3://memory/w", file_io=store)
    table = catalog.create_table("db.t", schema())
    store.write_bytes(f"{table.layout.root}/bucket-0/data-1.parquet", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStoreFileIO, "delete_many", lambda self, paths: len(list(paths)) * 0)
        with pytest.raises(StorageUnavailableError, match="could not be removed"):
            catalog.drop_table("db.t")
    assert catalog.exists("db.t")
    catalog.drop_table("db.t")
    assert not catalog.exists("db.t")


def test_a_catalog_is_opened_by_its_kind(tmp_path):
    found = Catalog.open(str(tmp_path), {"metastore": "FileSystem"})
    assert isinstance(found, FileSystemCatalog)
    assert isinstance(Catalog.open(str(tmp_path)), FileSystemCatalog)
    with pytest.raises(UnsupportedFeatureError) as caught:
        Catalog.open(str(tmp_path), {"metastore": "glue"})
    assert "filesystem" in caught.value.hint


def test_other_kinds_say_where_tables_lie(tmp_path):
    """What a JDBC or Hive catalog adds: names from elsewhere; the rest is the same."""

    class Elsewhere(FileSystemCatalog):
        def table_path(self, identifier):
            return f"{self.warehouse}/anywhere/{identifier}"

    catalog = Elsewhere(str(tmp_path))
    schema = new_schema([("k", parse_type("INT NOT NULL"))], primary_keys=["k"], now_ms=0)
    catalog.create_table("a.b", schema)
    assert catalog.table("a.b").layout.root == f"{tmp_path}/anywhere/a.b"
    assert catalog.exists("a.b")


def test_the_newest_snapshot_is_that_of_the_branch_in_the_options(
    catalog: FileSystemCatalog,
) -> None:
    table = catalog.create_table("db.t", schema())
    assert catalog.newest_snapshot("db.t") is None
    for number in (1, 2):
        write(table, number, [("+I", number, number)])
    create_branch(table, "old", snapshot_id=1)
    assert catalog.newest_snapshot("db.t") == table.latest_snapshot()
    table.alter([SetOption("branch", "old")])
    newest = catalog.newest_snapshot("db.t")
    assert newest is not None
    assert newest.id == 1
    assert newest == catalog.table("db.t").latest_snapshot()


def test_the_newest_snapshot_of_nothing(catalog: FileSystemCatalog) -> None:
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.newest_snapshot("db.t")
    catalog.create_table("db.t", schema(branch="none"))
    with pytest.raises(NotFoundError, match="no such branch"):
        catalog.newest_snapshot("db.t")
