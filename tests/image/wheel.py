# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as the Dockerfile does: from the files that `.dockerignore` lets through."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "storage", "changelog", "ingest")


def build_wheel(directory: Path) -> Path:
    """The wheel below `directory`."""
    tree = directory / "sources"
    tree.mkdir(parents=True)
    compiled = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=compiled)
        else:
            shutil.copy(ROOT / name, tree / name)
    # beside the sources: setuptools leaves a `build` folder, whose files later wheels would have
    code = (
        "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    )
    target = directory / "dist"
    target.mkdir()
    subprocess.run(
        [sys.executable, "-c", code, str(target)], cwd=tree, check=True, capture_output=True
    )
    return next(target.glob("*.whl"))
