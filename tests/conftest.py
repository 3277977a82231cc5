# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

import itertools
from pathlib import Path

import pytest
from hypothesis import settings

from storage.lsm.lookup.store import DIRECTORY_VARIABLE

_NUMBERS = itertools.count()

_HERE = Path(__file__).parent
_ONE_AT_A_TIME = tuple(_HERE / name for name in ("bench", "e2e", "interop", "soak"))
"""Rooms whose tests start servers and several processes each, or measure."""

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several processes (`-n`), one of them takes everything heavy, in turn."""
    for item in items:
        if any(item.path.is_relative_to(room) for room in _ONE_AT_A_TIME):
            item.add_marker(pytest.mark.xdist_group("heavy"))


@pytest.fixture(autouse=True)
def _own_lookup_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tables of tests have file names and times from seeds: copies of one test fool another."""
    directory = tmp_path_factory.getbasetemp() / f"lookup-copies-{next(_NUMBERS)}"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
