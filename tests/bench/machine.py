# SPDX-License-Identifier: Apache-2.0
"""Facts about the machine and the software, without which a figure says little."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tests.bench.measure import CORES, ROOT

_LIBRARIES = ("pyspark", "pyarrow", "numpy", "confluent-kafka", "msgspec", "orjson", "fastavro")
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


def facts() -> dict[str, Any]:
    """What the figures were taken on."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": CORES,
        "memory_gb": round(int(_first("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "load_average": list(os.getloadavg()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _output("java", "-version"),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "HEAD"),
        "uncommitted": bool(_output("git", "-C", str(ROOT), "status", "--porcelain")),
    }


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "0"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip().split("\n", maxsplit=1)[0]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
