# SPDX-License-Identifier: Apache-2.0
"""The benchmark suite still runs: its cheap parts, small, results checked as in the large run."""

import json
import subprocess
import sys

import pytest

from tests.bench.measure import ROOT


@pytest.mark.full
def test_the_parts_without_spark_run_and_their_figures_are_kept(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench", "--quick", "--only", "merge,storage,planning"]
    done = subprocess.run(
        [*command, "--out", str(out), "--scratch", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(out.read_text())
    assert set(document["parts"]) == {"merge", "storage", "planning"}
    figures = [figure for part in document["parts"].values() for figure in part["figures"]]
    assert all(figure["value"] >= 0 and figure["unit"] is not None for figure in figures)
    names = {figure["name"] for figure in figures}
    assert {"merge 20 runs", "write-only: changes, wall", "compacting: full read"} <= names
    read = next(figure for figure in figures if figure["name"].startswith("manifests read"))
    assert read["met"], read
    assert {"cpu", "cores", "memory_gb", "python", "libraries", "commit"} <= set(
        document["machine"]
    )
