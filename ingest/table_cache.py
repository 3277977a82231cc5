# SPDX-License-Identifier: Apache-2.0
"""Tables and schemas that a worker process has opened, kept across tasks and batches.

Everything here can be rebuilt from the warehouse: idle Python workers vanish (SPARK.md §6).
Schema versions never change once written, so a cached one is always right.
"""

import functools

from storage.format.schema import TableSchema
from storage.table.catalog import FileSystemCatalog
from storage.table.table import FileStoreTable

__all__ = ["catalog_of", "schema_of", "table_of"]


@functools.lru_cache(maxsize=4)
def catalog_of(warehouse: str) -> FileSystemCatalog:
    """The catalog of a warehouse, one per process."""
    return FileSystemCatalog(warehouse)


@functools.lru_cache(maxsize=4096)
def schema_of(warehouse: str, table: str, schema_id: int) -> TableSchema:
    """One version of a table's schema."""
    return table_of(warehouse, table, schema_id).schema


@functools.lru_cache(maxsize=4096)
def table_of(warehouse: str, table: str, schema_id: int) -> FileStoreTable:
    """A table opened at one version of its schema."""
    return catalog_of(warehouse).table(table).with_schema(schema_id)
