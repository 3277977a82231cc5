# SPDX-License-Identifier: Apache-2.0
"""Life of the daemon: start, supervise the query, drain, stop.

Start-up order matters: tables are opened before the checkpoint's state is made (the base and the
starting offsets come from them), the state file is durable before Spark's query starts, and the
query starts last.

A stop signal sets the drain flag: the source offers no further offsets, the sink's gate refuses a
batch that slipped through, the running batch ends and is recorded, then the query is stopped. A
second signal ends the process at once, which is safe: the batch is done again at the next start.

Requests (`ingest.daemon.requests`) are served before every start of the query and between batches;
those
that need it stopped have it drained, and started again in the same process. So has a calendar clock
that was set back.
"""

import contextlib
import faulthandler
import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.daemon.clock_watch import SetBackClock
from ingest.daemon.maintenance.maintenance import Maintenance
from ingest.daemon.query_failure import as_error, cause_of
from ingest.daemon.requests.desk import RequestDesk
from ingest.daemon.requests.kinds import KINDS
from ingest.daemon.requests.registry import Pipeline
from ingest.daemon.retry import Patience, Persistence
from ingest.daemon.signals import ABANDON_S, DaemonSignals, end_process_in
from ingest.daemon.spark_query import end_query, open_session, require_jvm, start_query
from ingest.errors import ExitCode, GivenUpError, exit_code_of, kind_of
from ingest.kubernetes.pods import default_parallelism
from ingest.logs import set_levels
from ingest.observe.observe import Observer, ShownSettings
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.job_outcome import Unfinished
from ingest.pipeline.quarantine.dead_letters import DeadLetters
from ingest.pipeline.sink import MicroBatchSink, StopRequested
from ingest.source.control import write_control, write_topic_waits
from ingest.source.ranges import resume_token
from ingest.state.fencing import lost_or, settle
from ingest.state.lease import StreamHeldError
from ingest.state.owned_stream import lease_of
from ingest.state.pausing import Pausing
from ingest.state.request_files import RequestFiles
from ingest.state.rolled_back import require_not_taken_back
from ingest.state.stream_position import StreamPosition, newest_number
from ingest.state.table_registry import TableBook
from storage.clock import Clock, SystemClock
from storage.errors import FencedError, LakewardError

__all__ = ["Daemon", "run", "topic_waits"]


def topic_waits(
    settings: Settings, feeds: Mapping[str, Iterable[str]], own: Collection[str]
) -> dict[str, float]:
    """Seconds that records of a topic may wait [s]; topics that may not are not in it.

    Args:
        settings: of the pipeline.
        feeds: topics by table.
        own: tables of Lakeward's own, fed by topics of others.
    """
    found: dict[str, float] = {}
    for table, topics in feeds.items():
        if table in own:
            continue
        wait_s = settings.rule_value(table, lambda rule: rule.freshness_s)
        if wait_s is None:
            wait_s = settings.pipeline.idle_commit_s or 0.0
        for topic in topics:
            found[topic] = min(found.get(topic, wait_s), wait_s)
    shortest = settings.pipeline.trigger_interval_s
    return {topic: wait_s for topic, wait_s in found.items() if wait_s > shortest}


_LOG = logging.getLogger(__name__)

_RECORD_TIMEOUT_S = 30.0
"""How long a drain waits for Spark to record the finished batch [s]; it takes milliseconds. When it
does not, the batch is done again after the restart and skipped by its identifier."""


def run(
    settings: Settings,
    *,
    once: bool = False,
    on_batch: Callable[[BatchReport], None] | None = None,
    reread: Callable[[], Settings] | None = None,
    take_over: bool = False,
    shown: ShownSettings | None = None,
) -> int:
    """Run the pipeline until it is told to stop, or, with `once`, until the backlog is done.

    Args: as of `Daemon`.

    Returns:
        The process's exit code.
    """
    return Daemon(
        settings,
        once=once,
        on_batch=on_batch,
        reread=reread,
        take_over=take_over,
        shown=shown,
    ).run()


