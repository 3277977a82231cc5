# SPDX-License-Identifier: Apache-2.0
"""The process that Spark's Python workers are forked from, made quick for this pipeline.

Spark starts it as `python -m ingest.daemon.worker_daemon WORKER_MODULE` (setting
`spark.python.daemon.module`) instead of `pyspark.daemon`, to which it hands over. Before that it

* takes Spark's zip archives off the path when pyspark is installed beside them: modules in a zip
  are compiled again in every process (0.9 s of CPU against 0.2 s);
* logs as the daemon does (`ingest.logs.configure_child_logging`);
* imports what the tasks need, so that a forked worker has it already, compiled functions
  included; pandas, too, which pyarrow imports for the first array that it makes of a numpy array
  (0.26 s of CPU for each worker);
* freezes these objects out of the garbage collector, which pyspark runs in full after every task
  (37 ms each with these imports; the workers' CPU per million events fell by a sixth), and lets it
  run rarely within a task, whose objects have no cycles (0.5 s of CPU per million events).

Nothing may be written to standard output here: the JVM reads the port from it.
"""

import gc
import importlib
import importlib.machinery
import runpy
import sys

from ingest import logs
from ingest.compiled import loading

_ARCHIVES = ("pyspark.zip", "-src.zip")


def _drop_archives() -> None:
    plain = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if importlib.machinery.PathFinder.find_spec("pyspark", plain) is not None:
        sys.path[:] = plain


def main() -> None:
    """Prepare, then be `pyspark.daemon`."""
    _drop_archives()
    logs.configure_child_logging()
    for module in (
        "ingest.pipeline.stream_planner",
        "ingest.pipeline.map_side",
        "ingest.pipeline.reduce_side",
        "pandas",
    ):
        importlib.import_module(module)
    loading.prepare()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
