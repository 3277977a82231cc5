# SPDX-License-Identifier: Apache-2.0
"""What must hold of the contents of deletion vectors and of the rows that readers see.

The part of the invariants that reads more than metadata. Source: SEMANTICS.md §B.4, §E.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from storage.errors import LakewardError
from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import IndexFileMeta
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, load_vectors
from storage.table.read.read import TableRead
from storage.table.scan.scan import TableScan, skips_level_0

__all__ = ["repeated_keys", "vector_contents"]


def vector_contents(
    table: TableCore, path: str, file: IndexFileMeta, row_counts: Mapping[str, int]
) -> Iterator[str]:
    """Describe what is wrong with the deletion vectors in an index file.

    Args:
        table: the table.
        path: of the index file.
        file: what the index manifest says of it.
        row_counts: rows of the live data files of the bucket, by name.
    """
    places = {
        one.data_file_name: DeletionFile(path, one.offset, one.length, one.cardinality)
        for one in file.deletion_vectors or ()
    }
    try:
        vectors = load_vectors(table.file_io, places)
    except (LakewardError, FileNotFoundError) as error:
        yield f"cannot be read: {error}"
        return
    for name, vector in vectors.items():
        rows = row_counts.get(name)
        if rows is not None and not _fits(vector, rows):
            yield f"marks {len(vector)} rows of {name}, which has {rows}"


def _fits(vector: Bitmap, rows: int) -> bool:
    """Whether a vector marks any rows, and only such as are there."""
    return 0 < len(vector) <= rows and vector.max() < rows


def repeated_keys(table: TableCore, snapshot: Snapshot) -> Iterator[str]:
    """Describe keys that readers who do not merge see twice; reads the key columns.

    Args:
        table: the table.
        snapshot: the newest.
    """
    keys = list(table.schema.primary_keys)
    if not keys or not skips_level_0(table):
        return
    try:
        plan = TableScan(table).with_snapshot(snapshot.id).plan()
        found = TableRead(table, keys).to_table(plan)
    except (LakewardError, FileNotFoundError) as error:
        yield f"snapshot {snapshot.id}: its keys cannot be read: {error}"
        return
    repeats = found.num_rows - _distinct(found, keys)
    if repeats:
        yield f"snapshot {snapshot.id}: {repeats} rows have a key that is there already"


def _distinct(rows: pa.Table, columns: list[str]) -> int:
    return rows.group_by(columns).aggregate([]).num_rows
