# SPDX-License-Identifier: Apache-2.0
"""Planning side of the files source: a directory of events, read in name order per topic.

Which files belong to which topic, and when a file is closed: `ingest.source.file_lines`. What a
line is: `ingest.source.file_lines`.

Offset of a topic::

    {"0": 3298534883428,
     "files": [["shop.customers.0002.jsonl", 100, 51234, 51234],
               ["shop.customers.0003.jsonl", 0, 100, 7000]]}

- ``"0"`` is one int64: sequence of the last file << 40 | position after the last byte read. The
  sequence is the file's ordinal in name order, counted from 0 when the stream first saw the topic
  and one up for every file begun. It grows strictly, so it is the record offset, the floor and
  the resume token. (A topic has one partition, 0. A file may have 1 TiB, a topic 2^23 files.)
- ``"files"`` names what the batch that ends here covers: name, first byte, end, and the file's size
  when that was planned. The last one is the file of ``"0"``. A replay reads exactly these bytes,
  whatever has arrived since. Before the first file it is empty and ``"0"`` is 0.

Because offsets grow in name order, a file that arrives with a name before the last one read can
not be read any more. Such a file is detected by counting (more names up to the last one than the
sequence says) and is an error, unless `fail_on_data_loss` is off; so is a file that disappears or
shrinks before it was read to its end. Files read to the end may be removed.
"""

import dataclasses
import logging
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.config.source_settings import FileSourceSettings
from ingest.source.file_lines import (
    POSITION_BITS,
    POSITION_MASK,
    ListedFile,
    Listing,
    count_lines,
    cut_after,
    last_complete_end,
    list_files,
    unpacked_size,
)
from ingest.source.records import OffsetJson, SourceRange, fair_shares, normalize, pack
from storage.clock import Clock, SystemClock
from storage.errors import CorruptDataError, DataLossError, RetryableError

# 8 MiB are about 13,000 events of 650 bytes and 2 ms of counting: enough for a stable mean.
_SCAN_BYTES = 8 << 20


