# SPDX-License-Identifier: Apache-2.0
"""What a data file holds, and what its metadata says about the rows.

Key-value files: `_KEY_` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, values; thin ones go without
the keys. Files of append tables: the values. Source: FORMAT.md §4.4, §4.5, §7.1.
"""

import abc
import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InternalError
from storage.format.files.data_file_options import DataFileOptions
from storage.format.metadata.file_meta import EMPTY_ROW, EMPTY_STATS, SimpleStats
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import encode_rows, frame
from storage.format.row.stats import KEY_STATS_MODE, NONE, Footer, StatsAccumulator, StatsMode
from storage.format.types.arrow_types import arrow_field
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
)

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
        self._deletes += int(np.isin(kinds, _RETRACTING).sum())
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
