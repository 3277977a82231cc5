# SPDX-License-Identifier: Apache-2.0
"""What every operation on one table needs: its schema, its stores and its ports.

`commit`, `scan`, `read` and `expire` take a `TableCore`; the facade with their entry points is
`table.FileStoreTable`.
"""

import abc
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from storage.clock import Clock, IdSource
from storage.errors import NotFoundError
from storage.format.metadata.layout import TableLayout, partition_path
from storage.format.metadata.manifest_store import ManifestStore
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.schema_changes import SchemaChange
from storage.format.metadata.snapshot import ChangelogStore, Snapshot, SnapshotStore
from storage.format.row.binary_row import decode_row
from storage.io.file_io import FileIO
from storage.lsm.key_order import key_decoder
from storage.lsm.levels import KeyOf
from storage.options.options import TableOptions

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

_LATEST_TRIES = 4
"""A newest snapshot that expires before it is read means that others commit; read again."""


class CatalogEnvironment(abc.ABC):
    """What the catalog of a table takes part in when the table itself is changed. Picklable.

    Source: Paimon's `CatalogEnvironment`. A catalog that keeps more than names (columns of a Hive
    table, properties of a JDBC table, the schema itself in a REST catalog) gives its tables one, so
    that `table.alter` and a commit keep it true.

    Attributes:
        owns_snapshots: whether the catalog alone adds and removes snapshots and branches: the table
            leaves it to the methods from `create_branch` on.
        registers_partitions: whether the catalog has entries of partitions.
    """

    owns_snapshots: bool = False
    registers_partitions: bool = False

    @abc.abstractmethod
    def alter(self, table: "FileStoreTable", changes: Sequence[SchemaChange]) -> "FileStoreTable":
        """Change the schema. Returns and raises as `FileStoreTable.alter`."""

    @abc.abstractmethod
    def published(self, table: "TableCore", snapshot: Snapshot) -> None:
        """Called after a snapshot has become visible; must not raise."""

    def add_partitions(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """Add partitions, as texts by column, where the catalog registers them; others stay."""
        raise NotImplementedError

    def mark_done(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """Mark partitions as complete, as texts by column, where the catalog registers them."""
        raise NotImplementedError

    # of a catalog that owns snapshots; errors as of the functions in `branches` and `rollback`
    def create_branch(self, name: str, tag: str | None) -> None:
        """Make a branch: empty, or at a tag."""
        raise NotImplementedError

    def drop_branch(self, name: str) -> None:
        """Remove a branch."""
        raise NotImplementedError

    def rename_branch(self, name: str, new_name: str) -> None:
        """Give a branch another name."""
        raise NotImplementedError

    def fast_forward(self, name: str) -> None:
        """Let main continue as a branch did."""
        raise NotImplementedError

    def roll_back(self, snapshot_id: int, tag: str | None) -> None:
        """Make a snapshot the newest again: that of a tag where one is named."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, eq=False)
class TableCore:
    """One table at one version of its schema. Picklable; caches do not travel.

    Attributes:
        schema: rows are read and written as this schema says.
        schemas: all versions of its schema.
        environment: what its catalog takes part in; None: the table is its files.
    """

    file_io: FileIO
    layout: TableLayout
    schema: TableSchema
    clock: Clock
    ids: IdSource
    snapshots: SnapshotStore
    schemas: SchemaStore
    manifests: ManifestStore
    environment: CatalogEnvironment | None = None

    @functools.cached_property
    def options(self) -> TableOptions:
        """The schema's options, parsed."""
        return TableOptions.from_strings(self.schema.options)

    @functools.cached_property
    def key_of(self) -> KeyOf | None:
        """Comparable form of a framed key; None on a table without primary key."""
        if not self.schema.primary_keys:
            return None
        return key_decoder(tuple(field.type for field in self.schema.key_fields))

    @functools.cached_property
    def changelogs(self) -> ChangelogStore:
        """Changelogs that outlive their snapshots."""
        return ChangelogStore(self.file_io, self.layout)

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    @property
    def snapshot_owner(self) -> CatalogEnvironment | None:
        """The catalog that alone adds and removes snapshots and branches; None: the table does."""
        environment = self.environment
        return environment if environment is not None and environment.owns_snapshots else None

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, or None on a table without snapshots.

        Raises:
            NotFoundError: each time, it expired between being found and being read.
        """
        for _ in range(_LATEST_TRIES):
            try:
                return self.snapshots.latest()
            except NotFoundError:
                continue
        return self.snapshots.latest()

    def partition_path(self, partition: bytes) -> str:
        """Directory part of a framed partition row; "" when unpartitioned."""
        fields = self.schema.partition_fields
        if not fields:
            return ""
        return partition_path(
            decode_row(partition, [field.type for field in fields]),
            fields,
            default_name=self.options.partition_default_name,
            legacy=self.options.partition_legacy_name,
        )

    def data_path(self, partition: bytes, bucket: int, name: str) -> str:
        """Path of a data, changelog or file index file."""
        return self.layout.data_file(self.partition_path(partition), bucket, name)

    def delete_quietly(self, paths: Iterable[str]) -> int:
        """Remove unreferenced files, and count them; one that cannot be removed stays."""
        return self.file_io.delete_many(paths)
