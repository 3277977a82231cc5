# SPDX-License-Identifier: Apache-2.0
"""When each alert fires and when it does not: series, a minute each, and the minute of the look."""

import dataclasses

_HERE = {"namespace": "n", "job": "lakeward", "instance": "i"}


@dataclasses.dataclass(frozen=True)
class Case:
    alert: str
    fires: bool
    minute: int
    series: dict[str, str]
    why: str


def case(alert: str, fires: bool, minute: int, why: str, **series: str) -> Case:
    """Names of series in Python's spelling: `name__label_value__label_value`."""
    return Case(f"Lakeward{alert}", fires, minute, dict(map(_series, series.items())), why)


def _series(item: tuple[str, str]) -> tuple[str, str]:
    name, *pairs = item[0].split("__")
    labels = dict(_HERE)
    for pair in pairs:
        label, _, value = pair.partition("_")
        labels[label] = value.replace("DOT", ".")
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    outside = name.startswith(("up", "container", "kube"))
    full = name if outside else f"lakeward_{name}"
    return f"{full}{{{text}}}", item[1]


T = "__topic_t__partition_0"

CASES = (
    case("Down", True, 18, "the scrape fails", up="1x10 0x20"),
    case("Down", True, 8, "there is no target at all"),
    case("Down", False, 13, "the scrape has failed for three minutes", up="1x10 0x20"),
    case("Down", False, 18, "all is well", up="1x30"),
    case(
        "Down",
        True,
        18,
        "no node takes the pod, another pipeline runs",
        up="1x30",
        kube_pod_status_phase__phase_Pending__pod_p="1x30",
        kube_pod_container_resource_limits__container_lakeward__resource_memory__pod_p="1x30",
    ),
    case(
        "Down",
        False,
        18,
        "another program's pod waits",
        up="1x30",
        kube_pod_status_phase__phase_Pending__pod_p="1x30",
        kube_pod_container_resource_limits__container_other__resource_memory__pod_p="1x30",
    ),
    case(
        "Down",
        False,
        18,
        "the pod has run since",
        up="1x30",
        kube_pod_status_phase__phase_Pending__pod_p="1x8 0x22",
        kube_pod_container_resource_limits__container_lakeward__resource_memory__pod_p="1x30",
    ),
    case("CrashLooping", True, 10, "three starts", start_timestamp_seconds="0 1 2 3x20"),
    case("CrashLooping", False, 10, "two starts", start_timestamp_seconds="0 1 2x20"),
    case("CrashLooping", False, 50, "long ago", start_timestamp_seconds="0 1 2 3x60"),
    case(
        "CrashLooping",
        True,
        20,
        "the pod restarts",
        kube_pod_container_status_restarts_total__container_lakeward__pod_p="0 2 4 6x30",
    ),
    case(
        "NoCommit",
        True,
        20,
        "no batch, records wait",
        last_success_timestamp_seconds="0x30",
        source_lag_seconds__topic_t="1000x30",
    ),
    case(
        "NoCommit",
        False,
        20,
        "no batch, nothing waits",
        last_success_timestamp_seconds="0x30",
        source_lag_seconds__topic_t="0x30",
    ),
    case(
        "NoCommit",
        False,
        20,
        "batches, records wait",
        last_success_timestamp_seconds="0+60x30",
        source_lag_seconds__topic_t="1000x30",
    ),
    case(
        "NoCommit",
        False,
        20,
        "somebody paused it",
        last_success_timestamp_seconds="0x30",
        source_lag_seconds__topic_t="1000x30",
        state__state_paused="1x30",
    ),
    case(
        "NoCommit",
        True,
        20,
        "no batch of this pipeline; another one works, a third is paused",
        last_success_timestamp_seconds="0x30",
        source_lag_seconds__topic_t="1000x30",
        last_success_timestamp_seconds__job_lakeward2="0+60x30",
        source_lag_seconds__topic_t__job_lakeward2="0x30",
        state__state_paused__job_lakeward3="1x30",
    ),
    case("Paused", True, 65, "", state__state_paused="1x90"),
    case("Paused", False, 45, "not for long", state__state_paused="1x90"),
    case(
        "BatchStuck", True, 35, "", batch_start_timestamp_seconds="0x60", batch_in_progress="1x60"
    ),
    case(
        "BatchStuck",
        False,
        35,
        "it has ended",
        batch_start_timestamp_seconds="0x60",
        batch_in_progress="0x60",
    ),
    case("Outage", True, 15, "", outage="1x30"),
    case("Outage", False, 15, "back after five minutes", outage="1x5 0x30"),
    case("QueryFailing", True, 20, "", query_failures_total="0+1x30"),
    case("QueryFailing", False, 40, "one failure", query_failures_total="0x30 1x30"),
    case("Freshness", True, 15, "", table_freshness_seconds__table_a="400x30"),
    case("Freshness", False, 15, "", table_freshness_seconds__table_a="200x30"),
    case(
        "Freshness",
        False,
        15,
        "level again after five minutes",
        table_freshness_seconds__table_a="400x5 0x30",
    ),
    case("LagGrowing", True, 65, "", **{f"source_lag_records{T}": "10000+100x90"}),
    case("LagGrowing", False, 65, "it shrinks", **{f"source_lag_records{T}": "90000-100x90"}),
    case("LagGrowing", False, 65, "it is small", **{f"source_lag_records{T}": "0+10x90"}),
    case(
        "SourcePollFailing",
        True,
        15,
        "",
        source_offsets_poll_timestamp_seconds="0x30",
        state__state_running="1x30",
    ),
    case(
        "SourcePollFailing",
        False,
        15,
        "",
        source_offsets_poll_timestamp_seconds="0+60x30",
        state__state_running="1x30",
    ),
    case(
        "RetentionRisk",
        True,
        10,
        "",
        **{f"source_retention_headroom_ratio{T}": "0.1x20", f"source_lag_records{T}": "5x20"},
    ),
    case(
        "RetentionRisk",
        False,
        10,
        "nothing waits",
        **{f"source_retention_headroom_ratio{T}": "0.1x20", f"source_lag_records{T}": "0x20"},
    ),
    case("DataLoss", True, 12, "more", **{f"source_skipped_offsets_total{T}": "3x10 7x20"}),
    case("DataLoss", True, 12, "the first", **{f"source_skipped_offsets_total{T}": "_x10 7x20"}),
    case("DataLoss", False, 40, "long ago", **{f"source_skipped_offsets_total{T}": "3x10 7x50"}),
    case("TableParked", True, 5, "", table_state__table_a__state_parked="1x10"),
    case("TableParked", False, 5, "", table_state__table_a__state_parked="0x10"),
    case(
        "DeadLetters",
        True,
        30,
        "",
        dlq_records_total__topic_t__reason_json="0+1x40",
        source_records_total__topic_t="0+100x40",
    ),
    case(
        "DeadLetters",
        False,
        30,
        "one in ten thousand",
        dlq_records_total__topic_t__reason_json="0+1x40",
        source_records_total__topic_t="0+10000x40",
    ),
    case(
        "UnforeseenRecord",
        True,
        12,
        "the first",
        dlq_records_total__topic_t__reason_internal="_x10 1x60",
    ),
    case(
        "UnforeseenRecord",
        True,
        12,
        "one more",
        dlq_records_total__topic_t__reason_internal="1x10 2x60",
    ),
    case(
        "UnforeseenRecord",
        False,
        12,
        "foreseen",
        dlq_records_total__topic_t__reason_json="_x10 1x60",
    ),
    case(
        "UnforeseenRecord",
        False,
        90,
        "long ago",
        dlq_records_total__topic_t__reason_internal="_x10 1x120",
    ),
    case(
        "SchemaRefused",
        True,
        12,
        "the first",
        schema_changes_total__table_a__change_x__decision_refused="_x10 1x60",
    ),
    case(
        "SchemaRefused",
        True,
        12,
        "one more",
        schema_changes_total__table_a__change_x__decision_parked="1x10 2x60",
    ),
    case(
        "SchemaRefused",
        False,
        12,
        "made",
        schema_changes_total__table_a__change_x__decision_applied="_x10 1x60",
    ),
    case("CommitConflicts", True, 20, "", commit_retries_total__reason_x="0+3x30"),
    case("CommitConflicts", False, 20, "", commit_retries_total__reason_x="0+1x30"),
    case(
        "CommitConflicts",
        True,
        20,
        "compactions",
        commit_retries_total__reason_x="0x30",
        commits_total__table_a__kind_compact__outcome_conflict="0+3x30",
    ),
    case(
        "TwoDaemons",
        True,
        5,
        "",
        config_info__pipeline_p__hash_a__instance_i="1x10",
        config_info__pipeline_p__hash_a__instance_j="1x10",
        state__state_running__instance_i="1x10",
        state__state_running__instance_j="1x10",
    ),
    case(
        "TwoDaemons",
        False,
        5,
        "the second waits",
        config_info__pipeline_p__hash_a__instance_i="1x10",
        config_info__pipeline_p__hash_a__instance_j="1x10",
        state__state_running__instance_i="1x10",
        state__state_running__instance_j="0x10",
    ),
    case(
        "CompactionBehind",
        True,
        40,
        "",
        table_sorted_runs_max__table_a="7x60",
        table_sorted_runs_stop_trigger__table_a="8x60",
    ),
    case(
        "CompactionBehind",
        False,
        40,
        "",
        table_sorted_runs_max__table_a="5x60",
        table_sorted_runs_stop_trigger__table_a="8x60",
    ),
    case(
        "IcebergBehind",
        True,
        20,
        "",
        iceberg_behind_snapshots__table_a="0x2 3x30",
    ),
    case(
        "IcebergBehind",
        False,
        20,
        "caught up in time",
        iceberg_behind_snapshots__table_a="3x9 0x30",
    ),
    case(
        "CompactionFailing",
        True,
        30,
        "",
        compactions_total__table_a__kind_minor__outcome_error="0+1x60",
    ),
    case(
        "CompactionFailing",
        False,
        30,
        "",
        compactions_total__table_a__kind_minor__outcome_dropped="0+1x60",
    ),
    case(
        "StoreErrors",
        True,
        30,
        "",
        store_requests_total__op_put__outcome_error="0+5x40",
        store_requests_total__op_put__outcome_ok="0+95x40",
    ),
    case(
        "StoreErrors",
        False,
        30,
        "answers are no errors",
        store_requests_total__op_put__outcome_exists="0+5x40",
        store_requests_total__op_put__outcome_ok="0+95x40",
    ),
    case(
        "DiskFilling",
        True,
        60,
        "by its pace",
        disk_free_bytes__path_tmp="1000-5x180",
        disk_size_bytes__path_tmp="2000x180",
    ),
    case(
        "DiskFilling",
        True,
        60,
        "nearly full",
        disk_free_bytes__path_tmp="40x180",
        disk_size_bytes__path_tmp="1000x180",
    ),
    case(
        "DiskFilling",
        False,
        60,
        "",
        disk_free_bytes__path_tmp="500x180",
        disk_size_bytes__path_tmp="1000x180",
    ),
    case(
        "MemoryNearLimit",
        True,
        20,
        "",
        container_memory_working_set_bytes__container_lakeward__pod_p="95x30",
        kube_pod_container_resource_limits__container_lakeward__pod_p__resource_memory="100x30",
    ),
    case(
        "MemoryNearLimit",
        False,
        20,
        "",
        container_memory_working_set_bytes__container_lakeward__pod_p="80x30",
        kube_pod_container_resource_limits__container_lakeward__pod_p__resource_memory="100x30",
    ),
    case(
        "HeapFull", True, 35, "", jvm_memory_bytes__area_heap="95x60", jvm_heap_limit_bytes="100x60"
    ),
    case(
        "HeapFull",
        False,
        35,
        "it is collected",
        jvm_memory_bytes__area_heap="95 50 95 50 95 50 95 50x60",
        jvm_heap_limit_bytes="100x60",
    ),
    case("ExecutorsLost", True, 8, "", executors__state_dead="0 1 2 4x20"),
    case("ExecutorsLost", False, 8, "", executors__state_dead="0 1x20"),
    case("ClockSkew", True, 15, "", source_clock_skew_seconds="10x30"),
    case("ClockSkew", False, 15, "", source_clock_skew_seconds="2x30"),
    case(
        "DelayBudgetFast",
        True,
        70,
        "",
        table_commit_delay_seconds_bucket__table_a__le_60DOT0="0+50x90",
        table_commit_delay_seconds_count__table_a="0+100x90",
    ),
    case(
        "DelayBudgetFast",
        False,
        70,
        "one in a hundred",
        table_commit_delay_seconds_bucket__table_a__le_60DOT0="0+99x90",
        table_commit_delay_seconds_count__table_a="0+100x90",
    ),
    case(
        "DelayBudgetSlow",
        True,
        85,
        "",
        table_commit_delay_seconds_bucket__table_a__le_60DOT0="0+90x90",
        table_commit_delay_seconds_count__table_a="0+100x90",
    ),
    case(
        "DelayBudgetSlow",
        False,
        85,
        "one in a hundred",
        table_commit_delay_seconds_bucket__table_a__le_60DOT0="0+99x90",
        table_commit_delay_seconds_count__table_a="0+100x90",
    ),
)
