# SPDX-License-Identifier: Apache-2.0
"""Data and changelog files: writing sorted rows as rolling files, reading them back.

Owns what a file holds (`_KEY_` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, values; FORMAT.md §7.1),
what is recorded about it (`DataFileMeta`) and how it is named (§1.3). How Parquet encodes it is in
`parquet`, how old files look under a newer schema in `column_mapping`.
"""

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.clock import Clock, IdSource
from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.arrow_types import arrow_field, arrow_type
from storage.format.binary_row import encode_rows, frame
from storage.format.column_mapping import Conversion, conversion
from storage.format.file_meta import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    FileSource,
)
from storage.format.parquet import ParquetSink, RowGroupFilter, parquet_field, read_batches
from storage.format.schema import TableSchema
from storage.format.stats import KEY_STATS_MODE, StatsAccumulator, StatsMode
from storage.format.types import (
    KEY_FIELD_ID_START,
    KEY_PREFIX,
    SEQUENCE_NUMBER,
    SEQUENCE_NUMBER_FIELD_ID,
    VALUE_KIND,
    VALUE_KIND_FIELD_ID,
    AtomicType,
    DataField,
    RowKind,
    TypeRoot,
)
from storage.io.file_io import FileIO
from storage.options import TableOptions

__all__ = [
    "BATCH_ROWS",
    "CHANGELOG_PREFIX",
    "DATA_PREFIX",
    "DataFileNames",
    "DataFileOptions",
    "KeyValueFileWriter",
    "data_file_name",
    "key_value_schema",
    "read_key_values",
    "read_rows",
]

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"

BATCH_ROWS = 65_536
"""Default bound of batches read. Large enough that per-batch costs vanish, small enough that a
merge of dozens of files stays in tens of megabytes."""

_SYSTEM_FIELDS = (
    DataField(
        id=SEQUENCE_NUMBER_FIELD_ID,
        name=SEQUENCE_NUMBER,
        type=AtomicType(TypeRoot.BIGINT, nullable=False),
    ),
    DataField(
        id=VALUE_KIND_FIELD_ID, name=VALUE_KIND, type=AtomicType(TypeRoot.TINYINT, nullable=False)
    ),
)
_RETRACTING = tuple(kind.value for kind in RowKind if kind.retracts)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataFileOptions:
    """How data files are written; defaults are Paimon's unless a reason is given.

    Attributes:
        target_file_size: a file is closed once it holds this much [bytes].
        file_format: only `parquet` can be written.
        compression: `zstd`, `snappy`, `lz4`, `gzip` or `none`.
        zstd_level: level for zstd.
        stats_mode: `metadata.stats-mode`, for value columns.
        field_stats_modes: mode per column, where it differs.
        dense_stats: leave columns without statistics out of the metadata.
        suffix_includes_compression: `file.suffix.include.compression`.
        row_group_bytes: Arrow bytes per row group. Paimon's 128 MB is Java's encoded size and
            would hold a bucket's whole write buffer; a quarter of that bounds what a reader
            must decode at once, and no reader minds.
        data_prefix: `data-file.prefix`.
    """

    target_file_size: int = 128 << 20
    file_format: str = "parquet"
    compression: str = "zstd"
    zstd_level: int = 1
    stats_mode: str = "truncate(16)"
    field_stats_modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dense_stats: bool = True
    suffix_includes_compression: bool = False
    row_group_bytes: int = 32 << 20
    data_prefix: str = DATA_PREFIX

    @staticmethod
    def of(options: TableOptions) -> "DataFileOptions":
        """What the options of a table say."""
        return DataFileOptions(
            target_file_size=options.target_file_size,
            file_format=options.file_format,
            compression=options.file_compression,
            zstd_level=options.zstd_level,
            stats_mode=options.stats_mode,
            field_stats_modes=options.field_stats_modes,
            data_prefix=options.data_file_prefix,
        )


def data_file_name(prefix: str, uuid: str, number: int, options: DataFileOptions) -> str:
    """`<prefix><uuid>-<n>.<format>`, with the codec before the format if so configured."""
    codec = f".{options.compression}" if options.suffix_includes_compression else ""
    return f"{prefix}{uuid}-{number}{codec}.{options.file_format}"


class DataFileNames:
    """Names of all files one bucket writer makes: one UUID, one counter for data and changelog.

    Thread-safe. Not to be shared between processes.
    """

    def __init__(self, id_source: IdSource) -> None:
        self._uuid = id_source.uuid()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def next(self, prefix: str, options: DataFileOptions) -> str:
        """The next unused name."""
        with self._lock:
            number = next(self._numbers)
        return data_file_name(prefix, self._uuid, number, options)


