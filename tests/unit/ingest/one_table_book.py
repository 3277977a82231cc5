# SPDX-License-Identifier: Apache-2.0
"""The driver's book with one table in it, for what works beside the stream."""

import pathlib
import types

from ingest.config.settings import MaintenanceSettings
from storage.catalog.catalog import FileSystemCatalog
from storage.table.table import FileStoreTable
from tests.table_kit import NAME


class OneTableBook:
    """In place of a `TableRegistry`; the stream has written the table, as far as it knows.

    Attributes:
        opened: the table, as it is handed out.
        catalog: of its warehouse.
        settings: of maintenance.
    """

    def __init__(self, table: FileStoreTable, **settings: object) -> None:
        self.opened = table
        warehouse = str(pathlib.Path(table.layout.root).parent.parent)
        self.catalog = FileSystemCatalog(warehouse, table.file_io, clock=table.clock)
        found = MaintenanceSettings(**{"snapshot_retain_s": None, **settings})
        self.settings = types.SimpleNamespace(maintenance=found)

    def table(self, name: str) -> FileStoreTable:
        assert name == NAME
        return self.opened

    def progresses(self) -> dict[str, None]:
        return {NAME: None}

    def snapshot_id(self, name: str) -> int:
        return self.table(name).snapshots.latest_id() or 0
