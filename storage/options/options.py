# SPDX-License-Identifier: Apache-2.0
"""Table options as typed attributes, and the checks that a table asks for nothing we get wrong.

The rows are in `option_table` (source: SEMANTICS.md §K). `python -m storage.options.options
--write` writes table-options.md beside this module, `--check` fails when it is out of date.

Rules: a known key with a value that is not carried out and would change results is refused by
`require_writable` or `require_readable`, which name the key; an unknown key is kept and
logged once per process.
"""

import argparse
import dataclasses
import functools
import logging
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from storage.errors import InternalError, InvalidOptionError, UnsupportedFeatureError
from storage.options.table import TABLE_OPTIONS
from storage.options.values import Access, Option, Treatment

__all__ = [
    "MAX_DYNAMIC_BUCKETS",
    "TABLE_OPTIONS",
    "TableOptions",
    "find_option",
    "option_value",
    "options_page",
    "require_readable",
    "require_writable",
]

_log = logging.getLogger(__name__)

_BY_KEY: dict[str, Option] = {
    key: row for row in TABLE_OPTIONS if "<" not in row.key for key in (row.key, *row.aliases)
}
_PATTERNS: tuple[tuple[re.Pattern[str], Option], ...] = tuple(
    (row.pattern(), row) for row in TABLE_OPTIONS if "<" in row.key
)
_FIELD_STATS_MODE = re.compile(r"fields\.(.+)\.stats-mode\Z")
_BY_WHOLE_KEY = ("file_index_columns", "file_index_settings", "merge_columns")
"""Attributes that keep the values of all keys of some patterns, by key."""

MAX_DYNAMIC_BUCKETS = 32_767
"""Dynamic buckets of a partition; one more would not fit the index of other engines."""

