# SPDX-License-Identifier: Apache-2.0
"""Which files a table has, of which kind, and how one of them is damaged.

A kind says what the bytes can tell: `Guard.CHECKSUM` for content under a checksum, where any other
result than the true one or a typed error is a fault of the reader; `Guard.STRUCTURE` for the rest,
where a damaged value may be a valid other value and only its form can be checked.
A file that was cut is told by its form or by the length that its metadata records; only an index
manifest cut between two Avro blocks cannot be told.
"""

import dataclasses
import enum
import pathlib
import random
from collections.abc import Iterator, Mapping

from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import SchemaStore
from storage.io.local import LocalFileIO

__all__ = ["Damage", "FileKind", "Guard", "damages", "kind_of"]


class Guard(enum.Enum):
    """What of a file's content a reader can verify."""

    CHECKSUM = "checksum"
    STRUCTURE = "structure"


@dataclasses.dataclass(frozen=True, slots=True)
class FileKind:
    """One kind of file of a table.

    Attributes:
        name: for the report.
        guard: what its bytes can tell.
        ends: whether its end can be told: by its own form, or by a length recorded elsewhere.
    """

    name: str
    guard: Guard
    ends: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """One change to one file.

    Attributes:
        case: name of the table.
        path: of the file, relative to the table.
        kind: of the file.
        offset: byte that is changed, or the new length.
        flip: what is XORed into the byte; 0 = the file is cut at `offset`.
    """

    case: str
    path: str
    kind: FileKind
    offset: int
    flip: int

    def apply(self, data: bytes) -> bytes:
        """The damaged content."""
        if not self.flip:
            return data[: self.offset]
        changed = bytearray(data)
        changed[self.offset] ^= self.flip
        return bytes(changed)

    def __str__(self) -> str:
        what = f"byte {self.offset} ^ {self.flip:#04x}" if self.flip else f"cut at {self.offset}"
        return f"{self.case}/{self.path} ({self.kind.name}), {what}"


_DIRECTORIES = {
    "schema": "schema",
    "snapshot": "snapshot",
    "tag": "tag",
    "consumer": "consumer",
    "statistics": "statistics",
    "changelog": "changelog snapshot",
}
_HINTS = frozenset({"EARLIEST", "LATEST"})


def kind_of(path: pathlib.PurePosixPath, options: Mapping[str, str]) -> FileKind:
    """The kind of a file by its place in the table.

    Args:
        path: relative to the table.
        options: of the table.
    """
    parts, name = path.parts, path.name
    if name in _HINTS:
        return FileKind("hint", Guard.STRUCTURE)
    if parts[0] == "branch":
        return kind_of(pathlib.PurePosixPath(*parts[2:]), options)
    if parts[0] in _DIRECTORIES:
        return FileKind(_DIRECTORIES[parts[0]], Guard.STRUCTURE)
    if parts[0] == "manifest":
        if name.startswith("index-manifest"):  # a snapshot records no length of it
            return FileKind("index manifest", Guard.STRUCTURE, ends=False)
        if name.startswith("manifest-list"):
            return FileKind("manifest list", Guard.STRUCTURE)
        return FileKind("manifest", Guard.STRUCTURE)
    if parts[0] == "index":
        if options.get("deletion-vectors.enabled") == "true":
            return FileKind("deletion vectors", Guard.CHECKSUM)
        return FileKind("hash index", Guard.STRUCTURE)
    if name.endswith(".index"):
        return FileKind("file index", Guard.STRUCTURE)
    group = "changelog" if name.startswith("changelog-") else "data"
    return FileKind(f"{path.suffix[1:]} {group}", Guard.STRUCTURE)


def damages(case: str, table: pathlib.Path, count: int, chance: random.Random) -> Iterator[Damage]:
    """Random damages spread evenly over the kinds of files that a table has.

    Args:
        case: name of the table.
        table: its directory.
        count: how many.
        chance: source of randomness.
    """
    options = SchemaStore(LocalFileIO(), TableLayout(str(table))).latest().options
    files = sorted(path for path in table.rglob("*") if path.is_file() and path.stat().st_size)
    kinds: dict[FileKind, list[pathlib.Path]] = {}
    for path in files:
        kinds.setdefault(kind_of(_inside(path, table), options), []).append(path)
    order = sorted(kinds, key=lambda kind: kind.name)
    for number in range(count):
        kind = order[number % len(order)]
        path = chance.choice(kinds[kind])
        offset = chance.randrange(path.stat().st_size)
        flip = 0 if chance.random() < _CUTS else chance.randrange(1, 256)
        yield Damage(case, str(_inside(path, table)), kind, offset, flip)


_CUTS = 0.2


def _inside(path: pathlib.Path, table: pathlib.Path) -> pathlib.PurePosixPath:
    return pathlib.PurePosixPath(path.relative_to(table).as_posix())
