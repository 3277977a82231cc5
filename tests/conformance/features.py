# SPDX-License-Identifier: Apache-2.0
"""The features that later releases bring, and which of them a case needs.

`LATER` is the only reason a case may be left out. Needs are derived from what a case says
(options, columns, steps, checks), never from its name; `test_cases.py` checks that no entry of
`LATER` is already carried out by the storage layer. The golden packs use the same table.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "LATER",
    "SQL_FACTS",
    "case_needs",
    "check_needs",
    "later",
    "option_needs",
    "read_needs",
    "step_needs",
]

LATER: Mapping[str, str] = {
    # merging
    "merge-engine=partial-update": "the partial-update merge engine",
    "merge-engine=aggregation": "the aggregation merge engine",
    "merge-engine=first-row": "the first-row merge engine",
    "sequence.field": "user-defined sequence fields",
    "sequence.snapshot-ordering": "ordering by snapshot",
    "rowkind.field": "row kinds from a column",
    "record-level.expire-time": "record-level expiration",
    "force-lookup": "lookup compaction",
    # changelog
    "changelog-producer=input": "the input changelog producer",
    "changelog-producer=lookup": "the lookup changelog producer",
    "changelog-producer=full-compaction": "the full-compaction changelog producer",
    "streaming-scan": "streaming scans",
    "incremental-read": "incremental reads",
    "consumers": "consumers",
    # files
    "file.format=orc": "ORC data files",
    "file.format=avro": "Avro data files",
    "deletion-vectors": "deletion vectors",
    "file-index": "file indexes",
    "thin-files": "writing files without key columns",
    # buckets and tables
    "dynamic-bucket": "dynamic buckets",
    "append-write": "writing append tables",
    "static-overwrite": "INSERT OVERWRITE of a static partition",
    "default-value-option": "default values as read-time options",
    # metadata
    "tags": "tags",
    "branches": "branches",
    "rollback": "rollback",
    "orphan-files": "removal of orphan files",
    "partition-expiration": "partition expiration",
    "drop-primary-key": "dropping the primary key",
    "system-tables": "system tables",
    "scan.timestamp": "time travel by timestamp",
    "scan.watermark": "time travel by watermark",
    "scan.version": "time travel by tag name or snapshot id",
    "scan.mode": "scan modes that choose another snapshot",
    "statistics": "table statistics",
    "sql": "SQL statements",
}
"""Feature -> the capability that brings it. Delete an entry when the feature is there."""


def later(needs: Iterable[str]) -> list[str]:
    """Reasons to leave something out: one text per need that is not there yet, without repeats."""
    return [f"{need}: {LATER[need]}" for need in dict.fromkeys(needs) if need in LATER]


# ------------------------------------------------------------------------------- options


def read_needs(options: Mapping[str, str]) -> Iterator[str]:
    """Features without which reading a table with these options would be wrong."""
    engine = options.get("merge-engine", "deduplicate")
    if engine != "deduplicate":
        yield f"merge-engine={engine}"
    if options.get("sequence.field"):
        yield "sequence.field"
    if options.get("sequence.snapshot-ordering") == "true":
        yield "sequence.snapshot-ordering"
    if options.get("deletion-vectors.enabled") == "true":
        yield "deletion-vectors"
    file_format = options.get("file.format", "parquet")
    if file_format != "parquet":
        yield f"file.format={file_format}"
    if "scan.fallback-branch" in options or options.get("branch", "main") != "main":
        yield "branches"


_WRITE_PREFIXES = {
    "record-level.": "record-level.expire-time",
    "file-index.": "file-index",
    "partition.expiration-": "partition-expiration",
    "streaming-read-": "streaming-scan",
    "tag.": "tags",
    "consumer": "consumers",
}


def option_needs(options: Mapping[str, str]) -> Iterator[str]:
    """Features without which a table with these options cannot be created, written and read."""
    yield from read_needs(options)
    producer = options.get("changelog-producer", "none")
    if producer != "none":
        yield f"changelog-producer={producer}"
    if "rowkind.field" in options:
        yield "rowkind.field"
    if options.get("force-lookup") == "true":
        yield "force-lookup"
    if options.get("dynamic-partition-overwrite") == "false":
        yield "static-overwrite"
    if options.get("data-file.thin-mode") == "true":
        yield "thin-files"
    if "full-compaction.delta-commits" in options:
        yield "changelog-producer=full-compaction"
    if "table-read.sequence-number.enabled" in options:
        yield "system-tables"
    for key in options:
        for prefix, feature in _WRITE_PREFIXES.items():
            if key.startswith(prefix):
                yield feature
        if key.startswith("fields.") and key.endswith(".default-value"):
            yield "default-value-option"


# --------------------------------------------------------------------------------- cases

_CALLS = {
    "create_tag": "tags",
    "delete_tag": "tags",
    "create_branch": "branches",
    "reset_consumer": "consumers",
    "rewrite_file_index": "file-index",
    "rollback_to": "rollback",
    "remove_orphan_files": "orphan-files",
}
_UNITS = {
    "auto_tag": "tags",
    "partition_expire": "partition-expiration",
    "hash_assign": "dynamic-bucket",
}
_SYSTEM_TABLE = re.compile(r"\$(\w+)")
SQL_FACTS = frozenset({"files", "snapshots"})
"""Relations beside the table that a `check.sql` may look at already: see `session.facts`."""

_BATCH_MODES = frozenset(
    {"default", "latest", "latest-full", "full", "from-snapshot", "from-snapshot-full"}
)
"""Modes that in a batch read mean the newest snapshot, or the one `scan.snapshot-id` names."""

_WRITES = frozenset({"write", "commit_as", "filter_and_commit", "prepare"})


def case_needs(case: Mapping[str, Any]) -> Iterator[str]:
    """Features a case cannot run without; what only single checks need is not among them."""
    table = case.get("table")
    if table is not None:
        yield from _table_needs(table, case["steps"])
    for step in case["steps"]:
        for kind, body in step.items():
            yield from step_needs(kind, body)


def _table_needs(table: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    options = table.get("options") or {}
    yield from option_needs(options)
    if table.get("primary_key"):
        if int(options.get("bucket", 1)) < 0:
            yield "dynamic-bucket"
    elif any(kind in _WRITES for step in steps for kind in step):
        yield "append-write"


def step_needs(kind: str, body: Any) -> Iterator[str]:
    """Features without which a step that changes the table cannot run."""
    if kind == "write":
        if body.get("overwrite"):
            yield "static-overwrite"
        if "branch" in body:
            yield "branches"
    elif kind == "alter":
        yield from option_needs(body.get("set_options") or {})
        if "drop_primary_key" in body:
            yield "drop-primary-key"
    elif kind == "call":
        yield from (_CALLS[name] for name in body if name in _CALLS)
    elif kind == "unit":
        if body["fn"] in _UNITS:
            yield _UNITS[body["fn"]]
    elif kind == "sql":
        yield "sql"


def check_needs(kind: str, body: Any) -> Iterator[str]:
    """Features without which a step that only looks at the table has nothing to look at."""
    if kind in ("stream", "stream_start"):
        yield "streaming-scan"
    if kind != "check":
        return
    table = str(body.get("table", ""))
    sql = str(body.get("sql", ""))
    if table.startswith("$branch_"):
        yield "branches"
    elif table or "sys." in sql or set(_SYSTEM_TABLE.findall(sql)) - SQL_FACTS:
        yield "system-tables"
    if sql and not sql.lstrip().upper().startswith("SELECT"):
        yield "sql"
    if "UNNEST" in sql.upper():
        yield "sql"
    for key in body.get("options") or {}:
        if key.startswith("incremental-"):
            yield "incremental-read"
        elif key == "scan.tag-name":
            yield "tags"
        elif key.startswith("scan.timestamp"):
            yield "scan.timestamp"
        elif key in ("scan.watermark", "scan.version"):
            yield key
        elif key == "scan.mode" and str(body["options"][key]) not in _BATCH_MODES:
            yield "scan.mode"
        elif key.startswith("deletion-vectors."):
            yield "deletion-vectors"
