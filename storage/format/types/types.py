# SPDX-License-Identifier: Apache-2.0
"""Paimon's logical types as frozen values, row kinds and the names of system columns.

Source: FORMAT.md §2.2 and §7.1. What the types look like as text is in `type_text`, how they map
to Arrow in `arrow_types`; this module only says what they are.
"""

import dataclasses
import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    InvalidSchemaChangeError,
    NotFoundError,
    UnsupportedFeatureError,
)

_ELEMENTS = 536_870_911
_PER_FIELD = 1024


def value_id(owner: int, depth: int) -> int:
    """Id of an array's element or a map's value.

    Args:
        owner: id of the enclosing column or ROW field.
        depth: 1 directly inside it, 2 in a collection inside a collection, and so on.
    """
    return _ELEMENTS + _PER_FIELD * owner + depth


def key_id(owner: int, depth: int) -> int:
    """Id of a map's key or a multiset's element; arguments as in `value_id`."""
    return _ELEMENTS - _PER_FIELD * owner - depth


KEY_PREFIX = "_KEY_"
SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
KEY_FIELD_ID_START = 1_073_741_823
SEQUENCE_NUMBER_FIELD_ID = 2_147_483_646
VALUE_KIND_FIELD_ID = 2_147_483_645
SYSTEM_FIELD_NAMES = frozenset({SEQUENCE_NUMBER, VALUE_KIND, "_LEVEL", "rowkind", "_ROW_ID"})


class RowKind(enum.IntEnum):
    """The kind of a row, as stored in `_VALUE_KIND`."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """`+I`, `-U`, `+U` or `-D`."""
        return ("+I", "-U", "+U", "-D")[self.value]

    @property
    def retracts(self) -> bool:
        """Whether this kind takes a row away."""
        return self in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


class TypeRoot(enum.Enum):
    """Families of atomic types; the value is the word in the type text."""

    __hash__ = object.__hash__  # members are compared by identity, and are keys in every batch
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DECIMAL = "DECIMAL"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"


MAX_LENGTH = 2_147_483_647


@dataclasses.dataclass(frozen=True, slots=True)
class AtomicType:
    """A scalar type.

    Attributes:
        length: of CHAR/VARCHAR/BINARY/VARBINARY [characters or bytes]; STRING and BYTES are
            VARCHAR and VARBINARY of `MAX_LENGTH`. 0 for other families.
        precision: of DECIMAL, TIME, TIMESTAMP, TIMESTAMP_LTZ [digits]; 0 otherwise.
        scale: of DECIMAL; 0 otherwise.
    """

    root: TypeRoot
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of one element type."""

    element: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class MultisetType:
    """A bag of elements; stored as MAP<element, INT NOT NULL>."""

    element: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class MapType:
    """A map."""

    key: "DataType"
    value: "DataType"
    nullable: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class RowType:
    """A nested row."""

    fields: tuple["DataField", ...]
    nullable: bool = True


DataType = AtomicType | ArrayType | MultisetType | MapType | RowType


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A named, numbered column.

    Attributes:
        id: unique over the whole schema tree, never reused.
        extra: further members of its JSON object as JSON texts by name, kept for rewrites; no
            part of what makes columns equal.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None
    extra: tuple[tuple[str, str], ...] = dataclasses.field(default=(), compare=False)


# Paths into nested columns, and rebuilding a field tree around one changed place. Pure.


ColumnPath = str | tuple[str, ...]
"""A column's name, or the steps to a nested field: field names, `element` for what an ARRAY holds,
`value` for what a MAP holds."""

Siblings = tuple[DataField, ...]


class ColumnExistsError(InvalidSchemaChangeError, AlreadyExistsError):
    """A column of this name is there."""


class ColumnNotFoundError(InvalidSchemaChangeError, NotFoundError):
    """There is no column of this name."""


def as_path(name: ColumnPath) -> tuple[str, ...]:
    """The steps of a path, at least one.

    Raises:
        InvalidSchemaChangeError: the path is empty.
    """
    path = (name,) if isinstance(name, str) else name
    if not path:
        raise InvalidSchemaChangeError("a column path needs at least one step")
    return path


def path_text(path: tuple[str, ...]) -> str:
    """The path for messages."""
    return ".".join(path)


