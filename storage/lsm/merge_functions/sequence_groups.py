# SPDX-License-Identifier: Apache-2.0
"""Sequence groups of partial-update tables: columns that follow an order of their own.

Owns the option `fields.<names>.sequence-group` and the decision which rows a group takes.
Data plane: ranks and running maxima, no Python object per row. Source: SEMANTICS.md §B.2.3.
"""

import dataclasses
from collections.abc import Collection

import numpy as np
import pyarrow as pa

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import AtomicType, TypeRoot
from storage.lsm.merge_functions.segments import segment_ids, valid_mask
from storage.lsm.merge_functions.sequence_order import dense_ranks
from storage.options.options import TableOptions

__all__ = ["SequenceGroup", "accepted", "sequence_groups"]

_PREFIX, _SUFFIX = "fields.", ".sequence-group"

_ORDERED = frozenset(
    {
        *(TypeRoot.DECIMAL, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP),
        *(TypeRoot.TIMESTAMP_LTZ, TypeRoot.BOOLEAN, TypeRoot.CHAR, TypeRoot.VARCHAR),
        *(TypeRoot.BINARY, TypeRoot.VARBINARY),
    }
)
"""Types with an order."""


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceGroup:
    """One sequence group.

    Attributes:
        ordering: columns compared from left to right, ascending, nulls first.
        protected: columns that follow this order, without the ordering ones.
    """

    ordering: tuple[str, ...]
    protected: tuple[str, ...]

    def without(self, names: Collection[str]) -> "SequenceGroup":
        """The group with fewer protected columns."""
        left = tuple(name for name in self.protected if name not in names)
        return dataclasses.replace(self, protected=left)

    def ranks(self, batch: pa.RecordBatch) -> np.ndarray:
        """The order of rows in the group: int64 per row, 0 where all ordering columns are null.

        Args:
            batch: rows with the ordering columns, at least one.
        """
        columns = [batch.column(name) for name in self.ordering]
        ordered = np.logical_or.reduce([valid_mask(column) for column in columns])
        ranks = dense_ranks(columns) + 1
        return ranks if ordered.all() else np.where(ordered, ranks, 0)


def accepted(ranks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which rows are not below what their group has seen of their key: bool per row.

    Args:
        ranks: of `SequenceGroup.ranks`, in arrival order; a row of rank 0 is not accepted.
        starts: positions at which keys begin, ascending from 0.
    """
    shifted = segment_ids(starts, len(ranks)) * (int(ranks.max()) + 1) + ranks
    found: np.ndarray = (ranks > 0) & (shifted == np.maximum.accumulate(shifted))
    return found


def sequence_groups(options: TableOptions, schema: TableSchema) -> tuple[SequenceGroup, ...]:
    """The sequence groups of a table, in the order of its options.

    Raises:
        InvalidOptionError: a column is unknown, a key, in two groups, or without an order.
    """
    found: list[SequenceGroup] = []
    taken: set[str] = set()
    for key, protected in options.merge_columns.items():
        if not (key.startswith(_PREFIX) and key.endswith(_SUFFIX)):
            continue
        named = key[len(_PREFIX) : -len(_SUFFIX)].split(",")
        ordering = tuple(name.strip() for name in named)
        for name in (*ordering, *(protected or ("",))):
            _check_column(name, key, schema)
        for position, name in enumerate(protected):
            if name in taken or name in protected[:position]:
                raise InvalidOptionError(
                    f"Field {name} is defined repeatedly by multiple groups: {key}",
                    hint="name each column in one sequence group only",
                    option=key,
                )
        taken.update(protected, ordering)
        for name in ordering:
            _check_ordered(name, key, schema)
        found.append(
            SequenceGroup(ordering, tuple(name for name in protected if name not in ordering))
        )
    return tuple(found)


def _check_column(name: str, key: str, schema: TableSchema) -> None:
    if name not in schema.field_names:
        raise InvalidOptionError(
            f"Field {name} can not be found in table schema",
            hint=f"the table has {', '.join(schema.field_names)}",
            option=key,
        )
    if name in schema.primary_keys:
        raise InvalidOptionError(
            f"The sequence-group '{key}' contains primary key field '{name}', which is not "
            "allowed. Primary key columns cannot be put in sequence-group",
            hint="leave the column out of the group",
            option=key,
        )


def _check_ordered(name: str, key: str, schema: TableSchema) -> None:
    type_ = schema.field(name).type
    if not isinstance(type_, AtomicType) or type_.root not in _ORDERED:
        raise InvalidOptionError(
            f"Field '{name}' cannot be used as a sequence-group ordering field",
            hint="order by a column with a number, a date or a time",
            option=key,
        )
