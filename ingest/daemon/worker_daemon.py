# SPDX-License-Identifier: Apache-2.0
"""The processes that Spark's Python processes are forked from, made quick for this pipeline.

Spark starts one for its workers as `python -m ingest.daemon.worker_daemon WORKER_MODULE` (setting
`spark.python.daemon.module`) instead of `pyspark.daemon`, to which it hands over. Before that it

* takes Spark's zip archives off the path when pyspark is installed beside them: modules in a zip
  are compiled again in every process (0.9 s of CPU against 0.2 s);
* logs as the daemon does (`ingest.logs.configure_child_logging`);
* imports what the tasks need, so that a forked worker has it already, compiled functions
  included; pandas, too, which pyarrow imports for the first array that it makes of a numpy array
  (0.26 s of CPU for each worker);
* freezes these objects out of the garbage collector, and lets it run rarely within a task, whose
  objects have no cycles (0.5 s of CPU per million events);
* collects what is new after every task where pyspark collects everything (`TaskGarbage`);
* keeps memory for the next batch (`keep_memory`), except between blocks (`give_back_memory`).

Nothing may be written to standard output here: the JVM reads the port from it.

On one machine Spark starts this process, and three others for the data source, one after the other:
a lock is held until each answers. So `start_prepared` starts another one beside the JVM, with all
imports, and Spark is given a program instead of Python that asks it to fork (`_PROGRAM`).
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import marshal
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ingest import logs
from ingest.compiled import loading

_ARCHIVES = ("pyspark.zip", "-src.zip")

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`, malloc.h."""

_KEPT_BYTES = 128 << 20
"""Free memory at the end of the heap that is not given back [bytes]."""

_LARGE_BYTES = 32 << 20
"""Larger blocks are mapped, and given back when freed; glibc accepts no more [bytes]."""

_ALL_EVERY_S = 15.0
"""Between two collections of all garbage of a worker [s]. With 60, at 35,000 changes a second, one
of two workers held 40 MB more; a collection and giving back memory take 24 ms."""

_ARENAS = 2
"""Heaps; with one for each thread, as is the default, each keeps memory that no other uses."""


def _drop_archives() -> None:
    plain = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    if importlib.machinery.PathFinder.find_spec("pyspark", plain) is not None:
        sys.path[:] = plain


def keep_memory() -> None:
    """Let allocators keep what is freed, within bounds, for as long as the process lives.

    Every batch needs about the same memory again, and the kernel clears each page of what was given
    back: up to a quarter of the CPU of merging and writing. Arrow takes from the C library as numpy
    does, so that they share; it reads the variable when loaded. Not every C library has `mallopt`.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)


def give_back_memory() -> None:
    """Give back what lies free between blocks in use; there is more of it with every hour."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(_KEPT_BYTES)


_PROGRAM = """#!/bin/sh
'''exec' {quoted} -IS "$0" "$@"
' '''
import marshal, os, socket, sys
try:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[0] + ".sock")
        data = marshal.dumps([sys.argv[1:], dict(os.environ)])
        server.sendall(data[socket.send_fds(server, [data], [0, 1, 2]):])
        server.shutdown(socket.SHUT_WR)
        server.recv(1)  # until the process has ended
except OSError:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""
"""Has the prepared process fork one with its arguments, environment, and standard streams."""

_ENVIRONMENT = "spark.executorEnv."
_LONGEST_ADDRESS = 107
_PREPARED: list["subprocess.Popen[bytes]"] = []
"""Kept, so that their standard input ends with this process."""


def start_prepared(directory: Path, conf: Mapping[str, str]) -> str:
    """Start a prepared process, which ends with this one.

    Args:
        directory: of this process, which others cannot write to.
        conf: Spark's properties.

    Returns:
        Path of the program to be used for Python; Python itself where that cannot be executed.
    """
    program, address = directory / "python", str(directory / "python.sock")
    quoted = shlex.quote(sys.executable)
    program.write_text(_PROGRAM.format(python=sys.executable, quoted=quoted))
    program.chmod(0o700)
    # of a file system mounted without, or whose path is too long for a socket (unix(7))
    if not os.access(program, os.X_OK) or len(os.fsencode(address)) > _LONGEST_ADDRESS:
        return sys.executable
    # as Spark's own workers
    environment = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    for name, value in conf.items():
        if name.startswith(_ENVIRONMENT):
            environment[name.removeprefix(_ENVIRONMENT)] = value
    command = [sys.executable, "-u", "-m", __name__, "--serve", address]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, process_group=0)
    _PREPARED.append(process)
    return str(program)


def _serve(path: str) -> None:
    """Fork a process for each request until standard input ends, as it does with the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        _prepare()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        descriptors = [0, listener.fileno()]
        while 0 not in select.select(descriptors, [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _become(connection)
                return
            connection.close()


def _become(connection: socket.socket) -> None:
    """Be the process that `_PROGRAM` was asked for; the connection breaks when it ends."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while part := connection.recv(1 << 20):
        data += part
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    (_, module, *arguments), environment = marshal.loads(data)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [entry for entry in paths if entry and entry not in sys.path]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _prepare() -> None:
    keep_memory()
    _drop_archives()
    logs.configure_child_logging()
    for module in (
        "ingest.pipeline.stream_planner",
        "ingest.pipeline.tasks",
        "pandas",
        "pyspark.worker",
    ):
        importlib.import_module(module)
    loading.prepare()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)


class TaskGarbage:
    """Collects after each task what came since the task before; now and then everything.

    What workers keep from batch to batch, as the metadata of files, is looked at by each full
    collection: 10 ms after three minutes, before the worker can take its next task, 0.2 ms for
    what is new.
    """

    def __init__(self) -> None:
        self._all_s = time.monotonic()

    def collect(self) -> None:
        """Called by `pyspark.daemon` in a worker, whenever a task has ended."""
        if time.monotonic() - self._all_s < _ALL_EVERY_S:
            gc.collect(1)
            return
        gc.collect()
        give_back_memory()
        self._all_s = time.monotonic()


def main() -> None:
    """Prepare, then be `pyspark.daemon`, or fork what is requested."""
    if sys.argv[1:2] == ["--serve"]:
        _serve(sys.argv[2])
        return
    _prepare()
    daemon = importlib.import_module("pyspark.daemon")
    vars(daemon)["gc"] = TaskGarbage()
    daemon.manager()


if __name__ == "__main__":
    main()
