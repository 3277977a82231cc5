# SPDX-License-Identifier: Apache-2.0
"""Memory and processor time of the driver, its JVM and the workers below it."""

import os

import pytest

from ingest.observe import observe
from ingest.observe.observe import ProcessTree


def process(proc, pid, parent, name, *, ticks=100, pages=10):
    folder = proc / str(pid)
    folder.mkdir()
    rest = ["S", str(parent), *["0"] * 9, str(ticks), "0", "0", "0", *["0"] * 6, str(pages)]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n")


def test_processes_are_grouped_by_what_they_are(tmp_path):
    (tmp_path / "meminfo").write_text("")
    process(tmp_path, 1, 0, "init", pages=1_000)
    process(tmp_path, 10, 1, "python3", pages=1)
    process(tmp_path, 11, 10, "java", pages=20)
    process(tmp_path, 12, 11, "python3 (w) x", pages=3)
    process(tmp_path, 13, 12, "python3", pages=4)
    process(tmp_path, 14, 10, "python3", pages=5)
    process(tmp_path, 99, 1, "java", pages=1_000)
    use = ProcessTree(10, tmp_path).use()
    page = observe._PAGE
    assert use.resident == {"driver": page, "jvm": 20 * page, "workers": 12 * page}
    assert use.cpu_s["workers"] == pytest.approx(3 * use.cpu_s["jvm"])


def test_nothing_is_known_without_proc(tmp_path):
    assert ProcessTree(10, tmp_path / "none").use() is None
    assert ProcessTree(10, tmp_path).use() is None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_this_process_uses_memory():
    use = ProcessTree().use()
    assert use.resident["driver"] > 10_000_000
    assert use.cpu_s["driver"] > 0
