# SPDX-License-Identifier: Apache-2.0
"""The partial-update merge engine: later values that are not null replace earlier ones.

With sequence groups, each group accepts a row unless an earlier row of its key has a higher order.
A retraction in the first row of a key sets all columns to its values; so does a -D that removes it.
Data plane: per column the position of the value that stays, or an aggregate function. Source:
SEMANTICS.md §B.2.
"""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, AtomicType, RowKind
from storage.lsm.merge_functions.aggregators import Aggregator
from storage.lsm.merge_functions.segments import (
    Op,
    Segments,
    SequenceOrder,
    dense_ranks,
    first_where,
    fold_keys,
    last_where,
    naming_key,
    numbers_in,
    retractions,
    segment_ids,
    segment_lasts,
    take_or_null,
    valid_mask,
)
from storage.options.options import TableOptions

_PREFIX, _SUFFIX = "fields.", ".sequence-group"


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
        remaining = tuple(name for name in self.protected if name not in names)
        return dataclasses.replace(self, protected=remaining)

    def ranks(self, batch: pa.RecordBatch) -> np.ndarray:
        """The order of rows in the group: int64 per row, 0 where all ordering columns are null."""
        columns = [batch.column(name) for name in self.ordering]
        ordered = np.logical_or.reduce([valid_mask(column) for column in columns])
        ranks = dense_ranks(columns) + 1
        return ranks if ordered.all() else np.where(ordered, ranks, 0)


