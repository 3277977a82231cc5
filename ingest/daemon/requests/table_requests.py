# SPDX-License-Identifier: Apache-2.0
"""Requests `pause`, `resume` of tables; `pause_stream`, `resume_stream`; `compact` of a table."""

from collections.abc import Mapping
from typing import Any

from ingest.config.source_settings import FileSourceSettings
from ingest.daemon.requests.registry import (
    Outcome,
    Pipeline,
    RequestKind,
    tables_argument,
    text_argument,
)
from storage.errors import InvalidRequestError

__all__ = ["COMPACT", "PAUSE", "PAUSE_STREAM", "RESUME", "RESUME_STREAM"]


def pause_stream(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Pause the stream after the batch that is planned; idempotent."""
    reason = str(arguments.get("reason") or "paused by hand")
    if pipeline.pausing.set(reason, now_ms=pipeline.clock.now_ms()):
        return Outcome("the stream is paused, also over restarts, until it is resumed")
    return Outcome("the stream is paused already")


def resume_stream(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Resume the stream from where it was paused."""
    del arguments
    if pipeline.pausing.clear():
        return Outcome("the stream resumes from where it was paused")
    return Outcome("the stream is not paused")


def compact(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Compact a table in the background; idempotent."""
    table = text_argument(arguments, "table")
    if table not in pipeline.book.schema_ids():
        raise InvalidRequestError(
            "there is no such table", hint="write database.table, as `status` does", table=table
        )
    if pipeline.compact is None:
        raise InvalidRequestError(
            "there is no background compaction", hint="use `lakeward compact`"
        )
    pipeline.compact(table)
    return Outcome(f"{table} is compacted in the background", {"table": table})


PAUSE_STREAM = RequestKind("pause_stream", pause_stream)
RESUME_STREAM = RequestKind("resume_stream", resume_stream)
COMPACT = RequestKind("compact", compact)


def pause(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Park tables from the next batch on; idempotent."""
    tables = tables_argument(arguments)
    reason = str(arguments.get("reason") or "paused by hand")
    if pipeline.book.quarantine in tables:
        raise InvalidRequestError(
            "the quarantine table cannot be parked",
            hint="without it records that cannot be decoded would be lost",
            table=pipeline.book.quarantine,
        )
    known = set(pipeline.book.schema_ids()) | set(pipeline.book.parking.parked())
    unknown = [name for name in tables if name not in known]
    if unknown and not arguments.get("unknown"):
        raise InvalidRequestError(
            "there is no such table",
            hint="with --unknown a table can be parked before it exists",
            table=", ".join(unknown),
        )
    now_ms = pipeline.clock.now_ms()
    parked = [
        name
        for name in tables
        if pipeline.book.parking.park(
            name, reason=reason, by="person", since=pipeline.reached, now_ms=now_ms
        )
    ]
    already = [name for name in tables if name not in parked]
    text = f"parked {', '.join(parked)}" if parked else "nothing to do"
    if already:
        text += f"; parked before: {', '.join(already)}"
    return Outcome(text, {"parked": parked, "already": already})


def resume(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Write parked tables again, from where they were parked."""
    tables = tables_argument(arguments)
    parked = pipeline.book.parking.parked()
    wanted = [name for name in tables if name in parked]
    if len(wanted) < len(tables) and not set(tables) <= {*parked, *pipeline.book.parking.behind}:
        missing = [name for name in tables if name not in parked]
        raise InvalidRequestError(
            "the table is not parked",
            hint="`lakeward status` shows the parked tables",
            table=", ".join(missing),
        )
    if not wanted:  # handled again after a crash
        return Outcome("catching up already", {"resumed": [], "again": {}})
    pipeline.book.load()
    pipeline.book.require(wanted)
    if arguments.get("skip_missed"):
        pipeline.book.parking.resume(wanted, {})
        text = f"resumed {', '.join(wanted)}; what was missed is left out"
        return Outcome(text, {"resumed": wanted, "again": {}})
    pipeline.progress(f"rewinding for {', '.join(wanted)}")
    again = pipeline.position.rewind(wanted)
    what = "nothing was missed"
    if again and isinstance(pipeline.settings.source, FileSourceSettings):
        what = f"{len(again)} topics are read again"  # its offsets do not count records
    elif again:
        count = sum(end - start for parts in again.values() for start, end in parts.values())
        what = f"{count} offsets are read again"
    return Outcome(f"resumed {', '.join(wanted)}; {what}", {"resumed": wanted, "again": again})


PAUSE = RequestKind("pause", pause)
RESUME = RequestKind("resume", resume, stops=True)
