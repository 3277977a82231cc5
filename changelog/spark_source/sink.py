# SPDX-License-Identifier: Apache-2.0
"""Writing rows of a Spark job to a table: tasks write files, one commit adds them all.

Spark passes rows to Python sinks unsorted and unclustered: a shuffle by bucket or a sort cannot be
requested. So tasks only write files, several tasks possibly to one bucket, and reserve ranges of
sequence numbers for each other: of two rows of a key that of the later partition of the frame wins,
in one partition the later row. Due compactions run after the commit, in the process that committed.
Independent of Spark.

A failed task removes its files; files of a job that dies remain as orphans until they are cleaned
up. The commit is that of every writer: at most once per commit user and identifier.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from changelog.stream_scan import ROW_KIND, with_stored_kinds
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.format.types.types import VALUE_KIND
from storage.lsm.write_rules import merges_everything
from storage.table.bucket_mode import BucketMode, require_buckets
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.table import FileStoreTable
from storage.table.upkeep import after_commit
from storage.table.write.postpone import require_bucket_counts
from storage.table.write.write import (
    STATEMENT_NUMBERS,
    TableWrite,
    is_staged,
    place_staged,
    staging,
)

_TASK_NUMBERS = 1 << 24
"""Sequence numbers of one bucket reserved per task. A commit of 200 tasks takes 2^32, so one commit
a second lasts for 64 years; a task with more rows of one bucket is refused at the commit if its
numbers overlap those of the next."""


@dataclasses.dataclass(frozen=True, slots=True)
class TaskFiles:
    """Output of one task.

    Attributes:
        messages: one per bucket.
    """

    task: int
    messages: tuple[CommitMessage, ...]


class RowSink:
    """Writes the rows of a job to a table. Picklable.

    Args:
        columns: of the job's rows, with their types; `_row_kind` may be among them.
        overwrite: replace existing rows.
        partition: what an overwrite replaces, by partition column; None: as
            `FileStoreCommit.overwrite` says.

    Raises:
        InvalidRequestError: the columns are not those of the table.
        UnsupportedFeatureError: the table cannot be written.
    """

    def __init__(
        self,
        table: FileStoreTable,
        columns: pa.Schema,
        *,
        overwrite: bool = False,
        partition: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        self._overwrite = overwrite
        self._partition = partition
        self._mode = require_buckets(table.schema, table.options)
        self._postpones = self._mode is BucketMode.POSTPONE
        _check_columns(table, columns)
        if partition is not None and not overwrite:
            raise InvalidOptionError(
                "`overwrite.partition` needs overwrite mode",
                hint='write with mode("overwrite")',
                option="overwrite.partition",
            )
        TableWrite(table, "check", compaction=False).close()  # refuses before tasks start

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of a task.

        Raises:
            InvalidRequestError: a value does not fit its column, or a row has no kind.
        """
        with TableWrite(
            staging(self._table) if is_staged(self._table) else self._table,
            "task",
            compaction=False,
            overwrite=self._overwrite,
            skip_sequence_numbers=task * _TASK_NUMBERS
            + (STATEMENT_NUMBERS if self._table.schema.primary_keys else 0),
            threads=1,
        ) as writer:
            for batch in batches:
                if batch.num_rows:
                    writer.write(self._of_table(batch))
            return TaskFiles(task, tuple(writer.prepare_commit()))

    def commit(
        self, files: Sequence[TaskFiles], user: str, identifier: int, *, batch: bool = True
    ) -> None:
        """Commit the files of all tasks, then run due compactions.

        Raises:
            UnsupportedFeatureError: several tasks wrote what only one may; the files are removed.
            As `FileStoreCommit.commit`.
        """
        ordered = sorted(files, key=lambda output: output.task)
        messages = [message for output in ordered for message in output.messages]
        self._check_shared(files)
        check = None
        if is_staged(self._table):
            messages = place_staged(self._table, messages, overwrite=self._overwrite, batch=batch)
            check = require_bucket_counts(self._table, messages) if self._postpones else None
        commit = self._table.new_commit(user)
        if self._overwrite:
            commit.overwrite(messages, identifier, partition=self._partition)
        else:
            commit.commit(messages, identifier, before_publish=check)
        self._compact(identifier)
        if identifier != BATCH_COMMIT_IDENTIFIER:  # a batch commit has done this
            after_commit(self._table, messages, batch=False)

    def remove(self, files: Sequence[TaskFiles]) -> None:
        """Remove the files of tasks; only if no commit was or will be attempted."""
        self._table.delete_uncommitted([message for output in files for message in output.messages])

    def _of_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the columns of the table, absent ones null, with their kinds."""
        rows = with_stored_kinds(batch)
        names, arrays = [], []
        for field in self._table.schema.arrow_schema:
            position = rows.schema.get_field_index(field.name)
            if position < 0:
                column = pa.nulls(rows.num_rows, field.type)
            else:
                column = _in_table(rows.column(position), field)
            names.append(field.name)
            arrays.append(column)
        if VALUE_KIND in rows.schema.names:
            names.append(VALUE_KIND)
            arrays.append(rows.column(VALUE_KIND))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _check_shared(self, files: Sequence[TaskFiles]) -> None:
        writers = [output for output in files if output.messages]
        if self._mode is BucketMode.CROSS_PARTITION and len(writers) > 1:
            self.remove(files)
            raise UnsupportedFeatureError(
                "a table whose keys move between partitions needs a single writer, and Spark does "
                "not shuffle the rows of a Python sink",
                hint="write `df.coalesce(1)`, or give the table a fixed number of buckets",
                tasks=len(writers),
            )
        if self._table.schema.primary_keys and not is_staged(self._table):
            for bucket in _crossing(writers):
                self.remove(files)
                raise UnsupportedFeatureError(
                    "a task wrote more rows to one bucket than it has sequence numbers",
                    hint="use more partitions or buckets, or write in several steps",
                    where=bucket,
                    rows=_TASK_NUMBERS,
                )

    def _compact(self, identifier: int) -> None:
        options = self._table.options
        if not self._table.schema.primary_keys or options.write_only or self._postpones:
            return  # postponed rows are compacted by a separate job
        request = CompactRequest(full=merges_everything(options, identifier))
        threads = os.cpu_count() or 1
        with ThreadPoolExecutor(threads, "compact") as executor:
            report = compact_table(
                self._table, request, executor, parallelism=threads, user_prefix="spark-compact"
            )
        for failure in report.failures:
            raise failure.error


def partition_values(text: str) -> dict[str, str]:
    """Parse `overwrite.partition`.

    Raises:
        InvalidOptionError: malformed.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise InvalidOptionError(
                "malformed partition",
                hint="write it as `dt=2026-01-31,hh=10`",
                key="overwrite.partition",
                value=text,
            )
        values[name.strip()] = value.strip()
    return values


