# SPDX-License-Identifier: Apache-2.0
"""The catalogue of metrics. All metrics are declared here.

Rules: base units, `_total` on counters, `_timestamp_seconds` for times, `topic`/`partition` labels
only on offsets, `table` as `database.table`; never a bucket, key, offset, file or exception text in
a label.
"""

import dataclasses
import sys
from pathlib import Path

from ingest.config import settings_page
from storage.io.counting import CALL_BUCKETS

PREFIX = "lakeward_"

STATES = ("starting", "running", "paused", "idle", "draining", "failed")
"""Values of `lakeward_state`; exactly one is 1."""

TABLE_STATES = ("running", "parked", "behind")
"""Values of `lakeward_table_state`; `behind` is a resumed table that is catching up."""

_TYPES: dict[str, tuple[float, ...]] = {
    "counter": (),
    "gauge": (),
    "computed": (),
    "histogram": (),
    "histogram seconds": (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    "histogram delay": (0.1, 0.25, 0.5, 0.75, 1, 2, 5, 10, 30, 60, 120, 300, 900, 3600, 14400),
    "histogram request": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
    "histogram records": (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
}
"""Types of metrics with the upper bounds of their buckets: durations in a batch, the delay from a
change in the source to its commit, durations of requests [s], records."""


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of a metric.

    Attributes:
        name: name without prefix; that of a counter ends in `_total`.
        type: `counter`, `gauge`, `histogram`, or `computed`: a gauge that is absent while its value
            is unknown. A histogram without buckets has those of `storage.io.counting`.
        help: one or two sentences.
        labels: label names.
        buckets: upper bounds of a histogram.
        unit: unit of the value; a base unit if possible.
        fold: aggregation of a gauge over tables that share a label value: `sum`, `max` or `min`;
            empty: omitted.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unit: str = "count"
    fold: str = ""


_CATALOGUE = """
name | type and buckets | labels | unit | fold | help; indented lines continue it

## Source
source_records_total | counter | topic | count | | Committed source records.
source_bytes_total | counter | | bytes | | Key and value bytes of committed source records.
source_committed_offset | gauge | topic partition | offset | | Next offset to read, as of the last
    commit of tables.
source_end_offset | computed | topic partition | offset | | End offset (high watermark).
source_start_offset | computed | topic partition | offset | | Log start offset.
source_lag_records | computed | topic partition | count | | End offset minus committed offset;
    bytes for a `files` source.
source_lag_seconds | computed | topic | seconds | | Time since the oldest uncommitted record was
    first seen, minus the configured delay (source_wait_seconds); 0 if there is none.
source_wait_seconds | computed | topic | seconds | | Configured delay of the topic (freshness,
    idle.commit); absent without one.
source_retention_headroom_ratio | computed | topic partition | ratio | | (committed - start) / (end
    - start); at 0 records are lost.
source_offsets_poll_timestamp_seconds | gauge | | timestamp | | Last successful poll of the
    offsets; metrics that depend on it are absent after 120 s.
source_partitions | computed | topic | count | | Known partitions.
source_errors_total | counter | reason | count | | Failed polls of the source: transport, or auth
    (credentials were refused).
source_skipped_offsets_total | counter | topic partition | count | | Offsets that the stream
    skipped because retention had deleted their records.
source_clock_skew_seconds | gauge | | seconds | | How far the newest change of the last batch is
    ahead of this machine's clock; 0 = not ahead.

## Decoding and bad records
decode_records_total | counter | topic op | count | | Decoded records by operation: c u d r t m,
    tombstone, heartbeat and others.
decode_errors_total | counter | topic reason | count | | Records that could not be decoded, by
    class of error.
dlq_records_total | counter | topic reason | count | | Records written to the quarantine table.
decode_walked_records_total | counter | topic | count | | Committed records that the compiled scan
    decoded; the rest of `decode_records_total` took more CPU.
quarantined_rows_total | counter | table class | count | | Records written to the quarantine table,
    by target table; empty if it is unknown.
bad_records_skipped_total | counter | table class | count | | Bad records dropped because
    `bad.records` of the table is `skip`.
tables_parked_for_bad_records_total | counter | table | count | | Times a table was parked because
    of its ratio of bad records, or of any (`fail`).
dlq_sent_total | counter | | count | | Copies of bad records acknowledged by the dead-letter topic,
    duplicates included.
ordering_violations_total | counter | topic | count | | Sampled keys that occurred in two
    partitions of a topic.
split_key_updates_total | counter | topic | count | | Key updates whose two records were in
    different batches.

## Micro-batches
batches_total | counter | outcome | count | | Micro-batches: committed, empty, failed or replayed.
batch_duration_seconds | histogram seconds | | seconds | | Duration of a micro-batch.
batch_phase_duration_seconds | histogram seconds | phase | seconds | | Wall time of one phase of a
    micro-batch: plan, job, schema, commit.
batch_phase_task_seconds_total | counter | phase | seconds | | Task time by step of the job, summed
    over tasks: consume, decode, sort, merge (rows into writers), flush (files written and
    compacted).
batch_slowest_task_ratio | computed | | ratio | | Write time of the slowest bucket of the last
    batch, relative to the wall time of the job.
batch_records | histogram records | | count | | Source records in a micro-batch.
batch_in_progress | gauge | | boolean | | 1 while a micro-batch is processed.
batch_id | gauge | | id | | Spark's id of the last completed micro-batch.
batch_start_timestamp_seconds | gauge | | timestamp | | Start of the current or last micro-batch.
last_success_timestamp_seconds | gauge | | timestamp | | End of the last successful micro-batch,
    empty ones included.
trigger_interval_seconds | computed | | seconds | | `pipeline.trigger.interval`: batches that take
    longer follow each other without a pause.
query_step_seconds_total | counter | step | seconds | | Duration of trigger phases as reported by
    Spark: triggerExecution, latestOffset, addBatch, walCommit, commitOffsets and others.

## Tables
table_rows_written_total | counter | table kind | rows | | Rows committed to data files, counted
    when the batch is complete in all tables. Retries count once; not counted are tables that had
    committed before the process died.
table_changelog_rows_total | counter | table | rows | | Committed changelog rows.
table_bytes_written_total | counter | table type | bytes | | Bytes of committed files, compactions
    excluded: data, changelog or index.
table_files_written_total | counter | table type | count | | Committed files, compactions excluded:
    data, changelog or index.
table_state | computed | table state | boolean | sum | State of a table: exactly one state is 1;
    alert on parked.
table_snapshot_id | computed | table | id | | Newest snapshot of this stream.
table_last_commit_timestamp_seconds | computed | table | timestamp | max | Time of the last commit.
table_source_timestamp_seconds | computed | table | timestamp | max | Newest visible source.ts_ms.
table_freshness_seconds | computed | table | seconds | max | Age of the newest visible change; 0 if
    the topics of the table have nothing newer, absent while it is parked.
table_commit_delay_seconds | histogram delay | table | seconds | | Commit time minus the oldest
    source.ts_ms of the batch.
table_values_kept_total | counter | table | values | | Unchanged values that the source did not
    send, taken from the stored row.
table_values_lost_total | counter | table | values | | Values that the source did not send and that
    no stored row had; null was stored.
table_columns_matched_total | counter | table | count | | Columns of events matched to a column
    with another letter case or Unicode normal form, once per batch.
duplicate_events_total | counter | table | rows | | Rows of tables with `ordering: source` that
    were delivered again or late.
table_bucket_skew_ratio | computed | table | ratio | max | Rows of the largest bucket relative to
    the mean of the buckets that the last batch wrote.

## Files of tables
table_files | computed | table | count | sum | Live data files.
table_bytes | computed | table | bytes | sum | Bytes of live data files.
table_records | computed | table | records | sum | Records in live data files; a row can have
    several until they are merged.
table_buckets | computed | table | count | sum | Buckets with live files.
table_partitions | computed | table | count | sum | Partitions with live files.
table_level0_files_max | computed | table | files | max | Maximum number of level-0 files of a
    bucket.
table_level0_files_avg | computed | table | files | max | Mean number of level-0 files per bucket.
table_sorted_runs_max | computed | table | runs | max | Maximum number of sorted runs of a bucket:
    each level-0 file and each higher level is one.
table_sorted_runs_avg | computed | table | runs | max | Mean number of sorted runs per bucket.
table_sorted_runs_compaction_trigger | computed | table | runs | min | Number of sorted runs that
    triggers compaction (`num-sorted-run.compaction-trigger`).
table_sorted_runs_stop_trigger | computed | table | runs | min | Number of sorted runs above which
    writers wait for compaction (`num-sorted-run.stop-trigger`).
table_schema_id | computed | table | id | | Schema of the newest snapshot.
table_snapshots | computed | table | count | sum | Retained snapshots.
table_layout_timestamp_seconds | computed | table | timestamp | min | Commit time of the snapshot
    that the metrics of files describe.

## Commits and maintenance
commits_total | counter | table kind outcome | count | | Commits: kind append or compact; outcome
    ok, or conflict (a compaction was discarded).
commit_duration_seconds | histogram seconds | table | seconds | | Duration of a commit, retries
    included.
commit_retries_total | counter | reason | count | | Commit retries after losing the race for a
    snapshot id.
snapshots_expired_total | counter | table | count | | Snapshots expired by the daemon.
orphan_files_removed_total | counter | table | files | | Orphan files removed by the daemon
    (`maintenance.orphan.clean`).

## Iceberg metadata
iceberg_versions_total | counter | table | count | | Versions of Iceberg metadata that were
    published, one a snapshot.
iceberg_publish_failures_total | counter | table | count | | Publications that failed, or left out a
    catalog service that had not answered.
iceberg_publish_seconds_total | counter | table | seconds | | Time spent on publications; part of
    the commits.
iceberg_manifests_written_total | counter | table | count | | Manifests that publications wrote.
iceberg_written_bytes_total | counter | table | bytes | | Bytes that publications wrote.
iceberg_behind_snapshots | computed | table | count | max | Snapshots that Iceberg readers do not
    see yet, catalog services included; 0 when they see the newest.

## Compaction
compactions_total | counter | table kind outcome | count | | Compacted buckets: kind minor or full;
    outcome ok, dropped (lost a race) or error.
compaction_seconds_total | counter | table kind | seconds | | Time spent on compacting buckets,
    over all tasks and in the background.
compaction_read_bytes_total | counter | table kind | bytes | | Bytes of data files replaced by
    committed compactions.
compaction_written_bytes_total | counter | table kind | bytes | | Bytes of data files written by
    committed compactions.
compaction_pass_duration_seconds | histogram seconds | kind | seconds | | Duration of the
    background compaction of a table.
compaction_in_progress | gauge | | boolean | | 1 while a table is compacted in the background.
compaction_pending | gauge | | count | | Tables waiting for background compaction.
compaction_oldest_pending_seconds | computed | | seconds | | Time that the longest-waiting table
    has waited; 0 = none is waiting.
compaction_busy_ratio | computed | | ratio | | Share of the last 5 minutes spent on background
    compaction.

## Lookups
lookup_hits_total | counter | | count | | Lookups that found a local copy of a data file.
lookup_misses_total | counter | | count | | Lookups that had to build or wait for a local copy.
lookup_built_bytes_total | counter | | bytes | | Bytes of local copies that were built.
lookup_evicted_files_total | counter | | files | | Local copies that were evicted because of space
    or age.
lookup_disk_bytes | gauge | | bytes | | Bytes of local copies on disk, on the machine with the
    most.

## Schemas
schema_changes_total | counter | table change decision | count | | Requested schema changes, by
    decision: applied, ignored, refused or parked.

## The daemon
build_info | computed | version pyspark python java paimon_format | info | | Versions in use;
    always 1. `java` is empty until Spark has started.
config_info | computed | pipeline hash | info | | Pipeline, and a hash of the settings in force;
    always 1.
state | gauge | state | boolean | | State of the daemon: exactly one state is 1.
driver_epoch | computed | | count | | Epoch of the stream: the number of times that a daemon took
    ownership of it.
outage | gauge | | count | | 1 while batches fail because a dependency is unavailable or a disk is
    full, and the daemon retries.
webhook_events_total | counter | outcome | count | | Webhook events: sent, failed (retries
    exhausted) or dropped (queue full).
start_timestamp_seconds | gauge | | timestamp | | Start time of the process.
query_failures_total | counter | | count | | Failures of the Spark query; it is restarted after
    each.

## Spark
executors | computed | state | count | | Executors by state: active or dead. In local mode the
    driver is the only executor.
task_failures_total | counter | | count | | Failed tasks on all executors; Spark retries most of
    them.
jvm_memory_bytes | computed | area | bytes | | Memory used by the driver's JVM: heap, nonheap,
    direct.
jvm_heap_limit_bytes | computed | | bytes | | Heap limit of the driver's JVM.
jvm_gc_seconds_total | counter | | seconds | | Time that the driver's JVM spent on garbage
    collection.

## Memory and disks
resident_memory_bytes | computed | process | bytes | | Resident memory on the driver's machine:
    driver (this process), jvm, workers (all Python processes of tasks). Shared pages count in
    each.
cpu_seconds_total | counter | process | seconds | | CPU time of these processes, including exited
    ones.
disk_free_bytes | computed | path | bytes | | Free space on the disks of the checkpoint (state),
    temporary files (tmp) and a local warehouse.
disk_size_bytes | computed | path | bytes | | Size of these disks.

## Store and schema registry
store_requests_total | counter | op outcome | count | | Calls to the store: op get, open, put,
    put_if_absent, head, list, delete; outcome ok, exists (put_if_absent lost), absent, aborted,
    error. Calls of tasks are counted when their batch is committed.
store_request_duration_seconds | histogram | op | seconds | | Duration of calls to the store,
    retries of the client included.
store_bytes_total | counter | op | bytes | | Bytes of whole-file reads and writes; range reads are
    not counted.
registry_requests_total | counter | outcome | count | | Requests to the schema registry: ok,
    unknown, refused, retry (busy, or no answer), wrong. Requests of tasks are counted when their
    batch is committed.
registry_request_duration_seconds | histogram | | seconds | | Duration of requests to the schema
    registry.

## Catalog service
catalog_requests_total | counter | route method status | count | | Requests to `lakeward catalog
    serve`, by the template of their path; `other`: there is none.
catalog_request_duration_seconds | histogram request | route method | seconds | | Duration of these
    requests.
catalog_requests_in_flight | gauge | | count | | Requests that are being answered.
"""


def _metric(row: str) -> Metric:
    name, kind, labels, unit, fold, text = (part.strip() for part in row.split("|"))
    return Metric(name, kind.split()[0], text, tuple(labels.split()), _TYPES[kind], unit, fold)


def _groups() -> tuple[tuple[str, tuple[Metric, ...]], ...]:
    _, *sections = _CATALOGUE.replace("\n    ", " ").split("\n## ")
    groups = []
    for section in sections:
        title, *rows = section.strip().split("\n")
        groups.append((title, tuple(map(_metric, rows))))
    return tuple(groups)


GROUPS = _groups()
"""The catalogue by section of the reference page."""

_SERVICE = "Catalog service"

METRICS = tuple(row for title, rows in GROUPS if title != _SERVICE for row in rows)
"""Metrics of a pipeline."""

CATALOG_METRICS = dict(GROUPS)[_SERVICE]
"""Metrics of `lakeward catalog serve`, a process of its own."""


# The tables of the reference of metrics, generated from the catalogue.
#
# python -m ingest.observe.metrics.metric_table [--write | --check]


PAGE = Path(__file__).resolve().parents[3] / "docs/reference/metrics.md"

_HEAD = "| metric | type | labels | unit | shared | meaning |\n|---|---|---|---|---|---|\n"


def tables() -> dict[str, str]:
    """Return the tables by section of the page."""
    return {title: _HEAD + "".join(map(_row, rows)) for title, rows in GROUPS}


def _row(row: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels)
    gauge = row.type in ("gauge", "computed")
    shared = (row.fold or "-") if gauge and "table" in row.labels else ""
    kind = "gauge" if row.type == "computed" else row.type
    if kind == "histogram":
        bounds = row.buckets or CALL_BUCKETS
        kind = f"histogram, {bounds[0]:g} to {bounds[-1]:g}"
    return f"| `{PREFIX}{row.name}` | {kind} | {labels} | {row.unit} | {shared} | {row.help} |\n"


if __name__ == "__main__":
    sys.exit(settings_page.main(PAGE, tables()))
