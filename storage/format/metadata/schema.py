# SPDX-License-Identifier: Apache-2.0
"""`TableSchema`: one version of a table's columns, keys and options, and its JSON file.

Source: FORMAT.md §2.1 (file), §2.3 (field ids). How one schema becomes the next is in
`schema_changes`; where schema files live is in `schema_store`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.documents import dump_object, parse_object, read_document
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.snapshot import listed_files
from storage.format.types.types import (
    KEY_PREFIX,
    SYSTEM_FIELD_NAMES,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    arrow_schema,
    field_from_json,
    field_to_json,
    type_name,
)
from storage.io.file_io import FileIO, FileStatus
from storage.options.options import option_value

CURRENT_VERSION = 3
_ICEBERG, _DISABLED = "metadata.iceberg.storage", "disabled"


# No slots: the derived values below are computed once and kept in the instance's __dict__.
@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSchema:
    """One version of a table's schema. Immutable; equal when all parts are equal.

    Attributes:
        id: the N of `schema-N`, from 0.
        fields: columns in order; ids unique over the whole tree.
        highest_field_id: largest id ever assigned, also to dropped and nested fields.
        partition_keys: column names, in partition path order.
        primary_keys: column names; empty on append tables.
        options: raw table options.
        comment: of the table, or None.
        time_ms: when this version was created [epoch ms].
        version: format version of the file; we write 3.
        extra: members of the JSON object that this version does not know, kept on rewriting.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    comment: str | None = None
    time_ms: int = 0
    version: int = CURRENT_VERSION
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.id, self.fields, self.partition_keys, self.primary_keys))

    @functools.cached_property
    def field_names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(field.name for field in self.fields)

    @functools.cached_property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary keys without the partition keys: the key inside one partition."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @functools.cached_property
    def bucket_keys(self) -> tuple[str, ...]:
        """Columns whose hash chooses the bucket; empty on append tables without `bucket-key`."""
        text = self.options.get("bucket-key", "")
        return tuple(text.split(",")) if text else self.trimmed_primary_keys

    @functools.cached_property
    def key_fields(self) -> tuple[DataField, ...]:
        """Fields of the trimmed primary key, in key order."""
        return tuple(self.field(name) for name in self.trimmed_primary_keys)

    @functools.cached_property
    def partition_fields(self) -> tuple[DataField, ...]:
        """Fields of the partition keys, in path order."""
        return tuple(self.field(name) for name in self.partition_keys)

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of a value batch."""
        return arrow_schema(self.fields)

    @property
    def num_buckets(self) -> int:
        """Option `bucket`: a count, -1 dynamic or unaware, -2 postpone.

        Raises:
            InvalidOptionError: the option is no integer.
        """
        return int(option_value(self.options, "bucket"))

    @functools.cached_property
    def _by_name(self) -> dict[str, DataField]:
        return {field.name: field for field in self.fields}

    def field(self, name: str) -> DataField:
        """The column of that name.

        Raises:
            NotFoundError: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFoundError(
                "no such column", column=name, columns=", ".join(self.field_names)
            ) from None

    def to_json(self) -> bytes:
        """The bytes of the schema file: indented UTF-8 JSON in Paimon's member order."""
        value: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(field) for field in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            value["comment"] = self.comment
        value["timeMillis"] = self.time_ms
        value.update(self.extra)
        return dump_object(value)

    @classmethod
    def from_json(cls, data: bytes) -> "TableSchema":
        """Read a schema file of any version; defaults of old versions become explicit options.

        Raises:
            CorruptDataError: the bytes are no schema.
            UnsupportedFeatureError: a column has a type this version does not know.
        """
        value = parse_object(data, "schema")
        try:
            version = int(value.pop("version", 1))
            return cls(
                id=int(value.pop("id")),
                fields=tuple(field_from_json(field) for field in value.pop("fields")),
                highest_field_id=int(value.pop("highestFieldId")),
                partition_keys=tuple(value.pop("partitionKeys")),
                primary_keys=tuple(value.pop("primaryKeys")),
                options=_options_of(value.pop("options"), version),
                comment=value.pop("comment", None),
                time_ms=int(value.pop("timeMillis", None) or 0),
                version=version,
                extra=value,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidRequestError) and type(error) is not InvalidRequestError:
                raise
            raise CorruptDataError("not a schema file", detail=repr(error)) from error


