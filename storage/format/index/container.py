# SPDX-License-Identifier: Apache-2.0
"""The file index container: which indexes of which columns a data file has, and where.

Source: FORMAT.md §10.2. The same bytes are in the manifest or in a file beside the data file.
Names are written as Java's modified UTF-8: NUL takes two bytes, a character beyond the basic
plane is a pair of surrogates of three bytes each.
"""

import dataclasses
import struct
from collections.abc import Mapping

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.index.window import Source, Window

MAGIC = 1493475289347502
_VERSION = 1
_EMPTY = -1
"""`start` of an index whose writer never got a row."""

_HEAD = struct.Struct(">qii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_PLACE = struct.Struct(">ii")
_MAX_NAME = 0xFFFF

ColumnIndexes = Mapping[str, bytes | None]
"""Index type -> payload; None = the index is empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileIndexContainer:
    """A container whose head is read.

    Attributes:
        columns: column -> index type -> payload; None = the index is empty.
    """

    source: Source
    columns: Mapping[str, Mapping[str, Window | None]]

    def payloads(self) -> dict[str, dict[str, bytes | None]]:
        """All payloads in memory, to write them again."""
        return {
            column: {
                kind: None if window is None else window.read(0, window.length)
                for kind, window in indexes.items()
            }
            for column, indexes in self.columns.items()
        }


def encode_container(columns: Mapping[str, ColumnIndexes]) -> bytes:
    """The bytes of a container; order is kept.

    Raises:
        InvalidRequestError: a name is too long.
    """
    names = {column: _encode_name(column) for column in columns}
    head_length = _HEAD.size + 2 * _INT.size
    for column, indexes in columns.items():
        head_length += len(names[column]) + _INT.size
        head_length += sum(len(_encode_name(kind)) + _PLACE.size for kind in indexes)
    head = [_HEAD.pack(MAGIC, _VERSION, head_length), _INT.pack(len(columns))]
    body: list[bytes] = []
    at = head_length
    for column, indexes in columns.items():
        head += [names[column], _INT.pack(len(indexes))]
        for kind, payload in indexes.items():
            head.append(_encode_name(kind))
            if payload is None:
                head.append(_PLACE.pack(_EMPTY, 0))
                continue
            head.append(_PLACE.pack(at, len(payload)))
            body.append(payload)
            at += len(payload)
    head.append(_INT.pack(0))  # length of a part that later versions may add
    return b"".join(head + body)


def read_container(source: Source) -> FileIndexContainer:
    """Read the head; payloads are read when they are asked for.

    Raises:
        CorruptDataError: this is no container, or one of a later version.
    """
    whole = Window(source, 0, source.size)
    magic, version, head_length = _HEAD.unpack(whole.read(0, _HEAD.size))
    if magic != MAGIC or version != _VERSION:
        raise whole.damage(
            "this is not a file index, or one of a later version",
            0,
            expected=f"magic {MAGIC}, version {_VERSION}",
            found=f"magic {magic}, version {version}",
        )
    reader = _HeadReader(whole.part(0, head_length), _HEAD.size)
    columns: dict[str, dict[str, Window | None]] = {}
    for _ in range(reader.count()):
        column = reader.name()
        indexes = columns.setdefault(column, {})
        for _ in range(reader.count()):
            kind = reader.name()
            start, length = reader.integer(), reader.integer()
            indexes[kind] = None if start == _EMPTY else whole.part(start, length)
    return FileIndexContainer(source, columns)


class _HeadReader:
    """Walks over the head."""

    def __init__(self, window: Window, at: int) -> None:
        self._window = window
        self._at = at

    def integer(self) -> int:
        value = self._window.integer(self._at)
        self._at += _INT.size
        return value

    def count(self) -> int:
        value = self._window.count(self._at, self._window.length)
        self._at += _INT.size
        return value

    def name(self) -> str:
        (length,) = _SHORT.unpack(self._window.read(self._at, _SHORT.size))
        start = self._at + _SHORT.size
        self._at = start + length
        raw = self._window.read(start, length)
        try:
            text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeError as error:
            raise CorruptDataError(
                "a name in a file index is not modified UTF-8",
                path=self._window.path,
                offset=start,
                expected="modified UTF-8",
            ) from error


def _encode_name(name: str) -> bytes:
    units = name.encode("utf-16-le")
    split = "".join(chr(unit) for (unit,) in struct.iter_unpack("<H", units))
    raw = split.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(raw) > _MAX_NAME:
        raise InvalidRequestError(
            "a column name is too long for a file index", hint="shorten it", column=name[:50]
        )
    return _SHORT.pack(len(raw)) + raw
