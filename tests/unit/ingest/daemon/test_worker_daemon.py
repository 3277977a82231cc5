# SPDX-License-Identifier: Apache-2.0
"""Worker processes keep their memory, and are forked from a process prepared beside Spark."""

import gc
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pyspark.daemon
import pytest

from ingest.daemon import worker_daemon
from ingest.daemon.worker_daemon import TaskGarbage, start_prepared
from tests.e2e.daemon_process import eventually

BATCHES = """
import json, resource
from ingest.daemon.worker_daemon import keep_memory
if {kept}:
    keep_memory()
import numpy as np
import pyarrow as pa
import time

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

seen = []
for _ in range(6):
    before = faults()
    arrays = [np.ones(2 << 17) for _ in range(8)]
    buffers = [pa.concat_arrays([pa.array(array), pa.array(array)]) for array in arrays]
    del arrays, buffers
    time.sleep(0.05)
    pa.array([1])
    seen.append(faults() - before)
print(json.dumps(seen))
"""


def page_faults(*, kept: bool) -> list[int]:
    script = BATCHES.format(kept=kept)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide alone")
def test_later_batches_work_in_the_memory_of_earlier_ones():
    given_back, kept = page_faults(kept=False), page_faults(kept=True)
    assert min(given_back[2:]) > 1000
    assert sum(kept[2:]) < sum(given_back[2:]) / 3


FREED_BETWEEN = """
import time
from ingest.daemon.worker_daemon import TaskGarbage, keep_memory
keep_memory()
import numpy as np

def resident_mb():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * 4096 >> 20

garbage = TaskGarbage()
before = resident_mb()
blocks = [np.ones(1 << 17) for _ in range(100)]
kept = blocks[::10] + blocks[-1:]
del blocks
garbage.collect()
freed = resident_mb() - before
now_s = time.monotonic()
time.monotonic = lambda: now_s + 60.0
garbage.collect()
print(freed, resident_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide alone")
def test_memory_between_blocks_in_use_is_given_back_now_and_then():
    done = subprocess.run([sys.executable, "-c", FREED_BETWEEN], capture_output=True, check=True)
    freed, given_back = map(int, done.stdout.split())
    assert freed > 90
    assert given_back < 30


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def _full_collections() -> int:
    return gc.get_stats()[2]["collections"]


def test_a_task_leaves_no_garbage_and_what_outlives_tasks_is_seldom_looked_at(monkeypatch):
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    garbage = TaskGarbage()
    kept = _Cycle()
    garbage.collect()
    before = _full_collections()
    task = weakref.ref(_Cycle())
    garbage.collect()
    assert task() is None

    outlived = weakref.ref(kept)
    garbage.collect()
    del kept
    now_s += 14.0
    garbage.collect()
    assert (outlived() is None, _full_collections()) == (False, before)
    now_s += 1.0
    garbage.collect()
    assert (outlived() is None, _full_collections()) == (True, before + 1)


def test_the_workers_of_spark_are_given_it(monkeypatch):
    given = []
    monkeypatch.setattr(pyspark.daemon, "gc", gc)
    monkeypatch.setattr(pyspark.daemon, "manager", lambda: given.append(pyspark.daemon.gc))
    monkeypatch.setattr(worker_daemon, "_prepare", lambda: None)
    monkeypatch.setattr(sys, "argv", ["worker_daemon", "pyspark.worker"])
    worker_daemon.main()
    assert [type(each) for each in given] == [TaskGarbage]


def test_spark_asks_its_collector_for_nothing_else():
    assert re.findall(r"\bgc\.(\w+)", inspect.getsource(pyspark.daemon)) == ["collect"]


ASKED = """
import json, os, sys
seen = {name: os.environ.get(name) for name in ("MINE", "SERVERS", "PYTHONHASHSEED")}
prepared = "ingest.pipeline.tasks" in sys.modules
print(json.dumps([prepared, sys.argv[1:], sys.stdin.read(), seen]))
print("complaint", file=sys.stderr)
"""


@pytest.fixture
def asked(tmp_path):
    (tmp_path / "asked_module.py").write_text(ASKED)

    def ask(program: str) -> tuple[list, str]:
        path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[4])])
        environment = {"PYTHONPATH": path, "MINE": "\u00fc", "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [program, "-m", "asked_module", "a", "b c"],
            input="question",
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return json.loads(done.stdout), done.stderr

    return ask


def test_a_python_process_of_spark_is_forked_from_the_prepared_one(tmp_path, asked):
    program = start_prepared(tmp_path, {"spark.executorEnv.SERVERS": "yes"})
    eventually(lambda: (tmp_path / "python.sock").exists(), timeout=60, what="the socket")
    answer = [["a", "b c"], "question", {"MINE": "\u00fc", "SERVERS": None, "PYTHONHASHSEED": "0"}]
    for _ in range(2):
        assert asked(program) == ([True, *answer], "complaint\n")
    process = worker_daemon._PREPARED.pop()
    process.communicate()  # its standard input ends
    assert process.returncode == 0
    assert asked(program) == ([False, *answer], "complaint\n")


def test_python_itself_is_used_where_a_socket_cannot_be(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    assert start_prepared(deep, {}) == sys.executable
    assert not worker_daemon._PREPARED
