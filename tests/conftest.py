# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

import itertools
import logging
import sys
import threading
import warnings

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from ingest.log_sampling import SamplingHandler
from storage.lsm.lookup.store import DIRECTORY_VARIABLE

_NUMBERS = itertools.count()

_HEAVY = tuple(
    f"tests/{room}/"
    for room in ("bench", "drills", "e2e", "interop", "kubernetes", "panels", "soak")
)
"""Rooms whose tests start servers and several processes each, or measure."""

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


class _HeavyInTurn(LoadScopeScheduling):
    """One process takes all heavy tests, in turn; the others share the rest, test by test."""

    def _split_scope(self, nodeid: str) -> str:
        return "heavy" if nodeid.startswith(_HEAVY) else nodeid


@pytest.hookimpl
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """How tests are shared out with `-n`."""
    return _HeavyInTurn(config, log)


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