def key_value_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a KeyValueBatch: sequence number, kind, then the value columns."""
    return pa.schema([arrow_field(field) for field in (*_SYSTEM_FIELDS, *schema.fields)])


class KeyValueFileWriter:
    """Writes sorted rows of one bucket as one or more files.

    Protocol:
        1. `write` batches in key order, across calls too; keys unique unless it is a changelog.
        2. `close` gives the metadata of every file, which is then durable; or
        3. `abort` removes everything written; also after `close`.

    Rows are collected until they fill a row group, and a file ends with the row group that takes
    it over the target size. Nothing is created before the first row.

    Args:
        file_io: the store.
        directory: bucket directory.
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        clock: gives the creation time.
        options: see `DataFileOptions`.
        names: shared by the data and changelog writers of one bucket.
        prefix: of the file names; that of data files unless given.
        level: recorded in the metadata.
        source: recorded in the metadata.

    Raises:
        UnsupportedFeatureError: the format cannot be written.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        schema: TableSchema,
        *,
        id_source: IdSource,
        clock: Clock,
        options: DataFileOptions | None = None,
        names: DataFileNames | None = None,
        prefix: str | None = None,
        level: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        self._options = options or DataFileOptions()
        if self._options.file_format != "parquet":
            raise UnsupportedFeatureError(
                "data files of this format cannot be written",
                hint="set `file.format` to parquet",
                format=self._options.file_format,
            )
        self._file_io = file_io
        self._directory = directory
        self._clock = clock
        self._names = names or DataFileNames(id_source)
        self._prefix = prefix or self._options.data_prefix
        self._layout = _FileLayout(schema, self._options)
        self._level = level
        self._source = source
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._finished: list[DataFileMeta] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Args:
            batch: KeyValueBatch, see `key_value_schema`; columns are found by name.
        """
        if batch.num_rows == 0:
            return
        self._pending.append(self._layout.ordered(batch))
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._options.row_group_bytes:
            self._write_pending()

    def close(self) -> tuple[DataFileMeta, ...]:
        """Finish the last file.

        Returns:
            All files in key order; none when there were no rows.
        """
        self._write_pending()
        self._finish_file()
        return tuple(self._finished)

    def abort(self) -> None:
        """Remove every file of this writer."""
        self._pending = []
        if self._open is not None:
            self._open.discard()
            self._open = None
        for meta in self._finished:
            self._file_io.delete(f"{self._directory}/{meta.file_name}")
        self._finished = []

    def _write_pending(self) -> None:
        """Write the collected rows as row groups of about equal size."""
        if not self._pending:
            return
        batch = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        groups = max(1, round(self._pending_bytes / self._options.row_group_bytes))
        self._pending, self._pending_bytes = [], 0
        rows = -(-batch.num_rows // groups)
        for start in range(0, batch.num_rows, rows):
            if self._open is None:
                self._open = self._new_file()
            self._open.write(batch.slice(start, rows))
            if self._open.size >= self._options.target_file_size:
                self._finish_file()

    def _new_file(self) -> "_OpenFile":
        name = self._names.next(self._prefix, self._options)
        return _OpenFile(self._file_io, f"{self._directory}/{name}", name, self._layout)

    def _finish_file(self) -> None:
        if self._open is None:
            return
        meta = self._open.finish()
        self._open = None
        self._finished.append(
            dataclasses.replace(
                meta,
                level=self._level,
                file_source=self._source.value,
                creation_time_ms=self._clock.local_wall_ms(),
            )
        )


class _FileLayout:
    """Columns of a key-value file and how statistics are taken of them."""

    def __init__(self, schema: TableSchema, options: DataFileOptions) -> None:
        self.schema = schema
        self.options = options
        self.names = [*(field.name for field in _SYSTEM_FIELDS), *schema.field_names]
        self.key_positions = [self.names.index(name) for name in schema.trimmed_primary_keys]
        self.key_types = [field.type for field in schema.key_fields]
        keys = [
            dataclasses.replace(
                field, id=KEY_FIELD_ID_START + field.id, name=KEY_PREFIX + field.name
            )
            for field in schema.key_fields
        ]
        fields = (*keys, *_SYSTEM_FIELDS, *schema.fields)
        self.file_schema = pa.schema([parquet_field(field) for field in fields])
        self.batch_schema = key_value_schema(schema)
        # The first column of a key and the sequence numbers hardly ever repeat in one file.
        first_keys = schema.trimmed_primary_keys[:1] if len(keys) == 1 else ()
        self.plain = frozenset(
            (SEQUENCE_NUMBER, *(KEY_PREFIX + name for name in first_keys), *first_keys)
        )

    def ordered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a KeyValueBatch in file order, without the keys."""
        if batch.schema.names == self.names:
            return batch
        missing = set(self.names) - set(batch.schema.names)
        if missing:
            raise InternalError("a key-value batch lacks columns", columns=sorted(missing))
        return batch.select(self.names)

    def key_stats(self) -> StatsAccumulator:
        """A fresh accumulator for the key columns."""
        modes = [self._mode(field.name, KEY_STATS_MODE) for field in self.schema.key_fields]
        return StatsAccumulator(self.schema.key_fields, modes)

    def value_stats(self) -> StatsAccumulator:
        """A fresh accumulator for the value columns."""
        default = StatsMode.parse(self.options.stats_mode)
        modes = [self._mode(field.name, default) for field in self.schema.fields]
        return StatsAccumulator(self.schema.fields, modes)

    def _mode(self, name: str, default: StatsMode) -> StatsMode:
        text = self.options.field_stats_modes.get(name)
        return default if text is None else StatsMode.parse(text)

    def key_of(self, batch: pa.RecordBatch, row: int) -> bytes:
        """The framed key of one row."""
        if not self.key_positions:
            return EMPTY_ROW
        columns = [batch.column(i).slice(row, 1) for i in self.key_positions]
        (encoded,) = encode_rows(columns, self.key_types)
        return frame(encoded.as_buffer().to_pybytes(), len(columns))


