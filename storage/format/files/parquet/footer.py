# SPDX-License-Identifier: Apache-2.0
"""Exchange of INT96 and 12-byte values in a Parquet footer.

Paimon stores TIMESTAMP(7..9) as INT96, column by column. pyarrow can write INT96 only for all
timestamps of a file at once, and reads it with silent wrap-around outside the years 1677 to 2262.
The pages of an INT96 column and of a FIXED_LEN_BYTE_ARRAY(12) column hold the same bytes, so both
problems go away when only the footer is changed: write 12-byte values and call them INT96, read
INT96 and call it 12-byte values. `int96` turns those values into timestamps.

The footer is Thrift in the compact protocol; it is taken apart and put together generically, so
nothing in it is lost. Source: Parquet format, `parquet.thrift`; FORMAT.md §7.3.
"""

import dataclasses
from typing import Any

from storage.format.varint import read_varint, read_zigzag, varint, zigzag

_INT96 = 3
_FIXED_LENGTH = 7
_INT96_BYTES = 12

# Field ids of parquet.thrift.
_FILE_SCHEMA, _FILE_ROW_GROUPS = 2, 4
_ELEMENT_TYPE, _ELEMENT_TYPE_LENGTH, _ELEMENT_CONVERTED, _ELEMENT_LOGICAL = 1, 2, 6, 10
_GROUP_COLUMNS = 1
_CHUNK_METADATA = 3
_COLUMN_TYPE = 1
_PAGE_SIZE, _PAGE_CHECKSUM = 3, 4
_UNSIGNED = 0xFFFFFFFF

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12,
)  # fmt: skip


@dataclasses.dataclass(slots=True)
class _Struct:
    """Fields of a Thrift struct: id -> (type, value)."""

    fields: dict[int, tuple[int, Any]]

    def get(self, field_id: int) -> Any:
        entry = self.fields.get(field_id)
        return None if entry is None else entry[1]


def bytes_as_int96(footer: bytes) -> bytes:
    """Declare every FIXED_LEN_BYTE_ARRAY(12) without a logical type to be INT96.

    The footer is a serialized `FileMetaData`, without length and magic.
    """
    file = _parse(footer)
    changed = []
    for index, element in enumerate(_leaves(file)):
        plain = element.get(_ELEMENT_CONVERTED) is None and element.get(_ELEMENT_LOGICAL) is None
        is_fixed = element.get(_ELEMENT_TYPE) == _FIXED_LENGTH
        if is_fixed and plain and element.get(_ELEMENT_TYPE_LENGTH) == _INT96_BYTES:
            element.fields[_ELEMENT_TYPE] = (_I32, _INT96)
            del element.fields[_ELEMENT_TYPE_LENGTH]
            changed.append(index)
    _set_column_types(file, changed, _INT96)
    return _serialized(file)


def int96_as_bytes(footer: bytes) -> bytes:
    """Declare every INT96 column to be FIXED_LEN_BYTE_ARRAY(12).

    The footer is a serialized `FileMetaData`, without length and magic.
    """
    file = _parse(footer)
    changed = []
    for index, element in enumerate(_leaves(file)):
        if element.get(_ELEMENT_TYPE) == _INT96:
            element.fields[_ELEMENT_TYPE] = (_I32, _FIXED_LENGTH)
            element.fields[_ELEMENT_TYPE_LENGTH] = (_I32, _INT96_BYTES)
            changed.append(index)
    _set_column_types(file, changed, _FIXED_LENGTH)
    return _serialized(file)


def page_header(data: bytes, position: int) -> tuple[int, int, int | None]:
    """Where the page behind a header begins, its stored size [bytes], and its CRC-32 if it has one.

    Raises:
        ValueError, LookupError, TypeError: these are no bytes of a page header.
    """
    header, start = _read_struct(data, position)
    checksum = header.get(_PAGE_CHECKSUM)
    return start, header.fields[_PAGE_SIZE][1], None if checksum is None else checksum & _UNSIGNED


def _leaves(file: _Struct) -> list[_Struct]:
    """Schema elements that are columns, in column order: only those have a physical type."""
    return [element for element in file.get(_FILE_SCHEMA)[1] if _ELEMENT_TYPE in element.fields]


def _set_column_types(file: _Struct, columns: list[int], physical_type: int) -> None:
    for group in file.get(_FILE_ROW_GROUPS)[1]:
        chunks = group.get(_GROUP_COLUMNS)[1]
        for index in columns:
            chunks[index].get(_CHUNK_METADATA).fields[_COLUMN_TYPE] = (_I32, physical_type)


def _parse(data: bytes) -> _Struct:
    value, _ = _read_struct(data, 0)
    return value


def _read_struct(data: bytes, position: int) -> tuple[_Struct, int]:
    fields: dict[int, tuple[int, Any]] = {}
    field_id = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return _Struct(fields), position
        type_, delta = header & 0x0F, header >> 4
        if delta:
            field_id += delta
        else:
            field_id, position = read_zigzag(data, position)
        if type_ in (_TRUE, _FALSE):
            fields[field_id] = (type_, None)
        else:
            value, position = _read_value(data, position, type_)
            fields[field_id] = (type_, value)


def _read_value(data: bytes, position: int, type_: int) -> tuple[Any, int]:
    if type_ in (_I16, _I32, _I64):
        return read_zigzag(data, position)
    if type_ == _BINARY:
        size, position = read_varint(data, position)
        return data[position : position + size], position + size
    if type_ == _STRUCT:
        return _read_struct(data, position)
    if type_ in (_LIST, _SET):
        return _read_list(data, position)
    if type_ in (_BYTE, _TRUE, _FALSE):
        return data[position], position + 1
    if type_ == _DOUBLE:
        return data[position : position + 8], position + 8
    raise ValueError(f"unexpected Thrift type {type_} in a Parquet footer")


def _read_list(data: bytes, position: int) -> tuple[tuple[int, list[Any]], int]:
    header = data[position]
    position += 1
    type_, size = header & 0x0F, header >> 4
    if size == 0x0F:
        size, position = read_varint(data, position)
    values = []
    for _ in range(size):
        value, position = _read_value(data, position, type_)
        values.append(value)
    return (type_, values), position


def _serialized(struct: _Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: _Struct) -> None:
    previous = 0
    for field_id in sorted(struct.fields):
        type_, value = struct.fields[field_id]
        delta = field_id - previous
        if 0 < delta <= 0x0F:
            out.append(delta << 4 | type_)
        else:
            out.append(type_)
            out += zigzag(field_id)
        if type_ not in (_TRUE, _FALSE):
            _write_value(out, type_, value)
        previous = field_id
    out.append(0)


def _write_value(out: bytearray, type_: int, value: Any) -> None:
    if type_ in (_I16, _I32, _I64):
        out += zigzag(value)
    elif type_ == _BINARY:
        out += varint(len(value))
        out += value
    elif type_ == _STRUCT:
        _write_struct(out, value)
    elif type_ in (_LIST, _SET):
        element_type, values = value
        out.append(min(len(values), 0x0F) << 4 | element_type)
        if len(values) >= 0x0F:
            out += varint(len(values))
        for item in values:
            _write_value(out, element_type, item)
    elif type_ == _DOUBLE:
        out += value
    else:
        out.append(value)
