# SPDX-License-Identifier: Apache-2.0
"""Which row groups of a Parquet file are read, and how many of them together.

Row groups are left out by their statistics and by the positions of the rows that are wanted.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.format.files.row_selection import RowSelection

__all__ = ["ColumnRange", "RowGroupFilter", "readers", "wanted_runs"]

_READ_TOGETHER = 8 << 20
"""Column chunks of a distant file that are read before they are decoded [bytes]; as much as a
reader of ranges holds otherwise, because a merge has dozens of files open."""


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnRange:
    """What a row group's statistics say about a column.

    Attributes:
        minimum: lower bound of the values as a Python object, None when unknown.
        maximum: upper bound, None when unknown.
        null_count: number of nulls, None when unknown.
        row_count: number of rows.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    row_count: int


RowGroupFilter = Callable[[Mapping[str, ColumnRange]], bool]
"""Given the ranges by column name in the file, whether the row group may hold a wanted row."""


def wanted_runs(
    metadata: pq.FileMetaData, keep: RowGroupFilter | None, selection: RowSelection | None
) -> Iterator[tuple[int, list[int]]]:
    """Row groups to read, in runs without gaps, each with the position of its first row."""
    position = run_start = 0
    run: list[int] = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        wanted = selection is None or not selection.empty(position, group.num_rows)
        if wanted and (keep is None or keep(_ranges(group))):
            if not run:
                run_start = position
            run.append(index)
        elif run:
            yield run_start, run
            run = []
        position += group.num_rows
    if run:
        yield run_start, run


def readers(
    file: pq.ParquetFile,
    source: pa.NativeFile,
    groups: list[int],
    columns: Sequence[str],
    distant: bool,
) -> Iterator[tuple[pq.ParquetFile, list[int]]]:
    """Row groups in order, each run with the reader for it.

    Of a distant file the library reads the wanted column chunks of a run together before it
    decodes them, and holds them as long as its reader lives; so a run is small.
    """
    if not distant:
        yield file, groups
        return
    wanted = set(columns)
    sizes = [_stored_bytes(file.metadata.row_group(index), wanted) for index in groups]
    while groups:
        totals = itertools.accumulate(sizes)
        count = sum(1 for _ in itertools.takewhile(lambda total: total <= _READ_TOGETHER, totals))
        if count:
            settings = {"page_checksum_verification": True, "metadata": file.metadata}
            yield pq.ParquetFile(source, pre_buffer=True, **settings), groups[:count]
        else:
            yield file, groups[:1]
        groups, sizes = groups[count or 1 :], sizes[count or 1 :]


def _stored_bytes(group: pq.RowGroupMetaData, columns: Collection[str]) -> int:
    """Compressed size of some columns of a row group [bytes]."""
    chunks = (group.column(i) for i in range(group.num_columns))
    return sum(
        chunk.total_compressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns
    )


def _ranges(group: pq.RowGroupMetaData) -> dict[str, ColumnRange]:
    """Ranges of the columns that are not nested and whose statistics have a Python form."""
    ranges = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        found = chunk.statistics if chunk.is_stats_set else None
        if found is None or "." in chunk.path_in_schema:
            continue
        minimum, maximum = _bounds(found)
        ranges[chunk.path_in_schema] = ColumnRange(
            minimum=minimum,
            maximum=maximum,
            null_count=found.null_count if found.has_null_count else None,
            row_count=group.num_rows,
        )
    return ranges


def _bounds(found: pq.Statistics) -> tuple[Any, Any]:
    """Least and greatest value; None where there are none, or none that Python can hold."""
    if not found.has_min_max:
        return None, None
    try:
        return found.min, found.max
    except (OverflowError, ValueError):  # dates and timestamps beyond the years 1 to 9999
        return None, None
