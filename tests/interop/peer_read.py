# SPDX-License-Identifier: Apache-2.0
"""Read a table with another Paimon implementation; run by the interpreter that has it installed.

Usage: peer_read.py {pypaimon|pypaimon-rust} WAREHOUSE DATABASE.TABLE OUTPUT

OUTPUT becomes an Arrow IPC file with the rows; nothing of Lakeward is imported here.
"""

import sys

import pyarrow as pa


def read_pypaimon(warehouse, name):
    from pypaimon import CatalogFactory  # noqa: PLC0415 - one peer may be missing

    table = CatalogFactory.create({"warehouse": warehouse}).get_table(name)
    builder = table.new_read_builder()
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def read_pypaimon_rust(warehouse, name):
    from pypaimon_rust.datafusion import PaimonCatalog  # noqa: PLC0415

    table = PaimonCatalog({"warehouse": warehouse}).get_table(name)
    builder = table.new_read_builder()
    reader = builder.new_read().read_arrow(builder.new_scan().plan().splits())
    return pa.Table.from_batches(list(reader))


PEERS = {"pypaimon": read_pypaimon, "pypaimon-rust": read_pypaimon_rust}


def main():
    peer, warehouse, name, output = sys.argv[1:]
    found = PEERS[peer](warehouse, name)
    with pa.OSFile(output, "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)


if __name__ == "__main__":
    main()
