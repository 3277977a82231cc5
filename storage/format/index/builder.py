# SPDX-License-Identifier: Apache-2.0
"""The file indexes configured for a table, all built while a data file is written.

Source: FORMAT.md §10.1. `file-index.<type>.columns` names the columns of one type of index;
`m[k]` is the value of key `k` in the map column `m`. Settings of a column are
`file-index.<type>.<column>.<setting>`, those of a map column count for all its keys.
"""

import dataclasses
import functools
import logging
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.errors import CorruptDataError, InvalidOptionError, InvalidRequestError
from storage.format.index.bitmap import (
    BitmapBuilder,
    BitmapReader,
    BsiBuilder,
    BsiReader,
    RangeBitmapBuilder,
    RangeBitmapReader,
)
from storage.format.index.hashing import (
    BLOOM_ROOTS,
    DEFAULT_FPP,
    DEFAULT_ITEMS,
    BloomBuilder,
    BloomReader,
    parameters,
)
from storage.format.index.values import MAX_DECIMAL, IndexReader, Source, Window
from storage.format.types.types import AtomicType, DataField, DataType, MapType, TypeRoot, type_name
from storage.options.options import TableOptions
from storage.options.values import decimal_number, integer, memory_size

# The file index container: which indexes of which columns a data file has, and where.
#
# Source: FORMAT.md §10.2. The same bytes are in the manifest or in a file beside the data file.
# Names are written as Java's modified UTF-8: NUL takes two bytes, a character beyond the basic
# plane is a pair of surrogates of three bytes each.


MAGIC = 1493475289347502
_VERSION = 1
_EMPTY = -1
"""`start` of an index whose writer never got a row."""

