# SPDX-License-Identifier: Apache-2.0
import dataclasses
import re
import shutil
import subprocess
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ingest.config.choices import ChangeKind
from ingest.observe.metrics.instruments import TableNames
from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.metric_table import METRICS, PREFIX, STATES
from ingest.observe.metrics.telemetry import STALE_AFTER_S, Metrics
from ingest.pipeline.batch_report import BatchReport
from ingest.pipeline.exchange import LookupUse, TaskUse
from ingest.schema.routing import Outcome, Verdict
from storage.clock import ManualClock
from storage.io.counting import STORE_CALLS, CallCounts
from storage.table.iceberg import IcebergFigures


def verdict(kind, column, outcome):
    return Verdict(
        kind=ChangeKind(kind), column=column, old="", new="INT", outcome=Outcome(outcome)
    )


REPORT = BatchReport(
    batch_id=4,
    identifier=9,
    outcome="committed",
    events=10,
    records={"t": 10},
    bytes=6500,
    rows_by_table={"shop.orders": {"insert": 6, "delete": 2}},
    counts={"t": {"op.c": 6, "op.d": 2, "tombstone": 1, "unrouted": 1}},
    bad_by_topic={"t": {"type": 1}},
    snapshots={"shop.orders": 3},
    sorted_runs={"shop.orders": 5},
    compactions={"shop.orders": 1},
    commit_retries=2,
    commit_seconds={"shop.orders": 0.2},
    source_ts_ms={"shop.orders": (1_700_000_000_000 - 9_000, 1_700_000_000_000 - 3_000)},
    end_offsets={"t": {"0": 40}},
    skipped_offsets={("t", 1): 7},
    schema_verdicts=(
        ("shop.orders", verdict("add.column", "secret_column", "applied")),
        ("a.b", verdict("create.table", "", "refused")),
    ),
    duration_s=1.0,
    phases={"job": 0.8, "task_decode": 1.5},
    started_ms=1_700_000_000_000,
)


@pytest.fixture
def clock():
    return ManualClock(1_700_000_001_000)


@pytest.fixture
def metrics(clock):
    return Metrics(clock, process=False)


def sample(metrics, name, **labels):
    return metrics.registry.get_sample_value(PREFIX + name, {k: str(v) for k, v in labels.items()})


def test_report_is_counted(metrics):
    metrics.batch_started()
    assert sample(metrics, "batch_in_progress") == 1
    metrics.record(REPORT)
    assert sample(metrics, "batch_in_progress") == 0
    assert sample(metrics, "batches_total", outcome="committed") == 1
    assert sample(metrics, "source_records_total", topic="t") == 10
    assert sample(metrics, "source_bytes_total") == 6500
    assert sample(metrics, "decode_records_total", topic="t", op="c") == 6
    assert sample(metrics, "decode_records_total", topic="t", op="tombstone") == 1
    assert sample(metrics, "decode_errors_total", topic="t", reason="type") == 1
    assert sample(metrics, "dlq_records_total", topic="t", reason="type") == 1
    assert sample(metrics, "source_skipped_offsets_total", topic="t", partition=1) == 7
    assert sample(metrics, "table_rows_written_total", table="shop.orders", kind="delete") == 2
    assert sample(metrics, "table_snapshot_id", table="shop.orders") == 3
    assert sample(metrics, "table_sorted_runs_max", table="shop.orders") == 5
    assert sample(metrics, "commit_retries_total", reason="snapshot_exists") == 2
    assert sample(metrics, "commits_total", table="shop.orders", kind="compact", outcome="ok") == 1
    assert sample(metrics, "batch_phase_duration_seconds_sum", phase="job") == 0.8
    assert sample(metrics, "batch_phase_task_seconds_total", phase="decode") == 1.5
    # 1 s of batch after a start 9 s behind the oldest change
    assert sample(metrics, "table_commit_delay_seconds_sum", table="shop.orders") == 10.0
    assert sample(metrics, "last_success_timestamp_seconds") == 1_700_000_001


