# SPDX-License-Identifier: Apache-2.0
"""Reading a table whose missing partitions come from another branch.

Source: SEMANTICS.md §F.10 (`scan.fallback-branch`): a partition that has files in the branch that
is read comes from there, every other one from the fallback branch.
"""

import dataclasses

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.format.types.type_text import type_name
from storage.options.options import require_readable
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import Split, TableScan

__all__ = ["FALLBACK_BRANCH", "fallback_plan", "no_travel_with_fallback"]

FALLBACK_BRANCH = "scan.fallback-branch"


def fallback_plan(
    table: TableCore, fallback: TableCore, predicate: Predicate | None
) -> list[tuple[int, Split]]:
    """The splits of such a read: of the first table with number 0, of the other with 1.

    Args:
        table: at the branch that is read.
        fallback: the same table at the branch that stands in.
        predicate: rows wanted; None = all.

    Raises:
        InvalidRequestError: the branches differ in columns or primary keys.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
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


def no_travel_with_fallback() -> UnsupportedFeatureError:
    """What to raise where such a table is to be read as it was."""
    return UnsupportedFeatureError(
        "time travel on a table with a fallback branch is not implemented",
        hint=f"take the option away: with_options({{'{FALLBACK_BRANCH}': None}})",
        option=FALLBACK_BRANCH,
    )


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
