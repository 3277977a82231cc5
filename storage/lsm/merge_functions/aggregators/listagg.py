# SPDX-License-Identifier: Apache-2.0
"""`listagg`: texts joined with a delimiter.

Source: SEMANTICS.md §B.3, detail 4. Null and blank texts are passed over. With `distinct` the
first text stays as it is; of the others only the parts join that are new and not blank.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.types.types import MAX_LENGTH, AtomicType, DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import require_no_retractions, wrong_type
from storage.lsm.merge_functions.aggregators.ignore_retract import spread
from storage.lsm.merge_functions.segments import Segments, subset
from storage.options.options import option_value

__all__ = ["ListAgg"]

_NOT_BLANK = (
    r"[^\t-\r\x{1c}-\x{20}\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}"
    r"\x{3000}]"
)
"""A character that Java does not hold for white space; no-break spaces are such."""


@dataclasses.dataclass(frozen=True, slots=True)
class ListAgg:
    """The texts of a segment as one.

    Attributes:
        field: the column.
        delimiter: between the texts.
        distinct: whether texts are cut into parts at the delimiter, and no part joins twice.
    """

    field: DataField
    delimiter: str
    distinct: bool
    name: str = "listagg"
    retractable: bool = False

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
            option_value(options, f"fields.{field.name}.list-agg-delimiter"),
            option_value(options, f"fields.{field.name}.distinct"),
            name,
        )

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        keep = _filled(values)
        groups, left = subset(keep, segments)
        texts = values.filter(pa.array(keep))
        if len(left.starts) < left.rows:
            texts = (
                self._parts(texts, left) if self.distinct else _joined(texts, left, self.delimiter)
            )
        return spread(texts, groups, len(segments.starts))

    def _parts(self, texts: pa.Array, segments: Segments) -> pa.Array:
        separator = self.delimiter or " "
        lists = pc.split_pattern(texts, separator)
        parts = lists.flatten()
        counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(segments.rows, dtype=np.int64), counts)
        group = segments.ids[row]
        codes = parts.dictionary_encode()
        code = codes.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        blank = ~_filled(codes.dictionary)
        _, first = np.unique(group * np.int64(len(blank) + 1) + code, return_index=True)
        joins = np.zeros(len(parts), dtype=bool)
        joins[first] = True
        joins &= ~blank[code] & (row != segments.starts[group])
        # the first text of each segment whole, then the parts that join
        pieces = pa.concat_arrays(
            [texts.take(pa.array(segments.starts)), parts.filter(pa.array(joins))]
        )
        owner = np.concatenate([np.arange(len(segments.starts), dtype=np.int64), group[joins]])
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(segments.starts), dtype=np.int64))
        return _joined(
            pieces.take(pa.array(order)), Segments(starts, len(order), None), self.delimiter
        )


def _joined(texts: pa.Array, segments: Segments, delimiter: str) -> pa.Array:
    offsets = np.append(segments.starts, segments.rows).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), delimiter)


def _filled(texts: pa.Array) -> np.ndarray:
    """Which texts are neither null nor blank."""
    found = pc.match_substring_regex(texts, pattern=_NOT_BLANK)
    mask: np.ndarray = found.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
