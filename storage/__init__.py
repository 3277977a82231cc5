# SPDX-License-Identifier: Apache-2.0
"""The Apache Paimon table format and its LSM engine. Knows nothing of Spark, Kafka, Prometheus.

A table is opened through a catalog or by its path:

    catalog = FileSystemCatalog("/data/warehouse")
    table = catalog.table("shop.orders")
    rows = table.to_arrow(predicate=parse_predicate("id > 5"))

The names below are public; modules of `storage` use each other directly. A name's module is
imported when the name is first asked for: whoever needs one module does not pay for all.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
    from storage.table.catalog import FileSystemCatalog
    from storage.table.commit import CommitResult, FileStoreCommit
    from storage.table.expire import expire_snapshots
    from storage.table.expire_changelogs import expire_changelogs
    from storage.table.invariants import check_table
    from storage.table.orphans import remove_orphan_files
    from storage.table.predicate_text import parse_predicate
    from storage.table.scan import Plan, Split
    from storage.table.system.registry import system_table
    from storage.table.table import FileStoreTable
    from storage.table.upkeep import TableUpkeep

__all__ = [
    "BATCH_COMMIT_IDENTIFIER",
    "VALUE_KIND",
    "AddColumn",
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
    "Split",
    "TableSchema",
    "TableUpkeep",
    "UpdateType",
    "check_table",
    "expire_changelogs",
    "expire_snapshots",
    "new_schema",
    "parse_predicate",
    "parse_type",
    "remove_orphan_files",
    "system_table",
]

_MODULES = {
    "BATCH_COMMIT_IDENTIFIER": "storage.format.snapshot",
    "VALUE_KIND": "storage.format.types",
    "AddColumn": "storage.format.schema_changes",
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
    "Split": "storage.table.scan",
    "TableSchema": "storage.format.schema",
    "TableUpkeep": "storage.table.upkeep",
    "UpdateType": "storage.format.schema_changes",
    "check_table": "storage.table.invariants",
    "expire_changelogs": "storage.table.expire_changelogs",
    "expire_snapshots": "storage.table.expire",
    "new_schema": "storage.format.schema",
    "parse_predicate": "storage.table.predicate_text",
    "parse_type": "storage.format.type_text",
    "remove_orphan_files": "storage.table.orphans",
    "system_table": "storage.table.system.registry",
}
"""Where each public name comes from."""


def __getattr__(name: str) -> Any:
    """A public name, from its module."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    """What is public, imported or not."""
    return sorted({*globals(), *__all__})
