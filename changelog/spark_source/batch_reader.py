# SPDX-License-Identifier: Apache-2.0
"""Spark's batch reader over a `BatchScan`: one task per split, record batches out."""

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from changelog.spark_source.push_down import pushed_predicate
from changelog.spark_source.scans import BatchScan, ScanSplit, counts_of
from changelog.spark_source.spark_types import arrow_schema_of, spark_batches
from storage.table.scan.predicate import And, Predicate

__all__ = ["ScanReader"]

_LOG = logging.getLogger(__name__)


class ScanReader(DataSourceReader):
    """Reads what a scan describes; takes Spark's filters where Spark hands them over.

    Args:
        scan: whose columns are those of the schema, in the same order.
        schema: Spark's.
    """

    def __init__(self, scan: BatchScan, schema: StructType) -> None:
        self._scan = scan
        self._arrow = arrow_schema_of(schema)
        self._pushed: Predicate | None = None
        self.__dict__["pushFilters"] = _FilterTaker(self)

    def take_filters(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters whose meaning is kept, give back the others."""
        taken: list[Predicate] = []
        for found in filters:
            predicate = pushed_predicate(found, self._scan.schema)
            if predicate is None:
                yield found
            else:
                taken.append(predicate)
        self._pushed = And(tuple(taken)) if taken else None

    def partitions(self) -> Sequence[InputPartition]:
        """One task per split. Spark makes one task of none; it reads nothing."""
        splits = self._scan.plan(self._pushed)
        _LOG.info("scan planned", extra=dataclasses.asdict(counts_of(splits)))
        return [InputPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        split: ScanSplit | None = partition.value
        if split is not None:
            for batch in self._scan.read(split, self._pushed):
                yield from spark_batches(batch, self._arrow)


class _FilterTaker:
    """What Spark finds as `pushFilters` of a reader: the method that it gave, which can do more.

    While `spark.sql.python.filterPushdown.enabled` is off, which it is unless set, Spark refuses
    every read by a reader whose method `pushFilters` is not Spark's own. While it is on, Spark
    calls it. A reader is not told which; this is right for both, in every process.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: ScanReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take_filters(filters)
