# SPDX-License-Identifier: Apache-2.0
"""Iceberg metadata beside a table, over the same data files, at every commit.

Other modules of `storage.table` use the functions here, which load the rest only where it is used.
"""

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection

from storage.errors import (
    InvalidOptionError,
    LakewardError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.snapshot import Snapshot, SnapshotStore
from storage.io.file_io import FileStatus
from storage.options.options import TableOptions
from storage.options.table import CATALOG_STORAGES, REST_PREFIX
from storage.table.core import TableCore
from storage.table.retention.reachability import branch_names

__all__ = [
    "IcebergFigures",
    "catch_up_iceberg",
    "check_iceberg",
    "check_iceberg_change",
    "iceberg_figures",
    "iceberg_leftovers",
    "publish_all",
    "publish_branch",
    "publish_iceberg",
    "retract_iceberg",
    "sync_iceberg",
]

_LOG = logging.getLogger(__name__)

_DISABLED = "disabled"
_MAIN = "main"
_VECTORS_VERSION = 3

_SILENCE_S = 30.0
"""Time for which commits skip a catalog service that did not answer [s]."""


@dataclasses.dataclass(frozen=True, slots=True)
class IcebergFigures:
    """What this process published of one table.

    Attributes:
        seconds: spent on it [s].
        versions: metadata files that were published.
        manifests: manifests that were written.
        size: of all files that were written [bytes].
        failures: publications that failed, those in a catalog service included.
        published: newest snapshot that is published wherever the options say; None: unknown.
        unpublished: number of snapshots by which the publication lagged after the last attempt.
    """

    seconds: float = 0.0
    versions: int = 0
    manifests: int = 0
    size: int = 0
    failures: int = 0
    published: int | None = None
    unpublished: int = 0


_LOCK = threading.Lock()
_FIGURES: dict[str, IcebergFigures] = {}
_SILENT_UNTIL_S: dict[str, float] = {}


def iceberg_figures(root: str) -> IcebergFigures:
    """What this process published of the table, or branch, at a directory."""
    return _FIGURES.get(root, IcebergFigures())


def publish_iceberg(
    table: TableCore, *, hidden: Collection[int] = (), added: Snapshot | None = None
) -> bool:
    """Bring the Iceberg metadata of a table to its newest snapshot, where options ask for it.

    The snapshot is published already: a failure here is logged, and the next call catches up.
    A catalog service that does not answer is skipped for a while.

    Args:
        hidden: ids of snapshots that are about to expire, which are left out.
        added: the newest snapshot, if it was just added.

    Returns:
        Whether it is up to date now, with everything that the options ask for.
    """
    if table.options.iceberg_storage == _DISABLED:
        return True
    service = _service(table)
    follow = table.clock.monotonic_s() >= _SILENT_UNTIL_S.get(service, 0.0)
    try:
        _sync(table, hidden=hidden, added=added, follow=follow)
        if table.layout.branch != _MAIN:
            table = at_branch(table, _MAIN)
            _sync(table, follow=follow)
    except (LakewardError, OSError, LookupError, ValueError, ImportError) as error:
        if service and isinstance(error, StorageUnavailableError):
            _SILENT_UNTIL_S[service] = table.clock.monotonic_s() + _SILENCE_S
        _LOG.warning(
            "the Iceberg metadata of a table was not published; the next commit tries again",
            exc_info=True,
            extra={"table": table.layout.root},
        )
        return False
    return follow


def publish_branch(table: TableCore, name: str) -> None:
    """The same for a branch that was just created or renamed."""
    if table.options.iceberg_storage != _DISABLED:
        publish_iceberg(at_branch(table, name))


def publish_all(table: TableCore) -> bool:
    """The same for a table and its branches, whose directory was just renamed."""
    for name in branch_names(table):
        publish_branch(table, name)
    return publish_iceberg(table)


def at_branch(table: TableCore, name: str) -> TableCore:
    """The table at another of its branches, or at `main`, at its newest schema."""
    layout = dataclasses.replace(table.layout, branch=name)
    schemas = SchemaStore(table.file_io, layout)
    return dataclasses.replace(
        table,
        layout=layout,
        schema=schemas.latest() or table.schema,
        schemas=schemas,
        snapshots=SnapshotStore(table.file_io, layout),
    )


def catch_up_iceberg(table: TableCore) -> None:
    """Publish the Iceberg metadata of a table if the last attempt of this process failed."""
    if iceberg_figures(table.layout.root).unpublished:
        publish_iceberg(table)


def retract_iceberg(table: TableCore) -> None:
    """Remove external Iceberg metadata of a table that is about to be dropped or renamed.

    That is its entry in a catalog service, and metadata files outside of the directory.

    Raises:
        RetryableError, InvalidRequestError: the catalog service does not answer, or refuses.
    """
    from storage.table.iceberg.twin import IcebergTwin  # noqa: PLC0415 - most tables have none

    IcebergTwin(table).retract()


def iceberg_leftovers(table: TableCore) -> tuple[list[FileStatus], Callable[[], set[str]]]:
    """Metadata files of a table, and a function for the names of those that readers may need.

    There are none while a catalog service lags: it may reference files of earlier versions.
    """
    from storage.table.iceberg.twin import IcebergTwin  # noqa: PLC0415 - most tables have none

    if table.options.iceberg_storage == _DISABLED:
        return [], set
    table = at_branch(table, _MAIN)
    if table.options.iceberg_storage in CATALOG_STORAGES and not publish_iceberg(table):
        return [], set
    tables = [table, *(at_branch(table, name) for name in branch_names(table))]
    twins = [IcebergTwin(core, follow=False) for core in tables]
    files = [status for twin in twins for status in twin.candidates()]
    return files, lambda: set[str]().union(*(twin.referenced_names() for twin in twins))


def _service(table: TableCore) -> str:
    """The catalog service of a table; "": it has none."""
    options = table.options
    if options.iceberg_storage not in CATALOG_STORAGES:
        return ""
    return f"{options.iceberg_uri or options.raw.get(REST_PREFIX + 'uri')}"


def sync_iceberg(table: TableCore) -> int:
    """Bring the Iceberg metadata of a table to its newest snapshot.

    Returns:
        Number of versions published; 0 when it was up to date already.

    Raises:
        InvalidOptionError: `metadata.iceberg.storage` is not set.
        UnsupportedFeatureError: the table uses what Iceberg lacks.
        CommitConflictError: other writers published concurrently at every attempt.
        RetryableError, InvalidRequestError: the catalog service does not answer, or refuses.
    """
    if table.options.iceberg_storage == _DISABLED:
        raise InvalidOptionError(
            "the table has no Iceberg metadata",
            hint="set `metadata.iceberg.storage` to table-location",
            option="metadata.iceberg.storage",
            table=table.layout.root,
        )
    for name in branch_names(table) if table.layout.branch == _MAIN else ():
        publish_branch(table, name)
    return _sync(table)


def _sync(
    table: TableCore,
    *,
    hidden: Collection[int] = (),
    added: Snapshot | None = None,
    follow: bool = True,
) -> int:
    """Publish, and record the figures, also of a failure."""
    from storage.table.iceberg.twin import IcebergTwin, PublishedFiles  # noqa: PLC0415 - most have none

    latest = added or table.latest_snapshot()
    if latest is None:
        return 0
    if latest.schema_id != table.schema.id:
        schema = table.schemas.read(latest.schema_id)
        if table.schema.id > latest.schema_id:  # the columns of the snapshot, the newest options
            schema = dataclasses.replace(schema, options=table.schema.options)
        table = dataclasses.replace(table, schema=schema)
    started_s = table.clock.monotonic_s()
    written, is_finished = PublishedFiles(), False
    try:
        twin = IcebergTwin(table, follow=follow)
        written = twin.written
        published = twin.sync(hidden=hidden, added=added)
        is_finished = follow
    finally:
        seconds = table.clock.monotonic_s() - started_s
        root = table.layout.branch_root
        with _LOCK:
            before = iceberg_figures(root)
            last_id = before.published if before.published is not None else latest.id - 1
            _FIGURES[root] = IcebergFigures(
                seconds=before.seconds + seconds,
                versions=before.versions + written.versions,
                manifests=before.manifests + written.manifests,
                size=before.size + written.size,
                failures=before.failures + (not is_finished),
                published=latest.id if is_finished else before.published,
                unpublished=0 if is_finished else max(1, latest.id - last_id),
            )
    return published


def check_iceberg(schema: TableSchema, options: TableOptions) -> None:
    """Check that a table can have the Iceberg metadata that its options ask for.

    Raises:
        InvalidOptionError: options do not go together.
        UnsupportedFeatureError: a type does not exist in Iceberg, or the field ids do not fit.
    """
    if options.iceberg_storage == _DISABLED:
        return
    from storage.table.iceberg.catalogs import check_catalog  # noqa: PLC0415 - most have none
    from storage.table.iceberg.types import iceberg_schema  # noqa: PLC0415 - as above

    iceberg_schema(schema)
    check_catalog(options)
    formats = {options.file_format, *options.file_format_per_level.values()}
    wrong = ""
    if options.iceberg_format_version not in (2, _VECTORS_VERSION):
        wrong = "the Iceberg format version is 2 or 3"
    elif options.deletion_vectors_enabled and options.iceberg_format_version < _VECTORS_VERSION:
        wrong = "Iceberg has deletion vectors from format version 3 on"
    if wrong:
        raise InvalidOptionError(
            wrong,
            hint="set `metadata.iceberg.format-version` to 3",
            option="metadata.iceberg.format-version",
            value=options.iceberg_format_version,
        )
    if formats != {"parquet"}:
        raise UnsupportedFeatureError(
            "Iceberg metadata needs Parquet files, which carry field ids",
            hint="set `file.format` to parquet",
            option="file.format",
            value=", ".join(sorted(formats)),
        )


def check_iceberg_change(before: TableSchema, after: TableSchema) -> None:
    """Check that Iceberg readers can read old files of a table whose columns change their types.

    Raises:
        UnsupportedFeatureError: Iceberg has no such promotion; names the column.
    """
    if TableOptions.from_strings(after.options).iceberg_storage == _DISABLED:
        return
    from storage.table.iceberg.types import check_promotion  # noqa: PLC0415 - as above

    for field in after.fields:
        old = next((column for column in before.fields if column.id == field.id), None)
        if old is not None:
            check_promotion(old, field)
