# SPDX-License-Identifier: Apache-2.0
"""`lakeward run --recover-offsets`: rebuild the offsets of a stream from its tables.

The daemon does the same when the checkpoint directory is empty. The option is for a checkpoint that
exists but is wrong, such as one restored from an old backup.
"""

from typing import Any

from ingest.config.settings import Settings
from ingest.observe.text_table import aligned
from ingest.source.ranges import ANY_TABLE, floor_of, resume_token
from ingest.state.lease import owned_stream
from ingest.state.rolled_back import forget_rollback, rolled_back_topics
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_state import CheckpointState
from ingest.state.table_registry import TableRegistry
from storage.clock import SystemClock

__all__ = ["offsets_table", "recover_offsets"]


def recover_offsets(settings: Settings, *, dry_run: bool, take_over: bool = False) -> None:
    """Print the recovered offsets and, unless it is a dry run, write them to a new checkpoint.

    Raises:
        StreamHeldError: a daemon owns the stream.
        RetryableError: the source did not answer.
    """
    if dry_run:
        book = TableRegistry(settings, SystemClock())
        book.load(create=False)
        state = StreamPosition(settings, book).recovered()
        print(offsets_table(state, sorted({*book.progresses(), *book.parking.parked()})))
        print("\nnothing was changed")
        return
    with owned_stream(settings, take_over=take_over) as (book, ownership):
        position = StreamPosition(settings, book, ownership)
        state = position.recovered()
        print(offsets_table(state, sorted({*book.progresses(), *book.parking.parked()})))
        position.start_from(state)
        for name in rolled_back_topics(book.options(), settings.pipeline.name):
            forget_rollback(book.table(name), settings.pipeline.name)
    print(f"\nthe new checkpoint starts at these offsets; next commit identifier {state.base}")


def offsets_table(state: CheckpointState, tables: list[str]) -> str:
    """Format the start offset of every partition, and the offsets up to which tables are complete.

    Args:
        state: recovered state.
        tables: `database.table`, in the order of the output.
    """
    start = resume_token(state.initial)
    partitions = {(topic, key) for topic, parts in start.items() for key in parts}
    for name in (*tables, ANY_TABLE):
        floor = floor_of(state.floors, name)
        partitions |= {(topic, key) for topic, parts in floor.items() for key in parts}
    if not partitions:
        return "no table has data of this stream: it starts as its settings say"
    rows: list[list[Any]] = []
    for topic, key in sorted(partitions, key=lambda partition: (partition[0], int(partition[1]))):
        begin = start.get(topic, {}).get(key)
        rows.append([topic, key, "beginning" if begin is None else begin, "", ""])
        rows += [
            ["", "", "", name, complete]
            for name in tables
            if (complete := floor_of(state.floors, name).get(topic, {}).get(key)) is not None
        ]
    return aligned(["topic", "partition", "start", "table", "complete up to"], rows)