def test_compactions_changelog_and_lookups_are_counted(metrics):
    use = LookupUse(hits=4, misses=1, built_bytes=900, evicted_files=2, disk_bytes=5_000)
    report = dataclasses.replace(
        REPORT,
        compactions={},
        compactions_dropped={"shop.orders": 2},
        compaction_bytes={"a.b": 700},
        compaction_seconds={"a.b": 0.5},
        changelog_rows={"a.b": 30},
        lookup=use,
    )
    metrics.record(report)
    metrics.record(report)
    lost = {"table": "shop.orders", "kind": "minor", "outcome": "dropped"}
    assert sample(metrics, "compactions_total", **lost) == 4
    conflict = {"table": "shop.orders", "kind": "compact", "outcome": "conflict"}
    assert sample(metrics, "commits_total", **conflict) == 2
    assert sample(metrics, "compaction_seconds_total", table="a.b", kind="minor") == 1.0
    assert sample(metrics, "compaction_written_bytes_total", table="a.b", kind="minor") == 1400
    assert sample(metrics, "table_changelog_rows_total", table="a.b") == 60
    assert sample(metrics, "lookup_hits_total") == 8
    assert sample(metrics, "lookup_misses_total") == 2
    assert sample(metrics, "lookup_built_bytes_total") == 1800
    assert sample(metrics, "lookup_evicted_files_total") == 4
    assert sample(metrics, "lookup_disk_bytes") == 5_000


def test_publications_of_iceberg_metadata_count_once(metrics):
    first = IcebergFigures(seconds=0.5, versions=2, manifests=3, size=700, published=2)
    metrics.record_iceberg("a.b", first)
    metrics.record_iceberg("a.b", first)
    later = dataclasses.replace(first, seconds=0.75, failures=1, unpublished=4)
    metrics.record_iceberg("a.b", later)
    assert sample(metrics, "iceberg_versions_total", table="a.b") == 2
    assert sample(metrics, "iceberg_manifests_written_total", table="a.b") == 3
    assert sample(metrics, "iceberg_written_bytes_total", table="a.b") == 700
    assert sample(metrics, "iceberg_publish_seconds_total", table="a.b") == 0.75
    assert sample(metrics, "iceberg_publish_failures_total", table="a.b") == 1
    assert sample(metrics, "iceberg_behind_snapshots", table="a.b") == 4


def test_a_batch_that_this_process_began_before_counts_when_it_is_replayed(metrics):
    topic = next(iter(REPORT.counts))
    replayed = dataclasses.replace(REPORT, outcome="replayed", snapshots={})
    metrics.record(replayed)
    assert not sample(metrics, "source_records_total", topic=topic)
    metrics.record(replayed, again=True)
    assert sample(metrics, "source_records_total", topic=topic) > 0
    assert sample(metrics, "batches_total", outcome="replayed") == 2


def test_a_record_that_was_decoded_and_fits_no_table_is_one_record(metrics):
    report = dataclasses.replace(
        REPORT, counts={"t": {"op.u": 10}}, bad_by_topic={"t": {"type": 1}}
    )
    metrics.record(report)
    assert sample(metrics, "source_records_total", topic="t") == 10
    assert sample(metrics, "decode_errors_total", topic="t", reason="type") == 1


def test_schema_changes_never_put_names_into_labels(metrics):
    metrics.record(REPORT)
    body = metrics.exposition()[0].decode()
    assert "secret_column" not in body
    labels = {"table": "shop.orders", "change": "add.column", "decision": "applied"}
    assert sample(metrics, "schema_changes_total", **labels) == 1
    labels = {"table": "a.b", "change": "create.table", "decision": "refused"}
    assert sample(metrics, "schema_changes_total", **labels) == 1


def test_lag_is_end_minus_committed(metrics):
    metrics.record_committed({"t": {"0": 10, "1": 0}})
    metrics.record_watermarks({("t", 0): (0, 50), ("t", 1): (0, 5)})
    assert metrics.lag() == {("t", 0): 40, ("t", 1): 5}
    metrics.record(REPORT)
    assert sample(metrics, "source_lag_records", topic="t", partition=0) == 10
    assert sample(metrics, "source_partitions", topic="t") == 2
    assert sample(metrics, "source_retention_headroom_ratio", topic="t", partition=0) == 0.8


