# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled functions: who loads it, and what happens where it is not complete."""

import os
import shutil
import subprocess
import sys

import pytest

from ingest.compiled import loading
from tests.unit.ingest.walking import compiled_scan

_LOADED = "from ingest.compiled import loading; print(loading.load())"


def run(code, **environment):
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout.split()


@pytest.fixture
def copied(tmp_path):
    """A copy of the cache."""
    compiled_scan()
    for path in loading.folder().iterdir():
        if path.suffix in (".nbi", ".nbc", ".ready"):
            shutil.copy2(path, tmp_path)
    return tmp_path


def test_a_complete_cache_is_loaded_and_not_written(copied):
    before = {path: path.stat().st_mtime_ns for path in copied.iterdir()}
    assert run(_LOADED, NUMBA_CACHE_DIR=str(copied)) == ["True"]
    assert {path: path.stat().st_mtime_ns for path in copied.iterdir()} == before


def test_an_incomplete_cache_is_no_reason_to_compile(tmp_path):
    code = _LOADED + "; import sys; print('numba' in sys.modules)"
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path)) == ["False", "False"]
    assert not list(tmp_path.iterdir())


def test_a_cache_that_does_not_load_means_the_typed_path(copied):
    for path in copied.glob("*.nbc"):
        path.write_bytes(b"damaged")
    assert run(_LOADED, NUMBA_CACHE_DIR=str(copied)) == ["False"]


def test_without_numba_there_is_nothing_to_load():
    code = (
        "import importlib.metadata as m, sys; sys.modules['numba'] = None\n"
        "version = m.version\n"
        "def lacking(name):\n"
        "    if name == 'numba': raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = lacking\n" + _LOADED + "\nloading.prepare()"
    )
    assert run(code) == ["False"]


def test_many_events_load_what_the_cache_has(monkeypatch):
    compiled_scan()
    monkeypatch.setattr(loading._State, "modules", {})
    monkeypatch.setattr(loading._EventCounter, "events", 0)
    assert loading.scanner(49_999) is None
    assert loading.scanner(1) is not None


def test_commands_and_workers_import_no_numba():
    code = (
        "import sys, ingest.cli.main, ingest.pipeline.spark_source, ingest.pipeline.tasks\n"
        "print('numba' in sys.modules)"
    )
    assert run(code) == ["False"]
