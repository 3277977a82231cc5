# SPDX-License-Identifier: Apache-2.0
"""The Spark data source `format("lakeward")`: batch and streaming reads and writes of tables.

The one room below `ingest` whose modules may import pyspark (adr/0002); `data_source` is the class
that Spark knows. What needs no Spark is in `source_options`, `batch_scan` and
`changelog.follow`.
"""
