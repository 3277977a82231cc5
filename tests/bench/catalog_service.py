# SPDX-License-Identifier: Apache-2.0
"""Requests per CPU second of the catalog service: `python -m tests.bench.catalog_service`.

The service runs as users run it, in a process of its own; clients in this one keep connections. The
rate on one core is requests by CPU seconds of the server's process, so it does not depend on what
else the machine does.
"""

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from storage.catalog.catalog import Catalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.free_ports import free_port
from tests.table_kit import write

TABLES, COLUMNS = 20, 30
TOKEN = "a-token-of-the-bench"


def tables(warehouse: str) -> None:
    """Tables of a usual width, with a few schemas and snapshots each."""
    catalog = Catalog.open(warehouse)
    catalog.create_database("shop")
    columns = [("k", parse_type("BIGINT"))]
    columns += [(f"c{number}", parse_type("STRING")) for number in range(COLUMNS - 1)]
    for number in range(TABLES):
        schema = new_schema(columns, primary_keys=["k"], options={"bucket": "1"})
        table = catalog.create_table(f"shop.t{number}", schema)
        row = ("+I", 1, *("x" for _ in columns[1:]))
        write(table, 1, [row])


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def ask(port: int, path: str, count: int) -> int:
    """Requests one after the other on one connection; the number of answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for number in range(count):
        connection.request("GET", path.format(number % TABLES), headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
    connection.close()
    return count


def measure(requests: int, clients: int) -> dict[str, object]:
    """Figures by path."""
    with tempfile.TemporaryDirectory() as scratch:
        warehouse = f"{scratch}/w"
        tables(warehouse)
        tokens = pathlib.Path(scratch) / "tokens.yaml"
        (pathlib.Path(scratch) / "token").write_text(TOKEN)
        tokens.write_text("tokens: [{name: bench, token_file: token, read: [shop]}]")
        port = free_port()
        command = [sys.executable, "-m", "ingest.cli.main", "catalog", "serve"]
        command += ["--warehouse", warehouse, "--port", str(port), "--tokens", str(tokens)]
        log = pathlib.Path(scratch) / "log"
        with log.open("w") as stream:
            process = subprocess.Popen(command, stderr=stream)
        try:
            while "catalog_serving" not in log.read_text():
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            root = "/paimon/v1/lakeward/databases/shop"
            found = {}
            for name, path in (
                ("table load", f"{root}/tables/t{{}}"),
                ("newest snapshot", f"{root}/tables/t{{}}/snapshot"),
                ("database", root),
            ):
                ask(port, path, TABLES)
                before, started = cpu_s(process.pid), time.monotonic()
                with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                    share = [requests // clients] * clients
                    done = sum(pool.map(lambda count, path=path: ask(port, path, count), share))
                wall, cpu = time.monotonic() - started, cpu_s(process.pid) - before
                found[name] = {
                    "requests": done,
                    "cpu_ms_per_request": round(1000 * cpu / done, 3),
                    "requests_per_core_second": round(done / cpu),
                    "requests_per_second": round(done / wall),
                }
            return found
        finally:
            process.terminate()
            process.wait(30)


def main() -> None:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    found = measure(arguments.requests, arguments.clients)
    for name, figures in found.items():
        print(f"{name:16} {figures}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
