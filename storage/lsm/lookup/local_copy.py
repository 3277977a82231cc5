# SPDX-License-Identifier: Apache-2.0
"""The local copy of one data file: how it is written, opened, searched and read by position.

One file, written once and then only mapped:

| part | holds |
|---|---|
| words | sorted uint64, one per row: bits of the key's hash, row number; absent for a number key |
| rows | an uncompressed Arrow IPC stream, KeyValueBatches in file order and today's schema |
| fences | 64-bit: every 64th word; or every 64th number of the key column of each batch |
| trailer | sizes, and a token that identifies the copied file; guarded by a CRC |

A row is read by its position without its neighbours. The trailer is written last, and the copy gets
its name when it is complete. Nothing is synced: the token holds the machine's boot, so that a copy
from before a crash of the machine is not taken for one.

A key of one integer-like column is searched for in that column, which is sorted: no byte more. Any
other key by its hash; a row with the right bits is then compared with the key itself. Each access
to a line of mapped memory that no cache holds costs as much as a hundred comparisons, so keys are
looked for in ascending order, and first among the fences.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.files.data_file import key_value_schema, read_key_values
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.row.bucket import key_hashes
from storage.format.types.types import AtomicType, DataType, TypeRoot
from storage.io.file_io import FileIO

KeyWords = npt.NDArray[np.uint64]
"""Hash bits and row number of every row of a file, ascending; or plain hashes, one per row."""

_INTEGER_LIKE = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    }
)
_NARROW = 32

FENCED = 64
"""Entries from fence to fence; a power of two. Between 16 and 128 it hardly matters."""


def searches_column(types: Sequence[DataType]) -> bool:
    """Whether keys of these types can be searched for in their own column."""
    if len(types) != 1:
        return False
    only = types[0]
    return isinstance(only, AtomicType) and only.root in _INTEGER_LIKE


def number_column(column: pa.Array) -> npt.NDArray[np.signedinteger]:
    """The integers behind an integer-like column without nulls; zero copy."""
    kind = column.type
    if not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == _NARROW else pa.int64())
    numbers: npt.NDArray[np.signedinteger] = column.to_numpy(zero_copy_only=True)
    return numbers


def key_words(columns: Sequence[pa.Array], types: Sequence[DataType], seed: int) -> KeyWords:
    """A 64-bit hash of each key; equal keys have equal ones.

    The seed is below 2^64, the same for all that is compared.
    """
    plain = [_one_nan(column) for column in columns]
    return np.ascontiguousarray(key_hashes(plain, types, (seed, 0))[:, 0])


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Row by row, whether two keys are equal; null equals null, NaN equals NaN, -0.0 not 0.0."""
    same = np.ones(len(left[0]), np.bool_)
    for left_column, right_column in zip(left, right, strict=True):
        equal = pc.equal(_bits(left_column), _bits(right_column))
        if equal.null_count:
            both_null = pc.and_(pc.is_null(left_column), pc.is_null(right_column))
            equal = pc.coalesce(equal, both_null)
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _one_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def _bits(column: pa.Array) -> pa.Array:
    """A column whose equality is that of keys."""
    if not pa.types.is_floating(column.type):
        return column
    return _one_nan(column).view(pa.int32() if column.type.bit_width == _NARROW else pa.int64())


