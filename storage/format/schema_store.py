# SPDX-License-Identifier: Apache-2.0
"""The schema files of a table: which there are, reading them, adding the next.

Source: FORMAT.md §2 and §11.5: a schema file is published like a snapshot, by create-if-absent,
so of two concurrent changes one loses and must be applied again on top of the winner.
"""

from typing import Any

from storage.errors import NotFoundError
from storage.format.layout import TableLayout
from storage.format.schema import TableSchema
from storage.io.file_io import FileIO

__all__ = ["SchemaStore"]

_PREFIX = "schema-"


class SchemaStore:
    """Schemas of one table or branch. Picklable; the cache does not travel.

    Args:
        file_io: the store of bytes.
        layout: paths of the table or branch.
    """

    def __init__(self, file_io: FileIO, layout: TableLayout) -> None:
        self._file_io = file_io
        self._layout = layout
        self._cache: dict[int, TableSchema] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_file_io": self._file_io, "_layout": self._layout, "_cache": {}}

    def ids(self) -> list[int]:
        """All schema ids, ascending; empty when there is no table."""
        names = (status.name for status in self._file_io.list(self._layout.schema_dir))
        numbers = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return sorted(int(text) for text in numbers if text.isascii() and text.isdigit())

    def latest(self) -> TableSchema | None:
        """The newest schema, or None when there is no table. Costs one listing."""
        newest = max(self.ids(), default=None)
        return None if newest is None else self.read(newest)

    def read(self, schema_id: int) -> TableSchema:
        """The schema of that id; files never change, so it is kept.

        Raises:
            NotFoundError: there is none.
            CorruptDataError: its file is damaged.
            UnsupportedFeatureError: it has a column type this version does not know.
        """
        cached = self._cache.get(schema_id)
        if cached is not None:
            return cached
        try:
            data = self._file_io.read_bytes(self._layout.schema_file(schema_id))
        except FileNotFoundError as error:
            raise NotFoundError("no such schema", id=schema_id, table=self._layout.root) from error
        return self._cache.setdefault(schema_id, TableSchema.from_json(data))

    def publish(self, schema: TableSchema) -> bool:
        """Add a schema, unless its id is taken.

        Returns:
            True when this call added it, False when another writer has the id.
        """
        path = self._layout.schema_file(schema.id)
        if not self._file_io.put_if_absent(path, schema.to_json()):
            return False
        self._cache[schema.id] = schema
        return True
