# SPDX-License-Identifier: Apache-2.0
"""Schema changes as values, and the pure function that applies them.

Source: SEMANTICS.md §H.1, §H.2, §H.5 and FORMAT.md §2.3. A column is named by its name, or by a
path into a ROW (`("address", "city")`); `element` steps into an ARRAY and `value` into a MAP.
Options are raw texts here.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from storage.errors import InvalidRequestError, InvalidSchemaChangeError
from storage.format.metadata.schema import TableSchema, check_column_name, check_keys, number_type
from storage.format.types.casts import can_cast
from storage.format.types.default_values import default_of
from storage.format.types.types import (
    ArrayType,
    ColumnExistsError,
    ColumnNotFoundError,
    ColumnPath,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    as_path,
    edit_siblings,
    edit_type,
    path_text,
    type_name,
)
from storage.options.options import find_option, option_value


@dataclasses.dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a nullable column, at the end unless placed.

    Attributes:
        name: of the new column; with a path, the last step is the new name.
        type: must be nullable; ids inside it are reassigned.
    """

    name: ColumnPath
    type: DataType
    comment: str | None = None
    after: str | None = None
    first: bool = False
    before: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateType:
    """Change a column's type; it stays as nullable as it was.

    A path may end with `element` or `value`, for what an ARRAY or a MAP holds.
    """

    name: ColumnPath
    type: DataType


@dataclasses.dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a column; its id is never used again."""

    name: ColumnPath


@dataclasses.dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column; options that name it follow."""

    name: ColumnPath
    new_name: str


@dataclasses.dataclass(frozen=True, slots=True)
class MoveColumn:
    """Place a column behind or in front of a sibling, before all of them, or (none given) last."""

    name: ColumnPath
    after: str | None = None
    first: bool = False
    before: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateNullability:
    """Allow nulls, or forbid them where option `alter-column-null-to-not-null.disabled` is off."""

    name: ColumnPath
    nullable: bool


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateComment:
    """Set or remove (None) a column's description."""

    name: ColumnPath
    comment: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateDefault:
    """Set or remove (None) the text of a column's default value for later writes."""

    name: ColumnPath
    default: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SetOption:
    """Set a table option."""

    key: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class RemoveOption:
    """Reset a table option to its default."""

    key: str


@dataclasses.dataclass(frozen=True, slots=True)
class UpdateTableComment:
    """Set or remove (None) the table's comment."""

    comment: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class DropPrimaryKey:
    """Make an append table of a primary-key table that has no snapshot yet."""


SchemaChange = (
    AddColumn
    | UpdateType
    | DropColumn
    | RenameColumn
    | MoveColumn
    | UpdateNullability
    | UpdateComment
    | UpdateDefault
    | SetOption
    | RemoveOption
    | UpdateTableComment
    | DropPrimaryKey
)


def evolve(
    schema: TableSchema,
    changes: Sequence[SchemaChange],
    now_ms: int,
    *,
    has_snapshots: bool = True,
) -> TableSchema:
    """The next schema of a table: id + 1, with all changes applied in order.

    Raises:
        InvalidSchemaChangeError: a change is not allowed; names column or option.
    """
    for change in changes:
        schema = _apply(schema, change, has_snapshots)
    check_option_references(schema)
    try:
        check_keys(schema)
    except InvalidRequestError as error:
        raise InvalidSchemaChangeError(
            "the changed schema would not be valid", detail=str(error)
        ) from error
    return dataclasses.replace(schema, id=schema.id + 1, time_ms=now_ms, version=3)


def _apply(  # noqa: C901 - one line per kind of change
    schema: TableSchema, change: SchemaChange, has_snapshots: bool
) -> TableSchema:
    match change:
        case AddColumn():
            return _add(schema, change)
        case UpdateType():
            return _update_type(schema, change)
        case DropColumn():
            return _drop(schema, change)
        case RenameColumn():
            return _rename(schema, change)
        case MoveColumn():
            return _move(schema, change)
        case UpdateNullability():
            return _update_nullability(schema, change)
        case UpdateComment(name=name, comment=comment):
            path = as_path(name)
            return _edit_field(schema, path, lambda f: dataclasses.replace(f, description=comment))
        case UpdateDefault():
            return _update_default(schema, change)
        case DropPrimaryKey():
            return _drop_primary_key(schema, has_snapshots)
        case SetOption(key="primary-key" | "partition"):
            return _set_keys(schema, change, has_snapshots)
        case SetOption(key=key, value=value):
            options = set_option(schema.options, key, value, has_snapshots=has_snapshots)
            return dataclasses.replace(schema, options=options)
        case RemoveOption(key=key):
            options = removed_option(schema.options, key, has_snapshots=has_snapshots)
            return dataclasses.replace(schema, options=options)
        case UpdateTableComment(comment=comment):
            return dataclasses.replace(schema, comment=comment)


