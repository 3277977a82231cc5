# SPDX-License-Identifier: Apache-2.0
"""Metrics of the process, its machine, Spark, the store and the schema registry."""

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
        "State of the daemon: exactly one state is 1.",
        ("state",),
        unit="boolean",
    ),
    Metric(
        "driver_epoch",
        "computed",
        "Epoch of the stream: the number of times that a daemon took ownership of it.",
    ),
    Metric(
        "outage",
        "gauge",
        "1 while batches fail because a dependency is unavailable or a disk is full, and the "
        "daemon retries.",
    ),
    Metric(
        "webhook_events_total",
        "counter",
        "Webhook events: sent, failed (retries exhausted) or dropped (queue full).",
        ("outcome",),
    ),
    Metric("start_timestamp_seconds", "gauge", "Start time of the process.", unit="timestamp"),
    Metric(
        "query_failures_total",
        "counter",
        "Failures of the Spark query; it is restarted after each.",
    ),
)

_SPARK = (
    Metric(
        "executors",
        "computed",
        "Executors by state: active or dead. In local mode the driver is the only executor.",
        ("state",),
    ),
    Metric(
        "task_failures_total",
        "counter",
        "Failed tasks on all executors; Spark retries most of them.",
    ),
    Metric(
        "jvm_memory_bytes",
        "computed",
        "Memory used by the driver's JVM: heap, nonheap, direct.",
        ("area",),
        unit="bytes",
    ),
    Metric("jvm_heap_limit_bytes", "computed", "Heap limit of the driver's JVM.", unit="bytes"),
    Metric(
        "jvm_gc_seconds_total",
        "counter",
        "Time that the driver's JVM spent on garbage collection.",
        unit="seconds",
    ),
)

_MACHINE = (
    Metric(
        "resident_memory_bytes",
        "computed",
        "Resident memory on the driver's machine: driver (this process), jvm, workers (all "
        "Python processes of tasks). Shared pages count in each.",
        ("process",),
        unit="bytes",
    ),
    Metric(
        "cpu_seconds_total",
        "counter",
        "CPU time of these processes, including exited ones.",
        ("process",),
        unit="seconds",
    ),
    Metric(
        "disk_free_bytes",
        "computed",
        "Free space on the disks of the checkpoint (state), temporary files (tmp) and a local"
        " warehouse.",
        ("path",),
        unit="bytes",
    ),
    Metric("disk_size_bytes", "computed", "Size of these disks.", ("path",), unit="bytes"),
)

_STORE = (
    Metric(
        "store_requests_total",
        "counter",
        "Calls to the store: op get, open, put, put_if_absent, head, list, delete; outcome "
        "ok, exists (put_if_absent lost), absent, aborted, error. Calls of tasks are counted "
        "when their batch is committed.",
        ("op", "outcome"),
    ),
    Metric(
        "store_request_duration_seconds",
        "histogram",
        "Duration of calls to the store, retries of the client included.",
        ("op",),
        unit="seconds",
    ),
    Metric(
        "store_bytes_total",
        "counter",
        "Bytes of whole-file reads and writes; range reads are not counted.",
        ("op",),
        unit="bytes",
    ),
    Metric(
        "registry_requests_total",
        "counter",
        "Requests to the schema registry: ok, unknown, refused, retry (busy, or no answer), "
        "wrong. Requests of tasks are counted when their batch is committed.",
        ("outcome",),
    ),
    Metric(
        "registry_request_duration_seconds",
        "histogram",
        "Duration of requests to the schema registry.",
        unit="seconds",
    ),
)

RUNTIME_METRICS: tuple[tuple[str, tuple[Metric, ...]], ...] = (
    ("The daemon", _PROCESS),
    ("Spark", _SPARK),
    ("Memory and disks", _MACHINE),
    ("Store and schema registry", _STORE),
)
