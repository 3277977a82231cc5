# SPDX-License-Identifier: Apache-2.0
"""System tables by name."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from storage.errors import NotFoundError
from storage.table.inspect.system import files, history, row_tables
from storage.table.table import FileStoreTable

SYSTEM_TABLES: Mapping[str, Callable[[FileStoreTable], pa.Table]] = {
    "snapshots": history.snapshots_table,
    "schemas": history.schemas_table,
    "options": history.options_table,
    "audit_log": row_tables.audit_log_table,
    "binlog": row_tables.binlog_table,
    "ro": row_tables.read_optimized_table,
    "files": files.files_table,
    "tags": history.tags_table,
    "branches": history.branches_table,
    "consumers": history.consumers_table,
    "manifests": history.manifests_table,
    "aggregation_fields": history.aggregation_fields_table,
    "partitions": files.partitions_table,
    "buckets": files.buckets_table,
    "statistics": history.statistics_table,
    "table_indexes": history.table_indexes_table,
    "file_key_ranges": files.file_key_ranges_table,
}
"""Reader by name, without the `$`."""


def system_table(
    table: FileStoreTable, name: str, options: Mapping[str, str | None] | None = None
) -> pa.Table:
    """The rows of a system table.

    Args:
        name: without the `$`.
        options: dynamic options of the table, as those of time travel.

    Raises:
        NotFoundError: there is no system table of that name, or no snapshot that options name.
    """
    reader = SYSTEM_TABLES.get(name.lower())
    if reader is None:
        raise NotFoundError(
            "there is no system table of this name",
            hint=f"there are {', '.join(SYSTEM_TABLES)}",
            name=name,
            table=table.layout.root,
        )
    return reader(table.with_options(options) if options else table)