def edit_siblings(
    fields: Siblings, path: tuple[str, ...], edit: Callable[[Siblings], Siblings]
) -> Siblings:
    """The fields with those that hold the last step of `path` replaced by `edit`'s result.

    All steps but the last must exist; `edit` gets the fields among which the last one is, or
    will be.

    Raises:
        InvalidSchemaChangeError: a step leads nowhere, or `edit` refuses.
    """
    if len(path) == 1:
        return edit(fields)

    def edit_row(type_: DataType) -> DataType:
        if not isinstance(type_, RowType):
            raise InvalidSchemaChangeError(
                "the path does not name a field of a ROW", column=path_text(path)
            )
        return dataclasses.replace(type_, fields=edit(type_.fields))

    return edit_type(fields, path[:-1], edit_row)


def edit_type(
    fields: Siblings, path: tuple[str, ...], edit: Callable[[DataType], DataType]
) -> Siblings:
    """The fields with the type that `path` leads to replaced by `edit`'s result.

    The last step may also be `element` or `value`, for what an ARRAY or a MAP holds.

    Raises:
        InvalidSchemaChangeError: a step leads nowhere, or `edit` refuses.
    """
    return _fields_edited(fields, path, 0, edit)


def _fields_edited(
    fields: Siblings, path: tuple[str, ...], depth: int, edit: Callable[[DataType], DataType]
) -> Siblings:
    for index, field in enumerate(fields):
        if field.name == path[depth]:
            type_ = _type_edited(field.type, path, depth + 1, edit)
            changed = dataclasses.replace(field, type=type_)
            return (*fields[:index], changed, *fields[index + 1 :])
    raise ColumnNotFoundError("no such column", column=path_text(path[: depth + 1]))


def _type_edited(
    type_: DataType, path: tuple[str, ...], depth: int, edit: Callable[[DataType], DataType]
) -> DataType:
    if depth == len(path):
        return edit(type_)
    match type_:
        case RowType():
            fields = _fields_edited(type_.fields, path, depth, edit)
            return dataclasses.replace(type_, fields=fields)
        case ArrayType() if path[depth] == "element":
            element = _type_edited(type_.element, path, depth + 1, edit)
            return dataclasses.replace(type_, element=element)
        case MapType() if path[depth] == "value":
            value = _type_edited(type_.value, path, depth + 1, edit)
            return dataclasses.replace(type_, value=value)
    raise ColumnNotFoundError("no such column", column=path_text(path[: depth + 1]))


# Types and fields as text, in schema files and in messages.
#
# Source: FORMAT.md §2.1 (DataField) and §2.2 (types). An atomic type is a string such as
# `DECIMAL(10, 2) NOT NULL`, a constructed type is an object with a `type` member; people write it
# as SQL does, `ARRAY<INT>`. This module depends neither on Arrow nor on files.


_NULL = r"(?: \s* (?P<null> NOT \s+ NULL | NULL ) \b )?"
_ATOMIC = re.compile(
    r"""
    \s* (?P<word> [A-Z_]+ (?: \s+ PRECISION \b )? )
    (?: \s* \( \s* (?P<first> \d+ ) \s* (?: , \s* (?P<second> \d+ ) \s* )? \) )?
    (?: \s* (?P<zone> WITH (?: \s+ LOCAL )? \s+ TIME \s+ ZONE | WITHOUT \s+ TIME \s+ ZONE ) \b )?
    """
    + _NULL,
    re.IGNORECASE | re.VERBOSE,
)
_NESTED = re.compile(
    r"\s* (?P<word> ARRAY | MULTISET | MAP | ROW ) \s* (?P<open> [<(] )", re.IGNORECASE | re.VERBOSE
)
_SUFFIX = re.compile(r"\s+ (?P<word> ARRAY | MULTISET ) \b" + _NULL, re.IGNORECASE | re.VERBOSE)
_NULLABILITY = re.compile(_NULL, re.IGNORECASE | re.VERBOSE)
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)(?=\s))")
_COMMENT = re.compile(r"\s*COMMENT\s*'((?:[^']|'')*)'", re.IGNORECASE)
_CLOSING = {"<": ">", "(": ")"}
_MOST_NESTED = 100
_SYNONYMS = {"INTEGER": "INT", "DOUBLE PRECISION": "DOUBLE", "NUMERIC": "DECIMAL", "DEC": "DECIMAL"}
_WORDS = {root.value: root for root in TypeRoot}
_UNBOUNDED = ("STRING", "BYTES")
_LENGTH_ROOTS = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_DEFAULT_PRECISION = {TypeRoot.TIME: 0, TypeRoot.TIMESTAMP: 6, TypeRoot.TIMESTAMP_LTZ: 6}
_NEWER_TYPES = frozenset({"VARIANT", "BLOB", "GEOMETRY", "GEOGRAPHY", "VECTOR"})
_MAX_DECIMAL_PRECISION = 38
_MAX_TIME_PRECISION = 9


