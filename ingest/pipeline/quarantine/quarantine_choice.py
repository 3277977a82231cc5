# SPDX-License-Identifier: Apache-2.0
"""Filters on the quarantine table, and the selected rows.

A filter is passed in requests as plain values. Rows are processed by column: the table may have
millions of rows.
"""

import dataclasses
import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    conjuncts,
)
from storage.table.table import FileStoreTable

UNKNOWN = "unknown"
"""Name that selects records with an unknown target table."""

GROUP_COLUMNS = ("topic", "table", "class", "state", "records", "first", "last", "example")
"""Columns of `count_groups`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Conditions, combined with AND; None = any.

    Attributes:
        topic: source topic.
        partition: source partition.
        offset: source offset.
        table: target table `database.table`, or `UNKNOWN`.
        error_class: see `ingest.pipeline.quarantine.bad_classes`.
        state: `new` or `replayed`.
        since_ms: quarantined at this time or later [epoch ms].
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    table: str | None = None
    error_class: str | None = None
    state: str | None = None
    since_ms: int | None = None

    def to_values(self) -> dict[str, Any]:
        """Return plain values without None."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }

    @staticmethod
    def of_values(values: Mapping[str, Any]) -> "Choice":
        """Decode the values of `to_values`.

        Raises:
            InvalidRequestError: the values are invalid.
        """
        kinds = {"partition": int, "offset": int, "since_ms": int}
        for name, value in values.items():
            if name not in Choice.__dataclass_fields__ or type(value) is not kinds.get(name, str):
                raise InvalidRequestError("invalid filter of bad records", argument=name)
        return Choice(**values)

    def predicate(self) -> Predicate | None:
        """Return the predicate on the quarantine table."""
        parts: list[Predicate] = [
            Compare(Op.EQ, column, value)
            for column, value in (
                ("topic", self.topic),
                ("partition", self.partition),
                ("offset", self.offset),
                ("error_class", self.error_class),
                ("state", self.state),
            )
            if value is not None
        ]
        if self.table is not None:
            match = Compare(Op.EQ, "target", self.table)
            parts.append(IsNull("target") if self.table == UNKNOWN else match)
        if self.since_ms is not None:
            since = datetime.datetime.fromtimestamp(self.since_ms / 1000, datetime.UTC)
            parts.append(Compare(Op.GE, "ingested_at", since))
        return And(tuple(parts)) if parts else None


def read_quarantine(
    table: FileStoreTable,
    choice: Choice,
    columns: Sequence[str] | None = None,
    *,
    offsets: Collection[int] | None = None,
    but_for: Collection[str] = (),
    limits: tuple[int, int] | None = None,
) -> pa.Table:
    """Return rows of the quarantine table, in the order of its key.

    Args:
        table: latest version of the quarantine table.
        choice: filter.
        columns: columns to read; None = all.
        offsets: only records at these source offsets.
        but_for: target tables to exclude.
        limits: approximate limits of rows and bytes.

    Raises:
        InvalidRequestError: the table was created by an earlier version, and no daemon of this
            version has started since.
    """
    if "target" not in table.schema.field_names:
        raise InvalidRequestError(
            "the quarantine table was created by an earlier version",
            hint="start the daemon: it adds the missing columns",
        )
    parts = list(conjuncts(choice.predicate()))
    if offsets is not None:
        parts.append(In("offset", tuple(sorted(offsets))))
    if but_for:
        parts.append(Or((IsNull("target"), Not(In("target", tuple(sorted(but_for)))))))
    predicate = And(tuple(parts)) if parts else None
    names = list(columns or table.schema.field_names)
    read = table.new_read(columns=names, predicate=predicate)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for split in table.new_scan().with_filter(predicate).plan().splits:
        for batch in read.to_batches(split):
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if limits is not None and (rows >= limits[0] or size >= limits[1]):
                return pa.Table.from_batches(batches, read.schema)
    return pa.Table.from_batches(batches, read.schema)


def count_groups(rows: pa.Table) -> pa.Table:
    """Count rows by topic, table, class and state, in descending order.

    Args:
        rows: rows with these columns, `ingested_at` and `error`.

    Returns:
        `GROUP_COLUMNS`; `first` and `last` are times of quarantine, `example` is one error.
    """
    keys = ["topic", "target", "error_class", "state"]
    groups = rows.group_by(keys, use_threads=False).aggregate(
        [("error", "count"), ("ingested_at", "min"), ("ingested_at", "max"), ("error", "first")]
    )
    groups = groups.select(
        [*keys, "error_count", "ingested_at_min", "ingested_at_max", "error_first"]
    ).rename_columns(list(GROUP_COLUMNS))
    groups = groups.set_column(1, "table", pc.fill_null(groups.column("table"), UNKNOWN))
    return groups.sort_by(
        [("records", "descending"), ("topic", "ascending"), ("table", "ascending")]
    )
