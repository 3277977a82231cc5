# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of requests: polls for them, runs their handlers, answers.

One request at a time, oldest first. A request in progress when the process died is handled again
unless it has a final answer.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.settings import Settings
from ingest.config.source_settings import FileSourceSettings
from ingest.daemon import configuration
from ingest.daemon.requests.registry import (
    Outcome,
    Pipeline,
    RequestKind,
    tables_argument,
    text_argument,
)
from ingest.daemon.requests.replay import drop_bad, replay
from ingest.state.request_files import RETENTION_MS, Answer, Request, RequestFiles
from ingest.transform.rules import key_recipe, transform_rule
from storage.clock import Clock
from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    RetryableError,
)

_UNCHANGEABLE: Mapping[str, Callable[[Settings], Any]] = {
    "pipeline.name": lambda s: s.pipeline.name,
    "pipeline.checkpoint": lambda s: s.pipeline.checkpoint,
    "pipeline.owner.ttl": lambda s: s.life.owner_ttl_s,
    "source.offsets.group": lambda s: s.life.offsets_group,
    "source.type": lambda s: type(s.source).__name__,
    "source.format": lambda s: s.format,
    "source.ordering": lambda s: s.events.ordering,
    "sink.warehouse": lambda s: s.sink.warehouse,
    "sink.options": lambda s: dict(s.sink.options),
    "sink.catalog": lambda s: dict(s.sink.catalog),
    "bad.records.table": lambda s: s.bad_records.table,
    "metrics": lambda s: s.metrics,
    "log.format": lambda s: s.log.format,
    "spark": lambda s: s.spark,
}


def fixed_changes(old: Settings, new: Settings, tables: Mapping[str, Any]) -> list[str]:
    """Keys of changed settings that are fixed.

    Args:
        old: settings in force.
        new: requested settings.
        tables: existing tables by `database.table`; their primary keys are fixed.
    """
    keys = [key for key, value in _UNCHANGEABLE.items() if value(old) != value(new)]
    for name in sorted(tables):
        if old.primary_key(name) != new.primary_key(name):
            keys.append(f"tables[].primary.key of {name}")
        elif _recipe(old, name) != _recipe(new, name):
            keys.append(f"tables[], how the primary key of {name} is computed or masked")
    return keys


def _recipe(settings: Settings, name: str) -> Mapping[str, str]:
    key, zone = settings.primary_key(name), settings.sink.time_zone
    return key_recipe(transform_rule(settings, name), key, zone)


def changed_sections(old: Settings, new: Settings) -> list[str]:
    """Sections that differ between two settings."""
    return [name for name in old.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]


