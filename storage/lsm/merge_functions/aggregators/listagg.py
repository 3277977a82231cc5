# SPDX-License-Identifier: Apache-2.0
"""`listagg`: texts joined with a delimiter.

Source: SEMANTICS.md §B.3, detail 4. Null and blank texts are passed over. With `distinct` the
first text stays as it is; of the others only the parts join that are new and not blank.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.types import MAX_LENGTH, AtomicType, DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    objects_of,
    wrong_type,
)
from storage.lsm.merge_functions.segments import Op, Segments
from storage.options.options import option_value

_BLANKS = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2008\u2009"
    "\u200a\u2028\u2029\u205f\u3000"
)
"""What Java holds for white space; no-break spaces are none."""
_Total = str | tuple[list[str], set[str]] | None
_NOT_BLANK = "[^" + "".join(f"\\x{{{ord(blank):x}}}" for blank in _BLANKS) + "]"


@dataclasses.dataclass(frozen=True, slots=True)
class ListAgg(AggregateFunction):
    """The texts of a segment as one.

    Attributes:
        distinct: whether texts are cut into parts at the delimiter, and no part joins twice.
    """

    delimiter: str
    distinct: bool

    keeps_lone: ClassVar[bool] = False

    @staticmethod
    def of(field: DataField, name: str, options: Mapping[str, str]) -> "ListAgg":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no STRING.
        """
        type_ = field.type
        if not (isinstance(type_, AtomicType) and type_.root is TypeRoot.VARCHAR):
            raise wrong_type("list agg", "'VarCharType'", field)
        if type_.length != MAX_LENGTH:
            raise wrong_type("list agg", "STRING (unbounded VARCHAR)", field)
        return ListAgg(
            field,
            name,
            option_value(options, f"fields.{field.name}.list-agg-delimiter"),
            option_value(options, f"fields.{field.name}.distinct"),
        )

    def reduce(
        self, values: pa.Array, segments: Segments
    ) -> tuple[pa.Array | None, np.ndarray | None]:
        """See `AggregateFunction`; late texts, and texts that are a base, are left."""
        if self.distinct:
            return None, None
        filled = pc.match_substring_regex(values, pattern=_NOT_BLANK).fill_null(False)
        keep = filled.to_numpy(zero_copy_only=False) & segments.where(Op.ADD)
        before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int32)
        offsets = np.append(before[segments.starts], before[-1])
        mask = pa.array(offsets[1:] == offsets[:-1])
        lists = pa.ListArray.from_arrays(
            pa.array(offsets), values.filter(pa.array(keep)), mask=mask
        )
        return pc.binary_join(lists, self.delimiter), segments.keys_with(Op.LATE, Op.BASE)

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`; a total with `distinct` is its pieces, and all their parts."""
        separator = self.delimiter or " "

        def text(total: _Total) -> str | None:
            return self.delimiter.join(total[0]) if isinstance(total, tuple) else total

        def add(total: _Total, value: _Total) -> _Total:
            added = text(value)
            if added is None or not added.strip(_BLANKS):
                return total
            if total is None or (isinstance(total, str) and not total.strip(_BLANKS)):
                return added
            if not self.distinct:
                return f"{text(total)}{self.delimiter}{added}"
            if isinstance(total, str):
                total = ([total], set(total.split(separator)))
            pieces, parts = total
            for part in added.split(separator):
                if part not in parts and part.strip(_BLANKS):
                    parts.add(part)
                    pieces.append(part)
            return total

        return RowFold(
            objects_of(values),
            add,
            lambda totals: pa.array([text(total) for total in totals], values.type),
        )
