# SPDX-License-Identifier: Apache-2.0
"""The second dashboard: every table's rows, commits, files and compaction."""

from deploy.dashboard_parts import BAD, GOOD, WARN, Panel, Query, Row, dashboard, query

_T = '{{S}, table=~"$table"}'
"""Selection of the tables chosen above."""


def _per_table(metric: str, function: str = "max") -> str:
    return f"{function} by (table) (lakeward_{metric}{_T})"


def _rate(metric: str, by: str, more: str = "") -> str:
    inner = _T.removesuffix("}") + more + "}"
    return f"sum by ({by}) (rate(lakeward_{metric}{inner}[~]))"


def _grown(metric: str) -> str:
    return f"sum(increase(lakeward_{metric}{_T}[~])) or vector(0)"


def _spread(metric: str, what: str = "", where: str = _T) -> tuple[Query, Query]:
    """Median and 99th percentile of a histogram."""

    def share(part: str, name: str) -> Query:
        buckets = f"sum by (le) (rate(lakeward_{metric}_bucket{where}[~]))"
        return query(f"histogram_quantile({part}, {buckets})", what + name)

    return share("0.5", "median"), share("0.99", "99th percentile")


_ALL = Row(
    "All tables",
    (
        Panel(
            title="Tables",
            text="One line per table: state, freshness, size.",
            queries=(
                query(_per_table("table_freshness_seconds")),
                query(f"time() - {_per_table('table_last_commit_timestamp_seconds')}"),
                query(f"sum by (table) ({_rate('table_rows_written_total', 'table')})"),
                query(_per_table("table_records", "sum")),
                query(_per_table("table_bytes", "sum")),
                query(_per_table("table_files", "sum")),
                query(_per_table("table_buckets", "sum")),
                query(_per_table("table_sorted_runs_max")),
                query(_per_table("table_snapshot_id")),
                query(_per_table("table_snapshots", "sum")),
                query(_per_table("table_schema_id")),
                query(
                    'max by (table) (lakeward_table_state{{S}, table=~"$table", state="parked"})'
                ),
            ),
            kind="table",
            width=24,
            height=9,
            columns=(
                ("table", "Table"),
                ("Value #A", "Freshness"),
                ("Value #B", "Last commit"),
                ("Value #C", "Rows/s"),
                ("Value #D", "Records"),
                ("Value #E", "Bytes"),
                ("Value #F", "Files"),
                ("Value #G", "Buckets"),
                ("Value #H", "Most runs"),
                ("Value #I", "Snapshot"),
                ("Value #J", "Kept"),
                ("Value #K", "Schema"),
                ("Value #L", "Parked"),
            ),
            units=(
                ("Freshness", "s"),
                ("Last commit", "s"),
                ("Rows/s", "short"),
                ("Records", "short"),
                ("Bytes", "bytes"),
                ("Snapshot", "none"),
                ("Schema", "none"),
            ),
        ),
        Panel(
            title="States",
            text="Tables by state. Behind = resumed and catching up.",
            queries=(query(f"sum by (state) (lakeward_table_state{_T})", "{{state}}"),),
            stacked=True,
        ),
        Panel(
            title="Write amplification",
            text="Bytes of data files written, compactions included, per byte of new rows, over "
            "six hours. 3 to 10 is usual for tables with a primary key.",
            queries=(
                query(
                    "(sum by (table) (rate(lakeward_table_bytes_written_total"
                    '{{S}, table=~"$table", type="data"}[6h])) '
                    "+ (sum by (table) (rate("
                    'lakeward_compaction_written_bytes_total{{S}, table=~"$table"}[6h])) '
                    "or 0 * sum by (table) (rate(lakeward_table_bytes_written_total"
                    '{{S}, table=~"$table", type="data"}[6h])))) '
                    "/ (sum by (table) (rate(lakeward_table_bytes_written_total"
                    '{{S}, table=~"$table", type="data"}[6h])) > 0)',
                    "{{table}}",
                ),
            ),
        ),
        Panel(
            title="Rows of the busiest bucket",
            text="Relative to the mean of the buckets that the last batch wrote: 1 = even. A "
            "hot bucket delays its batch: use more buckets, or another bucket key.",
            queries=(query(_per_table("table_bucket_skew_ratio"), "{{table}}"),),
        ),
    ),
)