class _OpenFile:
    """One file being written; gathers what its metadata needs."""

    def __init__(self, file_io: FileIO, path: str, name: str, layout: _FileLayout) -> None:
        self._layout = layout
        self._name = name
        self._context = file_io.open_output(path)
        self._output = self._context.__enter__()
        self._sink = ParquetSink(
            self._output,
            layout.file_schema,
            compression=layout.options.compression,
            zstd_level=layout.options.zstd_level,
            plain=layout.plain,
        )
        self._rows = 0
        self._deletes = 0
        self._min_key = self._max_key = EMPTY_ROW
        self._sequences: list[tuple[int, int]] = []
        self._key_stats = layout.key_stats()
        self._value_stats = layout.value_stats()

    @property
    def size(self) -> int:
        return self._sink.size

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one row group; the batch has the columns of `_FileLayout.ordered`."""
        columns = batch.columns
        keys = [columns[i] for i in self._layout.key_positions]
        self._sink.write([*keys, *columns])
        self._key_stats.add(keys)
        self._value_stats.add(columns[len(_SYSTEM_FIELDS) :])
        sequences = columns[0].to_numpy()
        kinds = columns[1].to_numpy()
        self._sequences.append((int(sequences.min()), int(sequences.max())))
        self._deletes += int(np.isin(kinds, _RETRACTING).sum())
        if self._rows == 0:
            self._min_key = self._layout.key_of(batch, 0)
        self._max_key = self._layout.key_of(batch, batch.num_rows - 1)
        self._rows += batch.num_rows

    def finish(self) -> DataFileMeta:
        """Make the file durable and describe it."""
        try:
            self._sink.close()
            size = self._sink.size
        except BaseException:
            self.discard()
            raise
        self._context.__exit__(None, None, None)
        value_stats, value_names = self._value_stats_parts()
        return DataFileMeta(
            file_name=self._name,
            file_size=size,
            row_count=self._rows,
            min_key=self._min_key,
            max_key=self._max_key,
            key_stats=self._key_stats.stats() if self._layout.key_positions else EMPTY_STATS,
            value_stats=value_stats,
            min_sequence_number=min(low for low, _ in self._sequences),
            max_sequence_number=max(high for _, high in self._sequences),
            schema_id=self._layout.schema.id,
            level=0,
            delete_row_count=self._deletes,
            value_stats_cols=value_names,
        )

    def discard(self) -> None:
        """Leave the output as after a failure, which removes the file."""
        with contextlib.suppress(_DiscardedError):
            error = _DiscardedError("the file is not wanted any more")
            self._context.__exit__(_DiscardedError, error, None)

    def _value_stats_parts(self) -> tuple[Any, tuple[str, ...] | None]:
        if self._layout.options.dense_stats:
            return self._value_stats.dense_stats()
        return self._value_stats.stats(), None


class _DiscardedError(Exception):
    """Leaves an output context so that the file is removed."""


def read_key_values(
    file_io: FileIO,
    path: str,
    meta: DataFileMeta,
    file_schema: TableSchema,
    read_schema: TableSchema,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    keep_row_group: RowGroupFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a data or changelog file of a primary-key table.

    Args:
        file_io: the store.
        path: full path of the file.
        meta: its metadata.
        file_schema: the schema it was written with (`meta.schema_id`).
        read_schema: the schema to give the rows in.
        columns: value columns of `read_schema` to read, None for all. Whoever merges includes
            the key columns.
        batch_rows: largest batch [rows].
        keep_row_group: leaves out row groups by the ranges of the file's columns, which have the
            names of `file_schema`. Sound for conditions on the key only: an older row of a key
            must not survive because a newer one was skipped.

    Yields:
        KeyValueBatch in file order: `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the asked columns in
        schema order.

    Raises:
        CorruptDataError: damaged file, or one without system columns.
        UnsupportedFeatureError: another format than Parquet, or a type change that cannot be
            followed.
    """
    mapping = _Mapping(file_schema, read_schema, columns, meta)
    names = [field.name for field in _SYSTEM_FIELDS]
    for batch in _batches(file_io, path, [*names, *mapping.names], batch_rows, keep_row_group):
        system = [_system_column(batch, field, path) for field in _SYSTEM_FIELDS]
        schema = pa.schema([*(arrow_field(field) for field in _SYSTEM_FIELDS), *mapping.fields])
        yield pa.RecordBatch.from_arrays([*system, *mapping.apply(batch)], schema=schema)


