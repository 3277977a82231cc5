# SPDX-License-Identifier: Apache-2.0
"""Table options as typed attributes, and the checks that what a table requests is implemented.

The rows are in `table` (source: SEMANTICS.md §K). `python -m storage.options.options
--write` writes table-options.md beside this module, `--check` fails when it is out of date.

Rules: a known key with a value that is not implemented and would change results is refused by
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
from difflib import get_close_matches
from typing import Any

from storage.errors import InternalError, InvalidOptionError, UnsupportedFeatureError
from storage.options.maintenance import (
    CommitOptions,
    CompactionOptions,
    ExpiryOptions,
    FileIndexOptions,
    LifecycleOptions,
    WritingOptions,
)
from storage.options.reading import MergingOptions, StartingOptions, StreamingOptions
from storage.options.table import (
    TABLE_OPTIONS,
    ChangelogOptions,
    IcebergOptions,
    PlacementOptions,
    ReadingOptions,
)
from storage.options.values import Access, Option, Treatment

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
"""Keys that are passed on or belong to us; never warned about."""


@functools.cache
def _default_values() -> Mapping[str, Any]:
    """By attribute; parsed once, since tables are opened far more often than options change."""
    return {
        row.attribute: None if row.default is None else row.value(row.default)
        for row in TABLE_OPTIONS
        if row.attribute
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(
    PlacementOptions,
    MergingOptions,
    ChangelogOptions,
    FileIndexOptions,
    WritingOptions,
    CompactionOptions,
    CommitOptions,
    ExpiryOptions,
    LifecycleOptions,
    IcebergOptions,
    ReadingOptions,
    StartingOptions,
    StreamingOptions,
):
    """All honoured options of one table, parsed and checked. Build with `from_strings`.

    Attributes:
        raw: the texts it was built from, unknown keys included.

    The other attributes are described in table-options.md under the key of the same row.
    """

    raw: Mapping[str, str]
    merge_columns: Mapping[str, Any]
    file_index_columns: Mapping[str, str]
    file_index_settings: Mapping[str, str]
    field_stats_modes: Mapping[str, str]

    @property
    def keeps_last_row_only(self) -> bool:
        """Whether of several rows of one key only the last to arrive can matter.

        Then a writer may drop the others before it passes rows on.
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

        Raises:
            InvalidOptionError: a value does not parse, or two of them contradict each other.
        """
        values = dict(_default_values())
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
        _require_least(values)  # before defaults are derived from other options
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
    """The value of one option where only the texts of a schema are available.

    Aliases are read, too; a key with `<…>` parts is passed whole.

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
    """Check that writing the table implements all of its options.

    Raises:
        UnsupportedFeatureError: it would not; names the option.
    """
    _require(options, Access.WRITE, "writing")


def require_readable(options: TableOptions) -> None:
    """Check that a read of the table returns correct rows.

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


def _require_least(values: Mapping[str, Any]) -> None:
    for row in TABLE_OPTIONS:
        value = None if row.least is None else values[row.attribute]
        if row.least is not None and value is not None and value < row.least:
            raise InvalidOptionError(
                f"{row.key} should be at least {row.least}, but the value is too small",
                hint=f"give at least {row.least}",
                option=row.key,
                value=value,
            )


def _validate(options: TableOptions) -> None:
    _validate_deletion_vectors(options)
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
    for kind in ("snapshot", "changelog"):
        least = getattr(options, f"{kind}_num_retained_min")
        most = getattr(options, f"{kind}_num_retained_max")
        if least > most:
            raise InvalidOptionError(
                f"{kind}.num-retained.min should not be larger than {kind}.num-retained.max",
                hint=f"set `{kind}.num-retained.max` to at least `{kind}.num-retained.min`",
                least=least,
                most=most,
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
        near = "".join(f"; did you mean `{name}`?" for name in get_close_matches(key, _BY_KEY, 1))
        _log.warning("unknown table option is kept and has no effect option=`%s`%s", key, near)


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
