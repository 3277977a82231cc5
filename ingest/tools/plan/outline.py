# SPDX-License-Identifier: Apache-2.0
"""A plan as values: topics, tables with their columns and keys, warnings, type policies.

Made by `planner`, shown by `plan_report`; every value here turns into JSON by `as_document`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.tools.plan.estimate import Estimate
from ingest.tools.plan.type_policies import Policy

__all__ = ["BadKind", "Column", "Notice", "Outline", "TableOutline", "TopicOutline", "as_document"]


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something to know before the stream starts.

    Attributes:
        code: one word for machines.
        severe: whether records would be lost to quarantine, or a table not written.
        about: topic or table; empty = the pipeline.
        text: what is so.
        hint: what can be done.
    """

    code: str
    severe: bool
    about: str
    text: str
    hint: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutline:
    """A topic; `counts` are sampled records by fate."""

    name: str
    partitions: int
    records: int
    bytes: int
    cleanup_policy: str
    sampled: int
    tables: tuple[str, ...]
    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a target; `roles` are of `key`, `partition`, `computed`, `metadata`."""

    name: str
    source_type: str
    type: str
    roles: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BadKind:
    """Sampled records of one class that would go to quarantine."""

    table: str
    topic: str
    error_class: str
    records: int
    example: str
    partition: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableOutline:
    """A target.

    Attributes:
        name: `database.table`.
        state: `new`, `exists`, `changes` (exists and gets other columns), or `refused`.
        sources: addresses of the source tables.
        topics: in which they were met.
        columns: as the table would be.
        primary_key: in order.
        key_from: where the key comes from, for people.
        partition_keys: in order.
        buckets: for people.
        options: of the table, without secrets.
        transforms: what is asked of rows, for people.
        changes: of an existing table.
        estimate: only when asked for.
    """

    name: str
    state: str
    sources: tuple[str, ...]
    topics: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    key_from: str = ""
    partition_keys: tuple[str, ...] = ()
    buckets: str = ""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    transforms: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    estimate: Estimate | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The whole plan."""

    pipeline: str
    format: str
    topics: Sequence[TopicOutline]
    tables: Sequence[TableOutline]
    unrouted: Mapping[str, Sequence[str]]
    bad: Sequence[BadKind]
    warnings: Sequence[Notice]
    policies: Sequence[Policy]

    @property
    def severe(self) -> bool:
        """Whether something is not as it should be, as far as the sample shows."""
        return any(each.severe for each in self.warnings)


def as_document(outline: Outline) -> dict[str, Any]:
    """As plain values for JSON."""
    return dataclasses.asdict(outline)
