# SPDX-License-Identifier: Apache-2.0
"""The Apache Paimon table format and its LSM engine. Knows nothing of Spark, Kafka, Prometheus.

A table is opened through a catalog or by its path:

    catalog = Catalog.open("/data/warehouse")
    table = catalog.table("shop.orders")
    rows = table.to_arrow("id > 5")

The names below are public; modules of `storage` use each other directly. A name's module is
imported when the name is first used, so that one module does not import all.
"""

from typing import TYPE_CHECKING

from storage.lazy_names import lazy_names

if TYPE_CHECKING:
    from storage.catalog.catalog import Catalog, FileSystemCatalog
    from storage.catalog.system_tables import catalog_system_table
    from storage.errors import LakewardError
    from storage.format.metadata.schema import TableSchema, new_schema
    from storage.format.metadata.schema_changes import (
        AddColumn,
        DropColumn,
        DropPrimaryKey,
        RemoveOption,
        RenameColumn,
        SchemaChange,
        SetOption,
        UpdateType,
    )
    from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
    from storage.format.types.types import VALUE_KIND, RowKind, parse_type
    from storage.table.commit.commit import CommitResult, FileStoreCommit
    from storage.table.compaction.rescale import rescale, rewrite_file_index
    from storage.table.compaction.sort_table import SortOrder, sort_table
    from storage.table.inspect.analyze import analyze
    from storage.table.inspect.system.registry import system_table
    from storage.table.scan.predicate import parse_predicate
    from storage.table.scan.scan import Plan, Split
    from storage.table.table import FileStoreTable
    from storage.table.upkeep import TableUpkeep
    from storage.testing.invariants import check_table

__all__ = [
    "BATCH_COMMIT_IDENTIFIER",
    "VALUE_KIND",
    "AddColumn",
    "Catalog",
    "CommitKind",
    "CommitResult",
    "DropColumn",
    "DropPrimaryKey",
    "FileStoreCommit",
    "FileStoreTable",
    "FileSystemCatalog",
    "LakewardError",
    "Plan",
    "RemoveOption",
    "RenameColumn",
    "RowKind",
    "SchemaChange",
    "SetOption",
    "Snapshot",
    "SortOrder",
    "Split",
    "TableSchema",
    "TableUpkeep",
    "UpdateType",
    "analyze",
    "catalog_system_table",
    "check_table",
    "new_schema",
    "parse_predicate",
    "parse_type",
    "rescale",
    "rewrite_file_index",
    "sort_table",
    "system_table",
]

_MODULES = {
    "BATCH_COMMIT_IDENTIFIER": "storage.format.metadata.snapshot",
    "VALUE_KIND": "storage.format.types.types",
    "AddColumn": "storage.format.metadata.schema_changes",
    "Catalog": "storage.catalog.catalog",
    "CommitKind": "storage.format.metadata.snapshot",
    "CommitResult": "storage.table.commit.commit",
    "DropColumn": "storage.format.metadata.schema_changes",
    "DropPrimaryKey": "storage.format.metadata.schema_changes",
    "FileStoreCommit": "storage.table.commit.commit",
    "FileStoreTable": "storage.table.table",
    "FileSystemCatalog": "storage.catalog.catalog",
    "LakewardError": "storage.errors",
    "Plan": "storage.table.scan.scan",
    "RemoveOption": "storage.format.metadata.schema_changes",
    "RenameColumn": "storage.format.metadata.schema_changes",
    "RowKind": "storage.format.types.types",
    "SchemaChange": "storage.format.metadata.schema_changes",
    "SetOption": "storage.format.metadata.schema_changes",
    "Snapshot": "storage.format.metadata.snapshot",
    "SortOrder": "storage.table.compaction.sort_table",
    "Split": "storage.table.scan.scan",
    "TableSchema": "storage.format.metadata.schema",
    "TableUpkeep": "storage.table.upkeep",
    "UpdateType": "storage.format.metadata.schema_changes",
    "analyze": "storage.table.inspect.analyze",
    "catalog_system_table": "storage.catalog.system_tables",
    "check_table": "storage.testing.invariants",
    "new_schema": "storage.format.metadata.schema",
    "parse_predicate": "storage.table.scan.predicate",
    "parse_type": "storage.format.types.types",
    "rescale": "storage.table.compaction.rescale",
    "rewrite_file_index": "storage.table.compaction.rescale",
    "sort_table": "storage.table.compaction.sort_table",
    "system_table": "storage.table.inspect.system.registry",
}
"""Where each public name comes from."""

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