def _add(schema: TableSchema, change: AddColumn) -> TableSchema:
    path = as_path(change.name)
    _check_name(path[-1])
    if not change.type.nullable:
        raise InvalidSchemaChangeError(
            "cannot specify NOT NULL for a column added to a table",
            column=path_text(path),
            hint="add it nullable: old rows have no value for it",
        )
    ids = itertools.count(schema.highest_field_id + 1)
    field = _new_field(change, path[-1], ids)
    change = _before_partition(schema, change, path)

    def add(siblings: tuple[DataField, ...]) -> tuple[DataField, ...]:
        _refuse_taken(siblings, path)
        return _inserted(siblings, field, change)

    fields = edit_siblings(schema.fields, path, add)
    return dataclasses.replace(schema, fields=fields, highest_field_id=next(ids) - 1)


def _before_partition(schema: TableSchema, change: AddColumn, path: tuple[str, ...]) -> AddColumn:
    """With option `add-column-before-partition`, a column without a position precedes those."""
    placed = change.first or change.after is not None or change.before is not None
    enabled = option_value(schema.options, "add-column-before-partition")
    if placed or len(path) > 1 or not enabled:
        return change
    keys = (name for name in schema.field_names if name in schema.partition_keys)
    return dataclasses.replace(change, before=next(keys, None))


def _new_field(change: AddColumn, name: str, ids: Iterator[int]) -> DataField:
    field_id = next(ids)
    type_ = number_type(change.type, ids)
    return DataField(id=field_id, name=name, type=type_, description=change.comment)


def _update_type(schema: TableSchema, change: UpdateType) -> TableSchema:
    path = as_path(change.name)
    if path[0] in (*schema.primary_keys, *schema.partition_keys):
        raise InvalidSchemaChangeError(
            "the type of a primary key or partition key cannot change", column=path_text(path)
        )
    explicit = not option_value(schema.options, "disable-explicit-type-casting")

    def update(type_: DataType) -> DataType:
        target = dataclasses.replace(change.type, nullable=type_.nullable)
        if target != type_ and not can_cast(type_, target, explicit=explicit):
            raise InvalidSchemaChangeError(
                "column cannot be converted to this type without losing information",
                hint="set `disable-explicit-type-casting` to false, or add a column"
                if can_cast(type_, target)
                else "add a column of the type, and fill it",
                column=path_text(path),
                type=type_name(type_),
                wanted=type_name(target),
            )
        return target

    changed = dataclasses.replace(schema, fields=edit_type(schema.fields, path, update))
    _check_default(changed.field(path[0]))
    return changed


def type_changes(
    path: tuple[str, ...], old: DataType, new: DataType, *, inside: bool = False
) -> Iterator[SchemaChange]:
    """The changes after which a column has another type, also inside of rows, arrays and maps.

    Fields of rows are known by their names: missing ones are dropped, others are added. Whether
    the column itself may be null stays.

    Raises:
        InvalidSchemaChangeError: fields of a row would change their order.
    """
    if isinstance(old, RowType) and isinstance(new, RowType):
        yield from _row_changes(path, old, new)
    elif (isinstance(old, ArrayType) and isinstance(new, ArrayType)) or (
        isinstance(old, MultisetType) and isinstance(new, MultisetType)
    ):
        yield from type_changes((*path, "element"), old.element, new.element, inside=True)
    elif (
        isinstance(old, MapType)
        and isinstance(new, MapType)
        and type_name(old.key) == type_name(new.key)
    ):
        yield from type_changes((*path, "value"), old.value, new.value, inside=True)
    elif dataclasses.replace(new, nullable=old.nullable) != old or not inside:
        yield UpdateType(path, new)
    if inside and old.nullable != new.nullable:
        yield UpdateNullability(path, new.nullable)


