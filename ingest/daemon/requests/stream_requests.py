# SPDX-License-Identifier: Apache-2.0
"""`pause_stream`, `resume_stream`: the whole stream; `compact`: a table, in the background."""

from collections.abc import Mapping
from typing import Any

from ingest.daemon.requests.registry import Outcome, Pipeline, RequestKind, text_argument
from storage.errors import InvalidRequestError

__all__ = ["COMPACT", "PAUSE_STREAM", "RESUME_STREAM"]


def pause_stream(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Read nothing more after the batch that is planned. A paused stream stays as it is."""
    reason = str(arguments.get("reason") or "paused by hand")
    if pipeline.pausing.set(reason, now_ms=pipeline.clock.now_ms()):
        return Outcome("the stream is paused, also over restarts, until it is resumed")
    return Outcome("the stream is paused already")


def resume_stream(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Read again from where the stream was paused."""
    del arguments
    if pipeline.pausing.clear():
        return Outcome("the stream goes on from where it was paused")
    return Outcome("the stream is not paused")


def compact(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Have a table compacted beside the stream. Asked twice, it is done once or finds nothing."""
    table = text_argument(arguments, "table")
    if table not in pipeline.book.schema_ids():
        raise InvalidRequestError(
            "there is no such table", hint="write database.table, as `status` does", table=table
        )
    if pipeline.compact is None:
        raise InvalidRequestError("nothing compacts here", hint="use `lakeward compact`")
    pipeline.compact(table)
    return Outcome(f"{table} is compacted in the background", {"table": table})


PAUSE_STREAM = RequestKind("pause_stream", pause_stream)
RESUME_STREAM = RequestKind("resume_stream", resume_stream)
COMPACT = RequestKind("compact", compact)
