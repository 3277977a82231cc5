# SPDX-License-Identifier: Apache-2.0
"""How much of a file one batch takes: limits in bytes, lines and files, cut at line borders.

Lines are counted exactly in the first megabytes of what a topic may take; beyond them their number
is estimated from those counted. The cut that comes out is written into the offsets, so it is never
computed twice.
"""

from pathlib import Path

from ingest.source.file_listing import count_lines, cut_after

__all__ = ["Budget"]

# 8 MiB are about 13,000 events of 650 bytes and 2 ms of counting: enough for a mean that stands.
_SCAN_BYTES = 8 << 20


class Budget:
    """What one topic may take in one batch. The first line is always granted.

    Args:
        max_bytes: limit [bytes]; None is no limit.
        max_records: limit [lines]; None is no limit.
        max_files: limit on files begun.
    """

    def __init__(self, max_bytes: int | None, max_records: int | None, max_files: int) -> None:
        self._bytes = max_bytes
        self._records = max_records
        self._files = max_files
        self._scan = _SCAN_BYTES
        self._taken = 0

    def begin_file(self) -> bool:
        """Whether another file may be begun; counts it."""
        if self._files <= 0 or self._exhausted():
            return False
        self._files -= 1
        return True

    def take_whole(self, size: int, lines: int) -> None:
        """Take a file that cannot be cut; the limits can be exceeded by it."""
        self._spend(size, lines)

    def take(self, path: Path, position: int, limit: int) -> int:
        """Take from a plain file.

        Args:
            path: the file.
            position: where a line begins.
            limit: the line border up to which there is something to take.

        Returns:
            The line border up to which it was granted; `position` if nothing was.
        """
        if position >= limit or self._exhausted():
            return position
        end = limit
        if self._bytes is not None and end - position > self._bytes:
            end = cut_after(path, position + max(1, self._bytes), limit)
        if self._records is None:
            self._spend(end - position, 0)
            return end
        wanted = max(1, self._records)
        at, lines = count_lines(path, position, end, wanted, self._scan)
        self._scan = max(1 << 16, self._scan - (at - position))
        if lines < wanted and at < end:
            end, lines = _extrapolate(path, position, at, end, lines, wanted)
        else:
            end = at
        self._spend(end - position, lines)
        return end

    def _exhausted(self) -> bool:
        if self._taken == 0:
            return False
        return (self._bytes is not None and self._bytes <= 0) or (
            self._records is not None and self._records <= 0
        )

    def _spend(self, size: int, lines: int) -> None:
        self._taken += size
        if self._bytes is not None:
            self._bytes -= size
        if self._records is not None:
            self._records -= lines


def _extrapolate(
    path: Path, start: int, at: int, end: int, lines: int, wanted: int
) -> tuple[int, int]:
    """(border, lines) for `wanted` lines when only those before `at` were counted."""
    if lines == 0:  # one line longer than the scan
        return cut_after(path, at + 1, end), 1
    mean = (at - start) / lines
    target = at + int((wanted - lines) * mean)
    if target >= end:
        return end, lines + round((end - at) / mean)
    return cut_after(path, max(target, at + 1), end), wanted
