# SPDX-License-Identifier: Apache-2.0
"""What the catalog of a table takes part in when the table itself is changed.

Source: Paimon's `CatalogEnvironment`. A catalog that keeps more than names (columns of a Hive
table, properties of a JDBC table, the schema itself in a REST catalog) gives its tables one, so
that `table.alter` and a commit keep it true, whoever makes them.
"""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.format.metadata.schema_changes import SchemaChange
from storage.format.metadata.snapshot import Snapshot

if TYPE_CHECKING:
    from storage.table.core import TableCore
    from storage.table.table import FileStoreTable

__all__ = ["CatalogEnvironment"]


class CatalogEnvironment(abc.ABC):
    """See the module. Picklable: tables travel to other processes with it.

    Attributes:
        owns_snapshots: whether the catalog alone may add and remove snapshots and branches.
    """

    owns_snapshots: bool = False

    @abc.abstractmethod
    def alter(self, table: "FileStoreTable", changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """Change the schema. Returns and raises as `FileStoreTable.alter`."""

    @abc.abstractmethod
    def published(self, table: "TableCore", snapshot: Snapshot) -> None:
        """Called after a snapshot has become visible; must not raise."""
