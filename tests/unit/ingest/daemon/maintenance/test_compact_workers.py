# SPDX-License-Identifier: Apache-2.0
"""Worker processes of `lakeward compact`: they do not outlive whoever started them."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ingest.daemon.compact_runs import worker_pool

ROOT = Path(__file__).resolve().parents[5]
SCRIPT = """
import os, time
from ingest.daemon.compact_runs import worker_pool

if __name__ == "__main__":
    with worker_pool(2) as pool:
        print(*{pool.submit(os.getpid).result() for _ in range(2)}, flush=True)
        list(pool.map(time.sleep, [60, 60]))
"""


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_one_worker_is_a_thread():
    with worker_pool(1) as pool:
        assert isinstance(pool, ThreadPoolExecutor)
        assert pool.submit(os.getpid).result() == os.getpid()


def test_workers_end_with_a_killed_starter(tmp_path):
    script = tmp_path / "start.py"
    script.write_text(SCRIPT)
    starter = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    workers = [int(text) for text in starter.stdout.readline().split()]
    assert workers
    assert all(alive(pid) for pid in workers)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


GROUP_SCRIPT = """
import os, signal, time
from ingest.daemon.compact_runs import worker_pool

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with worker_pool(2) as pool:
        pool.submit(os.getpid).result()
        both = [pool.submit(time.sleep, 1) for _ in range(2)]
        print("sleeping", flush=True)
        for task in both:
            task.result()
        print(pool.submit(sum, [1, 2]).result())
"""


def test_a_signal_to_the_group_leaves_workers_to_their_starter(tmp_path):
    """`timeout` sends SIGTERM to the group, a terminal SIGINT: buckets in work are finished."""
    script = tmp_path / "start.py"
    script.write_text(GROUP_SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as starter:
        assert starter.stdout.readline() == "sleeping\n"
        os.killpg(starter.pid, signal.SIGTERM)
        os.killpg(starter.pid, signal.SIGINT)
        assert starter.stdout.read() == "3\n"
    assert starter.returncode == 0
