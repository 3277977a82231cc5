# SPDX-License-Identifier: Apache-2.0
"""The writer of one bucket of an append table: rows in arrival order, no keys, no merging.

Source: SEMANTICS.md §G.5, FORMAT.md §7.1. Rows go straight into data files. In a fixed bucket
their sequence numbers continue those of the bucket and small files that follow one another are
merged in place; without buckets every writer counts from 0, and merging small files is a job of
its own (`append_compact`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.files.data_file import BATCH_ROWS, RowFileWriter, read_rows
from storage.format.files.data_file_options import DataFileNames, DataFileOptions
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import (
    CommitMessage,
    CompactIncrement,
    DataFileMeta,
    DataIncrement,
    FileSource,
)
from storage.format.types.types import RowKind
from storage.lsm.bucket import BucketContext
from storage.lsm.commit_cadence import merges_everything
from storage.lsm.write_rules import accept_rows
from storage.table.commit.index_files import IndexChange
from storage.table.compaction.append_picks import pick_all, pick_ordered
from storage.table.read.deletion_vectors import BucketVectors

_ACCEPTED = (RowKind.INSERT.value, RowKind.UPDATE_AFTER.value)


class AppendWriter:
    """Takes rows of one bucket in arrival order and turns them into files.

    Protocol: as `MergeTreeWriter`. Files are kept in the order of their rows.

    Args:
        context: the bucket and its ports.
        restored_files: live files of the bucket, any order; none without buckets.
        compaction: whether small files are merged at the end of a commit interval.
        deletions: deletion vectors of the restored files; None on tables without any. Files
            that are rewritten lose their deleted rows and their vectors.
    """

    def __init__(
        self,
        context: BucketContext,
        restored_files: Sequence[DataFileMeta],
        *,
        compaction: bool = True,
        deletions: BucketVectors | None = None,
    ) -> None:
        options = context.options
        self._context = context
        self._compacts = compaction and not options.write_only
        self._target_size = DataFileOptions.of(options).target_file_size
        self._names = DataFileNames(context.id_source)
        self._deletions = deletions
        self._next_sequence = 1 + max((f.max_sequence_number for f in restored_files), default=-1)
        self._candidates = sorted(restored_files, key=lambda file: file.min_sequence_number)
        self._rows: RowFileWriter | None = None
        self._new_files: list[DataFileMeta] = []
        self._files_before: dict[str, DataFileMeta] = {}
        self._files_after: dict[str, DataFileMeta] = {}

    def skip_sequence_numbers(self, count: int) -> None:
        """Leave numbers to other writers of this bucket whose rows come before this one's."""
        self._next_sequence += count

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Args:
            batch: value columns and `_VALUE_KIND`, all of this bucket, in arrival order.

        Raises:
            InvalidRequestError: a row is no insert, a NOT NULL column holds null, or a value
                does not fit.
            StorageUnavailableError: the store failed.
        """
        context = self._context
        kinds, columns = accept_rows(batch, context.schema, context.options)
        _check_kinds(kinds)
        if len(kinds) == 0:
            return
        rows = pa.RecordBatch.from_arrays(columns, schema=context.schema.arrow_schema)
        if self._rows is None:
            self._rows = _open_files(context, self._names, self._next_sequence, FileSource.APPEND)
        self._rows.write(rows)
        self._next_sequence += rows.num_rows

    def flush(self) -> None:
        """Finish the open file."""
        if self._rows is None:
            return
        writer, self._rows = self._rows, None
        try:
            files = writer.close()
        except BaseException:
            writer.abort()
            raise
        self._new_files.extend(files)
        self._candidates.extend(files)

    def compact(self, *, full: bool = False) -> bool:
        """Flush, then merge small files; also for a writer that does not compact by itself.

        Args:
            full: all files from the first small one on, if most of them are small; otherwise
                `compaction.min.file-num` neighbours at a time.

        Returns:
            Whether any file was rewritten.
        """
        self.flush()
        return self._compact_all() if full else self._compact_while_due()

    def prepare_commit(self, identifier: int | None = None) -> CommitMessage:
        """Flush, merge small files, and hand over what changed.

        Args:
            identifier: of the commit, on which periodic full compactions depend; None = of no
                stream.
        """
        self.flush()
        if self._compacts and merges_everything(self._context.options, identifier):
            self.compact(full=True)
        elif self._compacts:
            self._compact_while_due()
        change = None if self._deletions is None else self._deletions.without(self._files_before)
        message = compaction_message(
            self._context,
            self._files_before.values(),
            self._files_after.values(),
            self._new_files,
            change,
        )
        self._new_files, self._files_before, self._files_after = [], {}, {}
        return message

    def close(self) -> None:
        """Remove files that were not handed over. May be called twice."""
        writer, self._rows = self._rows, None
        if writer is not None:
            writer.abort()
        files = [*self._new_files, *self._files_after.values()]
        self._new_files, self._files_before, self._files_after = [], {}, {}
        self._context.delete_files(files)

    def _compact_while_due(self) -> bool:
        any_compacted = False
        least = self._context.options.compaction_min_file_num
        while True:
            picked, self._candidates = pick_ordered(self._candidates, least, self._target_size)
            if not picked:
                return any_compacted
            self._rewrite(picked)
            any_compacted = True

    def _compact_all(self) -> bool:
        picked = pick_all(
            self._candidates,
            self._target_size,
            deleted=self._deletions,
            force=self._context.options.compaction_force_rewrite_all_files,
        )
        if not picked:
            return False
        chosen = {file.file_name for file in picked}
        self._candidates = [file for file in self._candidates if file.file_name not in chosen]
        self._rewrite(picked)
        return True

    def _rewrite(self, files: Sequence[DataFileMeta]) -> None:
        """Merge files that follow one another; the result takes their place."""
        selections = {} if self._deletions is None else self._deletions.selections(files)
        written = rewrite_files(self._context, files, self._names, selections)
        garbage = []
        for file in files:
            if self._files_after.pop(file.file_name, None) is None:
                self._files_before[file.file_name] = file
            else:
                garbage.append(file)  # created and replaced in one interval: never committed
        self._files_after.update((file.file_name, file) for file in written)
        self._context.delete_files(garbage)
        if written and written[-1].file_size < self._target_size:
            self._candidates.append(written[-1])
            self._candidates.sort(key=lambda file: file.min_sequence_number)


def rewrite_files(
    context: BucketContext,
    files: Sequence[DataFileMeta],
    names: DataFileNames,
    selections: Mapping[str, RowSelection],
    source: FileSource = FileSource.COMPACT,
) -> tuple[DataFileMeta, ...]:
    """Rewrite the rows of files, one after another; no file if no row is left.

    Args:
        files: in the order of their rows; the first gives the first sequence number.
        selections: which rows of a file to write, by name; of other files all.
    """
    rows = read_files(context, files, selections)
    return write_files(context, rows, names, files[0].min_sequence_number, source)


def read_files(
    context: BucketContext,
    files: Iterable[DataFileMeta],
    selections: Mapping[str, RowSelection],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Selected rows in the order of the files, or some of their columns.

    Args:
        selections: per file name the rows to read; all rows of files without one.
    """
    for file in files:
        yield from read_rows(
            context.file_io,
            file.external_path or context.path_of(file),
            file,
            context.schemas(file.schema_id),
            context.schema,
            columns,
            batch_rows=BATCH_ROWS,
            selection=selections.get(file.file_name),
        )


