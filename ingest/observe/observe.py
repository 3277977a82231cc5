# SPDX-License-Identifier: Apache-2.0
"""Observability of the daemon: logs, metrics, status board, lag poll, HTTP endpoint.

One object, so that the daemon and the sink report events instead of setting gauges. Nothing here
may stop a batch: a failed lag poll is counted, and its series become absent after a time.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.config.source_settings import SourceSettings
from ingest.errors import AccessDeniedError
from ingest.observe.alerts import Alerts
from ingest.observe.control import Control
from ingest.observe.http_server import HttpServer
from ingest.observe.metrics.instruments import TableNames
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.offset_mirror import OffsetMirror
from ingest.observe.runtime_watch import RuntimeWatch, digest_of, java_version
from ingest.observe.status.status_board import StatusBoard
from ingest.observe.text_table import human_time
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.schema_modes import Outcome
from ingest.source.open import LagProbe
from ingest.source.ranges import OffsetMap
from ingest.state.parking import ParkedTable, Pause
from ingest.state.request_files import Answer, RequestFiles
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import LakewardError

_LOG = logging.getLogger(__name__)

LAG_POLL_S = 15.0
"""Interval of polls of the source's offsets [s]; one cheap request per partition."""


SettingsLines = Callable[[], Sequence[tuple[str, str, str]]]
"""Returns the settings in force: key, redacted value, origin."""


