# SPDX-License-Identifier: Apache-2.0
"""Compiled functions: whether this process has them, and where they are cached.

numba compiles the modules of `MODULES` once (7 s of CPU) into a cache on disk, from which a process
loads them in half a second. A process without them takes slower paths. So no task ever waits for a
compiler:

* image and `make setup` run `python -m ingest.compiled.loading`;
* the process that workers are forked from calls `prepare`: it loads what the cache has, or starts
  that command beside itself;
* any other process loads them from the cache when it has decoded many events
  (`ingest.decode.json.scanning`).

The cache is `NUMBA_CACHE_DIR` or else `__pycache__` in this folder; cached code is run, so no
directory that others can write to is ever chosen. It may be read-only when it is complete. Code is
made for the least CPU of the architecture, because an image runs on other machines than it was
built on.
"""

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
    _PACKAGE.parent / "decode" / "json" / "scanning.py",
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


if __name__ == "__main__":
    compile_cache()
