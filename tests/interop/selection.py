# SPDX-License-Identifier: Apache-2.0
"""Which generated cases run when: a few in `make test`, all of them in `make test-all`."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from tests.interop.generated_tables import Case

__all__ = ["parameters"]


def parameters(
    found: Sequence[Case], *, quick: Collection[int], only: Collection[int] | None = None
) -> list[Any]:
    """The cases as parameters of a test; all but the quick ones marked `full`."""
    return [
        pytest.param(case, id=case.name, marks=() if case.number in quick else pytest.mark.full)
        for case in found
        if only is None or case.number in only
    ]
