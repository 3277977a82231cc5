# SPDX-License-Identifier: Apache-2.0
"""What a lookup compaction asks about the levels above its output.

The compaction knows only these ports; `bucket_lookup` answers from local copies of the data files,
and the table gives the deletion vectors of the bucket.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import DataFileMeta, IndexFileMeta
from storage.lsm.levels import SortedRun


@dataclasses.dataclass(frozen=True, slots=True)
class LookupResult:
    """Rows found for some of the keys that were asked for.

    Attributes:
        keys: int64 numbers of the keys with a row, ascending.
        rows: their rows in the same order, as a KeyValueBatch in today's schema; None when values
            were not asked for.
        file_of: int32 position in `files` of each found row.
        positions: int64 physical row number in that file of each found row.
    """

    keys: npt.NDArray[np.int64]
    rows: pa.RecordBatch | None
    files: tuple[DataFileMeta, ...]
    file_of: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]


class KeyLookup(Protocol):
    """Finds rows of keys in sorted runs of one bucket."""

    def find(
        self, keys: pa.RecordBatch, runs: Sequence[SortedRun], *, values: bool = True
    ) -> LookupResult:
        """The rows of keys, each from the first run that has one.

        Args:
            keys: the key columns in key order, strictly ascending by key.
            runs: runs of levels above 0, the lowest level first.
            values: whether the rows are wanted, or only where they are.

        Returns:
            Rows that are marked as deleted are not found. A row may be a retraction.

        Raises:
            StorageUnavailableError: a file could not be read.
            CorruptDataError: a file violates the format.
        """

    def release(self, files: Iterable[DataFileMeta]) -> None:
        """A compaction has replaced these files: what is kept of them is not worth its room."""


class DeletedRows(Protocol):
    """The deletion vectors of one bucket, being changed."""

    def vector_of(self, data_file: str) -> Bitmap | None:
        """The deleted rows of a data file; not to be changed."""

    def mark(self, data_file: str, positions: npt.NDArray[np.integer] | Iterable[int]) -> int:
        """Mark rows of a data file as deleted; how many were not."""

    def drop(self, data_file: str) -> None:
        """Forget the vector of a data file that leaves the table."""

    def changes(self) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Write what changed since the last call: the new index files, and those they replace.

        The changes count as taken: the next call gives only later ones.
        """
