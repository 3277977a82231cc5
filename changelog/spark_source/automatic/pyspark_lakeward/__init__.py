# SPDX-License-Identifier: Apache-2.0
"""Lets Spark find `format("lakeward")` by itself: it looks for packages named `pyspark_…`.

Spark imports all of them for any Python source, so this one imports nothing else of its own and
never fails a query that does not ask for it.
"""

from changelog.spark_source.data_source import LakewardDataSource as DefaultSource

__all__ = ["DefaultSource"]
