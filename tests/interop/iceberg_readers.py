# SPDX-License-Identifier: Apache-2.0
"""Readers of Iceberg tables, and the catalog service that some of them ask."""

import atexit
import contextlib
import dataclasses
import functools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ingest.tools.catalog_service.service import CatalogService
from storage.catalog.catalog import FileSystemCatalog
from storage.io.local import LocalFileIO
from storage.table.table import FileStoreTable
from tests.catalog_service import TOKEN, OneToken, running
from tests.interop.child import Child, ChildError
from tests.interop.iceberg_histories import metadata_of
from tests.interop.peers import ROOT, PeerFailedError, missing

__all__ = [
    "Place",
    "catalog_service",
    "engines_python",
    "place_of",
    "read",
    "rows_as_read",
    "rows_of",
]

SCRIPT = pathlib.Path(__file__).with_name("iceberg_child.py")
ANSWER_S = 180.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where readers find a table.

    Attributes:
        metadata: the newest metadata file.
        directory: what holds `metadata`.
        url: of the catalog.
        name: `database.table`.
        token: for the catalog.
    """

    metadata: str
    directory: str
    url: str
    name: str = "db.t"
    token: str = TOKEN


def place_of(table: FileStoreTable, url: str) -> Place:
    """Where readers find a table now."""
    metadata = metadata_of(table)
    return Place(str(metadata), str(metadata.parents[1]), url)


@contextlib.contextmanager
def catalog_service(warehouse: pathlib.Path) -> Iterator[str]:
    """The catalog service over a warehouse; address of its Iceberg REST catalog."""
    catalog = FileSystemCatalog(str(warehouse), file_io=LocalFileIO(durable=False))
    with running(CatalogService(catalog, OneToken())) as served:
        yield f"{served.root}/iceberg"


def engines_python() -> str:
    """The interpreter with the engines of `requirements-iceberg.txt`."""
    default = str(ROOT / ".venv-iceberg" / "bin" / "python")
    python = os.environ.get("LAKEWARD_ICEBERG_PYTHON", default)
    if not pathlib.Path(python).exists():
        missing(f"no Iceberg engines: run `make peers` ({python} is missing)")
    return python


@functools.cache
def _child(python: str) -> Child:
    child = Child([python, str(SCRIPT)])
    atexit.register(child.close)
    return child


def read(engine: str, way: str, place: Place, at: Mapping[str, Any]) -> pa.Table:
    """What an engine reads.

    Args:
        engine: `pyiceberg`, `duckdb`, `polars` or `clickhouse`.
        way: `file`, `directory`, `rest`, or, PyIceberg alone, `hive`.
        at: empty, or one of `snapshot`, `timestamp` [ms], `ref`, `where` (a filter).

    Raises:
        PeerFailedError: it could not.
    """
    python = engines_python()
    with tempfile.TemporaryDirectory() as directory:
        output = str(pathlib.Path(directory) / "found.arrow")
        where = dataclasses.asdict(place)
        order = {"engine": engine, "way": way, "place": where, "at": at, "output": output}
        try:
            _child(python).ask(order, ANSWER_S)
        except ChildError as error:
            raise PeerFailedError(f"{engine} by {way} at {at}: {error}") from error
        except OSError:
            _child.cache_clear()
            raise
        with pa.OSFile(output) as file:
            return pa.ipc.open_file(file).read_all()


def rows_of(found: pa.Table, expected: pa.Table) -> list[str]:
    """What an engine read, comparable: columns by name, in the types of what is expected."""
    assert set(found.column_names) == set(expected.column_names)
    return _texts(found, expected, lambda value, _: value)


def rows_as_read(expected: pa.Table, engine: str) -> list[str]:
    """What an engine must read, comparable; what it cannot represent is as it shows it."""
    return _texts(expected, expected, _QUIRKS.get(engine, lambda value, _: value))


def _texts(table: pa.Table, like: pa.Table, shown: Callable[[Any, pa.DataType], Any]) -> list[str]:
    columns = []
    for field in like.schema:
        column = table.column(field.name)
        if not pa.types.is_nested(field.type):
            column = column.cast(field.type)
        values = column.to_pylist()
        if pa.types.is_nested(field.type):
            values = [shown(value, field.type) for value in values]
        columns.append(values)
    return sorted(map(repr, zip(*columns, strict=True)))


def _pyiceberg(value: Any, type_: pa.DataType) -> Any:
    """PyIceberg 0.12 shows a missing list of rows as an empty one."""
    if value is None and pa.types.is_list(type_) and pa.types.is_struct(type_.value_type):
        return []
    return value


def _clickhouse(value: Any, type_: pa.DataType) -> Any:
    """ClickHouse has no nulls of lists, maps and rows: they are empty, or rows of nulls."""
    if pa.types.is_struct(type_):
        value = value or {}
        return {field.name: _clickhouse(value.get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        return [_clickhouse(item, type_.value_type) for item in value or []]
    return [] if pa.types.is_map(type_) and value is None else value


_QUIRKS = {"pyiceberg": _pyiceberg, "clickhouse": _clickhouse}
