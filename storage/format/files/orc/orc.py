# SPDX-License-Identifier: Apache-2.0
"""ORC files as Paimon lays them out: types, field ids, stripes.

Source: FORMAT.md §7.4, compared in the tests with files written by Java. Every type carries the
attribute `paimon.id`; readers find columns by name, so files without it are read, too. TIME is an
int; MULTISET is a map, as Java stores it; blanks at the end of a CHAR do not count.

TIMESTAMP_LTZ is stored as the true instant. That is also what `orc.timestamp-ltz.legacy.type` =
true gives in a JVM that runs in UTC, the only zone in which Java's legacy rule keeps instants. A
table that JVMs of other zones write or read should set false: otherwise such a JVM reads our files,
like those of a JVM in UTC, shifted. Its files are read correctly either way (`zones`).

The zstd level cannot be set, in the library as in Java's `orc.compress`: the library's applies.

The library decodes timestamps to 64-bit nanoseconds and refuses a stripe that holds one outside the
years 1677 to 2262; such stripes are decoded another way (`wide`). Instants before 1970 with a
fraction of a second are corrected after the library has written them (`instants`).
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.files.data_input import exceeds_nanoseconds, open_data_file
from storage.format.files.file_columns import (
    conform_batch,
    list_like,
    map_entries,
    mapped_values,
    rows_without_columns,
    selected,
    struct_like,
)
from storage.format.files.orc.instants import Instants, has_early, with_early_instants
from storage.format.files.orc.tail import (
    Stripe,
    Tail,
    TypeNode,
    all_instants,
    all_longs,
    described,
    read_secondary,
    read_tail,
    read_types,
    read_zone,
    retyped,
    rows_before,
)
from storage.format.files.orc.types import (
    COUNT,
    INSTANT_ROOTS,
    UNITS_PER_SECOND,
    children,
    declared_kinds,
    depth_first,
    has_instants,
    stored_field,
)
from storage.format.files.orc.wide import TIMESTAMP_KINDS, nanoseconds, with_timestamps
from storage.format.files.orc.zones import (
    OtherTail,
    Zone,
    in_utc,
    zone_of,
)
from storage.format.files.row_selection import RowSelection
from storage.format.files.tail_holder import TailHolder
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)
from storage.io.file_io import FileIO
from storage.options.options import option_value
from storage.options.values import codec_of

_LEGACY = "orc.timestamp-ltz.legacy.type"
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "zlib": "zlib",
    "gzip": "zlib",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}
_FIRST_RATIO = 0.3
"""Guess of file bytes per Arrow byte until the first stripe is written."""


class OrcSink:
    """Writes one ORC file; see `file_formats.RowSink`.

    A stripe ends when it holds `file.block-size` or else `orc.stripe.size` bytes,
    regardless of the calls of `write`.

    Args:
        options: `file.block-size`, and those that begin with `orc.` and that the library supports.
    """

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str,
        options: Mapping[str, str],
        **_: object,
    ) -> None:
        settings = _settings(options)
        codec = codec_of(compression, CODECS, "ORC")
        self._fields = fields
        self._schema = pa.schema([stored_field(f.name, f.type, f.id, f.id, 0) for f in fields])
        self._kinds = declared_kinds(fields)
        self._timed = [i for i, field in enumerate(fields) if has_instants(field.type)]
        self._recent: list[list[pa.Array]] = []
        """Timed columns of the writes that may be in the unwritten stripe."""
        self._recent_start = self._rows = 0
        self._held_at: int | None = None
        self._output = TailHolder(output) if self._kinds or self._timed else output
        self._writer = _Writer(self._output, compression=codec, **settings)
        self._pending_bytes = self._flushed_arrow = self._flushed = 0
        self._started = False

    @property
    def size(self) -> int:
        """See `RowSink`; an estimate for what the library still holds."""
        ratio = self._flushed / self._flushed_arrow if self._flushed_arrow else _FIRST_RATIO
        return int(self._output.tell()) + int(self._pending_bytes * ratio)

    def write(self, columns: Sequence[pa.Array]) -> None:
        """See `RowSink`."""
        try:
            stored = [
                _to_library(_compact(column, field.type), field.type)
                for column, field in zip(columns, self._fields, strict=True)
            ]
            table = pa.Table.from_arrays(stored, schema=self._schema)
            _check_nulls(table)
            self._watch(columns)
            before = self._output.tell()
            self._writer.write(table)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InternalError("rows do not fit the file's schema", detail=str(error)) from error
        self._started = True
        self._pending_bytes += table.nbytes
        flushed = self._output.tell() - before
        if flushed > len("ORC"):
            self._flushed += flushed
            self._flushed_arrow += self._pending_bytes
            self._pending_bytes = 0
            if self._held_at is None:
                # all earlier writes are in stripes that are written
                self._recent_start = self._rows - table.num_rows
                self._recent = self._recent[-1:]

    def _watch(self, columns: Sequence[pa.Array]) -> None:
        """Buffer timestamps; hold back the output once one needs correction."""
        if not self._timed:
            return
        timed = [columns[i] for i in self._timed]
        self._recent.append(timed)
        self._rows += len(timed[0])
        if self._held_at is None and any(
            has_early(_instants([leaf])) for _, leaf in self._leaves(timed)
        ):
            self._held_at = self._output.tell()
            self._output.hold()

    def _leaves(self, timed: Sequence[pa.Array]) -> Iterator[tuple[int, pa.Array]]:
        """Timestamps below the timed columns that are not null, by column id."""
        for i, column in zip(self._timed, timed, strict=True):
            types = [field.type for field in self._fields[:i]]
            first = 1 + sum(1 for _ in depth_first(types))
            yield from _instant_leaves(column, self._fields[i].type, first)

    def _finish_tail(self, tail: bytes) -> bytes:
        """The held end of the file, corrected."""
        if self._held_at is not None:
            skipped = rows_before(tail, self._held_at) - self._recent_start
            parts: dict[int, list[pa.Array]] = {}
            for timed in self._recent:
                rest = [column.slice(min(skipped, len(column))) for column in timed]
                skipped = max(0, skipped - len(timed[0]))
                for column_id, leaf in self._leaves(rest):
                    parts.setdefault(column_id, []).append(leaf)
            columns = {column_id: _instants(leaves) for column_id, leaves in parts.items()}
            tail = with_early_instants(tail, self._held_at, columns)
        return retyped(tail, self._kinds)

    def close(self) -> None:
        """See `RowSink`."""
        if not self._started:
            self._writer.write(self._schema.empty_table())
        if isinstance(self._output, TailHolder):
            if self._held_at is None:
                self._output.hold()
            self._writer.close()
            self._output.release(self._finish_tail)
            self._recent = []
        else:
            self._writer.close()
        self._pending_bytes = 0


class _Writer(pyarrow.orc.ORCWriter):
    """pyarrow's writer without its finalizer, which would write to an abandoned output."""

    def __del__(self) -> None:
        pass


