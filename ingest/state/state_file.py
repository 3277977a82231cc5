# SPDX-License-Identifier: Apache-2.0
"""The one form of a stream's state: a dataclass as JSON with a version, checked when it is read.

    version   what is new
    1         checkpoint's state file, progress note, list of parked tables
    2         the progress note is in the records of the owner (`ingest.state.ownership`)

A version is raised when an older Lakeward could not continue from the state without loss. Members
that older ones may leave out need no new version: unknown members are ignored.
"""

import dataclasses
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import orjson

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO

STATE_FORMAT = 2
"""What this version writes; it reads all before."""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class StateFormatError(InvalidRequestError):
    """The state is of a later version. Operator action: install that version, or a later one."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T")
D = TypeVar("D", bound=_Dataclass)


@dataclasses.dataclass(frozen=True, slots=True)
class _Header:
    version: int = STATE_FORMAT


def encoded(content: _Dataclass) -> bytes:
    """A dataclass as JSON with the version; equal contents give equal bytes."""
    raw = {"version": STATE_FORMAT, **msgspec.to_builtins(content)}
    return orjson.dumps(raw, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)


def decoded(data: bytes, content: type[T], path: str) -> T:
    """Inverse of `encoded`; a file without a version is checked by its members alone.

    Raises:
        StateFormatError: it is of a later version.
        msgspec.DecodeError, UnicodeDecodeError: it is damaged.
    """
    version = msgspec.json.decode(data, type=_Header).version
    if version > STATE_FORMAT:
        raise StateFormatError(
            f"the stream's state has format {version}, this Lakeward knows formats up to "
            f"{STATE_FORMAT}",
            hint="a newer Lakeward has run this stream: install that version again. Going back is "
            "possible only with the warehouse's and checkpoint's state from before the upgrade",
            path=path,
            format=version,
        )
    return msgspec.json.decode(data, type=content)


class StateFile(Generic[D]):
    """One file with a dataclass, replaced atomically and durably.

    Args:
        file_io: the store.
        path: of the file.
        content: the dataclass.
        title: what it is, for errors, such as "the list of parked tables".
        hint: what to do when it is damaged.
    """

    def __init__(
        self, file_io: FileIO, path: str, content: type[D], *, title: str, hint: str
    ) -> None:
        self._io = file_io
        self.path = path
        self._content = content
        self._title = title
        self._hint = hint

    def read(self) -> D | None:
        """The content; None = there is no file.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        try:
            data = self._io.read_bytes(self.path)
        except FileNotFoundError:
            return None
        try:
            return decoded(data, self._content, self.path)
        except _UNREADABLE as error:
            raise CorruptDataError(
                f"{self._title} cannot be read", hint=self._hint, detail=str(error), path=self.path
            ) from error

    def write(self, content: D) -> None:
        """Replace the file; durable at return."""
        self._io.overwrite_bytes(self.path, encoded(content))

    def delete(self) -> None:
        """Remove the file; there may be none."""
        self._io.delete(self.path)


def snapshot_property(snapshot: Snapshot, name: str, content: type[T], title: str) -> T | None:
    """A property of a snapshot that Lakeward wrote as JSON; None = the snapshot has none.

    Args:
        snapshot: where it is.
        name: of the property.
        content: its type.
        title: what it says, for errors, such as "source offsets".

    Raises:
        CorruptDataError: it cannot be read.
    """
    text = (snapshot.properties or {}).get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=content)
    except _UNREADABLE as error:
        raise CorruptDataError(
            f"a snapshot's {title} cannot be read",
            hint="another program changed it: `lakeward table rollback` to the snapshot before",
            snapshot=snapshot.id,
            value=text,
        ) from error
