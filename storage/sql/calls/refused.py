# SPDX-License-Identifier: Apache-2.0
"""Procedures of Paimon that are refused by name: why, and what to do instead."""

from storage.sql.calls.declaration import Procedure

__all__ = ["PROCEDURES"]

_HIVE = (
    "tables of Hive are not read; create a table and INSERT INTO it from an engine that reads both"
)
_ROW_IDS = "tables with row tracking or data evolution are not supported"
_FUNCTIONS = "catalogs of Lakeward keep no functions"
_INDEX = "tables with global indexes are not supported; file indexes are: rewrite_file_index"

PROCEDURES = tuple(
    Procedure(name=name, about=about)
    for name, about in {
        "migrate_table": _HIVE,
        "migrate_database": _HIVE,
        "migrate_iceberg_table": "tables of Iceberg are not read",
        "clone": "files are not copied between catalogs; CREATE TABLE … AS SELECT writes a copy",
        "copy": "files are not copied between tables; INSERT INTO … SELECT writes a copy",
        "copy_files": "files are not copied; INSERT INTO … SELECT writes a copy",
        "purge_files": "it removes snapshots with all files; TRUNCATE TABLE and expire_snapshots "
        "remove rows and history",
        "remove_unexisting_files": "it makes lost files look like removed rows; roll back to a "
        "snapshot whose files are there: rollback_to",
        "remove_unexisting_manifests": "it makes lost manifests look like removed rows; roll back "
        "to a snapshot whose files are there: rollback_to",
        "repair_earliest_snapshot": "the hint of the earliest snapshot is repaired when it is "
        "wrong; `lakeward repair` does it for a table",
        "compact_manifest": "manifests are merged by commits, as the options manifest.* say",
        "compact_chain_table": "chain tables are not supported",
        "merge_branch": "branches become main by fast_forward",
        "rollback_to_as_latest": "a table is rolled back by rollback_to, which removes later "
        "snapshots; to keep them, INSERT OVERWRITE from `VERSION AS OF`",
        "query_service": "Flink's query service is not supported; SELECT by key opens one file",
        "materialize_deletion_vectors": _ROW_IDS + "; compact rewrites files without deleted rows",
        "data_evolution_merge_into": _ROW_IDS + "; MERGE INTO merges rows",
        "reassign_row_id": _ROW_IDS,
        "create_global_index": _INDEX,
        "drop_global_index": _INDEX,
        "vector_search": _INDEX,
        "full_text_search": _INDEX,
        "create_function": _FUNCTIONS,
        "alter_function": _FUNCTIONS,
        "drop_function": _FUNCTIONS,
    }.items()
)
