# SPDX-License-Identifier: Apache-2.0
"""When each alert fires and when it does not: series, a minute each, and the minute of the look."""

import dataclasses
import re

_HERE = {"namespace": "n", "job": "lakeward", "instance": "i"}
_LOOK = re.compile(r"(\w+) (fires|is silent) at minute (\d+)(?:: (.+))?")


@dataclasses.dataclass(frozen=True)
class Case:
    alert: str
    fires: bool
    minute: int
    series: dict[str, str]
    why: str


def _cases(text: str) -> tuple[Case, ...]:
    """A case begins with an alert and a minute; its series follow, with their values."""
    found: list[Case] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            name, values = line.strip().split(" ", 1)
            found[-1].series[_placed(name)] = values
            continue
        look = _LOOK.fullmatch(line)
        assert look is not None, line
        alert, does, minute, why = look.groups("")
        found.append(Case(f"Lakeward{alert}", does == "fires", int(minute), {}, why))
    return tuple(found)


def _placed(series: str) -> str:
    """A series with the labels of our job, unless it has its own."""
    name, _, own = series.partition("{")
    labels = _HERE | dict(re.findall(r'(\w+)="([^"]*)"', own))
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{text}}}"


CASES = _cases("""
Down fires at minute 18: the scrape fails
    up 1x10 0x20
Down fires at minute 8: there is no target at all
Down is silent at minute 13: the scrape has failed for three minutes
    up 1x10 0x20
Down is silent at minute 18: all is well
    up 1x30
Down fires at minute 18: no node takes the pod, another pipeline runs
    up 1x30
    kube_pod_status_phase{phase="Pending",pod="p"} 1x30
    kube_pod_container_resource_limits{container="lakeward",resource="memory",pod="p"} 1x30
Down is silent at minute 18: another program's pod waits
    up 1x30
    kube_pod_status_phase{phase="Pending",pod="p"} 1x30
    kube_pod_container_resource_limits{container="other",resource="memory",pod="p"} 1x30
Down is silent at minute 18: the pod has run since
    up 1x30
    kube_pod_status_phase{phase="Pending",pod="p"} 1x8 0x22
    kube_pod_container_resource_limits{container="lakeward",resource="memory",pod="p"} 1x30
CrashLooping fires at minute 10: three starts
    lakeward_start_timestamp_seconds 0 1 2 3x20
CrashLooping is silent at minute 10: two starts
    lakeward_start_timestamp_seconds 0 1 2x20
CrashLooping is silent at minute 50: long ago
    lakeward_start_timestamp_seconds 0 1 2 3x60
CrashLooping fires at minute 20: the pod restarts
    kube_pod_container_status_restarts_total{container="lakeward",pod="p"} 0 2 4 6x30
NoCommit fires at minute 20: no batch, records wait
    lakeward_last_success_timestamp_seconds 0x30
    lakeward_source_lag_seconds{topic="t"} 1000x30
NoCommit is silent at minute 20: no batch, nothing waits
    lakeward_last_success_timestamp_seconds 0x30
    lakeward_source_lag_seconds{topic="t"} 0x30
NoCommit is silent at minute 20: batches, records wait
    lakeward_last_success_timestamp_seconds 0+60x30
    lakeward_source_lag_seconds{topic="t"} 1000x30
NoCommit is silent at minute 20: it is paused
    lakeward_last_success_timestamp_seconds 0x30
    lakeward_source_lag_seconds{topic="t"} 1000x30
    lakeward_state{state="paused"} 1x30
NoCommit fires at minute 20: no batch of this pipeline; another one works, a third is paused
    lakeward_last_success_timestamp_seconds 0x30
    lakeward_source_lag_seconds{topic="t"} 1000x30
    lakeward_last_success_timestamp_seconds{job="lakeward2"} 0+60x30
    lakeward_source_lag_seconds{topic="t",job="lakeward2"} 0x30
    lakeward_state{state="paused",job="lakeward3"} 1x30
Paused fires at minute 65
    lakeward_state{state="paused"} 1x90
Paused is silent at minute 45: not for long
    lakeward_state{state="paused"} 1x90
BatchStuck fires at minute 35
    lakeward_batch_start_timestamp_seconds 0x60
    lakeward_batch_in_progress 1x60
BatchStuck is silent at minute 35: it has ended
    lakeward_batch_start_timestamp_seconds 0x60
    lakeward_batch_in_progress 0x60
Outage fires at minute 15
    lakeward_outage 1x30
Outage is silent at minute 15: back after five minutes
    lakeward_outage 1x5 0x30
QueryFailing fires at minute 20
    lakeward_query_failures_total 0+1x30
QueryFailing is silent at minute 40: one failure
    lakeward_query_failures_total 0x30 1x30
Freshness fires at minute 15
    lakeward_table_freshness_seconds{table="a"} 400x30
Freshness is silent at minute 15
    lakeward_table_freshness_seconds{table="a"} 200x30
Freshness is silent at minute 15: level again after five minutes
    lakeward_table_freshness_seconds{table="a"} 400x5 0x30
LagGrowing fires at minute 65
    lakeward_source_lag_records{topic="t",partition="0"} 10000+100x90
LagGrowing is silent at minute 65: it shrinks
    lakeward_source_lag_records{topic="t",partition="0"} 90000-100x90
LagGrowing is silent at minute 65: it is small
    lakeward_source_lag_records{topic="t",partition="0"} 0+10x90
SourcePollFailing fires at minute 15
    lakeward_source_offsets_poll_timestamp_seconds 0x30
    lakeward_state{state="running"} 1x30
SourcePollFailing is silent at minute 15
    lakeward_source_offsets_poll_timestamp_seconds 0+60x30
    lakeward_state{state="running"} 1x30
RetentionRisk fires at minute 10
    lakeward_source_retention_headroom_ratio{topic="t",partition="0"} 0.1x20
    lakeward_source_lag_records{topic="t",partition="0"} 5x20
RetentionRisk is silent at minute 10: nothing waits
    lakeward_source_retention_headroom_ratio{topic="t",partition="0"} 0.1x20
    lakeward_source_lag_records{topic="t",partition="0"} 0x20
DataLoss fires at minute 12: more
    lakeward_source_skipped_offsets_total{topic="t",partition="0"} 3x10 7x20
DataLoss fires at minute 12: the first
    lakeward_source_skipped_offsets_total{topic="t",partition="0"} _x10 7x20
DataLoss is silent at minute 40: long ago
    lakeward_source_skipped_offsets_total{topic="t",partition="0"} 3x10 7x50
TableParked fires at minute 5
    lakeward_table_state{table="a",state="parked"} 1x10
TableParked is silent at minute 5
    lakeward_table_state{table="a",state="parked"} 0x10
DeadLetters fires at minute 30
    lakeward_dlq_records_total{topic="t",reason="json"} 0+1x40
    lakeward_source_records_total{topic="t"} 0+100x40
DeadLetters is silent at minute 30: one in ten thousand
    lakeward_dlq_records_total{topic="t",reason="json"} 0+1x40
    lakeward_source_records_total{topic="t"} 0+10000x40
UnforeseenRecord fires at minute 12: the first
    lakeward_dlq_records_total{topic="t",reason="internal"} _x10 1x60
UnforeseenRecord fires at minute 12: one more
    lakeward_dlq_records_total{topic="t",reason="internal"} 1x10 2x60
UnforeseenRecord is silent at minute 12: foreseen
    lakeward_dlq_records_total{topic="t",reason="json"} _x10 1x60
UnforeseenRecord is silent at minute 90: long ago
    lakeward_dlq_records_total{topic="t",reason="internal"} _x10 1x120
SchemaRefused fires at minute 12: the first
    lakeward_schema_changes_total{table="a",change="x",decision="refused"} _x10 1x60
SchemaRefused fires at minute 12: one more
    lakeward_schema_changes_total{table="a",change="x",decision="parked"} 1x10 2x60
SchemaRefused is silent at minute 12: made
    lakeward_schema_changes_total{table="a",change="x",decision="applied"} _x10 1x60
CommitConflicts fires at minute 20
    lakeward_commit_retries_total{reason="x"} 0+3x30
CommitConflicts is silent at minute 20
    lakeward_commit_retries_total{reason="x"} 0+1x30
CommitConflicts fires at minute 20: compactions
    lakeward_commit_retries_total{reason="x"} 0x30
    lakeward_commits_total{table="a",kind="compact",outcome="conflict"} 0+3x30
TwoDaemons fires at minute 5
    lakeward_config_info{pipeline="p",hash="a",instance="i"} 1x10
    lakeward_config_info{pipeline="p",hash="a",instance="j"} 1x10
    lakeward_state{state="running",instance="i"} 1x10
    lakeward_state{state="running",instance="j"} 1x10
TwoDaemons is silent at minute 5: the second waits
    lakeward_config_info{pipeline="p",hash="a",instance="i"} 1x10
    lakeward_config_info{pipeline="p",hash="a",instance="j"} 1x10
    lakeward_state{state="running",instance="i"} 1x10
    lakeward_state{state="running",instance="j"} 0x10
CompactionBehind fires at minute 40
    lakeward_table_sorted_runs_max{table="a"} 7x60
    lakeward_table_sorted_runs_stop_trigger{table="a"} 8x60
CompactionBehind is silent at minute 40
    lakeward_table_sorted_runs_max{table="a"} 5x60
    lakeward_table_sorted_runs_stop_trigger{table="a"} 8x60
IcebergBehind fires at minute 20
    lakeward_iceberg_behind_snapshots{table="a"} 0x2 3x30
IcebergBehind is silent at minute 20: caught up in time
    lakeward_iceberg_behind_snapshots{table="a"} 3x9 0x30
CompactionFailing fires at minute 30
    lakeward_compactions_total{table="a",kind="minor",outcome="error"} 0+1x60
CompactionFailing is silent at minute 30
    lakeward_compactions_total{table="a",kind="minor",outcome="dropped"} 0+1x60
StoreErrors fires at minute 30
    lakeward_store_requests_total{op="put",outcome="error"} 0+5x40
    lakeward_store_requests_total{op="put",outcome="ok"} 0+95x40
StoreErrors is silent at minute 30: answers are no errors
    lakeward_store_requests_total{op="put",outcome="exists"} 0+5x40
    lakeward_store_requests_total{op="put",outcome="ok"} 0+95x40
DiskFilling fires at minute 60: by its pace
    lakeward_disk_free_bytes{path="tmp"} 1000-5x180
    lakeward_disk_size_bytes{path="tmp"} 2000x180
DiskFilling fires at minute 60: nearly full
    lakeward_disk_free_bytes{path="tmp"} 40x180
    lakeward_disk_size_bytes{path="tmp"} 1000x180
DiskFilling is silent at minute 60
    lakeward_disk_free_bytes{path="tmp"} 500x180
    lakeward_disk_size_bytes{path="tmp"} 1000x180
MemoryNearLimit fires at minute 20
    container_memory_working_set_bytes{container="lakeward",pod="p"} 95x30
    kube_pod_container_resource_limits{container="lakeward",pod="p",resource="memory"} 100x30
MemoryNearLimit is silent at minute 20
    container_memory_working_set_bytes{container="lakeward",pod="p"} 80x30
    kube_pod_container_resource_limits{container="lakeward",pod="p",resource="memory"} 100x30
HeapFull fires at minute 35
    lakeward_jvm_memory_bytes{area="heap"} 95x60
    lakeward_jvm_heap_limit_bytes 100x60
HeapFull is silent at minute 35: it is collected
    lakeward_jvm_memory_bytes{area="heap"} 95 50 95 50 95 50 95 50x60
    lakeward_jvm_heap_limit_bytes 100x60
ExecutorsLost fires at minute 8
    lakeward_executors{state="dead"} 0 1 2 4x20
ExecutorsLost is silent at minute 8
    lakeward_executors{state="dead"} 0 1x20
ClockSkew fires at minute 15
    lakeward_source_clock_skew_seconds 10x30
ClockSkew is silent at minute 15
    lakeward_source_clock_skew_seconds 2x30
DelayBudgetFast fires at minute 70
    lakeward_table_commit_delay_seconds_bucket{table="a",le="60.0"} 0+50x90
    lakeward_table_commit_delay_seconds_count{table="a"} 0+100x90
DelayBudgetFast is silent at minute 70: one in a hundred
    lakeward_table_commit_delay_seconds_bucket{table="a",le="60.0"} 0+99x90
    lakeward_table_commit_delay_seconds_count{table="a"} 0+100x90
DelayBudgetSlow fires at minute 85
    lakeward_table_commit_delay_seconds_bucket{table="a",le="60.0"} 0+90x90
    lakeward_table_commit_delay_seconds_count{table="a"} 0+100x90
DelayBudgetSlow is silent at minute 85: one in a hundred
    lakeward_table_commit_delay_seconds_bucket{table="a",le="60.0"} 0+99x90
    lakeward_table_commit_delay_seconds_count{table="a"} 0+100x90
""")
