# SPDX-License-Identifier: Apache-2.0
"""Which files a directory holds for which topic, and where their lines end.

Layout: ``<path>/<topic>/**/<file>`` (the topic is the first folder), or flat ``<path>/<file>`` with
the topic in the file's name: ``shop.customers.0001.jsonl`` is of topic ``shop.customers``. The
extension is removed, then one last element that starts with a digit. Extensions: ``.jsonl``,
``.ndjson``, ``.json``, each also with ``.gz``. Other files, and names that begin with ``.`` or
``_``, are ignored: write under such a name and rename.

Files of a topic are ordered by name (path below the directory, compared as text). The last file of
a topic may grow; it is closed once a later one exists. A ``.gz`` file never grows and is taken
whole.
"""

import dataclasses
import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import orjson

from ingest.config.source_settings import FileSourceSettings, selects_topic
from storage.errors import CorruptDataError

_NAME = re.compile(r"(?P<stem>.+?)\.(?:jsonl|ndjson|json)(?:\.gz)?")
_COUNTER = re.compile(r"\.\d[^.]*$")
_BLOCK = 1 << 16
_BIG_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a topic.

    Attributes:
        name: path below the source's directory, with `/`.
        size: bytes on disk.
        modified_ms: last change [epoch ms].
    """

    name: str
    size: int
    modified_ms: int

    @property
    def packed(self) -> bool:
        """Whether it is compressed, so that positions are those of the unpacked bytes."""
        return self.name.endswith(".gz")


Listing = dict[str, tuple[ListedFile, ...]]
"""Files of each topic, ordered by name."""


def topic_of(name: str) -> str | None:
    """Topic of a path below the source's directory; None for what is not an event file."""
    parts = name.split("/")
    match = _NAME.fullmatch(parts[-1])
    if match is None or any(part.startswith((".", "_")) for part in parts):
        return None
    return parts[0] if len(parts) > 1 else _COUNTER.sub("", match["stem"])


def list_files(settings: FileSourceSettings) -> Listing:
    """The files at this moment.

    Raises:
        OSError: the directory cannot be read.
    """
    files: dict[str, list[ListedFile]] = {}
    for name, path in _walk(settings.path, ""):
        topic = topic_of(name)
        if topic is None or not selects_topic(settings, topic):
            continue
        try:
            status = path.stat()
        except FileNotFoundError:  # removed during the listing
            continue
        entry = ListedFile(name, status.st_size, status.st_mtime_ns // 1_000_000)
        files.setdefault(topic, []).append(entry)
    return {
        topic: tuple(sorted(files[topic], key=lambda entry: entry.name)) for topic in sorted(files)
    }


def _walk(folder: str, above: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Files with their names below the source's directory."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield above + entry.name, entry
            elif not entry.name.startswith((".", "_")):
                yield from _walk(entry.path, f"{above}{entry.name}/")


def open_plain(path: Path) -> IO[bytes] | gzip.GzipFile:
    """Open for reading the unpacked bytes."""
    if path.name.endswith(".gz"):
        return gzip.open(path, "rb")
    return path.open("rb")


def last_complete_end(path: Path, start: int, size: int) -> int:
    """End of the last complete line of a file that may still grow.

    A last line without a newline counts as complete if it is a whole JSON object: no beginning of a
    longer object is one.

    Args:
        path: a plain file.
        start: where a line begins.
        size: bytes to consider; more may have been appended since.

    Returns:
        Position after the last complete line; `start` if there is none.
    """
    rest = b""
    at = size
    with path.open("rb") as stream:
        while at > start and b"\n" not in rest:
            step = min(max(_BLOCK, len(rest)), at - start)
            at -= step
            stream.seek(at)
            rest = stream.read(step) + rest
    newline = rest.rfind(b"\n")
    tail = rest[newline + 1 :]
    if tail.strip() and _is_object(tail):
        return size
    return at + newline + 1 if newline >= 0 else start


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def cut_after(path: Path, position: int, end: int) -> int:
    """First line border at or after `position`.

    Args:
        path: a plain file.
        position: at least 1.
        end: a line border; the answer is not above it.
    """
    if position >= end:
        return end
    with path.open("rb") as stream:
        at = position - 1
        stream.seek(at)
        while at < end:
            block = stream.read(min(_BLOCK, end - at))
            if not block:
                break
            newline = block.find(b"\n")
            if newline >= 0:
                return at + newline + 1
            at += len(block)
    return end


def count_lines(path: Path, start: int, end: int, max_lines: int, scan: int) -> tuple[int, int]:
    """Lines in a piece of a plain file, counting until there are enough.

    Args:
        path: a plain file.
        start: where a line begins.
        end: a line border.
        max_lines: stop after this many lines; at least 1.
        scan: read no more than this many bytes.

    Returns:
        (position, lines): `position` is after the last line counted, at most `end`.
    """
    lines = 0
    at = start
    border = start
    with path.open("rb") as stream:
        stream.seek(start)
        while at < end and at - start < scan and lines < max_lines:
            block = stream.read(min(_BIG_BLOCK, end - at))
            if not block:
                break
            count = block.count(b"\n")
            if lines + count >= max_lines:
                return at + _nth_newline(block, max_lines - lines) + 1, max_lines
            lines += count
            newline = block.rfind(b"\n")
            border = at + newline + 1 if newline >= 0 else border
            at += len(block)
    if at >= end > border:  # a last line without a newline
        return end, lines + 1
    return border, lines


def _nth_newline(block: bytes, count: int) -> int:
    position = -1
    for _ in range(count):
        position = block.find(b"\n", position + 1)
    return position


def unpacked_size(path: Path) -> int:
    """Bytes in a compressed file.

    Raises:
        CorruptDataError: it is damaged or not yet complete.
    """
    size = 0
    try:
        with gzip.open(path, "rb") as stream:
            while block := stream.read(_BIG_BLOCK):
                size += len(block)
    except (EOFError, gzip.BadGzipFile) as error:
        raise CorruptDataError(
            "a compressed source file cannot be unpacked",
            detail=str(error),
            hint="write it under another name and rename it when it is complete",
            path=path,
        ) from error
    return size
