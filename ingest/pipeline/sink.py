# SPDX-License-Identifier: Apache-2.0
"""The driver's side of a micro-batch: `foreachBatch` of the stream.

Protocol of one batch:

1. gate: a draining stream refuses a batch before any work (SPARK.md §9: `stop()` cancels a batch);
2. plan: pin schema and snapshot of every known table; tables that committed this identifier
   already are skipped (the batch is a replay);
3. one Spark job: read, decode, shuffle, write files (`map_side`, `reduce_side`);
4. a replay must cover the very ranges that the skipped tables recorded, else the stream stops;
5. records that no schema covers were reported, not written: create or alter their tables, discard
   the files just written for them and run the job again for those tables only; likewise for
   tables that the source truncated (`truncates`);
6. tables whose part failed for reasons of their own are parked, and so are those with too many
   bad records (`bad_limits`; the part of the quarantine is written again without these) or those
   that a command parked meanwhile (`TableRegistry.park`): their files are discarded;
7. write the progress note (`ownership`), then commit the quarantine, then the other tables
   (APPEND, then COMPACT), in parallel; copies of bad records go to the dead-letter topic
   (`dead_letters`); Spark records the batch afterwards.

A crash before 7 leaves orphan files. A crash inside 7 leaves some tables committed: the replay
skips them. No consumed record is buffered across batches.
"""

import contextlib
import dataclasses
import functools
import pickle
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.config.settings import Settings
from ingest.errors import SchemaStopError, TruncateStopError
from ingest.pipeline.batch_report import (
    BatchReport,
    JobOutcome,
    Unfinished,
    summary,
    task_use,
    with_rerun,
    without_tables,
)
from ingest.pipeline.dead_letters import DeadLetters, copied
from ingest.pipeline.exchange import (
    PLAN_PROPERTY,
    BatchPlan,
    BucketResult,
    ChunkKind,
    KeyTracker,
    RangeReport,
    TableTotals,
    chunk_folder,
)
from ingest.pipeline.tasks import RESULT_SPARK_SCHEMA, reducer
from ingest.pipeline.truncates import refuse_truncates, truncation_points
from ingest.schema.new_tables import HistoryEntry, history_rows, history_schema, noted_changes
from ingest.schema.routing import Outcome, Verdict
from ingest.source.open import StopRequested
from ingest.source.records import MIN_TASK_RECORDS, floor_of, resume_token
from ingest.state.ownership import faults_to_park, reason_of
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_state import Span, commit_properties, positions_property
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import FencedError, InternalError
from storage.table.commit.commit import CommitResult


class HistoryWriter:
    """Writer of the history of schema changes (`schema_history`), on the driver with each batch.

    Crash safety: before a table is altered, the replay decides the same again; after it, the
    options of the altered table record the change until the history has a commit of that batch or a
    later one; after the commit of the history, the replay finds it and writes nothing.
    """

    def __init__(self, book: TableRegistry, stream: str) -> None:
        self._book = book
        self._stream = stream
        self._recorded: set[tuple[str, str]] = set()

    def unrecorded(
        self, plan: BatchPlan, verdicts: Sequence[tuple[str, Verdict]]
    ) -> list[HistoryEntry]:
        """Return changes that the history lacks: of this batch, and recorded in options of tables.

        Changes that were not applied are recorded once per process.

        Args:
            verdicts: (table, change) of the batch.
        """
        progress = self._book.progresses().get(self._book.history)
        last_batch = -1 if progress is None else progress.identifier
        if last_batch >= plan.identifier:
            return []
        entries: dict[tuple[str, int, str], HistoryEntry] = {}
        for name, options in self._book.options().items():
            for entry in noted_changes(name, options, self._stream):
                if entry.batch > last_batch:
                    entries[name, entry.batch, entry.change] = entry
        for name, verdict in verdicts:
            entry = HistoryEntry(name, plan.identifier, self._book.mode, verdict)
            is_applied = verdict.outcome is Outcome.APPLIED
            if not is_applied and (name, entry.change) not in self._recorded:
                entries[name, entry.batch, entry.change] = entry
        return [entries[key] for key in sorted(entries)]

    def write(self, plan: BatchPlan, entries: Sequence[HistoryEntry], span: Span) -> None:
        """Commit entries of `unrecorded`.

        Args:
            entries: at least one.
            span: offset ranges of the batch.
        """
        book, name = self._book, self._book.history
        table = book.provide(name, history_schema(plan.time_ms))
        topics = {entry.verdict.topic for entry in entries} & span.keys()
        properties, offsets = commit_properties(self._stream, book.offsets(name), span, topics)
        with table.new_write(self._stream) as write:
            write.write(history_rows(entries, self._stream, plan.time_ms))
            messages = write.prepare_commit(plan.identifier)
        book.commit(name, messages, plan.identifier, properties, offsets, span)
        self._recorded.update((entry.table, entry.change) for entry in entries)


