# SPDX-License-Identifier: Apache-2.0
"""Programs that are not among the locked packages: those of `.venv-image`, and Debian's."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".venv-image" / "bin"


def tool(name: str) -> str:
    """Path of a tool; the test is skipped without it."""
    path = TOOLS / name
    if not path.is_file():
        pytest.skip(f"{name} is not installed: `make image-tools`")
    return str(path)


def debian(name: str, package: str) -> str:
    """Path of a system's program; the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: `apt-get install {package}`")
    return path
