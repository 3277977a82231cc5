# SPDX-License-Identifier: Apache-2.0
"""Rows of either side in one form, what they are compared by, and the two sides as a protocol."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.tools.verify.forms import Form
from ingest.tools.verify.hashes import Hashes, column_hashes, combined_hashes, text_hash
from ingest.tools.verify.ranges import Part
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import DataType

__all__ = [
    "ANY_NUMBER",
    "Columns",
    "Compared",
    "HashedRows",
    "Odd",
    "Rows",
    "Side",
    "hashed",
    "per_column",
]

ANY_NUMBER = 1 << 31
"""`keys_at_once` of a side that reads everything whatever the keys are."""


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A column that is compared.

    Attributes:
        name: in the lake table.
        type: of the lake table.
        source: its name on the other side.
        form: how texts are compared.
    """

    name: str
    type: DataType
    source: str
    form: Form = Form.PLAIN


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """What a comparison looks at.

    Attributes:
        keys: columns that identify a row; all of them when the table has no key.
        others: the rest.
        keyed: whether no two rows have equal keys.
    """

    keys: tuple[Compared, ...]
    others: tuple[Compared, ...]
    keyed: bool = True

    @property
    def all(self) -> tuple[Compared, ...]:
        """Keys, then the rest: the columns of every batch."""
        return (*self.keys, *self.others)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of every batch."""
        return pa.schema([pa.field(each.name, arrow_type(each.type)) for each in self.all])


@dataclasses.dataclass(frozen=True, slots=True)
class Odd:
    """A value that the lake's type cannot hold; in its batch it is null."""

    row: int
    column: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows.

    Attributes:
        batch: of `Columns.schema`.
        odd: values that are not in the batch.
    """

    batch: pa.RecordBatch
    odd: tuple[Odd, ...] = ()

    def taken(self, indices: npt.NDArray[np.int64]) -> "Rows":
        """These rows, in this order."""
        odd: tuple[Odd, ...] = ()
        if self.odd:
            places = {int(row): place for place, row in enumerate(indices)}
            odd = tuple(
                dataclasses.replace(each, row=places[each.row])
                for each in self.odd
                if each.row in places
            )
        return Rows(self.batch.take(pa.array(indices)), odd)

    @staticmethod
    def joined(parts: Sequence["Rows"], schema: pa.Schema) -> "Rows":
        """All rows of several batches."""
        odd: list[Odd] = []
        base = 0
        for part in parts:
            odd += [dataclasses.replace(each, row=each.row + base) for each in part.odd]
            base += part.batch.num_rows
        if not parts:
            return Rows(pa.RecordBatch.from_pylist([], schema))
        return Rows(pa.concat_batches([part.batch for part in parts]), tuple(odd))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HashedRows:
    """Rows with their hashes.

    Attributes:
        rows: the rows.
        keys: hash of the key of each.
        values: hash of the whole of each.
    """

    rows: Rows
    keys: Hashes
    values: Hashes

    def taken(self, indices: npt.NDArray[np.int64]) -> "HashedRows":
        """These rows, in this order."""
        return HashedRows(self.rows.taken(indices), self.keys[indices], self.values[indices])

    @staticmethod
    def joined(parts: Sequence["HashedRows"], schema: pa.Schema) -> "HashedRows":
        """All rows of several batches."""
        nothing = np.empty(0, np.uint64)
        return HashedRows(
            Rows.joined([part.rows for part in parts], schema),
            np.concatenate([nothing, *(part.keys for part in parts)]),
            np.concatenate([nothing, *(part.values for part in parts)]),
        )


def hashed(rows: Rows, columns: Columns) -> HashedRows:
    """Hash rows; odd values count with their text."""
    each = per_column(rows, columns)
    count = rows.batch.num_rows
    keys = combined_hashes(each[: len(columns.keys)], count)
    return HashedRows(rows, keys, combined_hashes([keys, *each[len(columns.keys) :]], count))


def per_column(rows: Rows, columns: Columns) -> list[Hashes]:
    """Hashes of the values of every column."""
    found = [column_hashes(column) for column in rows.batch.columns]
    if rows.odd:
        places = {column.name: place for place, column in enumerate(columns.all)}
        for odd in rows.odd:
            found[places[odd.column]][odd.row] = ~text_hash(odd.text)
    return found


class Side(Protocol):
    """One of the two tables that are compared."""

    @property
    def label(self) -> str:
        """What it is called in reports; holds no secret."""

    def keys_at_once(self, total: int) -> int:
        """How many keys `of_keys` takes, where there are `total` of them to look up."""

    def batches(self, part: Part | None = None) -> Iterator[Rows]:
        """Its rows, in any order.

        Args:
            part: what is wanted; a side may give more than that. None = everything.
        """

    def of_keys(self, keys: pa.RecordBatch) -> Iterator[Rows]:
        """At least the rows that have one of these keys, each once.

        Args:
            keys: the key columns, in the lake's types; at most as many as `keys_at_once` says.
        """
