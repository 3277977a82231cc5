# SPDX-License-Identifier: Apache-2.0
"""Reading a table whose missing partitions come from another branch.

Source: SEMANTICS.md §F.10 (`scan.fallback-branch`): a partition that has files in the branch that
is read comes from there, every other one from the fallback branch.
"""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.schema import TableSchema
from storage.format.type_text import type_name
from storage.options import require_readable
from storage.table.core import TableCore
from storage.table.live_files import live_state
from storage.table.predicate import Predicate
from storage.table.read import TableRead
from storage.table.scan import Plan, Split, TableScan

__all__ = ["FALLBACK_BRANCH", "fallback_plan", "read_with_fallback"]

FALLBACK_BRANCH = "scan.fallback-branch"


def read_with_fallback(
    table: TableCore,
    fallback: TableCore,
    columns: Sequence[str] | None,
    predicate: Predicate | None,
) -> pa.Table:
    """The newest rows of both, in the schema of the first.

    Args:
        table: at the branch that is read.
        fallback: the same table at the branch that stands in.
        columns: in the order wanted; None = all.
        predicate: rows wanted; None = all.

    Raises:
        InvalidRequestError: the branches differ in columns or primary keys.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """
    found = fallback_plan(table, fallback, predicate)
    own, others = (tuple(split for number, split in found if number == which) for which in (0, 1))
    reader = TableRead(table, columns, predicate)
    first = reader.to_table(Plan(snapshot_id=None, splits=own))
    rest = TableRead(fallback, columns, predicate)
    second = rest.to_table(Plan(snapshot_id=None, splits=others))
    return pa.concat_tables([first, second.cast(reader.schema)])


def fallback_plan(
    table: TableCore, fallback: TableCore, predicate: Predicate | None
) -> list[tuple[int, Split]]:
    """The splits of such a read: of the first table with number 0, of the other with 1.

    Args:
        table: at the branch that is read.
        fallback: the same table at the branch that stands in.
        predicate: rows wanted; None = all.

    Raises: as `read_with_fallback`.
    """
    require_readable(table.options)
    _check_alike(table.schema, fallback.schema)
    snapshot = table.latest_snapshot()
    own: set[bytes] = set()
    found: list[tuple[int, Split]] = []
    if snapshot is not None:
        own = {partition for partition, _ in live_state(table, snapshot).buckets}
        plan = TableScan(table).with_filter(predicate).plan(snapshot)
        found += [(0, split) for split in plan.splits]
    rest = TableScan(fallback).with_filter(predicate).plan()
    return found + [(1, split) for split in rest.splits if split.partition not in own]


def _check_alike(schema: TableSchema, other: TableSchema) -> None:
    """Names, types apart from nullability, and keys must be the same."""
    mine, theirs = (
        [(field.name, dataclasses.replace(field.type, nullable=True)) for field in one.fields]
        for one in (schema, other)
    )
    keys = (schema.primary_keys, schema.partition_keys)
    if mine == theirs and keys == (other.primary_keys, other.partition_keys):
        return
    raise InvalidRequestError(
        "the branch and its fallback branch do not have the same columns and keys",
        columns=", ".join(f"{field.name} {type_name(field.type)}" for field in schema.fields),
        fallback=", ".join(f"{field.name} {type_name(field.type)}" for field in other.fields),
    )