def parse_type(value: str | Mapping[str, Any]) -> DataType:
    """The type that a text, or a schema file's `type` member, stands for.

    Args:
        value: text of a type such as `INT NOT NULL`, `MAP<INT, ARRAY<STRING>>` or
            `ROW<a INT, b STRING COMMENT 'x'>`, or the object of a constructed type. Keywords in
            any case, white space is free; omitted parameters get Paimon's defaults. Ids of the
            fields of a ROW in a text are placeholders (their position).

    Raises:
        InvalidRequestError: the text is no type, or a parameter is out of range.
        UnsupportedFeatureError: a type of newer Paimon versions (VARIANT, BLOB ...), or one with
            a time zone in each value.
    """
    return _parse_text(value) if isinstance(value, str) else _parse_object(value)


def type_to_json(type_: DataType) -> str | dict[str, Any]:
    """The type as written to a schema file; `parse_type` reads it back equal."""
    match type_:
        case AtomicType():
            return _atomic_text(type_) + _not_null(type_)
        case ArrayType(element=element):
            return {"type": "ARRAY" + _not_null(type_), "element": type_to_json(element)}
        case MultisetType(element=element):
            return {"type": "MULTISET" + _not_null(type_), "element": type_to_json(element)}
        case MapType(key=key, value=value):
            return {
                "type": "MAP" + _not_null(type_),
                "key": type_to_json(key),
                "value": type_to_json(value),
            }
        case RowType(fields=fields):
            return {
                "type": "ROW" + _not_null(type_),
                "fields": [field_to_json(field) for field in fields],
            }


def type_name(type_: DataType) -> str:
    """One line of SQL for messages, e.g. ``MAP<INT NOT NULL, ARRAY<STRING>>``."""
    return _sql(type_) + _not_null(type_)


_FIELD_KEYS = frozenset({"id", "name", "type", "description", "defaultValue"})


def field_from_json(value: Mapping[str, Any]) -> DataField:
    """A column from its JSON object; keys other than Paimon's are kept as they are.

    Raises:
        InvalidRequestError: a required key is absent or of the wrong type.
        UnsupportedFeatureError: as `parse_type`.
    """
    try:
        field_id, name, type_ = value["id"], value["name"], value["type"]
    except (KeyError, TypeError) as error:
        raise InvalidRequestError("field lacks `id`, `name` or `type`", field=value) from error
    if not isinstance(field_id, int) or not isinstance(name, str):
        raise InvalidRequestError("field has an `id` or `name` of the wrong type", field=value)
    return DataField(
        id=field_id,
        name=name,
        type=parse_type(type_),
        description=value.get("description"),
        default=value.get("defaultValue"),
        extra=tuple(
            (key, json.dumps(member, ensure_ascii=False))
            for key, member in value.items()
            if key not in _FIELD_KEYS
        ),
    )


def field_to_json(field: DataField) -> dict[str, Any]:
    """The JSON object of a column; absent parts are left out, never null (FORMAT.md §2.1)."""
    value: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        value["description"] = field.description
    if field.default is not None:
        value["defaultValue"] = field.default
    value.update((key, json.loads(text)) for key, text in field.extra)
    return value


def _not_null(type_: DataType) -> str:
    return "" if type_.nullable else " NOT NULL"


def _atomic_text(type_: AtomicType) -> str:
    root = type_.root
    if root is TypeRoot.VARCHAR and type_.length == MAX_LENGTH:
        return "STRING"
    if root is TypeRoot.VARBINARY and type_.length == MAX_LENGTH:
        return "BYTES"
    if root in _LENGTH_ROOTS:
        return f"{root.value}({type_.length})"
    if root is TypeRoot.DECIMAL:
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if root is TypeRoot.TIMESTAMP_LTZ:
        return f"TIMESTAMP({type_.precision}) WITH LOCAL TIME ZONE"
    if root in _DEFAULT_PRECISION:
        return f"{root.value}({type_.precision})"
    return root.value


