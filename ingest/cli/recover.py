# SPDX-License-Identifier: Apache-2.0
"""`lakeward run --recover-offsets`: where a stream goes on when only its tables are believed.

The same happens by itself when the checkpoint's directory is empty; this is for a checkpoint that
is there and wrong, such as one restored from an old backup.
"""

from collections.abc import Mapping
from typing import Any

from ingest.config.settings import Settings
from ingest.observe.text_table import aligned
from ingest.source.ranges import ANY_TABLE, floor_of, resume_token
from ingest.state.lease import owned_stream
from ingest.state.rolled_back import forget_rollback, rolled_back_topics
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_state import CheckpointState
from ingest.state.table_registry import TableBook
from storage.clock import SystemClock

__all__ = ["offsets_table", "recover_offsets"]


def recover_offsets(settings: Settings, *, dry_run: bool, take_over: bool = False) -> None:
    """Show the recovered offsets and, unless it is a dry run, make them the checkpoint's.

    Raises:
        StreamHeldError: the pipeline's daemon runs.
        RetryableError: the source did not answer.
    """
    if dry_run:
        book = TableBook(settings, SystemClock())
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
    print(f"\nthe checkpoint starts here now; next commit identifier {state.base}")


def offsets_table(state: CheckpointState, tables: list[str]) -> str:
    """Where every partition starts, and below which offset each table has everything.

    Args:
        state: recovered.
        tables: `database.table`, in the order wanted.
    """
    start = resume_token(state.initial)
    places = {(topic, key) for topic, parts in start.items() for key in parts}
    for name in (*tables, ANY_TABLE):
        places |= {(t, key) for t, parts in floor_of(state.floors, name).items() for key in parts}
    if not places:
        return "no table holds anything of this stream: it starts as its settings say"
    rows: list[list[Any]] = []
    for topic, key in sorted(places, key=lambda place: (place[0], int(place[1]))):
        begin = start.get(topic, {}).get(key)
        rows.append([topic, key, "beginning" if begin is None else begin, "", ""])
        rows += [
            ["", "", "", name, held]
            for name in tables
            if (held := _held(floor_of(state.floors, name), topic, key)) is not None
        ]
    return aligned(["topic", "partition", "start", "table", "holds up to"], rows)


def _held(floor: Mapping[str, Mapping[str, int]], topic: str, key: str) -> int | None:
    return floor.get(topic, {}).get(key)
