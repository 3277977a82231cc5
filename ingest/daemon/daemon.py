# SPDX-License-Identifier: Apache-2.0
"""The daemon: a state machine from the lease to the last batch.

    ACQUIRE   acquire the stream's lease
    PREPARE   open tables and checkpoint, resolve in-flight commits, start Spark
    RUN       start the query and watch it; handle requests before it starts and between batches
    DRAIN     wait until the running batch ends and is recorded, then end the query
    RETRY     wait after a failure
    STOP      end

    ACQUIRE -> PREPARE -> RUN -> DRAIN -> RUN | STOP
                          RUN, DRAIN -> RETRY -> RUN;  every state -> STOP

The order within PREPARE matters: tables are opened before the checkpoint's state is created (they
determine base and start offsets), and the state file is durable before Spark's query starts.

A stop signal leads to DRAIN: the source offers no further offsets, the sink's gate refuses a batch
that is already planned, the running batch ends and is recorded, then the query is stopped. A second
signal ends the process at once, which is safe: the batch is repeated at the next start.

Requests that need the query stopped (`ingest.daemon.requests`) also drain it, and a new query is
started in the same process; so does a wall clock that was set back.
"""

import contextlib
import enum
import faulthandler
import functools
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.daemon.maintenance import Maintenance
from ingest.daemon.requests.registry import Pipeline
from ingest.daemon.requests.request_handler import RequestHandler
from ingest.daemon.retry import Retrier, RetryPolicy, as_error, cause_of
from ingest.daemon.spark_start import (
    SparkStart,
    end_query,
    parallelism,
    require_jvm,
    start_query,
)
from ingest.errors import SAME_STOP_S, ExitCode, GivenUpError, exit_code_of, kind_of
from ingest.logs import set_levels
from ingest.observe.observe import Observer, SettingsLines
from ingest.pipeline.batch_report import BatchReport, Unfinished
from ingest.pipeline.dead_letters import DeadLetters
from ingest.pipeline.sink import MicroBatchSink
from ingest.source.open import StopRequested, write_control, write_topic_waits
from ingest.source.records import resume_token
from ingest.state.lease import StreamHeldError, lease_of, lost_or, resolve_in_flight
from ingest.state.ownership import Pausing
from ingest.state.request_files import RequestFiles
from ingest.state.stream_position import StreamPosition, newest_number
from ingest.state.stream_state import require_not_rolled_back
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock, SystemClock
from storage.errors import FencedError, InternalError, LakewardError

# Signals of a daemon, handled by a thread of its own.
#
# Python runs signal handlers on the main thread between two of its steps: not while it waits in a
# call to the JVM, and in the middle of whatever holds a lock. So handlers do nothing here; the
# interpreter writes the signal's number to a socket, and a thread reads it and acts.
#
#     SIGTERM, SIGINT     first: drain, within the grace period; second: end at once (75)
#     SIGHUP              read the configuration again
#     SIGQUIT, SIGUSR1    stacks of all threads to standard error
#
# A stop that was requested in another way, such as HTTP, drains too and is no signal: the
# platform's SIGTERM may follow it.


_LOG = logging.getLogger(__name__)

ABANDON_S = 20.0
"""How long giving up a batch may take before the process is killed [s]; within the platform's
grace period, if that is 30 s longer than `pipeline.stop.timeout`."""

_STOPPING = (signal.SIGTERM, signal.SIGINT)
_REQUESTED = 0
"""Instead of a signal's number: a stop requested in another way."""

_DUMPING = (signal.SIGQUIT, signal.SIGUSR1)


