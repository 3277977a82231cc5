# SPDX-License-Identifier: Apache-2.0
"""What the README shows of Spark runs as it stands there."""

import pytest

from storage.catalog.catalog import FileSystemCatalog
from tests.unit.test_readme import example

pytestmark = pytest.mark.spark


def test_changes_in_spark(spark, tmp_path, monkeypatch, capfd):
    example(tmp_path, monkeypatch, "changelog.md")
    example(tmp_path, monkeypatch, "changelog.md", 1)
    found = FileSystemCatalog(str(tmp_path / "lake")).table("bank.sums").to_arrow().to_pylist()
    assert found == [{"owner": "ada", "accounts": 1, "total": 15}]