def _row_changes(path: tuple[str, ...], old: RowType, new: RowType) -> Iterator[SchemaChange]:
    present = {field.name: field for field in old.fields}
    names = [field.name for field in new.fields]
    kept_names = [name for name in names if name in present]
    if kept_names != [name for name in present if name in names]:
        raise InvalidSchemaChangeError(
            f"Order of existing fields in column {path_text(path)} must be kept the same.",
            column=path_text(path),
        )
    for name in present:
        if name not in names:
            yield DropColumn((*path, name))
    for place, field in enumerate(new.fields):
        inner, same = (*path, field.name), present.get(field.name)
        if same is None:
            after = names[place - 1] if place else None
            first = not place
            yield AddColumn(inner, field.type, field.description, after=after, first=first)
            continue
        if same.description != field.description:
            yield UpdateComment(inner, field.description)
        yield from type_changes(inner, same.type, field.type, inside=True)


def _update_default(schema: TableSchema, change: UpdateDefault) -> TableSchema:
    path = as_path(change.name)

    def update(field: DataField) -> DataField:
        changed = dataclasses.replace(field, default=change.default)
        _check_default(changed)
        return changed

    return _edit_field(schema, path, update)


def _check_default(field: DataField) -> None:
    if field.default is None:
        return
    try:
        default_of(field.default, field.type, field.name)
    except InvalidRequestError as error:
        raise InvalidSchemaChangeError(
            "unsupported default value for the type of the column",
            detail=str(error),
            column=field.name,
        ) from error


def _set_keys(schema: TableSchema, change: SetOption, has_snapshots: bool) -> TableSchema:
    """Keys that are given as an option, which a table without snapshots takes as its own."""
    names = tuple(name.strip() for name in change.value.split(","))
    is_primary = change.key == "primary-key"
    present = schema.primary_keys if is_primary else schema.partition_keys
    if names == present:
        return schema
    set_option(schema.options, change.key, change.value, has_snapshots=has_snapshots)
    if present:
        word = change.key.replace("-", " ")
        raise InvalidSchemaChangeError(
            f"Cannot define {word} on DDL and table options at the same time.",
            hint="make a new table with the other keys, and copy the rows",
            option=change.key,
        )
    if not is_primary:
        return dataclasses.replace(schema, partition_keys=names)
    fields = tuple(
        dataclasses.replace(field, type=dataclasses.replace(field.type, nullable=False))
        if field.name in names
        else field
        for field in schema.fields
    )
    return dataclasses.replace(schema, fields=fields, primary_keys=names)


def _drop_primary_key(schema: TableSchema, has_snapshots: bool) -> TableSchema:
    if has_snapshots:
        raise InvalidSchemaChangeError(
            "cannot drop primary keys on a non-empty table",
            hint="make a new table without primary key and copy the rows",
        )
    return dataclasses.replace(schema, primary_keys=())