class Budget:
    """What one topic may take in one batch, cut at line borders. The first line is always granted.

    Lines are counted exactly in the first megabytes that a topic may take; beyond them their number
    is extrapolated. The resulting end is written into the offsets, so it is never computed twice.

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
        self._spent_bytes = 0

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
        target = max(1, self._records)
        at, lines = count_lines(path, position, end, target, self._scan)
        self._scan = max(1 << 16, self._scan - (at - position))
        if lines < target and at < end:
            end, lines = _extrapolate(path, position, at, end, lines, target)
        else:
            end = at
        self._spend(end - position, lines)
        return end

    def _exhausted(self) -> bool:
        if self._spent_bytes == 0:
            return False
        return (self._bytes is not None and self._bytes <= 0) or (
            self._records is not None and self._records <= 0
        )

    def _spend(self, size: int, lines: int) -> None:
        self._spent_bytes += size
        if self._bytes is not None:
            self._bytes -= size
        if self._records is not None:
            self._records -= lines


def _extrapolate(
    path: Path, start: int, at: int, end: int, lines: int, line_count: int
) -> tuple[int, int]:
    """(border, lines) for `line_count` lines when only those before `at` were counted."""
    if lines == 0:  # one line longer than the scan
        return cut_after(path, at + 1, end), 1
    mean = (at - start) / lines
    target = at + int((line_count - lines) * mean)
    if target >= end:
        return end, lines + round((end - at) / mean)
    return cut_after(path, max(target, at + 1), end), line_count


_LOG = logging.getLogger(__name__)

_KEY = "0"
_FILES = "files"
# A task below 6 MiB (10,000 events of 650 bytes) costs more than it saves; see ranges.
_MIN_TASK_BYTES = 6 << 20
_SAMPLE_BYTES = 64 << 10
_REMEMBERED_ENDS = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class _Cursor:
    """The reading position of a topic; `name` is empty before the first file."""

    sequence: int
    position: int
    name: str
    seen_bytes: int


class FileSource:
    """See `ingest.source.open.Source`.

    Args:
        clock: for the age of the listing.
    """

    def __init__(self, settings: FileSourceSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._root = Path(settings.path)
        self._listing: Listing = {}
        self._listed_s: float | None = None
        self._frozen = False
        self._ends: dict[str, tuple[int, int]] = {}  # name -> (size, readable end)
        self._warned: set[str] = set()

    def initial(self) -> OffsetJson:
        """See `Source`."""
        return normalize(
            {topic: self._initial_entry(files) for topic, files in self._list().items()}
        )

    def restore(self, stored: Mapping[str, Any]) -> OffsetJson:
        """See `Source`.

        Offsets without file names (a table's own copy holds only the integers) are resolved by
        the file's ordinal in name order, which is right only if no file that was read has been
        removed: the position must at least be a line border there, and a warning is logged.

        Raises:
            DataLossError: there is no such position any more.
        """
        restored: OffsetJson = {}
        for topic, entry in stored.items():
            cursor = _cursor_of(entry)
            if cursor.name or entry[_KEY] == 0:
                restored[topic] = dict(entry)
                continue
            name = self._by_ordinal(topic, cursor)
            at = cursor.position
            restored[topic] = _entry(cursor.sequence, [[name, at, at, at]])
        return normalize(restored)

    def rewind(self, start: Mapping[str, Any], position: Mapping[str, Any]) -> OffsetJson:
        """See `Source`. Offsets count files, so every file since `start` must still be there."""
        listing = self._list()
        restored = self.restore(start)
        for topic, entry in position.items():
            files = listing.get(topic, ())
            cursor, reached = _cursor_of(restored.get(topic)), _cursor_of(entry)
            before, upto = _index_after(files, cursor.name), _index_after(files, reached.name)
            begun = cursor.position < cursor.seen_bytes
            if reached.sequence == cursor.sequence:
                begun = cursor.position < reached.position
            exists = any(file.name == cursor.name for file in files)
            if upto - before != reached.sequence - cursor.sequence or (begun and not exists):
                raise DataLossError(
                    "files that the table missed while it was parked no longer exist",
                    hint="put them back; or `lakeward resnapshot` makes the table whole again",
                    topic=topic,
                    after=cursor.name,
                    upto=reached.name,
                )
        return restored

    def _by_ordinal(self, topic: str, cursor: _Cursor) -> str:
        files = self._list().get(topic, ())
        file = files[cursor.sequence] if cursor.sequence < len(files) else None
        if file is None or not self._is_border(file, cursor.position):
            raise DataLossError(
                "the file that this stream was reading cannot be found",
                hint="put back the files that were read, or start a new stream",
                topic=topic,
                ordinal=cursor.sequence,
                position=cursor.position,
                files=len(files),
            )
        _LOG.warning(
            "a source file was found by its ordinal; right only if no file read was removed",
            extra={"event": "source_by_ordinal", "topic": topic, "file": file.name},
        )
        return file.name

    def _is_border(self, file: ListedFile, position: int) -> bool:
        if file.packed:
            return position == self._end(file, 0, closed=True)
        if position in (0, file.size):
            return True
        return position < file.size and (
            cut_after(self._root / file.name, position, file.size) == position
        )

    def latest(
        self,
        start: Mapping[str, Any],
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        gated: Collection[str] = (),
    ) -> OffsetJson:
        """See `Source`."""
        try:
            listing = self._current()
        except RetryableError as error:
            _LOG.warning(
                "the source directory is unavailable",
                extra={"event": "source_unavailable", "error": str(error)},
            )
            return dict(start)
        cursors = {topic: _cursor_of(start.get(topic)) for topic in listing}
        for topic, cursor in cursors.items():
            self._check(topic, cursor, listing[topic])
        backlogs = {topic: _backlog(cursor, listing[topic]) for topic, cursor in cursors.items()}
        waiting = {
            topic: size for topic, size in backlogs.items() if size > 0 and topic not in gated
        }
        byte_shares = self._byte_shares(waiting, max_bytes)
        record_shares = self._record_shares(waiting, cursors, listing, max_records)
        end = dict(start)
        for topic in waiting:
            budget = Budget(byte_shares[topic], record_shares[topic], self._settings.max_files)
            covered, sequence = self._advance(cursors[topic], listing[topic], budget)
            if covered:
                end[topic] = _entry(sequence, covered)
        return dict(start) if end == start else normalize(end)

    def available(self, start: Mapping[str, Any]) -> OffsetJson:
        """See `Source`."""
        end: OffsetJson = {topic: {_KEY: entry[_KEY]} for topic, entry in start.items()}
        try:
            listing = self._current()
        except RetryableError:
            return normalize(end)
        for topic, files in listing.items():
            cursor = _cursor_of(start.get(topic))
            ahead = len(files) - _index_after(files, cursor.name)
            last = ((cursor.sequence + ahead) << POSITION_BITS) | self._last_end(files)
            end[topic] = {_KEY: max(last, end.get(topic, {_KEY: 0})[_KEY])}
        return normalize(end)

    def ends(self, committed: Mapping[str, int]) -> dict[str, int]:
        """End of every topic.

        Args:
            committed: next offset to read of some topics. For these the end is `committed` plus the
                number of bytes to read, for the others it is an offset. Files are found by their
                ordinal, so files removed meanwhile make the number too small.

        Raises:
            RetryableError: the directory cannot be read.
        """
        result: dict[str, int] = {}
        for topic, files in self._current().items():
            last, count = self._last_end(files), len(files)
            if topic not in committed:
                result[topic] = ((count - 1) << POSITION_BITS) | last
                continue
            sequence = committed[topic] >> POSITION_BITS
            ahead = sum(file.size for file in files[sequence:-1]) + last
            if sequence < count:
                ahead -= committed[topic] & POSITION_MASK
            result[topic] = committed[topic] + (max(0, ahead) if sequence < count else 0)
        return result

    def freeze(self) -> None:
        """See `Source`."""
        self._list()
        self._frozen = True

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[SourceRange]]:
        """See `Source`."""
        ranges: list[SourceRange] = []
        for topic in sorted(end):
            entry = end[topic]
            if start.get(topic, {}).get(_KEY, 0) == entry[_KEY]:
                continue
            files = entry[_FILES]
            sequence = (entry[_KEY] >> POSITION_BITS) - len(files) + 1
            for name, first, last, _ in files:
                base = sequence << POSITION_BITS
                ranges.append(SourceRange(topic, 0, base | first, base | last, (name,)))
                sequence += 1
        return pack(
            ranges,
            parallelism=self._settings.parallelism,
            min_length=_MIN_TASK_BYTES,
            cut=self._cut_position,
        )

    def close(self) -> None:
        """See `Source`; nothing stays open."""

    def _list(self) -> Listing:
        try:
            self._listing = list_files(self._settings)
        except OSError as error:
            raise RetryableError(
                "the source directory cannot be read",
                detail=str(error),
                hint="check `source.path`",
                path=self._root,
            ) from error
        self._listed_s = self._clock.monotonic_s()
        return self._listing

    def _current(self) -> Listing:
        interval = self._settings.discovery_interval_s
        if self._frozen or (
            self._listed_s is not None and self._clock.monotonic_s() - self._listed_s < interval
        ):
            return self._listing
        return self._list()

    def _initial_entry(self, files: Sequence[ListedFile]) -> dict[str, Any]:
        mode = self._settings.startup_mode
        if mode == "earliest":
            return {_KEY: 0, _FILES: []}
        index = len(files) - 1
        if mode == "timestamp":
            since_ms = self._settings.startup_timestamp_ms or 0
            newer = [i for i, file in enumerate(files) if file.modified_ms >= since_ms]
            index = newer[0] - 1 if newer else index
        if index < 0:
            return {_KEY: 0, _FILES: []}
        file = files[index]
        end = self._end(file, 0, closed=index < len(files) - 1)
        return _entry(index, [[file.name, end, end, end]])

    def _end(self, file: ListedFile, start: int, *, closed: bool) -> int:
        """Up to where a file can be read now."""
        if closed and not file.packed:
            return file.size
        size, end = self._ends.get(file.name, (-1, 0))
        if size != file.size or end < start:
            path = self._root / file.name
            packed = file.packed
            end = unpacked_size(path) if packed else last_complete_end(path, start, file.size)
            # the last file of each topic is asked for again
            if len(self._ends) >= _REMEMBERED_ENDS + len(self._listing):
                self._ends.clear()
            self._ends[file.name] = (file.size, end)
        return end

    def _last_end(self, files: Sequence[ListedFile]) -> int:
        """Up to where a topic's last file can be read; 0 while that is unknown."""
        try:
            return self._end(files[-1], 0, closed=False)
        except (CorruptDataError, FileNotFoundError):
            return 0

    def _advance(
        self, cursor: _Cursor, files: Sequence[ListedFile], budget: Budget
    ) -> tuple[list[list[Any]], int]:
        """(what to cover next, sequence of the last file of it)."""
        covered: list[list[Any]] = []
        sequence, position = cursor.sequence, cursor.position
        index = _index_after(files, cursor.name)
        if index and files[index - 1].name == cursor.name and not files[index - 1].packed:
            index -= 1
        for at in range(index, len(files)):
            file = files[at]
            begun = file.name == cursor.name
            position = cursor.position if begun else 0
            if not begun and not budget.begin_file():
                break
            grant = self._take(file, position, budget, closed=at < len(files) - 1)
            if grant is None:
                break
            sequence += 0 if begun else 1
            end, limit = grant
            if end > position or not begun:
                size = end if file.packed else file.size
                covered.append([file.name, position, end, size])
            if end < limit:
                break
        return covered, sequence

    def _take(
        self, file: ListedFile, position: int, budget: Budget, *, closed: bool
    ) -> tuple[int, int] | None:
        """(end granted, end of the readable part) of one file; None if it cannot be begun yet."""
        try:
            limit = self._end(file, position, closed=closed)
        except CorruptDataError:
            if closed:
                raise
            return None  # probably still being written
        except FileNotFoundError:
            return None  # the next listing shows it
        if file.packed:
            budget.take_whole(limit, _packed_lines(limit))
            return limit, limit
        end = budget.take(self._root / file.name, position, limit)
        if end == position == 0 and (limit > 0 or not closed):
            return None
        return end, limit

    def _check(self, topic: str, cursor: _Cursor, files: Sequence[ListedFile]) -> None:
        """Detect files that disappeared, shrank or arrived too late."""
        if not cursor.name:
            return
        index = _index_after(files, cursor.name)
        current = files[index - 1] if index and files[index - 1].name == cursor.name else None
        if current is None and cursor.position < cursor.seen_bytes:
            self._report_lost("a source file disappeared before it was read", topic, cursor.name)
        elif current is not None and not current.packed and current.size < cursor.position:
            self._report_lost("a source file shrank below what was read", topic, cursor.name)
        if index > cursor.sequence + 1:
            candidates = [file for file in files[:index] if file is not current]
            newest = max(candidates, key=lambda file: (file.modified_ms, file.name))
            self._report_lost(
                "a source file arrived whose name sorts before the last one read",
                topic,
                newest.name,
            )

    def _report_lost(self, message: str, topic: str, name: str) -> None:
        error = DataLossError(
            message,
            hint="name new files so that they sort last, and keep files until they are read; or "
            "set `source.fail.on.data.loss: false` to continue without it",
            topic=topic,
            file=name,
        )
        if self._settings.fail_on_data_loss:
            raise error
        if str(error) not in self._warned:
            self._warned.add(str(error))
            _LOG.warning("%s", error, extra={"event": "source_data_loss"})

    def _byte_shares(self, waiting: Mapping[str, int], limit: int | None) -> dict[str, int | None]:
        if limit is None:
            return dict.fromkeys(waiting)
        return dict(zip(waiting, fair_shares(list(waiting.values()), limit), strict=True))

    def _record_shares(
        self,
        waiting: Mapping[str, int],
        cursors: Mapping[str, _Cursor],
        listing: Listing,
        limit: int | None,
    ) -> dict[str, int | None]:
        """Lines each topic may take; by estimate, as lines are not known before they are read."""
        if limit is None or len(waiting) <= 1:
            return dict.fromkeys(waiting, limit)
        lines = [
            max(1, int(size / self._line_bytes(cursors[topic], listing[topic])))
            for topic, size in waiting.items()
        ]
        if sum(lines) * 2 <= limit:  # far enough below it for an estimate
            return dict.fromkeys(waiting, limit)
        return dict(zip(waiting, fair_shares(lines, limit), strict=True))

    def _line_bytes(self, cursor: _Cursor, files: Sequence[ListedFile]) -> float:
        """Mean line length where the topic will be read next [bytes on disk]."""
        for file in files[max(0, _index_after(files, cursor.name) - 1) :]:
            position = cursor.position if file.name == cursor.name else 0
            end = min(file.size, position + _SAMPLE_BYTES)
            if file.packed or end <= position or file.name < cursor.name:
                continue
            path = self._root / file.name
            at, lines = count_lines(path, position, end, _SAMPLE_BYTES, _SAMPLE_BYTES)
            return (at - position) / lines if lines else float(_SAMPLE_BYTES)
        return 1024.0

    def _cut_position(self, piece: SourceRange, offset: int) -> int:
        """Where a range can be cut: the line border at or after `offset`; its end if nowhere."""
        name = piece.extra[0]
        if name.endswith(".gz"):
            return piece.end
        base = piece.start & ~POSITION_MASK
        try:
            return base | cut_after(self._root / name, offset - base, piece.end - base)
        except OSError:
            return piece.end  # the task reports what became of the file


def _cursor_of(entry: Mapping[str, Any] | None) -> _Cursor:
    files = (entry or {}).get(_FILES) or ()
    offset = (entry or {}).get(_KEY, 0)
    if not files and not offset:
        return _Cursor(-1, 0, "", 0)
    name, seen_bytes = (files[-1][0], files[-1][3]) if files else ("", 0)
    return _Cursor(offset >> POSITION_BITS, offset & POSITION_MASK, name, seen_bytes)


def _entry(sequence: int, files: list[list[Any]]) -> dict[str, Any]:
    return {_KEY: (sequence << POSITION_BITS) | files[-1][2], _FILES: files}


def _index_after(files: Sequence[ListedFile], name: str) -> int:
    """Number of files up to and with `name`."""
    return bisect_right(files, name, key=lambda file: file.name) if name else 0


def _backlog(cursor: _Cursor, files: Sequence[ListedFile]) -> int:
    index = _index_after(files, cursor.name)
    size = sum(file.size for file in files[index:])
    if index and files[index - 1].name == cursor.name and not files[index - 1].packed:
        size += max(0, files[index - 1].size - cursor.position)
    return size


def _packed_lines(size: int) -> int:
    """Lines in a compressed file, roughly; counting them would unpack it again."""
    return max(1, size // 1024)