def test_lag_seconds_count_from_when_the_oldest_waiting_record_was_seen(metrics, clock):
    metrics.record_committed({"t": {"0": 10}})
    metrics.record_watermarks({("t", 0): (0, 10)})
    assert sample(metrics, "source_lag_seconds", topic="t") == 0
    clock.advance(15_000)
    metrics.record_watermarks({("t", 0): (0, 30)})
    clock.advance(15_000)
    metrics.record_watermarks({("t", 0): (0, 60)})
    assert sample(metrics, "source_lag_seconds", topic="t") == 15
    metrics.record(REPORT)  # up to 40: only what was seen 0 s ago waits
    assert sample(metrics, "source_lag_seconds", topic="t") == 0
    clock.advance(4_000)
    assert sample(metrics, "source_lag_seconds", topic="t") == 4


def test_the_age_of_records_of_a_topic_that_was_recreated_is_not_kept(metrics, clock):
    metrics.record_committed({"t": {"0": 90}})
    metrics.record_watermarks({("t", 0): (0, 100)})
    clock.advance(15_000)
    metrics.record_watermarks({("t", 0): (0, 3)})
    metrics.record_committed({"t": {"0": 3}})
    clock.advance(15_000)
    metrics.record_watermarks({("t", 0): (0, 5)})
    clock.advance(4_000)
    assert sample(metrics, "source_lag_records", topic="t", partition="0") == 2
    assert sample(metrics, "source_lag_seconds", topic="t") == 4


def test_series_of_a_silent_source_disappear(metrics, clock):
    metrics.record_watermarks({("t", 0): (0, 50)})
    assert sample(metrics, "source_end_offset", topic="t", partition=0) == 50
    clock.advance(int(STALE_AFTER_S * 1000) + 1)
    assert sample(metrics, "source_end_offset", topic="t", partition=0) is None
    assert metrics.lag() == {}


def test_a_topic_that_was_deleted_is_not_late_for_ever(metrics, clock):
    metrics.record(REPORT)
    metrics.record_committed({"gone": {"0": 10}, "t": {"0": 40}})
    metrics.record_watermarks({("gone", 0): (0, 50), ("t", 0): (0, 40)})
    assert metrics.freshness_s()["shop.orders"] > 0
    for _ in range(9):
        clock.advance(15_000)
        metrics.record_watermarks({("t", 0): (0, 40)})
    assert metrics.lag() == {("t", 0): 0}
    assert sample(metrics, "source_end_offset", topic="gone", partition=0) is None
    assert metrics.freshness_s() == {"shop.orders": 0.0}


def test_a_partition_without_a_leader_stays_late(metrics, clock):
    metrics.record(REPORT)
    metrics.record_committed({"t": {"0": 40, "1": 10}})
    metrics.record_watermarks({("t", 0): (0, 40), ("t", 1): (0, 50)})
    for _ in range(10):
        clock.advance(15_000)
        metrics.record_watermarks({("t", 0): (0, 40)}, {("t", 1)})
    assert metrics.lag() == {("t", 0): 0}
    assert metrics.freshness_s()["shop.orders"] > 100


def test_a_topic_whose_only_partition_has_no_leader_is_not_called_fresh(metrics, clock):
    metrics.record(REPORT)
    metrics.record_committed({"t": {"0": 40}, "u": {"0": 7}})
    metrics.record_watermarks({("t", 0): (0, 40), ("u", 0): (0, 7)})
    assert metrics.freshness_s() == {"shop.orders": 0.0}
    for _ in range(10):
        clock.advance(15_000)
        metrics.record_watermarks({("u", 0): (0, 7)}, {("t", 0)})
    assert metrics.freshness_s()["shop.orders"] > 100, "nobody knows what was written to it"
    clock.advance(15_000)
    metrics.record_watermarks({("t", 0): (0, 40), ("u", 0): (0, 7)})
    assert metrics.freshness_s() == {"shop.orders": 0.0}


def test_freshness_is_zero_when_caught_up_and_an_age_otherwise(metrics, clock):
    metrics.record(REPORT)
    assert metrics.freshness_s() == {}  # never polled: not known
    metrics.record_watermarks({("t", 0): (0, 40)})
    assert metrics.freshness_s() == {"shop.orders": 0.0}
    metrics.record_watermarks({("t", 0): (0, 41)})
    assert metrics.freshness_s() == {"shop.orders": 4.0}
    clock.advance(600_000)  # the broker has been silent: age, not silence
    assert metrics.freshness_s() == {"shop.orders": 604.0}