_PREFIXES = ("parquet.", "orc.", "avro.", "lakeward.")
"""Keys that are passed on or belong to us; never worth a warning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """All honoured options of one table, parsed and checked. Build with `from_strings`.

    Attributes:
        raw: the texts it was built from, unknown keys included.

    The other attributes are described in table-options.md under the key of the same row.
    """

    raw: Mapping[str, str]
    bucket: int
    bucket_key: tuple[str, ...] | None
    bucket_function: str
    partition_default_name: str
    partition_legacy_name: bool
    dynamic_bucket_target_row_num: int
    dynamic_bucket_max_buckets: int
    dynamic_bucket_initial_buckets: int | None
    dynamic_bucket_assigner_parallelism: int | None
    cross_partition_index_ttl_ms: int | None
    cross_partition_bootstrap_parallelism: int
    postpone_default_bucket_num: int | None
    postpone_target_row_num_per_bucket: int | None
    postpone_target_size_per_bucket: int
    postpone_batch_write_fixed_bucket: bool
    postpone_batch_write_fixed_bucket_max_parallelism: int
    merge_engine: str
    ignore_delete: bool
    ignore_update_before: bool
    sequence_field: tuple[str, ...]
    sequence_descending: bool
    rowkind_field: str | None
    record_level_expire_time_ms: int | None
    record_level_time_field: str | None
    partial_update_remove_on_delete: bool
    partial_update_remove_on_groups: tuple[str, ...]
    aggregation_remove_on_delete: bool
    default_aggregate_function: str | None
    merge_columns: Mapping[str, Any]
    changelog_producer: str
    row_deduplicate: bool
    row_deduplicate_ignore_fields: tuple[str, ...]
    write_only: bool
    write_buffer_size: int
    target_file_size: int
    target_file_rows: int | None
    file_format: str
    file_format_per_level: Mapping[int, str]
    file_compression: str
    file_compression_per_level: Mapping[int, str]
    zstd_level: int
    file_block_size: int | None
    data_file_prefix: str
    data_file_thin_mode: bool
    changelog_file_prefix: str
    changelog_file_format: str | None
    changelog_file_compression: str | None
    changelog_file_stats_mode: str | None
    file_index_threshold: int
    file_index_read_enabled: bool
    file_index_columns: Mapping[str, str]
    file_index_settings: Mapping[str, str]
    stats_mode: str
    stats_mode_per_level: Mapping[int, str]
    stats_keep_first_columns: int
    stats_dense_store: bool
    file_suffix_include_compression: bool
    field_stats_modes: Mapping[str, str]
    iceberg_storage: str
    iceberg_format_version: int
    iceberg_delete_after_commit: bool
    iceberg_previous_versions_max: int
    compaction_trigger: int
    stop_trigger: int
    num_levels: int
    max_size_amplification_percent: int
    size_ratio: int
    compaction_optimization_interval: int | None
    compaction_total_size_threshold: int | None
    compaction_incremental_size_threshold: int | None
    compaction_offpeak_start_hour: int
    compaction_offpeak_end_hour: int
    compaction_offpeak_ratio: int
    compaction_force_up_level_0: bool
    compaction_force_rewrite_all_files: bool
    force_lookup: bool
    lookup_wait: bool
    lookup_cache_file_retention_ms: int
    lookup_cache_max_disk_size: int | None
    lookup_cache_max_memory_size: int
    lookup_compact: str
    lookup_compact_max_interval: int
    full_compaction_delta_commits: int | None
    commit_force_compact: bool
    compaction_small_file_ratio: float
    compaction_min_file_num: int
    compaction_file_num_limit: int
    compaction_delete_ratio_threshold: float
    commit_max_retries: int
    commit_min_retry_wait_ms: int
    commit_max_retry_wait_ms: int
    commit_timeout_ms: int | None
    metastore_partitioned_table: bool
    manifest_target_size: int
    manifest_full_compaction_threshold: int
    manifest_merge_min_count: int
    dynamic_partition_overwrite: bool
    index_file_in_data_file_dir: bool
    deletion_vectors_enabled: bool
    deletion_vectors_merge_on_read: bool
    deletion_vectors_bitmap64: bool
    deletion_vector_index_file_target_size: int
    snapshot_num_retained_min: int
    snapshot_num_retained_max: int
    snapshot_time_retained_ms: int
    snapshot_expire_limit: int
    changelog_num_retained_min: int
    changelog_num_retained_max: int
    changelog_time_retained_ms: int
    tag_automatic_creation: str
    tag_creation_period: str
    tag_creation_period_duration_ms: int | None
    tag_creation_delay_ms: int
    tag_period_formatter: str
    tag_num_retained_max: int | None
    tag_default_time_retained_ms: int | None
    tag_automatic_completion: bool
    tag_time_expire_enabled: bool
    tag_batch_customized_name: str | None
    sink_process_time_zone: str | None
    sink_watermark_time_zone: str
    partition_expiration_time_ms: int | None
    partition_expiration_check_interval_ms: int
    partition_expiration_strategy: str
    partition_expiration_max_num: int
    partition_expiration_batch_size: int | None
    partition_timestamp_formatter: str | None
    partition_timestamp_pattern: str | None
    partition_time_interval_ms: int | None
    partition_idle_time_to_done_ms: int | None
    partition_end_input_to_done: bool
    partition_mark_done_action: tuple[str, ...]
    partition_mark_done_action_mode: str
    partition_mark_done_action_http_url: str | None
    partition_mark_done_action_http_params: str | None
    branch: str
    scan_mode: str
    incremental_between_scan_mode: str
    incremental_between_tag_to_snapshot: bool
    consumer_id: str | None
    consumer_mode: str
    consumer_ignore_progress: bool
    streaming_read_overwrite: bool
    streaming_read_append_overwrite: bool
    scan_bounded: bool
    scan_bounded_watermark: int | None
    continuous_discovery_interval_ms: int
    streaming_read_snapshot_delay_ms: int | None
    streaming_read_unmerged: bool
    table_read_sequence_number: bool
    consumer_expiration_time_ms: int | None
    consumer_changelog_only: bool
    source_split_target_size: int
    source_split_open_file_cost: int

    @property
    def keeps_last_row_only(self) -> bool:
        """Whether of several rows of one key only the last to arrive can matter.

        Then a writer may drop the others before it hands rows on.
        """
        return (
            self.merge_engine == "deduplicate"
            and not self.sequence_field
            and self.rowkind_field is None
            and not self.ignore_update_before
            and self.changelog_producer != "input"
        )

    @property
    def needs_lookup(self) -> bool:
        """Whether compaction of level 0 looks up the older rows of its keys."""
        return (
            self.merge_engine == "first-row"
            or self.changelog_producer == "lookup"
            or self.deletion_vectors_enabled
            or self.force_lookup
        )

    @property
    def changelogs_outlive_snapshots(self) -> bool:
        """Whether the changes of a snapshot are kept for readers when the snapshot expires."""
        return (
            self.changelog_num_retained_min > self.snapshot_num_retained_min
            or self.changelog_num_retained_max > self.snapshot_num_retained_max
            or self.changelog_time_retained_ms > self.snapshot_time_retained_ms
        )

    @staticmethod
    def from_strings(raw: Mapping[str, str]) -> "TableOptions":
        """Parse the options of a schema.

        Args:
            raw: option texts by key; aliases and unknown keys allowed.

        Raises:
            InvalidOptionError: a value does not parse, or two of them contradict each other.
        """
        values: dict[str, Any] = {
            row.attribute: None if row.default is None else row.value(row.default)
            for row in TABLE_OPTIONS
            if row.attribute
        }
        field_stats_modes: dict[str, str] = {}
        by_key: dict[str, dict[str, str]] = {name: {} for name in _BY_WHOLE_KEY}
        for key, value in raw.items():
            row = find_option(key)
            if row is None:
                _warn_unknown(key)
                continue
            parsed = row.value(value)
            if row.attribute == "field_stats_modes":
                field_stats_modes[_field_of(key)] = parsed
            elif row.attribute in by_key:
                by_key[row.attribute][key] = parsed
            elif row.attribute and not (key != row.key and row.key in raw):
                values[row.attribute] = parsed
        values["field_stats_modes"] = field_stats_modes
        values |= by_key
        for name in (
            "sequence_field",
            "partial_update_remove_on_groups",
            "row_deduplicate_ignore_fields",
        ):
            values[name] = values[name] or ()
        _fill_dependent_defaults(values)
        options = TableOptions(raw=dict(raw), **values)
        _validate(options)
        return options


def find_option(key: str) -> Option | None:
    """The row of a key, also by alias and by pattern; None when it is unknown."""
    exact = _BY_KEY.get(key)
    if exact is not None:
        return exact
    return next((row for pattern, row in _PATTERNS if pattern.match(key)), None)


def option_value(raw: Mapping[str, str], key: str) -> Any:
    """The value of one option where only the texts of a schema are at hand.

    Args:
        raw: option texts by key; aliases are read, too.
        key: in the option table; of a key with `<…>` parts the whole key.

    Returns:
        The parsed value, else that of the default; None where there is none.

    Raises:
        InvalidOptionError: the text does not parse.
    """
    row = find_option(key)
    if row is None:
        raise InternalError("there is no such option in the table", option=key)
    text = next((raw[name] for name in (key, *row.aliases) if name in raw), row.default)
    return None if text is None else row.value(text)


def require_writable(options: TableOptions) -> None:
    """Check that writing the table carries out everything its options ask for.

    Raises:
        UnsupportedFeatureError: it would not; names the option.
    """
    _require(options, Access.WRITE, "writing")


def require_readable(options: TableOptions) -> None:
    """Check that a read of the table is right.

    Raises:
        UnsupportedFeatureError: it would return wrong rows; names the option.
    """
    _require(options, Access.READ, "reading")


def _require(options: TableOptions, access: Access, verb: str) -> None:
    for key, value in options.raw.items():
        row = find_option(key)
        if row is None or row.implemented is None or access not in row.blocks:
            continue
        if row.value(value) not in row.implemented:
            raise UnsupportedFeatureError(
                f"this value of a table option is not implemented for {verb}",
                detail=row.doc,
                hint="remove the option, or use a version that carries it out",
                option=key,
                value=value,
            )


def _field_of(key: str) -> str:
    match = _FIELD_STATS_MODE.match(key)
    return key if match is None else match.group(1)


def _fill_dependent_defaults(values: dict[str, Any]) -> None:
    trigger = values["compaction_trigger"]
    if values["stop_trigger"] is None:
        values["stop_trigger"] = trigger + 3
    values["stop_trigger"] = max(values["stop_trigger"], trigger)
    if values["num_levels"] is None:
        values["num_levels"] = trigger + 1
    for name in ("num_retained_min", "num_retained_max", "time_retained_ms"):
        if values[f"changelog_{name}"] is None:
            values[f"changelog_{name}"] = values[f"snapshot_{name}"]
    interval = values["lookup_compact_max_interval"]
    values["lookup_compact_max_interval"] = max(
        trigger, 2 * trigger if interval is None else interval
    )


_AT_LEAST = (
    ("compaction_trigger", 1, "num-sorted-run.compaction-trigger"),
    ("num_levels", 2, "num-levels"),
    ("write_buffer_size", 1, "write-buffer-size"),
    ("target_file_size", 1, "target-file-size"),
    ("snapshot_num_retained_min", 1, "snapshot.num-retained.min"),
    ("snapshot_expire_limit", 1, "snapshot.expire.limit"),
    ("changelog_num_retained_min", 1, "changelog.num-retained.min"),
    ("max_size_amplification_percent", 0, "compaction.max-size-amplification-percent"),
    ("size_ratio", -100, "compaction.size-ratio"),  # -100: sizes never add a run to a pick
    ("commit_max_retries", 0, "commit.max-retries"),
    ("dynamic_bucket_target_row_num", 1, "dynamic-bucket.target-row-num"),
    ("dynamic_bucket_initial_buckets", 1, "dynamic-bucket.initial-buckets"),
    ("dynamic_bucket_assigner_parallelism", 1, "dynamic-bucket.assigner-parallelism"),
    ("cross_partition_bootstrap_parallelism", 1, "cross-partition-upsert.bootstrap-parallelism"),
    ("postpone_default_bucket_num", 1, "postpone.default-bucket-num"),
    ("postpone_target_row_num_per_bucket", 1, "postpone.target-row-num-per-bucket"),
    ("postpone_target_size_per_bucket", 1, "postpone.target-size-per-bucket"),
    (
        "postpone_batch_write_fixed_bucket_max_parallelism",
        1,
        "postpone.batch-write-fixed-bucket.max-parallelism",
    ),
    ("compaction_min_file_num", 1, "compaction.min.file-num"),
    ("compaction_file_num_limit", 1, "compaction.file-num-limit"),
    ("target_file_rows", 1, "target-file-row-num"),
    ("manifest_target_size", 1, "manifest.target-file-size"),
    ("manifest_merge_min_count", 1, "manifest.merge-min-count"),
    ("partition_expiration_max_num", 1, "partition.expiration-max-num"),
    ("partition_expiration_batch_size", 1, "partition.expiration-batch-size"),
    ("tag_num_retained_max", 1, "tag.num-retained-max"),
)


def _validate(options: TableOptions) -> None:
    _validate_deletion_vectors(options)
    for attribute, least, key in _AT_LEAST:
        value = getattr(options, attribute)
        if value is not None and value < least:
            raise InvalidOptionError(
                f"{key} should be at least {least}, but the value is too small",
                hint=f"give at least {least}",
                option=key,
                value=value,
            )
    buckets = options.dynamic_bucket_max_buckets
    if buckets != -1 and not 0 < buckets <= MAX_DYNAMIC_BUCKETS:
        raise InvalidOptionError(
            f"'dynamic-bucket.max-buckets' must be -1 or between 1 and {MAX_DYNAMIC_BUCKETS}",
            hint="set it to -1 for as many as there are numbers",
            option="dynamic-bucket.max-buckets",
            value=buckets,
        )
    if options.bucket < -2 or options.bucket == 0:
        raise InvalidOptionError(
            "the number of buckets needs to be greater than 0",
            hint="set `bucket` to a number greater than 0, or to -1 for dynamic buckets",
            option="bucket",
            value=options.bucket,
        )
    if options.snapshot_num_retained_min > options.snapshot_num_retained_max:
        raise InvalidOptionError(
            "snapshot.num-retained.min should not be larger than snapshot.num-retained.max",
            hint="set `snapshot.num-retained.max` to at least `snapshot.num-retained.min`",
            least=options.snapshot_num_retained_min,
            most=options.snapshot_num_retained_max,
        )
    if options.changelog_num_retained_min > options.changelog_num_retained_max:
        raise InvalidOptionError(
            "changelog.num-retained.min should not be larger than changelog.num-retained.max",
            hint="set `changelog.num-retained.max` to at least `changelog.num-retained.min`",
            least=options.changelog_num_retained_min,
            most=options.changelog_num_retained_max,
        )


def _validate_deletion_vectors(options: TableOptions) -> None:
    if not options.deletion_vectors_enabled:
        return
    if options.merge_engine == "first-row":
        raise InvalidOptionError(
            "First row merge engine does not need deletion vectors",
            detail="it keeps old rows, so that there is nothing to mark",
            hint="remove `deletion-vectors.enabled`",
            option="deletion-vectors.enabled",
        )
    if options.changelog_producer == "full-compaction":
        raise InvalidOptionError(
            "Deletion vectors mode is only supported for NONE/INPUT/LOOKUP changelog producer now.",
            hint="set `changelog-producer` to lookup",
            option="changelog-producer",
            value=options.changelog_producer,
        )


@functools.lru_cache(maxsize=1024)
def _warn_unknown(key: str) -> None:
    if not key.startswith(_PREFIXES):
        _log.warning("unknown table option is kept and has no effect option=`%s`", key)


_INTRODUCTION = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- written by `python -m storage.options.options --write`; change storage/options/table.py
instead -->

# Table options

*honour*: carried out. *ignore*: accepted without effect, because rows cannot change by it.
*refuse*: any other value than the default stops reading or writing, whichever would go wrong,
with an error that names the option. A key that is not listed is kept in the schema.

| option | default | unit | may change | treatment | meaning |
|---|---|---|---|---|---|
"""


