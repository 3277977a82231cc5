# SPDX-License-Identifier: Apache-2.0
"""Default values of columns: from their texts to rows that had none.

Two kinds (SEMANTICS.md §H.4): the default of a column in the schema takes the place of null when
rows are written; the older option `fields.<column>.default-value` shows null as the default when
rows are read, and is not for key columns. Texts are cast to the type of the column; nested ones
are written `[a, b]`, `{k -> v}` and `{a, b}`, or `ARRAY(…)`, `MAP(k, v, …)` and `STRUCT(…)`.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.casts import CastError, from_text
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
    arrow_field,
    arrow_type,
    type_name,
)

_OPTION = re.compile(r"fields\.(.+)\.default-value\Z")
_ENTRY = re.compile(r"(.+?)\s*->\s*(.+)", re.DOTALL)
_TOKEN = re.compile(r"\\?.", re.DOTALL)
"""One character, together with the backslash that escapes it."""

_NULL = "null"
_OPENING, _CLOSING = "[{(", "]})"


@functools.lru_cache(maxsize=256)
def default_of(text: str, type_: DataType, column: str) -> pa.Array:
    """The value of a default's text: one value of `arrow_type(type_)`.

    Surrounding single quotes are ignored.

    Raises:
        InvalidRequestError: the text is no value of the type.
    """
    quoted = len(text) >= 2 and text.startswith("'") and text.endswith("'")
    try:
        return _parsed(text[1:-1] if quoted else text, type_)
    except CastError as error:
        raise InvalidRequestError(
            "the column's default does not fit its type",
            detail=str(error),
            hint="change the default of the column",
            column=column,
            value=text,
            type=type_name(type_),
        ) from error


def fill_null(column: pa.Array, default: pa.Array) -> pa.Array:
    """The column with the one value of `default` in the place of every null."""
    if column.null_count == 0:
        return column
    rows = len(column)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    chosen = np.where(nulls, rows, np.arange(rows))
    return pa.concat_arrays([column, default.cast(column.type)]).take(pa.array(chosen))


def read_defaults(schema: TableSchema) -> dict[str, pa.Array]:
    """Defaults by column that batch reads show instead of null, from the options of a table.

    Conditions on these columns cannot use statistics or indexes, which hold the nulls.

    Raises:
        InvalidRequestError: a default is no value of its column's type.
    """
    fields = {field.name: field for field in schema.fields}
    defaults = {}
    for key, text in schema.options.items():
        match = _OPTION.match(key)
        field = None if match is None else fields.get(match.group(1))
        if field is not None and field.name not in schema.primary_keys:
            defaults[field.name] = default_of(text, field.type, field.name)
    return defaults


def fill_defaults(batch: pa.RecordBatch, defaults: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The batch with defaults instead of nulls, in the columns that have one."""
    for name, default in defaults.items():
        position = batch.schema.get_field_index(name)
        if position >= 0 and batch.column(position).null_count:
            column = fill_null(batch.column(position), default)
            batch = batch.set_column(position, batch.schema.field(position), column)
    return batch


def _parsed(text: str, type_: DataType) -> pa.Array:
    match type_:
        case AtomicType():
            return from_text(pa.array([text], pa.string()), type_)
        case ArrayType():
            return _array(text, type_)
        case MapType():
            return _map(text, type_)
        case RowType():
            return _row(text, type_)
        case _:
            raise CastError("a MULTISET has no text form", text)


def _array(text: str, type_: ArrayType) -> pa.Array:
    content = _content(text, "[", "]", "ARRAY")
    elements = [_item(part, type_.element) for part in _split(content)]
    values = _concatenated(elements, type_.element)
    return pa.ListArray.from_arrays(_offsets(elements), values, type=arrow_type(type_))


def _map(text: str, type_: MapType) -> pa.Array:
    if text.strip().upper() == "NULL":
        return pa.nulls(1, arrow_type(type_))
    content = _content(text, "{", "}", "MAP")
    parts = [part.strip() for part in _split(content, unquote=True)]
    if text.strip().startswith("{"):
        pairs = dict(_entry(part) for part in parts)
    elif len(parts) % 2:
        raise CastError("a key without a value", text)
    else:
        pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    keys = [_item(key, type_.key) for key in pairs]
    values = [_item(value, type_.value) for value in pairs.values()]
    target = arrow_type(type_)
    columns = _concatenated(keys, type_.key), _concatenated(values, type_.value)
    entries = pa.StructArray.from_arrays(columns, fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, 1, [None, _offsets(keys).buffers()[1]], null_count=0, children=[entries]
    )


def _row(text: str, type_: RowType) -> pa.Array:
    content = _content(text, "{", "}", "STRUCT")
    if content:
        parts = list(_split(content))
        if len(parts) != len(type_.fields):
            raise CastError(f"{len(parts)} values for {len(type_.fields)} fields", text)
    else:
        parts = [_NULL] * len(type_.fields)
    children = [_item(part, field.type) for part, field in zip(parts, type_.fields, strict=True)]
    return pa.StructArray.from_arrays(
        children, fields=[arrow_field(field) for field in type_.fields]
    ).cast(arrow_type(type_))


def _concatenated(items: list[pa.Array], type_: DataType) -> pa.Array:
    return pa.concat_arrays(items) if items else pa.nulls(0, arrow_type(type_))


def _offsets(items: Sequence[pa.Array]) -> pa.Array:
    return pa.array([0, len(items)], pa.int32())


def _item(text: str, type_: DataType) -> pa.Array:
    trimmed = text.strip()
    return pa.nulls(1, arrow_type(type_)) if trimmed == _NULL else _parsed(trimmed, type_)


def _entry(text: str) -> tuple[str, str]:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise CastError("not a map entry `key -> value`", text)
    return match.group(1).strip(), match.group(2).strip()


def _content(text: str, opening: str, closing: str, function: str) -> str:
    """The text between the brackets, or in the parentheses of the function."""
    trimmed = text.strip()
    if trimmed.startswith(opening) and trimmed.endswith(closing) and len(trimmed) > 1:
        return trimmed[1:-1].strip()
    call = re.fullmatch(rf"{function}\s*\((.*)\)", trimmed, re.IGNORECASE | re.DOTALL)
    if call is None:
        raise CastError(f"not of the form {opening}…{closing} or {function}(…)", text)
    return call.group(1).strip()


def _split(content: str, *, unquote: bool = False) -> Iterator[str]:
    """Parts between the commas outside of brackets and double quotes, without empty ones.

    `unquote` leaves double quotes and escaped characters out, as Paimon does in maps.
    """
    current = ""
    depth, quoted = 0, False
    for token in _TOKEN.findall(content):
        if token == '"':
            quoted = not quoted
        elif not quoted:
            depth = max(0, depth + (token in _OPENING) - (token in _CLOSING))
            if token == "," and not depth:
                if current:
                    yield current
                current = ""
                continue
        if not (unquote and token[0] in '\\"'):
            current += token
    if current:
        yield current
