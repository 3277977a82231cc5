# SPDX-License-Identifier: Apache-2.0
"""The Iceberg metadata that tables of a catalog have published."""

import dataclasses

from storage.catalog.catalog import Catalog
from storage.errors import LakewardError, NotFoundError, RetryableError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_store import SchemaStore
from storage.io.file_io import FileIO
from storage.lru import LruCache
from storage.table.iceberg.twin import metadata_directory
from storage.table.table import FileStoreTable

_HINT = "version-hint.text"
_TRIES = 5
_KNOWN_TABLES = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class _KnownTable:
    """A table as of its last lookup.

    Attributes:
        schemas: of it; cached once read.
        schema: the newest one.
        directory: of the metadata; None: disabled for the table.
    """

    schemas: SchemaStore
    file_io: FileIO
    schema: TableSchema
    directory: str | None


class PublishedTables:
    """Finds and reads the newest metadata files. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: LruCache[str, _KnownTable] = LruCache(_KNOWN_TABLES)

    def newest(self, identifier: str) -> tuple[str, bytes]:
        """Path and text of the newest metadata file.

        Raises:
            NotFoundError: there is no such table, or no metadata of it.
        """
        entry = self._current_table(identifier)
        for _ in range(_TRIES):  # a rollback deletes versions
            location = self._newest_location(entry, identifier)
            try:
                return location, entry.file_io.read_bytes(location)
            except FileNotFoundError:
                continue
        raise _without_metadata(identifier)

    def location(self, identifier: str) -> str:
        """Path of the newest metadata file.

        Raises:
            As `newest`.
        """
        return self._newest_location(self._current_table(identifier), identifier)

    def has_metadata(self, identifier: str) -> bool:
        """Whether there is a table with published metadata.

        One that cannot be opened has none, so that it does not hide the rest of its database.
        """
        try:
            self.location(identifier)
        except RetryableError:
            raise
        except LakewardError:
            return False
        return True

    def _newest_location(self, newest: _KnownTable, identifier: str) -> str:
        if newest.directory is None:
            raise _without_metadata(identifier)
        try:
            version = int(newest.file_io.read_bytes(f"{newest.directory}/{_HINT}"))
        except (FileNotFoundError, ValueError) as error:
            raise _without_metadata(identifier) from error
        return f"{newest.directory}/v{version}.metadata.json"

    def _current_table(self, identifier: str) -> _KnownTable:
        """The table by its newest schema; only changes are read."""
        path = self._catalog.table_path(identifier)
        key = f"{identifier}\0{path}"
        entry = self._tables.get(key)
        schemas = entry.schemas if entry else self._catalog.schemas(identifier)
        schema = schemas.latest()
        if schema is None:
            raise NotFoundError("there is no such table", table=identifier)
        if entry is None or entry.schema is not schema:
            file_io = self._catalog.file_io_of(identifier)
            entry = _KnownTable(schemas, file_io, schema, self._directory(identifier))
            self._tables.put(key, entry)
        return entry

    def _directory(self, identifier: str) -> str | None:
        table = self._catalog.table(identifier)
        if not isinstance(table, FileStoreTable) or table.options.iceberg_storage == "disabled":
            return None
        return metadata_directory(table)


def _without_metadata(identifier: str) -> NotFoundError:
    return NotFoundError(
        "the table has no Iceberg metadata",
        hint="set its option `metadata.iceberg.storage`; the first commit after that publishes it",
        table=identifier,
    )
