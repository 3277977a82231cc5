# SPDX-License-Identifier: Apache-2.0
"""The catalog that `sink.catalog` names, as the processes of a pipeline open it."""

import pytest

from ingest.daemon.configuration import load_settings
from ingest.state.stream_state import Warehouse, catalog_of
from storage.catalog.catalog import Catalog
from storage.errors import InvalidOptionError
from storage.io.counting import CountingFileIO


def test_a_pipeline_opens_its_catalog(tmp_path):
    uri = f"jdbc:sqlite:{tmp_path}/names.db"
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipeline: {name: p}\nsource: {type: files, path: events}\n"
        f"sink: {{warehouse: {tmp_path}/w, catalog: {{metastore: jdbc, uri: '{uri}', "
        "jdbc.password: secret}}\n"
    )
    warehouse = Warehouse.of(load_settings(file, environ={}).sink)
    assert "secret" not in repr(warehouse)
    catalog = catalog_of(warehouse)
    assert isinstance(catalog.file_io, CountingFileIO)
    catalog.create_database("db")
    options = {"metastore": "jdbc", "uri": uri}
    assert Catalog.open(f"{tmp_path}/w", options).list_databases() == ["db"]
    assert Catalog.open(f"{tmp_path}/w").list_databases() == []
    with pytest.raises(InvalidOptionError):
        catalog_of(Warehouse(f"{tmp_path}/w", (("metastore", "jdbc"), ("uri", "x"))))
