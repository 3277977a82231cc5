# SPDX-License-Identifier: Apache-2.0
"""Commit times of snapshots or long-lived changelogs by id, read when asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from storage.format.metadata.snapshot import Snapshot

__all__ = ["CommitTimes"]

_TOGETHER = 64
"""Most documents read at a time to learn their age."""


class CommitTimes(Mapping[int, int]):
    """Commit time [epoch ms] by id.

    More and more documents are read at a time, for the first often decides.

    Args:
        ids: ascending.
        read: gives those of some ids that are still there.
    """

    def __init__(
        self, ids: Iterable[int], read: Callable[[Sequence[int]], Iterable[Snapshot]]
    ) -> None:
        self._ids = tuple(ids)
        self._read = read
        self._times: dict[int, int] = {}
        self._read_until = 0
        self._window = 1

    def __getitem__(self, snapshot_id: int) -> int:
        if snapshot_id >= self._read_until:
            self._read_until = snapshot_id + self._window
            self._window = min(2 * self._window, _TOGETHER)
            some = [one for one in self._ids if snapshot_id <= one < self._read_until]
            self._times |= {found.id: found.time_ms for found in self._read(some)}
        return self._times[snapshot_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)
