# SPDX-License-Identifier: Apache-2.0
"""Read tables with other Paimon implementations; run by the interpreter that has them installed.

Takes one JSON object a line: `{"peer": …, "warehouse": …, "name": "database.table", "output": …}`.
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


PEERS = {
    "pypaimon": read_pypaimon,
    "pypaimon-rust": read_pypaimon_rust,
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
