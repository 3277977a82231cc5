# SPDX-License-Identifier: Apache-2.0
"""Merge functions: how all rows of one key become one row (`merge-engine`).

A merge function reduces a whole sorted batch at once, given where each key begins; it is
stateless and picklable. A key with a single row passes unchanged, whatever its kind, but not
inside lookup compaction (SEMANTICS.md §0.4). Source: SEMANTICS.md §B.
"""

from collections.abc import Sequence
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.lsm.merge_functions.aggregators import Aggregator, aggregator_for
from storage.lsm.merge_functions.partial_update import (
    Aggregation,
    PartialUpdate,
    SequenceGroup,
    sequence_groups,
)
from storage.lsm.merge_functions.segments import Deduplicate, FirstRow, SequenceOrder
from storage.options.options import TableOptions

__all__ = ["MergeFunction", "RowPicker", "merge_function_for"]

_DEFAULT_FUNCTION = "last_non_null_value"


class MergeFunction(Protocol):
    """Reducer of equal keys."""

    @property
    def sequence(self) -> SequenceOrder | None:
        """User-defined order of the rows of a key; None = arrival."""

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """One row per key, at most.

        Args:
            batch: KeyValueBatch in merge order: by key, then as in SEMANTICS.md §A.7.
            starts: int64 positions at which a key begins, ascending from 0.

        Returns:
            A KeyValueBatch, strictly ascending by key.
        """


@runtime_checkable
class RowPicker(Protocol):
    """A merge function whose result is one of the rows: lets the merger gather rows only once."""

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Positions of the rows that stay, ascending, at most one per key.

        Args:
            kinds: int8 row kinds in merge order.
            starts: as for `MergeFunction.reduce`.
        """


def merge_function_for(
    options: TableOptions, schema: TableSchema, *, lone_rows: bool = False
) -> MergeFunction:
    """The merge function of a table with a primary key.

    Args:
        options: of the table; `merge-engine` chooses.
        schema: whose columns it reduces.
        lone_rows: a key with a single row is reduced like the others, as inside lookup compaction.

    Raises:
        InvalidOptionError: options of the merge engine contradict each other or the columns.
    """
    sequence = SequenceOrder.of(options)
    keys = schema.trimmed_primary_keys
    if options.merge_engine == "partial-update":
        return _partial_update(options, schema, sequence, lone_rows)
    if options.merge_engine == "aggregation":
        return _aggregation(options, schema, sequence, lone_rows)
    if options.merge_engine == "first-row":
        return FirstRow(keys, options.ignore_delete, lone_rows)
    return Deduplicate(options.ignore_delete, sequence, lone_rows)


def _partial_update(
    options: TableOptions, schema: TableSchema, sequence: SequenceOrder | None, lone_rows: bool
) -> MergeFunction:
    groups = sequence_groups(options, schema)
    _check_removals(options, groups)
    ordering = {name for group in groups for name in group.ordering}
    protected = {name for group in groups for name in group.protected}
    functions: dict[str, Aggregator] = {}
    for field in schema.fields:
        if field.name in ordering or field.name in schema.primary_keys:
            continue
        name = _function_of(field.name, options)
        if name is None:
            continue
        if name != _DEFAULT_FUNCTION and field.name not in protected:
            raise InvalidOptionError(
                "Must use sequence group for aggregation functions but not found for field "
                f"{field.name}",
                hint="name the column in a sequence group, or remove its function",
                option=f"fields.{field.name}.aggregate-function",
                value=name,
            )
        functions[field.name] = aggregator_for(name, field, options.raw, schema)
    # as in `_aggregation`: a column of the partition is the same in all rows that meet
    partition_names = frozenset(schema.partition_keys)
    return PartialUpdate(
        key_names=schema.trimmed_primary_keys,
        groups=tuple(group.without(partition_names) for group in groups),
        functions={
            name: func for name, func in functions.items() if name in protected - partition_names
        },
        remove_on=options.partial_update_remove_on_groups,
        ignore_delete=options.ignore_delete,
        remove_on_delete=options.partial_update_remove_on_delete,
        sequence=sequence,
        lone_rows=lone_rows,
    )


def _check_removals(options: TableOptions, groups: Sequence[SequenceGroup]) -> None:
    on_delete = "partial-update.remove-record-on-delete"
    on_groups = "partial-update.remove-record-on-sequence-group"
    if options.partial_update_remove_on_delete and options.ignore_delete:
        _conflict("ignore-delete", on_delete)
    if options.partial_update_remove_on_groups and options.ignore_delete:
        _conflict("ignore-delete", on_groups)
    if options.partial_update_remove_on_delete and groups:
        _conflict("sequence-group", on_delete)
    ordering = {name for group in groups for name in group.ordering}
    unknown = set(options.partial_update_remove_on_groups) - ordering
    if unknown:
        raise InvalidOptionError(
            f"field '{','.join(options.partial_update_remove_on_groups)}' defined in "
            f"'{on_groups}' option must be part of sequence groups",
            hint="name ordering columns of sequence groups",
            option=on_groups,
            field=sorted(unknown)[0],
        )


def _conflict(first_option: str, second_option: str) -> NoReturn:
    raise InvalidOptionError(
        f"{first_option} and {second_option} have conflicting behavior so should not be enabled "
        "at the same time",
        hint="remove one of them",
        option=second_option,
    )


def _aggregation(
    options: TableOptions, schema: TableSchema, sequence: SequenceOrder | None, lone_rows: bool
) -> MergeFunction:
    functions: dict[str, Aggregator] = {}
    for field in schema.fields:
        if field.name in options.sequence_field:
            name = "last_value"
        elif field.name in schema.primary_keys:
            name = "primary-key"
        else:
            name = _function_of(field.name, options) or _DEFAULT_FUNCTION
        functions[field.name] = aggregator_for(name, field, options.raw, schema)
    # all rows of a bucket are of one partition, and Java reads its columns from the partition
    for column in schema.partition_keys:
        functions[column] = aggregator_for("primary-key", schema.field(column), {}, schema)
    return Aggregation(
        key_names=schema.trimmed_primary_keys,
        functions=functions,
        remove_on_delete=options.aggregation_remove_on_delete,
        sequence=sequence,
        lone_rows=lone_rows,
    )


def _function_of(column: str, options: TableOptions) -> str | None:
    name = options.merge_columns.get(f"fields.{column}.aggregate-function")
    return options.default_aggregate_function if name is None else name
