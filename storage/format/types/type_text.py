# SPDX-License-Identifier: Apache-2.0
"""Types and fields as text, in schema files and in messages.

Source: FORMAT.md §2.1 (DataField) and §2.2 (types). An atomic type is a string such as
`DECIMAL(10, 2) NOT NULL`, a constructed type is an object with a `type` member; people write it as
SQL does, `ARRAY<INT>`. This module depends neither on Arrow nor on files.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

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
