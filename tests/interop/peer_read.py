# SPDX-License-Identifier: Apache-2.0
"""Read tables with other Paimon implementations; run by the interpreter that has them installed.

Takes one JSON object a line: `{"peer": …, "warehouse": …, "name": "database.table", "output": …}`;
for readers of Iceberg `warehouse` is the metadata file and `name` a snapshot id or a tag; for
`pyiceberg-catalog` properties of a catalog as JSON, and a table's name with such a reference.
OUTPUT becomes an Arrow IPC file with the rows; the answer is a line `{"error": null or a text}`.
Nothing of Lakeward is imported here.
"""

import json
import sys
import traceback
from typing import Any

import pyarrow as pa


def read_pypaimon(warehouse: str, name: str) -> Any:
    from pypaimon import CatalogFactory  # type: ignore[import-not-found] # noqa: PLC0415

    table = CatalogFactory.create({"warehouse": warehouse}).get_table(name)
    builder = table.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def read_pypaimon_rust(warehouse: str, name: str) -> Any:
    from pypaimon_rust.datafusion import PaimonCatalog  # type: ignore[import-not-found] # noqa: PLC0415

    table = PaimonCatalog({"warehouse": warehouse}).get_table(name)
    builder = table.new_read_builder()
    reader = builder.new_read().read_arrow(builder.new_scan().plan().splits())
    return pa.Table.from_batches(list(reader))


def read_pyiceberg(metadata: str, reference: str) -> Any:
    from pyiceberg.table import StaticTable  # type: ignore[import-not-found] # noqa: PLC0415

    table = StaticTable.from_metadata(metadata)
    snapshot = int(reference) if reference.isdigit() else table.refs()[reference].snapshot_id
    return table.scan(snapshot_id=snapshot).to_arrow()


def read_pyiceberg_catalog(properties: str, name: str) -> Any:
    from pyiceberg.catalog import load_catalog  # type: ignore[import-not-found] # noqa: PLC0415

    table_name, _, reference = name.partition(" ")
    table = load_catalog("peer", **json.loads(properties)).load_table(table_name)
    if not reference:
        return table.scan().to_arrow()
    snapshot = int(reference) if reference.isdigit() else table.refs()[reference].snapshot_id
    return table.scan(snapshot_id=snapshot).to_arrow()


def read_duckdb_iceberg(metadata: str, reference: str) -> Any:
    import importlib  # noqa: PLC0415
    import pathlib  # noqa: PLC0415

    import duckdb  # noqa: PLC0415

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        assert package.__file__ is not None
        (path,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(path))
    connection.execute("SET timezone = 'UTC'")
    text = "SELECT * FROM iceberg_scan(?, snapshot_from_id = ?::UBIGINT)"
    return connection.execute(text, [metadata, reference]).arrow().read_all()


PEERS = {
    "pypaimon": read_pypaimon,
    "pypaimon-rust": read_pypaimon_rust,
    "pyiceberg": read_pyiceberg,
    "pyiceberg-catalog": read_pyiceberg_catalog,
    "duckdb-iceberg": read_duckdb_iceberg,
}


def answer(order: dict[str, Any]) -> None:
    found = PEERS[order["peer"]](order["warehouse"], order["name"])
    with pa.OSFile(order["output"], "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)


def main() -> None:
    replies = sys.stdout
    sys.stdout = sys.stderr  # whatever a peer prints is not an answer
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
