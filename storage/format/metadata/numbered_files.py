# SPDX-License-Identifier: Apache-2.0
"""Directories of files `<prefix><id>` with the hints LATEST and EARLIEST beside them.

Source: FORMAT.md §3.3. A hint holds an id as decimal text; it may be absent, stale or wrong.
"""

from storage.errors import StorageUnavailableError
from storage.io.file_io import FileIO

__all__ = ["listed_ids", "read_hint", "write_hint"]


def listed_ids(file_io: FileIO, directory: str, prefix: str) -> list[int]:
    """Ids of the files of a directory, ascending; other files do not count."""
    names = (status.name for status in file_io.list(directory))
    numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(text) for text in numbers if _decimal(text))


def read_hint(file_io: FileIO, path: str) -> int | None:
    """What a hint says, or None when it says nothing sensible."""
    try:
        text = file_io.read_bytes(path).strip()
    except FileNotFoundError:
        return None
    decoded = text.decode("ascii", "replace")
    return int(decoded) if _decimal(decoded) and int(decoded) > 0 else None


def write_hint(file_io: FileIO, path: str, number: int) -> None:
    """Record an id; best effort, for readers fall back to probing and listing."""
    try:
        file_io.overwrite_bytes(path, str(number).encode())
    except (StorageUnavailableError, OSError):
        return


def _decimal(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(2**63))
    return digits and str(int(text)) == text
