# SPDX-License-Identifier: Apache-2.0
"""`lakeward table create|alter|set-option|rename|drop`, by warehouse and by a catalog's file."""

import contextlib
import json

import pytest

from ingest.cli.main import main
from storage.catalog.catalog import Catalog
from tests.table_kit import rows_of, write


@pytest.fixture(params=["warehouse", "catalog file"])
def place(request, tmp_path, monkeypatch):
    """What the commands are given, and the catalog behind it."""
    warehouse = str(tmp_path / "w")
    if request.param == "warehouse":
        return warehouse, Catalog.open(warehouse)
    file = tmp_path / "catalog.yaml"
    monkeypatch.setenv("CATALOG_DIR", str(tmp_path))
    file.write_text(
        f"metastore: jdbc\nuri: jdbc:sqlite:${{CATALOG_DIR}}/names.db\nwarehouse: {warehouse}\n"
        "lock: {enabled: true}\n"
    )
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/names.db"}
    return str(file), Catalog.open(warehouse, options)


def run(capsys, *arguments: str) -> dict:
    assert main(["table", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fails(capsys, *arguments: str) -> str:
    with contextlib.suppress(SystemExit):
        assert main(["table", *arguments]) != 0
    return capsys.readouterr().err


CREATE = ("shop.t", "id BIGINT", "`a b` DECIMAL(10, 2)", "dt STRING")


def test_create(place, capsys):
    where, catalog = place
    more = ("--primary-key", "id,dt", "--partitioned-by", "dt", "--option", "bucket=2")
    said = run(capsys, "create", where, *CREATE, *more, "--dry-run")
    assert said["result"] == "would be created"
    assert catalog.list_databases() == []
    said = run(capsys, "create", where, *CREATE, *more, "--comment", "orders")
    assert said["columns"] == {"id": "BIGINT NOT NULL", "a b": "DECIMAL(10, 2)"} | {
        "dt": "STRING NOT NULL"
    }
    schema = catalog.table("shop.t").schema
    assert (schema.primary_keys, schema.partition_keys) == (("id", "dt"), ("dt",))
    assert (schema.options["bucket"], schema.comment) == ("2", "orders")
    assert "exists already" in fails(capsys, "create", where, *CREATE)
    assert run(capsys, "create", where, *CREATE, "--if-not-exists")["result"] == "exists"
    assert "bucket" in fails(capsys, "create", where, "shop.u", "id INT", "--option", "bucket=x")
    assert not catalog.exists("shop.u")


@pytest.mark.parametrize("column", ["id", "id NONSENSE", "", "id DECIMAL(99, 2)"])
def test_columns_that_cannot_be_read(tmp_path, capsys, column):
    assert "NAME TYPE" in fails(capsys, "create", str(tmp_path), "shop.t", column)
    assert Catalog.open(str(tmp_path)).list_databases() == []


def test_alter_and_options(place, capsys):
    where, catalog = place
    run(capsys, "create", where, "shop.t", "id INT", "v INT", "--primary-key", "id")
    write(catalog.table("shop.t"), 1, [("+I", 1, 10)])
    changes = ("--add", "note STRING", "--rename", "v=w", "--type", "w=BIGINT", "--comment", "c")
    assert run(capsys, "alter", where, "shop.t", *changes, "--dry-run")["schema"] == 1
    assert catalog.table("shop.t").schema.id == 0
    said = run(capsys, "alter", where, "shop.t", *changes)
    assert said["columns"] == {"id": "INT NOT NULL", "w": "BIGINT", "note": "STRING"}
    assert rows_of(catalog.table("shop.t")) == [(1, 10, None)]
    assert "id" in fails(capsys, "alter", where, "shop.t", "--drop", "note", "--drop", "id")
    assert catalog.table("shop.t").schema.id == 1
    assert "at least one change" in fails(capsys, "alter", where, "shop.t")
    run(capsys, "set-option", where, "shop.t", "snapshot.num-retained.max=50", "write-only=true")
    run(capsys, "set-option", where, "shop.t", "--reset", "write-only")
    options = catalog.table("shop.t").schema.options
    assert options["snapshot.num-retained.max"] == "50"
    assert "write-only" not in options
    assert "primary-key" in fails(capsys, "set-option", where, "shop.t", "primary-key=v")
    assert "write-only" in fails(capsys, "set-option", where, "shop.t", "write-onli=true")


def test_rename_and_drop(place, capsys):
    where, catalog = place
    run(capsys, "create", where, "shop.t", "id INT", "v INT", "--primary-key", "id")
    write(catalog.table("shop.t"), 1, [("+I", 1, 10)])
    run(capsys, "rename", where, "shop.t", "shop.u", "--dry-run")
    assert catalog.list_tables("shop") == ["t"]
    run(capsys, "rename", where, "shop.t", "shop.u")
    assert rows_of(catalog.table("shop.u")) == [(1, 10)]
    assert "no such table" in fails(capsys, "rename", where, "shop.t", "shop.v")
    assert run(capsys, "drop", where, "shop.u", "--dry-run")["records"] == 1
    assert catalog.exists("shop.u")
    run(capsys, "drop", where, "shop.u")
    assert catalog.list_tables("shop") == []
    assert "no such table" in fails(capsys, "drop", where, "shop.u")
    run(capsys, "drop", where, "shop.u", "--if-exists")


def test_other_commands_take_a_catalog(place, capsys):
    where, _ = place
    run(capsys, "create", where, "shop.t", "id INT")
    assert run(capsys, "ls", where)["table"] == "shop.t"
    chosen = ("--catalog", where) if where.endswith(".yaml") else ("--warehouse", where)
    assert main(["compact", *chosen, "shop.t"]) == 0
    assert "one of --warehouse, --catalog and -c" in fails_of(capsys, "compact", "shop.t")


def fails_of(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(list(arguments))
    return capsys.readouterr().err


def test_a_catalog_file_that_is_none(tmp_path, capsys):
    file = tmp_path / "catalog.yaml"
    file.write_text("metastore: [a, b]\nwarehouse: x\n")
    assert "not a string" in fails(capsys, "ls", str(file))
    file.write_text("metastore: jdbc\nurl: jdbc:sqlite:/x\nwarehouse: x\n")
    assert "did you mean `uri`" in fails(capsys, "ls", str(file))
    file.write_text("metastore: jdbc\nwarehouse: x\n")
    assert "needs the address" in fails(capsys, "ls", str(file))