_BACKGROUND = Row(
    "Background compaction, lookups, maintenance",
    (
        Panel(
            title="Waiting tables",
            text="Tables waiting for background compaction, and whether one is being compacted.",
            queries=(
                query("sum(lakeward_compaction_pending{{S}})", "waiting"),
                query("sum(lakeward_compaction_in_progress{{S}})", "in work"),
            ),
            width=6,
        ),
        Panel(
            title="Longest wait",
            text="Time that the longest-waiting table has waited for background compaction.",
            queries=(query("max(lakeward_compaction_oldest_pending_seconds{{S}})", "oldest"),),
            unit="s",
            width=6,
        ),
        Panel(
            title="Busy",
            text="Share of the last 5 minutes in which a table was compacted. At 1 one thread "
            "is not enough: run `lakeward compact` in a separate process.",
            queries=(query("max(lakeward_compaction_busy_ratio{{S}})", "busy"),),
            unit="percentunit",
            width=6,
            maximum=1,
            steps=((GOOD, None), (WARN, 0.9)),
        ),
        Panel(
            title="Compaction duration",
            text="Background compaction of one table.",
            queries=_spread("compaction_pass_duration_seconds", where="{{S}}"),
            unit="s",
            width=6,
        ),
        Panel(
            title="Lookups served by a local copy",
            text="Share of the data files needed by lookups that were found on the local disk.",
            queries=(
                query(
                    "sum(rate(lakeward_lookup_hits_total{{S}}[~])) "
                    "/ (sum(rate(lakeward_lookup_hits_total{{S}}[~])) "
                    "+ sum(rate(lakeward_lookup_misses_total{{S}}[~])) > 0)",
                    "hits",
                ),
            ),
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        Panel(
            title="Local copies on disk",
            text="On the machine with the most. Bounded by `lookup.cache-max-disk-size`.",
            queries=(query("max(lakeward_lookup_disk_bytes{{S}})", "on disk"),),
            unit="bytes",
            width=6,
        ),
        Panel(
            title="Local copies built and evicted",
            text="Bytes built, and files evicted because of space or age. Both high: the "
            "cache is too small.",
            queries=(
                query("sum(rate(lakeward_lookup_built_bytes_total{{S}}[~]))", "bytes/s"),
                query(
                    "sum(rate(lakeward_lookup_evicted_files_total{{S}}[~]))",
                    "files removed/s",
                ),
            ),
            width=6,
        ),
        Panel(
            title="Expiry and orphan files",
            text="Expired snapshots, and orphan files that were removed.",
            queries=(
                query(
                    "sum(increase(lakeward_snapshots_expired_total{{S}}[~]))",
                    "snapshots",
                ),
                query(
                    "sum(increase(lakeward_orphan_files_removed_total{{S}}[~]))",
                    "files",
                ),
            ),
            width=6,
        ),
        Panel(
            title="Iceberg publication",
            text="Snapshots that Iceberg readers do not see yet (the table with the most), "
            "publications that failed, and seconds of commits that publications took.",
            queries=(
                query("max(lakeward_iceberg_behind_snapshots{{S}})", "snapshots behind"),
                query("sum(increase(lakeward_iceberg_publish_failures_total{{S}}[~]))", "failures"),
                query("sum(rate(lakeward_iceberg_publish_seconds_total{{S}}[~]))", "s/s"),
            ),
            width=6,
        ),
        Panel(
            title="Iceberg metadata written",
            text="Versions, bytes of their files, and manifests among them.",
            queries=(
                query("sum(rate(lakeward_iceberg_versions_total{{S}}[~]))", "versions/s"),
                query("sum(rate(lakeward_iceberg_written_bytes_total{{S}}[~]))", "bytes/s"),
                query("sum(rate(lakeward_iceberg_manifests_written_total{{S}}[~]))", "manifests/s"),
            ),
            width=6,
        ),
    ),
)

_ONE = Row(
    "$table",
    (
        Panel(
            title="Rows written",
            text="Rows committed per second, by kind, and changelog rows.",
            queries=(
                query(_rate("table_rows_written_total", "kind"), "{{kind}}"),
                query(_rate("table_changelog_rows_total", "table"), "changelog"),
            ),
            unit="cps",
            width=6,
        ),
        Panel(
            title="Freshness and delay",
            text="Age of the newest visible change; time from change to commit (median, 99th "
            "percentile). Alert: LakewardFreshness.",
            queries=(
                query(_per_table("table_freshness_seconds"), "freshness"),
                *_spread("table_commit_delay_seconds", "delay, "),
            ),
            unit="s",
            width=6,
            steps=((GOOD, None), (BAD, 300)),
        ),
        Panel(
            title="Commits",
            text="By kind and outcome; a conflict is a compaction that was discarded.",
            queries=(query(_rate("commits_total", "kind, outcome"), "{{kind}} {{outcome}}"),),
            unit="cps",
            width=6,
        ),
        Panel(
            title="Commit duration",
            text="Retries included.",
            queries=_spread("commit_duration_seconds"),
            unit="s",
            width=6,
        ),
        Panel(
            title="Sorted runs in a bucket",
            text="Maximum and mean, against the compaction trigger and the stop trigger. "
            "Alert: LakewardCompactionBehind above 80 % of the latter.",
            queries=(
                query(_per_table("table_sorted_runs_max"), "most"),
                query(_per_table("table_sorted_runs_avg"), "mean"),
                query(_per_table("table_sorted_runs_compaction_trigger"), "compaction begins"),
                query(_per_table("table_sorted_runs_stop_trigger"), "writers wait"),
            ),
            width=6,
        ),
        Panel(
            title="Level-0 files in a bucket",
            text="Maximum and mean: files of batches that no compaction has merged yet.",
            queries=(
                query(_per_table("table_level0_files_max"), "maximum"),
                query(_per_table("table_level0_files_avg"), "mean"),
            ),
            width=6,
        ),
        Panel(
            title="Compaction, bytes",
            text="Read and written by compactions, and written by batches.",
            queries=(
                query(_rate("compaction_read_bytes_total", "table"), "read"),
                query(_rate("compaction_written_bytes_total", "table"), "written"),
                query(_rate("table_bytes_written_total", "type"), "by batches: {{type}}"),
            ),
            unit="Bps",
            width=6,
        ),
        Panel(
            title="Compaction, buckets",
            text="Compacted per second by kind and outcome, and cores busy with compaction.",
            queries=(
                query(_rate("compactions_total", "kind, outcome"), "{{kind}} {{outcome}}"),
                query(_rate("compaction_seconds_total", "table"), "cores busy"),
            ),
            width=6,
        ),
        Panel(
            title="Files",
            text="Live data files, and files written by batches per hour.",
            queries=(
                query(_per_table("table_files", "sum"), "live"),
                query(
                    "sum by (type) (increase("
                    'lakeward_table_files_written_total{{S}, table=~"$table"}[1h]))',
                    "written in an hour: {{type}}",
                ),
            ),
            width=6,
        ),
        Panel(
            title="Size",
            text="Of live data files.",
            queries=(query(_per_table("table_bytes", "sum"), "bytes"),),
            unit="bytes",
            width=6,
        ),
        Panel(
            title="Buckets and partitions",
            text="Buckets and partitions with live files.",
            queries=(
                query(_per_table("table_buckets", "sum"), "buckets"),
                query(_per_table("table_partitions", "sum"), "partitions"),
            ),
            width=6,
        ),
        Panel(
            title="Data quality",
            text="Rows delivered again or late; values not sent and not found; "
            "columns matched to another spelling; bad records.",
            queries=(
                query(_grown("duplicate_events_total"), "delivered again"),
                query(_grown("table_values_kept_total"), "values kept from older rows"),
                query(_grown("table_values_lost_total"), "values lost"),
                query(_grown("table_columns_matched_total"), "columns matched"),
                query(_grown("quarantined_rows_total"), "bad records"),
            ),
            width=6,
        ),
    ),
    repeat="table",
)

TABLES = dashboard(
    uid="lakeward-tables",
    title="Lakeward / Tables and compaction",
    text="Rows, commits, files, sorted runs and compaction of every table.",
    rows=(_ALL, _BACKGROUND, _ONE),
    variables=("namespace", "job", "table"),
)