def test_state_is_a_state_set(metrics):
    metrics.set_state("draining")
    values = {state: sample(metrics, "state", state=state) for state in STATES}
    assert values == {state: float(state == "draining") for state in STATES}


def test_negative_delays_are_clipped(metrics):
    report = BatchReport(
        batch_id=1,
        identifier=1,
        outcome="committed",
        source_ts_ms={"a.b": (2_000_000_000_000, 2_000_000_000_000)},
        started_ms=1_700_000_000_000,
    )
    metrics.record(report)
    metrics.record_watermarks({("t", 0): (0, 1)})
    assert sample(metrics, "table_commit_delay_seconds_sum", table="a.b") == 0
    assert metrics.freshness_s() == {"a.b": 0.0}


def test_exposition_parses_and_has_help_for_every_row(metrics):
    metrics.record(REPORT)
    body, content_type = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    families = {f.name: f for f in text_string_to_metric_families(metrics.exposition()[0].decode())}
    for row in METRICS:
        family = families[PREFIX + row.name.removesuffix("_total")]
        assert family.documentation == row.help
    assert not [name for name in families if name.endswith("_created")]


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian: apt-get install prometheus)",
)
def test_promtool_finds_nothing_to_say(clock):
    metrics = Metrics(clock)
    metrics.record(REPORT)
    metrics.record_layout("a.x", layout(files=1))
    body = metrics.exposition()[0]
    done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_process_metrics_come_along_by_default(clock):
    body = Metrics(clock).exposition()[0].decode()
    assert "process_cpu_seconds_total" in body
    assert "python_gc_collections_total" in body


@pytest.mark.parametrize("row", METRICS, ids=lambda row: row.name)
def test_names_follow_the_rules(row):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
    assert row.name.endswith("_total") == (row.type == "counter")
    assert not re.search(r"_(ms|millis|mb|kb|percent)$", row.name)
    assert "timestamp" not in row.name or row.name.endswith("timestamp_seconds")
    assert not row.buckets or row.type == "histogram"
    assert row.help.endswith(".")
    assert not {"bucket", "key", "offset", "file", "error"} & set(row.labels)
    if "partition" in row.labels:
        assert row.name.startswith("source_")


def test_a_table_is_in_one_state(metrics):
    metrics.set_table_states({"a.x": "running", "a.y": "parked"})
    metrics.set_table_states({"a.x": "behind", "a.y": "parked"})
    states = ("running", "parked", "behind")
    assert [sample(metrics, "table_state", table="a.x", state=s) for s in states] == [0, 0, 1]
    assert [sample(metrics, "table_state", table="a.y", state=s) for s in states] == [0, 1, 0]


def test_tables_above_the_limit_share_a_series(clock, caplog):
    metrics = Metrics(clock, process=False, tables=TableNames(most=2))
    layouts = {name: layout(files=n) for name, n in (("a.x", 1), ("a.y", 2), ("a.z", 4))}
    for name, found in layouts.items():
        metrics.record_layout(name, found)
    metrics.record_layout("a.w", layout(files=8))
    metrics.set_table_states(dict.fromkeys((*layouts, "a.w"), "parked"))
    metrics.compaction_ended("a.z", "full", None)
    metrics.compaction_ended("a.w", "full", None)
    assert [sample(metrics, "table_files", table=t) for t in ("a.x", "a.y", "other")] == [1, 2, 12]
    assert sample(metrics, "table_sorted_runs_max", table="other") == 8
    assert sample(metrics, "table_schema_id", table="a.x") == 3
    assert sample(metrics, "table_schema_id", table="other") is None  # of many there is none
    assert sample(metrics, "table_state", table="other", state="parked") == 2
    failed = {"table": "other", "kind": "full", "outcome": "error"}
    assert sample(metrics, "compactions_total", **failed) == 2
    assert caplog.text.count("more tables than metrics.max.tables") == 1


