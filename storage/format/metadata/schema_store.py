# SPDX-License-Identifier: Apache-2.0
"""The schema files of a table: listing, reading, publishing the next.

Source: FORMAT.md §2 and §11.5: a schema file is published like a snapshot, by create-if-absent,
so of two concurrent changes one loses and must be applied again on top of the winner.

Reads of every data file ask for its schema, so schemas are cached. Only a fast-forward of a
branch gives an id another schema; `latest`, which lists the directory anyway, detects it by size
and time of the files and drops the cached ones.
"""

from typing import Any

from storage.errors import CorruptDataError, NotFoundError
from storage.format.metadata.documents import read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot_store import listed_files
from storage.io.file_io import FileIO, FileStatus

_Mark = tuple[int, int]
"""Size and modification time of a file."""


class SchemaStore:
    """Schemas of one table or branch. Picklable, without the cache."""

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self._schemas: dict[int, TableSchema] = {}
        self._file_marks: dict[int, _Mark] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_file_io": self._file_io,
            "_layout": self._layout,
            "_schemas": {},
            "_file_marks": {},
        }

    def ids(self) -> list[int]:
        """All schema ids, ascending; empty when there is no table."""
        return sorted(self._listed())

    def latest(self) -> TableSchema | None:
        """The newest schema, or None when there is no table. Costs one listing."""
        listed = self._listed()
        marks = {number: (status.size, status.modified_ms) for number, status in listed.items()}
        for schema_id in list(self._schemas):
            if schema_id not in marks or marks[schema_id] != self._file_marks.get(schema_id):
                self._schemas.pop(schema_id, None)
        self._file_marks = marks
        newest = max(listed, default=None)
        return None if newest is None else self.read(newest)

    def read(self, schema_id: int) -> TableSchema:
        """The schema of that id.

        Raises:
            NotFoundError: there is none.
            CorruptDataError: its file is damaged.
            UnsupportedFeatureError: it has a column type this version does not know.
        """
        cached = self._schemas.get(schema_id)
        if cached is not None:
            return cached
        path = self._layout.schema_file(schema_id)
        try:
            schema = read_document(self._file_io, path, TableSchema.from_json)
        except FileNotFoundError as error:
            raise NotFoundError("no such schema", id=schema_id, table=self._layout.root) from error
        if schema.id != schema_id:
            raise CorruptDataError(
                "a schema file holds another schema",
                path=path,
                expected=schema_id,
                found=schema.id,
            )
        return self._schemas.setdefault(schema_id, schema)

    def publish(self, schema: TableSchema) -> bool:
        """Add a schema unless another writer has its id; whether this call added it."""
        path = self._layout.schema_file(schema.id)
        if not self._file_io.put_if_absent(path, schema.to_json()):
            return False
        self._schemas[schema.id] = schema
        return True

    def forget(self) -> None:
        """Clear the cache: ids may name other schemas from now on."""
        self._schemas.clear()

    def _listed(self) -> dict[int, FileStatus]:
        return listed_files(self._file_io, self._layout.schema_dir, "schema-")