def _settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of the library's writer from the table's options."""
    names = {
        "orc.stripe.size": "stripe_size",
        "orc.compress.size": "compression_block_size",
        "orc.row.index.stride": "row_index_stride",
        "orc.block.padding.tolerance": "padding_tolerance",
        "orc.dictionary.key.threshold": "dictionary_key_size_threshold",
        "orc.bloom.filter.fpp": "bloom_filter_fpp",
        "file.block-size": "stripe_size",  # precedes orc.stripe.size, as in Java
    }
    return {
        argument: option_value(options, key) for key, argument in names.items() if key in options
    }


# ----------------------------------------------------------------------------------- write


def _compact(column: pa.Array, type_: DataType) -> pa.Array:
    """The column without offsets if it holds ROWs: the library misplaces their nulls."""
    if not any(isinstance(part, RowType) for part in depth_first([type_])):
        return column
    return pa.concat_arrays([column.slice(0, 0), column])


def _to_library(column: pa.Array, type_: DataType) -> pa.Array:
    """The column as it is handed to the library; its child fields carry no metadata yet."""
    match type_:
        case AtomicType(root=TypeRoot.TIME):
            return column.view(pa.int32())
        case AtomicType():
            return column
        case ArrayType(element=element):
            child = _to_library(column.values, element)
            field = column.type.value_field.with_type(child.type)
            return list_like(column, pa.list_(field), child)
        case MultisetType(element=key):
            return _stored_entries(column, key, COUNT)
        case MapType(key=key, value=value):
            return _stored_entries(column, key, value)
        case RowType(fields=fields):
            # flattened: below a null the library writes what is not null itself
            parts = zip(column.flatten(), fields, strict=True)
            stored = [_to_library(part, field.type) for part, field in parts]
            members = [column.type.field(i).with_type(part.type) for i, part in enumerate(stored)]
            return struct_like(column, members, stored)


def _stored_entries(column: pa.MapArray, key: DataType, value: DataType) -> pa.Array:
    keys, items = _to_library(column.keys, key), _to_library(column.items, value)
    return map_entries(
        column,
        pa.map_(
            column.type.key_field.with_type(keys.type), column.type.item_field.with_type(items.type)
        ),
        keys,
        items,
    )


def _instants(leaves: Sequence[pa.Array]) -> Instants:
    values = np.concatenate([leaf.view(pa.int64()).to_numpy() for leaf in leaves])
    return Instants(values, UNITS_PER_SECOND[leaves[0].type.unit])


def _instant_leaves(
    column: pa.Array, type_: DataType, column_id: int
) -> Iterator[tuple[int, pa.Array]]:
    """Timestamps of a column as they are stored: without what is null or below a null."""
    match type_:
        case AtomicType(root=root):
            if root in INSTANT_ROOTS:
                yield column_id, column.drop_null()
            return
        case RowType():
            parts = column.flatten()
        case ArrayType():
            parts = [column.flatten()]
        case _:
            entry = pa.struct([column.type.key_field, column.type.item_field])
            keys, items = column.keys, column.items
            entries = pa.Array.from_buffers(entry, len(keys), [None], children=[keys, items])
            flat = list_like(column, pa.list_(entry), entries).flatten()
            parts = [flat.field(0), flat.field(1)]
    below = column_id + 1
    for part, part_type in zip(parts, children(type_), strict=True):
        yield from _instant_leaves(part, part_type, below)
        below += sum(1 for _ in depth_first([part_type]))


def _check_nulls(table: pa.Table) -> None:
    """ORC has no required columns, so no other check rejects nulls."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise InternalError("a NOT NULL column holds nulls", column=field.name)


