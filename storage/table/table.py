# SPDX-License-Identifier: Apache-2.0
"""`FileStoreTable`: the one object through which a table is read, written and changed."""

import dataclasses
from collections.abc import Iterable, Sequence

import pyarrow as pa

from storage.clock import Clock, IdSource, RandomIds, SystemClock
from storage.errors import CommitConflictError, NotFoundError
from storage.format.file_meta import CommitMessage, DataFileMeta
from storage.format.layout import TableLayout
from storage.format.manifest_store import ManifestStore
from storage.format.schema import TableSchema
from storage.format.schema_changes import SchemaChange, evolve
from storage.format.schema_store import SchemaStore
from storage.format.snapshot_store import SnapshotStore
from storage.io.file_io import FileIO
from storage.io.resolve import resolve_file_io
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.options import TableOptions
from storage.table.commit import FileStoreCommit
from storage.table.commit_changes import own_files
from storage.table.core import TableCore
from storage.table.live_files import live_files
from storage.table.predicate import Predicate
from storage.table.read import TableRead
from storage.table.scan import TableScan
from storage.table.write import TableWrite, open_bucket

__all__ = ["FileStoreTable"]

_ALTER_TRIES = 20
"""Lost races before a schema change gives up; each loser applies its change on the winner's."""

_DATA_DIRECTORY = "data-file.path-directory"


@dataclasses.dataclass(frozen=True, eq=False)
class FileStoreTable(TableCore):
    """A table at one version of its schema. Picklable, safe for several threads.

    Made by `open` or by a catalog. Rows are read and written in `schema`; `latest` gives the
    table at its newest version.
    """

    @staticmethod
    def open(
        path: str,
        file_io: FileIO | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> "FileStoreTable":
        """Open a table by its directory, at its newest schema.

        Args:
            path: table directory or `file:` URI.
            file_io: the store; None: chosen by the path.
            clock: time; None: the machine's.
            ids: names; None: random.

        Raises:
            NotFoundError: there is no table.
            CorruptDataError: its schema is damaged.
        """
        if file_io is None:
            file_io, path = resolve_file_io(path)
        root = path.rstrip("/")
        schema = SchemaStore(file_io, TableLayout(root)).latest()
        if schema is None:
            raise NotFoundError("there is no table here", path=root)
        return FileStoreTable.at(root, schema, file_io, clock or SystemClock(), ids or RandomIds())

    @staticmethod
    def at(
        root: str, schema: TableSchema, file_io: FileIO, clock: Clock, ids: IdSource
    ) -> "FileStoreTable":
        """A table whose schema is known already; nothing is read."""
        layout = TableLayout(
            root, data_directory=schema.options.get(_DATA_DIRECTORY, "").strip("/")
        )
        types = [field.type for field in schema.partition_fields]
        return FileStoreTable(
            file_io=file_io,
            layout=layout,
            schema=schema,
            clock=clock,
            ids=ids,
            snapshots=SnapshotStore(file_io, layout),
            schemas=SchemaStore(file_io, layout),
            manifests=ManifestStore(file_io, layout, ids, partition_types=types),
        )

    def with_schema(self, schema_id: int) -> "FileStoreTable":
        """The table at a version of its schema.

        Raises:
            NotFoundError: there is no such version.
        """
        if schema_id == self.schema.id:
            return self
        return dataclasses.replace(self, schema=self.schemas.read(schema_id))

    def latest(self) -> "FileStoreTable":
        """The table at its newest schema; one listing.

        Raises:
            NotFoundError: the table was dropped.
        """
        schema = self.schemas.latest()
        if schema is None:
            raise NotFoundError("there is no table here any more", path=self.layout.root)
        return self.with_schema(schema.id)

    def new_scan(self) -> TableScan:
        """A scan of the newest snapshot without filters."""
        return TableScan(self)

    def new_read(
        self, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> TableRead:
        """A reader of splits."""
        return TableRead(self, columns, predicate)

    def new_write(
        self, commit_user: str, *, compaction: bool = True, overwrite: bool = False
    ) -> TableWrite:
        """A writer of rows of any bucket.

        Args:
            commit_user: who will commit.
            compaction: whether to compact what is due.
            overwrite: for `FileStoreCommit.overwrite`: take every bucket to be empty.

        Raises:
            UnsupportedFeatureError: an option asks for what this version would get wrong.
        """
        return TableWrite(self, commit_user, compaction=compaction, overwrite=overwrite)

    def new_commit(self, commit_user: str) -> FileStoreCommit:
        """A committer."""
        return FileStoreCommit(self, commit_user)

    def bucket_files(
        self, snapshot_id: int | None, partition: bytes, bucket: int
    ) -> tuple[DataFileMeta, ...]:
        """Live files of one bucket in a snapshot; None = before the first snapshot.

        Raises:
            NotFoundError: there is no such snapshot (any more).
        """
        if snapshot_id is None:
            return ()
        return live_files(self, self.snapshots.read(snapshot_id), partition, bucket)

    def bucket_writer(
        self, partition: bytes, bucket: int, snapshot_id: int | None
    ) -> MergeTreeWriter:
        """A writer of one bucket that continues from a snapshot.

        Raises:
            NotFoundError: there is no such snapshot (any more).
            InvalidRequestError: the partition was written with another number of buckets.
            UnsupportedFeatureError: the table cannot be written by this version.
        """
        snapshot = None if snapshot_id is None else self.snapshots.read(snapshot_id)
        return open_bucket(self, partition, bucket, snapshot)

    def to_arrow(
        self,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> pa.Table:
        """All rows of a snapshot.

        Args:
            snapshot_id: None: the newest, in this schema; otherwise rows come in the schema that
                the snapshot had.
            columns: in the order wanted; None = all.
            predicate: rows wanted; None = all.

        Raises:
            NotFoundError: there is no such snapshot (any more).
            InvalidRequestError: a column is unknown.
            UnsupportedFeatureError: reading would return wrong rows; names the option.
        """
        table = self
        if snapshot_id is not None:
            table = self.with_schema(self.snapshots.read(snapshot_id).schema_id)
        scan = table.new_scan().with_snapshot(snapshot_id).with_filter(predicate)
        return table.new_read(columns, predicate).to_table(scan.plan())

    def alter(self, changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """Apply schema changes on top of the newest schema, as one new version.

        Returns:
            The table at the new version; at the newest one when nothing changes.

        Raises:
            InvalidSchemaChangeError: a change is not allowed.
            CommitConflictError: others changed the schema each time.
            StorageUnavailableError: it is unknown whether the change was made; look and repeat.
        """
        for _ in range(_ALTER_TRIES):
            table = self.latest()
            if not changes:
                return table
            has_snapshots = self.snapshots.latest_id() is not None
            schema = evolve(table.schema, changes, self.clock.now_ms(), has_snapshots=has_snapshots)
            TableOptions.from_strings(schema.options)
            if self.schemas.publish(schema):
                return table.with_schema(schema.id)
        raise CommitConflictError(
            "others changed the schema each time", hint="try again", table=self.layout.root
        )

    def delete_uncommitted(self, messages: Iterable[CommitMessage]) -> None:
        """Remove the files of messages that were not and will not be committed."""
        files = sorted(own_files(messages))
        self.delete_quietly(self.data_path(*file) for file in files)
