# SPDX-License-Identifier: Apache-2.0
"""Every case of statements as a test of its own."""

import pathlib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.sql.suite import CASES, differences, load, run_case

_FILES = sorted(CASES.glob("*.yaml"))
_CASES = [
    pytest.param(case, id=f"{path.stem}-{case['id']}") for path in _FILES for case in load(path)
]


@pytest.mark.parametrize("case", _CASES)
def test_statements_give_what_is_written(case: Mapping[str, Any], tmp_path: pathlib.Path) -> None:
    assert not list(run_case(case, tmp_path))


def test_there_are_statements_in_both_spellings_and_many_errors() -> None:
    steps = [step for path in _FILES for case in load(path) for step in case["steps"]]
    assert len(steps) >= 300
    assert sum("error" in step for step in steps) >= 60
    text = " ".join(step["sql"] for step in steps)
    for word in ("NOT ENFORCED", "USING paimon", "TBLPROPERTIES", "OPTIONS(", "VERSION AS OF"):
        assert word in text
    ids = [(path.stem, case["id"]) for path in _FILES for case in load(path)]
    assert len(ids) == len(set(ids))


def test_a_wrong_expectation_is_a_difference() -> None:
    found = {"rows": [[1]], "columns": ["a"]}
    assert list(differences({"rows": [[2]]}, found, "SELECT 1"))
    assert list(differences({"error": {"class": "SqlError"}}, found, "SELECT 1"))
    assert list(differences({}, found, "SELECT 1"))
    assert not list(differences({"rows": [[1]]}, found, "SELECT 1"))
