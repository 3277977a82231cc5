# SPDX-License-Identifier: Apache-2.0
"""`lakeward table` on format tables, object tables and materialized tables."""

import json
import pathlib

import pyarrow as pa
import pytest

from ingest.cli.main import main
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type
from storage.sql.session import SqlSession


@pytest.fixture
def catalog(tmp_path: pathlib.Path) -> FileSystemCatalog:
    return FileSystemCatalog(str(tmp_path))


@pytest.fixture
def files(catalog: FileSystemCatalog) -> None:
    schema = new_schema(
        [("a", parse_type("INT")), ("p", parse_type("STRING"))],
        partition_keys=["p"],
        options={"type": "format-table", "file.format": "csv"},
        now_ms=0,
    )
    table = catalog.create_table("db.files", schema)
    rows = [{"a": 1, "p": "x"}, {"a": 2, "p": "y"}]
    table.append_rows([pa.RecordBatch.from_pylist(rows, schema=schema.arrow_schema)])


@pytest.mark.usefixtures("files")
def test_a_format_table_is_shown(
    catalog: FileSystemCatalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "scan", catalog.warehouse, "db.files", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(rows, key=str) == [{"a": 1, "p": "x"}, {"a": 2, "p": "y"}]
    assert main(["table", "show", catalog.warehouse, "db.files", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["format"], shown["files"], shown["partition_by"]) == ("csv", 2, ["p"])
    assert main(["table", "show", catalog.warehouse, "db.files"]) == 0
    assert "csv files" in capsys.readouterr().out
    assert main(["table", "files", catalog.warehouse, "db.files"]) == 0
    assert "p=x/data-" in capsys.readouterr().out
    assert main(["table", "ls", catalog.warehouse]) == 0
    assert "db.files" in capsys.readouterr().out
    assert main(["table", "snapshots", catalog.warehouse, "db.files"]) != 0
    assert "a format table has no" in capsys.readouterr().err


def test_refreshes(
    catalog: FileSystemCatalog, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "a.png").touch()
    options = {"type": "object-table", "object-location": str(objects)}
    catalog.create_table(
        "db.images", TableSchema(id=0, fields=(), highest_field_id=-1, options=options)
    )
    create = "CREATE MATERIALIZED TABLE counts FRESHNESS = INTERVAL '1' DAY AS "
    list(SqlSession(catalog, "db").execute(create + "SELECT COUNT(*) AS n FROM images"))
    assert main(["table", "refresh", catalog.warehouse, "db.images", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"table": "db.images", "rows": 1}
    assert main(["table", "refresh", catalog.warehouse]) == 0
    assert "nothing is due" in capsys.readouterr().out
    assert main(["table", "refresh", catalog.warehouse, "db.counts"]) == 0
    assert catalog.table("db.counts").to_arrow()["n"].to_pylist() == [1]
    assert main(["table", "refresh", catalog.warehouse, "db.images", "--partition", "a=1"]) != 0
    assert main(["table", "refresh", catalog.warehouse, "--partition", "a=1"]) != 0
