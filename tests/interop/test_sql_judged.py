# SPDX-License-Identifier: Apache-2.0
"""The statements of `tests/sql` do in Paimon's Spark connector what they do here."""

import collections
import pathlib

import pytest

from tests.interop import spark_judge
from tests.interop.spark_peer import SparkPeer
from tests.sql import suite

pytestmark = [pytest.mark.interop, pytest.mark.spark]

_FILES = sorted(suite.CASES.glob("*.yaml"))
_COUNTS: collections.Counter[str] = collections.Counter()
_JUDGED: set[pathlib.Path] = set()


@pytest.mark.full
@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_statements_agree_with_paimons_spark(spark: SparkPeer, path: pathlib.Path) -> None:
    known = spark_judge.declared()
    verdicts = list(spark_judge.judge_file(path, spark))
    differing = {verdict.id for verdict in verdicts if verdict.kind == "differs"}
    undeclared = [v for v in verdicts if v.kind == "differs" and v.id not in known]
    assert not undeclared, "\n".join(f"{v.id}: {v.sql}\n  {v.text}" for v in undeclared)
    stale = {name for name in known if name.startswith(f"{path.stem}/")} - differing
    assert not stale, f"declared, but there is no difference: {sorted(stale)}"
    _COUNTS.update(verdict.kind for verdict in verdicts)
    _JUDGED.add(path)


@pytest.mark.full
def test_most_statements_are_judged() -> None:
    """What README.md says of the judge; after the tests of all files only."""
    if set(_FILES) != _JUDGED:
        pytest.skip("not all files were judged")
    print(f"\n{dict(_COUNTS)}")
    assert _COUNTS["agrees"] >= 300
    assert _COUNTS["agrees"] + _COUNTS["differs"] >= 500


def test_every_declared_difference_has_a_cause_and_a_reason() -> None:
    steps = {
        f"{path.stem}/{case['id']}/{number}"
        for path in _FILES
        for case in suite.load(path)
        for number in range(1, len(case["steps"]) + 1)
    }
    for name, difference in spark_judge.declared().items():
        assert name in steps
        assert difference.cause in ("version", "spark", "ours")
        assert difference.reason
        assert difference.document or difference.cause == "spark"
