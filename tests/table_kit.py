# SPDX-License-Identifier: Apache-2.0
"""Small tables for tests: make one, write rows, read rows, see files; or a bucket by itself."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.format.metadata.file_meta import EMPTY_ROW, CommitMessage
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import VALUE_KIND, RowKind, parse_type
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.lsm.bucket import BucketContext
from storage.options.options import TableOptions
from storage.table.commit.commit import CommitResult
from storage.table.commit.live_files import index_entries
from storage.table.table import FileStoreTable

KINDS = {kind.short: kind.value for kind in RowKind}
DEFAULT_COLUMNS = (("k", "BIGINT"), ("v", "STRING"))
NAME = "db.t"
_SEEDS = itertools.count(1_000)


def make_table(
    warehouse: pathlib.Path,
    *,
    columns: Sequence[tuple[str, str]] = DEFAULT_COLUMNS,
    keys: Sequence[str] = ("k",),
    partitions: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    file_io: FileIO | None = None,
    clock: ManualClock | None = None,
    seed: int = 0,
) -> FileStoreTable:
    """A new table `db.t`, with one bucket by default."""
    catalog = FileSystemCatalog(
        str(warehouse),
        file_io=file_io or LocalFileIO(durable=False),
        clock=clock or ManualClock(),
        ids=SeededIds(seed),
    )
    schema = new_schema(
        [(name, parse_type(text)) for name, text in columns],
        primary_keys=keys,
        partition_keys=partitions,
        options={"bucket": "1", **(options or {})},
        now_ms=0,
    )
    return catalog.create_table(NAME, schema)


def reopened(
    table: FileStoreTable, *, file_io: FileIO | None = None, seed: int | None = None
) -> FileStoreTable:
    """The same table as a new process sees it: nothing cached but what is on disk."""
    return FileStoreTable.open(
        table.layout.root,
        file_io=file_io or LocalFileIO(durable=False),
        clock=table.clock,
        ids=SeededIds(next(_SEEDS) if seed is None else seed),
    )


def bucket_context(root: pathlib.Path, schema: TableSchema, **replacements: Any) -> BucketContext:
    """The only bucket of a table, without the table; `replacements` are of its ports."""
    ports: dict[str, Any] = {
        "file_io": LocalFileIO(durable=False),
        "clock": ManualClock(),
        "id_source": SeededIds(0),
    }
    return BucketContext(
        layout=TableLayout(str(root)),
        schema=schema,
        options=TableOptions.from_strings(schema.options),
        partition=EMPTY_ROW,
        partition_path="",
        bucket=0,
        schemas={schema.id: schema}.__getitem__,
        **(ports | replacements),
    )


def rows_batch(table: FileStoreTable, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """An input batch; a row is its kind followed by its values."""
    fields = list(table.schema.arrow_schema)
    columns = [pa.array([row[i + 1] for row in rows], f.type) for i, f in enumerate(fields)]
    kinds = pa.array([KINDS[row[0]] for row in rows], pa.int8())
    return pa.RecordBatch.from_arrays(
        [*columns, kinds], names=[*(field.name for field in fields), VALUE_KIND]
    )


def prepared(
    table: FileStoreTable,
    *batches: Sequence[Sequence[Any]],
    compaction: bool = True,
    full: bool = False,
    overwrite: bool = False,
    identifier: int | None = None,
) -> list[CommitMessage]:
    """Messages of one commit; each batch is flushed by itself when more than one is given.

    An identifier makes it a commit of a stream.
    """
    with table.new_write("test", compaction=compaction, overwrite=overwrite) as writer:
        for rows in batches:
            writer.write(rows_batch(table, rows))
            if len(batches) > 1:
                writer.compact()
        if full:
            writer.compact(full=True)
        return writer.prepare_commit(identifier, periodic=identifier is not None)


def write(
    table: FileStoreTable,
    identifier: int,
    *batches: Sequence[Sequence[Any]],
    user: str = "user",
    compaction: bool = True,
    full: bool = False,
    stream: bool = False,
) -> CommitResult:
    """Write and commit; with `stream` as a commit of a stream."""
    period = identifier if stream else None
    messages = prepared(table, *batches, compaction=compaction, full=full, identifier=period)
    return table.new_commit(user).commit(messages, identifier)


def rows_of(table: FileStoreTable, **arguments: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted by their text."""
    rows = table.to_arrow(**arguments)
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def data_files(table: FileStoreTable) -> set[str]:
    """Names of the data files on disk."""
    root = pathlib.Path(table.layout.root)
    return {path.name for path in root.rglob("bucket-*/*") if path.is_file()}


def metadata_files(table: FileStoreTable) -> set[str]:
    """Names of the manifests and lists on disk."""
    return {path.name for path in pathlib.Path(table.layout.manifest_dir).glob("*")}


def index_files_on_disk(table: FileStoreTable) -> set[str]:
    """Names of the table index files on disk."""
    return {path.name for path in pathlib.Path(table.layout.index_dir).glob("*")}


def index_files_named(table: FileStoreTable) -> set[str]:
    """Names of the table index files that the snapshots on disk name."""
    snapshots = map(table.snapshots.read, table.snapshots.ids())
    return {e.file.file_name for snapshot in snapshots for e in index_entries(table, snapshot)}


def named_files(table: FileStoreTable) -> tuple[set[str], set[str]]:
    """Data files and metadata files that the snapshots on disk name."""
    data: set[str] = set()
    metadata: set[str] = set()
    for snapshot_id in table.snapshots.ids():
        snapshot = table.snapshots.read(snapshot_id)
        data |= {entry.file.file_name for entry in table.new_scan().live_entries(snapshot)}
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        for name in lists:
            metadata.add(name)
            metadata |= {meta.file_name for meta in table.manifests.read_list(name)}
        if snapshot.index_manifest is not None:
            metadata.add(snapshot.index_manifest)
    return data, metadata
