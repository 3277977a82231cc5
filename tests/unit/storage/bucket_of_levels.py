# SPDX-License-Identifier: Apache-2.0
"""One bucket whose compactions a test chooses, with lookups and deletion vectors in memory.

Rows are read and compared one by one: (key, sequence number, kind, values by name).
"""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring

from storage.format.files.data_file import key_value_schema, read_key_values
from storage.format.metadata.file_meta import CompactIncrement, DataFileMeta, FileSource
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import parse_type
from storage.lsm.bucket import LookupResult
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.levels import Levels
from storage.lsm.merge import merge_rows
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_tree_writer import compact
from storage.options.options import TableOptions
from tests.table_kit import bucket_context

KINDS = ("+I", "-U", "+U", "-D")
Row = tuple[Any, int, str, dict[str, Any]]


def schema_of(columns: dict[str, str], options: dict[str, str]) -> TableSchema:
    """A table with key `k` and one bucket."""
    return new_schema(
        [(name, parse_type(text)) for name, text in columns.items()],
        primary_keys=["k"],
        partition_keys=(),
        options={"bucket": "1", **options},
        now_ms=0,
    )


class MarkedRows:
    """Deletion vectors of a bucket in memory; a `DeletedRows`."""

    def __init__(self) -> None:
        self.vectors: dict[str, pyroaring.BitMap] = {}
        self.marks: list[tuple[str, int]] = []

    def vector_of(self, data_file):
        return self.vectors.get(data_file)

    def mark(self, data_file, positions):
        vector = self.vectors.setdefault(data_file, pyroaring.BitMap())
        before = len(vector)
        vector.update(int(position) for position in positions)
        self.marks += [(data_file, int(position)) for position in positions]
        return len(vector) - before

    def drop(self, data_file):
        self.vectors.pop(data_file, None)

    def changes(self):
        return (), ()


class ScanLookup:
    """Looks keys up by reading whole files; a `KeyLookup`."""

    def __init__(self, bucket: "Bucket") -> None:
        self.bucket = bucket
        self.asked: list[Any] = []

    def find(self, keys, runs, *, values=True):
        wanted = keys.column("k").to_pylist()
        assert wanted == sorted(set(wanted))
        self.asked += wanted
        found: dict[int, tuple[DataFileMeta, int, pa.RecordBatch]] = {}
        for run in runs:
            for file in run.files:
                rows = self.bucket.stored(file)
                for position, key in enumerate(rows.column("k").to_pylist()):
                    gone = position in (self.bucket.marked.vectors.get(file.file_name) or ())
                    if key in wanted and not gone:
                        found.setdefault(
                            wanted.index(key), (file, position, rows.slice(position, 1))
                        )
        numbers = sorted(found)
        files = tuple({found[n][0].file_name: found[n][0] for n in numbers}.values())
        schema = key_value_schema(self.bucket.context.schema)
        rows = pa.Table.from_batches([found[n][2] for n in numbers], schema).combine_chunks()
        return LookupResult(
            keys=np.array(numbers, np.int64),
            rows=rows.to_batches()[0] if values and numbers else None,
            files=files,
            file_of=np.array([files.index(found[n][0]) for n in numbers], np.int32),
            positions=np.array([found[n][1] for n in numbers], np.int64),
        )

    def release(self, files):
        """Nothing is kept."""


class Bucket:
    """Files by level; `flush` adds one to level 0, `compact` merges some."""

    def __init__(self, root: pathlib.Path, schema: TableSchema) -> None:
        self.marked = MarkedRows()
        self.lookup = ScanLookup(self)
        marks = TableOptions.from_strings(schema.options).deletion_vectors_enabled
        self.context = bucket_context(
            root, schema, lookup=self.lookup, deletions=self.marked if marks else None
        )
        self.files: list[DataFileMeta] = []
        self.sequence = 0

    @property
    def levels(self) -> Levels:
        return Levels.of(self.files, self.context.options.num_levels, self.context.key_of)

    def flush(self, changes: list[tuple[str, dict[str, Any]]]) -> None:
        """Rows in arrival order become one file of level 0."""
        schema = key_value_schema(self.context.schema)
        count = len(changes)
        arrays = [
            pa.array(range(self.sequence, self.sequence + count), pa.int64()),
            pa.array([KINDS.index(kind) for kind, _ in changes], pa.int8()),
            *(
                pa.array([values[name] for _, values in changes], schema.field(name).type)
                for name in self.context.schema.field_names
            ),
        ]
        self.sequence += count
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        function = merge_function_for(self.context.options, self.context.schema)
        merged = merge_rows([batch], ["k"], function)
        writer = self.context.open_writer(0, FileSource.APPEND)
        writer.write(merged)
        self.files += writer.close()

    def compact(self, unit: CompactUnit, **arguments: Any) -> CompactIncrement:
        """Carry out a unit and take in what became of it."""
        increment = compact(unit, self.context, self.levels, **arguments)
        gone = {file.file_name for file in increment.compact_before}
        kept = [file for file in self.files if file.file_name not in gone]
        self.files = [*kept, *increment.compact_after]
        assert self.levels.run_count <= len(self.files)
        return increment

    def full(self, **arguments: Any) -> CompactIncrement:
        """Merge everything into the last level."""
        last = self.levels.max_level
        unit = CompactUnit(
            files=self.levels.files(), output_level=last, max_level=last, drop_deletes=True
        )
        return self.compact(unit, **arguments)

    def up(self, output: int) -> CompactIncrement:
        """Merge level 0, and the levels up to one, into that."""
        levels = self.levels
        runs = [run for run in levels.runs() if run.level <= output]
        unit = CompactUnit(
            files=tuple(file for run in runs for file in run.files),
            output_level=output,
            max_level=levels.max_level,
            drop_deletes=self.context.deletions is not None
            or output >= levels.highest_non_empty_level,
        )
        return self.compact(unit)

    def stored(self, file: DataFileMeta) -> pa.RecordBatch:
        """All rows of a file, those marked as deleted too."""
        context = self.context
        batches = read_key_values(
            context.file_io, context.path_of(file), file, context.schema, context.schema, None
        )
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return batch

    def rows(self, file: DataFileMeta) -> list[Row]:
        """Rows of a file without those marked as deleted."""
        marked = self.marked.vectors.get(file.file_name) or ()
        found = []
        for position, row in enumerate(self.stored(file).to_pylist()):
            if position not in marked:
                sequence, kind = row.pop("_SEQUENCE_NUMBER"), row.pop("_VALUE_KIND")
                found.append((row["k"], sequence, KINDS[kind], row))
        return found

    def changes(self, increment: CompactIncrement) -> list[tuple[str, dict[str, Any]]]:
        """What the changelog of a compaction tells, in file order."""
        return [
            (kind, values)
            for file in increment.changelog_files
            for _, _, kind, values in self.rows(file)
        ]

    def stored_names(self) -> set[str]:
        """Names of all files in the store."""
        return {status.name for status in self.context.file_io.list(self.context.directory)}


def with_lookup_of(bucket: Bucket, lookup: Any) -> None:
    """Let another lookup answer."""
    bucket.context = dataclasses.replace(bucket.context, lookup=lookup)
