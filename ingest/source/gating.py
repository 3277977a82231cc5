# SPDX-License-Identifier: Apache-2.0
"""Topics whose records may wait: they do not advance until enough are there or time is up.

Runs where the source's offsets are offered, so nothing that was read is held back: a record that
waits is still in the source. What is offered in the end is in Spark's log like any other offset,
and a batch that is done again has it from there. The memory of how long records have waited is of
this process: what it finds waiting at its first look has waited for an unknown time and goes at
once.
"""

from collections.abc import Mapping
from typing import Any

from ingest.source.ranges import resume_token
from storage.clock import Clock

__all__ = ["MOST_WAITING", "TopicGate"]

MOST_WAITING = 10_000
"""Records of a topic that wait at most: enough for a file that need not be merged soon."""

_BYTES_PER_RECORD = 1024
_FILES = "files"


class TopicGate:
    """See the module.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: set[str] = set()
        self._since_s: dict[str, float] = {}

    def held(
        self, start: Mapping[str, Any], end: Mapping[str, Any], waits: Mapping[str, float]
    ) -> frozenset[str]:
        """The topics that are not to advance now.

        Args:
            start: where the next batch begins, in the source's own form.
            end: where it would end without any limit.
            waits: how long records of a topic may wait [s]; topics not named may not.
        """
        now_s = self._clock.monotonic_s()
        held = frozenset(
            topic
            for topic, wait_s in waits.items()
            if self._holds(topic, start.get(topic), end.get(topic), wait_s, now_s)
        )
        self._known.update(end)
        for topic in self._since_s.keys() - waits.keys():
            del self._since_s[topic]
        return held

    def _holds(self, topic: str, before: Any, after: Any, wait_s: float, now_s: float) -> bool:
        if before is None or after is None or before == after:
            self._since_s.pop(topic, None)
            return False
        since_s = self._since_s.setdefault(topic, now_s)
        waiting = _waiting(topic, before, after)
        due = topic not in self._known or now_s - since_s >= wait_s
        if due or waiting is None or waiting >= MOST_WAITING:
            del self._since_s[topic]
            return False
        return True


def _waiting(topic: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> int | None:
    """Records between two places of a topic, of files about; None when it goes backwards."""
    if _FILES in after:
        return sum(to - first for _, first, to, _ in after[_FILES]) // _BYTES_PER_RECORD
    begin, end = resume_token({topic: before})[topic], resume_token({topic: after})[topic]
    ahead = [offset - begin.get(key, offset) for key, offset in end.items()]
    return None if min(ahead, default=0) < 0 else sum(ahead)