def options_page() -> str:
    """The text of table-options.md, made from the table."""
    return _INTRODUCTION + "".join(_page_row(row) for row in TABLE_OPTIONS)


def _page_row(row: Option) -> str:
    default = "" if row.default is None else f"`{row.default}`"
    treatment = row.treatment.value
    if row.treatment is Treatment.HONOUR and row.implemented is not None:
        treatment += "; refuse others than the default"
    if row.treatment is not Treatment.IGNORE and row.implemented is not None:
        verbs = {Access.WRITE: "writing", Access.READ: "reading", Access.BOTH: "both"}
        treatment += f" ({verbs[row.blocks]})"
    doc = row.doc + "".join(f" Also `{alias}`." for alias in row.aliases)
    changes = "yes" if row.mutable else "no"
    return f"| `{row.key}` | {default} | {row.unit} | {changes} | {treatment} | {doc} |\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: write table-options.md beside this module, or compare it.

    Returns:
        Exit code: 0, or 1 when `--check` found the page out of date.
    """
    parser = argparse.ArgumentParser(
        prog="python -m storage.options.options", description="docs/reference/table-options.md"
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="fail when the page is out of date")
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/table-options.md"
    if parser.parse_args(arguments).write:
        page.write_text(options_page(), encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == options_page():
        return 0
    sys.stderr.write("docs/reference/table-options.md is out of date: run `make docs`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
