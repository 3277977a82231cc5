# SPDX-License-Identifier: Apache-2.0
"""What the README shows runs as it stands there."""

import pathlib
import re
import runpy

from ingest.config.settings import load_settings

README = pathlib.Path(__file__).parents[2] / "README.md"


def example(directory, monkeypatch, title, number=0):
    """What a Python example below a heading leaves behind.

    Its paths are made absolute: other processes may have been started elsewhere.
    """
    _, _, section = README.read_text(encoding="utf-8").partition(f"## {title}\n")
    script = directory / "example.py"
    block = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    text = re.sub(r'"(lake(?:/[\w./]*)?)"', rf'"{directory}/\1"', block)
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(directory)
    return runpy.run_path(str(script))


def test_every_example_is_run():
    """The last by tests/e2e/test_readme_spark.py."""
    assert README.read_text(encoding="utf-8").count("```python\n") == 4


def test_tables_from_python(tmp_path, monkeypatch):
    rows = example(tmp_path, monkeypatch, "Tables from Python")["orders"].to_arrow().to_pylist()
    assert [row["item"] for row in sorted(rows, key=lambda row: row["id"])] == ["tea", "cup"]


def test_tables_for_others_over_arrow(tmp_path, monkeypatch, capsys):
    example(tmp_path, monkeypatch, "Tables from Python")
    capsys.readouterr()
    frame = example(tmp_path, monkeypatch, "Tables from Python", 1)["frame"]
    assert frame.item() == 11.5
    assert "cup" in capsys.readouterr().out


def test_changes_as_a_stream(tmp_path, monkeypatch, capsys):
    found = example(tmp_path, monkeypatch, "Changes as a stream")
    assert found["place"] == found["accounts"].latest_snapshot().id + 1
    assert [line.count("total") for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_every_configuration_is_one(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    (tmp_path / "registry").write_text("user:password", encoding="utf-8")
    (tmp_path / "s3").write_text("secret", encoding="utf-8")
    base, more = tmp_path / "base.yaml", tmp_path / "more.yaml"
    base.write_text(blocks[0], encoding="utf-8")
    for block in blocks:
        more.write_text(block.replace("/secrets/", f"{tmp_path}/"), encoding="utf-8")
        load_settings([base, more])
