# SPDX-License-Identifier: Apache-2.0
"""Data and changelog files: writing rows of a bucket as rolling files.

The entrance to data files: reading (`data_file_reader`), options (`data_file_options`) and the
layout (`key_value_layout`) are offered here too. How a file is encoded is in `file_formats`.
"""

import abc
import contextlib
import dataclasses
import functools
import itertools
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from storage.clock import Clock, IdSource
from storage.errors import CorruptDataError, InternalError
from storage.format.files.file_columns import Conversion, conversion
from storage.format.files.file_formats import format_of, open_sink, read_batches
from storage.format.files.parquet import RowGroupFilter
from storage.format.files.row_selection import RowSelection
from storage.format.index.builder import FileIndexBuilder, FileIndexSpec
from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    FileSource,
    SimpleStats,
)
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import encode_rows, frame
from storage.format.row.stats import KEY_STATS_MODE, NONE, Footer, StatsAccumulator, StatsMode
from storage.format.types.casts import CastError
from storage.format.types.types import (
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
    arrow_field,
    arrow_type,
    type_name,
)
from storage.io.file_io import FileIO
from storage.options.options import TableOptions

# Options that shape a data or changelog file, and its name.
#
# Names: FORMAT.md §1.3. Options: §7.2; those per level and of changelog files are resolved here.


DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"
INDEX_SUFFIX = ".index"
"""Of the file index of a data file, after the data file's whole name."""