# ------------------------------------------------------------------------------------ read


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    selection: RowSelection | None = None,
    file_size: int | None = None,
    options: Mapping[str, str] = _NO_OPTIONS,
    **_: object,
) -> Iterator[pa.RecordBatch]:
    """Read some columns; arguments, batches and errors as in `file_formats.read_batches`.

    Stripes without a selected row are not read; statistics of stripes are not used.
    """
    legacy = option_value(options, _LEGACY)
    with open_data_file(file_io, path, "an ORC file", file_size) as source:
        tail = read_tail(source, path)
        file = pyarrow.orc.ORCFile(source)
        if file.nstripes != len(tail.stripes):
            raise pa.ArrowInvalid(f"{file.nstripes} stripes instead of {len(tail.stripes)}")
        names = set(file.schema.names)
        present = [field for field in columns if field.name in names]
        zoned = any(has_instants(field.type) for field in present)
        instants: pyarrow.orc.ORCFile | None = None
        wide: _WideStripes | None = None
        start = 0
        for index, stripe in enumerate(tail.stripes):
            if stripe.rows and not (selection and selection.empty(start, stripe.rows)):
                zone = _zone(read_zone(source, tail, stripe, path), path) if zoned else None
                if zone is not None:
                    instants = instants or _with_tail(source, tail, all_instants(tail.content))
                try:
                    raw = _raw_stripe(instants or file, index, stripe.rows, present)
                except pa.ArrowInvalid as error:
                    if not exceeds_nanoseconds(error):
                        raise
                    wide = wide or _WideStripes(source, tail, path)
                    raw = wide.read(index, present)
                decoded = _conformed(raw, present, path)
                if zone is not None:
                    decoded = in_utc(decoded, present, zone, legacy)
                for first in range(0, stripe.rows, batch_rows):
                    piece = decoded.slice(first, batch_rows)
                    batch = selected(piece, start + first, selection)
                    if batch.num_rows:
                        yield batch
            start += stripe.rows


