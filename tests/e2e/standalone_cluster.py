# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of Spark: master and workers as processes, from pyspark's own jars."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.e2e.daemon_process import ROOT, eventually
from tests.free_ports import free_port

_START_S = 120.0


class Cluster:
    """A running cluster.

    Attributes:
        master: its URL.
        workers: their process ids.
    """

    def __init__(self, master: str, workers: list[int]) -> None:
        self.master = master
        self.workers = workers

    def executors(self) -> list[int]:
        """Process ids of the executors, which are children of the workers."""
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                command = (status.parent / "cmdline").read_bytes()
                if parent in self.workers and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(status.parent.name))
        return found


@contextlib.contextmanager
def standalone_cluster(directory: Path, *, workers: int) -> Iterator[Cluster]:
    """Run a master and workers of one core each until the body ends."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as processes:

        def start(name: str, main: str, *arguments: str) -> int:
            log = processes.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [
                    str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                    *(f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1"),
                    *("--webui-port", "0", *arguments),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
            processes.callback(_end, process)
            return process.pid

        start("master", "master.Master", "--port", str(port))
        ids = []
        for number in range(workers):
            place = directory / f"worker-{number}"
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            ids.append(start(f"worker-{number}", "worker.Worker", *options, master))
        log = directory / "master.log"
        eventually(
            lambda: len(re.findall("Registering worker", log.read_text())) == workers,
            timeout=_START_S,
            what="all workers are registered",
        )
        yield Cluster(master, ids)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    process.terminate()
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
