# SPDX-License-Identifier: Apache-2.0
"""Renamed and dropped tables: their Iceberg metadata and their entry in an Iceberg catalog."""

import pathlib
from typing import Any

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import StorageUnavailableError
from storage.format.metadata.schema_changes import RemoveOption
from storage.io.local import LocalFileIO
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, rows_of
from tests.unit.storage.table.iceberg.naive_reader import data_files, document, rows
from tests.unit.storage.table.iceberg.rest_catalog import rest_catalog
from tests.unit.storage.table.iceberg.test_twin import VECTORS, fill

STORAGES = ("table-location", "hadoop-catalog")


def catalog_at(warehouse: pathlib.Path) -> FileSystemCatalog:
    return FileSystemCatalog(str(warehouse), file_io=LocalFileIO(durable=False))


def metadata_of(table: FileStoreTable) -> pathlib.Path:
    root = pathlib.Path(table.layout.root)
    if table.options.iceberg_storage == "table-location":
        directory = root / "metadata"
    else:
        directory = root.parents[1] / "iceberg" / root.parent.stem / root.name / "metadata"
    return directory / f"v{(directory / 'version-hint.text').read_text()}.metadata.json"


def check(table: FileStoreTable) -> dict[str, Any]:
    """The metadata shows the rows, and names nothing outside of the table and its metadata."""
    path = metadata_of(table)
    assert rows(path) == rows_of(table)
    found = document(path)
    for snapshot in found["snapshots"]:
        directory = pathlib.Path(snapshot["manifest-list"]).parent
        assert directory == path.parent or directory.is_relative_to(table.layout.root)
        for file in data_files(snapshot):
            assert pathlib.Path(file).is_relative_to(table.layout.root)
    return found


@pytest.mark.parametrize("storage", STORAGES)
def test_a_renamed_table_is_another_table_under_its_new_name(tmp_path, storage):
    options = {**VECTORS, "metadata.iceberg.storage": storage}
    table = make_table(tmp_path, options=options)
    fill(table, 3)
    old = check(table)
    before = metadata_of(table)
    catalog = catalog_at(tmp_path)
    catalog.rename_table("db.t", "db.other")
    assert not before.exists()
    renamed = catalog.table("db.other")
    new = check(renamed)
    assert new["location"] == renamed.layout.root
    assert new["table-uuid"] != old["table-uuid"]
    again = make_table(tmp_path, options=options)
    fill(again, 2, first=100)
    check(again)
    fill(renamed, 2, first=10)
    check(renamed)
    check(again)


def with_branch(warehouse: pathlib.Path, storage: str) -> FileStoreTable:
    """A table, and a branch of it that has gone on."""
    table = make_table(warehouse, options={**VECTORS, "metadata.iceberg.storage": storage})
    fill(table, 2)
    table.create_tag("fixed")
    table.create_branch("b", tag="fixed")
    fill(table.at_branch("b"), 1, first=10)
    return table


@pytest.mark.parametrize("storage", STORAGES)
def test_branches_are_renamed_with_their_table(tmp_path, storage):
    with_branch(tmp_path, storage)
    catalog = catalog_at(tmp_path)
    catalog.rename_table("db.t", "db.other")
    renamed = catalog.table("db.other")
    branch = check(renamed)["refs"]["b"]["snapshot-id"]
    assert rows(metadata_of(renamed), branch) == rows_of(renamed.at_branch("b"))


@pytest.mark.parametrize("storage", STORAGES)
def test_branches_of_a_directory_that_was_moved_by_hand_appear_with_their_next_commit(
    tmp_path, storage
):
    table = with_branch(tmp_path, storage)
    pathlib.Path(table.layout.root).rename(tmp_path / "db.db" / "moved")
    moved = catalog_at(tmp_path).table("db.moved")
    fill(moved, 1, first=20)
    assert "b" not in check(moved)["refs"]
    fill(moved.at_branch("b"), 1, first=30)
    branch = check(moved)["refs"]["b"]["snapshot-id"]
    assert rows(metadata_of(moved), branch) == rows_of(moved.at_branch("b"))


@pytest.mark.parametrize("storage", STORAGES)
def test_a_dropped_table_leaves_no_metadata(tmp_path, storage):
    options = {**VECTORS, "metadata.iceberg.storage": storage}
    table = make_table(tmp_path, options=options)
    fill(table, 3)
    path = metadata_of(table)
    catalog_at(tmp_path).drop_table("db.t")
    assert not [one for one in path.parent.rglob("*") if one.is_file()]


def test_the_entry_of_an_iceberg_catalog_follows_renames_and_drops(tmp_path):
    with rest_catalog() as service:
        options = {
            **VECTORS,
            "metadata.iceberg.storage": "rest-catalog",
            "metadata.iceberg.rest.uri": service.uri,
        }
        table = make_table(tmp_path, options=options)
        fill(table, 2)
        catalog = catalog_at(tmp_path)
        catalog.rename_table("db.t", "db.other")
        assert service.tables.keys() == {"db.other"}
        assert rows(service.tables["db.other"]) == rows_of(catalog.table("db.other"))
        catalog.drop_table("db.other")
        assert not service.tables
        make_table(tmp_path, options=options)
        service.tables["db.t"] = {"table-uuid": "another", "properties": {}, "location": "/x"}
        catalog.drop_table("db.t")
        assert service.tables.keys() == {"db.t"}, "a table of others stays"


def test_a_table_whose_iceberg_catalog_does_not_answer_is_kept(tmp_path):
    options = {
        **VECTORS,
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": "http://127.0.0.1:1",
    }
    table = make_table(tmp_path, options=options)
    fill(table, 1)
    catalog = catalog_at(tmp_path)
    for change in (
        lambda: catalog.drop_table("db.t"),
        lambda: catalog.rename_table("db.t", "db.u"),
    ):
        with pytest.raises(StorageUnavailableError):
            change()
    assert rows_of(catalog.table("db.t")) == rows_of(table)
    table.alter([RemoveOption("metadata.iceberg.storage")])
    catalog.drop_table("db.t")
    assert not catalog.exists("db.t")
