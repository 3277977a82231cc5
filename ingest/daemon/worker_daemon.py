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
  run rarely within a task, whose objects have no cycles (0.5 s of CPU per million events);
* keeps memory that a batch has freed for the next one (`keep_memory`).

Nothing may be written to standard output here: the JVM reads the port from it.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import os
import runpy
import sys

from ingest import logs
from ingest.compiled import loading

_ARCHIVES = ("pyspark.zip", "-src.zip")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`, malloc.h."""

_KEPT_BYTES = 128 << 20
"""Free memory at the end of the heap that is not given back [bytes]."""

_LARGE_BYTES = 32 << 20
"""Larger blocks are mapped, and given back when freed; glibc accepts no more [bytes]."""

_ARENAS = 2
"""Heaps; with one for each thread, as is the default, each keeps memory that no other uses."""


def _drop_archives() -> None:
    plain = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if importlib.machinery.PathFinder.find_spec("pyspark", plain) is not None:
        sys.path[:] = plain


def keep_memory() -> None:
    """Let allocators keep what is freed, within bounds, for as long as the process lives.

    Every batch needs about the same memory again. When it was given back, the kernel clears each
    page again: up to a quarter of the CPU of merging and writing. Arrow takes from the C library,
    too, so that what numpy freed serves Arrow and the other way round; it reads the variable when
    it is loaded. A C library without `mallopt` does as it pleases.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)


def main() -> None:
    """Prepare, then be `pyspark.daemon`."""
    keep_memory()
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
