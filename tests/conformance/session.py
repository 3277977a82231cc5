# SPDX-License-Identifier: Apache-2.0
"""The table of one case and what steps do to it: the only place that calls the storage layer."""

import contextlib
import itertools
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.format.files.data_file import INDEX_SUFFIX
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    DropPrimaryKey,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateDefault,
    UpdateNullability,
    UpdateType,
)
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.types import DataField, parse_type
from storage.io.local import LocalFileIO
from storage.table.branches import create_branch, rollback_to
from storage.table.compaction.rescale import rewrite_file_index
from storage.table.retention.consumers import delete_consumer, write_consumer
from storage.table.retention.expire import expire_snapshots, remove_orphan_files
from storage.table.scan.predicate import Predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag, delete_tag
from tests.changelog_kit import read_snapshot_changelog
from tests.conformance.system_tables import Stream, system_table
from tests.conformance.values import change_rows, input_batch
from tests.faulty_io import FaultyFileIO
from tests.golden.values import from_internal, from_text

__all__ = ["TableSession"]

_USER = "conformance"
_DATABASE = "conformance"
_NOW_MS = 1_700_000_000_000
_BETWEEN_COMMITS_MS = 60_000
_COMMIT_TIME = re.compile(r"<commit time of snapshot (\d+)>")
_SEEDS = itertools.count()


