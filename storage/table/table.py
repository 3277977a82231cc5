# SPDX-License-Identifier: Apache-2.0
"""`FileStoreTable`: the one object through which a table is read, written and changed."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict, Unpack

import pyarrow as pa

from storage.clock import Clock, IdSource, RandomIds, SystemClock
from storage.errors import (
    CommitConflictError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout
from storage.format.metadata.manifest_store import ManifestStore
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.schema_changes import SchemaChange, evolve
from storage.format.metadata.snapshot import SnapshotStore
from storage.io.file_io import FileIO
from storage.io.resolve import resolve_file_io
from storage.options.options import TableOptions, find_option
from storage.table.commit.commit import FileStoreCommit
from storage.table.iceberg import check_iceberg_change
from storage.table.operations import TableOperations
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Predicate, as_predicate
from storage.table.scan.row_scan import FALLBACK_BRANCH, RowScan
from storage.table.scan.scan import TableScan
from storage.table.scan.time_travel import TimeTravel, travel_of
from storage.table.table_rules import check_table
from storage.table.upkeep import after_commit
from storage.table.write.dynamic_bucket import AssignerShare
from storage.table.write.write import TableWrite

_ALTER_TRIES = 20
"""Lost races before a schema change fails; each retry applies the change to the winner's schema."""

_DATA_DIRECTORY = "data-file.path-directory"
_BRANCH = "branch"


class ChosenState(TypedDict, total=False):
    """The keyword arguments of `FileStoreTable.scan` that choose a state."""

    snapshot: int | None
    tag: str | None
    timestamp_ms: int | None
    watermark: int | None
    version: str | None


