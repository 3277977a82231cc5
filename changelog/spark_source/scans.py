# SPDX-License-Identifier: Apache-2.0
"""What batch reads of every kind need: their splits, and checks of columns.

A scan travels to the workers with the query, its splits one by one. Knows nothing of Spark.
"""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from storage.table.scan.format_files import FormatSplit
from storage.table.scan.predicate import require_known
from storage.table.scan.scan import ChangeSplit, Split

__all__ = [
    "MetadataSplit",
    "ScanCounts",
    "ScanSplit",
    "counts_of",
    "selected",
]


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataSplit:
    """The whole of a system table that is made of metadata."""


ScanSplit = Split | ChangeSplit | FormatSplit | MetadataSplit


@dataclasses.dataclass(frozen=True, slots=True)
class ScanCounts:
    """What a plan reads.

    Attributes:
        splits: independent of each other.
        partitions: partitions of the table.
        files: data and changelog files.
        bytes: their size.
    """

    splits: int
    partitions: int
    files: int
    bytes: int


def counts_of(splits: Sequence[ScanSplit]) -> ScanCounts:
    """What some splits read."""
    whole = [split for split in splits if isinstance(split, FormatSplit)]
    if whole:
        return ScanCounts(
            splits=len(whole),
            partitions=len({split.path.rpartition("/")[0] for split in whole}),
            files=len(whole),
            bytes=sum(split.size for split in whole),
        )
    of_files = [split for split in splits if isinstance(split, Split | ChangeSplit)]
    files = [
        file
        for split in of_files
        for file in (split.files if isinstance(split, Split) else (*split.before, *split.files))
    ]
    return ScanCounts(
        splits=len(splits),
        partitions=len({split.partition for split in of_files}),
        files=len({file.file_name for file in files}),
        bytes=sum(file.file_size for file in files),
    )


def selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Some columns, in the order wanted; None: all.

    Raises:
        InvalidRequestError: there is no such column.
    """
    if columns is None:
        return schema
    require_known(columns, schema.names)
    return pa.schema([schema.field(name) for name in columns])
