# SPDX-License-Identifier: Apache-2.0
"""Every conformance case as a test of its own, and the honesty of the runner."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from storage.errors import LakewardError
from storage.options import TableOptions, require_writable
from tests.conformance.cases import load_cases
from tests.conformance.features import LATER, option_needs
from tests.conformance.runner import run_case

_CASES = load_cases(pathlib.Path(__file__).with_name("cases.yaml"))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["id"])
def test_table_behaves_as_specified(case: Mapping[str, Any], tmp_path: pathlib.Path) -> None:
    report = run_case(case, tmp_path)
    assert not report.failures, "\n".join(report.failures)
    if report.left_out:
        pytest.skip(report.skip_reason)


_REFUSED = {
    "first-row-compaction": {"merge-engine": "first-row"},
    "sequence.snapshot-ordering": {"sequence.snapshot-ordering": "true"},
    "record-level.expire-time": {"record-level.expire-time": "1 d"},
    "force-lookup": {"force-lookup": "true"},
    "changelog-producer=input": {"changelog-producer": "input"},
    "changelog-producer=lookup": {"changelog-producer": "lookup"},
    "changelog-producer=full-compaction": {"changelog-producer": "full-compaction"},
    "file.format=orc": {"file.format": "orc"},
    "file.format=avro": {"file.format": "avro"},
    "deletion-vector-compaction": {"deletion-vectors.enabled": "true"},
}


@pytest.mark.parametrize("feature", sorted(_REFUSED.keys() & LATER.keys()))
def test_a_feature_that_is_skipped_is_also_refused(feature: str) -> None:
    """When this fails the feature is there: delete its entry from `LATER`."""
    raw = {"bucket": "1", **_REFUSED[feature]}
    with pytest.raises(LakewardError):
        require_writable(TableOptions.from_strings(raw))


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
