# SPDX-License-Identifier: Apache-2.0
"""One bucket with a commit log in memory: enough of a table to test the merge tree alone."""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator

from storage.clock import SeededIds
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta, FileSource
from storage.format.metadata.schema import TableSchema
from storage.lsm.levels import Levels, sections
from storage.lsm.merge import merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.options.options import TableOptions, require_writable
from tests.property.model import Row, in_order
from tests.table_kit import bucket_context


class BucketTable:
    """The bucket, its live files as the last commit left them, and the writer at work."""

    def __init__(self, root: pathlib.Path, schema: TableSchema, *, seed: int = 0) -> None:
        self.context = bucket_context(root, schema, id_source=SeededIds(seed))
        require_writable(self.context.options)
        self.live: dict[tuple[int, str], DataFileMeta] = {}
        self.writer = MergeTreeWriter(self.context, [])

    def with_schema(self, schema: TableSchema) -> None:
        """Go on with another schema; commits come first."""
        older = self.context.schemas
        new = {schema.id: schema}
        self.context = dataclasses.replace(
            self.context,
            schema=schema,
            options=TableOptions.from_strings(schema.options),
            schemas=lambda schema_id: new.get(schema_id) or older(schema_id),
        )
        self.reopen()

    def commit(self) -> CommitMessage:
        """APPEND, then COMPACT, as the committer does it."""
        message = self.writer.prepare_commit()
        for file in message.data.new_files:
            assert file.level == 0
            assert file.file_source == FileSource.APPEND
            self._add(file)
        for file in message.compact.compact_before:
            del self.live[(file.level, file.file_name)]
        for file in message.compact.compact_after:
            assert file.level > 0
            self._add(file)
        return message

    def _add(self, file: DataFileMeta) -> None:
        assert (file.level, file.file_name) not in self.live
        self.live[(file.level, file.file_name)] = file

    def reopen(self) -> None:
        """A new writer on what was committed, as after a crash or in the next task."""
        self.writer.close()
        self.writer = MergeTreeWriter(self.context, list(self.live.values()))

    def levels(self) -> Levels:
        """Committed levels; checks that upper levels do not overlap."""
        context = self.context
        return Levels.of(self.live.values(), context.options.num_levels, context.key_of)

    def scan(self, *, window_bytes: int = 1 << 20) -> list[Row]:
        """Visible rows of the committed files, sorted by all columns."""
        context = self.context
        function = merge_function_for(context.options, context.schema)
        rows: list[Row] = []
        for section in sections(self.levels().files(), context.key_of):
            runs = [context.read_run(run.files, batch_bytes=window_bytes) for run in section]
            for batch in merge_runs(
                runs,
                context.key_names,
                function,
                window_bytes=window_bytes,
                drop_retractions=True,
            ):
                columns = batch.select(context.schema.field_names).to_pydict().values()
                rows.extend(zip(*columns, strict=True))
        return in_order(rows)

    def stored_files(self) -> set[str]:
        """Names of the data files in the store."""
        return {status.name for status in self.context.file_io.list(self.context.directory)}

    def check(self) -> None:
        """What must hold of the committed files whatever happened before."""
        levels = self.levels()
        sequences: dict[Row, list[int]] = {}
        for run in levels.runs():
            for key, number in self._keys(run.files):
                sequences.setdefault(key, []).append(number)
        # a newer run holds the newer row of every key
        assert all(numbers == sorted(numbers, reverse=True) for numbers in sequences.values())
        missing = {file.file_name for file in self.live.values()} - self.stored_files()
        assert not missing
        for file in self.live.values():
            self._check_file(file)

    def _keys(self, files: Iterable[DataFileMeta]) -> Iterator[tuple[Row, int]]:
        for batch in self.context.read_run(list(files), batch_bytes=1 << 20):
            for row in batch.to_pylist():
                key = tuple(row[name] for name in self.context.key_names)
                yield key, row["_SEQUENCE_NUMBER"]

    def _check_file(self, file: DataFileMeta) -> None:
        context = self.context
        batches = list(context.read_run([file], batch_bytes=1 << 20))
        rows = [row for batch in batches for row in batch.to_pylist()]
        keys = [key for key, _ in self._keys([file])]
        assert len(rows) == file.row_count
        assert len(set(keys)) == len(keys)
        numbers = [row["_SEQUENCE_NUMBER"] for row in rows]
        assert (min(numbers), max(numbers)) == (file.min_sequence_number, file.max_sequence_number)
        retractions = sum(row["_VALUE_KIND"] in (1, 3) for row in rows)
        assert file.delete_row_count == retractions
        assert file.file_size == context.file_io.size(context.path_of(file))
        assert context.key_of(file.min_key) <= context.key_of(file.max_key)
