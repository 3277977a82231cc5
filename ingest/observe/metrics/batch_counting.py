# SPDX-License-Identifier: Apache-2.0
"""Adds the report of a finished micro-batch to the instruments."""

from ingest.observe.metrics.instruments import Instruments
from ingest.pipeline.batch_report import BatchReport

__all__ = ["count_batch", "count_work"]


def count_batch(into: Instruments, report: BatchReport) -> None:
    """Add what holds for replayed batches too: time, not work."""
    into.add("batches_total", 1, report.outcome)
    into.set("batch_id", report.batch_id)
    into.observe("batch_duration_seconds", report.duration_s)
    for phase, seconds in report.phases.items():
        if phase.startswith("task_"):
            name = phase.removeprefix("task_")
            into.add("batch_phase_task_seconds_total", max(0.0, seconds), name)
        else:
            into.observe("batch_phase_duration_seconds", seconds, phase)
    job_s = report.phases.get("job", 0.0)
    if job_s > 0:
        into.replace("batch_slowest_task_ratio", {(): min(1.0, report.slowest_s / job_s)})
    into.add("dlq_sent_total", report.dead_letters)


def count_work(into: Instruments, report: BatchReport) -> None:
    """Add what a batch committed. Once per batch: a replay's work was counted before."""
    into.observe("batch_records", report.events)
    _count_source(into, report)
    _count_bad(into, report)
    _count_commits(into, report)
    _count_tables(into, report)
    _count_compactions(into, report)


def _count_source(into: Instruments, report: BatchReport) -> None:
    into.add("source_bytes_total", report.bytes)
    for topic, counts in report.counts.items():
        for name, count in counts.items():
            into.add("decode_records_total", count, topic, name.removeprefix("op."))
    for topic, classes in report.bad_by_topic.items():
        for reason, count in classes.items():
            into.add("decode_errors_total", count, topic, reason)
            into.add("dlq_records_total", count, topic, reason)
    for topic, count in report.records.items():
        into.add("source_records_total", count, topic)
    for topic, count in report.walked.items():
        into.add("decode_walked_records_total", count, topic)
    for topic, found in report.ordering_violations.items():
        into.add("ordering_violations_total", len(found), topic)
    for topic, count in report.split_key_updates.items():
        into.add("split_key_updates_total", count, topic)
    for (topic, partition), count in report.skipped_offsets.items():
        into.add("source_skipped_offsets_total", count, topic, str(partition))


def _count_bad(into: Instruments, report: BatchReport) -> None:
    for metric, tables in (
        ("quarantined_rows_total", report.bad_by_table),
        ("bad_records_skipped_total", report.bad_skipped),
    ):
        for table, classes in tables.items():
            for reason, count in classes.items():
                into.add(metric, count, table, reason)
    for table in report.parked_bad:
        into.add("tables_parked_for_bad_records_total", 1, table)


def _count_commits(into: Instruments, report: BatchReport) -> None:
    for table, snapshot_id in report.snapshots.items():
        into.set("table_snapshot_id", snapshot_id, table)
        into.set("table_last_commit_timestamp_seconds", _ended_s(report), table)
        into.add("commits_total", 1, table, "append", "ok")
    for table, seconds in report.commit_seconds.items():
        into.observe("commit_duration_seconds", seconds, table)
    into.add("commit_retries_total", report.commit_retries, "snapshot_exists")


def _ended_s(report: BatchReport) -> float:
    return report.started_ms / 1000 + report.duration_s


def _count_tables(into: Instruments, report: BatchReport) -> None:
    ended_s = _ended_s(report)
    for table, kinds in report.rows_by_table.items():
        for kind, count in kinds.items():
            into.add("table_rows_written_total", count, table, kind)
    for (table, kind), written in report.written.items():
        into.add("table_bytes_written_total", written.bytes, table, kind)
        into.add("table_files_written_total", written.files, table, kind)
    for table, ratio in report.bucket_skew.items():
        into.set("table_bucket_skew_ratio", ratio, table)
    _count_schemas(into, report)
    for table, (oldest, _) in report.source_ts_ms.items():
        into.observe("table_commit_delay_seconds", max(0.0, ended_s - oldest / 1000), table)
    if report.source_ts_ms:
        ahead = max(newest for _, newest in report.source_ts_ms.values()) / 1000 - ended_s
        into.set("source_clock_skew_seconds", max(0.0, ahead))


def _count_schemas(into: Instruments, report: BatchReport) -> None:
    for table, said in report.schema_verdicts:
        into.add("schema_changes_total", 1, table, said.kind.value, said.outcome.value)
    for table, _, _ in report.matched:
        into.add("table_columns_matched_total", 1, table)


def _count_compactions(into: Instruments, report: BatchReport) -> None:
    for table, count in report.compactions.items():
        into.add("compactions_total", count, table, "minor", "ok")
        if count:
            into.add("commits_total", 1, table, "compact", "ok")
    for table, count in report.compactions_dropped.items():
        into.add("compactions_total", count, table, "minor", "dropped")
        into.add("commits_total", 1, table, "compact", "conflict")
    for table, seconds in report.compaction_seconds.items():
        into.add("compaction_seconds_total", seconds, table, "minor")
    for metric, sizes in (
        ("compaction_read_bytes_total", report.compaction_read_bytes),
        ("compaction_written_bytes_total", report.compaction_bytes),
    ):
        for table, size in sizes.items():
            into.add(metric, size, table, "minor")
    for metric, counts in (
        ("table_changelog_rows_total", report.changelog_rows),
        ("table_values_kept_total", report.values_kept),
        ("table_values_lost_total", report.values_lost),
        ("duplicate_events_total", report.repeated),
    ):
        for table, count in counts.items():
            into.add(metric, count, table)
