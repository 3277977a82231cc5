# SPDX-License-Identifier: Apache-2.0
"""The least that a Python source of Spark can do: read a Parquet file, hand the batches over.

What `spark_scan` measures against it is what Lakeward itself costs; what lies between this and
Spark's own reader is the price of the interface (a second process, a socket, rows from columns).
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from changelog.spark_source.source_options import arrow_schema_of

__all__ = ["BareSource"]

_BATCH_ROWS = 131_072


class BareSource(DataSource):
    """Options: `files` (one a line) and `ddl`, the columns wanted."""

    @classmethod
    def name(cls) -> str:
        """`format("bare")`."""
        return "bare"

    def schema(self) -> str:
        """As the options say."""
        return self.options["ddl"]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads all files."""
        return _Reader(self.options["files"].splitlines(), arrow_schema_of(schema))


class _Reader(DataSourceReader):
    def __init__(self, files: list[str], schema: pa.Schema) -> None:
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(partition.value) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=self._schema.names):
                columns = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, self._schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
