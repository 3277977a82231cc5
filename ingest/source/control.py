# SPDX-License-Identifier: Apache-2.0
"""The control file: how the daemon speaks to its source, which runs in a process of Spark's.

``<checkpoint>/control.json`` holds ``{"drain": true}`` while the source must offer nothing new.
No file says the same as ``{"drain": false}``.
"""

import json
from pathlib import Path

from storage.io.local import LocalFileIO

__all__ = ["draining", "write_control"]

_FILE_NAME = "control.json"


def write_control(checkpoint: Path, *, drain: bool) -> None:
    """Replace the control file atomically; the directory is created."""
    data = json.dumps({"drain": drain}).encode()
    LocalFileIO(durable=False).overwrite_bytes(str(checkpoint / _FILE_NAME), data)


def draining(checkpoint: Path) -> bool:
    """Whether the source must offer nothing new."""
    try:
        text = (checkpoint / _FILE_NAME).read_bytes()
    except FileNotFoundError:
        return False
    return bool(json.loads(text).get("drain", False))
