# SPDX-License-Identifier: Apache-2.0
"""The overview dashboard: health, throughput, freshness, errors."""

from deploy.dashboard_parts import BAD, GOOD, WARN, Panel, Row, dashboard, query

_HEALTH = Row(
    "Health",
    (
        Panel(
            title="State",
            text="State of the daemon: starting, running, idle, paused, draining or failed.",
            queries=(query("max by (state) (lakeward_state{{S}} == 1)", "{{state}}"),),
            kind="stat",
            width=3,
            height=4,
            names=True,
        ),
        Panel(
            title="Worst freshness",
            text="Age of the newest visible change of the table that lags most; 0 when all "
            "tables are caught up. Alert: LakewardFreshness above 300 s.",
            queries=(query("max(lakeward_table_freshness_seconds{{S}})"),),
            kind="stat",
            unit="s",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 60), (BAD, 300)),
        ),
        Panel(
            title="Uncommitted records",
            text="Records in the source that are not committed, delayed cold tables included. "
            "Alert: LakewardLagGrowing above 10 000 if the number grows for half an hour.",
            queries=(query("sum(lakeward_source_lag_records{{S}})"),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 10_000)),
        ),
        Panel(
            title="Since the last batch",
            text="Time since the last successful batch, empty ones included. Alert: "
            "LakewardNoCommit above 900 s while records are waiting.",
            queries=(query("time() - max(lakeward_last_success_timestamp_seconds{{S}} > 0)"),),
            kind="stat",
            unit="s",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 300), (BAD, 900)),
        ),
        Panel(
            title="Parked tables",
            text="Tables whose events are not processed until they are resumed. Alert: "
            "LakewardTableParked.",
            queries=(query('sum(lakeward_table_state{{S}, state="parked"})'),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (BAD, 1)),
        ),
        Panel(
            title="To quarantine",
            text="Share of the records of the last 15 minutes that went to quarantine. Alert: "
            "LakewardDeadLetters above 0.1 %.",
            queries=(
                query(
                    "sum(rate(lakeward_dlq_records_total{{S}}[15m])) "
                    "/ (sum(rate(lakeward_source_records_total{{S}}[15m])) > 0) or vector(0)"
                ),
            ),
            kind="stat",
            unit="percentunit",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 0.001), (BAD, 0.01)),
        ),
        Panel(
            title="Starts per day",
            text="Starts of the process in 24 hours. Alert: LakewardCrashLooping from 3 in 30 "
            "minutes.",
            queries=(query("sum(changes(lakeward_start_timestamp_seconds{{S}}[1d]))"),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 3)),
        ),
        Panel(
            title="Version",
            text="Version of the running Lakeward.",
            queries=(
                query("max by (version) (lakeward_build_info{{S}})", "{{version}}", instant=True),
            ),
            kind="stat",
            width=3,
            height=4,
            names=True,
        ),
    ),
)

_FLOW = Row(
    "Throughput",
    (
        Panel(
            title="Records in, by topic",
            text="Committed source records per second.",
            queries=(
                query(
                    'sum by (topic) (rate(lakeward_source_records_total{{S}, topic=~"$topic"}[~]))',
                    "{{topic}}",
                ),
            ),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Operations in, by kind",
            text="Decoded records per second: create, update, delete, read (snapshot), "
            "tombstone and others.",
            queries=(
                query(
                    'sum by (op) (rate(lakeward_decode_records_total{{S}, topic=~"$topic"}[~]))',
                    "{{op}}",
                ),
            ),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Rows out, by kind",
            text="Rows committed per second. Fewer than records where a batch has several "
            "changes of one key.",
            queries=(
                query(
                    "sum by (kind) "
                    '(rate(lakeward_table_rows_written_total{{S}, table=~"$table"}[~]))',
                    "{{kind}}",
                ),
            ),
            unit="cps",
            stacked=True,
        ),
        Panel(
            title="Bytes",
            text="Payload read from the source; files committed by batches; files written by "
            "compactions.",
            queries=(
                query("sum(rate(lakeward_source_bytes_total{{S}}[~]))", "read"),
                query(
                    "sum(rate(lakeward_table_bytes_written_total{{S}}[~]))",
                    "written",
                ),
                query(
                    "sum(rate(lakeward_compaction_written_bytes_total{{S}}[~]))",
                    "compacted",
                ),
            ),
            unit="Bps",
        ),
        Panel(
            title="Batch duration",
            text="Whole batches, against the trigger interval: if batches take longer, the "
            "pipeline is at its limit.",
            queries=(
                query(
                    "histogram_quantile(0.5, sum by (le) "
                    "(rate(lakeward_batch_duration_seconds_bucket{{S}}[~])))",
                    "median",
                ),
                query(
                    "histogram_quantile(0.99, sum by (le) "
                    "(rate(lakeward_batch_duration_seconds_bucket{{S}}[~])))",
                    "99th percentile",
                ),
                query("max(lakeward_trigger_interval_seconds{{S}})", "trigger"),
            ),
            unit="s",
        ),
        Panel(
            title="Records per batch",
            text="Mean and 90th percentile. At the trigger's limit the stream is catching up.",
            queries=(
                query(
                    "sum(rate(lakeward_batch_records_sum{{S}}[~])) "
                    "/ (sum(rate(lakeward_batch_records_count{{S}}[~])) > 0)",
                    "mean",
                ),
                query(
                    "histogram_quantile(0.9, sum by (le) "
                    "(rate(lakeward_batch_records_bucket{{S}}[~])))",
                    "90th percentile",
                ),
            ),
        ),
    ),
)

