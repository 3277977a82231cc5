# SPDX-License-Identifier: Apache-2.0
"""Executor side of the files source: lines of one range of one file.

A line is either the record's value as it stands, which is never parsed here, or an archived Kafka
record: a JSON object with the member ``value`` and any of ``key``, ``headers``, ``timestamp`` (and
``topic``, ``partition``, ``offset``, which are ignored), and no other. Key and value are nested
JSON, whose bytes are handed on untouched, or strings, whose content is; null is absent. Headers are
an object, or an array of ``[name, value]`` pairs or of ``{"key": …, "value": …}`` objects. A blank
line is ignored; the bare token ``null`` is a tombstone.

`FileSourceSettings.lines` says which of the two. No event of a format with an envelope looks like
an archived record, so there the line itself shows it (`auto`: it begins with one of the names).
A row of the other formats may have such columns: there a line that looks like a record stops the
stream (`ask`) until the setting is given. In any case a line that is no such object is a value.

The offset of a record is ``file sequence << 40 | position of its line``.
"""

import dataclasses
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import orjson

from ingest.config.source_settings import FileSourceSettings, selects_topic
from ingest.source.records import NO_TIMESTAMP, RawBatch, SourceRange
from storage.errors import CorruptDataError, DataLossError, InvalidOptionError

# Which files a directory holds for which topic, and where their lines end.
#
# Layout: ``<path>/<topic>/**/<file>`` (the topic is the first folder), or flat ``<path>/<file>``
# with the topic in the file's name: ``shop.customers.0001.jsonl`` is of topic ``shop.customers``.
# The extension is removed, then one last element that starts with a digit. Extensions: ``.jsonl``,
# ``.ndjson``, ``.json``, each also with ``.gz``. Other files, and names that begin with ``.`` or
# ``_``, are ignored: write under such a name and rename.
#
# Files of a topic are ordered by name (path below the directory, compared as text). The last file
# of a topic may grow; it is closed once a later one exists. A ``.gz`` file never grows and is taken
# whole.


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
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptDataError(
            "a compressed source file cannot be unpacked",
            detail=str(error),
            hint="write it under another name and rename it when it is complete",
            path=path,
        ) from error
    return size


POSITION_BITS = 40
POSITION_MASK = (1 << POSITION_BITS) - 1

# About 3,000 events of 650 bytes: what the decoder likes, and small enough for the CPU's caches.
_BLOCK_BYTES = 2 << 20
_BATCH_RECORDS = 5000

_ENVELOPE_STARTS = tuple(
    b'{%s"%s"' % (space, name)
    for space in (b"", b" ")
    for name in (b"key", b"value", b"headers", b"timestamp", b"topic", b"partition", b"offset")
)


_ABSENT = msgspec.Raw()


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    value: msgspec.Raw
    key: msgspec.Raw = _ABSENT
    headers: msgspec.Raw = _ABSENT
    timestamp: int | None = None
    topic: Any = None
    partition: Any = None
    offset: Any = None


_DECODER = msgspec.json.Decoder(_Envelope)


class _LineExtras:
    """Headers and timestamp of one archived record."""

    __slots__ = ("_headers", "_timestamp_ms")

    def __init__(self, headers: bytes, timestamp_ms: int | None) -> None:
        self._headers = headers
        self._timestamp_ms = timestamp_ms

    def headers(self) -> list[tuple[str, Any]]:
        """See `RecordExtras`."""
        try:
            raw = orjson.loads(self._headers) if self._headers else None
        except ValueError:  # the line's form was checked, not every string in it
            return [("headers", self._headers)]
        if isinstance(raw, dict):
            return [(name, _header(value)) for name, value in raw.items()]
        pairs: list[tuple[str, Any]] = []
        for item in raw if isinstance(raw, list) else ():
            if isinstance(item, dict) and "key" in item:
                pairs.append((str(item["key"]), _header(item.get("value"))))
            elif isinstance(item, list) and len(item) == 2:
                pairs.append((str(item[0]), _header(item[1])))
        return pairs

    def timestamp(self) -> tuple[int, int]:
        """See `RecordExtras`."""
        return 1, NO_TIMESTAMP if self._timestamp_ms is None else self._timestamp_ms


