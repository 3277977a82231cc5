# SPDX-License-Identifier: Apache-2.0
"""`rbm32`, `rbm64`, `hll_sketch`, `theta_sketch`: unions of serialized sets.

Source: SEMANTICS.md §B.3, detail 9. A single value passes as it is. Only segments of more than
one value are opened, one after the other: each is worth a set, not a number.
"""

import dataclasses
import struct
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union

from storage.errors import CorruptDataError
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import require_no_retractions, wrong_type
from storage.lsm.merge_functions.aggregators.ignore_retract import spread
from storage.lsm.merge_functions.aggregators.roaring_sets import union_32, union_64
from storage.lsm.merge_functions.segments import Segments, subset, valid_mask

__all__ = ["SetUnion"]

_SMALLEST_HLL_UNION = 7
_PREAMBLE_LONGS = 0x3F
_WHOLE = struct.pack("<f", 1.0)
_THETA_UNION = 12
"""log2 of the nominal entries of a union, as Java's builder sets it when nothing is said."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetUnion:
    """The union of the sets that are not null.

    Attributes:
        field: the column, VARBINARY.
        name: of the function; says what the bytes are.
    """

    field: DataField
    name: str
    retractable: bool = False

    @staticmethod
    def of(field: DataField, name: str) -> "SetUnion":
        """The function for a column.

        Raises:
            InvalidOptionError: the column is no VARBINARY.
        """
        if not (isinstance(field.type, AtomicType) and field.type.root is TypeRoot.VARBINARY):
            raise wrong_type(name.replace("_", " "), "'VarBinaryType'", field)
        return SetUnion(field, name)

    def reduce(self, values: pa.Array, segments: Segments) -> pa.Array:
        """See `Aggregator`."""
        require_no_retractions(self.name, self.field, segments)
        groups, left = subset(valid_mask(values), segments)
        whole = values.drop_null()
        if len(left.starts) < left.rows:
            whole = self._unions(whole, left)
        return spread(whole, groups, len(segments.starts))

    def _unions(self, values: pa.Array, segments: Segments) -> pa.Array:
        lasts = segments.lasts
        several = np.flatnonzero(lasts > segments.starts)
        offsets = np.frombuffer(values.buffers()[1], dtype=np.int32)[values.offset :].tolist()
        content = values.buffers()[2]
        data = memoryview(b"" if content is None else content)
        made: list[bytes] = []
        for first, last in zip(
            segments.starts[several].tolist(), lasts[several].tolist(), strict=True
        ):
            sets = [bytes(data[offsets[row] : offsets[row + 1]]) for row in range(first, last + 1)]
            made.append(self._union(sets))
        # the others as they are, with the unions behind them
        source = pa.concat_arrays([values, pa.array(made, values.type)])
        positions = segments.starts.copy()
        positions[several] = segments.rows + np.arange(len(several))
        return source.take(pa.array(positions))

    def _union(self, sets: Sequence[bytes]) -> bytes:
        try:
            return _UNIONS[self.name](sets)
        except (ValueError, RuntimeError, IndexError) as error:
            raise CorruptDataError(
                f"a value of a column with aggregate function '{self.name}' is no such set",
                detail=str(error),
                field=self.field.name,
                expected=_CONTENT[self.name],
            ) from error


def _hll(sets: Sequence[bytes]) -> bytes:
    result = sets[0]
    for data in sets[1:]:
        added = hll_sketch.deserialize(data)
        union = hll_union(max(added.lg_config_k, _SMALLEST_HLL_UNION))
        union.update(added)
        union.update(hll_sketch.deserialize(result))
        result = union.get_result(tgt_hll_type.HLL_4).serialize_compact()
    return result


def _theta(sets: Sequence[bytes]) -> bytes:
    result = sets[0]
    for data in sets[1:]:
        union = theta_union(_THETA_UNION)
        union.update(compact_theta_sketch.deserialize(result))
        union.update(compact_theta_sketch.deserialize(data))
        result = _with_sampling(union.get_result(True).serialize())
    return result


def _with_sampling(data: bytes) -> bytes:
    """The bytes of a theta sketch with the sampling rate 1 where Java notes it, and C++ does not.

    Nobody reads it in a compact sketch; with it the bytes are those of Java.
    """
    if data[0] & _PREAMBLE_LONGS < 2:
        return data
    return data[:12] + _WHOLE + data[16:]


_UNIONS: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "rbm32": union_32,
    "rbm64": union_64,
    "hll_sketch": _hll,
    "theta_sketch": _theta,
}
_CONTENT = {
    "rbm32": "a portable 32-bit roaring bitmap",
    "rbm64": "a 64-bit roaring bitmap, portable or as Java writes it",
    "hll_sketch": "an Apache DataSketches HLL sketch",
    "theta_sketch": "a compact Apache DataSketches Theta sketch",
}
