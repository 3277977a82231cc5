# SPDX-License-Identifier: Apache-2.0
"""Expressions evaluated over one batch."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.transform.functions.arithmetic import Frame, Planned, as_array, combined, zone_named
from ingest.transform.rules import plan_expression
from storage.format.types.types import DataType

__all__ = ["Evaluated", "Expression", "result_type"]


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluated:
    """Values, null where they failed; the rows that failed, ascending, and a reason for each."""

    values: pa.Array
    failed: npt.NDArray[np.int64]
    reasons: list[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Expression:
    """A planned expression."""

    planned: Planned

    @property
    def type(self) -> DataType:
        """Of the result, nullable."""
        assert self.planned.type is not None
        return self.planned.type

    @classmethod
    def plan(cls, text: str, columns: Mapping[str, DataType], zone: str = "UTC") -> "Expression":
        """As `plan_expression`."""
        return cls(plan_expression(text, columns, zone_named(zone)))

    def evaluate(self, batch: pa.RecordBatch, now_ms: int = 0) -> Evaluated:
        """The values for the rows of a batch; never raises for what is in them."""
        columns = {name: batch.column(name) for name in self.planned.columns}
        cells = self.planned.run(Frame(columns, batch.num_rows, now_ms))
        values = as_array(cells.values, batch.num_rows)
        return Evaluated(values, *combined(cells.failures, batch.num_rows))


def result_type(text: str, columns: Mapping[str, DataType]) -> DataType:
    """The type that an expression gives."""
    return Expression.plan(text, columns).type
