# SPDX-License-Identifier: Apache-2.0
"""Reading data and changelog files under any later schema of their table.

Which columns of a file make the columns of the read schema; how a file is decoded is in
`file_formats`, how a type follows a schema change in `column_mapping`. Key columns are never read:
the value columns hold the same, also in thin files. Source: FORMAT.md §2.3, §7.1.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from storage.errors import CorruptDataError
from storage.format.files.column_mapping import Conversion, conversion
from storage.format.files.file_formats import format_of, read_batches
from storage.format.files.key_value_layout import SYSTEM_FIELDS
from storage.format.files.parquet.parquet import RowGroupFilter
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.types.arrow_types import arrow_field, arrow_type
from storage.format.types.cast_arrays import CastError
from storage.format.types.type_text import type_name
from storage.format.types.types import DataField
from storage.io.file_io import FileIO

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