def _sql(type_: DataType) -> str:
    match type_:
        case AtomicType():
            return _atomic_text(type_)
        case ArrayType(element=element):
            return f"ARRAY<{type_name(element)}>"
        case MultisetType(element=element):
            return f"MULTISET<{type_name(element)}>"
        case MapType(key=key, value=value):
            return f"MAP<{type_name(key)}, {type_name(value)}>"
        case RowType(fields=fields):
            return f"ROW<{', '.join(_field_sql(field) for field in fields)}>"


def _field_sql(field: DataField) -> str:
    name = field.name.replace("`", "``")
    text = f"`{name}` {type_name(field.type)}"
    if field.description is not None:
        comment = field.description.replace("'", "''")
        text += f" COMMENT '{comment}'"
    return text


def _parse_object(value: Mapping[str, Any]) -> DataType:
    text = value.get("type")
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError("a type must be a string or an object with `type`", found=value)
    word = text.split()[0].upper()
    nullable = "NOT NULL" not in text.upper()
    if word in _NEWER_TYPES:
        raise _newer_type(word)
    try:
        match word:
            case "ARRAY":
                return ArrayType(parse_type(value["element"]), nullable)
            case "MULTISET":
                return MultisetType(parse_type(value["element"]), nullable)
            case "MAP":
                return MapType(parse_type(value["key"]), parse_type(value["value"]), nullable)
            case "ROW":
                return RowType(tuple(field_from_json(f) for f in value["fields"]), nullable)
            case _:
                raise InvalidRequestError("unknown nested type", type=text)
    except KeyError as error:
        raise InvalidRequestError("a field of a nested type is missing", member=error) from error


def _parse_text(text: str) -> DataType:
    parser = _TypeParser(text)
    type_ = parser.type()
    if text[parser.at :].strip():
        raise parser.error()
    return type_


