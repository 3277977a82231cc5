# SPDX-License-Identifier: Apache-2.0
"""Control files by which the daemon limits what its source, another process of Spark, offers.

``<checkpoint>/control.json`` holds ``{"drain": true}`` while the source must offer nothing new.
No file says the same as ``{"drain": false}``.

``<checkpoint>/waits.json`` holds ``{topic: seconds}`` for topics whose records may wait. It is a
separate file with another writer: a change of waits must not revoke a drain. `TopicGate` applies
the waits.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.source.ranges import resume_token
from storage.clock import Clock
from storage.io.local import LocalFileIO

MOST_WAITING = 10_000
"""Maximum of waiting records of a topic: enough for a file that need not be merged soon."""

_BYTES_PER_RECORD = 1024
_FILES = "files"


class StopRequested(Exception):
    """A batch was refused because the stream drains."""


class TopicGate:
    """Topics whose records may wait: they advance when enough are waiting, or time is up.

    Gates where the source's offsets are offered, so nothing that was read is kept back: a record
    that waits is still in the source. Offered offsets are in Spark's log, where a repeated batch
    finds them. How long records have waited is known to this process only: records that wait at its
    first poll have waited for an unknown time and are offered at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known_topics: set[str] = set()
        self._since_s: dict[str, float] = {}

    def gated(
        self, start: Mapping[str, Any], end: Mapping[str, Any], waits: Mapping[str, float]
    ) -> frozenset[str]:
        """Topics that must not advance now.

        Args:
            start: where the next batch begins, in the source's own form.
            end: where it would end without any limit.
            waits: how long records of a topic may wait [s]; topics not named may not.
        """
        now_s = self._clock.monotonic_s()
        gated = frozenset(
            topic
            for topic, wait_s in waits.items()
            if self._holds(topic, start.get(topic), end.get(topic), wait_s, now_s)
        )
        self._known_topics.update(end)
        for topic in self._since_s.keys() - waits.keys():
            del self._since_s[topic]
        return gated

    def _holds(self, topic: str, before: Any, after: Any, wait_s: float, now_s: float) -> bool:
        if before is None or after is None or before == after:
            self._since_s.pop(topic, None)
            return False
        since_s = self._since_s.setdefault(topic, now_s)
        waiting = _waiting(topic, before, after)
        due = topic not in self._known_topics or now_s - since_s >= wait_s
        if due or waiting is None or waiting >= MOST_WAITING:
            del self._since_s[topic]
            return False
        return True


def _waiting(topic: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Records between two positions of a topic, estimated for files; None if it goes backwards."""
    if _FILES in after:
        return sum(to - first for _, first, to, _ in after[_FILES]) // _BYTES_PER_RECORD
    begin, end = resume_token({topic: before})[topic], resume_token({topic: after})[topic]
    ahead = [offset - begin.get(key, offset) for key, offset in end.items()]
    return None if min(ahead, default=0) < 0 else sum(ahead)


_FILE_NAME = "control.json"
_WAITS_NAME = "waits.json"


def write_control(checkpoint: Path, *, drain: bool) -> None:
    """Replace the control file atomically; the directory is created."""
    _write(checkpoint / _FILE_NAME, {"drain": drain})


def draining(checkpoint: Path) -> bool:
    """Whether the source must offer nothing new."""
    return bool(_read(checkpoint / _FILE_NAME).get("drain", False))


def write_topic_waits(checkpoint: Path, waits: Mapping[str, float]) -> None:
    """Replace how long records of a topic may wait [s], atomically; the directory is created."""
    _write(checkpoint / _WAITS_NAME, dict(waits))


def topic_waits(checkpoint: Path) -> dict[str, float]:
    """Read how long records of a topic may wait [s]; topics that may not wait are left out."""
    waits = _read(checkpoint / _WAITS_NAME)
    return {str(topic): float(wait_s) for topic, wait_s in waits.items()}


def _write(path: Path, content: Mapping[str, object]) -> None:
    data = json.dumps(content, sort_keys=True).encode()
    LocalFileIO(durable=False).overwrite_bytes(str(path), data)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    return content
