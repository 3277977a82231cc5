# SPDX-License-Identifier: Apache-2.0
"""Rows of keys in the upper levels of one bucket, from local copies of the data files.

The `KeyLookup` of a bucket. A file is copied on the first lookup of a key that it could hold, by
the key range of its metadata.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.format.files.key_value_layout import key_value_schema
from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.row.row_codec import decode_row
from storage.format.row.row_values import from_row_values
from storage.lsm.key_order import key_at, lower_bound
from storage.lsm.levels import SortedRun
from storage.lsm.lookup.contract import LookupResult
from storage.lsm.lookup.local_copy import CopySource, LocalCopy, SearchedKeys, boot_seed
from storage.lsm.lookup.store import CopyLimits, LookupStore

if TYPE_CHECKING:
    from storage.lsm.bucket import BucketContext

_Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """The keys found in one file."""

    file: DataFileMeta
    keys: _Numbers
    positions: _Numbers
    rows: list[pa.RecordBatch]


@dataclasses.dataclass(frozen=True, slots=True)
class BucketLookup:
    """See the module; a `KeyLookup`. Holds nothing open itself.

    Attributes:
        context: the bucket; rows are returned in its schema, without those its deletion vectors
            mark.
        store: the copies.
    """

    context: "BucketContext"
    store: LookupStore

    def find(
        self, keys: pa.RecordBatch, runs: Sequence[SortedRun], *, values: bool = True
    ) -> LookupResult:
        """See `KeyLookup`.

        Cost: grows with the keys, and by some microseconds per file that could hold one.
        """
        schema = self.context.schema
        names = schema.trimmed_primary_keys
        types = [field.type for field in schema.key_fields]
        pending = keys.select(names)
        numbers = np.arange(pending.num_rows)
        searched = SearchedKeys(pending.columns, types, boot_seed())
        parts: list[_Part] = []
        for run in runs:
            if not len(numbers):
                break
            is_missing = np.ones(len(numbers), np.bool_)
            for file, start, end in self._files_with_keys(pending, run.files):
                part = self._search(file, searched.between(start, end), values=values)
                if part is not None:
                    is_missing[part.keys + start] = False
                    parts.append(dataclasses.replace(part, keys=numbers[part.keys + start]))
            if not is_missing.all():
                remaining_keys = np.flatnonzero(is_missing)
                pending, numbers = pending.take(pa.array(remaining_keys)), numbers[remaining_keys]
                searched = searched.only(remaining_keys)
        return self._result(parts, values=values)

    def release(self, files: Iterable[DataFileMeta]) -> None:
        """See `KeyLookup`."""
        self.store.release(self.context.layout.root, map(self._source_of, files))

    def _files_with_keys(
        self, keys: pa.RecordBatch, files: Sequence[DataFileMeta]
    ) -> list[tuple[DataFileMeta, int, int]]:
        """Files whose range holds some of the keys, each with the range of these keys."""
        schema = self.context.schema
        names = schema.trimmed_primary_keys
        types = [field.type for field in schema.key_fields]
        ends = [decode_row(key, types) for file in files for key in (file.min_key, file.max_key)]
        columns = [
            from_row_values(column, type_)
            for column, type_ in zip(zip(*ends, strict=True), types, strict=True)
        ]
        bounds = pa.RecordBatch.from_arrays(columns, names=list(names))
        result = []
        for number, file in enumerate(files):
            low, high = (key_at(bounds, names, 2 * number + i) for i in range(2))
            start, end = lower_bound(keys, names, low), lower_bound(keys, names, high)
            if end < keys.num_rows and key_at(keys, names, end) == high:
                end += 1
            if start < end:
                result.append((file, start, end))
        return result

    def _search(self, file: DataFileMeta, keys: SearchedKeys, *, values: bool) -> _Part | None:
        """The keys found in a file, numbered from 0; None when there are none."""
        copy = self._copy_of(file)
        numbers, positions = copy.find(keys)
        deletions = self.context.deletions
        deleted = None if deletions is None else deletions.vector_of(file.file_name)
        if deleted is not None and len(positions):
            alive = _alive(deleted, positions)
            numbers, positions = numbers[alive], positions[alive]
        if not len(numbers):
            return None
        return _Part(file, numbers, positions, copy.rows(positions) if values else [])

    def _copy_of(self, file: DataFileMeta) -> LocalCopy:
        options = self.context.options
        limits = CopyLimits(
            options.lookup_cache_max_disk_size,
            options.lookup_cache_file_retention_ms,
            options.lookup_cache_max_memory_size,
        )
        return self.store.copy_of(self.context.layout.root, self._source_of(file), limits)

    def _source_of(self, file: DataFileMeta) -> CopySource:
        context = self.context
        file_schema = context.schemas(file.schema_id)
        return CopySource(context.file_io, context.path_of(file), file, file_schema, context.schema)

    def _result(self, parts: Sequence[_Part], *, values: bool) -> LookupResult:
        """All rows found, in the order of the keys."""
        schema = key_value_schema(self.context.schema)
        numbers = _concatenated([part.keys for part in parts])
        positions = _concatenated([part.positions for part in parts])
        counts = [len(part.keys) for part in parts]
        file_of = np.repeat(np.arange(len(parts), dtype=np.int32), counts)
        batches = [batch for part in parts for batch in part.rows]
        rows = None
        if values:
            rows = pa.concat_batches(batches) if batches else _no_rows(schema)
        if len(numbers) and not bool(np.all(numbers[1:] > numbers[:-1])):
            order = np.argsort(numbers)
            numbers, positions, file_of = numbers[order], positions[order], file_of[order]
            rows = None if rows is None else rows.take(pa.array(order))
        return LookupResult(numbers, rows, tuple(part.file for part in parts), file_of, positions)


def _alive(deleted: Bitmap, positions: _Numbers) -> npt.NDArray[np.bool_]:
    """Which of some ascending positions are not deleted."""
    if isinstance(deleted, pyroaring.BitMap64):
        common = (deleted & pyroaring.BitMap64(positions.astype(np.uint64))).to_array()
    else:
        common = (deleted & pyroaring.BitMap(positions.astype(np.uint32))).to_array()
    matches = np.asarray(common, np.int64)
    alive = np.ones(len(positions), np.bool_)
    alive[np.searchsorted(positions, matches)] = False
    return alive


def _concatenated(parts: Sequence[_Numbers]) -> _Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