def _drop(schema: TableSchema, change: DropColumn) -> TableSchema:
    path = as_path(change.name)
    if len(path) == 1 and path[0] in (*schema.primary_keys, *schema.partition_keys):
        raise InvalidSchemaChangeError(
            "a primary key or partition key cannot be dropped", column=path_text(path)
        )

    def drop(siblings: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = _index(siblings, path)
        if len(siblings) == 1:
            raise InvalidSchemaChangeError(
                "the last column cannot be dropped", column=path_text(path)
            )
        return siblings[:index] + siblings[index + 1 :]

    return dataclasses.replace(schema, fields=edit_siblings(schema.fields, path, drop))


def _rename(schema: TableSchema, change: RenameColumn) -> TableSchema:
    path = as_path(change.name)
    _check_name(change.new_name)
    if len(path) == 1 and path[0] in schema.partition_keys:
        raise InvalidSchemaChangeError("cannot rename partition column", column=path_text(path))

    def rename(siblings: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = _index(siblings, path)
        _refuse_taken(siblings, (*path[:-1], change.new_name))
        field = dataclasses.replace(siblings[index], name=change.new_name)
        return (*siblings[:index], field, *siblings[index + 1 :])

    fields = edit_siblings(schema.fields, path, rename)
    if len(path) > 1:
        return dataclasses.replace(schema, fields=fields)
    old, new = path[0], change.new_name
    return dataclasses.replace(
        schema,
        fields=fields,
        primary_keys=tuple(new if name == old else name for name in schema.primary_keys),
        options=renamed_in_options(schema.options, old, new),
    )


def _move(schema: TableSchema, change: MoveColumn) -> TableSchema:
    path = as_path(change.name)

    def move(siblings: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = _index(siblings, path)
        remaining = siblings[:index] + siblings[index + 1 :]
        return _inserted(remaining, siblings[index], change)

    return dataclasses.replace(schema, fields=edit_siblings(schema.fields, path, move))


def _update_nullability(schema: TableSchema, change: UpdateNullability) -> TableSchema:
    path = as_path(change.name)
    if change.nullable and path[0] in schema.primary_keys:
        raise InvalidSchemaChangeError("a primary key cannot be null", column=path_text(path))
    fixed = option_value(schema.options, "alter-column-null-to-not-null.disabled")

    def update(type_: DataType) -> DataType:
        if fixed and type_.nullable and not change.nullable:
            raise InvalidSchemaChangeError(
                "a nullable column cannot become NOT NULL",
                column=path_text(path),
                hint="set `alter-column-null-to-not-null.disabled` to false if no row is null",
            )
        return dataclasses.replace(type_, nullable=change.nullable)

    return dataclasses.replace(schema, fields=edit_type(schema.fields, path, update))


def _edit_field(
    schema: TableSchema, path: tuple[str, ...], edit: Callable[[DataField], DataField]
) -> TableSchema:
    def edited(siblings: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = _index(siblings, path)
        return (*siblings[:index], edit(siblings[index]), *siblings[index + 1 :])

    return dataclasses.replace(schema, fields=edit_siblings(schema.fields, path, edited))


def _inserted(
    siblings: tuple[DataField, ...], field: DataField, place: AddColumn | MoveColumn
) -> tuple[DataField, ...]:
    if place.first + (place.after is not None) + (place.before is not None) > 1:
        raise InvalidSchemaChangeError(
            "only one of FIRST, BEFORE and AFTER can place a column", column=field.name
        )
    if place.first:
        return (field, *siblings)
    index = len(siblings)
    if place.after is not None:
        index = _index(siblings, (place.after,)) + 1
    elif place.before is not None:
        index = _index(siblings, (place.before,))
    return (*siblings[:index], field, *siblings[index:])


def _index(siblings: Sequence[DataField], path: tuple[str, ...]) -> int:
    for index, field in enumerate(siblings):
        if field.name == path[-1]:
            return index
    raise ColumnNotFoundError(
        "no such column",
        column=path_text(path),
        columns=", ".join(field.name for field in siblings),
    )


def _refuse_taken(siblings: Sequence[DataField], path: tuple[str, ...]) -> None:
    if any(field.name == path[-1] for field in siblings):
        raise ColumnExistsError("the column exists already", column=path_text(path))


def _check_name(name: str) -> None:
    try:
        check_column_name(name)
    except InvalidRequestError as error:
        raise InvalidSchemaChangeError(
            "invalid column name", column=name, detail=str(error)
        ) from error


_FIXED = frozenset(
    {
        "bucket-key",
        "bucket-function.type",
        "merge-engine",
        "sequence.snapshot-ordering",
        "rowkind.field",
        "primary-key",
        "partition",
        "primary-key.nullable",
        "dynamic-bucket.initial-buckets",
        "aggregation.remove-record-on-delete",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "force-lookup",
        "data-file.path-directory",
        "row-tracking.enabled",
        "data-evolution.enabled",
        "index-file-in-data-file-dir",
        "pk-clustering-override",
    }
)
"""Fixed once the table has snapshots."""

_FIXED_MESSAGE = "change '{}' is not supported yet."
"""Paimon's message, full stop included."""

_NEVER_OFF = frozenset({"ignore-delete", "ignore-update-before"})
_COLUMN_LISTS = ("bucket-key", "sequence.field", "rowkind.field")
_COLUMN_NAMES = {"sequence.field": "Sequence field:", "rowkind.field": "Rowkind field:"}
_FIELDS, _GROUP = "fields.", ".sequence-group"


def set_option(
    options: Mapping[str, str], key: str, value: str, *, has_snapshots: bool
) -> dict[str, str]:
    """The options with one set.

    Raises:
        InvalidSchemaChangeError: the option is fixed, or fixed once there is data.
    """
    if options.get(key) != value:
        _check_changeable(options, key, value, has_snapshots)
    return {**options, key: value}


def removed_option(options: Mapping[str, str], key: str, *, has_snapshots: bool) -> dict[str, str]:
    """The options without one; no error when it was not set.

    Raises:
        InvalidSchemaChangeError: the option is fixed, or fixed once there is data.
    """
    if key in options:
        _check_changeable(options, key, None, has_snapshots)
    return {name: value for name, value in options.items() if name != key}


def renamed_in_options(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options with a column's new name wherever they name the column."""
    renamed = {}
    for key, value in options.items():
        if key in _COLUMN_LISTS or key.endswith(_GROUP):
            value = _renamed_list(value, old, new)
        if key.startswith(_FIELDS + old + "."):
            key = _FIELDS + new + key.removeprefix(_FIELDS + old)
        elif key.startswith(_FIELDS) and key.endswith(_GROUP):
            columns = key.removeprefix(_FIELDS).removesuffix(_GROUP)
            key = _FIELDS + _renamed_list(columns, old, new) + _GROUP
        renamed[key] = value
    return renamed


def check_option_references(schema: TableSchema) -> None:
    """Check that columns which options rely on still exist.

    Raises:
        InvalidSchemaChangeError: names option and column.
    """
    for key, value in schema.options.items():
        columns = value if key in _COLUMN_LISTS else ""
        if key.startswith(_FIELDS) and key.endswith(_GROUP):
            columns = f"{key.removeprefix(_FIELDS).removesuffix(_GROUP)},{value}"
        for column in filter(None, (part.strip() for part in columns.split(","))):
            if column not in schema.field_names:
                label = _COLUMN_NAMES.get(key, "Field")
                raise InvalidSchemaChangeError(
                    f"{label} '{column}' can not be found in table schema",
                    key=key,
                    column=column,
                )


def _check_changeable(
    options: Mapping[str, str], key: str, value: str | None, has_snapshots: bool
) -> None:
    if key == "type":
        raise _change_error(_FIXED_MESSAGE.format(key), key, "the kind of a table never changes")
    if key == "path":
        raise _change_error(_FIXED_MESSAGE.format(key), key, "a table stays where it is")
    if not has_snapshots:
        return
    if key in _FIXED or (key.startswith("blob") and key.endswith("-field")):
        raise _change_error(_FIXED_MESSAGE.format(key), key, "it is fixed once the table has data")
    if key == "bucket":
        _check_bucket(options.get(key, "-1"), value)
    row = find_option(key)
    key = key if row is None else row.key  # an alias is the same option
    if key in _NEVER_OFF and option_value(options, key):
        message = f"cannot change {key} from true to false"
        raise _change_error(message, key, "rows were left out while it was on")
    modifiable = option_value(options, "deletion-vectors.modifiable")
    if key == "deletion-vectors.enabled" and not modifiable:
        message = "cannot change deletion vectors mode"
        raise _change_error(message, key, "it needs `deletion-vectors.modifiable` to be true")


def _check_bucket(old: str, new: str | None) -> None:
    if new is None:
        raise _change_error("cannot reset bucket", "bucket", "the table has data")
    from_dynamic = _is_dynamic(old)
    if from_dynamic != _is_dynamic(new):
        message = (
            "cannot change bucket when it is -1" if from_dynamic else "cannot change bucket to -1"
        )
        raise _change_error(
            message, "bucket", "a table with data cannot turn from or to dynamic buckets"
        )


def _is_dynamic(text: str) -> bool:
    return bool(option_value({"bucket": text}, "bucket") == -1)


def _change_error(message: str, key: str, reason: str) -> InvalidSchemaChangeError:
    return InvalidSchemaChangeError(message, detail=reason, key=key)


def _renamed_list(text: str, old: str, new: str) -> str:
    return ",".join(new if part.strip() == old else part for part in text.split(","))
