# SPDX-License-Identifier: Apache-2.0
"""Cache of the tables and schemas that a worker process has opened, across tasks and batches.

Everything here can be rebuilt from the warehouse: idle Python workers vanish (SPARK.md §6).
Schema versions never change once written, so a cached one is always right.
"""

import dataclasses
import functools

from ingest.config.setting_values import SinkSettings
from storage.catalog.catalog import Catalog
from storage.format.metadata.schema import TableSchema
from storage.io.counting import CountingFileIO
from storage.table.table import FileStoreTable


@dataclasses.dataclass(frozen=True, slots=True)
class Warehouse:
    """What a process needs to open a warehouse; sent to the executors with every stage.

    Attributes:
        location: absolute path or URL.
        options: of its object store and its catalog, credentials included; not part of the text
            form.
    """

    location: str
    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    @staticmethod
    def of(sink: SinkSettings) -> "Warehouse":
        """The warehouse that the settings name."""
        options = {**sink.options, **sink.catalog}
        return Warehouse(sink.warehouse, tuple(sorted(options.items())))


@functools.lru_cache(maxsize=4)
def catalog_of(warehouse: Warehouse) -> Catalog:
    """The catalog of a warehouse, one per process; calls of its store are counted."""
    return Catalog.open(warehouse.location, dict(warehouse.options)).through(CountingFileIO)


@functools.lru_cache(maxsize=4096)
def schema_of(warehouse: Warehouse, table: str, schema_id: int) -> TableSchema:
    """One version of a table's schema."""
    return table_of(warehouse, table, schema_id).schema


@functools.lru_cache(maxsize=4096)
def table_of(warehouse: Warehouse, table: str, schema_id: int) -> FileStoreTable:
    """A table opened at one version of its schema."""
    return catalog_of(warehouse).table(table).with_schema(schema_id)
