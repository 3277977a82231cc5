# SPDX-License-Identifier: Apache-2.0
"""Dying at operations of every history: at some of them always, at each of them in the full form.

Each module of `stories` has HISTORIES; a history of it is called `story:name`, and
`pytest tests/crash -k dedicated:races-lookup` runs that one. What must hold is in `deaths`.
"""

import importlib
import pathlib
import pkgutil

import pytest

from tests.crash import stories
from tests.crash.deaths import enumerate_crashes, sample_crashes
from tests.crash.histories import History

SAMPLES = 3


def _histories() -> dict[str, History]:
    """By `story:name`, of every module of stories."""
    found: dict[str, History] = {}
    for module in pkgutil.iter_modules(stories.__path__):
        story = importlib.import_module(f"{stories.__name__}.{module.name}")
        for name, history in story.HISTORIES.items():
            found[f"{module.name}:{name}"] = history
    return found


HISTORIES = _histories()


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_some_operations(tmp_path: pathlib.Path, name: str) -> None:
    assert sample_crashes(tmp_path, HISTORIES[name], SAMPLES).faults >= SAMPLES


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_every_operation(tmp_path: pathlib.Path, name: str) -> None:
    done = enumerate_crashes(tmp_path, HISTORIES[name])
    assert done.faults > 1.5 * done.operations
    assert done.distinct > done.operations / 4
