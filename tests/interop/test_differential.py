# SPDX-License-Identifier: Apache-2.0
"""The same random operations by Java and by us: equal rows, changelogs and snapshots."""

import pytest

from tests.interop.differential import compare
from tests.interop.generated_histories import SEED, history
from tests.interop.java_peer import JavaPeer

pytestmark = pytest.mark.interop

_QUICK = (8, 25, 27)
"""Lookup changelogs: the last row, partial updates and vectors, the first row."""
_COUNT = 240


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=history(SEED, number).name)
        if number in _QUICK
        else pytest.param(number, id=history(SEED, number).name, marks=pytest.mark.full)
        for number in range(_COUNT)
    ],
)
def test_java_and_we_agree(java: JavaPeer, number: int) -> None:
    report = compare(java, history(SEED, number))
    assert not report.differences, "\n".join(report.differences)
    assert report.commits


def test_histories_reach_every_engine_and_producer() -> None:
    dealt = [history(SEED, number) for number in range(_COUNT)]
    engines = {one.options["merge-engine"] for one in dealt}
    producers = {one.options["changelog-producer"] for one in dealt}
    assert len(engines) == 4
    assert len(producers) == 4
    functions = {
        value for one in dealt for key, value in one.options.items() if key.endswith("-function")
    }
    assert len(functions) == 21
    assert sum("deletion-vectors.enabled" in one.options for one in dealt) > 20


def test_a_history_is_the_same_whenever_it_is_dealt() -> None:
    once, again = history(7, 11), history(7, 11)
    assert (once.options, once.commits, once.keys) == (again.options, again.commits, again.keys)