def accepted(ranks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which rows are not below an earlier row of their key in the order of the group: bool per row.

    Ranks are of `SequenceGroup.ranks`, in arrival order; a row of rank 0 is not accepted.
    """
    shifted = segment_ids(starts, len(ranks)) * (int(ranks.max()) + 1) + ranks
    mask: np.ndarray = (ranks > 0) & (shifted == np.maximum.accumulate(shifted))
    return mask


def sequence_groups(options: TableOptions, schema: TableSchema) -> tuple[SequenceGroup, ...]:
    """The sequence groups of a table, in the order of its options.

    Raises:
        InvalidOptionError: a column is unknown, a key, in two groups, or without an order.
    """
    groups: list[SequenceGroup] = []
    group_columns: set[str] = set()
    for key, protected in options.merge_columns.items():
        if not (key.startswith(_PREFIX) and key.endswith(_SUFFIX)):
            continue
        parts = key[len(_PREFIX) : -len(_SUFFIX)].split(",")
        ordering = tuple(name.strip() for name in parts)
        for name in (*ordering, *(protected or ("",))):
            _check_column(name, key, schema)
        for position, name in enumerate(protected):
            if name in group_columns or name in protected[:position]:
                raise InvalidOptionError(
                    f"Field {name} is defined repeatedly by multiple groups: {key}",
                    hint="name each column in one sequence group only",
                    option=key,
                )
        group_columns.update(protected, ordering)
        for name in ordering:
            _check_ordered(name, key, schema)
        groups.append(
            SequenceGroup(ordering, tuple(name for name in protected if name not in ordering))
        )
    return tuple(groups)


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
    if not isinstance(schema.field(name).type, AtomicType):
        raise InvalidOptionError(
            f"Field '{name}' cannot be used as a sequence-group ordering field",
            hint="order by a column with a number, a date or a time",
            option=key,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PartialUpdate:
    """See the module.

    Attributes:
        groups: sequence groups; no column is in two of them.
        functions: aggregate functions of protected columns by name.
        remove_on: ordering columns whose groups remove the row when they take a -D.
        ignore_delete: skip -U and -D rows; files of older writers may hold some.
        remove_on_delete: a -D row removes the row; -U rows do nothing.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is reduced like the others.
    """

    key_names: tuple[str, ...]
    groups: tuple[SequenceGroup, ...] = ()
    functions: Mapping[str, Aggregator] = dataclasses.field(default_factory=dict)
    remove_on: tuple[str, ...] = ()
    ignore_delete: bool = False
    remove_on_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others and no option defines
                its effect; a function cannot retract, or its result does not fit.
        """
        if self.groups:
            lone = self._lone(batch) if self.lone_rows else None
            return fold_keys(batch, starts, self.key_names, self._fold, lone=lone)
        if len(starts) == batch.num_rows and not self.lone_rows:
            return batch
        with naming_key(batch, self.key_names, starts):
            columns = self._fold(batch, starts)
        if not self.lone_rows:
            kinds = numbers_in(batch, VALUE_KIND)
            merged = columns[batch.schema.get_field_index(VALUE_KIND)].to_numpy()
            single = starts == segment_lasts(starts, batch.num_rows)
            kinds = np.where(single, kinds[starts], merged)
            columns[batch.schema.get_field_index(VALUE_KIND)] = pa.array(kinds)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _lone(self, batch: pa.RecordBatch) -> np.ndarray:
        if not all(function.keeps_lone for function in self.functions.values()):
            return np.ones(batch.num_rows, dtype=bool)
        lone = retractions(numbers_in(batch, VALUE_KIND))
        for group in self.groups:  # values that a group does not accept stay null
            lone |= ~np.logical_or.reduce([valid_mask(batch.column(n)) for n in group.ordering])
        return lone

    def _fold(self, batch: pa.RecordBatch, starts: np.ndarray) -> list[pa.Array]:
        rows = batch.num_rows
        kinds = numbers_in(batch, VALUE_KIND)
        lasts = segment_lasts(starts, rows)
        merged = np.full(len(starts), RowKind.INSERT, dtype=np.int8)
        stamps = lasts
        roles = None
        everywhere = lasts
        retract = retractions(kinds)
        if retract.any():
            self._require_meaning(retract, starts, lasts)
            removed = self._removals(batch, kinds, starts)
            roles = _Roles.of(starts, retract, removed, ignored=self.ignore_delete)
            everywhere = last_where(roles.adds | roles.base, starts, rows)
            adds = last_where(~retract, starts, rows)
            merged[(adds < 0) | (removed == lasts)] = RowKind.DELETE
            if self.ignore_delete:
                stamps = np.where(adds >= 0, adds, lasts)
        grouped = self._grouped(batch, starts, roles)
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == VALUE_KIND:
                columns.append(pa.array(merged))
            elif name == SEQUENCE_NUMBER:
                columns.append(column.take(pa.array(stamps)))
            elif name in grouped:
                columns.append(grouped[name])
            elif column.null_count and name not in self.key_names:
                valid = valid_mask(column)
                valid = valid if roles is None else valid & (roles.adds | roles.base)
                columns.append(take_or_null(column, last_where(valid, starts, rows)))
            else:
                columns.append(take_or_null(column, everywhere))
        return columns

    def _require_meaning(self, retract: np.ndarray, starts: np.ndarray, lasts: np.ndarray) -> None:
        if self.groups or self.ignore_delete or self.remove_on_delete:
            return
        hits = first_where(retract, starts, len(retract)) >= 0
        if not self.lone_rows:
            hits &= starts < lasts
        if hits.any():
            raise InvalidRequestError(
                "By default, Partial update can not accept delete records",
                hint="set `ignore-delete` to drop them, `partial-update.remove-record-on-delete` "
                "to remove the row, or sequence groups to take columns back",
                segment=int(np.argmax(hits)),
            )

    def _removals(self, batch: pa.RecordBatch, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Position of the last row of each key that removes everything before it, or -1."""
        rows = len(kinds)
        deletes = kinds == RowKind.DELETE
        if self.remove_on_delete:
            return last_where(deletes, starts, rows)
        groups = [group for group in self.groups if set(group.ordering) & set(self.remove_on)]
        removed = np.full(len(starts), -1, dtype=np.int64)
        if not groups or not deletes.any():
            return removed
        ranks = [group.ranks(batch) for group in groups]
        hits = np.logical_or.reduce([accepted(rank, starts) for rank in ranks]) & deletes
        if len(groups) == 1:
            return last_where(hits, starts, rows)
        # a removal resets the highest ranks of the other groups: row by row from there
        removed = first_where(hits, starts, rows)
        ends = segment_lasts(starts, rows) + 1
        repeats = (removed >= 0) & (last_where(deletes, starts, rows) > removed)
        for key in np.flatnonzero(repeats).tolist():
            first = int(removed[key])
            highest = tuple(int(rank[first]) for rank in ranks)
            for row in range(first + 1, int(ends[key])):
                current = tuple(int(rank[row]) for rank in ranks)
                hit = any(0 < rank >= best for rank, best in zip(current, highest, strict=True))
                if deletes[row] and hit:
                    removed[key], highest = row, current
                else:
                    highest = tuple(map(max, current, highest))
        return removed

    def _grouped(
        self, batch: pa.RecordBatch, starts: np.ndarray, roles: "_Roles | None"
    ) -> dict[str, pa.Array]:
        """The columns of the sequence groups by name."""
        columns: dict[str, pa.Array] = {}
        rows = batch.num_rows
        for group in self.groups:
            ranks = group.ranks(batch)
            touches = ranks > 0
            if roles is not None:
                ranks = np.where(roles.adds | roles.base | roles.acts, ranks, 0)
            takes = accepted(ranks, starts)
            ops = np.where(takes, np.int8(Op.ADD), np.int8(Op.LATE))
            ops[~touches] = Op.SKIP
            if roles is not None:
                roles.mark(ops, touches)
                takes |= roles.base
            last = last_where(takes, starts, rows)
            for name in group.ordering:
                columns[name] = take_or_null(batch.column(name), last)
            retracts = (last >= 0) & ((ops[last] == Op.RETRACT) | (ops[last] == Op.BASE_RETRACT))
            last = np.where(retracts, -1, last)
            segments = Segments(starts, rows, ops if ops.any() else None)
            for name in group.protected:
                function = self.functions.get(name)
                column = batch.column(name)
                if function is None:
                    columns[name] = take_or_null(column, last)
                else:
                    columns[name] = function.reduce(column, segments)
        return columns


@dataclasses.dataclass(frozen=True, slots=True)
class _Roles:
    """The effects of rows where some are retractions; bools per row.

    Attributes:
        base: it replaces all columns by its values.
        adds: it adds, and no later row removes its key.
        obsolete: it adds to what is removed later.
        acts: it retracts from sequence groups; a base may, too.
    """

    base: np.ndarray
    adds: np.ndarray
    obsolete: np.ndarray
    acts: np.ndarray

    @staticmethod
    def of(
        starts: np.ndarray, retract: np.ndarray, removed: np.ndarray, *, ignored: bool
    ) -> "_Roles":
        """From the retractions, and the last one of each key that removes the row.

        `removed` is a position per key, or -1; `ignored`: retractions have no effect except as
        the first row of their key.
        """
        rows = len(retract)
        begins = np.where(removed >= 0, removed, starts)
        base = np.zeros(rows, dtype=bool)
        base[begins] = retract[begins]
        live = np.arange(rows) >= np.repeat(begins, segment_lasts(starts, rows) + 1 - starts)
        acts = retract & live & (not ignored)
        acts[removed[removed >= 0]] = False
        return _Roles(base, live & ~retract, ~live & ~retract, acts)

    def mark(self, ops: np.ndarray, touches: np.ndarray) -> None:
        """Set `Op` of the rows for a group.

        `touches`: the order of the row in the group is not null.
        """
        acts = self.acts & touches
        ops[~self.adds] = Op.SKIP
        ops[self.obsolete & touches] = Op.OBSOLETE
        ops[acts] = Op.RETRACT
        ops[self.base] = Op.BASE
        ops[self.base & acts] = Op.BASE_RETRACT


# The aggregation merge engine: each column has a function of its own.
#
# Data plane: one call of a function per column and batch. Source: SEMANTICS.md §B.3.


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregation:
    """See the module.

    Attributes:
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    functions: Mapping[str, Aggregator]
    remove_on_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a function cannot retract, or its result does not fit.
        """
        lone = self._lone(batch) if self.lone_rows else None
        return fold_keys(batch, starts, self.key_names, self._fold, lone=lone)

    def _lone(self, batch: pa.RecordBatch) -> np.ndarray:
        if not all(function.keeps_lone for function in self.functions.values()):
            return np.ones(batch.num_rows, dtype=bool)
        return retractions(numbers_in(batch, VALUE_KIND))

    def _fold(self, batch: pa.RecordBatch, starts: np.ndarray) -> list[pa.Array]:
        kinds = numbers_in(batch, VALUE_KIND)
        lasts = segment_lasts(starts, batch.num_rows)
        merged = np.full(len(starts), RowKind.INSERT, dtype=np.int8)
        if self.remove_on_delete:
            merged[kinds[lasts] == RowKind.DELETE] = RowKind.DELETE
        segments = Segments(starts, batch.num_rows, self._ops(kinds, starts))
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == VALUE_KIND:
                columns.append(pa.array(merged))
            elif name == SEQUENCE_NUMBER:
                columns.append(column.take(pa.array(lasts)))
            else:
                columns.append(self.functions[name].reduce(column, segments))
        return columns

    def _ops(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        rows = len(kinds)
        retract = retractions(kinds)
        if not retract.any():
            return None
        ops = np.where(retract, np.int8(Op.RETRACT), np.int8(Op.ADD))
        deletes = kinds == RowKind.DELETE
        if not (self.remove_on_delete and deletes.any()):
            return ops
        # a retraction that a -D makes obsolete fails all the same where a function has none
        before = Segments(starts, rows, np.where(deletes, np.int8(Op.SKIP), ops))
        for function in self.functions.values():
            function.require_retractable(before)
        deleted = last_where(deletes, starts, rows)
        sizes = segment_lasts(starts, rows) + 1 - starts
        obsolete = np.arange(rows) < np.repeat(deleted, sizes)
        ops[obsolete] = np.where(retract, np.int8(Op.SKIP), np.int8(Op.OBSOLETE))[obsolete]
        ops[deleted[deleted >= 0]] = Op.BASE
        return ops
