# SPDX-License-Identifier: Apache-2.0
"""Runs of the real daemon over a prepared source, as `ingest` and `microbatch` need them."""

import itertools
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.bench import events, workload
from tests.bench.measure import Usage, child, usage_of

TIMEOUT_S = 1200.0
BUCKETS = "2"


def kafka_source(bootstrap: str, topic: str = events.TOPIC) -> dict[str, Any]:
    """The `source` section for one topic."""
    return {"type": "kafka", "bootstrap.servers": bootstrap, "topics": [topic], **_FORMAT}


def avro_source(bootstrap: str, topic: str, registry: str) -> dict[str, Any]:
    """The `source` section for one topic of events in Avro."""
    return {
        "type": "kafka",
        "bootstrap.servers": bootstrap,
        "topics": [topic],
        "format": "debezium-avro",
        "schema.registry": {"url": registry},
    }


def file_source(path: Path) -> dict[str, Any]:
    """The `source` section for a directory of events."""
    return {"type": "files", "path": str(path), **_FORMAT}


_FORMAT = {"format": "debezium-json", "debezium": {"decimal.handling.mode": "string"}}


class Run:
    """One run: wall seconds of the whole process, its batches, its memory, its table.

    Attributes:
        whole_s: from starting the process to its end [s].
        batches: one entry per micro-batch, see `ingest_child`.
        usage: peak memory of the process tree.
    """

    def __init__(self, whole_s: float, batches: list[dict[str, Any]], usage: Usage) -> None:
        self.whole_s = whole_s
        self.batches = batches
        self.usage = usage

    @property
    def events(self) -> int:
        """Records read."""
        return sum(batch["events"] for batch in self.batches)

    @property
    def warm_s(self) -> float:
        """Seconds from the first batch's end to the last one's."""
        return float(self.batches[-1]["ended"] - self.batches[0]["ended"])

    @property
    def warm_events_per_s(self) -> float:
        """Events per second without start-up and first batch, pauses between batches included."""
        return self.warm_events / self.warm_s

    @property
    def warm_cpu_s(self) -> dict[str, float]:
        """CPU seconds by program after the first batch."""
        first, last = self.batches[0]["cpu_s"], self.batches[-1]["cpu_s"]
        return {program: seconds - first.get(program, 0.0) for program, seconds in last.items()}

    @property
    def warm_events(self) -> int:
        """Records read after the first batch."""
        return sum(batch["events"] for batch in self.batches[1:])

    @property
    def intervals_s(self) -> list[float]:
        """Seconds from one batch's end to the next one's, without the first three."""
        ends = [batch["ended"] for batch in self.batches[2:]]
        return [after - before for before, after in itertools.pairwise(ends)]

    def phase_s(self, name: str) -> float:
        """Median seconds of a phase over the warm batches."""
        return statistics.median(batch["phases"].get(name, 0.0) for batch in self.batches[1:])

    def growth_mb(self, program: str) -> float:
        """Slope of resident memory over the later half of the batches [MB per batch]."""
        sizes = [batch["memory_mb"].get(program, 0.0) for batch in self.batches]
        later = sizes[len(sizes) // 2 :]
        return float(np.polyfit(np.arange(len(later)), later, 1)[0]) if len(later) > 1 else 0.0


def run_daemon(
    work: Path, source: dict[str, Any], *, max_records: int, **options: str
) -> tuple[Run, FileSystemCatalog]:
    """Drain a source into a fresh warehouse below `work`, which is emptied before.

    The orders table is there already, with the types that a schema block would have told.

    Args:
        work: directory for everything of the run.
        source: section of the configuration.
        max_records: bound of one micro-batch.
        options: table options, `_` for `-` in their names.

    Raises:
        RuntimeError: the daemon failed; the message ends with its log.
    """
    shutil.rmtree(work, ignore_errors=True)
    warehouse = work / "warehouse"
    warehouse.mkdir(parents=True)
    catalog = FileSystemCatalog(str(warehouse))
    database, _ = events.TABLE.split(".")
    catalog.create_database(database)
    properties = {name.replace("_", "-"): value for name, value in options.items()}
    catalog.create_table(events.TABLE, workload.table_schema({"bucket": BUCKETS, **properties}))
    config, result = work / "pipeline.yaml", work / "result.json"
    config.write_text(
        yaml.safe_dump(
            {
                "pipeline": {"name": "bench", "trigger": {"max.records": max_records}},
                "source": source,
                "sink": {"type": "paimon", "warehouse": str(warehouse)},
                "metrics": {"enabled": False},
            }
        )
    )
    began = time.monotonic()
    with child(
        "tests.bench.ingest_child", {"config": str(config), "result": str(result)}
    ) as process:
        with usage_of(process.pid) as usage:
            log, _ = process.communicate(timeout=TIMEOUT_S)
        whole = time.monotonic() - began
    if process.returncode != 0 or not result.exists():
        tail = "\n".join(log.splitlines()[-40:])
        raise RuntimeError(f"the daemon ended with {process.returncode}:\n{tail}")
    document = json.loads(result.read_text())
    return Run(whole, document["batches"], usage), catalog


def require_state(catalog: FileSystemCatalog, expected: pa.Table) -> None:
    """Refuse a run whose table is wrong."""
    workload.require_equal(catalog.table(events.TABLE).to_arrow(), expected, "ingestion")
