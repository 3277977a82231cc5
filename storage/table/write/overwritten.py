# SPDX-License-Identifier: Apache-2.0
"""Which partitions an overwrite replaces. Source: SEMANTICS.md §F.4."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.row.binary_row import decode_row
from storage.format.types.arrow_types import arrow_type
from storage.table.core import TableCore
from storage.table.scan.predicate import literal_scalar
from storage.table.scan.prune import row_value

__all__ = ["overwritten_partitions", "partition_matcher"]


def overwritten_partitions(
    table: TableCore, partition: Mapping[str, Any] | None, written: Iterable[bytes]
) -> Callable[[bytes], bool] | None:
    """Decides which partitions (framed) an overwrite replaces; None: there is nothing to do.

    Args:
        table: the table.
        partition: values of some partition columns, in the static form of an overwrite.
        written: partitions that receive new files.

    Raises:
        InvalidRequestError: a written partition is not one that is replaced, or a column is no
            partition key or cannot have the value.
    """
    written = frozenset(written)
    if table.schema.partition_keys and table.options.dynamic_partition_overwrite:
        return written.__contains__ if written else None
    replaced = partition_matcher(table, partition or {})
    for one in written:
        if not replaced(one):
            raise InvalidRequestError(
                "a new row does not belong to this partition",
                hint="write only rows of the partition that is overwritten",
                partition=table.partition_path(one),
                overwritten=dict(partition or {}),
            )
    return replaced


def partition_matcher(table: TableCore, values: Mapping[str, Any]) -> Callable[[bytes], bool]:
    """Whether a framed partition has some values; exact, unlike pruning.

    Args:
        table: the table.
        values: by partition column; a text is read as a value of the column, None is null.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    fields = table.schema.partition_fields
    names = [field.name for field in fields]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise InvalidRequestError(
            "no such partition column",
            hint=f"the table is partitioned by {', '.join(names) or 'nothing'}",
            column=unknown[0],
        )
    wanted: list[tuple[int, Any]] = []
    for position, field in enumerate(fields):
        if field.name not in values:
            continue
        value = values[field.name]
        if value is None or value == table.options.partition_default_name:
            wanted.append((position, None))
            continue
        try:
            scalar = literal_scalar(value, arrow_type(field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(
                "not a value of a partition column",
                detail=str(error),
                column=field.name,
                value=value,
            ) from error
        if scalar is None:
            return lambda _: False
        wanted.append((position, row_value(scalar)))
    types = [field.type for field in fields]

    def matches(partition: bytes) -> bool:
        found = decode_row(partition, types) if types else ()
        return all(found[position] == value for position, value in wanted)

    return matches