_ROW_GROUP_BYTES = 32 << 20
_UNPACKED = 4
"""How much larger rows are in Arrow than in a zstd file; PEERS.md §4 measured 3.2 to 3.6."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataFileOptions:
    """How data files are written; defaults are Paimon's unless a reason is given.

    Attributes:
        target_file_size: a file is closed once it holds this much [bytes].
        target_file_rows: a file written for new rows is closed once it has so many.
        stats_mode: `metadata.stats-mode`, for value columns.
        field_stats_modes: mode per column, where it differs.
        stats_first_columns: only the first so many value columns get statistics, besides those
            with a mode of their own; all of them when negative.
        dense_stats: leave columns without statistics out of the metadata.
        row_group_bytes: Arrow bytes per row group. Paimon's 128 MB is Java's encoded size and
            would hold a bucket's whole write buffer; a quarter of that bounds what a reader
            must decode at once, and suits all readers.
        thin: leave out the key columns, which repeat value columns.
        index_threshold: largest file index that is put into the metadata [bytes].
        table_options: the options of the table, of which a format passes on its own.
    """

    target_file_size: int = 128 << 20
    target_file_rows: int | None = None
    file_format: str = "parquet"
    compression: str = "zstd"
    zstd_level: int = 1
    stats_mode: str = "truncate(16)"
    field_stats_modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stats_first_columns: int = -1
    dense_stats: bool = True
    suffix_includes_compression: bool = False
    row_group_bytes: int = _ROW_GROUP_BYTES
    prefix: str = DATA_PREFIX
    thin: bool = False
    indexes: tuple[FileIndexSpec, ...] = ()
    index_threshold: int = 500
    table_options: TableOptions | None = None

    @staticmethod
    def of(
        options: TableOptions, *, level: int | None = None, changelog: bool = False
    ) -> "DataFileOptions":
        """The file options from the options of a table.

        Args:
            options: of the table.
            level: of the files; None for those of append tables, which have none.
            changelog: for changelog files instead of data files.
        """
        chosen = _file_settings(options, level, changelog=changelog)
        target = options.target_file_size
        if "target-file-size" not in options.raw and level is None and not changelog:
            target = 2 * target  # append tables have larger files (FORMAT.md §7.2)
        row_group_bytes = _ROW_GROUP_BYTES
        if options.file_block_size is not None:
            row_group_bytes = max(1, options.file_block_size * _UNPACKED)
        return DataFileOptions(
            target_file_size=target,
            target_file_rows=None if changelog else options.target_file_rows,
            file_format=chosen[0].lower(),
            compression=chosen[1],
            zstd_level=options.zstd_level,
            stats_mode=chosen[2],
            field_stats_modes=options.field_stats_modes,
            stats_first_columns=options.stats_keep_first_columns,
            dense_stats=options.stats_dense_store,
            suffix_includes_compression=options.file_suffix_include_compression,
            # a file ends with a row group: for a small target, row groups must be small too
            row_group_bytes=min(row_group_bytes, _UNPACKED * target),
            prefix=options.changelog_file_prefix if changelog else options.data_file_prefix,
            thin=options.data_file_thin_mode,
            # changelogs are read from one end to the other
            indexes=() if changelog else FileIndexSpec.of(options),
            index_threshold=options.file_index_threshold,
            table_options=options,
        )


def _file_settings(
    options: TableOptions, level: int | None, *, changelog: bool
) -> tuple[str, str, str]:
    """Format, compression and statistics mode: of changelog files, of the level, or of all."""
    default = (options.file_format, options.file_compression, options.stats_mode)
    per_level = (
        options.file_format_per_level,
        options.file_compression_per_level,
        options.stats_mode_per_level,
    )
    of_changelog = (
        options.changelog_file_format,
        options.changelog_file_compression,
        options.changelog_file_stats_mode,
    )
    values = []
    for common, levels, override in zip(default, per_level, of_changelog, strict=True):
        at_level = common if level is None else levels.get(level, common)
        values.append(override if changelog and override is not None else at_level)
    return values[0], values[1], values[2]


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


# What a data file holds, and what its metadata says about the rows.
#
# Key-value files: `_KEY_` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, values; thin ones go without
# the keys. Files of append tables: the values. Source: FORMAT.md §4.4, §4.5, §7.1.


SYSTEM_FIELDS = (
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
class RowsInFile:
    """What the metadata of a file says about its rows; names as in `DataFileMeta`."""

    row_count: int
    min_sequence_number: int
    max_sequence_number: int
    delete_row_count: int
    value_stats: SimpleStats
    value_stats_cols: tuple[str, ...] | None
    min_key: bytes = EMPTY_ROW
    max_key: bytes = EMPTY_ROW
    key_stats: SimpleStats = EMPTY_STATS


class FileLayout(abc.ABC):
    """The columns of a file, and how rows become them.

    Attributes:
        schema: of the rows.
        options: of the file.
        fields: the physical columns.
        plain: columns that never get a dictionary.
    """

    def __init__(
        self, schema: TableSchema, options: DataFileOptions, fields: Sequence[DataField]
    ) -> None:
        self.schema = schema
        self.options = options
        self.fields = tuple(fields)
        self.plain: frozenset[str] = frozenset()
        self.names = list(schema.field_names)

    def ordered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are written, without the keys, found by name."""
        if batch.schema.names == self.names:
            return batch
        missing = set(self.names) - set(batch.schema.names)
        if missing:
            raise InternalError("a batch to be written lacks columns", columns=sorted(missing))
        return batch.select(self.names)

    def physical(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns `fields` of an ordered batch."""
        return list(batch.columns)

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The value columns of an ordered batch, in schema order."""
        return list(batch.columns)

    @abc.abstractmethod
    def facts(self) -> "FileFacts":
        """A collector for the facts of the next file."""


def key_value_schema(schema: TableSchema) -> pa.Schema:
    """The Arrow schema of a KeyValueBatch: sequence number, kind, then the value columns."""
    return pa.schema([arrow_field(field) for field in (*SYSTEM_FIELDS, *schema.fields)])


class KeyValueLayout(FileLayout):
    """Columns of a key-value file and their statistics."""

    def __init__(self, schema: TableSchema, options: DataFileOptions) -> None:
        keys = () if options.thin else tuple(_key_field(field) for field in schema.key_fields)
        super().__init__(schema, options, (*keys, *SYSTEM_FIELDS, *schema.fields))
        self.names = [*(field.name for field in SYSTEM_FIELDS), *schema.field_names]
        self.key_positions = [self.names.index(name) for name in schema.trimmed_primary_keys]
        self.key_types = [field.type for field in schema.key_fields]
        # The first column of a key and the sequence numbers hardly ever repeat in one file.
        trimmed = schema.trimmed_primary_keys
        first_keys = trimmed[:1] if len(trimmed) == 1 else ()
        self.plain = frozenset(
            (SEQUENCE_NUMBER, *(KEY_PREFIX + name for name in first_keys), *first_keys)
        )

    def physical(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The keys unless thin, then all columns of the batch."""
        columns = batch.columns
        return columns if self.options.thin else [*self.keys(columns), *columns]

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """See `FileLayout`."""
        return batch.columns[len(SYSTEM_FIELDS) :]

    def keys(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The key columns among those of an ordered batch."""
        return [columns[i] for i in self.key_positions]

    def facts(self) -> "FileFacts":
        """See `FileLayout`."""
        return _KeyValueFacts(self)

    def stats_modes(self) -> tuple[list[StatsMode], list[StatsMode]]:
        """Statistics modes of the key columns and of the value columns."""
        modes = dict(
            zip((field.name for field in self.fields), _modes(self, self.fields), strict=True)
        )
        names = self.schema.trimmed_primary_keys
        prefix = "" if self.options.thin else KEY_PREFIX
        return (
            [modes[prefix + name] for name in names],
            [modes[field.name] for field in self.schema.fields],
        )

    def key_of(self, batch: pa.RecordBatch, row: int) -> bytes:
        """The framed key of one row."""
        if not self.key_positions:
            return EMPTY_ROW
        columns = [batch.column(i).slice(row, 1) for i in self.key_positions]
        (encoded,) = encode_rows(columns, self.key_types)
        return frame(encoded.as_buffer().to_pybytes(), len(columns))


class RowLayout(FileLayout):
    """Columns of a file of an append table: those of the table."""

    def __init__(
        self, schema: TableSchema, options: DataFileOptions, first_sequence: int = 0
    ) -> None:
        super().__init__(schema, options, schema.fields)
        self.next_sequence = first_sequence

    def facts(self) -> "FileFacts":
        """See `FileLayout`; sequence numbers continue from file to file."""
        return _RowFacts(self)


class _KeyValueFacts:
    def __init__(self, layout: KeyValueLayout) -> None:
        key_modes, value_modes = layout.stats_modes()
        self._layout = layout
        kind = layout.options.file_format
        footer = kind == "parquet"
        self._key_stats = StatsAccumulator(layout.schema.key_fields, key_modes, kind, footer=footer)
        self._value_stats = StatsAccumulator(layout.schema.fields, value_modes, kind, footer=footer)
        self._rows = 0
        self._deletes = 0
        self._min_key = EMPTY_ROW
        self._last: pa.RecordBatch | None = None
        self._sequences: list[tuple[int, int]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        columns = batch.columns
        self._key_stats.add(self._layout.keys(columns))
        self._value_stats.add(columns[len(SYSTEM_FIELDS) :])
        sequences = columns[0].to_numpy()
        kinds = columns[1].to_numpy()
        self._sequences.append((int(sequences.min()), int(sequences.max())))
        self._deletes += sum(int(np.count_nonzero(kinds == kind)) for kind in _RETRACTING)
        if self._rows == 0:
            self._min_key = self._layout.key_of(batch, 0)
        self._last = batch.slice(batch.num_rows - 1)
        self._rows += batch.num_rows

    def result(self, footer: Footer) -> RowsInFile:
        self._key_stats.add_footer(footer)
        self._value_stats.add_footer(footer)
        stats, names = _stats_parts(self._value_stats, self._layout.options)
        has_keys = bool(self._layout.key_positions)
        return RowsInFile(
            row_count=self._rows,
            min_sequence_number=min(low for low, _ in self._sequences),
            max_sequence_number=max(high for _, high in self._sequences),
            delete_row_count=self._deletes,
            value_stats=stats,
            value_stats_cols=names,
            min_key=self._min_key,
            max_key=EMPTY_ROW if self._last is None else self._layout.key_of(self._last, 0),
            key_stats=self._key_stats.stats() if has_keys else EMPTY_STATS,
        )


class _RowFacts:
    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        modes, kind = _modes(layout, layout.fields), layout.options.file_format
        self._stats = StatsAccumulator(layout.schema.fields, modes, kind, footer=kind == "parquet")
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._stats.add(batch.columns)
        self._rows += batch.num_rows

    def result(self, footer: Footer) -> RowsInFile:
        self._stats.add_footer(footer)
        stats, names = _stats_parts(self._stats, self._layout.options)
        first = self._layout.next_sequence
        self._layout.next_sequence += self._rows
        return RowsInFile(
            row_count=self._rows,
            min_sequence_number=first,
            max_sequence_number=first + self._rows - 1,
            delete_row_count=0,
            value_stats=stats,
            value_stats_cols=names,
        )


def _key_field(field: DataField) -> DataField:
    return dataclasses.replace(
        field, id=KEY_FIELD_ID_START + field.id, name=KEY_PREFIX + field.name
    )


def _modes(layout: FileLayout, fields: Sequence[DataField]) -> list[StatsMode]:
    """The statistics mode of each physical column.

    The column's own mode comes first, then the one for keys and system columns, then the common
    one until enough columns have statistics. As in Paimon, Avro files have no special columns,
    and in thin files the key's value columns are the key columns.
    """
    options = layout.options
    avro = options.file_format == "avro"
    special = {KEY_PREFIX + name for name in layout.schema.trimmed_primary_keys}
    special.update(field.name for field in SYSTEM_FIELDS)
    if options.thin:
        special.update(layout.schema.trimmed_primary_keys)
    common = StatsMode.parse(options.stats_mode)
    modes, count = [], 0
    for field in fields:
        mode = options.field_stats_modes.get(field.name)
        if mode is not None:
            modes.append(StatsMode.parse(mode))
        elif field.name in special and not avro:
            modes.append(KEY_STATS_MODE)
            continue
        else:
            exhausted = 0 <= options.stats_first_columns <= count
            modes.append(NONE if exhausted else common)
        count += 1
    return modes


def _stats_parts(
    accumulator: StatsAccumulator, options: DataFileOptions
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    return accumulator.dense_stats() if options.dense_stats else (accumulator.stats(), None)


FileFacts = _KeyValueFacts | _RowFacts
"""Collects what the metadata says about the rows of one file: `add` each batch, then `result`,
given the bounds that the footer of the file holds.

Batches come in file order, with the columns of `FileLayout.ordered`, at least one, never empty.
"""


# Reading data and changelog files under any later schema of their table.
#
# Which columns of a file make the columns of the read schema; how a file is decoded is in
# `file_formats`, how a type follows a schema change in `column_mapping`. Key columns are never
# read: the value columns hold the same, also in thin files. Source: FORMAT.md §2.3, §7.1.


BATCH_ROWS = 65_536
"""Default bound of batches read. Large enough that per-batch costs vanish, small enough that a
merge of dozens of files stays in tens of megabytes."""


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
    selection: RowSelection | None = None,
    system: Sequence[DataField] = (),
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Read a file of an append table, or only the value columns of a key-value file.

    Args:
        file_io: the store.
        path: full path of the file.
        meta: its metadata.
        file_schema: the schema it was written with (`meta.schema_id`).
        read_schema: the schema to return the rows in.
        columns: value columns of `read_schema` to read, None for all. A merge includes
            the key columns.
        batch_rows: largest batch [rows].
        keep_row_group: leaves out row groups by the ranges of the file's columns, which have the
            names of `file_schema`. Sound for conditions on the key only: an older row of a key
            must not survive because a newer one was skipped.
        selection: which rows to read by their position in the file, None for all.
        system: columns besides those of the schema, returned first.
        dictionaries: columns that may be returned as dictionaries, where the file has them so.

    Yields:
        Batches in file order, the requested columns in schema order; without any, batches
        without columns that still carry their number of rows.

    Raises:
        CorruptDataError: damaged file, one without a column of its schema, one that is shorter
            than its metadata says or, where all of it is read, has another number of rows, or a
            value that cannot become one of the column's present type.
        UnsupportedFeatureError: an unknown format, or a type change that cannot be followed.
    """
    mapping = _Mapping(file_schema, read_schema, columns, meta, path)
    fields = [*(arrow_field(field) for field in system), *mapping.fields]
    rows = 0
    for batch in read_batches(
        format_of(path),
        file_io,
        path,
        [*system, *mapping.source_columns],
        batch_rows=batch_rows,
        keep_row_group=keep_row_group,
        selection=selection,
        file_size=meta.file_size,
        options=file_schema.options,
        dictionaries=mapping.unchanged(dictionaries),
    ):
        rows += batch.num_rows
        if not fields:
            yield batch
            continue
        first = [_system_column(batch, field, path) for field in system]
        arrays = [*first, *mapping.apply(batch)]
        layout = [field.with_type(array.type) for field, array in zip(fields, arrays, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(layout))
    if rows != meta.row_count and keep_row_group is None and selection is None:
        raise CorruptDataError(
            "a data file's row count differs from its manifest",
            path=path,
            expected=meta.row_count,
            found=rows,
        )


read_key_values = functools.partial(read_rows, system=SYSTEM_FIELDS)
"""Read a data or changelog file of a primary-key table, as KeyValueBatches: `_SEQUENCE_NUMBER`,
`_VALUE_KIND`, then the requested columns in schema order; otherwise `read_rows`."""


class _Mapping:
    """Which columns of a file make the columns of a read schema."""

    def __init__(
        self,
        file_schema: TableSchema,
        read_schema: TableSchema,
        columns: Sequence[str] | None,
        meta: DataFileMeta,
        path: str,
    ) -> None:
        by_id = {
            field.id: field
            for field in file_schema.fields
            if meta.write_cols is None or field.name in meta.write_cols
        }
        names = set(read_schema.field_names if columns is None else columns)
        targets = [field for field in read_schema.fields if field.name in names]
        self.fields = [arrow_field(field) for field in targets]
        self._path = path
        self._steps = [_step(by_id.get(target.id), target) for target in targets]
        self.source_columns = [step.source for step in self._steps if step.source is not None]

    def apply(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the read schema; null where the file's schema has none."""
        positions = {name: i for i, name in enumerate(batch.schema.names)}
        return [self._column(batch, step, positions) for step in self._steps]

    def unchanged(self, names: Collection[str]) -> set[str]:
        """The file's names of those columns that are read as they are stored."""
        return {
            step.source.name
            for step in self._steps
            if step.source is not None and step.convert is None and step.target.name in names
        }

    def _column(self, batch: pa.RecordBatch, step: "_Step", positions: dict[str, int]) -> pa.Array:
        if step.source is None:
            return pa.nulls(batch.num_rows, step.type)
        position = positions.get(step.source.name)
        if position is None:
            raise CorruptDataError(
                "a data file lacks a column of its schema",
                column=step.source.name,
                path=self._path,
            )
        column = batch.column(position)
        if step.convert is None:
            return column
        try:
            return step.convert(column)
        except CastError as error:
            raise CorruptDataError(
                "a stored value cannot be cast to the column's current type",
                detail=str(error),
                hint="change the column back to its old type, or correct the value under that type",
                column=step.target.name,
                value=error.value,
                source_columns=_type_text(step.source),
                wanted=_type_text(step.target),
                path=self._path,
            ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """How one column of the read schema is produced; no source means null."""

    source: DataField | None
    target: DataField
    type: pa.DataType
    convert: Conversion | None


def _step(source: DataField | None, target: DataField) -> _Step:
    type_ = arrow_type(target.type)
    if source is None:
        return _Step(None, target, type_, None)
    return _Step(source, target, type_, conversion(source.type, target.type, target.name))


def _type_text(field: DataField | None) -> str:
    return "" if field is None else type_name(field.type)


def _system_column(batch: pa.RecordBatch, field: DataField, path: str) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        raise CorruptDataError("a data file has no system column", column=field.name, path=path)
    return batch.column(position)


_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class RollingFiles:
    """Writes rows of one bucket as one or more files.

    Protocol:
        1. `write` batches in file order, across calls too.
        2. `close` gives the metadata of every file, which is then durable; or
        3. `abort` removes everything written; also after `close`.

    Rows are collected until they fill a row group, and a file ends with the row group that takes
    it over the target size. Nothing is created before the first row.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        layout: FileLayout,
        *,
        names: DataFileNames,
        clock: Clock,
        level: int,
        source: FileSource,
    ) -> None:
        self._file_io = file_io
        self._directory = directory
        self._layout = layout
        self._options = layout.options
        self._names = names
        self._clock = clock
        self._level = level
        self._source = source
        limit = self._options.target_file_rows if source is FileSource.APPEND else None
        self._most_rows = sys.maxsize if limit is None else max(1, limit)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._finished_files: list[DataFileMeta] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        The batch has at least the columns of the layout, found by name.

        Raises:
            InternalError: a column is missing or does not fit.
            UnsupportedFeatureError: the format cannot hold a column.
            StorageUnavailableError: the store failed.
        """
        if batch.num_rows == 0:
            return
        self._pending.append(self._layout.ordered(batch))
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._options.row_group_bytes:
            self._write_pending()

    def close(self) -> tuple[DataFileMeta, ...]:
        """Finish the last file; all files in the order of the rows."""
        self._write_pending()
        self._finish_file()
        return tuple(self._finished_files)

    def abort(self) -> None:
        """Remove every file of this writer; one that cannot be removed is left as an orphan."""
        self._pending = []
        if self._open is not None:
            self._open.discard()
            self._open = None
        names = (
            name for meta in self._finished_files for name in (meta.file_name, *meta.extra_files)
        )
        self._file_io.delete_many(f"{self._directory}/{name}" for name in names)
        self._finished_files = []

    def _write_pending(self) -> None:
        """Write the collected rows as row groups of about equal size."""
        if not self._pending:
            return
        batch = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        groups = max(1, round(self._pending_bytes / self._options.row_group_bytes))
        self._pending, self._pending_bytes = [], 0
        rows = -(-batch.num_rows // groups)
        start = 0
        while start < batch.num_rows:
            if self._open is None:
                self._open = self._new_file()
            group = batch.slice(start, min(rows, self._most_rows - self._open.rows))
            self._open.write(group)
            start += group.num_rows
            full = self._open.rows >= self._most_rows
            if full or self._open.size >= self._options.target_file_size:
                self._finish_file()

    def _new_file(self) -> "_OpenFile":
        name = self._names.next(self._options.prefix, self._options)
        return _OpenFile(self._file_io, self._directory, name, self._layout)

    def _finish_file(self) -> None:
        if self._open is None:
            return
        opened, self._open = self._open, None
        self._finished_files.append(
            opened.finish(
                level=self._level,
                source=self._source,
                creation_time_ms=self._clock.local_wall_ms(),
            )
        )


class _OpenFile:
    """One file being written; gathers what its metadata needs."""

    def __init__(self, file_io: FileIO, directory: str, name: str, layout: FileLayout) -> None:
        self._file_io = file_io
        self._directory = directory
        self._name = name
        self._layout = layout
        self._facts = layout.facts()
        self._rows = 0
        self._index = _index_builder(layout)
        self._context = file_io.open_output(f"{directory}/{name}")
        self._output = self._context.__enter__()
        options = layout.options
        table_options = options.table_options
        try:
            self._sink = open_sink(
                options.file_format,
                self._output,
                layout.fields,
                compression=options.compression,
                zstd_level=options.zstd_level,
                plain=layout.plain,
                options=_NO_OPTIONS if table_options is None else table_options.raw,
            )
        except BaseException:
            self.discard()
            raise

    @property
    def size(self) -> int:
        return self._sink.size

    @property
    def rows(self) -> int:
        return self._rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one row group; the batch has the columns of `FileLayout.ordered`."""
        self._sink.write(self._layout.physical(batch))
        self._facts.add(batch)
        self._rows += batch.num_rows
        if self._index is not None:
            self._index.add(self._layout.values(batch))

    def finish(self, *, level: int, source: FileSource, creation_time_ms: int) -> DataFileMeta:
        """Make the file durable and describe it."""
        embedded, beside = None, None
        try:
            self._sink.close()
            size = self._sink.size
            facts = self._facts.result(self._sink.footer)
            if self._index is not None:
                embedded, beside = self._place_index(self._index.finish())
        except BaseException:
            self.discard()
            raise
        try:
            self._context.__exit__(None, None, None)
        except BaseException:
            self._remove(beside)
            raise
        return DataFileMeta(
            file_name=self._name,
            file_size=size,
            row_count=facts.row_count,
            min_key=facts.min_key,
            max_key=facts.max_key,
            key_stats=facts.key_stats,
            value_stats=facts.value_stats,
            min_sequence_number=facts.min_sequence_number,
            max_sequence_number=facts.max_sequence_number,
            schema_id=self._layout.schema.id,
            level=level,
            extra_files=() if beside is None else (beside,),
            creation_time_ms=creation_time_ms,
            embedded_index=embedded,
            delete_row_count=facts.delete_row_count,
            file_source=source.value,
            value_stats_cols=facts.value_stats_cols,
        )

    def _place_index(self, container: bytes) -> tuple[bytes | None, str | None]:
        """Where the file index goes: into the metadata, or into a file of its own."""
        if len(container) <= self._layout.options.index_threshold:
            return container, None
        name = self._name + INDEX_SUFFIX
        self._file_io.write_bytes(f"{self._directory}/{name}", container)
        return None, name

    def _remove(self, name: str | None) -> None:
        if name is not None:
            self._file_io.delete_many([f"{self._directory}/{name}"])

    def discard(self) -> None:
        """Leave the output as after a failure, which removes the file."""
        with contextlib.suppress(_DiscardedError):
            error = _DiscardedError("the file is no longer needed")
            self._context.__exit__(_DiscardedError, error, None)


def _index_builder(layout: FileLayout) -> FileIndexBuilder | None:
    specs = layout.options.indexes
    return FileIndexBuilder(layout.schema.fields, specs) if specs else None


class _DiscardedError(Exception):
    """Leaves an output context so that the file is removed."""


class KeyValueFileWriter(RollingFiles):
    """Writes sorted rows of one bucket of a primary-key table; protocol of `RollingFiles`.

    `write` takes KeyValueBatches (see `key_value_schema`) in key order, across calls too; keys
    unique unless it is a changelog.

    Args:
        id_source: gives the UUID of the names unless `names` is given.
        names: shared by the data and changelog writers of one bucket.
        prefix: of the file names; that of `options` unless given.
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
        options = options or DataFileOptions()
        if prefix is not None:
            options = dataclasses.replace(options, prefix=prefix)
        super().__init__(
            file_io,
            directory,
            KeyValueLayout(schema, options),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=level,
            source=source,
        )


class RowFileWriter(RollingFiles):
    """Writes rows of one bucket of an append table; protocol of `RollingFiles`.

    `write` takes batches with the columns of the table, all rows inserts.

    Args:
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        names: shared by the writers of one bucket.
        first_sequence: sequence number of the first row; each further row has the next one.
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
        first_sequence: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        super().__init__(
            file_io,
            directory,
            RowLayout(schema, options or DataFileOptions(), first_sequence),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=0,
            source=source,
        )
