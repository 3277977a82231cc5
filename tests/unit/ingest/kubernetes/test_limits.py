# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from ingest.kubernetes.pods import available_cores, heap_of, memory_limit
from storage.errors import InvalidOptionError

MACHINE = len(os.sched_getaffinity(0))


def test_memory_limit_of_version_two(tmp_path):
    (tmp_path / "memory.max").write_text("4294967296\n")
    assert memory_limit(tmp_path) == 4 << 30


def test_memory_limit_of_version_one(tmp_path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1073741824\n")
    assert memory_limit(tmp_path) == 1 << 30


@pytest.mark.parametrize("text", ["max", "9223372036854771712", ""])
def test_no_memory_limit(tmp_path, text):
    assert memory_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text(text)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(text)
    assert memory_limit(tmp_path) is None


def test_the_heap_is_less_than_half_and_enough_for_spark():
    assert heap_of(4 << 30) == 1843
    assert heap_of(600 << 20) == 512


def test_cores_of_the_machine_when_nothing_limits(tmp_path):
    assert available_cores({}, tmp_path) == MACHINE
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cores({}, tmp_path) == MACHINE


def test_cpu_limit_rounds_up_but_not_above_the_machine(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert available_cores({}, tmp_path) == 1
    (tmp_path / "cpu.max").write_text("99000000 100000\n")
    assert available_cores({}, tmp_path) == MACHINE


def test_cpu_limit_of_version_one(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert available_cores({}, tmp_path) == MACHINE
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    assert available_cores({}, tmp_path) == 1


def test_the_variable_wins(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert available_cores({"LAKEWARD_CORES": "6"}, tmp_path) == 6
    for wrong in ("0", "two", "1.5", "-1"):
        with pytest.raises(InvalidOptionError, match="LAKEWARD_CORES"):
            available_cores({"LAKEWARD_CORES": wrong}, tmp_path)