RATIO_COUNTS_FROM = 100
"""Minimum number of rows and bad records of a table in a batch for the ratio to apply."""


def over_limit(
    settings: Settings, report: RangeReport, exempt: Collection[str] = ()
) -> dict[str, str]:
    """Return the tables to park because of their bad records.

    A limit (`tables[].bad.records`, `bad.records.max.ratio`) applies to one table in one batch.
    Above it nothing of the batch is committed to the table, and its bad records do not go to
    quarantine; all of it is processed again when the table is resumed.

    Args:
        report: report of the whole batch, after schema changes.
        exempt: tables that are already committed or parked.

    Returns:
        Reasons by table.
    """
    reasons: dict[str, str] = {}
    for table, classes in sorted(report.bad_records.failures.items()):
        if table in exempt:
            continue
        count = sum(classes.values())
        totals = report.tables.get(table)
        total = count + (0 if totals is None else totals.rows)
        limit = settings.bad_records.max_ratio
        if settings.bad_policy(table) == "fail":
            reason = f"{count} bad records, and the table accepts none (bad.records: fail)"
        elif limit is not None and total >= RATIO_COUNTS_FROM and count > limit * total:
            reason = (
                f"{count} of {total} records are bad, more than bad.records.max.ratio = {limit:g}"
            )
        else:
            continue
        topic, partition, offset, error = report.bad_records.examples[table]
        kinds = ", ".join(f"{n} {name}" for name, n in classes.most_common())
        reasons[table] = f"{reason}: {kinds}; first {topic}-{partition} @ {offset}: {error}"
    return reasons


def emptying_plan(
    book: TableRegistry, plan: BatchPlan, report: RangeReport, end: Mapping[str, Any]
) -> BatchPlan:
    """Plan the run that empties tables; requests parking of tables that cannot be emptied.

    Args:
        plan: of the run before.
        report: of the runs before.
        end: source offsets at the end of the batch, of all partitions.

    Returns:
        For the tables to be emptied alone, and the quarantine, which goes with every further run;
        for no table when there are none.
    """
    parked = book.to_park()
    truncates = [truncate for truncate in report.truncates if truncate.table not in parked]
    names = {truncate.table for truncate in truncates} & plan.tables.keys()
    points, refusals = truncation_points(
        truncates,
        {name: book.table(name) for name in names},
        {name: {*report.feeds.get(name, ()), *book.offsets(name)} for name in names},
        {topic: len(parts) for topic, parts in resume_token(end).items()},
    )
    for name, reason in refusals.items():
        book.park(name, reason)
    return dataclasses.replace(
        plan,
        run=plan.run + 1,
        only=tuple(sorted({*points, book.quarantine})) if points else (),
        truncations=points,
    )


