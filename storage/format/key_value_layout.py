# SPDX-License-Identifier: Apache-2.0
"""What a key-value file holds, which options shape it, and what it is called.

Columns: `_KEY_` columns, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, values (FORMAT.md §7.1). Names: §1.3.
"""

import dataclasses
import itertools
import threading
from collections.abc import Mapping

import pyarrow as pa

from storage.clock import IdSource
from storage.errors import InternalError
from storage.format.arrow_types import arrow_field
from storage.format.binary_row import encode_rows, frame
from storage.format.file_meta import EMPTY_ROW
from storage.format.parquet import parquet_field
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
    TypeRoot,
)
from storage.options import TableOptions

__all__ = [
    "CHANGELOG_PREFIX",
    "DATA_PREFIX",
    "SYSTEM_FIELDS",
    "DataFileNames",
    "DataFileOptions",
    "KeyValueLayout",
    "data_file_name",
    "key_value_schema",
]

DATA_PREFIX = "data-"
CHANGELOG_PREFIX = "changelog-"

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
            dense_stats=options.stats_dense_store,
            suffix_includes_compression=options.file_suffix_include_compression,
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
    return pa.schema([arrow_field(field) for field in (*SYSTEM_FIELDS, *schema.fields)])


class KeyValueLayout:
    """Columns of a key-value file and how statistics are taken of them."""

    def __init__(self, schema: TableSchema, options: DataFileOptions) -> None:
        self.schema = schema
        self.options = options
        self.names = [*(field.name for field in SYSTEM_FIELDS), *schema.field_names]
        self.key_positions = [self.names.index(name) for name in schema.trimmed_primary_keys]
        self.key_types = [field.type for field in schema.key_fields]
        keys = [
            dataclasses.replace(
                field, id=KEY_FIELD_ID_START + field.id, name=KEY_PREFIX + field.name
            )
            for field in schema.key_fields
        ]
        fields = (*keys, *SYSTEM_FIELDS, *schema.fields)
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