class TableSession:
    """One table, its commits so far, and the commits prepared but not made.

    Args:
        warehouse: directory that holds the table afterwards.
        name: of the table.
        description: `table` of the case.
    """

    def __init__(self, warehouse: pathlib.Path, name: str, description: Mapping[str, Any]) -> None:
        self._clock = ManualClock(_NOW_MS)
        self._ids = SeededIds(next(_SEEDS))
        self._file_io = FaultyFileIO(LocalFileIO(durable=False))
        self._identifier = 0
        self._prepared: dict[str, Any] = {}
        self.commits: list[list[Snapshot]] = []
        self._assumed = {"bucket"} - set(description.get("options") or {})
        catalog = FileSystemCatalog(
            str(warehouse), file_io=self._file_io, clock=self._clock, ids=self._ids
        )
        if _DATABASE not in catalog.list_databases():
            catalog.create_database(_DATABASE)
        identifier = f"{_DATABASE}.{name}"
        schema = _schema(description, self._clock.now_ms())
        if catalog.exists(identifier):
            catalog.drop_table(identifier)  # of an earlier run with the same --warehouse
        self.table: FileStoreTable = catalog.create_table(identifier, schema)
        self.path = pathlib.Path(self.table.layout.root)

    # ------------------------------------------------------------------------ catalog

    database = _DATABASE

    def catalog(self) -> FileSystemCatalog:
        """The catalog of the table, over the same store, whose operations are counted."""
        return FileSystemCatalog(
            str(self.path.parent.parent),
            file_io=self._file_io,
            clock=self._clock,
            ids=self._ids,
        )

    @property
    def operations(self) -> int:
        """How many operations of the store there were."""
        return len(self._file_io.operations)

    def opened_since(self, before: int) -> int:
        """How many data files were opened after so many operations."""
        return len(
            {
                path
                for operation, path in self._file_io.operations[before:]
                if operation in ("open_input", "read_bytes")
                and pathlib.PurePath(path).parent.name.startswith("bucket-")
                and not path.endswith(INDEX_SUFFIX)
            }
        )

    def publish(self, act: Callable[[], object]) -> None:
        """Let something commit to the table; remembers the snapshots that it makes."""
        self._publish(act)
        self.table = self.table.latest()

    # ------------------------------------------------------------------------ writing

    def write(self, rows: Sequence[Sequence[Any]], *, write_only: bool = False) -> None:
        """One flush per bucket and one commit, with the next identifier."""
        self._identifier += 1
        # at 1, cases have a `compact` step after each write instead
        of_stream = self.table.options.raw.get("full-compaction.delta-commits", "1") != "1"
        identifier = self._identifier if of_stream else None
        messages = self._messages(_USER, rows, write_only=write_only, identifier=identifier)
        self.commit(_USER, self._identifier, messages)

    def overwrite(self, rows: Sequence[Sequence[Any]], partition: Mapping[str, Any]) -> None:
        """Replace partitions as the table's options say, with the next identifier."""
        self._identifier += 1
        batch = input_batch(rows, self.fields)
        with self.table.new_write(_USER, overwrite=True) as writer:
            if batch.num_rows:
                writer.write(batch)
            messages = writer.prepare_commit()
        identifier = self._identifier
        commit = self.table.new_commit(_USER)
        self._publish(lambda: commit.overwrite(messages, identifier, partition=partition))

    def truncate(self, partition: Mapping[str, Any] | None = None) -> None:
        """Remove all rows, or those of the partitions with some values."""
        self._identifier += 1
        fields = self.table.schema.partition_fields
        types = [field.type for field in fields]

        def wanted(framed: bytes) -> bool:
            values = map(from_internal, decode_row(framed, types), types)
            row = dict(zip((field.name for field in fields), values, strict=True))
            return all(
                row[name] == from_text(value, self.table.schema.field(name).type)
                for name, value in (partition or {}).items()
            )

        identifier = self._identifier
        self._publish(lambda: self.table.new_commit(_USER).truncate(identifier, partitions=wanted))

    def rewrite_file_index(self) -> None:
        """Give every file the indexes that the options ask for."""
        self._publish(lambda: rewrite_file_index(self.table))

    def compact(self) -> None:
        """A full compaction of every bucket and one commit, with the next identifier."""
        self._identifier += 1
        with self.table.new_write(_USER) as writer:
            writer.compact(full=True)
            messages = writer.prepare_commit()
        self.commit(_USER, self._identifier, messages, ignore_empty=True)

    def write_as(
        self, user: str, identifier: int, rows: Sequence[Sequence[Any]], *, batch: bool = False
    ) -> None:
        """A commit with a given user and identifier; an empty batch commit makes no snapshot."""
        messages = self._messages(user, rows)
        self.commit(user, identifier, messages, ignore_empty=batch)

    def filter_committed(self, user: str, identifiers: Sequence[int]) -> list[int]:
        """Those of the identifiers that this user has not committed yet."""
        return list(self.table.new_commit(user).filter_committed(identifiers))

    def prepare(self, writer: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows as a user of that name, without committing them."""
        self._prepared[writer] = self._messages(writer, rows)

    def commit_prepared(self, writer: str) -> None:
        """Commit what that writer prepared."""
        self.commit(writer, 1, self._prepared.pop(writer))

    def commit(
        self, user: str, identifier: int, messages: Sequence[Any], *, ignore_empty: bool = False
    ) -> None:
        """Publish messages; remembers the snapshots they made."""
        committer = self.table.new_commit(user)
        self._publish(lambda: committer.commit(messages, identifier, ignore_empty=ignore_empty))

    def _publish(self, act: Callable[[], object]) -> None:
        before = self.table.snapshots.latest_id() or 0
        self._clock.advance(_BETWEEN_COMMITS_MS)
        act()
        after = self.table.snapshots.latest_id() or 0
        self.commits.append([self.table.snapshots.read(i) for i in range(before + 1, after + 1)])

    def _messages(
        self,
        user: str,
        rows: Sequence[Sequence[Any]],
        *,
        write_only: bool = False,
        identifier: int | None = None,
    ) -> Sequence[Any]:
        batch = input_batch(rows, self.fields)
        with self.table.new_write(user, compaction=not write_only) as writer:
            if batch.num_rows:
                writer.write(batch)
            return writer.prepare_commit(identifier, periodic=identifier is not None)

    # ----------------------------------------------------------------------- changing

    def alter(self, body: Mapping[str, Any]) -> None:
        """Carry out one `alter` step."""
        self.table = self.table.alter(_schema_changes(body))

    def expire(self, *, retain_max: int, retain_min: int) -> None:
        """Expire snapshots; none is protected by its age."""
        expire_snapshots(
            self.table,
            now_ms=self._clock.now_ms(),
            retain_max=retain_max,
            retain_min=retain_min,
            time_retained_ms=0,
        )

    def create_tag(self, tag: str, snapshot: int | None = None) -> None:
        """Tag a snapshot, or the newest."""
        create_tag(self.table, tag, snapshot)

    def delete_tag(self, tag: str) -> None:
        """Remove a tag and what only it names."""
        delete_tag(self.table, tag)

    def create_branch(self, branch: str, tag: str | None = None) -> None:
        """Make an empty branch, or one at a tag."""
        create_branch(self.table, branch, tag=tag)

    def reset_consumer(self, consumer_id: str, next_snapshot_id: int | None = None) -> None:
        """Set how far a consumer has come; None removes it."""
        if next_snapshot_id is None:
            delete_consumer(self.table, consumer_id)
        else:
            write_consumer(self.table, consumer_id, next_snapshot_id)

    def rollback_to(self, snapshot_id: int | None = None, tag: str | None = None) -> None:
        """Make an older snapshot the newest again."""
        rollback_to(self.table, snapshot_id, tag=tag)

    @contextlib.contextmanager
    def on_branch(self, branch: str) -> Iterator[None]:
        """Write to a branch for a while."""
        main, self.table = self.table, self.table.at_branch(branch)
        try:
            yield
        finally:
            self.table = main

    # ------------------------------------------------------------------------ looking

    @property
    def fields(self) -> tuple[DataField, ...]:
        """Columns of the current schema."""
        return self.table.schema.fields

    def read(
        self,
        options: Mapping[str, str] | None = None,
        branch: str = "main",
        *,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> tuple[pa.Table, tuple[DataField, ...], int]:
        """A batch read.

        Args:
            options: dynamic options of the reader.
            branch: what branch to read.
            columns: the columns, all when None.
            predicate: what rows.

        Returns:
            The rows, their columns, and the number of data files that were opened.
        """
        table = self._opened(branch, options)
        schema = table.schema
        before = self.operations
        rows = table.to_arrow(columns=columns, filter=predicate)
        fields = schema.fields if columns is None else tuple(map(schema.field, columns))
        return rows, fields, self.opened_since(before)

    def system(
        self, name: str, options: Mapping[str, str] | None = None, branch: str = "main"
    ) -> pa.Table:
        """A system table of the table, with its columns as Paimon names them."""
        rows = system_table(self._opened(branch, options), name)
        if name == "options":  # those of the statement that made the table
            given = [key not in self._assumed for key in rows.column("key").to_pylist()]
            rows = rows.filter(pa.array(given, pa.bool_()))
        return rows

    def stream(self, options: Mapping[str, Any]) -> Stream:
        """A streaming reader of the table."""
        texts = {key: _option_text(value) for key, value in options.items()}
        return Stream(self._opened("main", {**texts, "lakeward.streaming-read.unmerged": "true"}))

    def _opened(self, branch: str, options: Mapping[str, str] | None) -> FileStoreTable:
        table = self.table.at_branch(branch)
        texts = {key: self._time(value) for key, value in (options or {}).items()}
        return table.with_options(texts) if texts else table

    def _time(self, value: str) -> str:
        """The value of an option with a commit time put in."""
        named = _COMMIT_TIME.fullmatch(value)
        return value if named is None else str(self.table.snapshots.read(int(named[1])).time_ms)

    def changelog(self, snapshots: Sequence[Snapshot]) -> list[tuple[Any, ...]]:
        """What changelog files say about some snapshots, in order."""
        return self._changes([s for s in snapshots if s.changelog_manifest_list is not None])

    def delta_stream(self, snapshots: Sequence[Snapshot]) -> list[tuple[Any, ...]]:
        """What a reader without changelog files sees of some snapshots, in order."""
        return self._changes([s for s in snapshots if s.commit_kind is CommitKind.APPEND])

    def _changes(self, snapshots: Sequence[Snapshot]) -> list[tuple[Any, ...]]:
        return [
            change
            for snapshot in snapshots
            for change in change_rows(read_snapshot_changelog(self.table, snapshot.id), self.fields)
        ]

    # -------------------------------------------------------------------------- files

    def read_json(self, path: str) -> Any:
        """A JSON file of the table directory."""
        return json.loads((self.path / path).read_text(encoding="utf-8"))

    def matching_files(self, pattern: str) -> list[pathlib.Path]:
        """Files of the table directory that match a glob."""
        return sorted(path for path in self.path.glob(pattern) if path.is_file())

    def create_file(self, path: str, age_hours: int) -> None:
        """Put a file into the table directory that nothing names."""
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"left over")
        written = self.table.clock.now_ms() / 1000 - age_hours * 3600
        os.utime(place, (written, written))

    def remove_orphan_files(self) -> None:
        """Remove what nothing names and is older than a day."""
        remove_orphan_files(self.table)

    def file_columns(self, path: pathlib.Path) -> list[str]:
        """Column names of a Parquet file."""
        return list(parquet.read_schema(path).names)


def _schema(description: Mapping[str, Any], now_ms: int) -> Any:
    options = {
        key: _option_text(value) for key, value in (description.get("options") or {}).items()
    }
    if description.get("primary_key"):
        options.setdefault("bucket", "1")
    columns = [
        DataField(id=0, name=name, type=parse_type(type_), default=default[0] if default else None)
        for name, type_, *default in description["columns"]
    ]
    return new_schema(
        columns,
        primary_keys=description.get("primary_key") or (),
        partition_keys=description.get("partition") or (),
        options=options,
        comment="",
        now_ms=now_ms,
    )


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _schema_changes(body: Mapping[str, Any]) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    for key, value in (body.get("set_options") or {}).items():
        changes.append(SetOption(key, _option_text(value)))
    if "add_column" in body:
        name, type_ = body["add_column"]
        changes.append(
            AddColumn(
                name, parse_type(type_), after=body.get("after"), first=body.get("first", False)
            )
        )
    if "drop_column" in body:
        changes.append(DropColumn(body["drop_column"]))
    if "rename_column" in body:
        changes.append(RenameColumn(*body["rename_column"]))
    if "update_type" in body:
        name, type_ = body["update_type"]
        changes.append(UpdateType(name, parse_type(type_)))
    if "set_default" in body:
        changes.append(UpdateDefault(*body["set_default"]))
    if body.get("drop_primary_key"):
        changes.append(DropPrimaryKey())
    if "update_nullability" in body:
        changes.append(UpdateNullability(*body["update_nullability"]))
    return changes
