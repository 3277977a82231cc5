# SPDX-License-Identifier: Apache-2.0
"""Local files of killed processes do not pile up, and those of living ones stay."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from ingest.daemon.spark_start import Scratch, local_places

HOLDER = """
import sys
from pathlib import Path
from ingest.daemon.spark_start import Scratch
scratch = Scratch([Path(sys.argv[1])])
(scratch.directories[0] / "blockmgr").mkdir()
(scratch.directories[0] / "blockmgr" / "shuffle").write_bytes(b"x" * 1000)
print("ready", flush=True)
input()
"""


@pytest.fixture
def holder(tmp_path):
    made = []

    def start():
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        made.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in made:
        child.kill()
        child.communicate()


@pytest.mark.skipif(not shutil.which("systemd-tmpfiles"), reason="systemd-tmpfiles is not here")
def test_the_hosts_cleaning_of_tmp_leaves_a_living_process_alone(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    scratch = Scratch([place])
    kept, gone = scratch.directories[0] / "blockmgr" / "shuffle", place / "other" / "file"
    for path in (kept, gone):
        path.parent.mkdir()
        path.write_bytes(b"x")
    rules = tmp_path / "rules.conf"
    rules.write_text(f"e {place} - - - 0\n")
    clean = ["systemd-tmpfiles", "--clean", str(rules)]
    subprocess.run(clean, check=True)
    assert kept.exists()
    assert not gone.exists()
    scratch.remove()


def names(tmp_path):
    return {path.name for path in tmp_path.iterdir()}


def test_what_killed_processes_left_goes_at_the_next_start(tmp_path, holder):
    living = holder()
    lasting = names(tmp_path)
    for _ in range(3):
        child = holder()
        child.kill()
        child.wait()
    assert len(names(tmp_path)) == 2  # each start removes what the one before left
    own = Scratch([tmp_path])
    assert names(tmp_path) == {*lasting, own.directories[0].name}
    own.remove()
    assert names(tmp_path) == lasting
    assert living.poll() is None
    assert (tmp_path / lasting.pop() / "blockmgr/shuffle").exists()


def test_a_directory_that_is_being_made_is_left_alone_for_a_while(tmp_path):
    young, old = tmp_path / "lakeward-run-a", tmp_path / "lakeward-run-b"
    young.mkdir()
    old.mkdir()
    os.utime(old, (time.time() - 100,) * 2)
    own = Scratch([tmp_path])
    assert young.exists()
    assert not old.exists()
    own.remove()


def test_places_are_sparks_own(tmp_path, monkeypatch):
    assert local_places({"spark.local.dir": "/a"}, {"SPARK_LOCAL_DIRS": "/b,/c"})[1].name == "c"
    assert str(local_places({"spark.local.dir": "/a"}, {})[0]) == "/a"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert local_places({}, {}) == [tmp_path]
