# SPDX-License-Identifier: Apache-2.0
"""Reading of case files and the refusal of anything in them that the runner would not look at."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

__all__ = [
    "CASES",
    "UnknownKeyError",
    "case_files",
    "load_cases",
    "require_known_keys",
]

CASES = pathlib.Path(__file__).parent / "cases"

_CASE = {"id", "topic", "source", "confidence", "notes", "table", "steps", "expect", "variants"}
_TABLE = {"columns", "primary_key", "partition", "options"}
_STEPS: dict[str, set[str] | None] = {
    "write": {"rows", "write_only", "overwrite", "branch"},
    "compact": None,
    "check": {
        *("rows", "table", "columns", "options", "filter", "files_read_max", "contains"),
        *("rows_any", "error", "sql"),
    },
    "alter": {
        *("set_options", "add_column", "after", "first", "drop_column", "rename_column"),
        *("update_type", "update_nullability", "set_default", "drop_primary_key"),
    },
    "call": {
        *("create_tag", "delete_tag", "create_branch", "reset_consumer", "rewrite_file_index"),
        *("truncate_table", "drop_partition", "expire_snapshots", "rollback_to"),
        "remove_orphan_files",
    },
    "sql": None,
    "stream": {"options", "first_plan", "follow_up"},
    "stream_start": {"options", "first_plan"},
    "commit_as": {"user", "identifier", "rows", "mode"},
    "filter_and_commit": {"user", "identifiers", "rows_by_identifier", "expect_committed"},
    "prepare": {"writer", "rows"},
    "commit": None,
    "unit": {"fn"},
    "create_file": {"path", "age_hours"},
    "count_files": {"glob", "expect"},
    "read_json": None,
}
_CALL_ARGUMENTS: dict[str, set[str] | None] = {
    "create_tag": {"tag", "snapshot"},
    "delete_tag": {"tag"},
    "create_branch": {"branch", "tag"},
    "reset_consumer": {"consumer_id", "next_snapshot_id"},
    "rewrite_file_index": {"table"},
    "truncate_table": set(),
    "drop_partition": None,  # partition columns
    "expire_snapshots": {"retain_max", "retain_min"},
    "rollback_to": {"snapshot_id", "tag"},
    "remove_orphan_files": set(),
}
_UNITS: dict[str, set[str]] = {
    "universal_pick": {
        *("runs_newest_first_level_size", "num_levels", "trigger", "size_ratio"),
        *("max_size_amp", "force_l0"),
    },
    "interval_partition": {"files_min_max"},
    "snapshot_expire": {
        *("snapshots_minutes_ago", "max", "min", "time_retained_min", "limit", "consumer_next"),
    },
    "auto_tag": {"mode", "period", "delay", "watermarks_utc", "num_retained_max"},
    "partition_expire": {
        *("now", "expiration", "formatter", "pattern", "partition_keys", "partitions"),
    },
    "hash_assign": {"target_row_num", "num_assigners", "assigner", "max_buckets", "hashes"},
}
_EXPECT = {
    *("rows", "changelog", "delta_stream", "unordered_columns", "ok", "project", "columns"),
    *("row_count", "files_glob", "json", "json_subset", "data_file_columns_unordered", "pick"),
    *("sections", "sections_runs", "remaining", "tags_after_each", "expired", "buckets"),
    *("buckets_prefix", "last_in", "error", "follow_up_after"),
}


class UnknownKeyError(Exception):
    """A case says something the runner does not understand."""


class _Loader(yaml.CSafeLoader):
    """Plain YAML without dates: a date in a case is the text of a value."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def case_files(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """The files themselves, and the `.yaml` files of every folder among them by name."""
    return [
        file
        for path in paths
        for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])
    ]


def load_cases(path: pathlib.Path) -> list[dict[str, Any]]:
    """The cases of one file, in order.

    Raises:
        UnknownKeyError: the file's version or layout is another one.
    """
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    unknown = set(document) - {"format_version", "legend", "cases"}
    if unknown or document.get("format_version") != 1:
        raise UnknownKeyError(
            f"{path}: version {document.get('format_version')}, unknown keys {sorted(unknown)}"
        )
    cases: list[dict[str, Any]] = document["cases"]
    return cases


def require_known_keys(case: Mapping[str, Any]) -> None:
    """Check every key of a case.

    Raises:
        UnknownKeyError: names each unknown key and where it is.
    """
    problems = list(_problems(case))
    if problems:
        raise UnknownKeyError("; ".join(problems))


def _problems(case: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("the case", case, _CASE)
    missing = {"id", "steps", "expect"} - set(case)
    if missing:
        yield f"missing in the case: {sorted(missing)}"
        return
    yield from _unknown("table", case.get("table") or {}, _TABLE)
    yield from _unknown("expect", case["expect"], _EXPECT)
    for number, step in enumerate(case["steps"], start=1):
        if len(step) != 1:
            yield f"step {number} has {len(step)} keys"
        for kind, body in step.items():
            yield from _step_problems(f"step {number} ({kind})", kind, body)


def _step_problems(place: str, kind: str, body: Any) -> Iterator[str]:
    if kind not in _STEPS:
        yield f"unknown step in {place}"
    elif kind == "unit":
        known = _UNITS.get(body.get("fn"))
        if known is None:
            yield f"unknown function `{body.get('fn')}` in {place}"
        else:
            yield from _unknown(place, body, {"fn"} | known)
    elif kind == "compact":
        if body != "full":
            yield f"unknown mode `{body}` in {place}"
    else:
        known_keys = _STEPS[kind]
        if known_keys is not None:
            yield from _unknown(place, body, known_keys)
        if kind == "call":
            for name, arguments in body.items():
                known_arguments = _CALL_ARGUMENTS.get(name)
                if known_arguments is not None:
                    yield from _unknown(f"{place} {name}", arguments or {}, known_arguments)


def _unknown(place: str, mapping: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    for key in mapping:
        if key not in known:
            yield f"unknown key `{key}` in {place}"
