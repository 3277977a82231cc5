# SPDX-License-Identifier: Apache-2.0
"""Every conformance case as a test of its own, and the honesty of the runner."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from storage.errors import LakewardError
from storage.options.options import TableOptions, require_writable
from tests.conformance.cases import CASES, case_files, load_cases
from tests.conformance.features import LATER, option_needs
from tests.conformance.runner import needs_hive, run_case

_FILES = case_files([CASES])
_CASES = [case for path in _FILES for case in load_cases(path)]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case["id"], marks=pytest.mark.full if needs_hive(case) else ())
        for case in _CASES
    ],
)
def test_table_behaves_as_specified(case: Mapping[str, Any], tmp_path: pathlib.Path) -> None:
    report = run_case(case, tmp_path)
    assert not report.failures, "\n".join(report.failures)
    if report.left_out:
        pytest.skip(report.skip_reason)


_REFUSED = {
    "sequence.snapshot-ordering": {"sequence.snapshot-ordering": "true"},
}


@pytest.mark.parametrize("feature", sorted(_REFUSED.keys() & LATER.keys()))
def test_a_feature_that_is_skipped_is_also_refused(feature: str) -> None:
    """When this fails the feature is there: delete its entry from `LATER`."""
    raw = {"bucket": "1", **_REFUSED[feature]}
    with pytest.raises(LakewardError):
        require_writable(TableOptions.from_strings(raw))


def test_every_file_holds_the_cases_of_its_topic() -> None:
    found = {path.stem: {case["topic"] for case in load_cases(path)} for path in _FILES}
    assert found == {topic: ({topic} if topic != "legend" else set()) for topic in found}
    ids = [case["id"] for case in _CASES]
    assert len(ids) == len(set(ids))
    assert sum(case["topic"] != "regression" for case in _CASES) == 399


def test_options_of_this_release_need_nothing() -> None:
    options = {"bucket": "4", "ignore-delete": "true", "write-only": "true"}
    assert list(option_needs(options)) == []


def test_an_unknown_key_is_a_failure(tmp_path: pathlib.Path) -> None:
    case = {
        "id": "x",
        "table": {"columns": [["k", "INT"]], "primary_key": ["k"], "colour": "red"},
        "steps": [{"write": {"rows": [], "speed": 1}}, {"jump": {}}],
        "expect": {"ok": True, "taste": "sweet"},
    }
    report = run_case(case, tmp_path)
    for word in ("colour", "speed", "jump", "taste"):
        assert word in report.failures[0]


def test_a_wrong_expectation_is_a_failure(tmp_path: pathlib.Path) -> None:
    case = {
        "id": "x",
        "table": {"columns": [["k", "INT"], ["v", "INT"]], "primary_key": ["k"]},
        "steps": [{"write": {"rows": [["+I", 1, 1]]}}, {"check": {"rows": [[1, 2]]}}],
        "expect": {"rows": [[2, 2]]},
    }
    report = run_case(case, tmp_path)
    assert len(report.failures) == 2
    assert report.status == "failed"
