# SPDX-License-Identifier: Apache-2.0
"""Spark's local files in a directory of this process; removal of those of dead processes.

Spark removes its local files when it ends, but not when it is killed: a process that is killed
again and again fills the disk. So each process has a directory of its own below the directory for
local files, and holds a lock on a file in it. The kernel releases the lock of a dead process, in
this container or another one on the same volume; the next start removes unlocked directories.

The directory is locked, too: `systemd-tmpfiles`, which removes old files from /tmp of most hosts,
skips locked directories (tmpfiles.d(5)).
"""

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from storage.clock import SystemClock

__all__ = ["Scratch", "local_places"]

_LOG = logging.getLogger(__name__)

_PREFIX = "lakeward-run-"
_LOCK = ".lock"
_LEFTOVER = ("lakeward-keys-*", "lakeward-left-*")
"""Key indexes that workers keep for tables with key migration; they are rebuilt when missing."""

_LEFTOVER_AGE_S = 24 * 3600.0
_MAKING_S = 60.0
"""A directory without a lock file may be on its way for so long [s]."""


def local_places(conf: Mapping[str, str], environ: Mapping[str, str]) -> list[Path]:
    """Where Spark is to keep local files, in the order of its own rules."""
    text = environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or tempfile.gettempdir()
    return [Path(part.strip()) for part in text.split(",") if part.strip()]


class Scratch:
    """Directories of this process, one below each place; held until the process ends.

    Attributes:
        directories: as many as places.

    Args:
        places: of `local_places`.
    """

    def __init__(self, places: list[Path]) -> None:
        self.directories: list[Path] = []
        self._locks: list[int] = []
        for place in places:
            _clean(place)
            self.directories.append(self._made(place))

    def _made(self, place: Path) -> Path:
        place.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        self._lock(directory / _LOCK, os.O_CREAT | os.O_RDWR)
        self._lock(directory, os.O_RDONLY)
        return directory

    def _lock(self, path: Path, flags: int) -> None:
        lock = os.open(path, flags | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._locks.append(lock)

    def remove(self) -> None:
        """Remove the directories; files still written by a child are removed at a later start."""
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        self.directories, self._locks = [], []


def _clean(place: Path) -> None:
    """Remove directories of dead processes."""
    removed = 0
    for directory in place.glob(f"{_PREFIX}*"):
        if _abandoned(directory):
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
    if removed:
        _LOG.info(
            "local files of killed processes are removed",
            extra={"event": "scratch_cleaned", "directories": removed, "place": str(place)},
        )
    for pattern in _LEFTOVER:
        for directory in Path(tempfile.gettempdir()).glob(pattern):
            if _age_s(directory) > _LEFTOVER_AGE_S:
                shutil.rmtree(directory, ignore_errors=True)


def _abandoned(directory: Path) -> bool:
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _age_s(directory) > _MAKING_S
    except OSError:  # another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _age_s(path: Path) -> float:
    with contextlib.suppress(OSError):
        return SystemClock().now_ms() / 1000 - path.stat().st_mtime
    return 0.0
