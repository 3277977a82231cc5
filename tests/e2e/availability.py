# SPDX-License-Identifier: Apache-2.0
"""Real parts around Lakeward, where they can be had; where not, their tests are skipped."""

import contextlib
import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

Part = TypeVar("Part")


class PartUnavailableError(RuntimeError):
    """A real part cannot be had here; the text says why."""


@contextlib.contextmanager
def had(part: contextlib.AbstractContextManager[Part], name: str) -> Iterator[Part]:
    """The part; skips with the reason where there is none, and fails there under CI=true."""
    with contextlib.ExitStack() as stack:
        try:
            value = stack.enter_context(part)
        except PartUnavailableError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no {name}: {error}")
        yield value
