# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

import itertools

import pytest
from hypothesis import settings

from storage.lsm.lookup.store import DIRECTORY_VARIABLE

_NUMBERS = itertools.count()

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _own_lookup_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Tables of tests have file names and times from seeds: copies of one test fool another."""
    directory = tmp_path_factory.getbasetemp() / f"lookup-copies-{next(_NUMBERS)}"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