@dataclasses.dataclass(frozen=True, eq=False)
class FileStoreTable(TableOperations):
    """A table, or a branch of it, at one version of its schema.

    Picklable, safe for several threads. Created by `open` or a catalog. Rows are read and written
    in `schema`; `latest` gives the table at its newest version. After a branch was
    fast-forwarded, or to see options that were changed, ask for `latest`.

    Attributes:
        dynamic_options: what `with_options` set, which `schema` holds already; None = removed.
    """

    dynamic_options: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    @staticmethod
    def open(
        path: str,
        file_io: FileIO | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        options: Mapping[str, str] | None = None,
        *,
        branch: str | None = None,
    ) -> "FileStoreTable":
        """Open a table by its directory, at its newest schema.

        Args:
            path: table directory, `file:` URI or URL of an object store.
            file_io: the store; None: chosen by the path.
            clock: time; None: the machine's.
            ids: names; None: random.
            options: of the object store, where `file_io` is None.
            branch: None: what option `branch` of the table says, else `main`.

        Raises:
            NotFoundError: there is no table, or no such branch.
            CorruptDataError: its schema is damaged.
        """
        if file_io is None:
            file_io, path = resolve_file_io(path, options)
        root = path.rstrip("/")
        schema = SchemaStore(file_io, TableLayout(root, branch=branch or MAIN_BRANCH)).latest()
        if schema is None:
            raise NotFoundError(
                "the directory has no schema", path=root, branch=branch or MAIN_BRANCH
            )
        table = FileStoreTable.at(
            root, schema, file_io, clock or SystemClock(), ids or RandomIds(), branch or MAIN_BRANCH
        )
        default_branch = schema.options.get(_BRANCH, MAIN_BRANCH)
        return table if branch is not None else table.at_branch(default_branch)

    @staticmethod
    def at(
        root: str,
        schema: TableSchema,
        file_io: FileIO,
        clock: Clock,
        ids: IdSource,
        branch: str = MAIN_BRANCH,
    ) -> "FileStoreTable":
        """A table whose schema is known already; nothing is read."""
        layout = TableLayout(
            root,
            branch=branch,
            data_directory=schema.options.get(_DATA_DIRECTORY, "").strip("/"),
        )
        return FileStoreTable(
            file_io=file_io,
            layout=layout,
            schema=schema,
            clock=clock,
            ids=ids,
            snapshots=SnapshotStore(file_io, layout),
            schemas=SchemaStore(file_io, layout),
            manifests=_manifest_store(file_io, layout, ids, schema),
        )

    def at_branch(self, branch: str) -> "FileStoreTable":
        """The table at a branch, at its newest schema and without dynamic options.

        Raises:
            NotFoundError: there is no such branch.
        """
        if branch == self.layout.branch:
            return self
        layout = TableLayout(self.layout.root, branch=branch)
        schema = SchemaStore(self.file_io, layout).latest()
        if schema is None:
            raise NotFoundError(
                f"Branch name '{branch}' doesn't exist.", table=self.layout.root, branch=branch
            )
        root = self.layout.root
        return FileStoreTable.at(root, schema, self.file_io, self.clock, self.ids, branch)

    def with_options(self, options: Mapping[str, str | None]) -> "FileStoreTable":
        """The table with other options, for this object only; nothing is stored.

        Options of time travel (`scan.snapshot-id`, `scan.tag-name`, `scan.timestamp-millis`,
        `scan.timestamp`, `scan.watermark`, `scan.version`, `scan.mode`) choose what is read, and
        give the table the schema of that snapshot; `branch` opens the table at a branch.

        Args:
            options: texts by key, on top of earlier ones; None removes an option.

        Raises:
            InvalidOptionError: a value is bad, options contradict each other, or an option must
                not differ from that of the table.
            NotFoundError: there is no such branch or tag, or the watermark is not reached.
        """
        _check_dynamic(options, self.schema)
        rest = {key: value for key, value in options.items() if key != _BRANCH}
        if options.get(_BRANCH):
            table = self.at_branch(options[_BRANCH] or MAIN_BRANCH)
            return table.with_options({**self.dynamic_options, **rest}) if rest else table
        table = dataclasses.replace(self, dynamic_options={**self.dynamic_options, **rest})
        table = table._at_schema(self.schemas.read(self.schema.id))
        TableOptions.from_strings(table.schema.options)
        travel = travel_of(table.schema.options)
        if travel.to_newest:
            return table
        try:
            snapshot = travel.resolve(table)
        except NotFoundError:
            if travel.snapshot_id is None and travel.timestamp_ms is None:
                raise
            return table  # reading a state reports it; a stream may start there
        if (branch := table.schema.options.get(FALLBACK_BRANCH)) is not None:  # of the newest one
            dynamic = {FALLBACK_BRANCH: branch, **table.dynamic_options}
            table = dataclasses.replace(table, dynamic_options=dynamic)
        return table if snapshot is None else table.with_schema(snapshot.schema_id)

    def with_schema(self, schema_id: int) -> "FileStoreTable":
        """The table at a version of its schema; dynamic options stay.

        Raises:
            NotFoundError: there is no such version.
        """
        return (
            self if schema_id == self.schema.id else self._at_schema(self.schemas.read(schema_id))
        )

    def _at_schema(self, stored: TableSchema) -> "FileStoreTable":
        schema = stored
        if self.dynamic_options:
            texts = {**stored.options, **self.dynamic_options}
            options = {key: text for key, text in texts.items() if text is not None}
            schema = dataclasses.replace(stored, options=options)
        if schema == self.schema:
            return self
        store = _manifest_store(self.file_io, self.layout, self.ids, schema)
        return dataclasses.replace(self, schema=schema, manifests=store)

    def latest(self) -> "FileStoreTable":
        """The table at its newest schema; one listing.

        Raises:
            NotFoundError: the table was dropped.
        """
        return self._at_schema(self._newest_schema())

    def _newest_schema(self) -> TableSchema:
        schema = self.schemas.latest()
        if schema is None:
            raise NotFoundError("there is no table here any more", path=self.layout.root)
        return schema

    def new_scan(self) -> TableScan:
        """A scan of the newest snapshot without filters."""
        return TableScan(self)

    def new_read(
        self, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> TableRead:
        """A reader of splits."""
        return TableRead(self, columns, predicate)

    def new_write(
        self,
        commit_user: str,
        *,
        compaction: bool = True,
        overwrite: bool = False,
        share: AssignerShare | None = None,
        index_directory: pathlib.Path | None = None,
        batch: bool = False,
    ) -> TableWrite:
        """A writer of rows of any bucket; arguments and errors as of `TableWrite`."""
        return TableWrite(
            self,
            commit_user,
            compaction=compaction,
            overwrite=overwrite,
            share=share,
            index_directory=index_directory,
            batch=batch,
        )

    def new_commit(self, commit_user: str) -> FileStoreCommit:
        """A committer; after the commit of a batch job it runs the maintenance that is due."""
        return FileStoreCommit(self, commit_user, after_batch=functools.partial(after_commit, self))

    def scan(
        self,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        watermark: int | None = None,
        version: str | None = None,
    ) -> RowScan:
        """Select rows; they are read when the scan is consumed.

        Without any way of choosing the snapshot it is the one that the table's options choose,
        else the newest; the newest is read in this schema, others in the schema that they had.

        Args:
            filter: rows wanted, as text (`price > 5 and item like 't%'`) or as a predicate;
                None = all.
            columns: in the order wanted; None = all.
            snapshot: this one.
            tag: the one a tag keeps.
            timestamp_ms: the newest that was committed at or before this time [epoch ms].
            watermark: the first that has reached this watermark [epoch ms].
            version: the one of the tag of this name, else with this id.

        Raises:
            NotFoundError: there is no such snapshot (any more), or tag.
            InvalidRequestError: a column is unknown, the filter cannot be parsed, or snapshots are
                chosen in two ways.
            UnsupportedFeatureError: reading would return wrong rows; names the option.
        """
        if isinstance(columns, str):
            raise InvalidRequestError(
                "`columns` must be a list of names, not a single string",
                hint=f'columns=["{columns}"]',
            )
        predicate = as_predicate(filter)
        travel = TimeTravel(
            snapshot_id=snapshot,
            tag=tag,
            timestamp_ms=timestamp_ms,
            watermark=watermark,
            version=version,
        )
        return RowScan(self, columns, predicate, travel=travel)

    def to_arrow(
        self,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        **state: Unpack[ChosenState],
    ) -> pa.Table:
        """All rows at once; arguments and errors as of `scan`."""
        return self.scan(filter, columns, **state).to_arrow()

    def to_batches(
        self,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        **state: Unpack[ChosenState],
    ) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch, in bounded memory; arguments and errors as of `scan`."""
        return self.scan(filter, columns, **state).to_batches()

    def with_fallback(self) -> "tuple[FileStoreTable, FileStoreTable]":
        """This table and the same at its fallback branch, both without that option.

        Raises:
            NotFoundError: there is no such branch.
        """
        table = self.with_options({FALLBACK_BRANCH: None})
        fallback = self.at_branch(self.schema.options[FALLBACK_BRANCH])
        return table, fallback.with_options({FALLBACK_BRANCH: None})

    def alter(self, changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """Apply schema changes on top of the newest schema, as one new version.

        Returns:
            The table at the new version; at the newest one when nothing changes.

        Raises:
            InvalidSchemaChangeError: a change is not allowed.
            CommitConflictError: another writer changed the schema each time.
            StorageUnavailableError: it is unknown whether the change was stored; check and retry.
        """
        if self.environment is not None:
            return self.environment.alter(self, changes)
        return self.alter_files(changes)

    def evolved(
        self, changes: Sequence[SchemaChange], newest: TableSchema | None = None
    ) -> TableSchema:
        """The newest schema with changes applied; nothing is stored.

        Raises:
            InvalidSchemaChangeError: a change is not allowed.
        """
        has_snapshots = self.snapshots.latest_id() is not None
        before = newest or self._newest_schema()
        schema = evolve(before, changes, self.clock.now_ms(), has_snapshots=has_snapshots)
        check_table(schema)
        check_iceberg_change(before, schema)
        return schema

    def alter_files(self, changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """As `alter`, without the table's catalog; for catalogs."""
        for _ in range(_ALTER_TRIES):
            newest = self._newest_schema()
            table = self._at_schema(newest)
            if not changes:
                return table
            schema = self.evolved(changes, newest)
            if self.schemas.publish(schema):
                return table.with_schema(schema.id)
        raise CommitConflictError(
            "others changed the schema each time", hint="try again", table=self.layout.root
        )


def _manifest_store(
    file_io: FileIO, layout: TableLayout, ids: IdSource, schema: TableSchema
) -> ManifestStore:
    return ManifestStore(
        file_io,
        layout,
        ids,
        partition_types=[field.type for field in schema.partition_fields],
        options=schema.options,
    )


def _check_dynamic(options: Mapping[str, str | None], schema: TableSchema) -> None:
    for key, value in options.items():
        row = find_option(key)
        if row is None or row.mutable or schema.options.get(key) == value:
            continue
        raise InvalidOptionError(
            f"Change '{key}' is not supported yet.",
            hint="it is fixed when the table is created",
            value=value,
            table_value=schema.options.get(key),
        )
