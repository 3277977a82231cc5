# SPDX-License-Identifier: Apache-2.0
"""Catalogs behind `format("lakeward")`: options that begin with `catalog.`."""

import pytest

from changelog.spark_source.source_options import SourceOptions
from storage.catalog.catalog import Catalog
from storage.errors import InvalidOptionError, NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.table_kit import rows_of, write


def test_a_table_is_opened_through_its_catalog(tmp_path):
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/names.db"}
    catalog = Catalog.open(f"{tmp_path}/w", options)
    catalog.create_database("db")
    columns = [("k", parse_type("INT")), ("v", parse_type("INT"))]
    schema = new_schema(columns, primary_keys=["k"], options={"bucket": "1"})
    write(catalog.create_table("db.t", schema), 1, [("+I", 1, 10)])
    given = {"warehouse": f"{tmp_path}/w", "table": "db.t", "write-only": "true"}
    named = {f"catalog.{key}": value for key, value in options.items()}
    table = SourceOptions.parse({**given, **named}).open()
    assert rows_of(table) == [(1, 10)]
    assert table.options.write_only
    with pytest.raises(NotFoundError):
        SourceOptions.parse({**given, **named, "catalog.catalog-key": "other"}).open()
    with pytest.raises(InvalidOptionError, match="unknown option"):
        SourceOptions.parse({**given, **named, "catalog.url": "x"}).open()
    with pytest.raises(InvalidOptionError, match="has no catalog"):
        SourceOptions.parse({"path": f"{tmp_path}/w/db.db/t", **named})