_HEAD = struct.Struct(">qii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_PLACE = struct.Struct(">ii")
_MAX_NAME = 0xFFFF

ColumnIndexes = Mapping[str, bytes | None]
"""Index type -> payload; None = the index is empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileIndexContainer:
    """A container whose head is read.

    Attributes:
        columns: column -> index type -> payload; None = the index is empty.
    """

    source: Source
    columns: Mapping[str, Mapping[str, Window | None]]

    def payloads(self) -> dict[str, dict[str, bytes | None]]:
        """All payloads in memory, to write them again."""
        return {
            column: {
                kind: None if window is None else window.read(0, window.length)
                for kind, window in indexes.items()
            }
            for column, indexes in self.columns.items()
        }


def encode_container(columns: Mapping[str, ColumnIndexes]) -> bytes:
    """The bytes of a container; order is kept.

    Raises:
        InvalidRequestError: a name is too long.
    """
    names = {column: _encode_name(column) for column in columns}
    head_length = _HEAD.size + 2 * _INT.size
    for column, indexes in columns.items():
        head_length += len(names[column]) + _INT.size
        head_length += sum(len(_encode_name(kind)) + _PLACE.size for kind in indexes)
    head = [_HEAD.pack(MAGIC, _VERSION, head_length), _INT.pack(len(columns))]
    body: list[bytes] = []
    at = head_length
    for column, indexes in columns.items():
        head += [names[column], _INT.pack(len(indexes))]
        for kind, payload in indexes.items():
            head.append(_encode_name(kind))
            if payload is None:
                head.append(_PLACE.pack(_EMPTY, 0))
                continue
            head.append(_PLACE.pack(at, len(payload)))
            body.append(payload)
            at += len(payload)
    head.append(_INT.pack(0))  # length of a part that later versions may add
    return b"".join(head + body)


def read_container(source: Source) -> FileIndexContainer:
    """Read the head; payloads are read when they are asked for.

    Raises:
        CorruptDataError: this is no container, or one of a later version.
    """
    whole = Window(source, 0, source.size)
    magic, version, head_length = _HEAD.unpack(whole.read(0, _HEAD.size))
    if magic != MAGIC or version != _VERSION:
        raise whole.damage(
            "this is not a file index, or one of a later version",
            0,
            expected=f"magic {MAGIC}, version {_VERSION}",
            found=f"magic {magic}, version {version}",
        )
    reader = _HeadReader(whole.part(0, head_length), _HEAD.size)
    columns: dict[str, dict[str, Window | None]] = {}
    for _ in range(reader.count()):
        column = reader.name()
        indexes = columns.setdefault(column, {})
        for _ in range(reader.count()):
            kind = reader.name()
            start, length = reader.integer(), reader.integer()
            indexes[kind] = None if start == _EMPTY else whole.part(start, length)
    return FileIndexContainer(source, columns)


class _HeadReader:
    """Walks over the head."""

    def __init__(self, window: Window, at: int) -> None:
        self._window = window
        self._at = at

    def integer(self) -> int:
        value = self._window.integer(self._at)
        self._at += _INT.size
        return value

    def count(self) -> int:
        value = self._window.count(self._at, self._window.length)
        self._at += _INT.size
        return value

    def name(self) -> str:
        (length,) = _SHORT.unpack(self._window.read(self._at, _SHORT.size))
        start = self._at + _SHORT.size
        self._at = start + length
        raw = self._window.read(start, length)
        try:
            text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeError as error:
            raise CorruptDataError(
                "a name in a file index is not modified UTF-8",
                path=self._window.path,
                offset=start,
                expected="modified UTF-8",
            ) from error


def _encode_name(name: str) -> bytes:
    units = name.encode("utf-16-le")
    split = "".join(chr(unit) for (unit,) in struct.iter_unpack("<H", units))
    raw = split.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(raw) > _MAX_NAME:
        raise InvalidRequestError(
            "a column name is too long for a file index", hint="shorten it", column=name[:50]
        )
    return _SHORT.pack(len(raw)) + raw


# The types of file index: which column types each takes, and how it is built and read.
#
# Source: FORMAT.md §10.


BLOOM = "bloom-filter"
BITMAP = "bitmap"
BSI = "bsi"
RANGE_BITMAP = "range-bitmap"

_COUNTS = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ),
    }
)
_VALUES = frozenset(TypeRoot) - {TypeRoot.DECIMAL, TypeRoot.BINARY, TypeRoot.VARBINARY}


@dataclasses.dataclass(frozen=True, slots=True)
class IndexType:
    """One type of file index.

    Attributes:
        roots: families of column types it takes.
        builder: makes the builder of a column.
        reader: opens a stored index.
        settings: by name, the argument of `builder` and the parser of its text.
    """

    roots: frozenset[TypeRoot]
    builder: Callable[..., Any]
    reader: Callable[[Window, AtomicType], IndexReader]
    settings: Mapping[str, tuple[str, Callable[[str], Any]]] = dataclasses.field(
        default_factory=dict
    )


INDEX_TYPES: Mapping[str, IndexType] = {
    BLOOM: IndexType(
        BLOOM_ROOTS,
        BloomBuilder,
        BloomReader,
        {"items": ("items", integer), "fpp": ("fpp", decimal_number)},
    ),
    BITMAP: IndexType(
        _VALUES,
        BitmapBuilder,
        BitmapReader,
        {"version": ("version", integer), "index-block-size": ("block_size", memory_size)},
    ),
    BSI: IndexType(_COUNTS | {TypeRoot.DECIMAL}, BsiBuilder, BsiReader),
    RANGE_BITMAP: IndexType(
        _VALUES | {TypeRoot.DECIMAL},
        RangeBitmapBuilder,
        RangeBitmapReader,
        {"chunk-size": ("chunk_size", memory_size)},
    ),
}

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_MICROS_PRECISION = 6


def is_rounded(type_: AtomicType) -> bool:
    """Whether indexes hold values of this type only rounded down."""
    return type_.root in _TIMESTAMPS and type_.precision > _MICROS_PRECISION


def can_index(index_type: str, type_: AtomicType) -> bool:
    """Whether a column of this type can have an index of a known type."""
    if type_.root is TypeRoot.DECIMAL and type_.precision > MAX_DECIMAL:
        return False
    if is_rounded(type_) and index_type == RANGE_BITMAP:
        return False
    return type_.root in INDEX_TYPES[index_type].roots


def takes(index_type: str) -> str:
    """What a type of index takes, in words."""
    words = []
    for root in sorted(INDEX_TYPES[index_type].roots, key=lambda root: root.value):
        if root is TypeRoot.DECIMAL:
            words.append(f"DECIMAL up to precision {MAX_DECIMAL}")
        elif root in _TIMESTAMPS and index_type == RANGE_BITMAP:
            words.append(f"{root.value} up to precision {_MICROS_PRECISION}")
        else:
            words.append(root.value)
    return ", ".join(words)


class _EmptyReader(IndexReader):
    """An index whose writer got no row: no row of the file has a value."""

    def __init__(self) -> None:
        self._answer = pyroaring.BitMap()

    def null_rows(self) -> None:
        """It cannot decide."""


def open_index(kind: str, window: Window | None, type_: AtomicType) -> IndexReader | None:
    """A reader of a stored index; None when this version does not know the index.

    A window of None is an empty index; the type is that in the schema of the file.

    Raises:
        CorruptDataError: the payload is not of this type.
    """
    if window is None:
        return _EmptyReader()
    if kind not in INDEX_TYPES or not can_index(kind, type_):
        return None
    return INDEX_TYPES[kind].reader(window, type_)


_log = logging.getLogger(__name__)

_SETTING = re.compile(r"file-index\.([^.]+)\.([^.]+)\.([^.]+)\Z")
_MAP_KEY = re.compile(r"([^\[]*)\[(.*)\]\Z", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class FileIndexSpec:
    """One index configured for a table.

    Attributes:
        map_key: the key whose values are indexed, of a map column; None = the column itself.
        settings: parsed settings by name; those left out have their defaults.
    """

    index_type: str
    column: str
    map_key: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Column name inside the container."""
        return self.column if self.map_key is None else f"{self.column}[{self.map_key}]"

    @staticmethod
    def of(options: TableOptions) -> tuple["FileIndexSpec", ...]:
        """The indexes that the options of a table ask for, by type and then as listed.

        Raises:
            InvalidOptionError: an index type or setting is unknown, a value does not parse, or
                a setting is of a column that has no such index.
        """
        indexes: dict[tuple[str, str], dict[str, Any]] = {}
        for key, value in options.file_index_columns.items():
            kind = key.removeprefix("file-index.").removesuffix(".columns")
            if kind not in INDEX_TYPES:
                raise InvalidOptionError(
                    "unknown type of file index",
                    hint=f"one of {', '.join(INDEX_TYPES)}",
                    option=key,
                    found=kind,
                )
            for item in value.split(","):
                if not item.strip():
                    raise InvalidOptionError(
                        "a list of indexed columns has an empty item",
                        hint="give column names separated by commas",
                        option=key,
                        value=value,
                    )
                indexes[(kind, item.strip())] = {}
        _settle(indexes, options.file_index_settings)
        return tuple(_spec(kind, name, settings) for (kind, name), settings in indexes.items())

    def type_of(self, field: DataField) -> AtomicType:
        """The type of the indexed values.

        Raises:
            InvalidOptionError: values of this column cannot have this index.
        """
        value: DataType = field.type
        if self.map_key is not None:
            if not isinstance(value, MapType) or not _is_text(value.key):
                raise InvalidOptionError(
                    "an index of a map key needs a map column with text keys",
                    hint="name the column without `[...]`, or take a map with STRING keys",
                    column=self.name,
                    type=type_name(value),
                )
            value = value.value
        if not isinstance(value, AtomicType) or not can_index(self.index_type, value):
            raise InvalidOptionError(
                "a column of this type cannot have this file index",
                hint=f"`{self.index_type}` takes {takes(self.index_type)}",
                column=self.name,
                type=type_name(value),
                index=self.index_type,
            )
        return value

    def builder(self, type_: AtomicType) -> Any:
        """A new builder of this index."""
        kind = INDEX_TYPES[self.index_type]
        return kind.builder(
            type_, **{kind.settings[name][0]: value for name, value in self.settings.items()}
        )


def _is_text(type_: DataType) -> bool:
    return isinstance(type_, AtomicType) and type_.root in (TypeRoot.CHAR, TypeRoot.VARCHAR)


@functools.lru_cache(maxsize=1024)
def _warn_unknown(key: str) -> None:
    _log.warning("unknown setting of a file index is kept and has no effect option=`%s`", key)


def _settle(indexes: dict[tuple[str, str], dict[str, Any]], raw: Mapping[str, str]) -> None:
    """Assign column settings to the indexes; those of a map key override those of its map."""
    matches = [(match, value) for key, value in raw.items() if (match := _SETTING.match(key))]
    for match, value in sorted(matches, key=lambda item: "[" in item[0][2]):
        kind, column, setting = match.groups()
        targets = [
            settings
            for (index_type, name), settings in indexes.items()
            if index_type == kind and (name == column or name.startswith(f"{column}["))
        ]
        if not targets:
            raise InvalidOptionError(
                "setting for a column without this file index",
                hint=f"name the column in `file-index.{kind}.columns`, a map key as `map[key]`",
                option=match[0],
                column=column,
            )
        if setting not in INDEX_TYPES[kind].settings:
            _warn_unknown(match[0])
            continue
        try:
            parsed = INDEX_TYPES[kind].settings[setting][1](value)
        except ValueError as error:
            raise InvalidOptionError(
                "the value of an option cannot be read",
                hint=f"give {error}",
                option=match[0],
                value=value,
            ) from error
        for settings in targets:
            settings[setting] = parsed


def _spec(index_type: str, name: str, settings: Mapping[str, Any]) -> FileIndexSpec:
    match = _MAP_KEY.match(name)
    column, map_key = (name, None) if match is None else match.groups()
    if index_type == BLOOM:
        parameters(settings.get("items", DEFAULT_ITEMS), settings.get("fpp", DEFAULT_FPP))
    return FileIndexSpec(index_type, column, map_key, settings)


def check_file_indexes(fields: Sequence[DataField], options: TableOptions) -> None:
    """Check that a table with these value columns can have the file indexes its options ask for.

    Raises:
        InvalidOptionError: it cannot; names the column and the alternatives.
    """
    _indexed_columns(fields, FileIndexSpec.of(options))


def _indexed_columns(
    fields: Sequence[DataField], specs: Sequence[FileIndexSpec]
) -> list[tuple[FileIndexSpec, DataField, AtomicType]]:
    """Every index with its column and the type of its values."""
    by_name = {field.name: field for field in fields}
    columns = []
    for spec in specs:
        if spec.column not in by_name:
            raise InvalidOptionError(
                "file index on a column that does not exist",
                hint=f"the table has {', '.join(by_name)}",
                option=f"file-index.{spec.index_type}.columns",
                column=spec.column,
            )
        field = by_name[spec.column]
        columns.append((spec, field, spec.type_of(field)))
    return columns


class FileIndexBuilder:
    """Builds all indexes of one data file.

    Protocol: `add` the rows in file order, any number of times; then `finish` once.

    Args:
        fields: value columns in the order they are given to `add`.

    Raises:
        InvalidOptionError: a column is missing or cannot have its index.
    """

    def __init__(self, fields: Sequence[DataField], specs: Sequence[FileIndexSpec]) -> None:
        positions = {field.name: i for i, field in enumerate(fields)}
        self._builders = [
            (spec, positions[field.name], spec.builder(type_))
            for spec, field, type_ in _indexed_columns(fields, specs)
        ]
        self._rows = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add more rows.

        Columns are in the form of `arrow_types.arrow_type`, one per field.
        """
        if not columns or not len(columns[0]):
            return
        self._rows += len(columns[0])
        for spec, position, builder in self._builders:
            column = columns[position]
            if spec.map_key is not None:
                column = pc.map_lookup(column, spec.map_key, "first")
            builder.add(column)

    def payloads(self) -> dict[str, dict[str, bytes | None]]:
        """Index payloads by column and type; None = the index got no row."""
        result: dict[str, dict[str, bytes | None]] = {}
        for spec, _, builder in self._builders:
            payload = builder.finish() if self._rows or spec.map_key is None else None
            if payload is None and self._rows:
                _log.warning(
                    "no %s index was written for this column: it holds -2^63 column=`%s`",
                    spec.index_type,
                    spec.name,
                )
                continue
            result.setdefault(spec.name, {})[spec.index_type] = payload
        return result

    def finish(self) -> bytes:
        """The container, for the manifest or a file beside the data file."""
        return encode_container(self.payloads())
