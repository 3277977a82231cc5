# SPDX-License-Identifier: Apache-2.0
"""The third dashboard: where a batch's time goes, memory, disks, store, offsets."""

from deploy.dashboard_parts import BAD, GOOD, WARN, Panel, Row, dashboard, query

_BATCHES = Row(
    "Time per phase",
    (
        Panel(
            title="Phases of batches",
            text="Share of wall time per phase: a sum of 1 = no pause between batches. Job = "
            "read, decode, shuffle and write; schema = apply schema changes and rerun the job.",
            queries=(
                query(
                    "sum by (phase) (rate(lakeward_batch_phase_duration_seconds_sum{{S}}[~]))",
                    "{{phase}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Task time, by step",
            text="Cores busy with each step of the job.",
            queries=(
                query(
                    "sum by (phase) (rate(lakeward_batch_phase_task_seconds_total{{S}}[~]))",
                    "{{phase}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Cores in use while a job runs",
            text="Task time over the wall time of the job. Far below the number of cores: "
            "overhead, or one slow task. A slowest bucket's share of the job near 1: skew.",
            queries=(
                query(
                    "sum(rate(lakeward_batch_phase_task_seconds_total{{S}}[~])) "
                    "/ (sum(rate("
                    'lakeward_batch_phase_duration_seconds_sum{{S}, phase="job"}[~])) > 0)',
                    "cores",
                ),
                query("max(lakeward_batch_slowest_task_ratio{{S}})", "slowest bucket, of the job"),
            ),
        ),
        Panel(
            title="Spark's trigger phases",
            text="Share of wall time per phase, as Spark reports it: walCommit and "
            "commitOffsets are writes to the checkpoint.",
            queries=(
                query(
                    "sum by (step) (rate("
                    'lakeward_query_step_seconds_total{{S}, step!="triggerExecution"}[~]))',
                    "{{step}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Executors",
            text="Active and dead. In local mode the driver is the only executor. Alert: "
            "LakewardExecutorsLost.",
            queries=(query("sum by (state) (lakeward_executors{{S}})", "{{state}}"),),
        ),
        Panel(
            title="Failed tasks",
            text="Spark retries a task; the batch fails when one of its tasks has failed four "
            "times.",
            queries=(query("sum(increase(lakeward_task_failures_total{{S}}[~]))", "failed"),),
        ),
    ),
)

_MEMORY = Row(
    "Memory, CPU, disks",
    (
        Panel(
            title="Resident memory",
            text="Of this process, its JVM and the Python workers on the same machine. The "
            "sum must stay below the pod's limit. Alert: LakewardMemoryNearLimit.",
            queries=(
                query("sum by (process) (lakeward_resident_memory_bytes{{S}})", "{{process}}"),
            ),
            unit="bytes",
            stacked=True,
        ),
        Panel(
            title="JVM",
            text="In use: heap, non-heap, direct buffers; and the heap limit. "
            "Alert: LakewardHeapFull.",
            queries=(
                query("sum by (area) (lakeward_jvm_memory_bytes{{S}})", "{{area}}"),
                query("sum(lakeward_jvm_heap_limit_bytes{{S}})", "heap limit"),
            ),
            unit="bytes",
        ),
        Panel(
            title="Garbage collection",
            text="Share of time that the JVM spent on it. Above 10 % the heap is too small.",
            queries=(query("sum(rate(lakeward_jvm_gc_seconds_total{{S}}[~]))", "JVM"),),
            unit="percentunit",
            steps=((GOOD, None), (WARN, 0.1)),
        ),
        Panel(
            title="CPU",
            text="Cores in use by this process, its JVM and the Python workers on the same "
            "machine.",
            queries=(
                query(
                    "sum by (process) (rate(lakeward_cpu_seconds_total{{S}}[~]))",
                    "{{process}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Free disk space",
            text="On the disks of checkpoint, temporary files and a local warehouse. Alert: "
            "LakewardDiskFilling.",
            queries=(
                query(
                    "min by (path) (lakeward_disk_free_bytes{{S}} / lakeward_disk_size_bytes{{S}})",
                    "{{path}}",
                ),
            ),
            unit="percentunit",
            maximum=1,
            steps=((BAD, None), (GOOD, 0.05)),
        ),
        Panel(
            title="Open files of the driver",
            text="Should stay constant; steady growth is a leak.",
            queries=(query("max(process_open_fds{{S}})", "open"),),
        ),
    ),
)

_STORE = Row(
    "Store and schema registry",
    (
        Panel(
            title="Store, calls",
            text="By operation; calls of tasks are counted when their batch is committed.",
            queries=(
                query(
                    "sum by (op) (rate(lakeward_store_requests_total{{S}}[~]))",
                    "{{op}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Store, time of a call",
            text="Mean by operation, and the 99th percentile of all.",
            queries=(
                query(
                    "sum by (op) (rate(lakeward_store_request_duration_seconds_sum{{S}}[~])) "
                    "/ (sum by (op) (rate(lakeward_store_requests_total{{S}}[~])) > 0)",
                    "{{op}}, mean",
                ),
                query(
                    "histogram_quantile(0.99, sum by (le) (rate("
                    "lakeward_store_request_duration_seconds_bucket{{S}}[~])))",
                    "99th percentile",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Store, failed calls",
            text="Calls that raised an error; `absent` and `exists` are no errors. "
            "Alert: LakewardStoreErrors.",
            queries=(
                query(
                    "sum by (op) (rate("
                    'lakeward_store_requests_total{{S}, outcome="error"}[~])) '
                    "or vector(0)",
                    "failed {{op}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Store, bytes of whole files",
            text="Bytes of whole-file reads and writes: mostly metadata. Range reads of data "
            "files are not counted.",
            queries=(
                query(
                    "sum by (op) (rate(lakeward_store_bytes_total{{S}}[~]))",
                    "{{op}}",
                ),
            ),
            unit="Bps",
        ),
        Panel(
            title="Schema registry, requests",
            text="By outcome. Every worker process requests a schema once.",
            queries=(
                query(
                    "sum by (outcome) "
                    "(rate(lakeward_registry_requests_total{{S}}[~])) or vector(0)",
                    "requests {{outcome}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Schema registry, time of a request",
            text="Mean.",
            queries=(
                query(
                    "sum(rate(lakeward_registry_request_duration_seconds_sum{{S}}[~])) "
                    "/ (sum(rate(lakeward_registry_requests_total{{S}}[~])) > 0) "
                    "or vector(0)",
                    "mean",
                ),
            ),
            unit="s",
        ),
    ),
)

_PARTITION = "max by (topic, partition) ({})"

_OFFSETS = Row(
    "Offsets",
    (
        Panel(
            title="Partitions",
            text="Log start, next offset to read, log end, uncommitted records, and the "
            "position of the next record to read among the records that the topic retains.",
            queries=tuple(
                query(_PARTITION.format(f'lakeward_source_{name}{{{{S}}, topic=~"$topic"}}'))
                for name in (
                    "start_offset",
                    "committed_offset",
                    "end_offset",
                    "lag_records",
                    "retention_headroom_ratio",
                )
            ),
            kind="table",
            width=16,
            height=9,
            columns=(
                ("topic", "Topic"),
                ("partition", "Partition"),
                ("Value #A", "Start"),
                ("Value #B", "Next"),
                ("Value #C", "End"),
                ("Value #D", "Waiting"),
                ("Value #E", "Headroom"),
            ),
            units=(
                ("Start", "none"),
                ("Next", "none"),
                ("End", "none"),
                ("Headroom", "percentunit"),
            ),
        ),
        Panel(
            title="Clock skew",
            text="How far changes of the last batch are ahead of this machine's clock. "
            "Alert: LakewardClockSkew above 5 s.",
            queries=(query("max(lakeward_source_clock_skew_seconds{{S}})", "skew"),),
            unit="s",
            height=9,
            steps=((GOOD, None), (WARN, 5)),
        ),
    ),
)

RUNTIME = dashboard(
    uid="lakeward-runtime",
    title="Lakeward / Runtime",
    text="Time per phase of a batch; memory, CPU, disks; store, schema registry, offsets.",
    rows=(_BATCHES, _MEMORY, _STORE, _OFFSETS),
    variables=("namespace", "job", "topic"),
)