def _crossing(files: Sequence[TaskFiles]) -> Iterator[str]:
    """Buckets in which the sequence numbers of two tasks overlap."""
    ranges: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
    for output in files:
        for message in output.messages:
            new = message.data.new_files
            if new:
                span = (
                    min(file.min_sequence_number for file in new),
                    max(file.max_sequence_number for file in new),
                )
                ranges.setdefault((message.partition, message.bucket), []).append(span)
    for (_, bucket), spans in ranges.items():
        spans.sort()
        if any(later[0] <= before[1] for before, later in itertools.pairwise(spans)):
            yield f"bucket {bucket}"


def _in_table(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        if pa.types.is_time32(field.type):
            column = column.cast(pa.int32())
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="cast it before writing",
            column=field.name,
            type=field.type,
            found=column.type,
        ) from error


def _check_columns(table: FileStoreTable, columns: pa.Schema) -> None:
    schema = table.schema.arrow_schema
    unknown = [name for name in columns.names if name not in schema.names and name != ROW_KIND]
    if unknown:
        raise InvalidRequestError(
            "the table has no such column",
            hint=f"leave it out, or add it to the table; it has {', '.join(schema.names)}",
            column=unknown[0],
        )
    needed = {*table.schema.primary_keys, *table.schema.partition_keys}
    for field in schema:
        if field.name not in columns.names and (not field.nullable or field.name in needed):
            raise InvalidRequestError("a required column is missing", column=field.name)
        if field.name in columns.names:
            _check_zone(columns.field(field.name), field)


def _check_zone(given_field: pa.Field, table_field: pa.Field) -> None:
    """An instant is not a local time, but Arrow would cast one to the other."""
    if not (pa.types.is_timestamp(given_field.type) and pa.types.is_timestamp(table_field.type)):
        return
    if (given_field.type.tz is None) is not (table_field.type.tz is None):
        raise InvalidRequestError(
            "a timestamp with a time zone does not match one without",
            hint="cast it with `cast(… as timestamp_ntz)` or `cast(… as timestamp)`",
            column=table_field.name,
            type=table_field.type,
            found=given_field.type,
        )
