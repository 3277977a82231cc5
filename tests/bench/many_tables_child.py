# SPDX-License-Identifier: Apache-2.0
"""The real daemon of `many_tables` in a process of its own; writes the next batch's files itself.

As in `lakeward run`, Spark starts while the daemon is imported and opens its tables.
`python -m tests.bench.many_tables_child '{"config": …}'`; the result file is JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ingest.daemon.configuration import load_settings
from ingest.daemon.spark_start import SparkStart


def main(given: dict[str, Any]) -> int:
    """Run; the daemon's exit code."""
    settings = load_settings(Path(given["config"]))
    start = SparkStart(settings)
    from ingest.daemon.daemon import Daemon  # noqa: PLC0415
    from ingest.pipeline.batch_report import BatchReport  # noqa: PLC0415
    from tests.bench.many_tables import counts, fill  # noqa: PLC0415

    shape = (given["tables"], given["hot"], given["events"], given["cold_turn"])
    first = given["first"]
    archive = Path(given["archive"])
    batches: list[dict[str, Any]] = []
    jobs, ended = 0, given["began"]

    def note(report: BatchReport) -> None:
        nonlocal jobs, ended
        spark = start.session()
        run_id = str(spark.streams.active[0].runId)
        done = len(spark.sparkContext.statusTracker().getJobIdsForGroup(run_id))
        began, ended = ended, time.time()
        batches.append(
            {
                "jobs": done - jobs,
                "wall_s": ended - began,
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
    daemon = Daemon(settings, on_batch=note, starting=start)
    code = daemon.run()
    Path(given["result"]).write_text(json.dumps({"batches": batches}))
    return code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
