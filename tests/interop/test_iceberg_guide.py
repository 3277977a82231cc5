# SPDX-License-Identifier: Apache-2.0
"""The tested examples of `docs/guides/iceberg-readers.md` run as they stand there."""

import dataclasses
import datetime
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.table.table import FileStoreTable
from tests.catalog_service import TOKEN
from tests.interop.iceberg_histories import TABLE_LOCATION, VECTORS
from tests.interop.iceberg_readers import catalog_service, engines_python
from tests.interop.peers import ROOT
from tests.interop.spark_peer import SparkPeer
from tests.table_kit import write

pytestmark = pytest.mark.interop

GUIDE = (ROOT / "docs" / "guides" / "iceberg-readers.md").read_text(encoding="utf-8")
OPEN_DUCKDB = """
import duckdb, importlib, pathlib, sys
connection = duckdb.connect()
for name in ("httpfs", "avro", "iceberg"):
    package = importlib.import_module(f"duckdb_extension_{name}")
    (path,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
    connection.load_extension(str(path))
counts = [len(connection.execute(text).fetchall()) for text in STATEMENTS]
"""
OPEN_CLICKHOUSE = """
import os
os.chdir("/")
import chdb
counts = [chdb.query(text, "CSV").bytes().count(b"\\n") for text in STATEMENTS]
"""


@dataclasses.dataclass(frozen=True)
class Lake:
    """A warehouse with what the examples name, and the address at which it is served."""

    warehouse: str
    url: str

    def words(self, name: str) -> dict[str, str]:
        """What to write in place of the guide's words; 12 is the version with two rows."""
        table = FileSystemCatalog(self.warehouse).table(f"shop.{name}")
        number = _with_two_rows(table)
        then = datetime.datetime.fromtimestamp(
            table.snapshots.read(number).time_ms / 1000, datetime.UTC
        )
        return {
            "http://127.0.0.1:8181/iceberg": self.url,
            "/data/warehouse": self.warehouse,
            "2026-11-23 12:00:00": then.strftime("%Y-%m-%d %H:%M:%S.%f"),
            "12": str(number),
            "MY_TOKEN": TOKEN,
        }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Two tables of three commits of a row each."""
    warehouse = tmp_path_factory.mktemp("lake")
    catalog = FileSystemCatalog(str(warehouse))
    catalog.create_database("shop")
    columns = [("id", parse_type("BIGINT")), ("item", parse_type("STRING"))]
    items = new_schema(columns, primary_keys=["id"], options={**VECTORS, "bucket": "1"})
    visits = new_schema(columns, options={**TABLE_LOCATION, "bucket": "-1"})
    for name, schema in (("items", items), ("visits", visits)):
        table = catalog.create_table(f"shop.{name}", schema)
        for number in (1, 2, 3):
            write(table.latest(), number, [("+I", number, "tea")], full=name == "items")
        table.create_tag("noon", _with_two_rows(table))
    with catalog_service(warehouse) as url:
        yield Lake(str(warehouse), url)


def _with_two_rows(table: FileStoreTable) -> int:
    found = [one for one in table.snapshots.ids() if table.to_arrow(snapshot=one).num_rows == 2]
    return found[-1]


def _block(section: str, language: str, words: dict[str, str]) -> str:
    """The example of a section, with the words of this machine."""
    _, _, rest = GUIDE.partition(f"\n## {section}\n")
    found = re.search(rf"```{language}\n(.*?)```", rest, re.DOTALL)
    assert found is not None
    text = found[1]
    for word, meant in words.items():
        quoted = re.escape(word)
        text = re.sub(rf"(?<=[ v'\"]){quoted}(?=[/.'\";)\s])", meant, text)
    return text


def _statements(section: str, words: dict[str, str]) -> list[str]:
    found = [one.strip() for one in _block(section, "sql", words).split(";")]
    return [one for one in found if one and not one.startswith(("INSTALL", "LOAD"))]


def _result(script: str, value: str) -> Any:
    """The value of an expression after a script, in the interpreter with the engines."""
    text = f"{script}\nimport json, sys\nsys.stderr.write('\\n' + json.dumps({value}))"
    command = [engines_python(), "-c", text]
    found = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stderr.splitlines()[-1])


def test_pyiceberg(lake: Lake) -> None:
    script = _block("PyIceberg", "python", lake.words("items"))
    assert _result(script, "[rows.num_rows, at_noon.num_rows]") == [2, 2]


def test_polars(lake: Lake) -> None:
    assert _result(_block("polars", "python", lake.words("items")), "rows.height") == 2


def test_duckdb(lake: Lake) -> None:
    statements = _statements("DuckDB", lake.words("items"))
    script = f"STATEMENTS = {statements!r}\n{OPEN_DUCKDB}"
    assert _result(script, "counts")[1:] == [2, 2, 2]


def test_without_the_service(lake: Lake) -> None:
    words = lake.words("items")
    text = _block("Without the service", "python", words)
    assert _result(text, "rows.num_rows") == 1
    statements = _statements("Without the service", words)
    script = f"STATEMENTS = {statements!r}\n{OPEN_DUCKDB}"
    assert _result(script, "counts")[1:] == [3, 2]


@pytest.mark.full
def test_clickhouse(lake: Lake) -> None:
    statements = _statements("ClickHouse", lake.words("visits"))
    script = f"STATEMENTS = {statements!r}\n{OPEN_CLICKHOUSE}"
    assert _result(script, "counts") == [3, 2]


@pytest.mark.full
def test_spark(lake: Lake, spark: SparkPeer) -> None:
    words = lake.words("items")
    lines = _block("Spark", "properties", words).splitlines()
    settings = dict(line.split() for line in lines if "jars" not in line)
    statements = _statements("Spark", words)
    found = [spark.query(text, settings=settings) for text in statements]
    assert [one.num_rows for one in found[:5]] == [2, 2, 2, 2, 2]
    assert set(found[5].column("operation").to_pylist()) <= {"append", "overwrite", "replace"}
