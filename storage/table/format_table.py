# SPDX-License-Identifier: Apache-2.0
"""Format tables: a directory of files of one format, with Hive's partition directories.

Source: SEMANTICS.md §L.2, and Apache Paimon where that is silent. There are no snapshots: what
lies in the directory is the table. Other engines read and write the same directory.

A write is staged outside of the table and then published file by file, each atomically; one that
fails removes what it published. An overwrite publishes the new files before it removes the old
ones: a concurrent reader may see both, and never fewer rows than one of the two states has.
"""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import (
    InternalError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.files.file_formats import open_sink
from storage.format.files.text_files import TEXT_FORMATS
from storage.format.metadata.layout import partition_path
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import decode_row
from storage.format.types.types import VALUE_KIND
from storage.io.file_io import FileIO
from storage.lsm.write_rules import accept_rows
from storage.options.options import TableOptions, option_value
from storage.table.core import TableCore
from storage.table.scan.format_files import (
    CODECS,
    ONLY_VALUE,
    FormatSplit,
    codec_of,
    completed,
    compression_of,
    data_files,
    directories,
    framed,
    partition_schema,
    read_file,
    stored_fields,
)
from storage.table.scan.predicate import (
    Predicate,
    as_predicate,
    both,
    columns_of,
    mask,
    require_known,
)
from storage.table.scan.row_scan import ArrowScan
from storage.table.write.drop_partitions import chosen_partitions
from storage.table.write.rows_by_bucket import partition_codes, split_codes

if TYPE_CHECKING:
    from storage.format.metadata.schema_changes import SchemaChange
    from storage.table.table import FileStoreTable

_BATCH_ROWS = 65_536
_SPOOLED_BYTES = 8 << 20
"""Files up to this size are kept in memory until they are published [bytes]."""


@dataclasses.dataclass(slots=True)
class _File:
    """A file that is being written, outside of the table."""

    spool: BinaryIO
    sink: Any
    size: Callable[[], int]
    rows: int = 0


class FormatFiles:
    """Staged new files: written elsewhere, then published. A context manager."""

    def __init__(self, table: TableCore) -> None:
        self._table = table
        self._open: dict[bytes, _File] = {}
        self._finished_files: list[tuple[bytes, BinaryIO]] = []
        self._stack = contextlib.ExitStack()
        self._file_rows = table.options.target_file_rows
        target = table.options.target_file_size
        # as files of append tables: FORMAT.md §7.2
        self._file_bytes = target if "target-file-size" in table.schema.options else 2 * target
        self._compression = compression_of(table.schema)
        self._uuid = table.ids.uuid()
        text = table.options.file_format in TEXT_FORMATS
        self._text = codec_of(table) if text else None
        self.rows = 0

    def __enter__(self) -> "FormatFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def partitions(self) -> set[bytes]:
        """Those that get rows (framed)."""
        return {*self._open, *(partition for partition, _ in self._finished_files)}

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        schema = self._table.schema
        rows = _accepted_rows(batch, schema, self._table.options)
        codes, framed, _ = partition_codes(rows, self._table)
        values = rows.select([field.name for field in stored_fields(schema)])
        for code, indices in split_codes(codes):
            part = values if indices is None else values.take(pa.array(indices))
            for start in range(0, part.num_rows, _BATCH_ROWS):
                self._append(framed[code], part.slice(start, _BATCH_ROWS))
        self.rows += rows.num_rows

    def require(self, replaced: Callable[[bytes], bool], partition: Mapping[str, Any]) -> None:
        """Check that all rows belong to the partitions that are replaced."""
        for key in self.partitions:
            if not replaced(key):
                raise InvalidRequestError(
                    "a new row does not belong to this partition",
                    hint="write only rows of the partition that is overwritten",
                    partition=self._directory(key),
                    overwritten=dict(partition),
                )

    def publish(self) -> None:
        """Make all files visible, one after the other; all or, where the store allows it, none."""
        for partition in list(self._open):
            self._finish(partition)
        file_io = self._table.file_io
        published: list[str] = []
        try:
            for number, (partition, spool) in enumerate(self._finished_files):
                path = f"{self._directory(partition)}/{self._name(number)}"
                spool.seek(0)
                _put(file_io, path, spool.read())
                published.append(path)
        except BaseException:
            file_io.delete_many(published)
            raise

    def _append(self, partition: bytes, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._open.get(partition) or self._new_file(partition)
            room = rows.num_rows if self._file_rows is None else self._file_rows - file.rows
            part, rows = rows.slice(0, room), rows.slice(room)
            if self._text is not None:
                file.sink.write(self._text.encode(part))
            else:
                file.sink.write(part.columns)
            file.rows += part.num_rows
            if file.size() >= self._file_bytes or file.rows == self._file_rows:
                self._finish(partition)

    def _new_file(self, partition: bytes) -> _File:
        table = self._table
        spool = cast("BinaryIO", tempfile.SpooledTemporaryFile(_SPOOLED_BYTES))  # noqa: SIM115
        self._stack.enter_context(spool)
        if self._text is None:
            sink: Any = open_sink(
                table.options.file_format,
                spool,
                stored_fields(table.schema),
                compression=self._compression,
                zstd_level=table.options.zstd_level,
                options=table.schema.options,
            )
            file = _File(spool, sink, lambda: sink.size)
        else:
            sink = spool
            if self._compression != "none":
                output = pa.PythonFile(_UnclosedFile(spool), "w")
                sink = pa.CompressedOutputStream(output, self._compression.replace("bzip2", "bz2"))
            sink.write(self._text.header)
            file = _File(spool, sink, spool.tell)
        self._open[partition] = file
        return file

    def _finish(self, partition: bytes) -> None:
        file = self._open.pop(partition)
        if file.sink is not file.spool:
            file.sink.close()
        self._finished_files.append((partition, file.spool))

    def _directory(self, partition: bytes) -> str:
        table = self._table
        fields = table.schema.partition_fields
        values = decode_row(partition, [field.type for field in fields]) if fields else ()
        path = partition_path(
            values,
            fields,
            default_name=table.options.partition_default_name,
            # by name unless it is asked for: other engines look for `dt=2024-01-31`
            legacy=table.schema.options.get("partition.legacy-name", "false") == "true",
        )
        if option_value(table.schema.options, ONLY_VALUE):
            path = "/".join(part.partition("=")[2] for part in path.split("/"))
        return f"{table.layout.root}/{path}" if path else table.layout.root

    def _name(self, number: int) -> str:
        table = self._table
        ending = "" if self._text is None else CODECS.get(self._compression, "")
        whole = f"{table.options.data_file_prefix}{self._uuid}-{number}.{table.options.file_format}"
        return f"{whole}.{ending}" if ending else whole


def _accepted_rows(
    batch: pa.RecordBatch, schema: TableSchema, options: TableOptions
) -> pa.RecordBatch:
    if VALUE_KIND not in batch.schema.names:
        kinds = pa.array(np.zeros(batch.num_rows, np.int8))
        batch = batch.append_column(VALUE_KIND, kinds)
    kinds, columns = accept_rows(batch, schema, options)
    if pc.any(pc.not_equal(kinds, 0)).as_py():
        raise InvalidRequestError(
            "a format table accepts only inserts", hint="overwrite the table or a partition"
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


class _UnclosedFile(io.RawIOBase):
    """A file that stays open when its writer is closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


def _put(file_io: FileIO, path: str, data: bytes) -> None:
    if not file_io.put_if_absent(path, data):
        raise InternalError("a new file has the name of an existing one", path=path)


_PORTS = ("layout", "file_io", "clock", "ids", "schemas")
"""Attributes that a table without snapshots shares with `FileStoreTable`."""


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
        from storage.table.table import FileStoreTable  # noqa: PLC0415 - circular import

        if name in _PORTS:
            return getattr(self._core, name)
        exists = name in FileStoreTable.__dataclass_fields__ or hasattr(FileStoreTable, name)
        if exists and not name.startswith("_"):
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
        """Rows are read and written in this schema."""
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

    def partition_names(self) -> list[str]:
        """The partitions that have a directory, as `dt=2024-01-31/hh=01`."""
        keys = self.schema.partition_keys
        partitions = []
        for directory in directories(self._core, None):
            names = directory.path.split("/")[-len(keys) :] if keys else []
            pairs = zip(keys, names, strict=True)
            parts = (name if "=" in name else f"{key}={name}" for key, name in pairs)
            partitions.append("/".join(parts))
        return partitions if keys else []

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
        listing = sorted(directories(self._core, None), key=lambda directory: directory.path)
        schema = partition_schema(self.schema)
        return pa.Table.from_batches([directory.partition for directory in listing], schema=schema)

    def append_rows(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Add rows, and count them.

        Args:
            batches: value columns, found by name.

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
        """Write rows in place of those of the table, or of partitions, and count them.

        Args:
            batches: value columns, found by name.
            partition: values of some partition columns: exactly the partitions that have them
                are replaced. None: of a partitioned table those that get rows, unless
                `dynamic-partition-overwrite` is false; else all.
            user: ignored.

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
            InvalidRequestError: no partition is selected, or a column is no partition key or cannot
                have the value.
        """
        if not partitions or not all(partitions):
            raise InvalidRequestError(
                "no partition is selected", hint="truncate the table to remove all rows"
            )
        matches = chosen_partitions(self._core, partitions)
        removed = self._remove(self._files(matches))
        for directory in directories(self._core, None):
            if matches(framed(self._core, directory.partition)):
                self._core.file_io.prune(directory.path)
        return removed

    def _files(self, keeps_partition: Callable[[bytes], bool]) -> list[str]:
        return [
            split.path
            for directory in directories(self._core, None)
            if keeps_partition(framed(self._core, directory.partition))
            for split in data_files(self._core, directory)
        ]

    def _remove(self, paths: Sequence[str]) -> int:
        removed = self._core.file_io.delete_many(paths)
        remaining = [path for path in paths if self._core.file_io.is_file(path)]
        if remaining:
            raise StorageUnavailableError(
                "files of a format table could not be removed",
                hint="repeat the statement",
                path=remaining[0],
            )
        return removed


class FormatScan(ArrowScan):
    """Rows of a format table that were chosen and not read yet. Picklable.

    Args:
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
                "`columns` must be a list of names, not a single string",
                hint=f'columns=["{columns}"]',
            )
        self._table = table
        self._columns = tuple(table.schema.field_names if columns is None else columns)
        self._predicate = predicate
        require_known((*self._columns, *columns_of(predicate)), table.schema.field_names)

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
        condition = both(self._predicate, predicate)
        splits = [
            split
            for directory in directories(self._table.core, condition)
            for split in data_files(self._table.core, directory)
        ]
        return sorted(splits, key=lambda split: split.path)

    def read(
        self, split: FormatSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file.

        Raises:
            CorruptDataError: the file is damaged, or does not match the columns.
            FileNotFoundError: it was removed.
        """
        condition = both(self._predicate, predicate)
        schema = self._table.schema
        names = {*self._columns, *columns_of(condition)}
        fields = [field for field in schema.fields if field.name in names]
        file_fields = [field for field in fields if field.name not in schema.partition_keys]
        for batch in read_file(self._table.core, split, file_fields, condition):
            rows = completed(batch, fields, schema, split.partition)
            if condition is not None:
                rows = rows.filter(mask(condition, rows))
            if rows.num_rows:
                output = rows.select(list(self._columns))
                yield output if output.schema.equals(self.schema) else output.cast(self.schema)


def _every(_: bytes) -> bool:
    return True
