# SPDX-License-Identifier: Apache-2.0
"""System tables by name."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from storage.errors import NotFoundError
from storage.table.inspect.system.files import (
    buckets_table,
    file_key_ranges_table,
    files_table,
    partitions_table,
)
from storage.table.inspect.system.history import (
    branches_table,
    consumers_table,
    options_table,
    schemas_table,
    snapshots_table,
    tags_table,
)
from storage.table.inspect.system.metadata import (
    aggregation_fields_table,
    manifests_table,
    statistics_table,
    table_indexes_table,
)
from storage.table.inspect.system.row_tables import (
    audit_log_table,
    binlog_table,
    read_optimized_table,
)
from storage.table.table import FileStoreTable

__all__ = ["SYSTEM_TABLES", "system_table"]

SYSTEM_TABLES: Mapping[str, Callable[[FileStoreTable], pa.Table]] = {
    "snapshots": snapshots_table,
    "schemas": schemas_table,
    "options": options_table,
    "audit_log": audit_log_table,
    "binlog": binlog_table,
    "ro": read_optimized_table,
    "files": files_table,
    "tags": tags_table,
    "branches": branches_table,
    "consumers": consumers_table,
    "manifests": manifests_table,
    "aggregation_fields": aggregation_fields_table,
    "partitions": partitions_table,
    "buckets": buckets_table,
    "statistics": statistics_table,
    "table_indexes": table_indexes_table,
    "file_key_ranges": file_key_ranges_table,
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
