# SPDX-License-Identifier: Apache-2.0
"""pypaimon on the orders workload; with `native` everything goes through pypaimon-rust.

Runs in `.venv-peers`, so it imports nothing of this repository. One commit a batch, no compaction
(pypaimon has none). The row kind is a column of the table, because pypaimon takes it from there.
The final state goes to `<work>/final.parquet`; the caller checks it.
"""

import json
import logging
import os
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema


def peak_mb() -> float:
    """Greatest resident memory of this process [MB]."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def cpu_s():
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def written():
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar"):
            return int(line.split()[1])
    return 0


def main(config):
    data, work = Path(config["data"]), Path(config["work"])
    batches = [
        pq.read_table(path).drop_columns(["_VALUE_KIND"])
        for path in sorted(data.glob("batch_*.parquet"))
    ]
    fields = list(batches[0].schema)
    fields[0] = pa.field("id", pa.int64(), nullable=False)
    schema = pa.schema(fields)
    batches = [batch.cast(schema).combine_chunks() for batch in batches]
    native = "true" if config["native"] else "false"
    options = {
        "bucket": config["bucket"],
        "rowkind.field": "op",
        "write.native.enabled": native,
        "commit.native.enabled": native,
        "read.native.enabled": native,
        "scan.native-plan.enabled": native,
    }
    catalog = CatalogFactory.create({"warehouse": str(work)})
    catalog.create_database("db", True)
    made = Schema.from_pyarrow_schema(schema, primary_keys=["id"], options=options)
    catalog.create_table("db.t", made, False)
    table = catalog.get_table("db.t")
    result = {"load": os.getloadavg()[0]}
    before = written()
    per_batch = []
    cpu = cpu_s()
    for number, batch in enumerate(batches):
        started = time.perf_counter()
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(batch)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()
        per_batch.append(time.perf_counter() - started)
        if number == 0:
            result["initial_cpu_s"] = cpu_s() - cpu
            cpu = cpu_s()
    result.update(
        initial_s=per_batch[0],
        initial_rows=batches[0].num_rows,
        batch_s=per_batch[1:],
        changes_s=sum(per_batch[1:]),
        changes_cpu_s=cpu_s() - cpu,
        changes=sum(batch.num_rows for batch in batches[1:]),
        written_mb=(written() - before) / 1e6,
    )
    walls, cpus = [], []
    for _ in range(config["reads"]):
        started, cpu = time.perf_counter(), cpu_s()
        builder = table.new_read_builder()
        state = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        walls.append(time.perf_counter() - started)
        cpus.append(cpu_s() - cpu)
    files = [path for path in (work / "db.db").rglob("*") if path.is_file()]
    result.update(
        read_s=sorted(walls)[len(walls) // 2],
        read_cpu_s=sorted(cpus)[len(cpus) // 2],
        rows=state.num_rows,
        disk_mb=sum(path.stat().st_size for path in files) / 1e6,
        files=len(files),
        peak_rss_mb=peak_mb(),
    )
    pq.write_table(state.drop_columns(["op"]), work / "final.parquet")
    print(json.dumps(result))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main(json.loads(sys.argv[1]))
