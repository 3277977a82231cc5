# SPDX-License-Identifier: Apache-2.0
"""Every golden case as a test of its own."""

import pathlib

import pytest

from tests.golden.replay import replay_case
from tests.golden.runner import find_cases, run_case

_PACK = pathlib.Path(__file__).parent / "data" / "public"


@pytest.mark.parametrize("path", find_cases(_PACK), ids=lambda path: path.name)
def test_table_reads_as_java_reads_it(path: pathlib.Path) -> None:
    report = run_case(path)
    assert not report.failures, "\n".join(report.failures)
    if report.left_out:
        pytest.skip(report.skip_reason)


@pytest.mark.parametrize("path", find_cases(_PACK), ids=lambda path: path.name)
def test_we_write_what_java_wrote(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    report = replay_case(path, tmp_path)
    assert not report.failures, "\n".join(report.failures)
    if report.left_out:
        pytest.skip(report.skip_reason)