class Phases:
    """Wall time of phases [s]."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._phase_start_s = clock.monotonic_s()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """End a phase."""
        now_s = self._clock.monotonic_s()
        self.seconds[name] = now_s - self._phase_start_s
        self._phase_start_s = now_s


_SCHEMA_ROUNDS = 6
"""Maximum number of runs of one batch: one, and others after schema changes. Each round applies
all schema deltas of the previous one, after a table is created: more do not converge."""


_WRITE_ROUNDS = 4
"""Maximum number of runs for rows that cannot be written: one per step (three), and a final one."""

_PLANNED_TABLES = 200
"""Maximum number of tables with planned slots; the lightest others are distributed by hash."""


class MicroBatchSink:
    """Callable for `DataStreamWriter.foreachBatch`.

    Args:
        stream: name of the stream = commit user.
        position: position of the stream: base, offsets, floors, notes.
        slots: shuffle partitions.
        on_start: called for every batch that passes the gate.
        on_batch: called for every finished batch.
        draining: set when no further batch may start.
        dead_letters: sends copies of bad records.
        unfinished: outlives the sink, so that the next attempt reports commits of a failed one.
    """

    def __init__(
        self,
        *,
        stream: str,
        position: StreamPosition,
        book: TableRegistry,
        slots: int,
        clock: Clock,
        on_start: Callable[[int], None],
        on_batch: Callable[[BatchReport], None],
        draining: threading.Event,
        dead_letters: DeadLetters | None = None,
        unfinished: Unfinished | None = None,
    ) -> None:
        self._stream = stream
        self._position = position
        self._book = book
        self._slots = slots
        self._clock = clock
        self._on_start = on_start
        self._on_batch = on_batch
        self._draining = draining
        self._history = HistoryWriter(book, stream)
        self._dead_letters = dead_letters
        self._unfinished = Unfinished() if unfinished is None else unfinished
        self._weights: dict[str, float] = {}
        self._buckets = 0
        self._slot = functools.lru_cache(1)(self._slot_of)  # made by twenty calls of the JVM
        self._keys = KeyTracker()
        self._busy = threading.Lock()
        self._pool = ThreadPoolExecutor(max_workers=16, thread_name_prefix="commit")
        self.failure: BaseException | None = None
        self.last_batch_id: int | None = None

    @property
    def busy(self) -> bool:
        """Whether a batch is being processed."""
        return self._busy.locked()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; an exception ends the query, `failure` keeps the original."""
        if self._draining.is_set():
            self.failure = StopRequested()
            raise self.failure
        with self._busy:
            try:
                self._on_start(batch_id)
                report = self._process(frame, batch_id)
                self.last_batch_id = batch_id
                self._on_batch(report)
                self._unfinished.clear()
            except BaseException as error:
                self.failure = error
                raise

    @contextlib.contextmanager
    def idle(self, beat: Callable[[], None]) -> Iterator[None]:
        """Block batches: waits for the running one, and the next one waits for the body.

        Args:
            beat: called every second while a batch is running.
        """
        while not self._busy.acquire(timeout=1.0):
            beat()
        try:
            yield
        finally:
            self._busy.release()

    def close(self) -> None:
        """Release the commit threads; the sink is not called again."""
        self._pool.shutdown(wait=True)
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _process(self, frame: DataFrame, batch_id: int) -> BatchReport:
        start_s = self._clock.monotonic_s()
        phases = Phases(self._clock)
        identifier = self._position.state.base + batch_id
        self._position.begin(batch_id)
        self._book.take_to_park()  # drop those of a failed run: lasting failures occur again
        self._book.refresh()
        plan = BatchPlan(
            batch_id=batch_id,
            identifier=identifier,
            time_ms=self._clock.now_ms(),
            tables=self._book.schema_ids(),
            skip=self._book.committed(identifier),
            floors=self._book.floors,
            bad_floors=self._book.bad_floors,
            parked=tuple(sorted(self._book.parking.parked())),
            moving=tuple(sorted(self._keys.moving)),
            positions=self._book.positions(),
            answers=self._book.schemas.lasting_answers(),
            write_only=self._book.write_only(),
        )
        phases.end("plan")
        outcome, plan = self._run_writable(frame, plan)
        phases.end("job")
        span = outcome.report.span
        self._check_replay(plan, span)
        self._refuse_truncates(outcome)
        outcome, verdicts, resolved = self._apply_schema_changes(frame, plan, outcome)
        outcome = self._apply_truncates(frame, resolved, outcome)
        phases.end("schema")
        exempt = {*plan.skip, *plan.parked, self._book.quarantine}
        too_bad = over_limit(self._book.settings, outcome.report, exempt)
        outcome = self._without_bad(frame, resolved, outcome, too_bad)
        self._note_topics(plan, outcome)
        outcome, parked = self._park_failed(plan, outcome)
        commits, failed_tables = self._commit_all(plan, outcome, verdicts, span)
        outcome, parked = without_tables(outcome, failed_tables), parked | failed_tables
        phases.end("commit")
        copies = copied(self._dead_letters, self._book, plan, span, commits)
        self._learn_weights(outcome)
        outcome, commits = self._unfinished.with_earlier(
            identifier, outcome, commits, plan.skip, self._book.quarantine
        )
        report = summary(
            plan,
            outcome,
            commits,
            snapshots={name: self._book.snapshot_id(name) for name in commits},
            seconds=self._clock.monotonic_s() - start_s,
            phases=phases.seconds,
        )
        violations, split = self._keys.take(outcome.report.keys)
        return dataclasses.replace(
            report,
            ordering_violations=violations,
            split_key_updates=split,
            schema_verdicts=verdicts,
            parked=tuple(sorted(parked.items())),
            parked_bad=tuple(sorted(too_bad)),
            dead_letters=copies,
            quarantine=self._book.quarantine,
        )

    def _run_writable(self, frame: DataFrame, plan: BatchPlan) -> tuple[JobOutcome, BatchPlan]:
        """Run the job, again without records whose rows cannot be written; return also the plan.

        Raises:
            InternalError: every run finds further such records.
        """
        for _ in range(_WRITE_ROUNDS):
            outcome = self._run(frame, plan)
            if not outcome.unwritable:
                return outcome, plan
            self._discard(outcome.results)
            unwritable = (*plan.unwritable, *outcome.unwritable)
            plan = dataclasses.replace(plan, unwritable=tuple(dict.fromkeys(unwritable)))
        raise InternalError(
            "every run of a batch finds further rows that cannot be written",
            tables=sorted({record.table for record in plan.unwritable}),
        )

    def _run(self, frame: DataFrame, plan: BatchPlan) -> JobOutcome:
        session = frame.sparkSession
        with chunk_folder(session.conf, plan.batch_id) as folder:
            plan = dataclasses.replace(plan, chunk_folder=folder)
            session.sparkContext.setLocalProperty(PLAN_PROPERTY, plan.to_property())
            chunks = self._distributed(frame, plan)
            rows = chunks.mapInArrow(reducer(self._book.warehouse), RESULT_SPARK_SCHEMA).collect()
        reports: list[RangeReport] = []
        results: list[BucketResult] = []
        for kind, payload in rows:
            # pickle is safe: both ends are this program's own processes
            value = pickle.loads(payload)
            (reports if kind == ChunkKind.REPORT else results).append(value)
        return JobOutcome(RangeReport.of(reports), tuple(results), task_use(reports, results))

    def _distributed(self, frame: DataFrame, plan: BatchPlan) -> DataFrame:
        """Return the chunks as the reduce tasks take them.

        A small batch stays in one task: without a shuffle there is one stage instead of two, which
        saves 60 to 90 ms of 460.
        """
        before, after = self._position.bounds(plan.batch_id)
        moved = {topic for topic, entry in after.items() if entry != before.get(topic)}
        start, end = (
            resume_token({topic: bound[topic] for topic in moved & bound.keys()})
            for bound in (before, after)
        )
        records = sum(
            offset - start.get(topic, {}).get(partition, 0)
            for topic, partitions in end.items()
            for partition, offset in partitions.items()
        )
        if records <= MIN_TASK_RECORDS and self._buckets <= 2 * self._slots:
            return frame.coalesce(1)
        weights = sorted((-weight, name) for name, weight in self._weights.items())
        # one literal: each takes two calls of the JVM. No name of a table has a slash.
        heavy = "/".join(name for _, name in weights[:_PLANNED_TABLES])
        return frame.repartitionById(self._slots, self._slot(heavy))

    def _slot_of(self, heavy: str) -> Column:
        """Return the reduce task of a chunk; neighbouring buckets and heavy tables are spread.

        64-bit sums, because Spark refuses to let a 32-bit one overflow.
        """
        names = F.split(F.lit(heavy), "/")
        position = F.array_position(names, F.col("owner"))
        base = F.when(position > 0, position).otherwise(F.hash("owner").cast("bigint"))
        slot = base + F.hash("partition") + F.col("bucket")
        return F.pmod(slot, F.lit(self._slots)).cast("int")

    def _learn_weights(self, outcome: JobOutcome) -> None:
        self._buckets = len(outcome.results)
        for name in list(self._weights):
            self._weights[name] *= 0.5
        for result in outcome.results:
            rows = sum(result.rows.values())
            self._weights[result.table] = self._weights.get(result.table, 0.0) + rows

    def _check_replay(self, plan: BatchPlan, span: Span) -> None:
        for name in plan.skip:
            recorded = self._book.recorded_span(name)
            replayed = {topic: dict(span.get(topic, {})) for topic in recorded}
            if recorded != replayed:
                raise FencedError(
                    "a commit identifier was used for other offsets",
                    detail=f"committed {recorded}, replayed {replayed}",
                    hint="two checkpoints use one stream name: give each stream its own name, or "
                    "remove the checkpoint so that it is rebuilt from the tables",
                    table=name,
                    identifier=plan.identifier,
                )

    def _apply_schema_changes(
        self, frame: DataFrame, plan: BatchPlan, outcome: JobOutcome
    ) -> tuple[JobOutcome, tuple[tuple[str, Verdict], ...], BatchPlan]:
        """Apply reported changes and run again for the changed tables until none is left.

        Returns:
            The combined outcome of all runs, the decisions on the changes by table, and the plan of
            the last run.

        Raises:
            SchemaStopError: the settings forbid a change; nothing of the batch is committed.
        """
        verdicts: list[tuple[str, Verdict]] = []
        frozen = dict(plan.frozen)
        run = plan.run
        ddl = outcome.report.ddl
        while (deltas := outcome.report.deltas) or ddl:
            run += 1
            if run == _SCHEMA_ROUNDS:
                raise InternalError(
                    "schema changes of one batch do not converge",
                    tables=sorted({delta.target for delta in deltas}),
                )
            try:
                changes = self._book.schemas.apply(
                    deltas, now_ms=plan.time_ms, batch=plan.identifier, ddl=ddl
                )
            except SchemaStopError:
                self._discard(outcome.results)
                raise
            verdicts += changes.verdicts
            frozen |= changes.refused
            ddl = []
            rerun_tables = {delta.target for delta in deltas}
            if parked := self._book.to_park():
                self._discard(result for result in outcome.results if result.table in parked)
                outcome = without_tables(outcome, parked)
                rerun_tables -= parked
            if not rerun_tables:
                continue
            rerun_tables.add(self._book.quarantine)  # what waited for a schema may be bad under it
            self._discard(result for result in outcome.results if result.table in rerun_tables)
            rerun = dataclasses.replace(
                plan,
                run=run,
                tables=self._book.schema_ids(),
                only=tuple(sorted(rerun_tables)),
                frozen=dict(frozen),
                answers=self._book.schemas.current_answers(),
                parked=tuple(sorted({*plan.parked, *parked})),
            )
            second, plan = self._run_writable(frame, rerun)
            outcome = with_rerun(outcome, second, rerun_tables)
        return outcome, tuple(verdicts), plan

    def _refuse_truncates(self, outcome: JobOutcome) -> None:
        try:
            refuse_truncates(outcome.report.truncates)
        except TruncateStopError:
            self._discard(outcome.results)
            raise

    def _apply_truncates(
        self, frame: DataFrame, plan: BatchPlan, outcome: JobOutcome
    ) -> JobOutcome:
        """Run again for tables that the source truncated; some are parked."""
        if not outcome.report.truncates:
            return outcome
        end = self._position.bounds(plan.batch_id)[1]
        rerun = emptying_plan(self._book, plan, outcome.report, end)
        if rerun.only:
            rerun_tables = set(rerun.only)
            self._discard(result for result in outcome.results if result.table in rerun_tables)
            outcome = with_rerun(outcome, self._run_writable(frame, rerun)[0], rerun_tables)
        return outcome

    def _without_bad(
        self,
        frame: DataFrame,
        plan: BatchPlan,
        outcome: JobOutcome,
        too_bad: Mapping[str, str],
    ) -> JobOutcome:
        """Ask to park tables for their bad records, and take these out of the quarantine."""
        for name, reason in too_bad.items():
            self._book.park(name, reason)
        quarantine = self._book.quarantine
        if not too_bad or quarantine not in outcome.report.tables:
            return outcome
        self._discard(result for result in outcome.results if result.table == quarantine)
        rerun = dataclasses.replace(
            plan,
            run=_SCHEMA_ROUNDS,
            tables=self._book.schema_ids(),
            only=(quarantine,),
            parked=tuple(sorted({*plan.parked, *self._book.to_park()})),
        )
        return with_rerun(outcome, self._run_writable(frame, rerun)[0], {quarantine})

    def _discard(self, results: Iterable[BucketResult]) -> None:
        for result in results:
            self._book.discard(result.table, result.messages)

    def _commit_all(
        self,
        plan: BatchPlan,
        outcome: JobOutcome,
        verdicts: Sequence[tuple[str, Verdict]],
        span: Span,
    ) -> tuple[dict[str, tuple[CommitResult, float]], dict[str, str]]:
        """Commit every table; (commits, tables parked because theirs failed)."""
        by_table: dict[str, list[BucketResult]] = {}
        for result in outcome.results:
            by_table.setdefault(result.table, []).append(result)

        def commit(name: str) -> tuple[CommitResult, float]:
            began = self._clock.monotonic_s()
            totals = outcome.report.tables.get(name, TableTotals())
            properties, offsets = commit_properties(
                self._stream,
                self._book.offsets(name),
                span,
                totals.topics,
                floor_of(plan.floors, name),
            )
            positions = plan.positions.get(name, {})
            properties |= positions_property(self._stream, positions, totals.positions)
            results = by_table.get(name, ())
            messages = [message for result in results for message in result.messages]
            commit_result = self._book.commit(
                name,
                messages,
                plan.identifier,
                properties,
                offsets,
                span,
                event_time_ms=totals.event_time_ms,
            )
            seconds = self._clock.monotonic_s() - began
            self._unfinished.committed(name, commit_result, seconds)
            return commit_result, seconds

        names = sorted(by_table)
        changes = self._history.unrecorded(plan, verdicts)
        if names or changes:
            tables = {*names, *plan.skip} | ({self._book.history} if changes else set())
            self._position.note(plan.identifier, plan.batch_id, tuple(sorted(tables)))
        if changes:  # before other tables: once committed, a replay need not derive them again
            self._history.write(plan, changes, span)
        # a bad record may be decodable on a replay (its schema was registered meanwhile), when its
        # table is committed already: the quarantine is committed first, so that it is not lost
        quarantine = self._book.quarantine
        self._unfinished.committing(plan.identifier, outcome, {*by_table})
        commits = {quarantine: commit(quarantine)} if quarantine in by_table else {}
        futures = {name: self._pool.submit(commit, name) for name in names if name not in commits}
        wait(futures.values())  # a failure of one table must not leave other commits unobserved
        errors = {name: future.exception() for name, future in futures.items()}
        failures = {n: self._book.fault_of(n, e) for n, e in errors.items() if e is not None}
        failed_tables = self._fault(failures, plan, outcome)
        # nothing is discarded: a failed commit may have published some of its files
        commits |= {n: f.result() for n, f in futures.items() if n not in failed_tables}
        return commits, failed_tables

    def _fault(
        self, failures: Mapping[str, BaseException], plan: BatchPlan, outcome: JobOutcome
    ) -> dict[str, str]:
        """Park the tables of failures that are about one table; other failures are raised."""
        to_park = faults_to_park(
            failures,
            {result.table for result in outcome.results},
            quarantine=self._book.quarantine,
            answers=self._book.answers,
        )
        self._park(plan, outcome, to_park)
        return to_park

    def _park(self, plan: BatchPlan, outcome: JobOutcome, tables: Mapping[str, str]) -> None:
        """Park tables from the start of this batch on; durable at return."""
        if not tables:
            return
        start, end = self._position.bounds(plan.batch_id)
        since = self._book.parking.of_present_topics(dict(start), plan.identifier - 1)
        for name, reason in sorted(tables.items()):
            topics = {*outcome.report.feeds.get(name, ()), *self._book.offsets(name)}
            self._book.parking.park(
                name, reason=reason, by="stream", since=since, now_ms=plan.time_ms, topics=topics
            )
        self._book.parking.met({}, start, end, plan.identifier)

    def _note_topics(self, plan: BatchPlan, outcome: JobOutcome) -> None:
        """Note topics that fed parked tables, to be read again at resume, and re-created ones."""
        start, end = self._position.bounds(plan.batch_id)
        self._book.parking.met(outcome.report.feeds, start, end, plan.identifier)

    def _park_failed(
        self, plan: BatchPlan, outcome: JobOutcome
    ) -> tuple[JobOutcome, dict[str, str]]:
        """Park tables that failed in tasks or were requested; return the outcome without them."""
        to_park = self._book.take_to_park()
        for name, error in outcome.report.failures.items():
            to_park.setdefault(name, reason_of(error))
        self._park(plan, outcome, to_park)
        failures = {r.table: r.failure for r in outcome.results if r.failure is not None}
        other_failures = {name: error for name, error in failures.items() if name not in to_park}
        parked = to_park | self._fault(other_failures, plan, outcome)
        self._discard(result for result in outcome.results if result.table in parked)
        return without_tables(outcome, parked), parked
