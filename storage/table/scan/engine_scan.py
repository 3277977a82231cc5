# SPDX-License-Identifier: Apache-2.0
"""The rows of a table for an engine that filters and projects again, so reads can be cheaper.

Four savings: conditions prune files and row groups, and are not evaluated row by row; strings
that files store with small dictionaries are returned as dictionaries (a GROUP BY over five strings
then takes a third of the CPU time); where rows are only counted, or only partition columns are
read, the rows come from the manifests, without opening data files that have no deletes or other
versions of their rows; and files whose rows are those of the table as they are stored can be left
to the engine's own reader.
"""

import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from storage.format.files.file_formats import format_of
from storage.format.files.parquet.in_place import verify_pages
from storage.format.files.parquet.parquet import small_dictionaries
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.row.binary_row import decode_row
from storage.format.row.row_values import from_row_values
from storage.format.types.default_values import read_defaults
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.table.read.missing_files import explain_missing_files
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Predicate, both
from storage.table.scan.row_scan import RowScan
from storage.table.scan.scan import ChangeSplit, Split

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

ROWS = pa.schema([("_LAKEWARD_ROWS", pa.null())])
"""Schema of a scan without columns: rows without values."""

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_WORTH_A_LOOK = 100_000
"""Rows from which it pays to check in a file whether its strings are dictionary-encoded."""

_ROWS_PER_BATCH = 65_536
_WORTH_HANDING_OVER = 500_000
"""Rows from which an engine's reader of files pays for the instance that it needs."""


class EngineScan(RowScan):
    """Rows that are planned and not read yet; a superset of those that match the predicate.

    Arguments and errors as of `RowScan`, and of `RowScan.plan`.

    Attributes:
        files: local Parquet files with rows of the table as they are stored, which the engine
            reads after `hand_over`; batches have the other rows.
    """

    _dictionaries: frozenset[str] = frozenset()

    def __init__(
        self,
        table: "FileStoreTable",
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        super().__init__(table, columns, predicate)
        self.files: tuple[str, ...] = ()
        self._snapshot_id = 0
        self._planned = self.plan()
        partition_keys = {*table.schema.partition_keys} - read_defaults(table.schema).keys()
        self._of_partitions = set(self._columns) <= partition_keys
        texts = self._texts()
        if texts and not self._of_partitions:
            self._dictionaries = self._small_text_columns(texts, self._planned)

    @property
    def fields(self) -> list[DataField]:
        """The selected columns."""
        return [self._tables[0].schema.field(name) for name in self._columns]

    @property
    def complete(self) -> bool:
        """Whether `files` have all rows."""
        return bool(self.files) and not self._planned

    @property
    def schema(self) -> pa.Schema:
        """Selected columns in the given order, strings maybe as dictionaries; without any, ROWS."""
        return self._reader().schema if self._columns else ROWS

    def read(
        self, split: Split | ChangeSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `RowScan.read`; the predicates only prune files and row groups."""
        count = split.live_row_count if isinstance(split, Split) else None
        if self._columns:
            known = count is not None and isinstance(split, Split) and not split.fallback
            if known and self._of_partitions:
                yield from self._partition_rows(split.partition, count or 0)
            else:
                yield from super().read(split, predicate)
            return
        counts = [count] if count is not None else (b.num_rows for b in self._rows(split))
        for rows in counts:
            if rows:
                yield pa.RecordBatch.from_arrays([pa.nulls(rows)], schema=ROWS)

    def _partition_rows(self, partition: bytes, count: int) -> Iterator[pa.RecordBatch]:
        """As many rows with the values of a partition."""
        fields = self._tables[0].schema.partition_fields
        values = decode_row(partition, [field.type for field in fields])
        by_name = dict(zip((field.name for field in fields), values, strict=True))
        columns = [from_row_values([by_name[f.name]], f.type) for f in self.fields]
        first = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        batch = first.take(pa.array(np.zeros(min(count, _ROWS_PER_BATCH), np.int64)))
        for start in range(0, count, _ROWS_PER_BATCH):
            yield batch.slice(0, count - start)

    def hand_over(self) -> None:
        """Leave `files` to the engine, where they are large enough for that.

        Raises: as `verify`.
        """
        splits = self._planned or ()
        states = [split for split in splits if isinstance(split, Split) and split.raw]
        if self._of_partitions or sum(s.row_count for s in states) < _WORTH_HANDING_OVER:
            return
        reader, files, rest = self._reader(), list[str](), list[Split | ChangeSplit]()
        self._snapshot_id = states[0].snapshot_id
        with explain_missing_files(self._tables[0], self._snapshot_id):
            for split in splits:
                paths = reader.in_place(split) if isinstance(split, Split) else None
                if paths is None:
                    rest.append(split)
                else:
                    files += paths
        self.files, self._planned = tuple(files), rest

    def verify(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Verify the checksums of `files`, which the engine's reader does not.

        Args:
            stopped: whether to end early.

        Raises:
            CorruptDataError: a file is damaged, or is missing from the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        with explain_missing_files(self._tables[0], self._snapshot_id):
            verify_pages(self.files, self._columns, stopped)

    def look_for_files(self) -> None:
        """Say why a file is missing, if one is. Raises: as `verify`."""
        with explain_missing_files(self._tables[0], self._snapshot_id):
            for path in self.files:
                pathlib.Path(path).stat()

    def _rows(self, split: Split | ChangeSplit) -> Iterator[pa.RecordBatch]:
        fallback = isinstance(split, Split) and split.fallback
        return self._reader(fallback=fallback).to_batches(split)

    def _reader(self, predicate: Predicate | None = None, *, fallback: bool = False) -> TableRead:
        table = self._tables[1 if fallback else 0]
        return TableRead(
            table,
            self._columns,
            both(self._predicate, predicate),
            filtered=False,
            dictionaries=() if fallback else self._dictionaries,
        )

    def _texts(self) -> set[str]:
        schema = self._tables[0].schema
        fields = (schema.field(name) for name in self._columns)
        texts = {
            field.name
            for field in fields
            if isinstance(field.type, AtomicType) and field.type.root in _TEXTS
        }
        return texts - read_defaults(schema).keys()

    def _small_text_columns(
        self, texts: set[str], splits: Sequence[Split | ChangeSplit]
    ) -> frozenset[str]:
        raw = [s for s in splits if isinstance(s, Split) and s.raw and not s.fallback]
        if len(raw) < len(splits) or sum(split.row_count for split in raw) < _WORTH_A_LOOK:
            return frozenset()
        split, file = max(
            ((split, file) for split in raw for file in split.files),
            key=lambda pair: pair[1].row_count,
        )
        return frozenset(self._stored_small(texts, split, file))

    def _stored_small(self, texts: set[str], split: Split, file: DataFileMeta) -> set[str]:
        table = self._tables[0]
        path = file.external_path or table.data_path(split.partition, split.bucket, file.file_name)
        if format_of(path) != "parquet":
            return set()
        ids = {field.id: field.name for field in table.schema.fields if field.name in texts}
        stored = {
            field.name: ids[field.id]
            for field in table.schemas.read(file.schema_id).fields
            if field.id in ids
        }
        with explain_missing_files(table, split.snapshot_id):
            names = small_dictionaries(table.file_io, path, stored, file.file_size)
        return {stored[name] for name in names}
