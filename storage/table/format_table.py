# SPDX-License-Identifier: Apache-2.0
"""Format tables: a directory of files of one format, with Hive's partition directories.

Source: SEMANTICS.md §L.2, and Apache Paimon where that is silent. There are no snapshots: what
lies in the directory is the table. Other engines read and write the same directory.

A write is prepared outside of the table and then published file by file, each at once or not at
all; one that fails removes what it published. An overwrite publishes the new files before it
removes those that it found: a reader meanwhile may see both, and never fewer rows than one of the
two states has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from storage.errors import InvalidRequestError, StorageUnavailableError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.options.options import TableOptions
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.format_files import (
    FormatSplit,
    completed,
    data_files,
    directories,
    framed,
    partition_schema,
    read_file,
)
from storage.table.scan.predicate import Predicate, both, columns_of, mask
from storage.table.scan.predicate_text import as_predicate
from storage.table.write.drop_partitions import chosen_partitions
from storage.table.write.format_write import FormatFiles

if TYPE_CHECKING:
    from storage.format.metadata.schema_changes import SchemaChange
    from storage.table.table import FileStoreTable

__all__ = ["FormatScan", "FormatTable"]


_PORTS = ("layout", "file_io", "clock", "ids", "schemas")
"""What a table without snapshots has of `FileStoreTable`, as it is there."""


class FormatTable:
    """A directory of files. Picklable; nothing is cached.

    Has the part of `FileStoreTable` that needs no snapshots; its other methods are refused by
    name.

    Args:
        core: schema and ports of the table; its directory is that of the files.
    """

    def __init__(self, core: "FileStoreTable") -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        from storage.table.table import FileStoreTable  # noqa: PLC0415 - the two know each other

        if name in _PORTS:
            return getattr(self._core, name)
        known = name in FileStoreTable.__dataclass_fields__ or hasattr(FileStoreTable, name)
        if known and not name.startswith("_"):
            raise UnsupportedFeatureError(
                f"a format table has no `{name}`",
                detail="it is a directory of files, without snapshots",
                hint="load its rows into a table of type `table`",
                table=self._core.layout.root,
            )
        raise AttributeError(name)

    def __reduce__(self) -> Any:
        return FormatTable, (self._core,)

    @property
    def core(self) -> "FileStoreTable":
        """Schema and ports."""
        return self._core

    @property
    def schema(self) -> TableSchema:
        """Rows are read and written as this says."""
        return self._core.schema

    @property
    def location(self) -> str:
        """The directory."""
        return self._core.layout.root

    @property
    def options(self) -> TableOptions:
        """The schema's options, parsed."""
        return self._core.options

    @property
    def file_format(self) -> str:
        """`csv`, `json`, `text`, `parquet` or `orc`."""
        return self._core.options.file_format

    def with_options(self, options: Mapping[str, str | None]) -> "FormatTable":
        """The table with other options, for this object only; as of `FileStoreTable`.

        Raises:
            UnsupportedFeatureError: an option chooses a snapshot or changes.
        """
        for key in options:
            if key.startswith(("scan.", "incremental-", "branch", "consumer")):
                raise UnsupportedFeatureError(
                    "a format table has no snapshots", hint="remove the option", option=key
                )
        return FormatTable(self._core.with_options(options))

    def latest(self) -> "FormatTable":
        """The table at its newest schema."""
        return FormatTable(self._core.latest())

    def alter(self, changes: "Sequence[SchemaChange]") -> "FormatTable":
        """Apply schema changes, as `FileStoreTable.alter`; files stay as they are.

        Columns are found in files by name, in CSV and text by position.
        """
        return FormatTable(self._core.alter(changes))

    def scan(
        self,
        filter: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        **state: object,
    ) -> "FormatScan":
        """Choose rows; they are read when the scan is asked for them.

        Args:
            filter: rows wanted, as text or as a predicate; None = all.
            columns: in the order wanted; None = all.
            state: snapshots cannot be chosen.

        Raises:
            InvalidRequestError: a column is unknown, or the filter cannot be parsed.
            UnsupportedFeatureError: a snapshot is chosen.
        """
        for key, value in state.items():
            if value is not None:
                raise UnsupportedFeatureError("a format table has no snapshots", option=key)
        return FormatScan(self, columns, as_predicate(filter))

    def to_arrow(
        self, filter: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """All rows at once; arguments and errors as of `scan`."""
        return self.scan(filter, columns).to_arrow()

    def to_batches(
        self, filter: str | Predicate | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch; arguments and errors as of `scan`."""
        return self.scan(filter, columns).to_batches()

    def partitions(self) -> pa.Table:
        """The values of the partition columns of every partition directory, by path."""
        found = sorted(directories(self._core, None), key=lambda one: one.path)
        schema = partition_schema(self.schema)
        return pa.Table.from_batches([one.partition for one in found], schema=schema)

    def append_rows(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows.

        Args:
            batches: value columns, found by name.

        Returns:
            How many.

        Raises:
            InvalidRequestError: a row does not fit, or is no insert.
            StorageUnavailableError: the store failed; nothing was added.
        """
        with FormatFiles(self._core) as staging:
            for batch in batches:
                staging.write(batch)
            staging.publish()
        return staging.rows

    def overwrite_rows(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        partition: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> int:
        """Write rows in place of those of the table, or of partitions.

        Args:
            batches: value columns, found by name.
            partition: values of some partition columns: exactly the partitions that have them
                are replaced. None: of a partitioned table those that get rows, unless
                `dynamic-partition-overwrite` is false; else all.
            user: without meaning here.

        Returns:
            How many rows were written.

        Raises:
            InvalidRequestError: a row does not fit, is no insert, or belongs to no partition that
                is replaced.
            StorageUnavailableError: files could not be removed; overwrite again.
        """
        with FormatFiles(self._core) as staging:
            for batch in batches:
                staging.write(batch)
            if partition is not None:
                replaced = chosen_partitions(self._core, [partition])
                staging.require(replaced, partition)
            elif self.schema.partition_keys and self.options.dynamic_partition_overwrite:
                replaced = frozenset(staging.partitions).__contains__
            else:
                replaced = _every
            old = self._files(replaced)
            staging.publish()
        self._remove(old)
        return staging.rows

    def truncate(self, *, user: str | None = None) -> int:
        """Remove all files; how many there were."""
        return self._remove(self._files(_every))

    def drop_partitions(
        self,
        partitions: Sequence[Mapping[str, Any]],
        *,
        user: str | None = None,
    ) -> int:
        """Remove the files of partitions that have all values of one of some specifications.

        Raises:
            InvalidRequestError: nothing is chosen, or a column is no partition key or cannot
                have the value.
        """
        if not partitions or not all(partitions):
            raise InvalidRequestError(
                "no partition is named", hint="truncate the table to remove all rows"
            )
        chosen = chosen_partitions(self._core, partitions)
        removed = self._remove(self._files(chosen))
        for directory in directories(self._core, None):
            if chosen(framed(self._core, directory.partition)):
                self._core.file_io.prune(directory.path)
        return removed

    def _files(self, chosen: Callable[[bytes], bool]) -> list[str]:
        """Data files of partitions (framed)."""
        return [
            split.path
            for directory in directories(self._core, None)
            if chosen(framed(self._core, directory.partition))
            for split in data_files(self._core, directory)
        ]

    def _remove(self, paths: Sequence[str]) -> int:
        removed = self._core.file_io.delete_many(paths)
        left = [path for path in paths if self._core.file_io.is_file(path)]
        if left:
            raise StorageUnavailableError(
                "files of a format table could not be removed",
                hint="repeat the statement",
                path=left[0],
            )
        return removed


class FormatScan(ArrowScan):
    """Rows of a format table that were chosen and not read yet. Picklable.

    Args:
        table: the table.
        columns: in the order wanted; None = all.
        predicate: rows wanted; None = all.

    Raises:
        InvalidRequestError: a column is unknown.
    """

    def __init__(
        self,
        table: FormatTable,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise InvalidRequestError(
                "columns are a list of names, not a text", hint=f'columns=["{columns}"]'
            )
        self._table = table
        self._columns = tuple(table.schema.field_names if columns is None else columns)
        self._predicate = predicate
        for name in (*self._columns, *(columns_of(predicate) if predicate is not None else ())):
            if name not in table.schema.field_names:
                raise InvalidRequestError(
                    "no such column",
                    hint=f"there are {', '.join(table.schema.field_names)}",
                    column=name,
                )

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns wanted, in the order wanted."""
        whole = self._table.schema.arrow_schema
        return pa.schema([whole.field(name) for name in self._columns])

    def plan(self, predicate: Predicate | None = None) -> list[FormatSplit]:
        """The files of partitions that may hold wanted rows, by path.

        Raises:
            CorruptDataError: the name of a directory is no value of its partition column.
        """
        wanted = both(self._predicate, predicate)
        splits = [
            split
            for directory in directories(self._table.core, wanted)
            for split in data_files(self._table.core, directory)
        ]
        return sorted(splits, key=lambda split: split.path)

    def read(
        self, split: FormatSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        Raises:
            CorruptDataError: the file is damaged, or holds something else than the columns say.
            FileNotFoundError: it was removed.
        """
        wanted = both(self._predicate, predicate)
        schema = self._table.schema
        names = {*self._columns, *(columns_of(wanted) if wanted is not None else ())}
        needed = [field for field in schema.fields if field.name in names]
        stored = [field for field in needed if field.name not in schema.partition_keys]
        for batch in read_file(self._table.core, split, stored, wanted):
            rows = completed(batch, needed, schema, split.partition)
            if wanted is not None:
                rows = rows.filter(mask(wanted, rows))
            if rows.num_rows:
                shown = rows.select(list(self._columns))
                yield shown if shown.schema.equals(self.schema) else shown.cast(self.schema)


def _every(_: bytes) -> bool:
    return True
