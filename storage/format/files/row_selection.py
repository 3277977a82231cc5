# SPDX-License-Identifier: Apache-2.0
"""Which physical rows of one data file a reader returns.

Deletion vectors and file indexes both speak of 0-based row positions in a file. A reader asks
per piece of the file, so that pieces without a selected row need not be decoded.
"""

import dataclasses
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyroaring

Bitmap = pyroaring.BitMap | pyroaring.BitMap64
"""Row positions."""


class RowSelection(Protocol):
    """Rows of one file by position. Picklable."""

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """Which of the rows `start` to `start + count - 1` are selected; None = all of them."""

    def empty(self, start: int, count: int) -> bool:
        """Whether none of these rows is selected."""


def _positions(rows: Bitmap, start: int, count: int) -> npt.NDArray[np.int64]:
    """Members of `rows` in the range, relative to `start`, ascending."""
    window = range(start, start + count)
    if isinstance(rows, pyroaring.BitMap):
        members = (rows & pyroaring.BitMap(window)).to_array()
    else:
        members = (rows & pyroaring.BitMap64(window)).to_array()
    return np.asarray(members, np.int64) - start


@dataclasses.dataclass(frozen=True, slots=True)
class Except:
    """All rows but some: what a deletion vector leaves."""

    rows: Bitmap

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        positions = _positions(self.rows, start, count)
        if not len(positions):
            return None
        mask = np.ones(count, np.bool_)
        mask[positions] = False
        return mask

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        return len(_positions(self.rows, start, count)) == count


@dataclasses.dataclass(frozen=True, slots=True)
class Only:
    """Some rows and no others: what an exact index answers."""

    rows: Bitmap

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        positions = _positions(self.rows, start, count)
        if len(positions) == count:
            return None
        mask = np.zeros(count, np.bool_)
        mask[positions] = True
        return mask

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        return not len(_positions(self.rows, start, count))


@dataclasses.dataclass(frozen=True, slots=True)
class AllOf:
    """The intersection of several selections."""

    parts: tuple[RowSelection, ...]

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_] | None:
        """See `RowSelection`."""
        masks = [mask for part in self.parts if (mask := part.mask(start, count)) is not None]
        return np.logical_and.reduce(masks) if masks else None

    def empty(self, start: int, count: int) -> bool:
        """See `RowSelection`."""
        if any(part.empty(start, count) for part in self.parts):
            return True
        mask = self.mask(start, count)
        return mask is not None and not mask.any()
