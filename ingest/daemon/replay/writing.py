# SPDX-License-Identifier: Apache-2.0
"""Writes rows of a replay and commits them; the ledger of what is about to be committed.

`<warehouse>/.lakeward/<stream>/replay.json`, the ledger, is written before the first commit: per
table the identifier of the commit of `<stream>.replay` and the records in it. It is deleted when
the records are marked in the quarantine table. A replay that begins and finds one resolves it
first: a table that has the identifier has the records, so these are marked; the others are as they
were before. So a record is applied once, after any crash.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ingest.config.stream_folder import stream_folder
from ingest.daemon.replay.decoded import PartRows
from ingest.decode.isolation import guilty_rows
from ingest.errors import blames_record
from ingest.pipeline.chunk import OFFSET_COLUMN, Chunk, ChunkKind, ipc_bytes
from ingest.pipeline.map_side import slices, split_rows
from ingest.pipeline.plan import BatchPlan, Unwritable
from ingest.pipeline.reduce_side import reduced
from ingest.state.state_file import StateFile
from ingest.state.table_cache import Warehouse
from storage.format.metadata.file_meta import CommitMessage
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.file_io import FileIO
from storage.table.table import FileStoreTable

__all__ = [
    "Ledger",
    "Written",
    "change_rows",
    "ledger_file",
    "newest_identifier",
    "replay_user",
    "write_rows",
]

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Commits and their records.

    Attributes:
        identifiers: of the commits, by table.
        records: in them, by table.
    """

    identifiers: Mapping[str, int]
    records: Mapping[str, tuple[Position, ...]]


def ledger_file(file_io: FileIO, warehouse: str, stream: str) -> StateFile[Ledger]:
    """The file of a stream; there is none unless a replay is unfinished."""
    return StateFile(
        file_io,
        f"{stream_folder(warehouse, stream)}/replay.json",
        Ledger,
        title="the ledger of an unfinished replay",
        hint="restore it; without it, records may be applied twice to tables that aggregate",
    )


def replay_user(stream: str) -> str:
    """The commit user of a stream's replays."""
    return f"{stream}.replay"


def newest_identifier(table: FileStoreTable, user: str) -> int:
    """Of the user's commits in a table; -1 = there is none."""
    snapshot = table.new_commit(user).latest_of_user(user)
    return -1 if snapshot is None else snapshot.commit_identifier


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """Files of one table, not committed yet.

    Attributes:
        messages: what to commit.
        unwritable: records whose rows cannot be written: there is nothing to commit then.
    """

    messages: tuple[CommitMessage, ...] = ()
    unwritable: tuple[Unwritable, ...] = ()


def write_rows(
    warehouse: Warehouse,
    table: FileStoreTable,
    name: str,
    parts: Sequence[PartRows],
    *,
    identifier: int,
) -> Written:
    """Write change rows of a table.

    Args:
        warehouse: where the table is.
        table: in the version of its schema that the rows have.
        name: its name.
        parts: rows by source partition, in the order in which they are to be applied.
        identifier: of the commit to come.

    Raises:
        LakewardError: the table cannot be written.
    """
    plan = BatchPlan(batch_id=-1, identifier=identifier, tables={name: table.schema.id})
    buckets: dict[tuple[bytes, int], list[Chunk]] = {}
    unwritable: list[Unwritable] = []
    for number, part in enumerate(parts):
        try:
            for chunk in _chunks(part, number, table, name):
                buckets.setdefault((chunk.partition, chunk.bucket), []).append(chunk)
        except Exception as error:
            if not blames_record(error):
                raise
            unwritable += _unplaceable(part, table, name, error)
    if unwritable:
        return Written(unwritable=tuple(unwritable))
    results = [reduced(warehouse, plan, name, chunks) for chunks in buckets.values()]
    messages = tuple(message for result in results for message in result.messages)
    failures = [result.failure for result in results if result.failure is not None]
    unwritable += [each for result in results for each in result.unwritable]
    if failures or unwritable:
        table.delete_uncommitted(messages)
        if failures:
            raise failures[0]
        return Written(unwritable=tuple(unwritable))
    return Written(messages)


def _chunks(part: PartRows, number: int, table: FileStoreTable, name: str) -> Iterator[Chunk]:
    for partition, bucket, rows in split_rows(part.rows, table):
        for piece in slices(rows):
            yield Chunk(
                kind=ChunkKind.CHANGES,
                table=name,
                partition=partition,
                bucket=bucket,
                schema_id=table.schema.id,
                topic=part.topic,
                source_partition=part.partition,
                first_offset=number,
                payload=ipc_bytes(piece),
            )


def _unplaceable(
    part: PartRows, table: FileStoreTable, name: str, error: Exception
) -> list[Unwritable]:
    """The records whose rows have no partition or bucket."""

    def attempt(low: int, high: int) -> None:
        list(split_rows(part.rows.slice(low, high - low), table))

    offsets = part.rows.column(OFFSET_COLUMN).to_numpy()
    return [
        Unwritable(name, part.topic, part.partition, int(offsets[at]), why)
        for at, why in guilty_rows(attempt, part.rows.num_rows, error).items()
    ]


def change_rows(rows: pa.Table, kind: RowKind) -> pa.RecordBatch:
    """Rows of a table as change rows of one kind."""
    count = rows.num_rows
    rows = rows.append_column(VALUE_KIND, pa.array([int(kind)] * count, pa.int8()))
    rows = rows.append_column(OFFSET_COLUMN, pa.array(range(count), pa.int64()))
    (batch,) = rows.combine_chunks().to_batches()
    return batch
