# SPDX-License-Identifier: Apache-2.0
"""The Apache Paimon table format and its LSM engine. Knows nothing of Spark, Kafka, Prometheus.

A table is opened through a catalog or by its path:

    catalog = FileSystemCatalog("/data/warehouse")
    table = catalog.table("shop.orders")
    rows = table.to_arrow(predicate=parse_predicate("id > 5"))

The names below are public; modules of `storage` use each other directly.
"""

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
from storage.table.invariants import check_table
from storage.table.predicate_text import parse_predicate
from storage.table.scan import Plan, Split
from storage.table.table import FileStoreTable

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
    "UpdateType",
    "check_table",
    "expire_snapshots",
    "new_schema",
    "parse_predicate",
    "parse_type",
]
