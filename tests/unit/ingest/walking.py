# SPDX-License-Identifier: Apache-2.0
"""The compiled scan in tests: made once for the machine, and used from the first events on."""

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from ingest.compiled import loading
from ingest.decode.json import envelope_decoder, layout

__all__ = ["compiled", "compiled_scan", "walking"]


@functools.cache
def compiled_scan() -> Any:
    """The functions, compiled where the cache does not have them."""
    if not loading.load():
        pytest.importorskip("numba")
        subprocess.run([sys.executable, "-m", loading.__name__], check=True)
    assert loading.load()
    return loading.loaded(loading.SCAN)


def compiled() -> contextlib.AbstractContextManager[Any]:
    """The scan is used from the first events on."""
    return mock.patch.object(envelope_decoder, "scanner", return_value=compiled_scan())


@contextlib.contextmanager
def walking() -> Iterator[None]:
    """Layouts are learned from single events and nothing makes decoders stop walking."""
    with (
        compiled(),
        mock.patch.object(envelope_decoder, "_FIRST_CHUNK", 3),
        mock.patch.object(layout, "_LEAST_LEARNED", 1),
        mock.patch.object(layout, "_SAMPLES", 1_000),
        mock.patch.object(layout, "_PAUSE", 0),
    ):
        yield
