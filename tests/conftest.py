# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

import functools
import gc
import itertools
import logging
import os
import pathlib
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from ingest.logs import SamplingHandler
from storage.lsm.lookup.store import DIRECTORY_VARIABLE

_NUMBERS = itertools.count()

_SERVERS = tuple(
    f"tests/{folder}/"
    for folder in ("bench", "drills", "e2e", "interop", "kubernetes", "panels", "soak")
)
"""Folders whose tests start servers and several processes each, or measure."""
_ROOT = pathlib.Path(__file__).resolve().parents[1]

_MEMORY = pathlib.Path("/dev/shm")
_MIN_FREE_BYTES = 4 << 30
"""Bytes that must be free there: a run takes about a tenth of it [B]."""


def _work_in_memory() -> None:
    """Make temporary directories in memory, of child processes, too; TMPDIR decides if it is set.

    What tests write is small and soon gone, and files in memory outlive killed processes, too. The
    kernel takes a third of the time that it takes for a disk's (docs/adr/tests/0004).
    """
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return
    file_system = os.statvfs(_MEMORY)
    runs_programs = not file_system.f_flag & os.ST_NOEXEC
    if runs_programs and file_system.f_bavail * file_system.f_frsize > _MIN_FREE_BYTES:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


_work_in_memory()
settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


class _ModuleScheduling(LoadScopeScheduling):
    """Distributes modules; those that start servers form two groups, each run by one process.

    One process has the Kafka broker and the tests that start daemons, another one the tests of a
    Spark session and of other JVMs; both mostly wait. All other modules go to the process that is
    free: at first the third (docs/adr/tests/0003).
    """

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


@functools.cache
def _group(module: str) -> str:
    if not module.startswith(_SERVERS):
        return module
    if module.startswith(("tests/e2e/", "tests/interop/")):
        source = (_ROOT / module).read_text(encoding="utf-8")
        return "broker" if "kafka_broker" in source or "DaemonProcess" in source else "session"
    return "broker"


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """Distribute tests in the order of collection when `-n` is given."""
    config.option.loadscopereorder = False
    return _ModuleScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from what stays until the end.

    Modules and items are 600,000 objects, which every full collection would visit
    (docs/adr/tests/0005).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by expected duration: broker, session, other long tests, then unit tests."""
    items.sort(key=_phase)


def _phase(item: pytest.Item) -> int:
    group = _group(item.nodeid.partition("::")[0])
    if group in ("broker", "session"):
        return 0 if group == "broker" else 1
    return 3 if item.nodeid.startswith("tests/unit/") else 2


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks() -> Iterator[None]:
    """Make fsync do nothing: files outlive killed processes without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _own_lookup_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tables of tests have file names and times from seeds: copies of one test fool another."""
    directory = tmp_path_factory.getbasetemp() / f"lookup-copies-{next(_NUMBERS)}"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))


@pytest.fixture(autouse=True)
def _log_of_its_own():
    """What a test has configured as a process's log ends with it."""
    hooks = sys.excepthook, threading.excepthook, warnings.formatwarning
    yield
    sys.excepthook, threading.excepthook, warnings.formatwarning = hooks
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, SamplingHandler):
            root.removeHandler(handler)
