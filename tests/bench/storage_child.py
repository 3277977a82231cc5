# SPDX-License-Identifier: Apache-2.0
"""Our storage on the orders workload, in a process of its own: write, commit, read.

`python -m tests.bench.storage_child '{"data": …, "work": …, "options": {…}}'` prints one JSON line.
Same steps and same keys of the result as `peer_pypaimon`, which measures others.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.catalog.catalog import FileSystemCatalog
from storage.testing.invariants import check_table
from tests.bench import workload
from tests.bench.measure import cpu_s, peak_mb


def run(data: Path, work: Path, options: dict[str, str], reads: int) -> dict[str, Any]:
    """Write all batches, read the table, and measure both."""
    batches = [
        pq.read_table(path).drop_columns(["op"]).combine_chunks().to_batches()[0]
        for path in sorted(data.glob("batch_*.parquet"))
    ]
    catalog = FileSystemCatalog(str(work))
    catalog.create_database("db")
    catalog.create_table("db.t", workload.table_schema(options))
    table = catalog.table("db.t")
    result: dict[str, Any] = {"load": os.getloadavg()[0]}
    written_before = _written()
    per_batch = []
    cpu = cpu_s()
    with table.new_write("bench") as write:
        commit = table.new_commit("bench")
        for number, batch in enumerate(batches):
            started = time.perf_counter()
            write.write(batch)
            commit.commit(write.prepare_commit(), number)
            per_batch.append(time.perf_counter() - started)
            if number == 0:
                result["initial_cpu_s"] = cpu_s() - cpu
                cpu = cpu_s()
    result |= {
        "initial_s": per_batch[0],
        "initial_rows": batches[0].num_rows,
        "batch_s": per_batch[1:],
        "changes_s": sum(per_batch[1:]),
        "changes_cpu_s": cpu_s() - cpu,
        "changes": sum(batch.num_rows for batch in batches[1:]),
        "written_mb": (_written() - written_before) / 1e6,
    }
    walls, cpus = [], []
    state = pa.table({})
    for _ in range(reads):
        started, cpu = time.perf_counter(), cpu_s()
        state = table.to_arrow()
        walls.append(time.perf_counter() - started)
        cpus.append(cpu_s() - cpu)
    check_table(table)
    expected = pq.read_table(data / "final.parquet")
    files = [path for path in (work / "db.db").rglob("*") if path.is_file()]
    result |= {
        "read_s": sorted(walls)[reads // 2],
        "read_cpu_s": sorted(cpus)[reads // 2],
        "rows": state.num_rows,
        "wrong": workload.differences(state, expected),
        "disk_mb": sum(path.stat().st_size for path in files) / 1e6,
        "files": len(files),
        "peak_rss_mb": peak_mb(),
    }
    return result


def _written() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    done = run(Path(config["data"]), Path(config["work"]), config["options"], config["reads"])
    print(json.dumps(done))
