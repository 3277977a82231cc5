# SPDX-License-Identifier: Apache-2.0
"""Sides that are read as Arrow batches: lake tables and Parquet files.

The lake side of a comparison is one of them; the source may be another lake table or a directory
of Parquet files, whose columns are brought to the lake table's types.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.tools.verify.columns import Columns
from ingest.tools.verify.compare import ANY_NUMBER, hashed
from ingest.tools.verify.fitting import Form, canonical, cut_to_precision
from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import AtomicType, TypeRoot
from storage.io.file_io import FileIO
from storage.io.resolve import is_local
from storage.table.scan.predicate import And, Between, In, Predicate, mask
from storage.table.table import FileStoreTable

_KEYS_PER_SCAN = 500
"""Keys of one condition: the scan compares each of them with each file."""

_SCANS = 4
"""Scans with a condition each; for more keys one scan without a condition is cheaper."""

_IN_CONDITIONS = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.VARBINARY, TypeRoot.BINARY),
        *(TypeRoot.DATE, TypeRoot.DECIMAL, TypeRoot.TIMESTAMP, TypeRoot.BOOLEAN),
    }
)
"""Types of key columns that a condition can list values of; other types need a full scan."""


class TableSide:
    """A lake table.

    Args:
        table: the table.
        name: `database.table`, for reports.
        columns: what is compared.
        predicate: rows that count; None = all.
        by_source_name: columns are read by their names in the source: the table is the source.
    """

    def __init__(
        self,
        table: FileStoreTable,
        name: str,
        columns: Columns,
        predicate: Predicate | None = None,
        *,
        by_source_name: bool = False,
    ) -> None:
        self._table = table
        self._name = name
        self._columns = columns
        self._predicate = predicate
        self._names = [column.source if by_source_name else column.name for column in columns.all]
        self._looks_up = columns.keyed and all(
            isinstance(key.type, AtomicType)
            and key.type.root in _IN_CONDITIONS
            and key.form is Form.PLAIN
            for key in columns.keys
        )
        self.snapshot_id: int | None = None
        self.refresh()

    @property
    def label(self) -> str:
        """See `Side`."""
        return self._name

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        few = total <= _SCANS * _KEYS_PER_SCAN
        return _KEYS_PER_SCAN if self._looks_up and few else ANY_NUMBER

    def refresh(self) -> None:
        """Read the newest snapshot from now on."""
        snapshot = self._table.latest_snapshot()
        self.snapshot_id = None if snapshot is None else snapshot.id

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        return self._read(None)

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        if self._looks_up and keys.num_rows <= _KEYS_PER_SCAN:
            return self._read(_of_keys(self._names, keys))
        return self._read(
            _range_predicate(self._names[0], keys.column(0)) if keys.num_columns else None
        )

    def _read(self, condition: Predicate | None) -> Iterator[pa.RecordBatch]:
        if self.snapshot_id is None:
            return
        parts = [term for term in (self._predicate, condition) if term is not None]
        predicate = And(tuple(parts)) if parts else None
        scan = self._table.new_scan().with_snapshot(self.snapshot_id).with_all_levels()
        read = self._table.new_read(columns=list(dict.fromkeys(self._names)), predicate=predicate)
        for split in scan.with_filter(predicate).plan().splits:
            for batch in read.to_batches(split):
                yield _hashed(batch, self._names, self._columns)


def _of_keys(names: Sequence[str], keys: pa.RecordBatch) -> Predicate:
    """A condition that names the keys.

    Every column of the key has a condition of its own, which matches more rows than the keys.
    """
    pairs = zip(names, keys.columns, strict=False)
    return And(tuple(In(name, tuple(column.unique().to_pylist())) for name, column in pairs))


def _range_predicate(name: str, column: pa.Array) -> Predicate | None:
    """Between the least and the greatest of whole numbers; None for other types."""
    if not pa.types.is_integer(column.type):
        return None
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return None
    return Between(name, bounds["min"], bounds["max"])


def _hashed(batch: pa.RecordBatch, names: Sequence[str], columns: Columns) -> pa.RecordBatch:
    """Bring a batch to the lake's types and forms, and hash it.

    Raises:
        InvalidRequestError: a column does not convert.
    """
    arrays = []
    for name, compared in zip(names, columns.all, strict=True):
        column = batch.column(batch.schema.get_field_index(name))
        type_ = arrow_type(compared.type)
        if column.type != type_:
            column = _cast(column, type_, name)
        arrays.append(canonical(cut_to_precision(column, compared.type), compared.form))
    return hashed(pa.RecordBatch.from_arrays(arrays, schema=columns.schema), columns)


def _cast(column: pa.Array, type_: pa.DataType, name: str) -> pa.Array:
    try:
        finer = pa.types.is_timestamp(type_) and pa.types.is_timestamp(column.type)
        if finer and type_.tz is None and column.type.tz is not None:
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))
        return column.cast(type_, safe=not finer)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a column of the other table does not convert to the lake's type",
            hint=f"leave it out with --exclude {name}",
            detail=str(error).split("\n", maxsplit=1)[0],
            column=name,
            type=column.type,
            wanted=type_,
        ) from error


class FilesSide:
    """A Parquet file, or all `*.parquet` files of a directory."""

    def __init__(
        self, file_io: FileIO, path: str, columns: Columns, predicate: Predicate | None = None
    ) -> None:
        self._io = file_io
        self._path = path
        self._columns = columns
        self._predicate = predicate

    @property
    def label(self) -> str:
        """See `Side`."""
        return self._path

    def keys_at_once(self, total: int) -> int:
        """See `Side`."""
        del total
        return ANY_NUMBER

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        names = [column.source for column in self._columns.all]
        for path in parquet_files(self._io, self._path):
            with _open_parquet(self._io, path) as file:
                for batch in file.iter_batches(batch_size=65_536):
                    if self._predicate is not None:
                        batch = batch.filter(mask(self._predicate, batch))
                    if batch.num_rows:
                        yield _hashed(batch, names, self._columns)

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """See `Side`."""
        del keys
        return self.batches()


def _open_parquet(file_io: FileIO, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file_io.open_input(path))
    except pa.ArrowInvalid as error:
        raise CorruptDataError("not a Parquet file", detail=str(error), path=path) from error


def parquet_files(file_io: FileIO, path: str) -> list[str]:
    """The file itself, or the Parquet files below a directory, sorted.

    Raises:
        NotFoundError: there are none.
    """
    if Path(path).is_file() if is_local(path) else file_io.is_file(path):
        return [path]
    paths = sorted(
        status.path
        for status in file_io.walk(path)
        if status.path.endswith(".parquet") and not status.name.startswith(("_", "."))
    )
    if not paths:
        raise NotFoundError("there are no Parquet files", path=path)
    return paths


def parquet_schema(file_io: FileIO, path: str) -> pa.Schema:
    """Schema of the first file."""
    with _open_parquet(file_io, parquet_files(file_io, path)[0]) as file:
        return file.schema_arrow