class Observer:
    """See the module. Context manager: opens the endpoint on entry and closes it on exit.

    Args:
        settings: settings of the pipeline.
        clock: clock.
        settings_lines: returns the settings in force with their origins; None = set by a program.
    """

    def __init__(
        self, settings: Settings, clock: Clock, settings_lines: SettingsLines | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._settings_lines = settings_lines
        self._unfinished: int | None = None  # batch that began here and was not recorded
        self._is_retry = False
        self._case_matches: set[tuple[str, str, str]] = set()
        configured = settings.metrics
        self.metrics = Metrics(
            clock,
            tables=TableNames(per_table=configured.per_table, most=configured.max_tables),
            labels=configured.labels,
        )
        self._set_config(settings)
        paths = RuntimeWatch.paths_of(settings.pipeline.checkpoint, settings.sink.warehouse)
        self._runtime = RuntimeWatch(self.metrics.instruments, paths)
        self.board = StatusBoard(settings.pipeline.name, clock)
        name = settings.pipeline.name
        self._alerts = Alerts(name, settings.alerts, clock, self.metrics.webhook_called)
        self._mirror = OffsetMirror.of(settings)
        self._control: Control | None = None
        self._paused: Pause | None = None
        self._server: HttpServer | None = None
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._poller: threading.Thread | None = None
        self._committed: dict[tuple[str, int], int] = {}

    def __enter__(self) -> "Observer":
        endpoint = self._settings.metrics
        if endpoint.enabled:
            server = HttpServer(
                self.metrics,
                self.board,
                host=endpoint.host,
                port=endpoint.port,
                control=self._control,
                more=lambda: {"alerts": self._alerts.document()},
            )
            self._server = server.start()
            _LOG.info("endpoint open", extra={"event": "endpoint", "url": server.url})
        self._runtime.start()
        self.board.set_condition("configuration", ok=True)
        self._show_settings()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._changed.set()
        if self._poller is not None:
            self._poller.join(timeout=LAG_POLL_S)
        if self._mirror is not None:
            self._mirror.close()
        self._alerts.close()
        self._runtime.close()
        if self._server is not None:
            self._server.close()

    def let_control(
        self, files: RequestFiles, *, drain: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        """Enable control over HTTP, if a token is configured; call it before entering."""
        token = self._settings.control.token
        self._control = Control(token, files, drain=drain, wake=wake, clock=self._clock)

    def answered(self, answer: Answer) -> None:
        """Report that a request was completed or refused."""
        self.board.answered(answer)

    def _show_settings(self) -> None:
        settings = self._settings
        if self._settings_lines is not None:
            lines = self._settings_lines()
        else:
            lines = [(key, text, "program") for key, text in _flat(settings.redacted())]
        self.board.set_settings(lines, settings.pipeline.trigger_interval_s)
        self.board.set_fact("warehouse", settings.sink.warehouse)

    def _set_config(self, settings: Settings) -> None:
        trigger = settings.pipeline.trigger_interval_s
        self.metrics.set_config(settings.pipeline.name, digest_of(settings), trigger)

    def started(self, spark: SparkSession) -> None:
        """Report that the Spark session has started; start to poll the source."""
        self.board.set_condition("session", ok=True)
        self.board.watch_engine(_engine_alive(spark))
        self.board.set_fact("spark", spark.version)
        self.metrics.set_build(java=java_version(spark))
        self._runtime.use_session(spark)
        self._state("running")
        self._poller = threading.Thread(target=self._poll, name="lag", daemon=True)
        self._poller.start()
        _LOG.info(
            "running",
            extra={
                "event": "running",
                "pipeline": self._settings.pipeline.name,
                "warehouse": self._settings.sink.warehouse,
                "master": spark.sparkContext.master,
            },
        )

    def use_settings(self, settings: Settings) -> None:
        """Apply reloaded settings."""
        self._settings = settings
        self._set_config(settings)
        self._changed.set()
        self._alerts.use_settings(settings.alerts)
        if self._control is not None:
            self._control.use_token(settings.control.token)
        self._show_settings()

    def resuming_at(self, offsets: OffsetMap) -> None:
        """Report the start offsets, so that lag is correct before the first batch."""
        self.metrics.record_committed(offsets)
        self.board.set_offsets(offsets)
        self._remember(offsets)
        self._show(offsets)

    def _show(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        if self._mirror is not None:
            self._mirror.commit(offsets)

    def _remember(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        self._committed |= {
            (topic, int(partition)): offset
            for topic, parts in offsets.items()
            for partition, offset in parts.items()
        }

    def beat(self) -> None:
        """Report that the main loop is alive."""
        self.board.beat()
        if self.board.sample_due:
            lags = self.metrics.lag()
            self.board.sample(sum(lags.values()) if lags else None, self.metrics.freshness_s())

    def batch_started(self, batch_id: int) -> None:
        """Report the start of a batch."""
        self._is_retry = batch_id == self._unfinished
        self._unfinished = batch_id
        self.board.batch_started(batch_id)
        self.metrics.batch_started()

    def batch(self, report: BatchReport) -> None:
        """Report that a batch is committed in all its tables."""
        self.metrics.record(report, again=self._is_retry)
        self._unfinished = None
        self.board.record(report)
        self._alerts.batch(report)
        self._remember(report.end_offsets)
        self._show(report.end_offsets)
        for topic, violations in sorted(report.ordering_violations.items()):
            key, partition, other_partition = min(violations)
            _LOG.warning(
                "a key occurs in two partitions: the order of its changes is undefined; see "
                "source.ordering",
                extra={
                    "event": "ordering_violation",
                    "topic": topic,
                    "key_hash": f"{key:016x}",
                    "partitions": [partition, other_partition],
                    "keys": len(violations),
                },
            )
        _LOG.log(
            logging.DEBUG if report.events == 0 else logging.INFO,
            "batch done",
            extra={
                "event": "batch",
                **report.facts(),
                "quarantined": report.bad_records,
                **{
                    f"{phase}_s": round(seconds, 3)
                    for phase, seconds in report.phases.items()
                    if not phase.startswith("task_")
                },
            },
        )
        for table, decision in report.schema_verdicts:
            _LOG.log(
                logging.INFO if decision.outcome is Outcome.APPLIED else logging.WARNING,
                "schema change %s",
                decision.outcome.value,
                extra={"event": "schema_change", "table": table, "change": decision.text},
            )
        for match in sorted(set(report.case_matches) - self._case_matches):
            self._case_matches.add(match)
            table, member, column = match
            _LOG.warning(
                "a column of events is matched to a column with another spelling "
                "(source.names.case)",
                extra={
                    "event": "column_matched",
                    "table": table,
                    "member": member,
                    "column": column,
                },
            )
        for table, reason in report.parked:
            _LOG.error(
                "table parked, other tables continue",
                extra={"event": "table_parked", "table": table, "reason": reason},
            )

    def tables(self, book: TableRegistry) -> None:
        """Report which tables are running, parked, or catching up."""
        parked = book.parking.parked()
        states: dict[str, str] = dict.fromkeys(book.progresses(), "running")
        states |= dict.fromkeys(book.parking.catching_up, "behind") | dict.fromkeys(
            parked, "parked"
        )
        self.metrics.set_table_states(states)
        feeds = {name: tuple(progress.offsets) for name, progress in book.progresses().items()}
        self.metrics.set_feeds(feeds)
        self.board.set_table_states(
            {
                name: {"state": state, **_park_reason(parked.get(name))}
                for name, state in states.items()
            }
        )
        self._alerts.tables(states, {name: entry.reason for name, entry in parked.items()})

    def querying(self, query: StreamingQuery) -> None:
        """Report the start of a Spark query."""
        self._runtime.use_query(query)

    def failed(self, error: BaseException) -> None:
        """Report a failure of the query; it is restarted or the process exits."""
        self.metrics.query_failed()
        self.metrics.batch_failed()
        self.board.failed(error)

    def waiting(self, error: BaseException | None) -> None:
        """Report whether the daemon waits for an unavailable dependency, with its error."""
        self.metrics.set_outage(error is not None)
        self.board.set_fact("waiting_for", None if error is None else str(error).split("\n")[0])

    def recovered(self) -> None:
        """Report recovery from a failure."""
        self.waiting(None)
        self.board.set_condition("last_batch", ok=True)

    def owning(self, epoch: int) -> None:
        """Report ownership of the stream with its epoch."""
        self.board.set_condition("owner", ok=True)
        self.board.set_fact("epoch", epoch)
        self.metrics.set_epoch(epoch)

    def trying_again(self, error: BaseException) -> None:
        """Report that the query is restarted after an error."""
        self._alerts.failed(error, fatal=False)

    def running(self) -> None:
        """Report that the query is running."""
        self._state("running" if self._paused is None else "paused")

    def paused(self, pause: Pause | None) -> None:
        """Report whether the stream is paused."""
        if pause != self._paused:
            self._paused = pause
            self.running()
            _LOG.info(
                "the stream is resumed" if pause is None else "the stream is paused",
                extra={"event": "paused" if pause else "unpaused"}
                | ({"reason": pause.reason} if pause else {}),
            )
        self.board.set_paused(pause)
        self._alerts.paused(None if pause is None else pause.reason)

    def draining(self) -> None:
        """Report that no further batch starts."""
        self._state("draining")

    def stopping(self) -> None:
        """Report that the Spark session is about to stop."""
        self._runtime.forget_session()

    def ended(self, error: BaseException | None = None) -> None:
        """Report that the process is about to exit, possibly with an error."""
        self._state("idle" if error is None else "failed")
        if error is not None:
            self._alerts.failed(error, fatal=True)

    def _state(self, state: str) -> None:
        self.metrics.set_state(state)
        self.board.set_state(state)

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._changed.clear()
            self._poll_source(self._settings.source)

    def _poll_source(self, source: SourceSettings) -> None:
        with LagProbe(source) as probe:
            while not self._ended.is_set():
                try:
                    watermarks = probe.poll(dict(self._committed))
                    self.metrics.record_watermarks(watermarks, probe.silent())
                    self.board.set_condition("source", ok=True)
                except (LakewardError, OSError) as error:
                    denied = isinstance(error, AccessDeniedError)
                    self.metrics.source_error("auth" if denied else "transport")
                    self.board.set_condition("source", ok=False, reason=str(error))
                    _LOG.warning(
                        "polling the source failed", extra={"event": "lag_poll", "error": error}
                    )
                if self._changed.wait(LAG_POLL_S):
                    return


def _park_reason(entry: ParkedTable | None) -> dict[str, str]:
    if entry is None:
        return {}
    return {"reason": entry.reason, "by": entry.by, "parked_at": human_time(entry.parked_ms)}


def _engine_alive(spark: SparkSession) -> Callable[[], bool]:
    """Return a check whether the JVM process of a session is alive; it makes no call to the JVM."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return lambda: process is None or process.poll() is None


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, str(value)
