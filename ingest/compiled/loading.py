# SPDX-License-Identifier: Apache-2.0
"""Compiled functions: whether this process has them, and where they are cached.

numba compiles the modules of `MODULES` once (7 s of CPU) into a cache on disk, from which a process
loads them in half a second. A process without them takes slower paths. So no task ever waits for a
compiler:

* image and `make setup` run `python -m ingest.compiled.loading`;
* the process that workers are forked from calls `prepare`: it loads what the cache has, or starts
  that command beside itself;
* any other process loads them from the cache when it has decoded many events
  (`ingest.compiled.loading`).

The cache is `NUMBA_CACHE_DIR` or else `__pycache__` in this folder; cached code is run, so no
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
from pathlib import Path
from typing import Any, ClassVar

_log = logging.getLogger(__name__)

SCAN = "ingest.decode.json.scan"
MEMORY = "ingest.source.message_memory"
MODULES = (SCAN, MEMORY)
"""Modules of compiled functions; importing one imports numba."""

_PACKAGE = Path(__file__).parent
_SOURCES = (
    Path(__file__),
    _PACKAGE / "cache.py",
    *(_PACKAGE.parent.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in MODULES),
)


_MARKERS = f"compiled-{sys.implementation.cache_tag}-"


class _State:
    modules: ClassVar[dict[str, Any]] = {}
    failed = False


def folder() -> Path:
    """Where the cache is."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else _PACKAGE / "__pycache__"


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


def load() -> bool:
    """Load all modules from the cache; whether this process has them.

    False where the cache is not complete, or does not work here.
    """
    if not _State.modules and not _State.failed and is_complete():
        try:
            _State.modules = {name: importlib.import_module(name) for name in MODULES}
        except Exception as error:  # whatever numba or its libraries stumble over
            _State.failed = True
            _log.warning(
                "events are read without compiled functions, which takes more CPU: %s", error
            )
    return bool(_State.modules)


def loaded(module: str) -> Any:
    """Return one of `MODULES` if this process has loaded them, or None."""
    return _State.modules.get(module)


def prepare() -> None:
    """Load the functions, or have them compiled beside this process if that is possible."""
    if load() or _State.failed or sys.byteorder != "little":
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
    for name in MODULES:
        importlib.import_module(name)
    for stale in folder().glob(f"{_MARKERS}*"):  # of functions that were replaced
        stale.unlink(missing_ok=True)
    marker.touch()


# What the compiled scan of JSON events and its callers agree on, without importing numba.


_WORTH_LOADING = 50_000
"""Events that a process decodes before it loads the functions by itself."""


class Wire(enum.IntEnum):
    """How the scan reads a column's values, null besides; `LOOSE` is the greatest number."""

    TOKEN = 0
    """Anything: its text is decoded value by value."""
    INTEGER = 1
    TEXT = 2
    BASE64 = 3
    NUMBER = 4
    """The text of a number."""
    BOOLEAN = 5
    LOOSE = 6
    """The text of a string, or of a number, `true` or `false`."""


END, ANY, OP, ABSENT, STAMP, SET_STAMP, WHOLE, OLD, FIRST_ROW, NEXT_ROW = range(20, 30)
"""What else may follow a constant text: nothing; any value; the operation; a column's absence; an
integer from zero on or null; the same but null; an integer or null; the row before a change; the
first row of an array; behind a row of an array the next one, or the array's end."""

FIRST, OPS, OP_CODE, KEEPS_KEY, NAMES, NAME_COUNT, CLOSED = range(7)
"""Of a layout: its first step; operations that it may have (bits of `c r u d`); the operation of
all its events, 0 where they name it; 1 where the row before must not have another key, 2 where it
must have the key; the first of the names of the row's members and their number; whether the row
before may have no other member."""


class _EventCounter:
    events = 0


def scanner(events: int) -> Any:
    """The functions of `scan`, if this process has them; it loads them after many events.

    Args:
        events: that are decoded now.
    """
    scan = loaded(SCAN)
    if scan is None:
        _EventCounter.events += events
        if _EventCounter.events >= _WORTH_LOADING:
            _EventCounter.events = 0
            load()
    return scan or loaded(SCAN)


if __name__ == "__main__":
    compile_cache()
