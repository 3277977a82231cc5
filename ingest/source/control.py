# SPDX-License-Identifier: Apache-2.0
"""Control files: how the daemon speaks to its source, which runs in a process of Spark's.

``<checkpoint>/control.json`` holds ``{"drain": true}`` while the source must offer nothing new.
No file says the same as ``{"drain": false}``.

``<checkpoint>/waits.json`` holds ``{topic: seconds}`` for topics whose records may wait. It is a
file of its own because others write it: a word about waiting must not take back a drain.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from storage.io.local import LocalFileIO

__all__ = ["draining", "topic_waits", "write_control", "write_topic_waits"]

_FILE_NAME = "control.json"
_WAITS_NAME = "waits.json"


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


def write_topic_waits(checkpoint: Path, waits: Mapping[str, float]) -> None:
    """Say how long records of a topic may wait [s]; one atomic step, the directory is created."""
    data = json.dumps(dict(waits), sort_keys=True).encode()
    LocalFileIO(durable=False).overwrite_bytes(str(checkpoint / _WAITS_NAME), data)


def topic_waits(checkpoint: Path) -> dict[str, float]:
    """How long records of a topic may wait [s]; topics that may not are not in it."""
    try:
        text = (checkpoint / _WAITS_NAME).read_bytes()
    except FileNotFoundError:
        return {}
    return {str(topic): float(wait_s) for topic, wait_s in json.loads(text).items()}
