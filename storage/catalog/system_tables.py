# SPDX-License-Identifier: Apache-2.0
"""The system tables of a whole catalog: its tables, their partitions, their options, its options.

Source: SEMANTICS.md §I; columns of `tables` and `partitions` as in Paimon. Secrets are masked in
`sys.catalog_options`.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from storage.catalog.catalog import Catalog
from storage.clock import epoch_of_local_ms
from storage.errors import NotFoundError
from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.layout import escape, unescape
from storage.format.metadata.snapshot import Snapshot
from storage.io.object_store_options import redacted_options
from storage.options.options import option_value
from storage.table.commit.live_files import delta_entries, live_state
from storage.table.core import TableCore
from storage.table.inspect.system.columns import schema_of, shown_options, table_of
from storage.table.inspect.system.registry import system_table
from storage.table.table import FileStoreTable

_OPTIONS = schema_of("key text, value text")
_TABLES = schema_of("""
    database_name text, table_name text, table_type text, partitioned boolean, primary_key boolean,
    owner text?, created_at long?, created_by text?, updated_at long?, updated_by text?,
    record_count long?, file_size_in_bytes long?, file_count long?, last_file_creation_time long?
""")
_PARTITIONS = schema_of("""
    database_name text, table_name text, partition_name text, record_count long?,
    file_size_in_bytes long?, file_count long?, last_file_creation_time long?, done boolean?
