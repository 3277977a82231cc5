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
from storage.table.scan import TableScan

__all__ = ["FALLBACK_BRANCH", "read_with_fallback"]

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
    require_readable(table.options)
    _check_alike(table.schema, fallback.schema)
    snapshot = table.latest_snapshot()
    own = set() if snapshot is None else {key[0] for key in live_state(table, snapshot).buckets}
    parts = []
    reader = TableRead(table, columns, predicate)
    if snapshot is not None:
        parts.append(reader.to_table(TableScan(table).with_filter(predicate).plan(snapshot)))
    plan = TableScan(fallback).with_filter(predicate).plan()
    missing = tuple(split for split in plan.splits if split.partition not in own)
    rest = TableRead(fallback, columns, predicate).to_table(
        dataclasses.replace(plan, splits=missing)
    )
    return pa.concat_tables([*parts, rest.cast(reader.schema)])


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