def _zone(name: str, path: str) -> Zone | None:
    try:
        return zone_of(name)
    except UnsupportedFeatureError as error:
        error.context.setdefault("path", path)
        raise


def _with_tail(source: pa.NativeFile, tail: Tail, content: bytes) -> pyarrow.orc.ORCFile:
    """The file with other bytes instead of the content of its tail."""
    file = OtherTail(source, source.size() - len(tail.content), content)
    return pyarrow.orc.ORCFile(pa.PythonFile(file, mode="r"))


class _WideStripes:
    """Reads stripes with timestamps that 64-bit nanoseconds cannot hold, see `wide`."""

    def __init__(self, source: pa.NativeFile, tail: Tail, path: str) -> None:
        self._source = source
        self._tail = tail
        self._path = path
        self._root: TypeNode = read_types(tail, path)
        self._file = _with_tail(source, tail, all_longs(tail.content))

    def read(self, index: int, columns: Sequence[DataField]) -> pa.RecordBatch:
        """One stripe, in the form in which the library returns others."""
        stripe: Stripe = self._tail.stripes[index]
        raw = _raw_stripe(self._file, index, stripe.rows, columns)
        streams = read_secondary(self._source, self._tail, stripe, self._path)
        nodes = dict(zip(self._root.names, self._root.children, strict=True))
        with described(self._path):
            nanos = {
                column: nanoseconds(*streams.get(column, (b"", True)))
                for name in raw.schema.names
                for column in _timestamp_columns(nodes[name])
            }
            arrays = [
                with_timestamps(array, nodes[name], nanos, name, self._path)
                for name, array in zip(raw.schema.names, raw.columns, strict=True)
            ]
        return pa.RecordBatch.from_arrays(arrays, names=raw.schema.names)


def _timestamp_columns(node: TypeNode) -> Iterator[int]:
    if node.kind in TIMESTAMP_KINDS:
        yield node.column
    for child in node.children:
        yield from _timestamp_columns(child)


def _raw_stripe(
    file: pyarrow.orc.ORCFile, index: int, rows: int, columns: Sequence[DataField]
) -> pa.RecordBatch:
    if not columns:
        return rows_without_columns(rows)
    decoded = file.read_stripe(index, columns=[field.name for field in columns])
    if decoded.num_rows != rows:
        raise pa.ArrowInvalid(f"a stripe has {decoded.num_rows} rows instead of {rows}")
    decoded.validate()
    return decoded


def _conformed(decoded: pa.RecordBatch, columns: Sequence[DataField], path: str) -> pa.RecordBatch:
    if not columns:
        return decoded
    batch = conform_batch(decoded, columns, path)
    arrays = [
        mapped_values(column, field.type, (TypeRoot.CHAR,), _without_blanks)
        for column, field in zip(batch.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _without_blanks(column: pa.StringArray, _: AtomicType) -> pa.StringArray:
    """CHAR values without the blanks at their end."""
    return pc.utf8_rtrim(column, " ")