def lower_bounds(
    entries: npt.NDArray[Any], fences: npt.NDArray[Any], targets: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Position of the first entry that is not below each searched value.

    Args:
        entries: ascending.
        fences: every `FENCED`-th of them, from the first on.
        wanted: ascending, of the same type.

    Cost: on 100,000 of 30 million entries a third of what `np.searchsorted` takes.
    """
    block = np.searchsorted(fences, targets) - 1
    at = np.maximum(block, 0) * FENCED
    step = FENCED // 2
    while step:
        middle = at + step
        np.minimum(middle, len(entries) - 1, out=middle)
        is_below = entries.take(middle) < targets
        at[is_below] = middle[is_below]
        step //= 2
    at += 1
    at[block < 0] = 0
    return at


class SearchedKeys:
    """Keys that are looked for, strictly ascending; data for searches is computed once."""

    def __init__(self, columns: Sequence[pa.Array], types: Sequence[DataType], seed: int) -> None:
        self.columns = tuple(columns)
        self._types = tuple(types)
        self._seed = seed

    def __len__(self) -> int:
        return len(self.columns[0])

    @functools.cached_property
    def numbers(self) -> npt.NDArray[np.signedinteger] | None:
        """The keys as integers; None unless they are one integer-like column without nulls."""
        if not searches_column(self._types) or self.columns[0].null_count:
            return None
        return number_column(self.columns[0])

    @functools.cached_property
    def words(self) -> KeyWords:
        """The hash of each key."""
        return key_words(self.columns, self._types, self._seed)

    def between(self, start: int, end: int) -> "SearchedKeys":
        """Some neighbouring keys."""
        part = SearchedKeys(
            [column.slice(start, end - start) for column in self.columns], self._types, self._seed
        )
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[start:end]
        return part

    def only(self, numbers: npt.NDArray[np.int64]) -> "SearchedKeys":
        """Some keys by number, ascending."""
        indices = pa.array(numbers)
        part = SearchedKeys([column.take(indices) for column in self.columns], self._types,
                            self._seed)  # fmt: skip
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[numbers]
        return part


_CHUNK_ROWS = 1 << 20
_CHUNK_BYTES = 64 << 20
"""A copy's batches: few, so that a search of all of them costs little; small enough to be held in
memory twice while it is written."""

_READ_ROWS = 65_536
_MAGIC = b"LWLOOK01"
_TRAILER = struct.Struct("<8sQQQQQ16s")
_CRC = struct.Struct("<I")
_ALIGNMENT = 64


class _OutOfOrderError(Exception):
    """The key column cannot be searched: its numbers do not ascend."""


@dataclasses.dataclass(frozen=True, slots=True)
class CopySource:
    """A data file, and the schema it is copied in.

    Attributes:
        read_schema: today's schema.
    """

    file_io: FileIO
    path: str
    meta: DataFileMeta
    file_schema: TableSchema
    read_schema: TableSchema

    @property
    def identity(self) -> str:
        """Differs when the copy would."""
        meta = self.meta
        facts = (
            self.path,
            meta.file_size,
            meta.row_count,
            meta.min_key,
            meta.max_key,
            meta.min_sequence_number,
            meta.max_sequence_number,
            meta.creation_time_ms,
            meta.value_stats,
            meta.write_cols,
            _columns_text(self.file_schema),
            _columns_text(self.read_schema),
            self.read_schema.trimmed_primary_keys,
        )
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()

    @property
    def name(self) -> str:
        """Name of the copy: the data file's, the schema's id, the identity."""
        return f"{self.meta.file_name}.{self.read_schema.id}.{self.identity}"


@functools.lru_cache(maxsize=1024)
def _columns_text(schema: TableSchema) -> str:
    return repr(schema.fields)


@functools.cache
def boot_seed() -> int:
    """A number that stays the same until the machine reboots; below 2^64."""
    return int.from_bytes(hashlib.blake2b(_boot().encode(), digest_size=8).digest(), "big")


@functools.cache
def _boot() -> str:
    try:
        text = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:  # not Linux
        return "unknown"
    return text.strip()


def _token(source: CopySource) -> bytes:
    return hashlib.blake2b(f"{source.identity} {_boot()}".encode(), digest_size=16).digest()


# --- writing ---------------------------------------------------------------------------------


def write_copy(file: BinaryIO, source: CopySource) -> int:
    """Copy a data file in bounded memory; size of the copy [bytes].

    The file is empty, open for reading and writing; the caller flushes it.

    Raises:
        OSError: the local disk is full or fails.
        StorageUnavailableError: the data file cannot be read.
        CorruptDataError: the data file violates the format.
    """
    types = [field.type for field in source.read_schema.key_fields]
    if searches_column(types):
        try:
            return _write(file, source, hashed=False)
        except _OutOfOrderError:
            file.seek(0)
            file.truncate(0)
    return _write(file, source, hashed=True)


def _write(file: BinaryIO, source: CopySource, *, hashed: bool) -> int:
    rows = source.meta.row_count
    row_bits = max(1, (rows - 1).bit_length()) if hashed and rows else 0
    words_bytes = 8 * rows if row_bits else 0
    start = -(-words_bytes // _ALIGNMENT) * _ALIGNMENT
    words = None
    if words_bytes:
        # reserve first: a full disk must be an error here, not a signal while the map is written to
        os.posix_fallocate(file.fileno(), 0, start)
        words = np.memmap(file, np.uint64, "r+", shape=(rows,))
    file.seek(start)
    schema = key_value_schema(source.read_schema)
    with pa.ipc.new_stream(pa.PythonFile(file, "w"), schema) as writer:
        order = None if hashed else _Ascending()
        row = 0
        for chunk in _chunks(source):
            if row + chunk.num_rows > rows:
                row = rows  # the reader raises an error for this at the end
                continue
            keys = [chunk.column(name) for name in source.read_schema.trimmed_primary_keys]
            if order is not None:
                order.add(keys[0])
            elif words is not None:
                words[row : row + chunk.num_rows] = _packed(source, keys, row, row_bits)
            writer.write_batch(chunk)
            row += chunk.num_rows
    fences = b""
    if words is not None:
        words.sort()
        fences = words[::FENCED].tobytes()
    elif order is not None:
        fences = np.concatenate([np.empty(0, np.int64), *order.fences]).tobytes()
    size = file.seek(0, os.SEEK_END) - start
    # an Arrow stream ends on a multiple of eight, and so the fences begin on one
    body = _TRAILER.pack(_MAGIC, rows, start, size, len(fences), row_bits, _token(source))
    file.write(fences + body + _CRC.pack(zlib.crc32(body)))
    return file.tell()


def _packed(
    source: CopySource, keys: Sequence[pa.Array], first_row: int, row_bits: int
) -> npt.NDArray[np.uint64]:
    types = [field.type for field in source.read_schema.key_fields]
    words = key_words(keys, types, boot_seed())
    words &= np.uint64(_upper(row_bits))
    words |= np.arange(first_row, first_row + len(words), dtype=np.uint64)
    return words


def _upper(row_bits: int) -> int:
    return ((1 << 64) - 1) ^ ((1 << row_bits) - 1)


def _chunks(source: CopySource) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of the copy's size."""
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in read_key_values(
        source.file_io,
        source.path,
        source.meta,
        source.file_schema,
        source.read_schema,
        None,
        batch_rows=_READ_ROWS,
    ):
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield pa.concat_batches(batches)
            batches, rows, size = [], 0, 0
    if rows:
        yield pa.concat_batches(batches)


class _Ascending:
    """Checks that a key column can be searched."""

    def __init__(self) -> None:
        self.fences: list[npt.NDArray[np.int64]] = []
        self._last: int | None = None

    def add(self, column: pa.Array) -> None:
        """The next rows.

        Raises:
            _OutOfOrderError: there is a null, or a number is not above the one before.
        """
        if column.null_count:
            raise _OutOfOrderError
        numbers = number_column(column)
        if self._last is not None and int(numbers[0]) <= self._last:
            raise _OutOfOrderError
        if not bool(np.all(numbers[1:] > numbers[:-1])):
            raise _OutOfOrderError
        self._last = int(numbers[-1])
        self.fences.append(numbers[::FENCED].astype(np.int64))


# --- reading ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """The sections of a copy, mapped."""

    batches: tuple[pa.RecordBatch, ...]
    words: npt.NDArray[np.uint64] | None
    row_bits: int
    fences: npt.NDArray[np.int64]
    size: int


class LocalCopy:
    """An open copy. It stays readable when its file is removed. Safe for threads.

    Attributes:
        size: of the file [bytes].
    """

    def __init__(self, parts: _Parts, key_names: Sequence[str]) -> None:
        self.size = parts.size
        self._batches = parts.batches
        self._starts = np.cumsum([0, *(batch.num_rows for batch in parts.batches)])
        self._keys = [[batch.column(name) for name in key_names] for batch in parts.batches]
        self._words = parts.words
        self._row_bits = parts.row_bits
        self._fences = [parts.fences.view(np.uint64)]
        self._numbers: list[npt.NDArray[np.signedinteger]] = []
        if parts.words is None:
            self._numbers = [number_column(keys[0]) for keys in self._keys]
            counts = [-(-batch.num_rows // FENCED) for batch in parts.batches]
            self._fences = np.split(parts.fences, np.cumsum(counts)[:-1])
            self._firsts = np.array([fences[0] for fences in self._fences])

    def find(self, keys: SearchedKeys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where keys are.

        Keys are strictly ascending.

        Returns:
            Numbers of the keys that are here, ascending, and the position of the row of each; both
            int64.
        """
        if not self._batches or not len(keys):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if self._words is None:
            return self._by_column(keys)
        return self._by_hash(keys, self._words)

    def rows(self, positions: npt.NDArray[np.int64]) -> list[pa.RecordBatch]:
        """Rows by position.

        Positions are ascending.

        Returns:
            KeyValueBatches which together are the rows in order; none for no position.
        """
        return [
            self._batches[number].take(pa.array(inside))
            for number, inside in self._by_batch(positions)
        ]

    def _by_batch(
        self, positions: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        cuts = np.searchsorted(positions, self._starts)
        for number in map(int, np.flatnonzero(cuts[1:] > cuts[:-1])):
            yield number, positions[cuts[number] : cuts[number + 1]] - self._starts[number]

    def _by_column(self, keys: SearchedKeys) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        targets = keys.numbers
        if targets is None:  # nulls: the column has none
            valid = np.flatnonzero(keys.columns[0].is_valid().to_numpy(zero_copy_only=False))
            numbers, positions = self._by_column(keys.only(valid)) if len(valid) else (valid, valid)
            return valid[numbers], positions
        cuts = np.searchsorted(targets, self._firsts)
        cuts = np.append(cuts, len(targets))
        indices, places = [], []
        for number, column in enumerate(self._numbers):
            part = targets[cuts[number] : cuts[number + 1]]
            if not len(part):
                continue
            at = lower_bounds(column, self._fences[number], part)
            at[at == len(column)] = 0
            hits = np.flatnonzero(column[at] == part)
            indices.append(hits + cuts[number])
            places.append(at[hits] + self._starts[number])
        return _concatenated(indices), _concatenated(places)

    def _by_hash(
        self, keys: SearchedKeys, words: npt.NDArray[np.uint64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        upper = np.uint64(_upper(self._row_bits))
        order = np.argsort(keys.words)
        hashes = keys.words[order] & upper
        at = lower_bounds(words, self._fences[0], hashes)
        position = np.full(len(keys), -1, np.int64)
        while True:
            # one candidate per key and turn; a second turn is rare
            hits = np.flatnonzero(at < len(words))
            hits = hits[words[at[hits]] & upper == hashes[hits]]
            order, hashes, at = order[hits], hashes[hits], at[hits]
            if not len(order):
                break
            rows = (words[at] & ~upper).astype(np.int64)
            right = self._equal_keys(keys, order, rows)
            # of rows with one key, which a level does not have, the last counts
            position[order[right]] = rows[right]
            at = at + 1
        matches = np.flatnonzero(position >= 0)
        return matches, position[matches]

    def _equal_keys(
        self, keys: SearchedKeys, numbers: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Whether the keys with these numbers are those of these rows."""
        order = np.argsort(rows)
        result = np.empty(len(rows), np.bool_)
        ascending, columns = rows[order], keys.only(numbers[order]).columns
        start = 0
        for number, inside in self._by_batch(ascending):
            indices = pa.array(inside)
            stored_keys = [column.take(indices) for column in self._keys[number]]
            searched_keys = [column.slice(start, len(inside)) for column in columns]
            result[order[start : start + len(inside)]] = same_keys(stored_keys, searched_keys)
            start += len(inside)
        return result


def _concatenated(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def open_copy(path: pathlib.Path, source: CopySource) -> LocalCopy | None:
    """Map the copy of a file, if it exists and is complete.

    Returns:
        None when there is none, or one that is damaged, of something else, or from before the
        machine last started.

    Cost: independent of the number of rows, but for one step per million.
    """
    try:
        with pa.memory_map(str(path)) as file:
            buffer = file.read_buffer()
    except (OSError, pa.ArrowInvalid):  # not there, or empty
        return None
    parts = _parts(buffer, source)
    return None if parts is None else LocalCopy(parts, source.read_schema.trimmed_primary_keys)


def _parts(buffer: pa.Buffer, source: CopySource) -> _Parts | None:
    """The sections of a copy; None when it is damaged or of another file."""
    tail = _TRAILER.size + _CRC.size
    if buffer.size < tail:
        return None
    trailer = buffer.slice(buffer.size - tail).to_pybytes()
    body, crc = trailer[: _TRAILER.size], _CRC.unpack(trailer[_TRAILER.size :])[0]
    magic, rows, start, size, fences, row_bits, token = _TRAILER.unpack(body)
    if magic != _MAGIC or zlib.crc32(body) != crc or token != _token(source):
        return None
    if start + size + fences + tail != buffer.size or rows != source.meta.row_count:
        return None
    try:
        with pa.ipc.open_stream(pa.BufferReader(buffer.slice(start, size))) as reader:
            fits = reader.schema.equals(key_value_schema(source.read_schema))
            batches = tuple(reader)
    except (pa.ArrowException, OSError):
        return None
    if not fits or sum(batch.num_rows for batch in batches) != rows:
        return None
    return _Parts(
        batches,
        np.frombuffer(buffer, np.uint64, count=rows) if row_bits else None,
        row_bits,
        np.frombuffer(buffer.slice(start + size, fences), np.int64),
        buffer.size,
    )
