# SPDX-License-Identifier: Apache-2.0
"""The real daemon of `many_tables` in a process of its own; writes the next batch's files itself.

`python -m tests.bench.many_tables_child '{"config": …}'`; the result file is JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from ingest.daemon.session import build_session, default_master
from ingest.pipeline.batch_report import BatchReport
from tests.bench.many_tables import counts, fill
from tests.bench.measure import CORES


def main(given: dict[str, Any]) -> int:
    """Run; the daemon's exit code."""
    settings = load_settings(Path(given["config"]))
    shape = (given["tables"], given["hot"], given["events"], given["cold_turn"])
    first = given["first"]
    archive = Path(given["archive"])
    spark = build_session("bench", master=default_master(), conf={}, parallelism=CORES)
    batches: list[dict[str, Any]] = []
    queries: list[StreamingQuery] = []
    jobs, first_s = 0, 0.0

    def note(report: BatchReport) -> None:
        nonlocal jobs, first_s
        first_s = first_s or time.time() - given["began"]
        queries[:] = queries or spark.streams.active
        tracker = spark.sparkContext.statusTracker()
        done = len(tracker.getJobIdsForGroup(str(queries[0].runId)))
        batches.append(
            {
                "jobs": done - jobs,
                "ended": time.monotonic(),
                "events": report.events,
                "tables": len(report.commit_seconds),
                "duration_s": report.duration_s,
                "phases": dict(report.phases),
                "bad": report.bad_records,
            }
        )
        jobs = done
        if len(batches) < given["batches"]:
            number = first + len(batches)
            fill(archive, number, counts(number, *shape), given["events"])
        else:
            daemon.request_stop()

    fill(archive, first, counts(first, *shape), given["events"])
    daemon = Daemon(settings, on_batch=note, session=spark)
    code = daemon.run()
    progress = {p["batchId"]: p for p in queries[0].recentProgress}
    for number, batch in enumerate(batches, first):
        spent = progress[number]["durationMs"] if number in progress else {}
        batch["spark_ms"] = dict(spent)
        batch["wall_s"] = spent.get("triggerExecution", 1000 * batch["duration_s"]) / 1000
    Path(given["result"]).write_text(json.dumps({"batches": batches, "first_s": first_s}))
    spark.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
