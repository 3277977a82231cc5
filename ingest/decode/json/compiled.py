# SPDX-License-Identifier: Apache-2.0
"""The compiled functions of `scan`: whether this process has them, and where they are cached.

numba compiles them once (6 s of CPU) into a cache on disk, from which a process loads them in half
a second. A process without them decodes everything by the typed path. So no task ever waits for a
compiler:

* image and `make setup` run `python -m ingest.decode.json.compiled`;
* the process that workers are forked from calls `prepare`: it loads what the cache has, or starts
  that command beside itself;
* any other process loads them from the cache when it has decoded many events (`scanner`).

The cache is `NUMBA_CACHE_DIR` or else `__pycache__` beside `scan`; cached code is run, so no
directory that others can write to is ever chosen. It may be read-only when it is complete. Code is
made for the least CPU of the architecture, because an image runs on other machines than it was
built on.
"""

import enum
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = [
    "ABSENT",
    "ANY",
    "END",
    "FIRST",
    "HAS_OLD_KEY",
    "OP",
    "OPS",
    "PADDING",
    "Wire",
    "cached",
    "compile_cache",
    "folder",
    "is_complete",
    "load",
    "prepare",
    "scanner",
    "stamp",
]

_log = logging.getLogger(__name__)

_MODULE = "ingest.decode.json.scan"
_SOURCES = (Path(__file__), Path(__file__).with_name("scan.py"))
_MARKERS = f"scan-{sys.implementation.cache_tag}-"
_WORTH_LOADING = 50_000
"""Events that a process decodes before it loads the functions by itself."""

PADDING = 16
"""Bytes after the last event, so that a word may be read from any of them."""


class Wire(enum.IntEnum):
    """How the scan reads a column's values, null besides."""

    TOKEN = 0
    """Anything: its text is decoded value by value."""
    INTEGER = 1
    TEXT = 2
    BASE64 = 3
    NUMBER = 4
    """The text of a number."""
    BOOLEAN = 5


END, ANY, OP, ABSENT = range(20, 24)
"""What else may follow a constant text: nothing, any value, the operation, a column's absence."""

FIRST, OPS, HAS_OLD_KEY = range(3)
"""Of a layout: its first step, operations that it may have (bits of `c r u d`), whether key columns
of `before` are to be compared with those of `after`."""


class _State:
    scan: Any = None
    failed = False
    events = 0


def folder() -> Path:
    """Where the cache is."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else _SOURCES[0].parent / "__pycache__"


@functools.cache
def stamp() -> str:
    """What compiled code depends on, as a digest.

    Raises:
        importlib.metadata.PackageNotFoundError: numba is not installed.
    """
    if os.environ.setdefault("NUMBA_CPU_NAME", "generic") == "generic":
        os.environ.setdefault("NUMBA_CPU_FEATURES", "")
    facts = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    facts += [sys.version, platform.machine()]
    facts += [os.environ.get(f"NUMBA_CPU_{name}", "") for name in ("NAME", "FEATURES")]
    sources = b"\0".join(path.read_bytes() for path in _SOURCES)
    return hashlib.sha256("\0".join(facts).encode() + sources).hexdigest()[:16]


def _marker() -> Path:
    return folder() / f"{_MARKERS}{stamp()}.ready"


def is_complete() -> bool:
    """Whether the cache has everything, so that nothing will be compiled."""
    try:
        return sys.byteorder == "little" and _marker().exists()
    except (OSError, importlib.metadata.PackageNotFoundError):
        return False


def cached(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function that is compiled for one signature, or loaded from the cache."""
    from numba import config, njit  # half a second, for `scan` alone

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        before = config.CACHE_LOCATOR_CLASSES
        config.CACHE_LOCATOR_CLASSES = f"{_MODULE}.CompleteCache"
        try:
            made: Callable[..., Any] = njit([signature], cache=True, _nrt=False)(function)
        finally:
            config.CACHE_LOCATOR_CLASSES = before
        return made

    return compiled


def load() -> Any:
    """Load the functions from the cache; None where it is not complete, or does not work here."""
    if _State.scan is None and not _State.failed and is_complete():
        try:
            _State.scan = importlib.import_module(_MODULE)
        except Exception as error:  # whatever numba or its libraries stumble over
            _State.failed = True
            _log.warning(
                "events are decoded without compiled functions, which takes more CPU: %s", error
            )
    return _State.scan


def scanner(events: int) -> Any:
    """The functions, if this process has them; it loads them once it has decoded many events.

    Args:
        events: that are decoded now.
    """
    if _State.scan is None and not _State.failed:
        _State.events += events
        if _State.events >= _WORTH_LOADING:
            _State.events = 0
            load()
    return _State.scan


def prepare() -> None:
    """Load the functions, or have them compiled beside this process if that is possible."""
    if load() is not None or _State.failed or sys.byteorder != "little":
        return
    place = folder()
    place = place if place.exists() else place.parent
    if importlib.util.find_spec("numba") is None or not os.access(place, os.W_OK):
        return
    subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def compile_cache() -> None:
    """Fill the cache, at low priority.

    Raises:
        ImportError: numba is not installed.
        OSError: the cache cannot be written.
    """
    os.nice(10)
    marker = _marker()  # before numba is imported, which reads the CPU then
    importlib.import_module(_MODULE)
    for stale in folder().glob(f"{_MARKERS}*"):  # of functions that were replaced
        stale.unlink(missing_ok=True)
    marker.touch()


if __name__ == "__main__":
    compile_cache()
