# SPDX-License-Identifier: Apache-2.0
"""The tables of `sys`."""

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.catalog.system_tables import catalog_system_table
from storage.errors import NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from tests.table_kit import make_table, write


def catalog_of(path, **options):
    catalog = FileSystemCatalog(str(path), LocalFileIO(durable=False), options=options)
    for name, bucket in (("a.t", "1"), ("b.u", "2")):
        schema = new_schema(
            [("k", parse_type("INT NOT NULL"))], primary_keys=["k"], options={"bucket": bucket}
        )
        catalog.create_table(name, schema)
    return catalog


def test_options_of_all_tables(tmp_path):
    found = catalog_system_table(catalog_of(tmp_path), "all_table_options")
    assert found.column_names == ["database_name", "table_name", "key", "value"]
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert [row for row in rows if row[2] == "bucket"] == [
        ("a", "t", "bucket", "1"),
        ("b", "u", "bucket", "2"),
    ]


def test_options_of_the_catalog_without_secrets(tmp_path):
    options = {"s3.endpoint": "http://host", "s3.secret-key": "hidden"}
    found = catalog_system_table(catalog_of(tmp_path, **options), "catalog_options")
    rows = {row["key"]: row["value"] for row in found.to_pylist()}
    assert (rows["warehouse"], rows["s3.endpoint"]) == (str(tmp_path), "http://host")
    assert "hidden" not in rows.values()


def test_there_is_no_other(tmp_path):
    with pytest.raises(NotFoundError, match="system table"):
        catalog_system_table(catalog_of(tmp_path), "views")


def test_tables_and_their_partitions(tmp_path):
    table = make_table(
        tmp_path, columns=(("dt", "STRING"), ("k", "INT")), keys=("dt", "k"), partitions=("dt",)
    )
    write(table, 1, [("+I", "d1", 1), ("+I", "d1", 2), ("+I", "d2", 1)])
    catalog = FileSystemCatalog(str(tmp_path), LocalFileIO(durable=False))
    plain = new_schema([("a", parse_type("INT"))], options={"type": "format-table"}, now_ms=0)
    catalog.create_table("db.files", plain)
    rows = {row["table_name"]: row for row in catalog_system_table(catalog, "tables").to_pylist()}
    assert (rows["t"]["table_type"], rows["files"]["table_type"]) == ("table", "format-table")
    assert [rows["t"][key] for key in ("partitioned", "primary_key", "record_count")] == [1, 1, 3]
    assert rows["t"]["file_count"] == 2
    assert rows["t"]["last_file_creation_time"] == table.clock.now_ms()
    assert rows["files"]["record_count"] is None
    partitions = catalog_system_table(catalog, "partitions").to_pylist()
    assert [(row["table_name"], row["record_count"]) for row in partitions] == [("t", 2), ("t", 1)]
    assert sum(row["file_size_in_bytes"] for row in partitions) == rows["t"]["file_size_in_bytes"]
