# SPDX-License-Identifier: Apache-2.0
"""The first dashboard: is it fine, what flows, how fresh are tables, what goes wrong."""

from deploy.dashboard_parts import BAD, GOOD, WARN, Panel, Row, dashboard, query

__all__ = ["OVERVIEW"]

_FINE = Row(
    "Is it fine?",
    (
        Panel(
            title="State",
            text="What the daemon does: starting, running, idle, draining or failed.",
            queries=(query("max by (state) (lakeward_state{{S}} == 1)", "{{state}}"),),
            kind="stat",
            width=3,
            height=4,
            names=True,
        ),
        Panel(
            title="Worst freshness",
            text="Age of the newest visible change of the table that is furthest behind; 0 "
            "when all tables have everything. Alert: LakewardFreshness from 300 s.",
            queries=(query("max(lakeward_table_freshness_seconds{{S}})"),),
            kind="stat",
            unit="s",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 60), (BAD, 300)),
        ),
        Panel(
            title="Records waiting",
            text="Records in the source that are not committed, those that may wait "
            "included. Alert: LakewardLagGrowing from 10 000 when they grow for half an hour.",
            queries=(query("sum(lakeward_source_lag_records{{S}})"),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 10_000)),
        ),
        Panel(
            title="Since the last batch",
            text="Time since a batch ended well, empty ones too. Alert: LakewardNoCommit "
            "from 900 s while records wait.",
            queries=(query("time() - max(lakeward_last_success_timestamp_seconds{{S}} > 0)"),),
            kind="stat",
            unit="s",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 300), (BAD, 900)),
        ),
        Panel(
            title="Parked tables",
            text="Tables whose events are left alone until somebody resumes them. Alert: "
            "LakewardTableParked.",
            queries=(query('sum(lakeward_table_state{{S}, state="parked"})'),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (BAD, 1)),
        ),
        Panel(
            title="To quarantine",
            text="Share of the last 15 minutes' records that could not become rows. Alert: "
            "LakewardDeadLetters from 0.1 %.",
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
            title="Starts in a day",
            text="How often the process began anew. Alert: LakewardCrashLooping from 3 in 30 "
            "minutes.",
            queries=(query("sum(changes(lakeward_start_timestamp_seconds{{S}}[1d]))"),),
            kind="stat",
            width=3,
            height=4,
            steps=((GOOD, None), (WARN, 3)),
        ),
        Panel(
            title="Version",
            text="Of Lakeward, as it runs.",
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
    "Flow",
    (
        Panel(
            title="Records in, by topic",
            text="Committed source records a second.",
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
            text="Decoded records a second: create, update, delete, read (snapshot), "
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
            text="Rows committed a second. Fewer than records where changes of one key meet "
            "in a batch.",
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
            text="Whole batches, against the trigger: batches that take longer have no "
            "pause, and the stream is at its limit.",
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
            title="Records in a batch",
            text="Mean and 90th percentile. At the limit of the trigger the stream catches up.",
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
            text="For every commit the time since its oldest change was made in the source. "
            "The objective's alerts count what is above 60 s.",
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
            title="Records waiting, by topic",
            text="End offset minus committed offset (of a `files` source bytes). "
            "Alert: LakewardLagGrowing.",
            queries=(
                query(
                    'sum by (topic) (lakeward_source_lag_records{{S}, topic=~"$topic"})',
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            title="Oldest waiting record, by topic",
            text="How long it has been seen waiting, without the time that it may wait.",
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
            text="Where the next record to read is in what the topic keeps: 1 = newest, 0 = "
            "lost. Alert: LakewardRetentionRisk below 0.2.",
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
            text="By kind of error. They are in the quarantine table: `lakeward quarantine ls`.",
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
            text="By the table they are for; empty where a record does not tell. Left out = "
            "the table's rule says `skip`.",
            queries=(
                query(
                    "sum by (table) (rate(lakeward_quarantined_rows_total{{S}}[~]))",
                    "table {{table}}",
                ),
                query(
                    "sum by (table) (rate(lakeward_bad_records_skipped_total{{S}}[~])) "
                    "or vector(0)",
                    "left out {{table}}",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Schema changes",
            text="What sources asked for, by what became of it. Alert: LakewardSchemaRefused.",
            queries=(
                query(
                    "sum by (decision) (increase(lakeward_schema_changes_total{{S}}[~]))",
                    "{{decision}}",
                ),
            ),
        ),
        Panel(
            title="Batches",
            text="By outcome. Replayed = done before a crash and recognised; failed = tried again.",
            queries=(
                query(
                    "sum by (outcome) (rate(lakeward_batches_total{{S}}[~]))",
                    "{{outcome}}",
                ),
                query(
                    "sum(rate(lakeward_query_failures_total{{S}}[~]))",
                    "query started again",
                ),
            ),
            unit="cps",
        ),
        Panel(
            title="Trouble outside",
            text="Failed polls of the watermarks a second, offsets that retention took, whether "
            "batches wait for a system outside. "
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
                query("max(lakeward_outage{{S}})", "batches wait (0 or 1)"),
            ),
        ),
        Panel(
            title="Races lost",
            text="For a snapshot (tried again) and compactions dropped. Alert: "
            "LakewardCommitConflicts from 20 in 15 minutes.",
            queries=(
                query(
                    "sum(increase(lakeward_commit_retries_total{{S}}[~]))",
                    "commit tried again",
                ),
                query(
                    "sum(increase("
                    'lakeward_commits_total{{S}, outcome="conflict"}[~])) '
                    "or vector(0)",
                    "compaction dropped",
                ),
            ),
        ),
    ),
)

OVERVIEW = dashboard(
    uid="lakeward-overview",
    title="Lakeward / Overview",
    text="Is the pipeline fine, what flows, how fresh are its tables, what goes wrong.",
    rows=(_FINE, _FLOW, _FRESHNESS, _ERRORS),
    variables=("namespace", "job", "topic", "table"),
)