""")
_SUMMED_COLUMNS = ("record_count", "file_size_in_bytes", "file_count")
_ALL_OPTIONS = schema_of("database_name text, table_name text, key text, value text")


def all_table_options_table(catalog: Catalog) -> pa.Table:
    """The options that the newest schema of every table sets."""
    rows = [
        {"database_name": database, "table_name": name, "key": key, "value": value}
        for database, name, table in _tables(catalog)
        for key, value in shown_options(table.schema.options).items()
    ]
    return table_of(_ALL_OPTIONS, rows)


def tables_table(catalog: Catalog) -> pa.Table:
    """Every table with its kind, and what its live files hold, before merging."""
    rows = []
    for database, name, table in _tables(catalog):
        schema, partitions = table.schema, _partitions(table)
        options = schema.options
        counts = {
            key: None if partitions is None else sum(partition[key] for partition in partitions)
            for key in _SUMMED_COLUMNS
        }
        times = [partition["last_update_time"] for partition in partitions or ()]
        rows.append(
            {
                "database_name": database,
                "table_name": name,
                "table_type": option_value(options, "type"),
                "partitioned": bool(schema.partition_keys),
                "primary_key": bool(schema.primary_keys),
                "owner": options.get("owner"),
                "created_at": _number(options.get("createdAt")),
                "created_by": options.get("createdBy"),
                "updated_at": _number(options.get("updatedAt")),
                "updated_by": options.get("updatedBy"),
                **counts,
                "last_file_creation_time": _epoch_ms(max(times, default=None)),
            }
        )
    return table_of(_TABLES, rows)


def partitions_table(catalog: Catalog) -> pa.Table:
    """Every partition of every partitioned table."""
    rows = [
        {
            "database_name": database,
            "table_name": name,
            "partition_name": partition["partition"],
            **{key: partition[key] for key in _SUMMED_COLUMNS},
            "last_file_creation_time": _epoch_ms(partition["last_update_time"]),
            "done": partition.get("done"),
        }
        for database, name, table in _tables(catalog)
        if table.schema.partition_keys
        for partition in _partitions(table) or ()
    ]
    return table_of(_PARTITIONS, rows)


def _tables(catalog: Catalog) -> Iterator[tuple[str, str, Any]]:
    """Database, name and table of every table; those dropped meanwhile are left out."""
    for database in catalog.list_databases():
        for name in catalog.list_tables(database):
            with contextlib.suppress(NotFoundError):
                yield database, name, catalog.table(f"{database}.{name}")


def _partitions(table: Any) -> list[dict[str, Any]] | None:
    """The rows of `$partitions`; None: the table has no snapshots."""
    if not isinstance(table, FileStoreTable):
        return None
    return system_table(table, "partitions").to_pylist()


def _epoch_ms(wall: datetime.datetime | None) -> int | None:
    """A local time of a system table as [epoch ms]."""
    if wall is None:
        return None
    since = wall - datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks without zone
    return epoch_of_local_ms(since // datetime.timedelta(milliseconds=1))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def catalog_options_table(catalog: Catalog) -> pa.Table:
    """The options that the catalog was opened with."""
    options = redacted_options(catalog.options)
    return table_of(_OPTIONS, [{"key": key, "value": value} for key, value in options.items()])


CATALOG_TABLES: Mapping[str, Callable[[Catalog], pa.Table]] = {
    "tables": tables_table,
    "partitions": partitions_table,
    "all_table_options": all_table_options_table,
    "catalog_options": catalog_options_table,
}
"""Reader by name, without `sys.`."""


def catalog_system_table(catalog: Catalog, name: str) -> pa.Table:
    """The rows of a system table of a catalog.

    Raises:
        NotFoundError: there is no such table.
    """
    reader = CATALOG_TABLES.get(name.lower())
    if reader is None:
        raise NotFoundError(
            "there is no system table of this name",
            hint=f"there are {', '.join(CATALOG_TABLES)}",
            name=f"sys.{name}",
        )
    return reader(catalog)


# What a snapshot changed in each partition, in the form in which catalogs keep it.
#
# Source: Paimon's `PartitionStatistics`.


@dataclasses.dataclass(slots=True)
class PartitionChange:
    """What one snapshot changed in one partition; numbers are negative where it removed more.

    Attributes:
        spec: values as texts, by column.
        record_count: rows.
        file_size: bytes.
        file_count: data files.
        last_created_ms: when the newest added file was made [epoch ms].
        total_buckets: of the files.
    """

    spec: dict[str, str]
    record_count: int = 0
    file_size: int = 0
    file_count: int = 0
    last_created_ms: int = 0
    total_buckets: int = 0


def spec_of_path(path: str) -> dict[str, str]:
    """Values of a partition, as texts, of its directory `dt=a/hh=1`; "" has none."""
    pairs = (part.partition("=") for part in path.split("/") if part)
    return {unescape(name): unescape(value) for name, _, value in pairs}


def path_of_spec(spec: Mapping[str, str]) -> str:
    """Directory of a partition."""
    return "/".join(f"{escape(name)}={escape(value)}" for name, value in spec.items())


def partition_changes(table: TableCore, snapshot: Snapshot) -> list[PartitionChange]:
    """What a snapshot changed, by partition; reads its delta manifests.

    Raises:
        FileNotFoundError: they have expired.
    """
    return _sums(table, delta_entries(table, snapshot))


def live_partitions(table: TableCore, snapshot: Snapshot) -> list[PartitionChange]:
    """What a snapshot has, by partition; reads its manifests.

    Raises:
        FileNotFoundError: they have expired.
    """
    return _sums(table, live_state(table, snapshot).entries())


def _sums(table: TableCore, entries: Iterable[ManifestEntry]) -> list[PartitionChange]:
    changes: dict[bytes, PartitionChange] = {}
    for entry in entries:
        change = changes.get(entry.partition)
        if change is None:
            change = PartitionChange(spec_of_path(table.partition_path(entry.partition)))
            changes[entry.partition] = change
        sign = 1 if entry.kind is FileKind.ADD else -1
        change.record_count += sign * entry.file.row_count
        change.file_size += sign * entry.file.file_size
        change.file_count += sign
        change.total_buckets = entry.total_buckets
        if sign > 0:
            change.last_created_ms = max(change.last_created_ms, entry.file.creation_time_ms or 0)
    return list(changes.values())
