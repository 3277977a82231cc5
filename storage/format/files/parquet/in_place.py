# SPDX-License-Identifier: Apache-2.0
"""Parquet files that an engine may decode itself: which ones, and the checksums of their pages.

An engine that reads a file in place of `parquet.read_batches` must get the same values from it. So
the file must hold the columns in the types that rows have in memory, which leaves nothing to
convert, and its pages are verified here, because engines do not do it (DuckDB 2.0 returns wrong
values for most flipped bits). Data files never change: a process verifies a column of a file once.
"""

import concurrent.futures
import functools
import os
import pathlib
import zlib
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import CorruptDataError
from storage.format.files.data_input import decoding, open_data_file
from storage.format.files.parquet.footer import page_header
from storage.format.files.parquet.parquet import RowGroupFilter, ranges_of
from storage.format.types.arrow_types import arrow_type
from storage.format.types.types import DataField
from storage.io.file_io import FileIO
from storage.lru import LruCache

_PARQUET_FILE = "a Parquet file"
_VERIFIED: LruCache[tuple[str, int, int, str], bool] = LruCache(100_000)
"""By path, time of change [ns], size [bytes] and column."""


def readable_in_place(
    file_io: FileIO,
    path: str,
    fields: Sequence[DataField],
    *,
    file_size: int,
    row_count: int,
    keep_row_group: RowGroupFilter | None = None,
) -> bool:
    """Whether a file holds the columns as rows have them, and all of its row groups are needed.

    Args:
        file_io: the store.
        path: of the file.
        fields: the columns; the file has them under these names.
        file_size: of its metadata [bytes].
        row_count: of its metadata.
        keep_row_group: which row groups are needed; None: all.

    Raises:
        CorruptDataError: it is no Parquet file of this size and number of rows.
        FileNotFoundError: there is no such file.
    """
    with open_data_file(file_io, path, _PARQUET_FILE, file_size) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        schema, metadata = file.schema_arrow, file.metadata
    if metadata.num_rows != row_count:
        raise CorruptDataError(
            "a data file's row count differs from its manifest",
            path=path,
            expected=row_count,
            found=metadata.num_rows,
        )
    if len({name.lower() for name in schema.names}) < len(schema.names):
        return False  # engines fold the case of names
    for field in fields:
        position = schema.get_field_index(field.name)
        if position < 0 or schema.field(position).type != arrow_type(field.type):
            return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    ranges = [ranges_of(group) for group in groups]
    millis = [field.name for field in fields if _is_millis(schema.field(field.name).type)]
    return all(
        (keep_row_group is None or keep_row_group(columns))
        and all(name in columns and columns[name].bounded for name in millis)
        for columns in ranges
    )


def verify_pages(
    paths: Sequence[str], columns: Sequence[str], is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """Compare the pages of columns with their checksums, as far as files have them.

    Args:
        paths: local ones.
        columns: names of columns of the files; of nested columns all parts are read.
        stopped: whether to end early; what was not verified by then is the next time.

    Raises:
        CorruptDataError: a page is damaged, names the first.
        FileNotFoundError: a file is missing.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1, "verify") as pool:
        verify = functools.partial(_verify, columns=frozenset(columns), is_stopped=is_stopped)
        for _ in pool.map(verify, paths):
            pass


def _verify(path: str, columns: frozenset[str], is_stopped: Callable[[], bool]) -> None:
    with decoding(path, _PARQUET_FILE), pathlib.Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        state = (path, status.st_mtime_ns, status.st_size)
        unverified = {name for name in columns if (*state, name) not in _VERIFIED}
        if not unverified:
            return
        metadata = pq.read_metadata(file)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for chunk in map(group.column, range(group.num_columns)):
                if is_stopped():
                    return
                if chunk.path_in_schema.partition(".")[0] in unverified:
                    file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                    _verify_chunk(file.read(chunk.total_compressed_size), path)
    for name in unverified:
        _VERIFIED.put((*state, name), True)


def _verify_chunk(chunk: bytes, path: str) -> None:
    position, contents = 0, memoryview(chunk)
    while position < len(chunk):
        try:
            start, size, checksum = page_header(chunk, position)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(path, detail=str(error)) from error
        position = start + size
        page = contents[start:position]
        if len(page) < size or (checksum is not None and zlib.crc32(page) != checksum):
            raise _damaged(path, detail="a page does not match its checksum")


def _damaged(path: str, detail: str) -> CorruptDataError:
    return CorruptDataError(
        "a data file cannot be decoded", detail=detail, path=path, expected=_PARQUET_FILE
    )


def _is_millis(type_: pa.DataType) -> bool:
    """Engines count microseconds; milliseconds beyond their range would fail."""
    return bool(pa.types.is_timestamp(type_)) and type_.unit == "ms"
