# SPDX-License-Identifier: Apache-2.0
"""The features that later releases bring, and which of them a case needs.

`LATER` is the only reason a case may be left out. Needs are derived from what a case says
(options, columns, steps, checks), never from its name; `test_cases.py` checks that no entry of
`LATER` is already carried out by the storage layer. The golden packs use the same table.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
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
    "first-row-compaction": "compaction that looks up first rows",
    "sequence.snapshot-ordering": "ordering by snapshot",
    "record-level.expire-time": "record-level expiration",
    "force-lookup": "lookup compaction",
    # changelog
    "changelog-producer=input": "the input changelog producer",
    "changelog-producer=lookup": "the lookup changelog producer",
    "changelog-producer=full-compaction": "the full-compaction changelog producer",
    "streaming-scan": "streaming scans",
    "incremental-read": "incremental reads",
    # files
    "deletion-vector-compaction": "compaction that marks replaced rows in deletion vectors",
    # buckets and tables
    # metadata
    "auto-tags": "automatic tags",
    "orphan-files": "removal of orphan files",
    "partition-expiration": "partition expiration",
    "system-tables": "system tables",
    "scan.mode": "scan modes that choose another snapshot",
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
    file_format = options.get("file.format", "parquet")
    if file_format != "parquet":
        yield f"file.format={file_format}"


_WRITE_PREFIXES = {
    "record-level.": "record-level.expire-time",
    "file-index.": "file-index",
    "partition.expiration-": "partition-expiration",
    "streaming-read-": "streaming-scan",
    "tag.": "auto-tags",
}


def option_needs(options: Mapping[str, str]) -> Iterator[str]:
    """Features without which a table with these options cannot be created, written and read."""
    yield from read_needs(options)
    if options.get("merge-engine") == "first-row":
        yield "first-row-compaction"
    producer = options.get("changelog-producer", "none")
    if producer != "none":
        yield f"changelog-producer={producer}"
    if "rowkind.field" in options:
        yield "rowkind.field"
    if options.get("force-lookup") == "true":
        yield "force-lookup"
    if options.get("deletion-vectors.enabled") == "true" and options.get("write-only") != "true":
        yield "deletion-vector-compaction"
    if "full-compaction.delta-commits" in options:
        yield "changelog-producer=full-compaction"
    if "table-read.sequence-number.enabled" in options:
        yield "system-tables"
    for key in options:
        for prefix, feature in _WRITE_PREFIXES.items():
            if key.startswith(prefix):
                yield feature


# --------------------------------------------------------------------------------- cases

_CALLS = {
    "rewrite_file_index": "file-index",
    "remove_orphan_files": "orphan-files",
}
_UNITS = {
    "auto_tag": "auto-tags",
    "partition_expire": "partition-expiration",
}
_SYSTEM_TABLE = re.compile(r"\$(\w+)")
SQL_FACTS = frozenset({"files", "snapshots", "tags"})
"""Relations beside the table that a `check.sql` may look at already: see `session.facts`."""

_BATCH_MODES = frozenset(
    {
        *("default", "latest", "latest-full", "full", "from-snapshot", "from-snapshot-full"),
        *("from-timestamp", "compacted-full"),
    }
)
"""Modes that in a batch read mean one snapshot: the newest, or one that options choose."""


def case_needs(case: Mapping[str, Any]) -> Iterator[str]:
    """Features a case cannot run without; what only single checks need is not among them."""
    table = case.get("table")
    if table is not None:
        yield from option_needs(table.get("options") or {})
    for step in case["steps"]:
        for kind, body in step.items():
            yield from step_needs(kind, body)


def step_needs(kind: str, body: Any) -> Iterator[str]:
    """Features without which a step that changes the table cannot run."""
    if kind == "alter":
        yield from option_needs(body.get("set_options") or {})
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
    system = table and not table.startswith("$branch_")
    if system or "sys." in sql or set(_SYSTEM_TABLE.findall(sql)) - SQL_FACTS:
        yield "system-tables"
    if sql and not sql.lstrip().upper().startswith("SELECT"):
        yield "sql"
    if "UNNEST" in sql.upper():
        yield "sql"
    for key in body.get("options") or {}:
        if key.startswith("incremental-"):
            yield "incremental-read"
        elif key == "scan.mode" and str(body["options"][key]) not in _BATCH_MODES:
            yield "scan.mode"
