# SPDX-License-Identifier: Apache-2.0
"""What the README shows runs as it stands there."""

import pathlib
import re
import runpy

import pytest

README = pathlib.Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("number", range(len(re.findall(r"```python\n", README.read_text()))))
def test_python_example_runs(number, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(blocks[number] + "\nrows = orders.to_arrow().to_pylist()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = runpy.run_path(str(script))
    assert [row["item"] for row in sorted(found["rows"], key=lambda row: row["id"])] == [
        "tea",
        "cup",
    ]