def write_files(
    context: BucketContext,
    batches: Iterable[pa.RecordBatch],
    names: DataFileNames,
    first_sequence: int,
    source: FileSource = FileSource.COMPACT,
) -> tuple[DataFileMeta, ...]:
    """New files with rows in their order."""
    writer = _open_files(context, names, first_sequence, source)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _open_files(
    context: BucketContext, names: DataFileNames, first_sequence: int, source: FileSource
) -> RowFileWriter:
    return RowFileWriter(
        context.file_io,
        context.directory,
        context.schema,
        id_source=context.id_source,
        clock=context.clock,
        options=DataFileOptions.of(context.options),
        names=names,
        first_sequence=first_sequence,
        source=source,
    )


def compaction_message(
    context: BucketContext,
    before: Iterable[DataFileMeta],
    after: Iterable[DataFileMeta],
    new: Iterable[DataFileMeta] = (),
    change: IndexChange | None = None,
) -> CommitMessage:
    """The message of files added to a bucket, and of files that compaction replaced.

    Args:
        change: of deletion vectors; None: none.
    """
    vectors = change or IndexChange()
    return CommitMessage(
        partition=context.partition,
        bucket=context.bucket,
        total_buckets=context.options.bucket,
        data=DataIncrement(new_files=tuple(new)),
        compact=CompactIncrement(
            compact_before=tuple(before),
            compact_after=tuple(after),
            new_index_files=vectors.new,
            deleted_index_files=vectors.deleted,
        ),
    )


def _check_kinds(kinds: pa.Array) -> None:
    values = kinds.to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(~np.isin(values, _ACCEPTED))
    if len(wrong):
        kind = RowKind(int(values[wrong[0]]))
        raise InvalidRequestError(
            "Append-only writer can only accept insert or update_after row kind, but current row "
            f"kind is: {kind.short}",
            hint="You can configure 'ignore-delete' to ignore retract records, or give the table "
            "a primary key",
            row=int(wrong[0]),
        )