class DaemonSignals:
    """See the module. A context manager; without effect outside of the main thread.

    Args:
        stop: drain; must return soon.
        overdue: the grace period is over: give up the batch.
        reload: read the configuration again.
        grace_s: how long draining may take [s]; called at the first signal.
        end: ends the process at once; for tests.
    """

    def __init__(
        self,
        *,
        stop: Callable[[], None],
        overdue: Callable[[], None],
        reload: Callable[[], None],
        grace_s: Callable[[], float],
        end: Callable[[int], Any] = os._exit,
    ) -> None:
        self._stop = stop
        self._overdue = overdue
        self._reload = reload
        self._grace_s = grace_s
        self._end = end
        self._previous_handlers: dict[int, Any] = {}
        self._thread: threading.Thread | None = None
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._wakeup = -1
        self._stopping_since_s: float | None = None
        self._signalled_s: float | None = None
        self._given_up = False

    def __enter__(self) -> "DaemonSignals":
        if threading.current_thread() is not threading.main_thread():
            return self
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self.claim()
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no real standard error
            for number in _DUMPING:
                faulthandler.register(number, file=sys.stderr, all_threads=True)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def claim(self) -> None:
        """Install the handlers; again after a library replaced one, as Spark does for SIGINT."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGHUP, *_STOPPING):
            before = signal.signal(number, _ignore)
            self._previous_handlers.setdefault(number, before)

    def stop(self) -> None:
        """Stop as SIGTERM does; it counts neither as a first nor as a second signal."""
        if self._thread is None:
            self._stop()
        else:
            self._writer.send(bytes([_REQUESTED]))

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        for number in _DUMPING:
            faulthandler.unregister(number)
        self._writer.close()
        self._thread.join(timeout=5)
        self._reader.close()

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._reader], [], [], self._left_s())
            if not ready:
                self._grace_expired()
                continue
            numbers = self._reader.recv(64)
            if not numbers:
                return
            for number in numbers:
                try:
                    self._on(number)
                except (LakewardError, OSError) as error:  # the next signal must be handled
                    _LOG.warning(
                        "a signal could not be handled completely",
                        extra={"event": "signal_failed", "signal": number, "error": error},
                    )

    def _left_s(self) -> float | None:
        """Time to the next step of a stop [s]; None = there is none."""
        if self._stopping_since_s is None:
            return None
        limit_s = self._grace_s() + (ABANDON_S if self._given_up else 0.0)
        return max(0.0, self._stopping_since_s + limit_s - time.monotonic())

    def _grace_expired(self) -> None:
        if self._given_up:
            _LOG.error("aborting the batch took too long: exiting", extra={"event": "abort"})
            self._end(int(ExitCode.RETRY))
            return
        self._given_up = True
        _LOG.warning(
            "the batch did not end in time: it is aborted, and retried at the next start",
            extra={"event": "drain_timeout", "grace_s": self._grace_s()},
        )
        self._overdue()

    def _on(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._reload()
        elif number == _REQUESTED:
            self._drain("request")
        elif number in _STOPPING:
            self._stop_signalled(number)

    def _stop_signalled(self, number: int) -> None:
        now_s = time.monotonic()
        if self._signalled_s is None:
            self._signalled_s = now_s
            self._drain(signal.Signals(number).name)
        elif now_s - self._signalled_s >= SAME_STOP_S:
            _LOG.warning("second signal: stopping now", extra={"event": "abort"})
            self._end(int(ExitCode.RETRY))

    def _drain(self, reason: str) -> None:
        if self._stopping_since_s is None:
            self._stopping_since_s = time.monotonic()
            _LOG.info("draining", extra={"event": "drain", "signal": reason})
            self._stop()


def end_process_in(seconds: float, code: int) -> None:
    """Kill this process after a while, unless it has ended by itself."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


def _ignore(number: int, frame: FrameType | None) -> None:
    """The interpreter has written the number to the socket."""
    del number, frame


def topic_waits(
    settings: Settings, feeds: Mapping[str, Iterable[str]], own_topics: Collection[str]
) -> dict[str, float]:
    """Seconds that records of a topic may wait [s]; topics that may not wait are absent.

    Args:
        feeds: topics by table.
        own_topics: Lakeward's own tables, filled from the topics of other tables.
    """
    waits: dict[str, float] = {}
    for table, topics in feeds.items():
        if table in own_topics:
            continue
        wait_s = settings.rule_value(table, lambda rule: rule.freshness_s)
        if wait_s is None:
            wait_s = settings.pipeline.idle_commit_s or 0.0
        for topic in topics:
            waits[topic] = min(waits.get(topic, wait_s), wait_s)
    shortest = settings.pipeline.trigger_interval_s
    return {topic: wait_s for topic, wait_s in waits.items() if wait_s > shortest}


