# SPDX-License-Identifier: Apache-2.0
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.kubernetes.decommission import decommission, executor_process
from ingest.kubernetes.entrypoint import BACKEND


def process(root: Path, number: int, *words: str) -> None:
    (root / str(number)).mkdir()
    (root / str(number) / "cmdline").write_bytes("\0".join([*words, ""]).encode())


@pytest.fixture
def processes(tmp_path):
    (tmp_path / "sys").mkdir()
    (tmp_path / "7").mkdir()  # ended meanwhile
    process(tmp_path, 1, "/usr/bin/tini", "--", "lakeward-entrypoint", "executor")
    process(tmp_path, 8, "grep", BACKEND)
    return tmp_path


def test_the_executor_is_found(processes):
    assert executor_process(processes) is None
    process(processes, 9, "/usr/lib/jvm/jre/bin/java", "-Xmx1g", BACKEND, "--cores", "1")
    assert executor_process(processes) == 9


def test_nothing_to_do_where_none_runs(processes):
    assert decommission(processes)


def test_it_is_told_and_its_end_awaited(processes):
    code = f"import signal; signal.sigwait([{int(signal.SIGPWR)}])"
    mask = lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPWR])  # noqa: E731
    child = subprocess.Popen([sys.executable, "-c", code], preexec_fn=mask)
    process(processes, child.pid, "/usr/bin/java", BACKEND)

    class Clock:
        def monotonic_s(self) -> float:
            return 0.0

        def sleep(self, seconds: float) -> None:
            assert child.wait(10) == 0
            (processes / str(child.pid) / "cmdline").unlink()

    assert decommission(processes, Clock())
    assert child.returncode == 0


def test_waiting_ends(processes, monkeypatch):
    process(processes, 9, "java", BACKEND)
    told = []
    monkeypatch.setattr("os.kill", lambda pid, number: told.append((pid, number)))
    moments = iter([0.0, 1.0, 601.0])

    class Clock:
        def monotonic_s(self) -> float:
            return next(moments)

        def sleep(self, seconds: float) -> None:
            pass

    assert not decommission(processes, Clock())
    assert told == [(9, signal.SIGPWR)]
