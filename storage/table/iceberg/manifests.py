# SPDX-License-Identifier: Apache-2.0
"""Manifests and manifest lists of Iceberg as Avro bytes.

Source: Iceberg table specification, "Manifests", "Manifest Lists", appendix A. Entries are dicts
as fastavro reads them; `DATA` and `DELETES` are values of `content`. A manifest is rewritten
whenever it loses a file, so entries keep the bytes of their data file, which never changes.
"""

import collections
import dataclasses
import functools
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import fastavro
import msgspec

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.file_meta import (
    DataFileMeta,
    FileKind,
    IndexType,
    ManifestEntry,
)
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.io.file_io import FileIO
from storage.lru import LruCache
from storage.options.options import TableOptions
from storage.table.commit.live_files import (
    BucketId,
    delta_entries,
    index_files,
    index_path,
    live_state,
)
from storage.table.core import TableCore
from storage.table.iceberg.types import avro_name, bound, partition_value
from storage.table.read.deletion_vectors import DeletionFile, located

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


def _record(name: str, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _int_map(name: str, values: str, field_id: int, key_id: int, value_id: int) -> dict[str, Any]:
    """A map from column ids, which Avro holds as an array of pairs."""
    members = [_field("key", "int", key_id), _field("value", values, value_id)]
    pair = _record(f"k{key_id}_v{value_id}", members)
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
    fields = [
        _field("content", "int", 134),
        _field("file_path", "string", 100),
        _field("file_format", "string", 101),
        _field("partition", _record("r102", partition), 102),
        _field("record_count", "long", 103),
        _field("file_size_in_bytes", "long", 104),
        _int_map("value_counts", "long", 109, 119, 120),
        _int_map("null_value_counts", "long", 110, 121, 122),
        _int_map("lower_bounds", "bytes", 125, 126, 127),
        _int_map("upper_bounds", "bytes", 128, 129, 130),
        _field("sort_order_id", "int", 140, optional=True),
        *(in_v3 if version >= 3 else ()),
    ]
    return _record("r2", fields)


def _entry_schema(file: dict[str, Any]) -> dict[str, Any]:
    fields = [
        _field("status", "int", 0),
        _field("snapshot_id", "long", 1, optional=True),
        _field("sequence_number", "long", 3, optional=True),
        _field("file_sequence_number", "long", 4, optional=True),
        _field("data_file", file, 2),
    ]
    return _record("manifest_entry", fields)


def _list_schema(version: int) -> dict[str, Any]:
    bounds = [
        _field("contains_null", "boolean", 509),
        _field("contains_nan", "boolean", 518, optional=True),
        _field("lower_bound", "bytes", 510, optional=True),
        _field("upper_bound", "bytes", 511, optional=True),
    ]
    summary = _record("r508", bounds)
    partitions = {"type": "array", "items": summary, "element-id": 508}
    fields = [
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
    ]
    return _record("manifest_file", fields)


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
    return fastavro.parse_schema(_record("r102", fields)), text


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


# Puffin files of deletion vectors. Source: Iceberg's Puffin specification.


_MAGIC = b"PFA1"
_ROW_POSITION = 2_147_483_645
"""Field id of the metadata column of row positions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """The position of the vector of a data file in a Puffin file.

    Attributes:
        path: of the data file.
        offset: [bytes].
        length: [bytes].
        cardinality: deleted rows.
    """

    path: str
    offset: int
    length: int
    cardinality: int


def encode_puffin(vectors: Iterable[tuple[str, bytes, int]]) -> tuple[bytes, list[Blob]]:
    """A Puffin file with one `deletion-vector-v1` per data file.

    Args:
        vectors: paths of data files, their deletion vectors in the 64-bit form, and how many rows
            these delete.
    """
    parts, blobs, offset = [_MAGIC], [], len(_MAGIC)
    for path, part, cardinality in vectors:
        blobs.append(Blob(path, offset, len(part), cardinality))
        parts.append(part)
        offset += len(part)
    footer = msgspec.json.encode({"blobs": [_described(blob) for blob in blobs]})
    no_flags = 0
    end = struct.pack("<ii", len(footer), no_flags)
    return b"".join([*parts, _MAGIC, footer, end, _MAGIC]), blobs


def _described(blob: Blob) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": {
            "referenced-data-file": blob.path,
            "cardinality": str(blob.cardinality),
        },
    }


# What an Iceberg reader sees of a snapshot: data files with bounds, and deletion vectors.
#
# Source: SEMANTICS.md §E. Files are named by path, as Iceberg does.


_FORMAT = "parquet"


@dataclasses.dataclass(frozen=True, slots=True)
class VisibleFile:
    """A data file that Iceberg readers see.

    Attributes:
        path: of the file.
        entry: of the manifest.
    """

    path: str
    entry: ManifestEntry


class Contents:
    """Visible files of the snapshots of one table.

    Tables without primary key: all files. With `deletion-vectors.enabled` and for `first-row`:
    all files above level 0. Other tables with a primary key: files of the highest level, which is
    the read-optimized view.
    """

    def __init__(self, table: TableCore) -> None:
        self._table = table
        options = table.options
        level_one = options.deletion_vectors_enabled or options.merge_engine == "first-row"
        if not table.schema.primary_keys:
            self._lowest = 0
        else:
            self._lowest = 1 if level_one else options.num_levels - 1

    def files(self, snapshot: Snapshot) -> list[VisibleFile]:
        """All visible files."""
        return list(self._visible(live_state(self._table, snapshot).entries()))

    def changes(self, snapshot: Snapshot) -> tuple[list[VisibleFile], set[str], bool]:
        """Files that a snapshot makes visible, paths of those it hides, and whether rows differ.

        A compaction of visible files alone leaves the rows as they were.
        """
        entries = delta_entries(self._table, snapshot)
        added_files = {file.path: file for file in self._visible(self._of(entries, FileKind.ADD))}
        removed_files = {
            file.path: file for file in self._visible(self._of(entries, FileKind.DELETE))
        }
        hidden_before = any(
            entry.kind is FileKind.DELETE and entry.file.level < self._lowest for entry in entries
        )
        differs = hidden_before or snapshot.commit_kind.value != "COMPACT"
        common = added_files.keys() & removed_files.keys()
        return (
            [file for path, file in added_files.items() if path not in common],
            removed_files.keys() - common,
            differs,
        )

    def vectors(
        self, before: Snapshot | None, snapshot: Snapshot, added: Iterable[VisibleFile]
    ) -> tuple[dict[str, DeletionFile], set[str]]:
        """Changes of the deletion vectors from one snapshot to a later one.

        Args:
            before: None: there were none.
            added: files that became visible.

        Returns:
            Vectors that may be new, by path of the data file, which need not be visible; and paths
            of data files whose vectors were removed.
        """
        table = self._table
        old_vectors = index_files(table, before, IndexType.DELETION_VECTORS)
        new_vectors = index_files(table, snapshot, IndexType.DELETION_VECTORS)
        visible = collections.defaultdict[BucketId, set[str]](set)
        for file in added:
            bucket = (file.entry.partition, file.entry.bucket)
            visible[bucket].add(file.entry.file.file_name)
        vectors: dict[str, DeletionFile] = {}
        stale = set[str]()
        for bucket in old_vectors.keys() | new_vectors.keys():
            prior, current = old_vectors.get(bucket, ()), new_vectors.get(bucket, ())
            names = visible.get(bucket, set())
            if prior == current and not names:
                continue
            was = {
                meta.data_file_name: meta.cardinality
                for index in prior
                for meta in index.deletion_vectors or ()
            }
            directory = table.data_path(*bucket, "")
            for index in current:
                path = index_path(table, *bucket, index)
                for meta in index.deletion_vectors or ():
                    name, deleted = meta.data_file_name, meta.cardinality
                    # a vector never deletes fewer rows than before
                    if was.pop(name, None) != deleted or deleted is None or name in names:
                        vectors[directory + name] = located(path, meta)
            stale.update(directory + name for name in was)
        return vectors, stale

    @staticmethod
    def _of(entries: Iterable[ManifestEntry], kind: FileKind) -> Iterator[ManifestEntry]:
        return (entry for entry in entries if entry.kind is kind)

    def _visible(self, entries: Iterable[ManifestEntry]) -> Iterator[VisibleFile]:
        for entry in entries:
            if entry.file.level >= self._lowest and entry.bucket >= 0:
                path = entry.file.external_path or self._table.data_path(
                    entry.partition, entry.bucket, entry.file.file_name
                )
                yield VisibleFile(path, entry)


def data_file(
    file: VisibleFile, schema: TableSchema, schema_of: Callable[[int], TableSchema]
) -> dict[str, Any]:
    """The `data_file` of a manifest entry for a data file.

    Raises:
        UnsupportedFeatureError: the file is not Parquet, the one format that carries field ids.
    """
    meta = file.entry.file
    if not file.path.endswith(f".{_FORMAT}"):
        raise UnsupportedFeatureError(
            "Iceberg readers need Parquet files",
            hint="set `file.format` to parquet and compact the table in full",
            file=file.path,
        )
    return {
        **_common(file.entry, schema),
        **_statistics(meta, schema, schema_of(meta.schema_id)),
        "content": DATA,
        "file_path": file.path,
        "file_format": _FORMAT.upper(),
        "record_count": meta.row_count,
        "file_size_in_bytes": meta.file_size,
    }


def vector_file(file: Mapping[str, Any], blob: Blob, path: str, size: int) -> dict[str, Any]:
    """The `data_file` of a manifest entry for the deletion vector of a data file.

    Args:
        file: `data_file` of the data file.
        blob: the position of its vector.
        path: of the Puffin file.
        size: of it [bytes].
    """
    return {
        "content": DELETES,
        "file_path": path,
        "file_format": "PUFFIN",
        "partition": file["partition"],
        "record_count": blob.cardinality,
        "file_size_in_bytes": size,
        "referenced_data_file": blob.path,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }


def _common(entry: ManifestEntry, schema: TableSchema) -> dict[str, Any]:
    fields = schema.partition_fields
    values = decode_row(entry.partition, [field.type for field in fields]) if fields else ()
    return {
        "partition": {
            avro_name(field.name): partition_value(value)
            for field, value in zip(fields, values, strict=True)
        }
    }


def _statistics(
    meta: DataFileMeta, schema: TableSchema, written_schema: TableSchema
) -> dict[str, Any]:
    """Null counts and bounds of the columns whose type is still the one that was written."""
    names = meta.value_stats_cols
    if names is None:
        names = written_schema.field_names if meta.write_cols is None else meta.write_cols
    stats = meta.value_stats
    if not names or len(stats.null_counts) != len(names):
        return {}
    fields = [written_schema.field(name) for name in names]
    types = [field.type for field in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    current = {field.id: field.type for field in schema.fields}
    nulls, counts, lower, upper = [], [], [], []
    for field, low, high, null_count in zip(fields, lows, highs, stats.null_counts, strict=True):
        if field.id not in current:
            continue
        if null_count is not None:
            counts.append({"key": field.id, "value": meta.row_count})
            nulls.append({"key": field.id, "value": null_count})
        if current[field.id] != field.type:
            continue
        first, last = bound(low, field), bound(high, field)
        if first is not None and last is not None:
            lower.append({"key": field.id, "value": first})
            upper.append({"key": field.id, "value": last})
    return {
        "value_counts": counts,
        "null_value_counts": nulls,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }


# The manifests of one Iceberg snapshot, derived from those of the previous snapshot.
#
# The cost of a commit is proportional to its changes: manifest entries, also by name, are cached
# per process, manifests hold a bounded number of files, those that lose none are reused, and small
# ones are merged once there are enough of them.


Manifest = dict[str, Any]
"""How a manifest list describes a manifest."""

Entry = dict[str, Any]
"""An entry of a manifest."""

_FULL_ENTRIES = 1_000
"""Files of one manifest; with fewer it is small."""

_CACHED_ENTRIES = 200_000


_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
)
_COUNTS = (*(name for _, *names in _TOTALS for name in names), "added-dvs", "removed-dvs")
"""Names of totals and changes in a summary."""


class _CachedManifest:
    """Entries of a manifest, which never change; live ones by name, too."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.live = {entry_name(entry): entry for entry in entries if entry["status"] != DELETED}

    def __len__(self) -> int:
        return len(self.entries)


_CACHE: LruCache[str, _CachedManifest] = LruCache(_CACHED_ENTRIES, weigh=len)
"""Entries of manifests by path."""


def clear_manifests() -> None:
    """Drop every cached manifest of this process."""
    _CACHE.clear()


def entry_name(entry: Entry) -> str:
    """The data file that an entry is about: itself, or the one whose rows it deletes."""
    file = entry["data_file"]
    return str(file.get("referenced_data_file") or file["file_path"])


def _existing(entry: Entry) -> Entry:
    """The entry in a later manifest."""
    return entry if entry["status"] == EXISTING else {**entry, "status": EXISTING}


class ManifestReader:
    """Manifests of one table."""

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io

    def _cached(self, manifest: Manifest) -> _CachedManifest:
        path = manifest["manifest_path"]
        cached = _CACHE.get(path)
        if cached is None:
            cached = _CachedManifest(decode(self._file_io.read_bytes(path)))
            _CACHE.put(path, cached)
        return cached

    def entries(self, manifest: Manifest) -> list[Entry]:
        """All entries of a manifest."""
        return self._cached(manifest).entries

    def live(self, manifest: Manifest) -> dict[str, Entry]:
        """The entries that are not removed, by `entry_name`; not to be changed."""
        return self._cached(manifest).live

    def find(self, manifests: Sequence[Manifest], names: Iterable[str]) -> Iterator[Entry]:
        """Live entries of some names."""
        names = list(names)
        lookups = [self._cached(manifest).live for manifest in manifests] if names else []
        for name in names:
            for live in lookups:
                if name in live:
                    yield live[name]
                    break


class SnapshotManifests:
    """Writes the manifests of one Iceberg snapshot.

    Attributes:
        sequence: its sequence number.
        next_row_id: first row id that is free.
        counts: files and rows added and removed, by their names in a summary.
        write_file: writes a new manifest; returns its path.
    """

    def __init__(
        self,
        reader: ManifestReader,
        manifest_format: ManifestFormat,
        options: TableOptions,
        write_file: Callable[[bytes], str],
        *,
        snapshot: Snapshot,
        sequence: int,
        next_row_id: int,
    ) -> None:
        self.next_row_id = next_row_id
        self.sequence = sequence
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.write_file = write_file
        self._reader = reader
        self._format = manifest_format
        self._options = options
        self._snapshot = snapshot

    def add_entry(self, file: dict[str, Any]) -> Entry:
        """An entry for a new file."""
        if file["content"] == DATA:
            self.counts["added-data-files"] += 1
            self.counts["added-records"] += file["record_count"]
            file = {**file, "first_row_id": self.next_row_id}
            self.next_row_id += file["record_count"]
        else:
            self._count("added", file)
        return {
            "status": ADDED,
            "snapshot_id": self._snapshot.id,
            "sequence_number": self.sequence,
            "file_sequence_number": self.sequence,
            "data_file": file,
        }

    def _removed_entry(self, entry: Entry) -> Entry:
        file = entry["data_file"]
        if file["content"] == DATA:
            self.counts["deleted-data-files"] += 1
            self.counts["deleted-records"] += file["record_count"]
        else:
            self._count("removed", file)
        return {**entry, "status": DELETED, "snapshot_id": self._snapshot.id}

    def _count(self, change: str, vector: Mapping[str, Any]) -> None:
        self.counts[f"{change}-dvs"] += 1
        self.counts[f"{change}-delete-files"] += 1
        self.counts[f"{change}-position-deletes"] += vector["record_count"]

    def without_files(self, manifests: Iterable[Manifest], removed: set[str]) -> list[Manifest]:
        """The manifests without some files: those that hold one are rewritten."""
        result = []
        for manifest in manifests:
            if not live_files(manifest):
                continue  # all its files were removed by an earlier snapshot
            if not removed:
                result.append(manifest)
                continue
            live = self._reader.live(manifest)
            if live.keys().isdisjoint(removed):
                result.append(manifest)
                continue
            entries = [
                self._removed_entry(entry) if name in removed else _existing(entry)
                for name, entry in live.items()
            ]
            result += self.write(entries, manifest["content"])
        return result

    def with_small_merged(self, manifests: list[Manifest], content: int) -> list[Manifest]:
        """The manifests, with small ones of earlier snapshots merged once they are many."""
        small = [
            item
            for item in manifests
            if item["added_snapshot_id"] != self._snapshot.id and live_files(item) < _FULL_ENTRIES
        ]
        options = self._options
        fills = sum(map(live_files, small)) >= _FULL_ENTRIES
        least = (
            options.iceberg_compaction_min_files if fills else options.iceberg_compaction_max_files
        )
        if len(small) < least:
            return manifests
        entries = [
            _existing(entry) for manifest in small for entry in self._reader.live(manifest).values()
        ]
        paths = {manifest["manifest_path"] for manifest in small}
        large = [manifest for manifest in manifests if manifest["manifest_path"] not in paths]
        return [*self.write(entries, content), *large]

    def write(self, entries: Sequence[Entry], content: int) -> list[Manifest]:
        """Write manifests; returns their records in the manifest list."""
        return [
            self._written(entries[at : at + _FULL_ENTRIES], content)
            for at in range(0, len(entries), _FULL_ENTRIES)
        ]

    def _written(self, entries: Sequence[Entry], content: int) -> Manifest:
        data = self._format.encode(entries, content)
        path = self.write_file(data)
        _CACHE.put(path, _CachedManifest(list(entries)))
        files, rows = [0, 0, 0], [0, 0, 0]
        oldest = self.sequence
        for entry in entries:
            status = entry["status"]
            files[status] += 1
            rows[status] += entry["data_file"]["record_count"]
            if status != DELETED and entry["sequence_number"] < oldest:
                oldest = entry["sequence_number"]
        manifest: Manifest = {
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self.sequence,
            "min_sequence_number": oldest,
            "added_snapshot_id": self._snapshot.id,
        }
        for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
            manifest[f"{name}_files_count"] = files[status]
            manifest[f"{name}_rows_count"] = rows[status]
        if content == DATA:
            # base of the row ids that readers assign to files without; ours all have their own
            manifest["first_row_id"] = min(
                (entry["data_file"].get("first_row_id") or 0 for entry in entries), default=0
            )
        return manifest


def live_files(manifest: Manifest) -> int:
    """Files of a manifest that are not removed."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def totals(before: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, str]:
    """Totals of a summary: those of its parent's, if any, with the changes since."""
    return {
        total: str(int(before[total] if before else 0) + counts[added] - counts[removed])
        for total, added, removed in _TOTALS
    }
