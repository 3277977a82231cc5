# SPDX-License-Identifier: Apache-2.0
"""Avro data files: columns in, columns out. Source: FORMAT.md §4.1, §7.5.

Puts together `schema`, records (`encode`, `decode`) and `container`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import CorruptDataError, InternalError
from storage.format.avro.container import BLOCK_BYTES, Block, BlockReader, BlockWriter, codec_of
from storage.format.avro.decode import BlockError, RecordDecoder
from storage.format.avro.encode import encode_records
from storage.format.avro.schema import schema_text
from storage.format.files.data_input import open_data_file
from storage.format.files.file_columns import rows_without_columns, selected
from storage.format.files.row_selection import RowSelection
from storage.format.types.arrow_types import arrow_field
from storage.format.types.types import DataField
from storage.io.file_io import FileIO
from storage.options.options import option_value

__all__ = ["AvroSink", "read_batches"]

_CHUNK_ROWS = 1 << 16
"""Rows encoded at a time; bounds the memory of an encoding."""

_GROUP_BYTES = 16 << 20
"""Uncompressed size of the blocks that are decoded together: about 260 usual ones."""


class AvroSink:
    """Writes one Avro file; see `file_formats.RowSink`.

    Args:
        output: binary sink.
        fields: the columns.
        compression: `file.compression`; `avro.codec` among the options goes before it.
        zstd_level: level for zstandard.
        options: the table's.

    Raises:
        UnsupportedFeatureError: Avro has no such type.
        InvalidOptionError: unknown compression.
    """

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str,
        zstd_level: int,
        options: Mapping[str, str],
    ) -> None:
        codec = codec_of(option_value(options, "avro.codec") or compression)
        self._fields = fields
        self._output = output
        self._blocks = BlockWriter(output, schema_text(fields), codec, zstd_level)

    @property
    def size(self) -> int:
        """See `RowSink`."""
        return int(self._output.tell())

    def write(self, columns: Sequence[pa.Array]) -> None:
        """See `RowSink`."""
        types = [arrow_field(field).type for field in self._fields]
        if len(columns) != len(types) or any(
            column.type != type_ for column, type_ in zip(columns, types, strict=True)
        ):
            raise InternalError(
                "rows do not fit the file's schema",
                expected=", ".join(map(str, types)),
                found=", ".join(str(column.type) for column in columns),
            )
        for start in range(0, len(columns[0]), _CHUNK_ROWS):
            pieces = [column.slice(start, _CHUNK_ROWS) for column in columns]
            self._write_records(encode_records(pieces, self._fields))

    def close(self) -> None:
        """See `RowSink`."""
        self._blocks.close()

    def _write_records(self, records: pa.BinaryArray) -> None:
        """Cut the records into blocks of about the usual size."""
        _, offset_buffer, content = records.buffers()
        count = len(records)
        bounds = np.frombuffer(offset_buffer, np.int32, count + 1, records.offset * 4)
        data = memoryview(content if content is not None else b"")
        first = 0
        while first < count:
            limit = int(bounds[first]) + BLOCK_BYTES
            last = min(count, int(np.searchsorted(bounds, limit, side="left")))
            last = max(last, first + 1)
            self._blocks.write(data[bounds[first] : bounds[last]], last - first)
            first = last


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    selection: RowSelection | None = None,
    file_size: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read some columns; arguments, batches and errors as in `file_formats.read_batches`.

    Blocks without a selected row are neither decompressed nor decoded.
    """
    with open_data_file(file_io, path, "an Avro file", file_size) as source:
        reader = BlockReader(source, path)
        decoder = _decoder(reader.schema_text, columns, path)
        blocks: list[tuple[Block, bytes]] = []
        start = position = held = 0
        for block in reader.blocks():
            skipped = selection is not None and selection.empty(position, block.count)
            if blocks and (skipped or held > _GROUP_BYTES):
                yield from _decoded(decoder, blocks, start, batch_rows, selection, path)
                blocks, held = [], 0
            if not blocks:
                start = position
            if not skipped:
                blocks.append((block, block.data()))
                held += len(blocks[-1][1])
            position += block.count
        yield from _decoded(decoder, blocks, start, batch_rows, selection, path)


def _decoder(text: str, columns: Sequence[DataField], path: str) -> RecordDecoder:
    try:
        return RecordDecoder(text, columns)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            expected="an Avro schema that fits the table's",
        ) from error


def _decoded(
    decoder: RecordDecoder,
    blocks: Sequence[tuple[Block, bytes]],
    start: int,
    batch_rows: int,
    selection: RowSelection | None,
    path: str,
) -> Iterator[pa.RecordBatch]:
    """The records of some blocks, the first being row `start` of the file."""
    rows = sum(block.count for block, _ in blocks)
    if not blocks:
        return
    try:
        arrays = decoder.decode([(data, block.count) for block, data in blocks])
    except BlockError as error:
        block, _ = blocks[error.position]
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            offset=block.offset,
            expected=f"{block.count} Avro records",
        ) from error
    except (ValueError, OverflowError) as error:
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            expected="values of the columns' types",
        ) from error
    if arrays:
        schema = pa.schema([arrow_field(field) for field in decoder.present])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    else:
        batch = rows_without_columns(rows)
    for first in range(0, rows, batch_rows):
        chosen = selected(batch.slice(first, batch_rows), start + first, selection)
        if chosen.num_rows:
            yield chosen
