# SPDX-License-Identifier: Apache-2.0
"""Reading data and changelog files under any later schema of their table.

Which columns of a file make the columns of the read schema; how Parquet is decoded is in
`parquet`, how a type follows a schema change in `column_mapping`. Source: FORMAT.md §2.3, §7.1.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.arrow_types import arrow_field, arrow_type
from storage.format.column_mapping import Conversion, conversion
from storage.format.file_meta import DataFileMeta
from storage.format.key_value_layout import SYSTEM_FIELDS
from storage.format.parquet import RowGroupFilter, read_batches
from storage.format.schema import TableSchema
from storage.format.types import DataField
from storage.io.file_io import FileIO

__all__ = ["BATCH_ROWS", "read_key_values", "read_rows"]

BATCH_ROWS = 65_536
"""Default bound of batches read. Large enough that per-batch costs vanish, small enough that a
merge of dozens of files stays in tens of megabytes."""


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
    names = [field.name for field in SYSTEM_FIELDS]
    for batch in _batches(file_io, path, [*names, *mapping.names], batch_rows, keep_row_group):
        system = [_system_column(batch, field, path) for field in SYSTEM_FIELDS]
        schema = pa.schema([*(arrow_field(field) for field in SYSTEM_FIELDS), *mapping.fields])
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
        raise CorruptDataError("a data file has no system column", column=field.name, path=path)
    return batch.column(position).cast(arrow_type(field.type))
