# SPDX-License-Identifier: Apache-2.0
"""Manifests and manifest lists of Iceberg as Avro bytes.

Source: Iceberg table specification, "Manifests", "Manifest Lists", appendix A. Entries are dicts
as fastavro reads them; `DATA` and `DELETES` are values of `content`. A manifest is rewritten
whenever it loses a file, so entries keep the bytes of their data file, which never changes.
"""

import functools
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import fastavro

EXISTING, ADDED, DELETED = 0, 1, 2
"""`status` of an entry."""

DATA, DELETES = 0, 1
"""`content` of a manifest; in a data file of a delete manifest 1 means deleted positions."""

_CODEC = "deflate"
"""Every Iceberg reader has it."""

_FAST = 1
"""Level of compression: manifests are short-lived."""

_BYTES = "bytes"
"""Member of an entry: its data file as Avro bytes; of a manifest in a list: itself."""


def _field(name: str, type_: Any, field_id: int, *, optional: bool = False) -> dict[str, Any]:
    if not optional:
        return {"name": name, "type": type_, "field-id": field_id}
    return {"name": name, "type": ["null", type_], "default": None, "field-id": field_id}


def _int_map(name: str, values: str, field_id: int, key_id: int, value_id: int) -> dict[str, Any]:
    """A map from column ids, which Avro holds as an array of pairs."""
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [_field("key", "int", key_id), _field("value", values, value_id)],
    }
    return _field(
        name, {"type": "array", "items": pair, "logicalType": "map"}, field_id, optional=True
    )


def _file_schema(partition: list[dict[str, Any]], version: int) -> dict[str, Any]:
    in_v3 = [
        _field("first_row_id", "long", 142, optional=True),
        _field("referenced_data_file", "string", 143, optional=True),
        _field("content_offset", "long", 144, optional=True),
        _field("content_size_in_bytes", "long", 145, optional=True),
    ]
    return {
        "type": "record",
        "name": "r2",
        "fields": [
            _field("content", "int", 134),
            _field("file_path", "string", 100),
            _field("file_format", "string", 101),
            _field("partition", {"type": "record", "name": "r102", "fields": partition}, 102),
            _field("record_count", "long", 103),
            _field("file_size_in_bytes", "long", 104),
            _int_map("value_counts", "long", 109, 119, 120),
            _int_map("null_value_counts", "long", 110, 121, 122),
            _int_map("lower_bounds", "bytes", 125, 126, 127),
            _int_map("upper_bounds", "bytes", 128, 129, 130),
            _field("sort_order_id", "int", 140, optional=True),
            *(in_v3 if version >= 3 else ()),
        ],
    }


def _entry_schema(file: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field("status", "int", 0),
            _field("snapshot_id", "long", 1, optional=True),
            _field("sequence_number", "long", 3, optional=True),
            _field("file_sequence_number", "long", 4, optional=True),
            _field("data_file", file, 2),
        ],
    }


def _list_schema(version: int) -> dict[str, Any]:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field("contains_null", "boolean", 509),
            _field("contains_nan", "boolean", 518, optional=True),
            _field("lower_bound", "bytes", 510, optional=True),
            _field("upper_bound", "bytes", 511, optional=True),
        ],
    }
    partitions = {"type": "array", "items": summary, "element-id": 508}
    return {
        "type": "record",
        "name": "manifest_file",
        "fields": [
            _field("manifest_path", "string", 500),
            _field("manifest_length", "long", 501),
            _field("partition_spec_id", "int", 502),
            _field("content", "int", 517),
            _field("sequence_number", "long", 515),
            _field("min_sequence_number", "long", 516),
            _field("added_snapshot_id", "long", 503),
            _field("added_files_count", "int", 504),
            _field("existing_files_count", "int", 505),
            _field("deleted_files_count", "int", 506),
            _field("added_rows_count", "long", 512),
            _field("existing_rows_count", "long", 513),
            _field("deleted_rows_count", "long", 514),
            _field("partitions", partitions, 507, optional=True),
            *([_field("first_row_id", "long", 520, optional=True)] if version >= 3 else ()),
        ],
    }


