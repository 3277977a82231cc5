# SPDX-License-Identifier: Apache-2.0
"""The JDBC catalog where the contract of all catalogs does not reach: renames that are cut off."""

import pathlib
import subprocess
import sys

import pytest

from storage.catalog.catalog import Catalog
from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from tests.table_kit import rows_of, write

INT = parse_type("INT")

_DYING = """
import os, sys
from storage.io.local import LocalFileIO
from storage.catalog.catalog import Catalog
from storage.catalog import jdbc

moment, warehouse, uri = sys.argv[1:]
move = LocalFileIO.rename_directory

def dying(self, old, new):
    if moment == "after the files":
        move(self, old, new)
    os._exit(7)

LocalFileIO.rename_directory = dying
Catalog.open(warehouse, {"metastore": "jdbc", "uri": uri}).rename_table("db.old", "db.new")
"""


def opened(directory: pathlib.Path) -> Catalog:
    return Catalog.open(str(directory), {"metastore": "jdbc", "uri": f"jdbc:sqlite:{directory}/c"})


@pytest.fixture
def cut_off(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Catalog:
    """A catalog in which a process died while it renamed `db.old` to `db.new`."""
    catalog = opened(tmp_path)
    catalog.create_database("db")
    schema = new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})
    write(catalog.create_table("db.old", schema), 1, [("+I", 1, 10)])
    command = [sys.executable, "-c", _DYING, request.param, str(tmp_path)]
    done = subprocess.run([*command, f"jdbc:sqlite:{tmp_path}/c"], check=False, timeout=60)
    assert done.returncode == 7
    return opened(tmp_path)


_MOMENTS = pytest.mark.parametrize(
    "cut_off", ["before the files", "after the files"], indirect=True
)


@_MOMENTS
def test_the_table_keeps_its_name_and_its_rows(cut_off: Catalog) -> None:
    assert cut_off.list_tables("db") == ["old"]
    with pytest.raises(NotFoundError):
        cut_off.table("db.new")
    assert rows_of(cut_off.table("db.old")) == [(1, 10)]
    cut_off.rename_table("db.old", "db.new")
    assert cut_off.list_tables("db") == ["new"]
    assert rows_of(cut_off.table("db.new")) == [(1, 10)]


@_MOMENTS
def test_the_new_name_is_free(cut_off: Catalog) -> None:
    schema = new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})
    assert rows_of(cut_off.create_table("db.new", schema)) == []
    assert rows_of(cut_off.table("db.old")) == [(1, 10)]


@_MOMENTS
def test_the_table_can_be_dropped(cut_off: Catalog, tmp_path: pathlib.Path) -> None:
    cut_off.drop_table("db.old")
    assert not list(tmp_path.glob("db.db/**/*.parquet"))
    assert cut_off.list_tables("db") == []


def test_a_rename_that_fails_leaves_no_note(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened(tmp_path)
    catalog.create_database("db")
    schema = new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})
    table = catalog.create_table("db.old", schema)
    write(table, 1, [("+I", 1, 10)])
    with monkeypatch.context() as patched:
        patched.setattr(LocalFileIO, "rename_directory", _fail)
        with pytest.raises(PermissionError):
            catalog.rename_table("db.old", "db.new")
    (tmp_path / "db.db" / "taken").mkdir()
    (tmp_path / "db.db" / "taken" / "file").touch()
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.rename_table("db.old", "db.taken")
    assert rows_of(catalog.table("db.old")) == [(1, 10)]
    assert catalog._renaming_to("db.old") is None


def _fail(*_: object) -> None:
    raise PermissionError("read-only")