def read_range(piece: SourceRange, settings: FileSourceSettings) -> Iterator[RawBatch]:
    """Read the lines of `piece`; its borders are line borders of the file `piece.extra[0]`.

    Yields:
        Batches of 1 to 5000 records; an empty one only to report `skipped` bytes.

    Raises:
        DataLossError: the file is missing or shorter than the range, and `fail_on_data_loss` is on.
    """
    path = Path(settings.path, piece.extra[0])
    base = piece.start & ~POSITION_MASK
    position, end = piece.start & POSITION_MASK, piece.end & POSITION_MASK
    try:
        for block in _blocks(path, position, end):
            yield from _batches(piece, block, base + position, settings.lines)
            position += len(block)
    except FileNotFoundError:
        pass  # reported below like a file that is too short
    if position < end:
        if settings.fail_on_data_loss:
            raise DataLossError(
                "a source file no longer has bytes that this stream needs",
                hint="restore the file, or continue without it: `source.fail.on.data.loss: false`",
                topic=piece.topic,
                file=path,
                position=position,
                end=end,
            )
        yield RawBatch(piece.topic, piece.partition, [], [], [], skipped=end - position)


def _blocks(path: Path, position: int, end: int) -> Iterator[bytes]:
    """Whole lines, about `_BLOCK_BYTES` at a time, of exactly [position, end)."""
    remaining = end - position
    rest = b""
    with open_plain(path) as stream:
        stream.seek(position)
        while remaining:
            block = stream.read(min(max(_BLOCK_BYTES, len(rest)), remaining))
            if not block:
                break
            remaining -= len(block)
            block = rest + block if rest else block
            border = block.rfind(b"\n") + 1 if remaining else len(block)
            rest = block[border:]
            if border:
                yield block[:border] if rest else block


def _batches(piece: SourceRange, block: bytes, base: int, form: str) -> Iterator[RawBatch]:
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    lengths = np.fromiter(map(len, lines), np.int64, len(lines))
    starts = np.cumsum(lengths + 1) - lengths - 1 + base
    # a blank line is too short for an object, as is a Windows line end, or begins with a blank
    if lengths.min() < 3 or block[:1].isspace() or b"\n " in block or b"\n\t" in block:
        indices = [index for index, line in enumerate(lines) if line.strip()]
        lines = [lines[index] for index in indices]
        starts = starts[indices]
    offsets: list[int] = starts.tolist()
    for at in range(0, len(lines), _BATCH_RECORDS):
        part = slice(at, at + _BATCH_RECORDS)
        yield _batch(piece, offsets[part], lines[part], form)


def _batch(piece: SourceRange, offsets: list[int], lines: list[bytes], form: str) -> RawBatch:
    values: list[bytes | None] = list(lines)
    if b"null" in lines or b"null\r" in lines:
        values = [None if line in (b"null", b"null\r") else line for line in lines]
    keys: list[bytes | None] = list(repeat(None, len(lines)))
    extras: dict[int, _LineExtras] = {}
    marked: Sequence[int] = range(len(lines) if form == "archived" else 0)
    if form in ("auto", "ask"):
        begins = [line.startswith(_ENVELOPE_STARTS) for line in lines]
        marked = list(compress(range(len(lines)), begins)) if any(begins) else marked
    if marked and form == "ask":
        _ask(piece, offsets, lines, marked)
    elif marked:
        _open_envelopes(marked, lines, keys, values, extras)
    return RawBatch(piece.topic, piece.partition, offsets, keys, values, extras=extras)


def _ask(
    piece: SourceRange, offsets: list[int], lines: list[bytes], indices: Sequence[int]
) -> None:
    for index in indices:
        try:
            _DECODER.decode(lines[index])  # so its names are known ones
        except (msgspec.MsgspecError, UnicodeError):
            continue
        raise InvalidOptionError(
            "a line may be an archived record, or a row with columns of these names",
            hint="set `source.lines: archived` where lines are records with keys, "
            "`source.lines: value` where they are rows",
            topic=piece.topic,
            file=piece.extra[0],
            position=offsets[index] & POSITION_MASK,
            members=", ".join(msgspec.json.decode(lines[index])),
        )


def _open_envelopes(
    indices: Sequence[int],
    lines: list[bytes],
    keys: list[bytes | None],
    values: list[bytes | None],
    extras: dict[int, _LineExtras],
) -> None:
    """Replace archived records by their parts; one loop, since all lines are such or none is."""
    decode = _DECODER.decode
    for index in indices:
        if values[index] is None:
            continue
        try:
            envelope = decode(lines[index])
            key = bytes(envelope.key)
            value = bytes(envelope.value)
            keys[index] = key if key[:1] == b"{" else _content(key)
            values[index] = value if value[:1] == b"{" else _content(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            keys[index], values[index] = None, lines[index]  # a value that only looks like one
            continue
        if envelope.headers is not _ABSENT or envelope.timestamp is not None:
            extras[index] = _LineExtras(bytes(envelope.headers), envelope.timestamp)


def _content(text: bytes) -> bytes | None:
    if text in (b"", b"null"):
        return None
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str).encode()
    return text


def _header(value: Any) -> bytes | None:
    if value is None or isinstance(value, str):
        return value.encode() if isinstance(value, str) else None
    return orjson.dumps(value)