class Daemon:
    """One pipeline in one process.

    Args:
        settings: what to run.
        once: drain what is there and end.
        on_batch: told of every finished batch, after logs and metrics.
        session: a running Spark session to use and to leave running; None = one of its own.
        clock: time.
        reread: reads the settings again, for `reload`; None = they cannot be.
        take_over: end another daemon that owns the stream.
        shown: tells the settings that were read last, for `/config`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        once: bool = False,
        on_batch: Callable[[BatchReport], None] | None = None,
        session: SparkSession | None = None,
        clock: Clock | None = None,
        reread: Callable[[], Settings] | None = None,
        take_over: bool = False,
        shown: ShownSettings | None = None,
    ) -> None:
        self._settings = settings
        self._once = once
        self._extra_on_batch = on_batch
        self._given_session = session
        self._clock = clock or SystemClock()
        self._unfinished = Unfinished()
        self._calendar = SetBackClock(self._clock)
        self._stop = threading.Event()
        self._checkpoint = Path(settings.pipeline.checkpoint)
        self._book = TableBook(settings, self._clock)
        self._observer = Observer(settings, self._clock, shown)
        self._maintenance = Maintenance(self._book, self._clock, self._observer.metrics)
        self._take_over = take_over
        self._lease = lease_of(settings, self._book, self._clock)
        self._position = StreamPosition(settings, self._book, self._lease.ownership)
        self._batch_began_s: float | None = None
        self._given_up: GivenUpError | None = None
        patience = Patience(self._clock, settings.life.outage_timeout_s)
        self._persistence = Persistence(patience, self._observer, self._stop, once=once)
        self._signals = DaemonSignals(
            stop=self.request_stop,
            overdue=self._give_up,
            reload=self.request_reload,
            grace_s=lambda: self._settings.life.stop_timeout_s,
        )
        self._reread = reread
        self._turning = False
        self._waits: dict[str, float] | None = None
        self._draining = threading.Event()
        place = (self._book.file_io, settings.sink.warehouse, settings.pipeline.name)
        self._pausing = Pausing(*place)
        files = RequestFiles(*place)
        self._desk = RequestDesk(files, KINDS, self._clock, self._observer.answered)
        self._observer.let_control(files, drain=self._signals.stop, wake=self._desk.hurry)

    def run(self) -> int:
        """See `run`."""
        with self._signals, self._observer:
            try:
                return self._run()
            except (LakewardError, OSError, MemoryError, Py4JError) as failure:
                error = as_error(failure)
                kind = kind_of(error)
                _LOG.log(
                    kind.level,
                    "%s",
                    error,
                    extra={"event": "fatal", "action": kind.action},
                    exc_info=error,
                )
                self._observer.ended(error)
                return exit_code_of(error)

    def request_stop(self) -> None:
        """Drain: finish the running batch, then end."""
        self._stop.set()
        self._maintenance.stop()
        self._drain_source()

    def _give_up(self) -> None:
        """The batch in progress has no time left."""
        self._given_up = GivenUpError(
            "the running batch did not end within `pipeline.stop.timeout`",
            hint="it is done again at the next start",
        )

    def request_reload(self) -> None:
        """Read the configuration again between two batches."""
        self._desk.ask("reload")

    def _drain_source(self) -> None:
        self._draining.set()
        write_control(self._checkpoint, drain=True)

    def _let_wait(self) -> None:
        """Tell the source and the metrics which topics may wait."""
        feeds = {name: each.offsets for name, each in self._book.progresses().items()}
        own = {self._book.quarantine, self._book.history}
        behind = self._book.parking.behind
        waits = {} if behind else topic_waits(self._settings, feeds, own)
        if waits != self._waits:
            write_topic_waits(self._checkpoint, waits)
            self._observer.metrics.set_waits(waits)
            self._waits = waits

    def _open_source(self) -> None:
        self._let_wait()
        self._draining.clear()
        self._let_flow()
        if self._stop.is_set():  # told to stop in between
            self._drain_source()

    def _let_flow(self) -> None:
        """The source offers new offsets unless the stream is paused or drains."""
        paused = self._pausing.pause
        shut = paused is not None or self._draining.is_set()
        write_control(self._checkpoint, drain=shut)
        if not shut and self._draining.is_set():  # told to stop in between
            write_control(self._checkpoint, drain=True)
        self._observer.paused(paused)

    def _run(self) -> int:
        """Work while the stream is ours."""
        acquire = functools.partial(
            self._lease.acquire,
            take_over=self._take_over,
            stopping=self._stop.is_set,
            waiting=self._wait_for_owner,
        )
        try:
            if not self._persistence.done(acquire):
                return 0
        except StreamHeldError:
            if self._stop.is_set():
                return 0
            raise
        with self._lease.keep(self._lost):
            self._observer.owning(self._lease.ownership.epoch)
            return self._work()

    def _wait_for_owner(self, reason: str) -> None:
        self._observer.beat()
        self._observer.board.set_condition("owner", ok=False, reason=reason)

    def _lost(self, error: FencedError) -> None:
        """The stream is another's now; the main thread ends the query."""
        self._observer.board.set_condition("owner", ok=False, reason=str(error))
        self._draining.set()

    def _work(self) -> int:
        if not self._persistence.done(self._prepare):
            return 0
        spark = open_session(self._settings, self._given_session, parallelism=self._parallelism())
        self._signals.claim()  # Spark took SIGINT
        try:
            self._observer.started(spark)
            return self._supervise(spark)
        finally:
            self._maintenance.close()
            self._observer.stopping()
            if self._given_session is None:
                with contextlib.suppress(OSError, Py4JError):
                    spark.stop()

    def _prepare(self) -> None:
        self._book.load()
        settle(self._book, self._lease.ownership)
        self._book.parking.guard = self._lease.ownership.require
        self._pausing.load()
        require_not_taken_back(self._book.options(), self._settings.pipeline.name)
        self._position.open()
        self._observer.resuming_at(resume_token(self._position.recorded()))
        self._observer.tables(self._book)

    def _parallelism(self) -> int:
        spark = self._settings.spark
        return spark.parallelism or default_parallelism(spark.master, spark.conf)

    def _supervise(self, spark: SparkSession) -> int:
        again = False
        while True:
            failure: BaseException | None
            try:
                failure = self._run_query(spark, load=again)
            except (LakewardError, OSError, PySparkException, Py4JError) as error:
                failure = error
            if failure is not None:
                failure = lost_or(failure, self._lease.ownership)
            failure = self._given_up or self._lease.lost or failure
            if failure is None and self._turning and not self._stop.is_set():
                self._observer.running()
                again = False
                continue
            if failure is None:
                if self._once and not self._stop.is_set():
                    self._maintenance.finish()
                return 0
            self._observer.failed(failure)
            if self._given_up is not None:
                raise self._given_up
            require_jvm(spark, failure)
            self._persistence.pause(failure)
            if self._stop.is_set():
                return 0
            again = True

    def _run_query(self, spark: SparkSession, *, load: bool) -> BaseException | None:
        """Run the query to its end; what it failed with, None = a clean end."""
        if load:
            self._book.load()
        if self._desk.serve(functools.partial(self._pipeline, spark, None), stopped=True):
            self._observer.resuming_at(resume_token(self._position.recorded()))
            self._observer.tables(self._book)
        self._open_source()
        self._batch_began_s = None
        sink = self._sink()
        try:
            logs = self._position.directory
            query = start_query(spark, self._settings, sink, logs, once=self._once)
            self._observer.querying(query)
            self._turning = False
            return self._watch(query, sink, spark)
        finally:
            if self._given_up is None:
                sink.close()

    def _sink(self) -> MicroBatchSink:
        return MicroBatchSink(
            stream=self._settings.pipeline.name,
            position=self._position,
            book=self._book,
            slots=self._parallelism(),
            clock=self._clock,
            on_start=self._begun,
            on_batch=self._finished,
            draining=self._draining,
            dead_letters=DeadLetters.of(self._settings, self._clock),
            unfinished=self._unfinished,
        )

    def _begun(self, batch_id: int) -> None:
        self._batch_began_s = self._clock.monotonic_s()
        self._observer.batch_started(batch_id)

    def _finished(self, report: BatchReport) -> None:
        self._persistence.progressed()
        self._observer.batch(report)
        self._observer.tables(self._book)
        self._let_wait()
        self._maintenance.after_batch(report)
        if self._extra_on_batch is not None:
            self._extra_on_batch(report)
        self._batch_began_s = None

    def _watch(
        self, query: StreamingQuery, sink: MicroBatchSink, spark: SparkSession
    ) -> BaseException | None:
        """Wait for the query's end, the stop request, or a request that wants the query stopped.

        Returns:
            What it failed with; None = a clean end.
        """
        try:
            while not query.awaitTermination(0.5):
                self._observer.beat()
                self._maintenance.beat()
                self._look_at_batch(sink)
                self._persistence.running(busy=sink.busy)
                if self._lease.lost is not None or self._given_up is not None:
                    end_query(query)
                    break
                if self._stop.is_set():
                    self._drain(query, sink)
                    break
                self._settle()
                waiting = self._desk.look()
                if self._was_set_back() or any(kind.stops for kind in waiting):
                    self._turning = True
                    self._drain_source()
                    self._drain(query, sink)
                    break
                if waiting:
                    with sink.idle(functools.partial(self._beat_in_batch, sink)):
                        opened = functools.partial(self._pipeline, spark, sink.last_batch_id)
                        self._desk.serve(opened, stopped=False)
                        self._let_flow()
                    self._observer.tables(self._book)
        except PySparkException as error:
            return cause_of(sink.failure, error)
        except (LakewardError, OSError):  # of what is done beside it, such as answering a request
            with contextlib.suppress(OSError, Py4JError):
                end_query(query)
            raise
        failure = sink.failure
        return None if isinstance(failure, StopRequested) else failure

    def _was_set_back(self) -> bool:
        """Whether the query must be started anew since its trigger waits for a time long gone."""
        back_s = self._calendar.went_back()
        if back_s:
            _LOG.warning(
                "the machine's clock went back: the query is started anew",
                extra={"event": "clock_set_back", "seconds": round(back_s, 1)},
            )
        return bool(back_s)

    def _beat_in_batch(self, sink: MicroBatchSink) -> None:
        """The main loop waits for the running batch to end."""
        self._observer.beat()
        self._look_at_batch(sink)
        ended = self._given_up or self._lease.lost
        if ended is not None:
            raise ended

    def _look_at_batch(self, sink: MicroBatchSink) -> None:
        """Give a batch up that takes longer than the settings allow."""
        limit_s, began_s = self._settings.life.batch_timeout_s, self._batch_began_s
        if limit_s is None or began_s is None or not sink.busy or self._given_up is not None:
            return
        took_s = self._clock.monotonic_s() - began_s
        if took_s <= limit_s:
            return
        end_process_in(ABANDON_S, ExitCode.RETRY)
        faulthandler.dump_traceback(all_threads=True)
        self._given_up = GivenUpError(
            "the batch takes longer than `pipeline.batch.timeout`",
            hint="it is done again after the restart; the stacks above say what it waited for",
            seconds=round(took_s),
        )

    def _settle(self) -> None:
        """Resumed tables are level as soon as that is recorded, also when nothing more comes."""
        if self._book.parking.behind:
            self._position.settle()
            if not self._book.parking.behind:
                self._observer.tables(self._book)
                self._let_wait()

    def _pipeline(
        self, spark: SparkSession, last_batch: int | None, tell: Callable[[str], None]
    ) -> Pipeline:
        """What a request's handler sees."""

        def progress(text: str) -> None:
            self._observer.beat()
            tell(text)

        return Pipeline(
            settings=self._settings,
            book=self._book,
            position=self._position,
            reached=self._position.reached(last_batch),
            spark=spark,
            clock=self._clock,
            progress=progress,
            stopping=self._stop.is_set,
            reread=self._reread,
            use=self._use,
            pausing=self._pausing,
            compact=self._maintenance.compact,
        )

    def _use(self, settings: Settings) -> None:
        self._settings = settings
        self._book.use_settings(settings)
        self._position.use_settings(settings)
        self._persistence.use_limit(settings.life.outage_timeout_s)
        self._observer.use_settings(settings)
        self._let_wait()
        set_levels(settings.log.level, settings.life.log_levels)

    def _drain(self, query: StreamingQuery, sink: MicroBatchSink) -> None:
        self._observer.draining()
        while query.isActive and sink.busy and self._given_up is None:
            self._look_at_batch(sink)
            self._observer.beat()
            self._clock.sleep(0.1)
        deadline = self._clock.monotonic_s() + _RECORD_TIMEOUT_S
        while query.isActive and self._given_up is None and not self._recorded(sink):
            if self._clock.monotonic_s() > deadline:
                break
            self._clock.sleep(0.05)
        end_query(query)

    def _recorded(self, sink: MicroBatchSink) -> bool:
        """Whether Spark's commit log has the batch that the sink finished last."""
        last = sink.last_batch_id
        return last is None or newest_number(self._position.directory / "commits") >= last