class _TypeParser:
    """Parses a type from a text; `at` is the current offset."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self.at = 0

    def type(self) -> DataType:
        """The type that begins here, with its nullability."""
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise self.error()
        nested = _NESTED.match(self._text, self.at)
        type_ = self._atomic() if nested is None else self._nested(nested)
        while (suffix := _SUFFIX.match(self._text, self.at)) is not None:
            self.at = suffix.end()
            kind = ArrayType if suffix["word"].upper() == "ARRAY" else MultisetType
            type_ = kind(type_, not _says_not_null(suffix["null"]))
        self._depth -= 1
        return type_

    def error(self) -> InvalidRequestError:
        """The error for a text that is no type."""
        return InvalidRequestError(
            "not a type",
            hint="write it like INT NOT NULL, DECIMAL(10, 2), ARRAY<STRING>, MAP<INT, STRING> or "
            "ROW<a INT, b STRING>",
            text=self._text,
            at=self._text[self.at :].strip() or "the end",
        )

    def _atomic(self) -> AtomicType:
        match = _ATOMIC.match(self._text, self.at)
        if match is None:
            raise self.error()
        word = " ".join(match["word"].upper().split())
        numbers = [int(match[group]) for group in ("first", "second") if match[group] is not None]
        nullable = not _says_not_null(match["null"])
        word = _SYNONYMS.get(word, word)
        if word not in _WORDS and word not in _NEWER_TYPES and word not in _UNBOUNDED:
            raise self.error()
        self.at = match.end()
        return _atomic(word, numbers, match["zone"], nullable, self._text)

    def _nested(self, head: re.Match[str]) -> DataType:
        word, closing = head["word"].upper(), _CLOSING[head["open"]]
        if closing == ")" and word != "ROW":
            raise self.error()
        self.at = head.end()
        if word == "ROW":
            fields: list[DataField] = []
            if not self._take(closing):
                fields.append(self._field(0))
                while self._take(","):
                    fields.append(self._field(len(fields)))
                self._need(closing)
            return RowType(tuple(fields), self._nullable())
        first = self.type()
        if word == "MAP":
            self._need(",")
            value = self.type()
            self._need(closing)
            return MapType(first, value, self._nullable())
        self._need(closing)
        kind = ArrayType if word == "ARRAY" else MultisetType
        return kind(first, self._nullable())

    def _field(self, position: int) -> DataField:
        """A field of a ROW; its id is a placeholder, as in `type_from_arrow`."""
        match = _NAME.match(self._text, self.at)
        if match is None:
            raise self.error()
        self.at = match.end()
        quoted, plain = match.groups()
        type_ = self.type()
        comment = _COMMENT.match(self._text, self.at)
        if comment is not None:
            self.at = comment.end()
        return DataField(
            id=position,
            name=plain if quoted is None else quoted.replace("``", "`"),
            type=type_,
            description=None if comment is None else comment[1].replace("''", "'"),
        )

    def _nullable(self) -> bool:
        match = _NULLABILITY.match(self._text, self.at)
        if match is None or match["null"] is None:
            return True
        self.at = match.end()
        return not _says_not_null(match["null"])

    def _take(self, mark: str) -> bool:
        rest = self._text[self.at :]
        if not rest.lstrip().startswith(mark):
            return False
        self.at += len(rest) - len(rest.lstrip()) + len(mark)
        return True

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise self.error()


def _says_not_null(text: str | None) -> bool:
    return text is not None and text.strip().upper().startswith("NOT")


def _atomic(
    word: str, numbers: list[int], zone: str | None, nullable: bool, text: str
) -> AtomicType:
    if word in _NEWER_TYPES:
        raise _newer_type(word)
    if word in _UNBOUNDED:
        root = TypeRoot.VARCHAR if word == "STRING" else TypeRoot.VARBINARY
        _require(not numbers and zone is None, text)
        return AtomicType(root, nullable, length=MAX_LENGTH)
    root = _WORDS[word]
    if zone is not None and zone.upper().split()[:2] == ["WITH", "TIME"]:
        raise _with_zone(root, numbers, text)
    if zone is not None:
        _require(root is TypeRoot.TIMESTAMP, text)
        root = TypeRoot.TIMESTAMP_LTZ if zone.upper().split()[0] == "WITH" else root
    return _with_parameters(root, numbers, nullable, text)


def _with_parameters(root: TypeRoot, numbers: list[int], nullable: bool, text: str) -> AtomicType:
    first = numbers[0] if numbers else None
    if root is TypeRoot.DECIMAL:
        precision = 10 if first is None else first
        scale = numbers[1] if len(numbers) > 1 else 0
        _require(1 <= precision <= _MAX_DECIMAL_PRECISION and scale <= precision, text)
        return AtomicType(root, nullable, precision=precision, scale=scale)
    _require(len(numbers) <= 1, text)
    if root in _LENGTH_ROOTS:
        length = 1 if first is None else first
        _require(1 <= length <= MAX_LENGTH, text)
        return AtomicType(root, nullable, length=length)
    if root in _DEFAULT_PRECISION:
        precision = _DEFAULT_PRECISION[root] if first is None else first
        _require(precision <= _MAX_TIME_PRECISION, text)
        return AtomicType(root, nullable, precision=precision)
    _require(first is None, text)
    return AtomicType(root, nullable)


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise InvalidRequestError(
            "type parameters are out of range or not expected",
            hint=f"DECIMAL has 1 to {_MAX_DECIMAL_PRECISION} digits, TIME and TIMESTAMP at most "
            f"{_MAX_TIME_PRECISION}, texts and bytes at least a length of 1",
            text=text,
        )


def _with_zone(root: TypeRoot, numbers: list[int], text: str) -> UnsupportedFeatureError:
    instant = f"TIMESTAMP({numbers[0] if numbers else 6}) WITH LOCAL TIME ZONE"
    return UnsupportedFeatureError(
        "Paimon has no type that keeps a time zone with each value",
        hint=f"use {instant}, which keeps the instant, or STRING"
        if root is TypeRoot.TIMESTAMP
        else "use STRING",
        type=text,
    )


def _newer_type(word: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "this type is not supported", type=word, hint="leave the column out or store it as BYTES"
    )


# Paimon's logical types as Arrow types, and back.
#
# The one place that decides how a column looks in memory (FORMAT.md §7.3 gives the file side).
# Nullability is carried on fields, also inside lists, maps and structs, because the Parquet writer
# derives REQUIRED/OPTIONAL from it. Arrow arrays from elsewhere (chunked, dictionary, large
# strings, other time units) are converted to this form by `normalize`.


MAX_MILLIS_PRECISION = 3
MAX_MICROS_PRECISION = 6

_SIMPLE = {
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_ROOTS = {
    pa.bool_(): TypeRoot.BOOLEAN,
    pa.int8(): TypeRoot.TINYINT,
    pa.int16(): TypeRoot.SMALLINT,
    pa.int32(): TypeRoot.INT,
    pa.int64(): TypeRoot.BIGINT,
    pa.uint8(): TypeRoot.SMALLINT,
    pa.uint16(): TypeRoot.INT,
    pa.uint32(): TypeRoot.BIGINT,
    pa.float32(): TypeRoot.FLOAT,
    pa.float64(): TypeRoot.DOUBLE,
    pa.date32(): TypeRoot.DATE,
}
_UNIT_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type of a column in memory."""
    match type_:
        case AtomicType():
            return _atomic_arrow(type_)
        case ArrayType(element=element):
            return pa.list_(pa.field("element", arrow_type(element), element.nullable))
        case MultisetType(element=element):
            count = pa.field("value", pa.int32(), nullable=False)
            return pa.map_(pa.field("key", arrow_type(element), nullable=False), count)
        case MapType(key=key, value=value):
            return pa.map_(
                pa.field("key", arrow_type(key), nullable=False),
                pa.field("value", arrow_type(value), value.nullable),
            )
        case RowType(fields=fields):
            return pa.struct([arrow_field(field) for field in fields])