def test_all_tables_share_a_series_without_a_name(clock):
    metrics = Metrics(clock, process=False, tables=TableNames(per_table=False))
    metrics.record(REPORT)
    metrics.record_layout("a.x", layout(files=1))
    metrics.record_layout("a.y", layout(files=2))
    assert sample(metrics, "table_files", table="") == 3
    assert sample(metrics, "table_rows_written_total", table="", kind="insert") == 6
    assert b'table="shop.orders"' not in metrics.exposition()[0]


def test_every_series_has_the_labels_of_the_settings(clock):
    metrics = Metrics(clock, labels={"region": "eu"})
    metrics.record(REPORT)
    lines = [line for line in metrics.exposition()[0].decode().splitlines() if line[0] != "#"]
    assert lines
    assert not [line for line in lines if 'region="eu"' not in line]


def test_a_table_is_behind_when_its_own_topics_are(metrics):
    metrics.record(REPORT)
    metrics.set_feeds({"shop.orders": ("t",)})
    metrics.record_watermarks({("t", 0): (0, 40), ("u", 0): (0, 5)})
    assert metrics.freshness_s() == {"shop.orders": 0.0}
    metrics.record_watermarks({("t", 0): (0, 41), ("u", 0): (0, 5)})
    assert metrics.freshness_s() == {"shop.orders": 4.0}
    metrics.set_table_states({"shop.orders": "parked"})
    assert metrics.freshness_s() == {}


def test_waiting_compactions_and_how_busy_the_background_is(metrics, clock):
    metrics.compaction_waits({"a.x": clock.monotonic_s(), "a.y": clock.monotonic_s() + 5})
    metrics.compaction_started()
    clock.advance(30_000)
    assert sample(metrics, "compaction_pending") == 2
    assert sample(metrics, "compaction_oldest_pending_seconds") == 30
    assert sample(metrics, "compaction_busy_ratio") == 1
    metrics.compaction_ended("a.x", "minor", None)
    metrics.compaction_waits({})
    clock.advance(270_000)
    assert sample(metrics, "compaction_busy_ratio") == pytest.approx(0.1)
    clock.advance(300_000)
    assert sample(metrics, "compaction_busy_ratio") == 0
    assert sample(metrics, "compaction_oldest_pending_seconds") == 0


def test_calls_of_tasks_count_once_their_batch_is_recorded(metrics):
    counts = CallCounts()
    counts.add("put", "ok", 0.02, 100)
    counts.add("put", "error", 3.0)
    before = _store_puts(metrics)
    use = TaskUse(store=counts.figures())
    metrics.record(dataclasses.replace(REPORT, use=use))
    metrics.record(dataclasses.replace(REPORT, use=use))
    after = _store_puts(metrics)
    assert [b - a for a, b in zip(before, after, strict=True)] == [2, 2, 4, 2, 200]


def test_two_scrapes_at_once_count_every_call_once(metrics, monkeypatch):
    """The second ends between the first one's look at the counts and its adding of them."""
    others, real = [], TaskUse.now

    def now():
        use = real()
        if not others:
            STORE_CALLS.add("put", "ok", 0.02)
            others.append(threading.Thread(target=metrics.exposition))
            others[0].start()
            others[0].join(0.3)
        return use

    before = _store_puts(metrics)
    with monkeypatch.context() as patch:
        patch.setattr(TaskUse, "now", staticmethod(now))
        metrics.exposition()
        others[0].join(10)
    assert _store_puts(metrics)[0] - before[0] == 1


def _store_puts(metrics):
    metrics.exposition()
    return [
        sample(metrics, name, op="put", **labels) or 0
        for name, labels in (
            ("store_requests_total", {"outcome": "ok"}),
            ("store_requests_total", {"outcome": "error"}),
            ("store_request_duration_seconds_count", {}),
            ("store_request_duration_seconds_bucket", {"le": "0.025"}),
            ("store_bytes_total", {}),
        )
    ]


def layout(*, files):
    return TableLayout(
        files=files,
        bytes=10 * files,
        records=files,
        buckets=1,
        partitions=1,
        runs=(files,),
        level0=(files,),
        compaction_trigger=5,
        stop_trigger=8,
        schema_id=3,
        snapshots=2,
        committed_ms=1,
    )
