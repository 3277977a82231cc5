# SPDX-License-Identifier: Apache-2.0
"""Rows of the catalogue of metrics about the process, its machine, Spark, store and registry."""

from ingest.observe.metrics.metric import Metric

__all__ = ["RUNTIME_METRICS"]

_PROCESS = (
    Metric(
        "build_info",
        "computed",
        "Versions in use; always 1. `java` is empty until Spark has started.",
        ("version", "pyspark", "python", "java", "paimon_format"),
        unit="info",
    ),
    Metric(
        "config_info",
        "computed",
        "Pipeline, and a hash of the settings in force; always 1.",
        ("pipeline", "hash"),
        unit="info",
    ),
    Metric(
        "state",
        "gauge",
        "What the daemon does: exactly one state is 1.",
        ("state",),
        unit="boolean",
    ),
    Metric(
        "driver_epoch",
        "computed",
        "How many times the stream was begun to be owned, this time included; stored with it.",
    ),
    Metric(
        "outage",
        "gauge",
        "1 while batches fail because a system outside is away or a disk is full: it is waited "
        "for.",
    ),
    Metric(
        "webhook_events_total",
        "counter",
        "Events for webhooks: sent, failed (given up) or dropped (too many waited).",
        ("outcome",),
    ),
    Metric(
        "start_timestamp_seconds", "gauge", "When the process began its work.", unit="timestamp"
    ),
    Metric(
        "query_failures_total",
        "counter",
        "Times that Spark's query ended with an error; it is started again.",
    ),
)

_SPARK = (
    Metric(
        "executors",
        "computed",
        "Executors by state: active or dead. In local mode the driver is the one executor.",
        ("state",),
    ),
    Metric(
        "task_failures_total",
        "counter",
        "Tasks that failed, on all executors; Spark tries most of them again.",
    ),
    Metric(
        "jvm_memory_bytes",
        "computed",
        "Memory in use in the driver's JVM: heap, nonheap, direct.",
        ("area",),
        unit="bytes",
    ),
    Metric(
        "jvm_heap_limit_bytes", "computed", "Most heap that the driver's JVM takes.", unit="bytes"
    ),
    Metric(
        "jvm_gc_seconds_total",
        "counter",
        "Time that the driver's JVM spent collecting garbage.",
        unit="seconds",
    ),
)

_MACHINE = (
    Metric(
        "resident_memory_bytes",
        "computed",
        "Resident memory on the driver's machine: driver (this process), jvm, workers (Python "
        "processes of tasks, together). Pages that processes share count in each.",
        ("process",),
        unit="bytes",
    ),
    Metric(
        "cpu_seconds_total",
        "counter",
        "Processor time of the same processes, those that have ended included.",
        ("process",),
        unit="seconds",
    ),
    Metric(
        "disk_free_bytes",
        "computed",
        "Free space where the checkpoint (state), temporary files (tmp) and a local warehouse are.",
        ("path",),
        unit="bytes",
    ),
    Metric("disk_size_bytes", "computed", "Size of these.", ("path",), unit="bytes"),
)

_STORE = (
    Metric(
        "store_requests_total",
        "counter",
        "Calls of the store: op get, open, put, put_if_absent, head, list, delete; outcome ok, "
        "exists (put_if_absent lost), absent, aborted, error. Those of tasks count once their "
        "batch is committed.",
        ("op", "outcome"),
    ),
    Metric(
        "store_request_duration_seconds",
        "histogram",
        "How long these calls took, the client's own retries included.",
        ("op",),
        unit="seconds",
    ),
    Metric(
        "store_bytes_total",
        "counter",
        "Bytes of files that were read or written whole; parts read from open files do not count.",
        ("op",),
        unit="bytes",
    ),
    Metric(
        "registry_requests_total",
        "counter",
        "Requests to the schema registry: ok, unknown, refused, retry (busy, or no answer), wrong. "
        "Those of tasks count once their batch is committed.",
        ("outcome",),
    ),
    Metric(
        "registry_request_duration_seconds",
        "histogram",
        "How long these requests took.",
        unit="seconds",
    ),
)

RUNTIME_METRICS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("The daemon", _PROCESS),
    ("Spark", _SPARK),
    ("Memory and disks", _MACHINE),
    ("Store and schema registry", _STORE),
)