def arrow_field(field: DataField) -> pa.Field:
    """Name, type and nullability of a column; without metadata."""
    return pa.field(field.name, arrow_type(field.type), field.type.nullable)


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The schema of a value batch: the fields in the given order."""
    return pa.schema([arrow_field(field) for field in fields])


def type_from_arrow(type_: pa.DataType, nullable: bool = True) -> DataType:
    """The narrowest Paimon type that holds every value of an Arrow type.

    Ids of struct fields are placeholders (their position); `schema.new_schema` and
    `schema_changes.evolve` number them.

    Raises:
        UnsupportedFeatureError: there is no such type (e.g. times finer than milliseconds).
    """
    nested = _nested_from_arrow(type_, nullable)
    if nested is not None:
        return nested
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return AtomicType(TypeRoot.VARCHAR, nullable, length=MAX_LENGTH)
    if pa.types.is_fixed_size_binary(type_):
        return AtomicType(TypeRoot.BINARY, nullable, length=type_.byte_width)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return AtomicType(TypeRoot.VARBINARY, nullable, length=MAX_LENGTH)
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= 38:
        return AtomicType(TypeRoot.DECIMAL, nullable, precision=type_.precision, scale=type_.scale)
    if pa.types.is_timestamp(type_):
        root = TypeRoot.TIMESTAMP if type_.tz is None else TypeRoot.TIMESTAMP_LTZ
        return AtomicType(root, nullable, precision=_UNIT_PRECISION[type_.unit])
    if pa.types.is_time32(type_):
        return AtomicType(TypeRoot.TIME, nullable, precision=_UNIT_PRECISION[type_.unit])
    if type_ in _ROOTS:
        return AtomicType(_ROOTS[type_], nullable)
    raise UnsupportedFeatureError("no Paimon type for this Arrow type", arrow_type=type_)


def normalize(column: pa.Array | pa.ChunkedArray, type_: DataType) -> pa.Array:
    """The column as one array of `arrow_type(type_)`; zero copy when it already is.

    Raises:
        UnsupportedFeatureError: the values cannot be brought to the type without loss.
    """
    target = arrow_type(type_)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedFeatureError(
            "column does not have the declared type",
            detail=str(error),
            declared=type_name(type_),
            found=column.type,
        ) from error


def _atomic_arrow(type_: AtomicType) -> pa.DataType:
    root = type_.root
    if root is TypeRoot.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        zone = "UTC" if root is TypeRoot.TIMESTAMP_LTZ else None
        return pa.timestamp(_timestamp_unit(type_.precision), tz=zone)
    return _SIMPLE[root]


def _timestamp_unit(precision: int) -> str:
    if precision <= MAX_MILLIS_PRECISION:
        return "ms"
    return "us" if precision <= MAX_MICROS_PRECISION else "ns"


def _nested_from_arrow(type_: pa.DataType, nullable: bool) -> DataType | None:
    if pa.types.is_dictionary(type_):
        return type_from_arrow(type_.value_type, nullable)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = type_.value_field
        return ArrayType(type_from_arrow(item.type, item.nullable), nullable)
    if pa.types.is_map(type_):
        key = type_from_arrow(type_.key_type, nullable=False)
        value = type_from_arrow(type_.item_type, type_.item_field.nullable)
        return MapType(key, value, nullable)
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return RowType(
            tuple(
                DataField(id=i, name=f.name, type=type_from_arrow(f.type, f.nullable))
                for i, f in enumerate(fields)
            ),
            nullable,
        )
    return None
