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

__all__ = ["SequenceGroup", "Verdict", "sequence_groups"]

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
class Verdict:
    """What a group does with rows.

    Attributes:
        counts: bool per row: not all ordering fields are null, so the row touches the group.
        accepted: bool per row: it counts and is not below what the group has seen of its key.
    """

    counts: np.ndarray
    accepted: np.ndarray


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

    def verdict(self, batch: pa.RecordBatch, starts: np.ndarray, base: np.ndarray) -> Verdict:
        """Decide for each row in arrival order.

        Args:
            batch: rows with the ordering columns, at least one.
            starts: positions at which keys begin, ascending from 0.
            base: bool per row: whatever its values, it starts its key anew; first rows only.
        """
        columns = [batch.column(name) for name in self.ordering]
        counts = valid_mask(columns[0])
        for column in columns[1:]:
            counts = counts | valid_mask(column)
        ranks = dense_ranks(columns)
        if not counts.all():
            ranks = np.where(counts, ranks + 1, 0)
        rows = len(ranks)
        spread = int(ranks.max()) + 1
        shifted = segment_ids(starts, rows) * spread + ranks
        best = np.maximum.accumulate(shifted)
        return Verdict(counts | base, (counts & (shifted == best)) | base)


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