_RECORD_TIMEOUT_S = 30.0
"""How long a drain waits for Spark to record the finished batch [s]; it takes milliseconds. If it
times out, the batch is repeated after the restart and skipped by its identifier."""


class State(enum.Enum):
    """Phases of a daemon; see the module."""

    ACQUIRE = "acquire"
    PREPARE = "prepare"
    RUN = "run"
    DRAIN = "drain"
    RETRY = "retry"
    STOP = "stop"


_FAILURES = (LakewardError, OSError, PySparkException, Py4JError)
_LEAST_SET_BACK_S = 5.0
"""Time services correct a clock by less, and a trigger late by this much is harmless [s]."""


class SetBackClock:
    """Detects that the machine's wall clock was set back.

    Spark's trigger waits for a wall-clock time. After the clock went back two hours it would wait
    two hours, so the query has to be restarted.

    Args:
        clock: wall clock and monotonic clock, which are compared.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = self._difference_s()

    def went_back(self) -> float:
        """By how much the wall clock went back since the reference, at least 5 s [s]; 0 = not.

        The reference is its maximum lead since the last result other than 0, so that many small
        steps add up.
        """
        ahead_s = self._difference_s()
        back_s = self._ahead_s - ahead_s
        if back_s >= _LEAST_SET_BACK_S:
            self._ahead_s = ahead_s
            return back_s
        self._ahead_s = max(self._ahead_s, ahead_s)
        return 0.0

    def _difference_s(self) -> float:
        return self._clock.now_ms() / 1000 - self._clock.monotonic_s()


def run(settings: Settings, **options: Any) -> int:
    """Run a pipeline until it stops; the options are those of `Daemon`. The exit code."""
    return Daemon(settings, **options).run()


class Daemon:
    """One pipeline in one process.

    Args:
        once: process the backlog and end.
        on_batch: called after every finished batch, after logs and metrics.
        session: a running Spark session to use and to leave running; None = start one.
        reread: reads the settings again, for `reload`; None = unsupported.
        take_over: end another daemon that owns the stream.
        shown: returns the settings that were last read, for `/config`.
        starting: Spark's start in progress; None = it starts after tables are opened.
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
        settings_lines: SettingsLines | None = None,
        starting: SparkStart | None = None,
    ) -> None:
        self._settings = settings
        self._once = once
        self._extra_on_batch = on_batch
        self._given_session = session
        self._start = starting
        self._clock = clock or SystemClock()
        self._unfinished = Unfinished()
        self._calendar = SetBackClock(self._clock)
        self._stop = threading.Event()
        self._checkpoint = Path(settings.pipeline.checkpoint)
        self._book = TableRegistry(settings, self._clock)
        self._observer = Observer(settings, self._clock, settings_lines)
        self._maintenance = Maintenance(self._book, self._clock, self._observer.metrics)
        self._take_over = take_over
        self._lease = lease_of(settings, self._book, self._clock)
        self._position = StreamPosition(settings, self._book, self._lease.ownership)
        self._batch_began_s: float | None = None
        self._given_up: GivenUpError | None = None
        policy = RetryPolicy(self._clock, settings.life.outage_timeout_s)
        self._retrier = Retrier(policy, self._observer, self._stop, once=once)
        self._signals = DaemonSignals(
            stop=self.request_stop,
            overdue=self._give_up,
            reload=self.request_reload,
            grace_s=lambda: self._settings.life.stop_timeout_s,
        )
        self._reread = reread
        self._waits: dict[str, float] | None = None
        self._draining = threading.Event()
        store = (self._book.file_io, settings.sink.warehouse, settings.pipeline.name)
        self._pausing = Pausing(*store)
        files = RequestFiles(*store)
        self._requests = RequestHandler(files, self._clock, on_answer=self._observer.answered)
        self._observer.let_control(files, drain=self._signals.stop, wake=self._requests.wake)
        self._cleanup = contextlib.ExitStack()
        self._query_cleanup = contextlib.ExitStack()
        self._spark: SparkSession
        self._query: StreamingQuery
        self._sink: MicroBatchSink
        self._restart = False
        self._reload_tables = False
        self._failure: BaseException | None = None
        self._steps: Mapping[State, Callable[[], State]] = {
            State.ACQUIRE: self._acquire,
            State.PREPARE: self._prepare,
            State.RUN: lambda: self._supervised(self._start_and_watch),
            State.DRAIN: lambda: self._supervised(self._drain_query),
            State.RETRY: self._retry,
        }

    def run(self) -> int:
        """Run until a stop is requested, or, with `once`, until the backlog is processed.

        Returns:
            The process's exit code.
        """
        with self._signals, self._observer:
            try:
                return self._run_states()
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
        """The batch in progress has exceeded its time limit."""
        self._given_up = GivenUpError(
            "the running batch did not end within `pipeline.stop.timeout`",
            hint="it is retried at the next start",
        )

    def request_reload(self) -> None:
        """Read the configuration again between two batches."""
        self._requests.add("reload")

    def _drain_source(self) -> None:
        self._draining.set()
        write_control(self._checkpoint, drain=True)

    def _set_topic_waits(self) -> None:
        """Set the waits of topics for source and metrics."""
        feeds = {name: progress.offsets for name, progress in self._book.progresses().items()}
        system_tables = {self._book.quarantine, self._book.history}
        catching_up = self._book.parking.catching_up
        waits = {} if catching_up else topic_waits(self._settings, feeds, system_tables)
        if waits != self._waits:
            write_topic_waits(self._checkpoint, waits)
            self._observer.metrics.set_waits(waits)
            self._waits = waits

    def _open_source(self) -> None:
        self._set_topic_waits()
        self._draining.clear()
        self._update_source()
        if self._stop.is_set():  # stop requested in between
            self._drain_source()

    def _update_source(self) -> None:
        """The source offers new offsets unless the stream is paused or drains."""
        paused = self._pausing.pause
        closed = paused is not None or self._draining.is_set()
        write_control(self._checkpoint, drain=closed)
        if not closed and self._draining.is_set():  # stop requested in between
            write_control(self._checkpoint, drain=True)
        self._observer.paused(paused)

    def _run_states(self) -> int:
        with self._cleanup:
            state = State.ACQUIRE
            while state is not State.STOP:
                state = self._steps[state]()
        return 0

    def _acquire(self) -> State:
        acquire = functools.partial(
            self._lease.acquire,
            take_over=self._take_over,
            stopping=self._stop.is_set,
            waiting=self._wait_for_owner,
        )
        try:
            if not self._retrier.succeed(acquire):
                return State.STOP
        except StreamHeldError:
            if self._stop.is_set():
                return State.STOP
            raise
        self._cleanup.enter_context(self._lease.keep(self._on_fenced))
        self._observer.owning(self._lease.ownership.epoch)
        return State.PREPARE

    def _wait_for_owner(self, reason: str) -> None:
        self._observer.beat()
        self._observer.board.set_condition("owner", ok=False, reason=reason)

    def _on_fenced(self, error: FencedError) -> None:
        """Another process owns the stream; the main thread ends the query."""
        self._observer.board.set_condition("owner", ok=False, reason=str(error))
        self._draining.set()

    def _prepare(self) -> State:
        if not self._retrier.succeed(self._open_stream):
            return State.STOP
        self._start = self._start or SparkStart(self._settings, self._given_session)
        session = self._start.session(self._stop)
        if session is None:
            return State.STOP
        self._spark = session
        self._signals.claim()  # Spark took SIGINT
        self._cleanup.callback(self._close_spark)
        if self._stop.is_set():
            return State.STOP
        self._observer.started(session)
        return State.RUN

    def _open_stream(self) -> None:
        self._book.load()
        resolve_in_flight(self._book, self._lease.ownership)
        self._book.parking.guard = self._lease.ownership.require_owned
        self._pausing.load()
        require_not_rolled_back(self._book.options(), self._settings.pipeline.name)
        self._position.open()
        self._observer.resuming_at(resume_token(self._position.recorded()))
        self._observer.tables(self._book)

    def _close_spark(self) -> None:
        self._maintenance.close()
        self._observer.stopping()
        if self._given_session is None:
            with contextlib.suppress(OSError, Py4JError):
                self._spark.stop()

    def _supervised(self, work: Callable[[], bool]) -> State:
        """Run a part of the query's life, which returns whether to drain; the next state."""
        self._failure = None
        drain = False
        try:
            try:
                drain = work()
            finally:
                if not drain:
                    self._query_cleanup.close()
        except _FAILURES as error:
            self._failure = error
        if drain:
            return State.DRAIN
        if self._failure is not None:
            self._failure = lost_or(self._failure, self._lease.ownership)
        self._failure = self._given_up or self._lease.lost_to or self._failure
        if self._failure is not None:
            return State.RETRY
        if self._restart and not self._stop.is_set():
            self._observer.running()
            return State.RUN
        if self._once and not self._stop.is_set():
            self._maintenance.finish()
        return State.STOP

    def _retry(self) -> State:
        failure = self._failure or InternalError("a retry without a failure")
        self._observer.failed(failure)
        if self._given_up is not None:
            raise self._given_up
        require_jvm(self._spark, failure)
        self._retrier.pause(failure)
        self._reload_tables = True
        return State.STOP if self._stop.is_set() else State.RUN

    def _start_and_watch(self) -> bool:
        if self._reload_tables:
            self._book.load()
        self._reload_tables = False
        if self._requests.serve(functools.partial(self._pipeline, None), stopped=True):
            self._observer.resuming_at(resume_token(self._position.recorded()))
            self._observer.tables(self._book)
        self._open_source()
        self._batch_began_s = None
        self._sink = self._new_sink()
        self._query_cleanup.callback(self._close_sink)
        logs = self._position.directory
        start = self._start or SparkStart(self._settings, self._spark)
        stream = start.stream(self._settings)
        self._query = start_query(stream, self._settings, self._sink, logs, once=self._once)
        self._observer.querying(self._query)
        self._restart = False
        return self._watch()

    def _close_sink(self) -> None:
        if self._given_up is None:
            self._sink.close()

    def _new_sink(self) -> MicroBatchSink:
        return MicroBatchSink(
            stream=self._settings.pipeline.name,
            position=self._position,
            book=self._book,
            slots=parallelism(self._settings),
            clock=self._clock,
            on_start=self._on_batch_begin,
            on_batch=self._on_batch_end,
            draining=self._draining,
            dead_letters=DeadLetters.of(self._settings, self._clock),
            unfinished=self._unfinished,
        )

    def _on_batch_begin(self, batch_id: int) -> None:
        self._batch_began_s = self._clock.monotonic_s()
        self._observer.batch_started(batch_id)

    def _on_batch_end(self, report: BatchReport) -> None:
        self._retrier.progressed()
        self._observer.batch(report)
        self._observer.tables(self._book)
        self._set_topic_waits()
        self._maintenance.after_batch(report)
        if self._extra_on_batch is not None:
            self._extra_on_batch(report)
        self._batch_began_s = None

    @contextlib.contextmanager
    def _query_failures(self) -> Iterator[None]:
        """Record the failure of the query, if any; end it when concurrent work fails."""
        try:
            yield
        except PySparkException as error:
            self._failure = cause_of(self._sink.failure, error)
        except (LakewardError, OSError):  # of concurrent work, such as answering a request
            with contextlib.suppress(OSError, Py4JError):
                end_query(self._query)
            raise
        else:
            failure = self._sink.failure
            self._failure = None if isinstance(failure, StopRequested) else failure

    def _watch(self) -> bool:
        """Wait for the end of the query, a stop request, or a reason to restart the query.

        Returns:
            Whether to drain the query; False = it has ended.
        """
        with self._query_failures():
            while not self._query.awaitTermination(0.5):
                self._observer.beat()
                self._maintenance.beat()
                self._check_batch_time()
                self._retrier.note_running(busy=self._sink.busy)
                if self._lease.lost_to is not None or self._given_up is not None:
                    end_query(self._query)
                    break
                if self._stop.is_set():
                    return True
                self._note_caught_up()
                kinds = self._requests.poll()
                if self._was_set_back() or any(kind.stops for kind in kinds):
                    self._restart = True
                    self._drain_source()
                    return True
                if kinds:
                    self._serve_between_batches()
        return False

    def _serve_between_batches(self) -> None:
        with self._sink.idle(self._beat_in_batch):
            open_pipeline = functools.partial(self._pipeline, self._sink.last_batch_id)
            self._requests.serve(open_pipeline, stopped=False)
            self._update_source()
        self._observer.tables(self._book)

    def _was_set_back(self) -> bool:
        """Whether the query must be restarted: its trigger waits for a time that was set back."""
        back_s = self._calendar.went_back()
        if back_s:
            _LOG.warning(
                "the system clock was set back: restarting the query",
                extra={"event": "clock_set_back", "seconds": round(back_s, 1)},
            )
        return bool(back_s)

    def _beat_in_batch(self) -> None:
        """The main loop waits for the running batch to end."""
        self._observer.beat()
        self._check_batch_time()
        failure = self._given_up or self._lease.lost_to
        if failure is not None:
            raise failure

    def _check_batch_time(self) -> None:
        """Abort a batch that takes longer than the settings allow."""
        limit_s, began_s = self._settings.life.batch_timeout_s, self._batch_began_s
        if limit_s is None or began_s is None or not self._sink.busy or self._given_up is not None:
            return
        took_s = self._clock.monotonic_s() - began_s
        if took_s <= limit_s:
            return
        end_process_in(ABANDON_S, ExitCode.RETRY)
        faulthandler.dump_traceback(all_threads=True)
        self._given_up = GivenUpError(
            "the batch takes longer than `pipeline.batch.timeout`",
            hint="it is retried after the restart; the thread dump above shows what it waited for",
            seconds=round(took_s),
        )

    def _note_caught_up(self) -> None:
        """Resumed tables have caught up as soon as that is recorded, also without new records."""
        if self._book.parking.catching_up:
            self._position.release_passed_floors()
            if not self._book.parking.catching_up:
                self._observer.tables(self._book)
                self._set_topic_waits()

    def _pipeline(self, last_batch: int | None, report: Callable[[str], None]) -> Pipeline:
        """The idle stream for the handler of a request."""

        def progress(text: str) -> None:
            self._observer.beat()
            report(text)

        return Pipeline(
            settings=self._settings,
            book=self._book,
            position=self._position,
            reached=self._position.reached(last_batch),
            spark=self._spark,
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
        self._retrier.policy.limit_s = settings.life.outage_timeout_s
        self._observer.use_settings(settings)
        self._set_topic_waits()
        set_levels(settings.log.level, settings.life.log_levels)

    def _drain_query(self) -> bool:
        """Wait until the running batch ends and is recorded, then end the query; False."""
        query, sink = self._query, self._sink
        with self._query_failures():
            self._observer.draining()
            while query.isActive and sink.busy and self._given_up is None:
                self._check_batch_time()
                self._observer.beat()
                self._clock.sleep(0.1)
            deadline = self._clock.monotonic_s() + _RECORD_TIMEOUT_S
            while query.isActive and self._given_up is None and not self._recorded():
                if self._clock.monotonic_s() > deadline:
                    break
                self._clock.sleep(0.05)
            end_query(query)
        return False

    def _recorded(self) -> bool:
        """Whether Spark's commit log contains the last batch that the sink finished."""
        last = self._sink.last_batch_id
        return last is None or newest_number(self._position.directory / "commits") >= last
