# SPDX-License-Identifier: Apache-2.0
"""The Apache Paimon table format and its LSM engine. Knows nothing of Spark, Kafka, Prometheus.

A table is opened through a catalog or by its path:

    catalog = Catalog.open("/data/warehouse")
    table = catalog.table("shop.orders")
    rows = table.to_arrow("id > 5")

The names below are public; modules of `storage` use each other directly. A name's module is
imported when the name is first asked for: whoever needs one module does not pay for all.
"""

from typing import TYPE_CHECKING

from storage.lazy_names import lazy_names

if TYPE_CHECKING:
    from storage.errors import LakewardError
    from storage.format.schema import TableSchema, new_schema
    from storage.format.schema_changes import (
        AddColumn,
        DropColumn,
        DropPrimaryKey,
        RemoveOption,
        RenameColumn,
        SchemaChange,
        SetOption,
        UpdateType,
    )
    from storage.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
    from storage.format.type_text import parse_type
    from storage.format.types import VALUE_KIND, RowKind
    from storage.table.analyze import analyze
    from storage.table.branches import create_branch, drop_branch, fast_forward
    from storage.table.catalog import Catalog, FileSystemCatalog
    from storage.table.commit import CommitResult, FileStoreCommit
    from storage.table.drop_partitions import drop_partitions, truncate
    from storage.table.expire import expire_snapshots
    from storage.table.expire_changelogs import expire_changelogs
    from storage.table.expire_partitions import expire_partitions
    from storage.table.invariants import check_table
    from storage.table.orphans import remove_orphan_files
    from storage.table.overwrite_rows import overwrite_rows
    from storage.table.predicate_text import parse_predicate
    from storage.table.repair import repair_hints
    from storage.table.rescale import rescale
    from storage.table.rewrite_index import rewrite_file_index
    from storage.table.rollback import rollback_to
    from storage.table.scan import Plan, Split
    from storage.table.sort_codes import SortOrder
    from storage.table.sort_table import sort_table
    from storage.table.system.catalog_tables import catalog_system_table
    from storage.table.system.registry import system_table
    from storage.table.table import FileStoreTable
    from storage.table.tags import create_tag, delete_tag
    from storage.table.upkeep import TableUpkeep

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
    "create_branch",
    "create_tag",
    "delete_tag",
    "drop_branch",
    "drop_partitions",
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "fast_forward",
    "new_schema",
    "overwrite_rows",
    "parse_predicate",
    "parse_type",
    "remove_orphan_files",
    "repair_hints",
    "rescale",
    "rewrite_file_index",
    "rollback_to",
    "sort_table",
    "system_table",
    "truncate",
]

_MODULES = {
    "BATCH_COMMIT_IDENTIFIER": "storage.format.snapshot",
    "VALUE_KIND": "storage.format.types",
    "AddColumn": "storage.format.schema_changes",
    "Catalog": "storage.table.catalog",
    "CommitKind": "storage.format.snapshot",
    "CommitResult": "storage.table.commit",
    "DropColumn": "storage.format.schema_changes",
    "DropPrimaryKey": "storage.format.schema_changes",
    "FileStoreCommit": "storage.table.commit",
    "FileStoreTable": "storage.table.table",
    "FileSystemCatalog": "storage.table.catalog",
    "LakewardError": "storage.errors",
    "Plan": "storage.table.scan",
    "RemoveOption": "storage.format.schema_changes",
    "RenameColumn": "storage.format.schema_changes",
    "RowKind": "storage.format.types",
    "SchemaChange": "storage.format.schema_changes",
    "SetOption": "storage.format.schema_changes",
    "Snapshot": "storage.format.snapshot",
    "SortOrder": "storage.table.sort_codes",
    "Split": "storage.table.scan",
    "TableSchema": "storage.format.schema",
    "TableUpkeep": "storage.table.upkeep",
    "UpdateType": "storage.format.schema_changes",
    "analyze": "storage.table.analyze",
    "catalog_system_table": "storage.table.system.catalog_tables",
    "check_table": "storage.table.invariants",
    "create_branch": "storage.table.branches",
    "create_tag": "storage.table.tags",
    "delete_tag": "storage.table.tags",
    "drop_branch": "storage.table.branches",
    "drop_partitions": "storage.table.drop_partitions",
    "expire_changelogs": "storage.table.expire_changelogs",
    "expire_partitions": "storage.table.expire_partitions",
    "expire_snapshots": "storage.table.expire",
    "fast_forward": "storage.table.branches",
    "new_schema": "storage.format.schema",
    "overwrite_rows": "storage.table.overwrite_rows",
    "parse_predicate": "storage.table.predicate_text",
    "parse_type": "storage.format.type_text",
    "remove_orphan_files": "storage.table.orphans",
    "repair_hints": "storage.table.repair",
    "rescale": "storage.table.rescale",
    "rewrite_file_index": "storage.table.rewrite_index",
    "rollback_to": "storage.table.rollback",
    "sort_table": "storage.table.sort_table",
    "system_table": "storage.table.system.registry",
    "truncate": "storage.table.drop_partitions",
}
"""Where each public name comes from."""

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
