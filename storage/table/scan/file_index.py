# SPDX-License-Identifier: Apache-2.0
"""Evaluating a filter on the file index of a data file: unknown, no row, or which rows.

Source: SEMANTICS.md §J, FORMAT.md §10. Every answer is a superset of the matching rows, so the
caller still applies the filter. Where skipping rows is sound is decided by `scan` and `read`:
never where another version of a row might be merged with it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyroaring

from storage.errors import CorruptDataError
from storage.format.files.data_file import INDEX_SUFFIX
from storage.format.files.row_selection import AllOf, Only, RowSelection
from storage.format.index.builder import FileIndexContainer, is_rounded, open_index, read_container
from storage.format.index.values import FileSource, IndexReader, MemorySource, Source
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.types.types import AtomicType, DataType, TypeRoot, arrow_type
from storage.io.file_io import FileIO
from storage.table.core import TableCore
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    columns_of,
    conjuncts,
    literal_scalar,
    normalised,
)

_MAX_ROWS = 0x7FFF_FFFF
_GROWING = (TypeRoot.VARCHAR, TypeRoot.VARBINARY)

Rows = pyroaring.BitMap | None
"""A superset of the matching rows; None = any row may match."""


class FileIndexFilter:
    """Evaluates one predicate on the file indexes of data files. Picklable if the table is.

    Args:
        table: the table; `file-index.read.enabled` says whether its indexes are used.
        predicate: rows wanted, by the columns of the table's schema; None = all.
    """

    def __init__(self, table: TableCore, predicate: Predicate | None) -> None:
        self._table = table
        self._predicate: Predicate | None = None
        constant = frozenset(table.schema.partition_keys)
        parts = tuple(part for part in conjuncts(predicate) if not columns_of(part) <= constant)
        if parts and table.options.file_index_read_enabled:
            self._predicate = normalised(And(parts))

    def keeps_embedded(self, file: DataFileMeta) -> bool:
        """Whether a file may hold a matching row, by the index in its metadata; True without one.

        Raises:
            CorruptDataError: the index is damaged.
        """
        if self._predicate is None or file.embedded_index is None:
            return True
        rows = self._rows(MemorySource(file.embedded_index, file.file_name), file)
        return rows is None or bool(rows)

    def selection(self, path: str, file: DataFileMeta) -> RowSelection | None:
        """Rows of a file that are worth reading; None = all of them.

        Args:
            path: of the data file; a separate index is beside it.

        Raises:
            CorruptDataError: the index is damaged, or missing although the metadata references it.
        """
        if self._predicate is None:
            return None
        source = index_source(self._table.file_io, path, file)
        rows = None if source is None else self._rows(source, file)
        if rows is None or len(rows) >= file.row_count:
            return None
        return Only(rows)

    def narrowed(
        self, selection: RowSelection | None, path: str, file: DataFileMeta
    ) -> RowSelection | None:
        """Rows of a selection (None = all) that are worth reading; see `selection`."""
        rows = self.selection(path, file)
        if selection is None or rows is None:
            return rows if selection is None else selection
        return AllOf((selection, rows))

    def _rows(self, source: Source, file: DataFileMeta) -> Rows:
        if self._predicate is None or file.row_count > _MAX_ROWS:
            return None
        container = read_container(source)
        columns = self._columns(container, file, columns_of(self._predicate))
        return _rows(self._predicate, columns)

    def _columns(
        self, container: FileIndexContainer, file: DataFileMeta, names: Iterable[str]
    ) -> Mapping[str, "_Column"]:
        """Indexes of the filtered columns, mapped by field id to the columns of the file."""
        stored = {field.id: field for field in self._table.schemas.read(file.schema_id).fields}
        columns = {}
        for name in names:
            field = self._table.schema.field(name)
            source = stored.get(field.id)
            if source is None or not reads_as_stored(source.type, field.type):
                continue
            indexes = container.columns.get(source.name, {})
            if indexes and isinstance(source.type, AtomicType):
                type_ = source.type
                opened = [open_index(kind, payload, type_) for kind, payload in indexes.items()]
                readers = tuple(reader for reader in opened if reader is not None)
                columns[name] = _Column(type_, readers)
        return columns


def index_source(file_io: FileIO, path: str, file: DataFileMeta) -> Source | None:
    """The file index of a data file, embedded or separate; None when it has none.

    Raises:
        CorruptDataError: it has several, or the referenced one is missing.
    """
    if file.embedded_index is not None:
        return MemorySource(file.embedded_index, path)
    name = index_file_of(file)
    if name is None:
        return None
    return FileSource(file_io, f"{path.rpartition('/')[0]}/{name}")


def index_file_of(file: DataFileMeta) -> str | None:
    """Name of the separate index file of a data file; None when it has none.

    Raises:
        CorruptDataError: it has several.
    """
    names = [name for name in file.extra_files if name.endswith(INDEX_SUFFIX)]
    if len(names) > 1:
        raise CorruptDataError(
            "a data file has several file indexes",
            path=file.file_name,
            expected="one at most",
            found=", ".join(names),
        )
    return names[0] if names else None


def reads_as_stored(stored: DataType, read_type: DataType) -> bool:
    """Whether values are read as they are in the file, so that an index is about them."""
    if not isinstance(stored, AtomicType) or not isinstance(read_type, AtomicType):
        return stored == read_type
    if stored.root is read_type.root and stored.root in _GROWING:
        return stored.length <= read_type.length
    return dataclasses.replace(stored, nullable=read_type.nullable) == read_type


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """The indexes of one column of one file; their results are intersected."""

    type: AtomicType
    readers: tuple[IndexReader, ...]

    def ask(self, question: Callable[[IndexReader], Rows]) -> Rows:
        """Rows that no index rules out."""
        result: Rows = None
        for reader in self.readers:
            rows = question(reader)
            if rows is None:
                continue
            result = rows if result is None else result & rows
            if not result:
                return result
        return result

    def equal_to(self, literals: Sequence[Any]) -> Rows:
        values = self._values(literals)
        return None if values is None else self.ask(lambda reader: reader.equal_to(values))

    def not_equal_to(self, literals: Sequence[Any]) -> Rows:
        values = self._values(literals)
        if values is None:
            return None
        if is_rounded(self.type):
            return self.ask(lambda reader: reader.valid_rows())
        return self.ask(lambda reader: _rows_without(reader, values))

    def compare(self, op: Op, literal: Any) -> Rows:
        if op is Op.EQ:
            return self.equal_to((literal,))
        if op is Op.NE:
            return self.not_equal_to((literal,))
        inclusive = op in (Op.LE, Op.GE)
        values = self._values((literal,))
        if values is None:
            return None
        above = op in (Op.GT, Op.GE)
        # both zeros are equal, and indexes keep -0.0 below 0.0
        value = values.slice(0, 1) if above is inclusive else values.slice(len(values) - 1)
        inclusive = inclusive or is_rounded(self.type)
        if above:
            return self.ask(lambda reader: reader.above(value, inclusive))
        return self.ask(lambda reader: reader.below(value, inclusive))

    def _values(self, literals: Sequence[Any]) -> pa.Array | None:
        """Literals as values of the column, -0.0 before 0.0; None when one of them is no value."""
        type_ = arrow_type(self.type)
        try:
            scalars = [literal_scalar(literal, type_) for literal in literals]
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            return None  # evaluation reports the error
        if None in scalars:
            return None
        values = pa.array(scalars, type_)
        if pa.types.is_floating(type_) and pc.any(pc.equal(values, 0.0)).as_py():
            return pa.concat_arrays([pa.array([-0.0], type_), values, pa.array([0.0], type_)])
        return values


def _rows_without(reader: IndexReader, values: pa.Array) -> Rows:
    """Rows that are not null and have none of the values."""
    valid = reader.valid_rows()
    equal = None if valid is None else reader.equal_to(values)
    return valid if valid is None or equal is None else valid - equal


def _rows(predicate: Predicate, columns: Mapping[str, _Column]) -> Rows:
    match predicate:
        case And(parts):
            return _all_of(parts, columns)
        case Or(parts):
            return _any_of(parts, columns)
        case Compare(_, _, None):
            return pyroaring.BitMap()
        case Compare(op, name, literal) if name in columns:
            return columns[name].compare(op, literal)
        case In(name, literals) if name in columns:
            return _one_of(columns[name], literals)
        case Not(In(name, literals)) if name in columns:
            if None in literals:
                return pyroaring.BitMap()  # unknown for every row
            return columns[name].not_equal_to(literals)
        case IsNull(name) if name in columns:
            return columns[name].ask(lambda reader: reader.null_rows())
        case Not(IsNull(name)) if name in columns:
            return columns[name].ask(lambda reader: reader.valid_rows())
        case _:
            return None


def _all_of(parts: Sequence[Predicate], columns: Mapping[str, _Column]) -> Rows:
    result: Rows = None
    for part in parts:
        rows = _rows(part, columns)
        if rows is None:
            continue
        result = rows if result is None else result & rows
        if not result:
            return result
    return result


def _any_of(parts: Sequence[Predicate], columns: Mapping[str, _Column]) -> Rows:
    result = pyroaring.BitMap()
    for part in parts:
        rows = _rows(part, columns)
        if rows is None:
            return None
        result = result | rows
    return result


def _one_of(column: _Column, literals: Sequence[Any]) -> Rows:
    values = tuple(literal for literal in literals if literal is not None)
    return column.equal_to(values) if values else pyroaring.BitMap()