def new_schema(
    columns: Sequence[tuple[str, DataType] | DataField],
    *,
    primary_keys: Sequence[str] = (),
    partition_keys: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    now_ms: int = 0,
) -> TableSchema:
    """Schema 0 of a new table.

    Args:
        columns: name and type, or a field whose id is ignored; in column order.
        primary_keys: column names; these columns become NOT NULL.
        partition_keys: column names, in path order.
        options: raw table options.
        comment: of the table.
        now_ms: creation time [epoch ms]; 0: a catalog puts in its own when it makes the table.

    Raises:
        InvalidRequestError: no columns, a bad or repeated name, or keys that do not fit.
    """
    # Paimon numbers from 0; Iceberg engines refuse a field id of 0
    ids = itertools.count(int((options or {}).get(_ICEBERG, _DISABLED).lower() != _DISABLED))
    fields = []
    for column in columns:
        spec = column if isinstance(column, DataField) else None
        name, type_ = (spec.name, spec.type) if spec else column  # type: ignore[misc]
        check_column_name(name)
        if name in primary_keys:
            type_ = dataclasses.replace(type_, nullable=False)
        field = DataField(id=next(ids), name=name, type=number_type(type_, ids))
        if spec:
            field = dataclasses.replace(field, description=spec.description, default=spec.default)
        fields.append(field)
    schema = TableSchema(
        id=0,
        fields=tuple(fields),
        highest_field_id=next(ids) - 1,
        partition_keys=tuple(partition_keys),
        primary_keys=tuple(primary_keys),
        options=dict(options or {}),
        comment=comment,
        time_ms=now_ms,
    )
    check_keys(schema)
    return schema


def number_type(type_: DataType, ids: Iterator[int]) -> DataType:
    """The type with fresh ids for nested fields, numbered inside out as Paimon does (§2.3)."""
    match type_:
        case AtomicType():
            return type_
        case ArrayType() | MultisetType():
            return dataclasses.replace(type_, element=number_type(type_.element, ids))
        case MapType():
            key = number_type(type_.key, ids)
            return dataclasses.replace(type_, key=key, value=number_type(type_.value, ids))
        case RowType():
            fields = []
            for field in type_.fields:
                inner = number_type(field.type, ids)
                fields.append(dataclasses.replace(field, id=next(ids), type=inner))
            return dataclasses.replace(type_, fields=tuple(fields))


def check_column_name(name: str) -> None:
    """Refuse names that are empty or reserved by Paimon.

    Raises:
        InvalidRequestError: the name is refused.
    """
    if not name or name.isspace():
        raise InvalidRequestError("a column name must not be blank")
    if name in SYSTEM_FIELD_NAMES:
        raise InvalidRequestError(
            "a column with a system name cannot be exist in a schema",
            column=name,
            hint="rename the column",
        )
    if name.startswith(KEY_PREFIX):
        raise InvalidRequestError(
            f"a column name cannot start with `{KEY_PREFIX}`",
            column=name,
            hint="rename the column",
        )


def check_keys(schema: TableSchema) -> None:
    """Check names and keys of a whole schema against each other.

    Raises:
        InvalidRequestError: repeated names, keys that do not exist or do not fit.
    """
    if not schema.fields:
        raise InvalidRequestError("a table needs at least one column")
    _check_distinct("column", schema.field_names)
    for role, names in (
        ("primary key", schema.primary_keys),
        ("partition key", schema.partition_keys),
        ("bucket key", schema.bucket_keys),
    ):
        _check_distinct(role, names)
        for name in names:
            _check_key_column(schema, role, name)
    _check_primary_key(schema)
    for name in schema.bucket_keys:
        if name in schema.partition_keys:
            raise InvalidRequestError(
                f"Bucket keys {_listed(schema.bucket_keys)} should not in partition keys "
                f"{_listed(schema.partition_keys)}",
                column=name,
            )
        if schema.primary_keys and name not in schema.primary_keys:
            raise InvalidRequestError(
                f"Primary keys {_listed(schema.primary_keys)} should contains all bucket keys "
                f"{_listed(schema.bucket_keys)}",
                column=name,
            )


def _check_primary_key(schema: TableSchema) -> None:
    if not schema.primary_keys:
        return
    if not schema.trimmed_primary_keys:
        raise InvalidRequestError(
            f"Primary key constraint {_listed(schema.primary_keys)} should not be same with "
            f"partition fields {_listed(schema.partition_keys)}, this will result in only one "
            "record in a partition",
        )


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _check_key_column(schema: TableSchema, what: str, name: str) -> None:
    if name not in schema.field_names:
        raise InvalidRequestError(
            f"{what} is not a column", name=name, columns=", ".join(schema.field_names)
        )
    type_ = schema.field(name).type
    if not isinstance(type_, AtomicType):
        raise InvalidRequestError(
            f"{what} cannot have a nested type", name=name, type=type_name(type_)
        )


def _check_distinct(what: str, names: Sequence[str]) -> None:
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InvalidRequestError(f"{what} given twice", names=", ".join(sorted(repeated)))


def _options_of(raw: Mapping[str, str] | None, version: int) -> dict[str, str]:
    options = dict(raw or {})
    if version <= 1:
        options.setdefault("bucket", "1")
    if version < CURRENT_VERSION:
        options.setdefault("file.format", "orc")
    return options


# The schema files of a table: listing, reading, publishing the next.
#
# Source: FORMAT.md §2 and §11.5: a schema file is published like a snapshot, by create-if-absent,
# so of two concurrent changes one loses and must be applied again on top of the winner.
#
# Reads of every data file ask for its schema, so schemas are cached. Only a fast-forward of a
# branch gives an id another schema; `latest`, which lists the directory anyway, detects it by size
# and time of the files and drops the cached ones.


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
