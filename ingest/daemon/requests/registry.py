# SPDX-License-Identifier: Apache-2.0
"""Kinds of requests, and what their handlers may use.

To add a kind (`replay`, `resnapshot`, …):

1. write a handler in a module of its own in this package::

       def replay(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
           table = text_argument(arguments, "table")
           ...
           return Outcome("12 records replayed", {"records": 12})

2. add `RequestKind("replay", replay)` to `KINDS` in `request_handler.py`;
3. send it from a command: `request_and_wait(settings, "replay", {…}, options)` (`request_client`).

A handler runs on the daemon's main thread

* between two batches: the sink is idle and stays so until the handler returns; Spark's query waits;
* or, with `stops=True`, without a query: it is drained and stopped before (all its batches are
  recorded) and started again afterwards with what `pipeline` then holds. Only such a handler may
  call `use` or `position.rewind` of `pipeline`, or run Spark jobs that take long.

Rules:

* A request is removed after the final answer. If the process dies before, the request is handled
  again from the beginning: a handler must come to the same end then.
* A commit to a table needs a commit user of its own (`f"{stream}.replay"`), never the stream's: its
  identifiers are the batches'. Write with `table.new_write(user)` and `table.new_commit(user)`.
* Work of more than a second reports progress with `pipeline.progress("…")`, at least once a
  minute, which also keeps `/healthz` healthy; it ends early, with a `LakewardError`, when
  `pipeline.stopping()`.
* Errors are `LakewardError`s with a hint: they go into the answer, and the stream continues. Any
  other is a bug: it is answered as such and ends the daemon.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from ingest.config.settings import Settings
from ingest.source.records import OffsetJson
from ingest.state.ownership import Pausing
from ingest.state.stream_position import StreamPosition
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import InvalidRequestError


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a handler.

    Attributes:
        text: one sentence for people.
        result: plain values for machines.
    """

    text: str
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The idle stream as a handler sees it.

    Attributes:
        settings: in force.
        book: its tables; `book.parking` knows the parked ones.
        position: its checkpoint and offsets.
        reached: source offsets below which all batches are done, in the source's own form.
        spark: the session.
        clock: time.
        progress: reports progress to the client.
        stopping: whether a stop was requested meanwhile.
        reread: reads the configuration again; None when it did not come from files.
        use: puts other settings in force when the query starts again.
        pausing: whether the whole stream is paused.
        compact: schedules a compaction of a table.
    """

    settings: Settings
    book: TableRegistry
    position: StreamPosition
    reached: OffsetJson
    spark: SparkSession
    clock: Clock
    progress: Callable[[str], None]
    stopping: Callable[[], bool]
    reread: Callable[[], Settings] | None
    use: Callable[[Settings], None]
    pausing: Pausing
    compact: Callable[[str], None]


Handler = Callable[[Pipeline, Mapping[str, Any]], Outcome]


@dataclasses.dataclass(frozen=True, slots=True)
class RequestKind:
    """One kind.

    Attributes:
        name: as requests name it.
        handler: see the module.
        stops: whether the query must be stopped for it.
    """

    name: str
    handler: Handler
    stops: bool = False


def text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """A text of a request.

    Raises:
        InvalidRequestError: it is missing or no text.
    """
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError("the request lacks an argument", argument=name)
    return value


def tables_argument(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The `tables` of a request, sorted.

    Raises:
        InvalidRequestError: there are none, or one is not `database.table`.
    """
    names = arguments.get("tables")
    if not isinstance(names, list) or not names:
        raise InvalidRequestError("the request names no tables")
    for name in names:
        if not isinstance(name, str) or name.count(".") != 1 or not all(name.split(".")):
            raise InvalidRequestError("not a table: write database.table", table=name)
    return tuple(sorted(set(names)))