_FRESHNESS = Row(
    "Freshness",
    (
        Panel(
            title="From change to commit",
            text="For every commit the time since its oldest change in the source. The alerts "
            "on the freshness objective count commits above 60 s.",
            queries=(
                query(
                    "sum by (le) (increase("
                    'lakeward_table_commit_delay_seconds_bucket{{S}, table=~"$table"}[~]))',
                    "{{le}}",
                ),
            ),
            kind="heatmap",
            unit="short",
            width=12,
        ),
        Panel(
            title="Freshness, ten worst tables",
            text="Age of the newest visible change while the table's topics have newer ones. "
            "Alert: LakewardFreshness.",
            queries=(
                query(
                    "topk(10, max by (table) "
                    '(lakeward_table_freshness_seconds{{S}, table=~"$table"}))',
                    "{{table}}",
                ),
            ),
            unit="s",
            width=12,
            steps=((GOOD, None), (BAD, 300)),
        ),
        Panel(
            title="Uncommitted records, by topic",
            text="End offset minus committed offset (bytes for a `files` source). "
            "Alert: LakewardLagGrowing.",
            queries=(
                query(
                    'sum by (topic) (lakeward_source_lag_records{{S}, topic=~"$topic"})',
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            title="Oldest uncommitted record, by topic",
            text="Time since it was first seen, without the configured delay of cold tables.",
            queries=(
                query(
                    'max by (topic) (lakeward_source_lag_seconds{{S}, topic=~"$topic"})',
                    "{{topic}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Retention headroom, by topic",
            text="Position of the next record to read among the records that the topic "
            "retains: 1 = newest, 0 = lost. Alert: LakewardRetentionRisk below 0.2.",
            queries=(
                query(
                    "min by (topic) "
                    '(lakeward_source_retention_headroom_ratio{{S}, topic=~"$topic"})',
                    "{{topic}}",
                ),
            ),
            unit="percentunit",
            maximum=1,
            steps=((BAD, None), (GOOD, 0.2)),
        ),
    ),
)

_ERRORS = Row(
    "Errors",
    (
        Panel(
            title="Records that could not be decoded",
            text="By class of error. They are in the quarantine table: `lakeward quarantine ls`.",
            queries=(
                query(
                    'sum by (reason) (rate(lakeward_decode_errors_total{{S}, topic=~"$topic"}[~]))',
                    "{{reason}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Quarantined, by table",
            text="By target table; empty where it cannot be determined. Skipped = the rule of "
            "the table says `skip`.",
            queries=(
                query(
                    "sum by (table) (rate(lakeward_quarantined_rows_total{{S}}[~]))",
                    "table {{table}}",
                ),
                query(
                    "sum by (table) (rate(lakeward_bad_records_skipped_total{{S}}[~])) "
                    "or vector(0)",
                    "skipped {{table}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Schema changes",
            text="Schema changes of the sources, by decision. Alert: LakewardSchemaRefused.",
            queries=(
                query(
                    "sum by (decision) (increase(lakeward_schema_changes_total{{S}}[~]))",
                    "{{decision}}",
                ),
            ),
        ),
        Panel(
            title="Batches",
            text="By outcome. Replayed = already committed before a crash; failed = retried.",
            queries=(
                query(
                    "sum by (outcome) (rate(lakeward_batches_total{{S}}[~]))",
                    "{{outcome}}",
                ),
                query(
                    "sum(rate(lakeward_query_failures_total{{S}}[~]))",
                    "query restarted",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Dependencies",
            text="Failed polls of the source's offsets per second, offsets lost to retention, "
            "and whether batches are waiting for an unavailable dependency. "
            "Alerts: LakewardOutage, LakewardSourcePollFailing, LakewardDataLoss.",
            queries=(
                query(
                    "sum by (reason) (rate(lakeward_source_errors_total{{S}}[~])) or vector(0)",
                    "poll: {{reason}}",
                ),
                query(
                    "sum(rate(lakeward_source_skipped_offsets_total{{S}}[~])) or vector(0)",
                    "lost offsets",
                ),
                query("max(lakeward_outage{{S}})", "outage (0 or 1)"),
            ),
        ),
        Panel(
            title="Commit conflicts",
            text="Commits that were retried, and compactions that were discarded. Alert: "
            "LakewardCommitConflicts above 20 in 15 minutes.",
            queries=(
                query(
                    "sum(increase(lakeward_commit_retries_total{{S}}[~]))",
                    "commit retried",
                ),
                query(
                    "sum(increase("
                    'lakeward_commits_total{{S}, outcome="conflict"}[~])) '
                    "or vector(0)",
                    "compaction discarded",
                ),
            ),
        ),
    ),
)

OVERVIEW = dashboard(
    uid="lakeward-overview",
    title="Lakeward / Overview",
    text="Health, throughput, freshness and errors of a pipeline.",
    rows=(_HEALTH, _FLOW, _FRESHNESS, _ERRORS),
    variables=("namespace", "job", "topic", "table"),
)