def read_rows(
    file_io: FileIO,
    path: str,
    meta: DataFileMeta,
    file_schema: TableSchema,
    read_schema: TableSchema,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    keep_row_group: RowGroupFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read a file of an append table, or only the value columns of a key-value file.

    Arguments and errors as in `read_key_values`.

    Yields:
        Value batches in file order, the asked columns in schema order. With no column asked,
        batches without columns that still carry their number of rows.
    """
    mapping = _Mapping(file_schema, read_schema, columns, meta)
    schema = pa.schema(mapping.fields)
    for batch in _batches(file_io, path, mapping.names, batch_rows, keep_row_group):
        if mapping.fields:
            yield pa.RecordBatch.from_arrays(mapping.apply(batch), schema=schema)
        else:
            yield batch


class _Mapping:
    """Which columns of a file make the columns of a read schema."""

    def __init__(
        self,
        file_schema: TableSchema,
        read_schema: TableSchema,
        columns: Sequence[str] | None,
        meta: DataFileMeta,
    ) -> None:
        stored = {
            field.id: field
            for field in file_schema.fields
            if meta.write_cols is None or field.name in meta.write_cols
        }
        wanted = set(read_schema.field_names if columns is None else columns)
        targets = [field for field in read_schema.fields if field.name in wanted]
        self.fields = [arrow_field(field) for field in targets]
        self._steps: list[tuple[str | None, Conversion, pa.DataType]] = []
        for target in targets:
            source = stored.get(target.id)
            type_ = arrow_type(target.type)
            if source is None:
                self._steps.append((None, lambda column: column, type_))
            else:
                step = conversion(source.type, target.type, target.name)
                self._steps.append((source.name, step, type_))
        self.names = [name for name, _, _ in self._steps if name is not None]

    def apply(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the read schema; null where the file has none."""
        positions = {name: i for i, name in enumerate(batch.schema.names)}
        return [
            pa.nulls(batch.num_rows, type_)
            if name is None or name not in positions
            else step(batch.column(positions[name]))
            for name, step, type_ in self._steps
        ]


def _batches(
    file_io: FileIO,
    path: str,
    names: Sequence[str],
    batch_rows: int,
    keep_row_group: RowGroupFilter | None,
) -> Iterator[pa.RecordBatch]:
    extension = path.rpartition(".")[2]
    if extension != "parquet":
        raise UnsupportedFeatureError(
            "data files of this format cannot be read yet",
            hint="rewrite the table with `file.format` = parquet",
            path=path,
            format=extension,
        )
    return read_batches(file_io, path, names, batch_rows=batch_rows, keep_row_group=keep_row_group)


def _system_column(batch: pa.RecordBatch, field: DataField, path: str) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        raise InternalError("a data file has no system column", column=field.name, path=path)
    return batch.column(position).cast(arrow_type(field.type))