class ManifestFormat:
    """How the manifests of a table are written.

    Args:
        version: format version, 2 or 3.
        partition: Avro fields of the partition tuple.
        schema: the table's Iceberg schema.
        spec: its partition spec.
    """

    def __init__(
        self,
        version: int,
        partition: list[dict[str, Any]],
        schema: Mapping[str, Any],
        spec: Mapping[str, Any],
    ) -> None:
        self._partition, text = _parsed_entry(json.dumps(partition), version)
        self._version = version
        metadata = {
            "schema": json.dumps(schema),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec["spec-id"]),
            "format-version": str(version),
        }
        self._heads = {
            content: _head(text, {**metadata, "content": name})
            for content, name in ((DATA, "data"), (DELETES, "deletes"))
        }

    def encode(self, entries: Sequence[dict[str, Any]], content: int) -> bytes:
        """A manifest.

        Args:
            entries: in this order.
            content: `DATA` or `DELETES`.
        """
        heads: dict[tuple[int, ...], bytes] = {}
        parts: list[bytes] = []
        for entry in entries:
            numbers = (
                entry["status"],
                entry["snapshot_id"],
                entry["sequence_number"],
                entry["file_sequence_number"],
            )
            head = heads.get(numbers)
            if head is None:
                head = heads[numbers] = _PRESENT.join(map(_long, numbers))
            data = entry.get(_BYTES)
            if data is None:
                data = entry[_BYTES] = self._encoded(entry["data_file"])
            parts += (head, data)
        return _container(self._heads[content], parts, len(entries))

    def _encoded(self, file: Mapping[str, Any]) -> bytes:
        """A data file or a vector as `_file_schema` has it; the library is slow with unions."""
        parts = [
            _long(file["content"]),
            _text(file["file_path"]),
            _text(file["file_format"]),
            _written(self._partition, file["partition"]) if file["partition"] else b"",
            _long(file["record_count"]),
            _long(file["file_size_in_bytes"]),
        ]
        if file["content"] == DELETES:
            parts += (
                6 * _ABSENT,  # statistics, sort order, row id
                _PRESENT + _text(file["referenced_data_file"]),
                _PRESENT + _long(file["content_offset"]),
                _PRESENT + _long(file["content_size_in_bytes"]),
            )
            return b"".join(parts)
        parts += (
            _pairs(file.get("value_counts"), _long),
            _pairs(file.get("null_value_counts"), _long),
            _pairs(file.get("lower_bounds"), _data),
            _pairs(file.get("upper_bounds"), _data),
            _ABSENT,  # the sort order
        )
        if self._version >= 3:
            row_id = file.get("first_row_id")
            parts += (_ABSENT if row_id is None else _PRESENT + _long(row_id), 3 * _ABSENT)
        return b"".join(parts)


def _written(schema: Any, record: Mapping[str, Any]) -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, schema, record)
    return output.getvalue()


def _head(schema_text: str, metadata: Mapping[str, str], more: int = 0) -> bytes:
    """The head of an Avro file up to its last pairs of metadata, of which `more` follow."""
    header = {"avro.schema": schema_text, "avro.codec": _CODEC, **metadata}
    pairs = (_text(text) for pair in header.items() for text in pair)
    return b"".join((b"Obj\x01", _long(len(header) + more), *pairs))


def _container(head: bytes, parts: Sequence[bytes], count: int) -> bytes:
    """An Avro file of encoded records, which are one block."""
    output = [head, b"\x00", _SYNC]
    if count:
        deflate = zlib.compressobj(_FAST, zlib.DEFLATED, -zlib.MAX_WBITS)
        block = deflate.compress(b"".join(parts)) + deflate.flush()
        output += (_long(count), _long(len(block)), block, _SYNC)
    return b"".join(output)


@functools.lru_cache(256)
def _parsed_entry(partition: str, version: int) -> tuple[Any, str]:
    """Schema of a partition tuple given as JSON, and, as text, of entries."""
    fields = json.loads(partition)
    text = json.dumps(_entry_schema(_file_schema(fields, version)))
    return fastavro.parse_schema({"type": "record", "name": "r102", "fields": fields}), text


@functools.cache
def _parsed_list(version: int) -> tuple[Any, bytes]:
    """Schema of the records of a manifest list, and the head of its file."""
    schema = _list_schema(version)
    head = _head(json.dumps(schema), {"format-version": str(version)}, 4 if version >= 3 else 3)
    return fastavro.parse_schema(schema), head


_SYNC = b"lakeward manifest"[:16]


_ABSENT, _PRESENT = b"\x00", b"\x02"
"""The branches of an optional value."""


def _pairs(pairs: list[Any] | None, write: Callable[[Any], bytes]) -> bytes:
    """An optional map from column ids."""
    if not pairs:
        return _ABSENT if pairs is None else _PRESENT + b"\x00"
    items = [_long(pair["key"]) + write(pair["value"]) for pair in pairs]
    return b"".join((_PRESENT, _long(len(items)), *items, b"\x00"))


def _text(value: str) -> bytes:
    """A text as Avro writes it."""
    return _data(value.encode())


def _data(value: bytes) -> bytes:
    return _long(len(value)) + value


def _long(value: int) -> bytes:
    """A number as Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    if value < 128:
        return bytes((value,))
    if value < 16_384:
        return bytes((value & 127 | 128, value >> 7))
    output = bytearray()
    while value > 127:
        output.append(value & 127 | 128)
        value >>= 7
    output.append(value)
    return bytes(output)


def encode_list(
    manifests: Iterable[dict[str, Any]],
    *,
    version: int,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    first_row_id: int,
) -> bytes:
    """A manifest list; manifests as dicts with the fields of the specification."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
    }
    if version >= 3:
        metadata["first-row-id"] = str(first_row_id)
    schema, head = _parsed_list(version)
    parts = []
    for manifest in manifests:
        data = manifest.get(_BYTES)
        if data is None:
            data = manifest[_BYTES] = _written(schema, manifest)
        parts.append(data)
    pairs = (_text(text) for pair in metadata.items() for text in pair)
    return _container(b"".join((head, *pairs)), parts, len(parts))


def decode(data: bytes) -> list[dict[str, Any]]:
    """The records of a manifest or of a manifest list."""
    return list(fastavro.reader(io.BytesIO(data)))