def reload(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Read the configuration again."""
    del arguments
    if pipeline.reread is None:
        raise InvalidRequestError(
            "this daemon's configuration cannot be read again",
            hint="it came from standard input or from a program: restart it",
        )
    old, new = pipeline.settings, pipeline.reread()
    sections = changed_sections(old, new)
    if not sections:
        return Outcome("nothing has changed", {"changed": []})
    fixed = fixed_changes(old, new, pipeline.book.schema_ids())
    if fixed:
        raise InvalidOptionError(
            "these settings cannot change while the pipeline runs",
            hint="restart the daemon, or revert the change; until then the old settings apply",
            keys=", ".join(fixed),
        )
    _check(old, new)
    pipeline.use(new)
    _LOG.info("settings changed", extra={"event": "reload", "changed": ", ".join(sections)})
    return Outcome(f"continues with new settings: {', '.join(sections)}", {"changed": sections})


def _check(old: Settings, new: Settings) -> None:
    """Check that it can start; source and schema registry are contacted only if changed."""
    findings = configuration.offline(new)
    if new.source != old.source:
        findings.append(configuration.source(new))
    if new.avro is not None and new.avro != old.avro:
        findings.append(configuration.registry(new.avro.registry))
    for finding in findings:
        if not finding.ok:
            raise InvalidOptionError(
                f"the new settings fail a check: {finding.name}",
                detail=finding.finding,
                hint="until they pass the old settings apply",
            )


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
    pipeline.compact(table)
    return Outcome(f"{table} is compacted in the background", {"table": table})


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
    existing_names = set(pipeline.book.schema_ids()) | set(pipeline.book.parking.parked())
    unknown = [name for name in tables if name not in existing_names]
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
    targets = [name for name in tables if name in parked]
    if len(targets) < len(tables) and not set(tables) <= {
        *parked,
        *pipeline.book.parking.catching_up,
    }:
        missing = [name for name in tables if name not in parked]
        raise InvalidRequestError(
            "the table is not parked",
            hint="`lakeward status` shows the parked tables",
            table=", ".join(missing),
        )
    if not targets:  # handled again after a crash
        return Outcome("catching up already", {"resumed": [], "again": {}})
    pipeline.book.load()
    pipeline.book.require(targets)
    if arguments.get("skip_missed"):
        pipeline.book.parking.resume(targets, {})
        text = f"resumed {', '.join(targets)}; what was missed is left out"
        return Outcome(text, {"resumed": targets, "again": {}})
    pipeline.progress(f"rewinding for {', '.join(targets)}")
    again = pipeline.position.rewind(targets)
    detail = "nothing was missed"
    if again and isinstance(pipeline.settings.source, FileSourceSettings):
        detail = f"{len(again)} topics are read again"  # its offsets do not count records
    elif again:
        count = sum(end - start for parts in again.values() for start, end in parts.values())
        detail = f"{count} offsets are read again"
    return Outcome(f"resumed {', '.join(targets)}; {detail}", {"resumed": targets, "again": again})


_LOG = logging.getLogger(__name__)

POLL_EVERY_S = 2.0
"""Interval of polls for requests [s]: one listing, on an object store a paid request."""

_CLEAN_EVERY_S = 3600.0

KINDS: Mapping[str, RequestKind] = {
    kind.name: kind
    for kind in (
        RequestKind("pause", pause),
        RequestKind("resume", resume, stops=True),
        RequestKind("pause_stream", pause_stream),
        RequestKind("resume_stream", resume_stream),
        RequestKind("reload", reload, stops=True),
        RequestKind("compact", compact),
        RequestKind("replay", replay),
        RequestKind("drop_bad", drop_bad),
    )
}
"""All kinds of requests. How to write one: `ingest.daemon.requests.registry`."""

OpenPipeline = Callable[[Callable[[str], None]], Pipeline]
"""Creates the handler's view of the stream, from the function that reports progress."""


class RequestHandler:
    """See the module. Used by the daemon's main thread; `add` and `wake` by any.

    Args:
        files: where requests come from.
        kinds: handlers by name.
        on_answer: called with every final answer, including those to local requests.
    """

    def __init__(
        self,
        files: RequestFiles,
        clock: Clock,
        kinds: Mapping[str, RequestKind] = KINDS,
        on_answer: Callable[[Answer], None] | None = None,
    ) -> None:
        self._files = files
        self._on_answer = on_answer
        self._kinds = kinds
        self._clock = clock
        self._local_kinds: list[str] = []
        self._polled_s: float | None = None
        self._cleaned_s: float | None = None

    def add(self, kind: str) -> None:
        """Add a local request, such as a signal's; its answer is a log line."""
        if kind not in self._local_kinds:
            self._local_kinds.append(kind)

    def wake(self) -> None:
        """Poll as soon as possible: a request was just written here."""
        self._polled_s = None

    def poll(self) -> list[RequestKind]:
        """Kinds of the waiting requests; none within `POLL_EVERY_S` after the last poll.

        None also if the store does not answer: batches will report that.
        """
        now_s = self._clock.monotonic_s()
        soon = self._polled_s is not None and now_s - self._polled_s < POLL_EVERY_S
        if soon and not self._local_kinds:
            return []
        self._polled_s = now_s
        try:
            self._clean(now_s)
            return [self._kind(request) for request in self._pending_requests()]
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "requests cannot be listed", extra={"event": "requests_away", "error": error}
            )
            return []

    def serve(self, open_pipeline: OpenPipeline, *, stopped: bool) -> int:
        """Handle waiting requests; without `stopped`, up to the first that needs the query stopped.

        Returns:
            How many were handled.
        """
        count = 0
        try:
            requests = self._pending_requests()
        except (RetryableError, OSError) as error:
            _LOG.warning(
                "requests cannot be listed", extra={"event": "requests_away", "error": error}
            )
            return 0
        for request in requests:
            kind = self._kind(request)
            if kind.stops and not stopped:
                break
            self._handle(request, kind, open_pipeline)
            count += 1
        return count

    def _pending_requests(self) -> list[Request]:
        now_ms = self._clock.now_ms()
        requests = [
            Request(id="", kind=kind, arguments={}, made_ms=now_ms) for kind in self._local_kinds
        ]
        return requests + self._files.pending()

    def _kind(self, request: Request) -> RequestKind:
        if self._clock.now_ms() - request.made_ms > RETENTION_MS:
            return RequestKind(request.kind, _expired)
        return self._kinds.get(request.kind) or RequestKind(request.kind, self._refuse_unknown)

    def _refuse_unknown(self, pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
        del pipeline, arguments
        raise InvalidRequestError(
            "no such request",
            hint=f"this daemon knows {', '.join(sorted(self._kinds))}; is it of another version?",
        )

    def _handle(self, request: Request, kind: RequestKind, open_pipeline: OpenPipeline) -> None:
        if request.id and self._answer_next(request):
            self._files.remove(request)
            return
        pipeline = open_pipeline(functools.partial(self._progress, request))
        try:
            outcome = kind.handler(pipeline, request.arguments)
        except (LakewardError, OSError) as error:
            self._answer_failure(request, error)
        except BaseException as error:
            self._answer_failure(request, error)
            raise
        else:
            self._answer(request, "done", outcome.text, result=outcome.result)
            _LOG.info(
                "request done",
                extra={"event": "request", "kind": request.kind, "outcome": outcome.text},
            )
        if request.id:
            self._files.remove(request)
        else:
            self._local_kinds.remove(request.kind)

    def _answer_next(self, request: Request) -> bool:
        try:
            answer = self._files.answer(request.id)
        except CorruptDataError:
            return False
        return answer is not None and answer.final

    def _answer_failure(self, request: Request, error: BaseException) -> None:
        if isinstance(error, LakewardError):
            facts = ", ".join(f"{key} = {value}" for key, value in error.context.items())
            text = error.message + (f" ({facts})" if facts else "")
            text += f": {error.detail}" if error.detail else ""
        else:
            text = str(error) or type(error).__name__
        hint = error.hint if isinstance(error, LakewardError) else ""
        self._answer(request, "failed", text, error=type(error).__name__, hint=hint)
        _LOG.warning(
            "request failed",
            extra={"event": "request_failed", "kind": request.kind, "error": str(error)},
        )

    def _progress(self, request: Request, text: str) -> None:
        self._answer(request, "working", text)

    def _answer(self, request: Request, state: Any, text: str, **more: Any) -> None:
        now_ms = self._clock.now_ms()
        answer = Answer(
            id=request.id, kind=request.kind, state=state, text=text, at_ms=now_ms, **more
        )
        if request.id:
            self._files.write(answer)
        if answer.final and self._on_answer is not None:
            self._on_answer(answer)

    def _clean(self, now_s: float) -> None:
        if self._cleaned_s is None or now_s - self._cleaned_s >= _CLEAN_EVERY_S:
            self._cleaned_s = now_s
            self._files.clean(self._clock.now_ms())


def _expired(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    del pipeline, arguments
    raise InvalidRequestError("the request has expired", hint="send it again if it still applies")
