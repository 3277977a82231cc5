# SPDX-License-Identifier: Apache-2.0
"""Lets Spark find `format("lakeward")` by itself: it looks for packages named `pyspark_…`.

Spark imports all of them for any Python source, also for those of others. So this one imports
nothing of ours before it is used: it costs other queries nothing and cannot break them.
"""

import importlib
from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

_MODULE = "changelog.spark_source.data_source"


class DefaultSource(DataSource):
    """Stands for `LakewardDataSource`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._source: Any = importlib.import_module(_MODULE).LakewardDataSource(options)

    @classmethod
    def name(cls) -> str:
        """The word of `format(…)`."""
        return "lakeward"

    def schema(self) -> StructType:
        """See `LakewardDataSource`."""
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `LakewardDataSource`."""
        return self._source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See `LakewardDataSource`."""
        return self._source.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `LakewardDataSource`."""
        return self._source.writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `LakewardDataSource`."""
        return self._source.streamWriter(schema, overwrite)
