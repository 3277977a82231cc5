# SPDX-License-Identifier: Apache-2.0
"""Read Iceberg tables with engines that are Python packages; run by the interpreter that has them.

Takes one JSON object a line: `engine`, `way` (how the engine finds the table), `place` (`metadata`:
path of the newest metadata file; `directory` that holds `metadata`; `url` of a catalog, its `token`
and the `name` of the table in it), `at` (empty, or one of `snapshot`: id, `timestamp` [ms],
`ref`: a tag; or `where`: a filter) and `output`, which becomes an Arrow IPC file with the rows. The
answer is a line `{"error": null or a text}`. Nothing of Lakeward is imported here.
"""

import contextlib
import functools
import importlib
import json
import os
import pathlib
import sys
import traceback
from typing import Any

import pyarrow as pa

ZONE = "SET timezone = 'UTC'"


@functools.cache
def _catalog(kind: str, url: str, token: str) -> Any:
    from pyiceberg.catalog import load_catalog  # type: ignore[import-not-found] # noqa: PLC0415

    return load_catalog("lake", type=kind, uri=url, token=token)


def _pyiceberg_table(way: str, place: dict[str, str]) -> Any:
    from pyiceberg.table import StaticTable  # type: ignore[import-not-found] # noqa: PLC0415

    if way == "file":
        return StaticTable.from_metadata(place["metadata"])
    return _catalog(way, place["url"], place["token"]).load_table(place["name"])


def _snapshot_of(table: Any, at: dict[str, Any]) -> int | None:
    if "timestamp" in at:
        return int(table.snapshot_as_of_timestamp(at["timestamp"]).snapshot_id)
    if "ref" in at:
        return int(table.refs()[at["ref"]].snapshot_id)
    return int(at["snapshot"]) if "snapshot" in at else None


def pyiceberg(way: str, place: dict[str, str], at: dict[str, Any]) -> Any:
    table = _pyiceberg_table(way, place)
    where = {"row_filter": at["where"]} if "where" in at else {}
    return table.scan(snapshot_id=_snapshot_of(table, at), **where).to_arrow()


def polars(way: str, place: dict[str, str], at: dict[str, Any]) -> Any:
    import polars  # noqa: PLC0415

    table = _pyiceberg_table(way, place)
    snapshot = _snapshot_of(table, at)
    scan = polars.scan_iceberg(table, snapshot_id=snapshot, reader_override="native")
    return scan.collect().to_arrow()


@functools.cache
def _duckdb() -> Any:
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        assert package.__file__ is not None
        (path,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(path))
    connection.execute(ZONE)
    connection.execute("SET unsafe_enable_version_guessing = true")
    return connection


_ATTACHED: dict[str, str] = {}


def duckdb(way: str, place: dict[str, str], at: dict[str, Any]) -> Any:
    connection = _duckdb()
    if way == "rest":
        return connection.execute(_from_rest(connection, place, at)).arrow().read_all()
    options = ""
    if "snapshot" in at:
        options = f", snapshot_from_id = {at['snapshot']}::UBIGINT"
    elif "timestamp" in at:
        options = f", snapshot_from_timestamp = make_timestamp_ms({at['timestamp']})"
    path = place["metadata" if way == "file" else "directory"]
    text = f"SELECT * FROM iceberg_scan('{path}'{options}) WHERE {at.get('where', 'true')}"
    return connection.execute(text).arrow().read_all()


def _from_rest(connection: Any, place: dict[str, str], at: dict[str, Any]) -> str:
    """The query of a table of a REST catalog, which is attached once."""
    url, name = place["url"], _ATTACHED.get(place["url"])
    if name is None:
        for old in _ATTACHED.values():
            connection.execute(f"DETACH {old}")
        _ATTACHED.clear()
        name = _ATTACHED[url] = f"lake{abs(hash(url))}"
        options = f"TYPE iceberg, ENDPOINT '{url}', TOKEN '{place['token']}'"
        connection.execute(f"ATTACH 'lake' AS {name} ({options})")
    when = ""
    if "snapshot" in at:
        when = f" AT (VERSION => {at['snapshot']})"
    elif "timestamp" in at:
        when = f" AT (TIMESTAMP => make_timestamp_ms({at['timestamp']}))"
    return f"SELECT * FROM {name}.{place['name']}{when}"


def clickhouse(way: str, place: dict[str, str], at: dict[str, Any]) -> Any:
    os.chdir("/")  # it reads no files that lie elsewhere
    import chdb  # type: ignore[import-not-found] # noqa: PLC0415

    assert way == "directory"
    settings = {
        "output_format_arrow_string_as_string": 1,
        "input_format_null_as_default": 0,
        "session_timezone": "'UTC'",
    }
    if "snapshot" in at:
        settings["iceberg_snapshot_id"] = at["snapshot"]
    elif "timestamp" in at:
        settings["iceberg_timestamp_ms"] = at["timestamp"]
    given = ", ".join(f"{key} = {value}" for key, value in settings.items())
    text = f"SELECT * FROM icebergLocal('{place['directory']}') SETTINGS {given}"
    found = chdb.query(text, "Arrow")
    with pa.ipc.open_file(pa.py_buffer(found.bytes())) as file:
        return file.read_all()


ENGINES = {
    "pyiceberg": pyiceberg,
    "duckdb": duckdb,
    "polars": polars,
    "clickhouse": clickhouse,
}


def answer(order: dict[str, Any]) -> None:
    found = ENGINES[order["engine"]](order["way"], order["place"], order["at"])
    with pa.OSFile(order["output"], "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)


def main() -> None:
    replies = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # whatever an engine prints is not an answer
        for line in sys.stdin:
            error = None
            try:
                answer(json.loads(line))
            except BaseException as failure:  # a panic of Rust is no Exception
                error = "".join(traceback.format_exception(failure))[-3000:]
            replies.write(json.dumps({"error": error}) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
