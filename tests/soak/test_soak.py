# SPDX-License-Identifier: Apache-2.0
"""The soak as a test; `LAKEWARD_SOAK_MINUTES` says how long."""

import os

import pytest

from tests.soak.soak import run_soak


@pytest.mark.spark
@pytest.mark.full
def test_compaction_beside_a_daemon_under_load_changes_no_row(tmp_path):
    minutes = float(os.environ.get("LAKEWARD_SOAK_MINUTES", "1"))
    result = run_soak(tmp_path, minutes=minutes)
    assert result.failures == []
    assert result.stream_restarts == 0
    assert result.dropped > 0
