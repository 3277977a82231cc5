# SPDX-License-Identifier: Apache-2.0
"""A table in a real S3 server, read by engines that get its credentials from the service."""

import dataclasses
from collections.abc import Iterator

import pytest

from ingest.tools.catalog_service.service import CatalogService
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.catalog_service import OneToken, running
from tests.e2e.s3_server import S3Server, local_s3
from tests.interop.iceberg_histories import VECTORS
from tests.interop.iceberg_readers import Place, read, rows_as_read, rows_of
from tests.interop.peers import PeerFailedError
from tests.table_kit import NAME, write

pytestmark = [pytest.mark.interop, pytest.mark.s3, pytest.mark.full]

ENGINES = ("pyiceberg", "duckdb")


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with local_s3() as server:
        yield server


def catalog_in(store: S3Server) -> FileSystemCatalog:
    """A catalog with a table that has deleted rows."""
    catalog = FileSystemCatalog(f"{store.new_place()}/lake", options=store.options)
    columns = [("k", parse_type("BIGINT")), ("v", parse_type("STRING"))]
    schema = new_schema(columns, primary_keys=["k"], options={**VECTORS, "bucket": "1"})
    table = catalog.create_table(NAME, schema)
    for number in (1, 2):
        rows = [("+I", key, f"v{number}") for key in range(number, 5)]
        write(table.latest(), number, rows, full=True)
    write(table.latest(), 3, [("-D", 3, None)], [("+I", 9, "v3")])
    return catalog


def test_credentials_are_handed_out_where_that_is_allowed(store: S3Server) -> None:
    catalog = catalog_in(store)
    expected = catalog.table(NAME).to_arrow()
    service = CatalogService(catalog, OneToken())
    with running(service) as served:  # first, for DuckDB keeps what it was handed out
        place = Place("", "", f"{served.root}/iceberg")
        for engine in ENGINES:
            with pytest.raises(PeerFailedError):
                read(engine, "rest", place, {})
    with running(dataclasses.replace(service, hand_out_credentials=True)) as served:
        place = Place("", "", f"{served.root}/iceberg")
        for engine in ENGINES:
            found = read(engine, "rest", place, {})
            assert rows_of(found, expected) == rows_as_read(expected, engine), engine
