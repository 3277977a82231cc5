# SPDX-License-Identifier: Apache-2.0
"""`sys.all_table_options` and `sys.catalog_options`."""

import pytest

from storage.catalog.filesystem import FileSystemCatalog
from storage.catalog.system_tables import catalog_system_table
from storage.errors import NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.type_text import parse_type
from storage.io.local import LocalFileIO


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
        catalog_system_table(catalog_of(tmp_path), "tables")
