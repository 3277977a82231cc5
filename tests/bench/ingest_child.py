# SPDX-License-Identifier: Apache-2.0
"""The real daemon in a process of its own: drains the backlog once and notes every batch.

`python -m tests.bench.ingest_child '{"config": …, "result": …}'`; the result file is JSON, because
standard output belongs to logs.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ingest.daemon import daemon
from ingest.daemon.configuration import load_settings
from ingest.pipeline.batch_report import BatchReport
from tests.bench.measure import look


def main(config: Path, result: Path) -> int:
    """Run; the daemon's exit code."""
    batches: list[dict[str, Any]] = []

    def note(report: BatchReport) -> None:
        ended = time.monotonic()
        memory, cpu = look(os.getpid(), exact=False)  # exact memory takes 60 ms of our CPU
        batches.append(
            {
                "ended": ended,
                "outcome": report.outcome,
                "events": report.events,
                "rows": report.rows,
                "duration_s": report.duration_s,
                "phases": dict(report.phases),
                "bad": report.bad_records,
                "compactions": sum(report.compactions.values()),
                "memory_mb": memory,
                "cpu_s": {
                    program: sum(s for (name, _), s in cpu.items() if name == program)
                    for program in memory
                },
            }
        )

    settings = load_settings(config)
    started = time.monotonic()
    code = daemon.run(settings, once=True, on_batch=note)
    document = {"started": started, "ended": time.monotonic(), "batches": batches}
    result.write_text(json.dumps(document))
    return code


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    sys.exit(main(Path(given["config"]), Path(given["result"])))
