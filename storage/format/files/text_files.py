# SPDX-License-Identifier: Apache-2.0
"""CSV, JSON lines and lines of text: the text formats of format tables. Arrow in, Arrow out.

Values are texts as Paimon's casts make and read them; bytes are Base64. Lines are parsed by
Arrow's CSV reader and DuckDB's JSON functions, both without access to files.

What Paimon writes is read, JSON values as strings included. JSON numbers are written as numbers,
decimals, times and numbers that JSON has no form for as strings.
"""

import dataclasses
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from storage.errors import (
    CorruptDataError,
    InternalError,
    InvalidOptionError,
    UnsupportedFeatureError,
)
from storage.format.types.casts import CastError, column_cast, fit_binary, to_text
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    RowType,
    TypeRoot,
    arrow_type,
    type_name,
)
from storage.options.options import option_value

if TYPE_CHECKING:
    import duckdb

TEXT_FORMATS = ("csv", "json", "text")
"""Values of `file.format` whose files are read here."""

_BLOCK = 16 << 20
"""Size of one read [bytes]; a line must fit in memory."""

_R = TypeRoot
_STRING = AtomicType(_R.VARCHAR, length=MAX_LENGTH)
_TEXTS = (_R.CHAR, _R.VARCHAR)
_BLOBS = (_R.BINARY, _R.VARBINARY)
_INTEGERS = (_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT)
_DUCK: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": "1",
}


@dataclasses.dataclass(frozen=True)
class TextCodec:
    """One text format with its options.

    Attributes:
        encode: the lines of some rows; the columns in the order of the fields.
        decode: the rows of a stream, as columns of the requested names.
    """

    encode: Callable[[pa.RecordBatch], bytes]
    decode: Callable[[pa.NativeFile, Sequence[str], str], Iterator[pa.RecordBatch]]
    header: bytes = b""


def text_codec(
    file_format: str, fields: Sequence[DataField], options: Mapping[str, str]
) -> TextCodec:
    """The codec of a table's files.

    Raises:
        UnsupportedFeatureError: the format cannot hold a column.
        InvalidOptionError: options contradict each other.
    """
    if file_format == "csv":
        return _Csv.of(fields, options).codec()
    if file_format == "json":
        return _Json.of(fields, options).codec()
    if len(fields) != 1 or not _is(fields[0].type, *_TEXTS):
        raise UnsupportedFeatureError(
            "a text file holds one column of type STRING",
            hint="declare one column of type STRING besides the partition columns, or choose csv",
            columns=", ".join(f"{field.name} {type_name(field.type)}" for field in fields),
        )
    key = "text.line-delimiter"
    # `lineSep` is the alias of CSV's option, too
    alone = key not in options and "lineSep" in options
    delimiter = option_value({key: options["lineSep"]} if alone else options, key)
    _require_some("text.line-delimiter", delimiter)
    return TextCodec(
        lambda batch: _join_lines(batch.column(0).fill_null(""), delimiter),
        lambda stream, columns, _: (
            pa.RecordBatch.from_arrays([lines] * len(columns), names=list(columns))
            if columns
            else _rows(len(lines))
            for lines in _lines(stream, delimiter)
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Csv:
    fields: Sequence[DataField]
    delimiter: str
    line_end: str
    quote: str
    escape: str
    header: bool
    null: str
    mode: str

    @staticmethod
    def of(fields: Sequence[DataField], options: Mapping[str, str]) -> "_Csv":
        for field in fields:
            if not isinstance(field.type, AtomicType):
                raise UnsupportedFeatureError(
                    "CSV has no form for this type",
                    hint="choose json, parquet or orc as `file.format`",
                    column=field.name,
                    type=type_name(field.type),
                )
        values = [
            option_value(options, f"csv.{key}")
            for key in ("field-delimiter", "line-delimiter", "quote-character", "escape-character")
        ]
        _require_some("csv.line-delimiter", values[1])
        marks = (values[0], *values[2:])
        if len(set(marks)) < len(marks):
            raise InvalidOptionError(
                "delimiter, quote and escape character must differ",
                hint="set `csv.field-delimiter`, `csv.quote-character`, `csv.escape-character`",
                value=" ".join(marks),
            )
        rest = [
            option_value(options, f"csv.{k}") for k in ("include-header", "null-literal", "mode")
        ]
        return _Csv(fields, *values, *rest)

    def codec(self) -> TextCodec:
        names = self._line([pa.array([field.name]) for field in self.fields])
        header = _join_lines(names, self.line_end) if self.header else b""
        return TextCodec(self._encode, self._decode, header)

    def _encode(self, batch: pa.RecordBatch) -> bytes:
        texts = [
            _field_texts(column, field.type)
            for column, field in zip(batch.columns, self.fields, strict=True)
        ]
        return _join_lines(self._line(texts), self.line_end)

    def _line(self, texts: Sequence[pa.Array]) -> pa.Array:
        parts = [self._quoted(column).fill_null(self.null) for column in texts]
        return pc.binary_join_element_wise(*parts, self.delimiter)

    def _quoted(self, texts: pa.Array) -> pa.Array:
        special = pa.scalar(False)
        for mark in (self.delimiter, self.line_end[0], "\r", self.quote, self.escape):
            special = pc.or_(special, pc.match_substring(texts, mark))
        whole = texts
        for mark in (self.escape, self.quote):
            whole = pc.replace_substring(whole, mark, self.escape + mark)
        whole = pc.binary_join_element_wise(self.quote, whole, self.quote, "")
        return pc.if_else(special, whole, texts)

    def _decode(
        self, stream: pa.NativeFile, columns: Sequence[str], path: str
    ) -> Iterator[pa.RecordBatch]:
        if self.line_end not in ("\n", "\r\n"):
            raise UnsupportedFeatureError(
                "this CSV line delimiter is not supported",
                hint=r"files must end lines with `\n` or `\r\n`",
                option="csv.line-delimiter",
                value=repr(self.line_end),
            )
        names = [field.name for field in self.fields]
        uneven: dict[int, list[str]] = {}

        def keep(row: Any) -> str:
            uneven.setdefault(row.actual_columns, []).append(row.text)
            return "skip"

        yield from self._parsed(stream, names, columns, path, keep=keep, skip=int(self.header))
        for count, lines in uneven.items():
            # fields that are missing are null, and those beyond the columns are left out
            more = [f"{names[-1]}#{number}" for number in range(len(names), count)]
            data = pa.BufferReader(("\n".join(lines) + "\n").encode())
            yield from self._parsed(data, [*names[:count], *more], columns, path)

    def _parsed(
        self,
        stream: pa.NativeFile,
        names: Sequence[str],
        columns: Sequence[str],
        path: str,
        *,
        keep: Callable[[Any], str] | None = None,
        skip: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        reading = csv.ReadOptions(
            column_names=list(names), skip_rows=skip, block_size=_BLOCK, use_threads=False
        )
        parsing = csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote,
            escape_char=self.escape,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=keep,
        )
        converting = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[self.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        try:
            reader = csv.open_csv(stream, reading, parsing, converting)
            for batch in reader:
                yield self._typed(batch, columns, path)
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                return
            raise CorruptDataError("not a CSV file", detail=str(error), path=path) from error

    def _typed(self, batch: pa.RecordBatch, columns: Sequence[str], path: str) -> pa.RecordBatch:
        fields = [field for field in self.fields if field.name in columns]
        empty = pa.nulls(batch.num_rows, pa.string())
        texts = [
            batch.column(field.name) if field.name in batch.schema.names else empty
            for field in fields
        ]
        return _values(fields, texts, batch.num_rows, self.mode, path)


@dataclasses.dataclass(frozen=True)
class _Json:
    fields: Sequence[DataField]
    line_end: str
    lenient: bool

    @staticmethod
    def of(fields: Sequence[DataField], options: Mapping[str, str]) -> "_Json":
        for field in fields:
            _structure(field.type)
        line_end = option_value(options, "json.line-delimiter")
        _require_some("json.line-delimiter", line_end)
        return _Json(fields, line_end, option_value(options, "json.ignore-parse-errors"))

    def codec(self) -> TextCodec:
        return TextCodec(self._encode, self._decode)

    def _encode(self, batch: pa.RecordBatch) -> bytes:
        columns = [
            _json_column(column, field.type)
            for column, field in zip(batch.columns, self.fields, strict=True)
        ]
        names = [field.name for field in self.fields]
        rows = pa.StructArray.from_arrays(columns, names=names)
        lines = _duck("SELECT to_json(line) FROM t", line=rows)
        return _join_lines(lines, self.line_end)

    def _decode(
        self, stream: pa.NativeFile, columns: Sequence[str], path: str
    ) -> Iterator[pa.RecordBatch]:
        fields = [field for field in self.fields if field.name in columns]
        for lines in _lines(stream, self.line_end):
            yield self._parsed(
                lines.filter(pc.not_equal(pc.utf8_trim_whitespace(lines), "")), fields, path
            )

    def _parsed(self, lines: pa.Array, fields: Sequence[DataField], path: str) -> pa.RecordBatch:
        kinds = _duck(
            "SELECT CASE WHEN json_valid(line) THEN json_type(line) END FROM t", line=lines
        )
        objects = pc.fill_null(pc.equal(kinds, "OBJECT"), False)
        if not pc.all(objects).as_py():
            if not self.lenient:
                broken = lines.filter(pc.invert(objects))[0].as_py()
                raise CorruptDataError(
                    "not a JSON object",
                    hint="set `json.ignore-parse-errors` to leave such lines out",
                    path=path,
                    line=broken[:200],
                )
            lines = lines.filter(objects)
        texts = [self._texts(lines, field, path) for field in fields]
        mode = "permissive" if self.lenient else "failfast"
        return _values(fields, texts, len(lines), mode, path)

    def _texts(self, lines: pa.Array, field: DataField, path: str) -> pa.Array:
        """The values of a member, every atomic value in it a text."""
        pointer = "/" + field.name.replace("~", "~0").replace("/", "~1")
        if isinstance(field.type, AtomicType):
            return _duck("SELECT json_extract_string(line, ?) FROM t", pointer, line=lines)
        values = _duck(
            "SELECT from_json(json_extract(line, ?), ?) FROM t",
            pointer,
            json.dumps(_structure(field.type)),
            line=lines,
        )
        kinds = _duck("SELECT json_type(line, ?) FROM t", pointer, line=lines)
        present = pc.fill_null(pc.not_equal(kinds, "NULL"), False)
        broken = pc.and_(present, values.is_null())
        if not self.lenient and pc.any(broken).as_py():
            raise _malformed(field, lines.filter(broken)[0].as_py(), path)
        return values


def _values(
    fields: Sequence[DataField], columns: Sequence[pa.Array], rows: int, mode: str, path: str
) -> pa.RecordBatch:
    """Columns of texts as columns of their types; the mode decides about values that do not fit."""
    arrays = []
    broken: list[pa.Array] = []
    for field, texts in zip(fields, columns, strict=True):
        failures: list[tuple[pa.Array, pa.Array]] = []
        arrays.append(_from_texts(texts, field.type, failures))
        if failures and mode == "failfast":
            values, failed = failures[0]
            raise _malformed(field, values.filter(failed)[0].as_py(), path)
        broken += [failed for _, failed in failures]
    if not arrays:
        return _rows(rows)
    batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
    if broken and mode == "dropmalformed":
        return batch.filter(pc.invert(functools.reduce(pc.or_, broken)))
    return batch


def _malformed(field: DataField, value: str, path: str) -> CorruptDataError:
    return CorruptDataError(
        "a value in the file does not fit its column's type",
        column=field.name,
        type=type_name(field.type),
        value=value[:200],
        path=path,
    )


def _from_texts(
    texts: pa.Array, type_: DataType, broken: list[tuple[pa.Array, pa.Array]]
) -> pa.Array:
    """Values of texts; invalid ones are null and added to `broken` with a mask of the failures."""
    if isinstance(type_, AtomicType):
        return _atoms(texts, type_, broken)
    if isinstance(type_, RowType):
        children = [
            _from_texts(child, field.type, broken)
            for child, field in zip(texts.flatten(), type_.fields, strict=True)
        ]
        return pa.StructArray.from_arrays(
            children, fields=list(arrow_type(type_)), mask=texts.is_null()
        )
    offsets, elements = _flattened(texts)
    if isinstance(type_, MapType):
        keys, items = elements.flatten()
        return pa.MapArray.from_arrays(
            offsets,
            _from_texts(keys, type_.key, broken),
            _from_texts(items, type_.value, broken),
            type=arrow_type(type_),
        )
    if isinstance(type_, ArrayType):
        values = _from_texts(elements, type_.element, broken)
        return pa.ListArray.from_arrays(offsets, values, type=arrow_type(type_))
    raise InternalError("no text form of this type", type=type_name(type_))


def _flattened(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets, null where a list is, and the elements of all lists; maps are lists of entries."""
    if pa.types.is_map(lists.type):
        entry = pa.struct([lists.type.key_field, lists.type.item_field])
        lists = lists.cast(pa.list_(entry))
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    nulls = lists.is_null().to_numpy(zero_copy_only=False)
    return pa.array(ends, mask=np.append(nulls, False)), lists.flatten()


def _atoms(texts: pa.Array, type_: AtomicType, broken: list[tuple[pa.Array, pa.Array]]) -> pa.Array:
    if type_.root is _R.BOOLEAN:
        return pc.equal(pc.utf8_lower(texts), "true")
    rest = texts
    if type_.root in _INTEGERS:
        rest = _without(rest, pc.invert(pc.match_substring_regex(rest, r"^[+-]?[0-9]+$")), broken)
    elif type_.root in _BLOBS:
        blobs = _duck("SELECT TRY(from_base64(line)) FROM t", line=texts).cast(pa.binary())
        _without(texts, pc.and_(blobs.is_null(), texts.is_valid()), broken)
        return fit_binary(blobs, type_)
    if type_.root is _R.VARCHAR and type_.length == MAX_LENGTH:
        return texts
    cast = column_cast(_STRING, type_)
    while True:
        try:
            return cast(rest)
        except CastError as error:
            if error.failed is None:
                raise CorruptDataError(
                    "a value in the file does not fit its column's type",
                    detail=str(error),
                    value=error.value,
                ) from error
            rest = _without(rest, error.failed, broken)


def _without(
    texts: pa.Array, failed: pa.Array, broken: list[tuple[pa.Array, pa.Array]]
) -> pa.Array:
    """The texts with failed ones null, which are added to `broken`."""
    failed = pc.fill_null(failed, False)
    if not pc.any(failed).as_py():
        return texts
    broken.append((texts, failed))
    return pc.if_else(failed, pa.scalar(None, pa.string()), texts)


def _field_texts(column: pa.Array, type_: DataType) -> pa.Array:
    """Values of an atomic type as texts."""
    if _is(type_, *_TEXTS):
        return column
    if _is(type_, *_BLOBS):
        return _duck("SELECT base64(line) FROM t", line=column)
    return to_text(column, type_)


def _json_column(column: pa.Array, type_: DataType) -> pa.Array:
    """Values in a form that DuckDB writes as JSON without loss."""
    if isinstance(type_, AtomicType):
        plain = type_.root in (*_INTEGERS, *_TEXTS, _R.BOOLEAN)
        if type_.root in (_R.FLOAT, _R.DOUBLE):
            plain = pc.all(pc.is_finite(column), min_count=0).as_py() is not False
        return column if plain else _field_texts(column, type_)
    if isinstance(type_, RowType):
        children = [
            _json_column(child, field.type)
            for child, field in zip(column.flatten(), type_.fields, strict=True)
        ]
        names = [field.name for field in type_.fields]
        return pa.StructArray.from_arrays(children, names=names, mask=column.is_null())
    offsets, elements = _flattened(column)
    if isinstance(type_, MapType):
        keys, items = elements.flatten()
        keys, items = _json_column(keys, type_.key), _json_column(items, type_.value)
        return pa.MapArray.from_arrays(offsets, keys, items)
    if isinstance(type_, ArrayType):
        return pa.ListArray.from_arrays(offsets, _json_column(elements, type_.element))
    raise InternalError("no JSON form of this type", type=type_name(type_))


def _structure(type_: DataType) -> str:
    """A type as DuckDB writes it, every atomic value a text.

    Raises:
        UnsupportedFeatureError: JSON has no form for it.
    """
    if isinstance(type_, AtomicType):
        return "VARCHAR"
    if isinstance(type_, ArrayType):
        return f"{_structure(type_.element)}[]"
    if isinstance(type_, MapType):
        return f"MAP({_structure(type_.key)}, {_structure(type_.value)})"
    if isinstance(type_, RowType):
        parts = ", ".join(f"{_name(f.name)} {_structure(f.type)}" for f in type_.fields)
        return f"STRUCT({parts})"
    raise UnsupportedFeatureError("JSON has no form for this type", type=type_name(type_))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is(type_: DataType, *roots: TypeRoot) -> bool:
    return isinstance(type_, AtomicType) and type_.root in roots


def _require_some(option: str, value: str) -> None:
    if not value:
        raise InvalidOptionError(f"{option} must not be empty", option=option)


def _rows(count: int) -> pa.RecordBatch:
    """Rows without columns."""
    struct = pa.StructArray.from_arrays([], fields=[], mask=pa.array(np.zeros(count, np.bool_)))
    return pa.RecordBatch.from_struct_array(struct)


def _join_lines(lines: pa.Array, line_end: str) -> bytes:
    """Lines, each with its end."""
    if not len(lines):
        return b""
    whole = pa.ListArray.from_arrays([0, len(lines)], lines)
    text = pc.binary_join(whole, line_end)[0].as_buffer()
    return b"".join((text, line_end.encode()))


def _lines(stream: pa.NativeFile, line_end: str) -> Iterator[pa.Array]:
    """The lines of a stream in batches; an unterminated last line counts."""
    end = line_end.encode()
    rest = b""
    while True:
        data = stream.read(_BLOCK)
        block = rest + data
        cut = len(block) if not data else block.rfind(end) + len(end)
        whole, rest = (block[:cut], block[cut:]) if cut >= len(end) or not data else (b"", block)
        if whole:
            text = pa.array([whole.removesuffix(end)], pa.large_binary()).cast(pa.large_string())
            lines = pc.split_pattern(text, line_end).flatten().cast(pa.string())
            yield pc.utf8_rtrim(lines, "\r") if line_end == "\n" else lines
        if not data:
            return


class _Duck(threading.local):
    """DuckDB of this thread; opened again in a forked process."""

    def __init__(self) -> None:
        import duckdb  # noqa: PLC0415 - few tables are text, and every process reads tables

        self._connection = duckdb.connect(config=dict(_DUCK))
        self._process = os.getpid()

    def connection(self) -> "duckdb.DuckDBPyConnection":
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        return self._connection


@functools.cache
def _duck_here() -> _Duck:
    return _Duck()


def _duck(query: str, *parameters: str, line: pa.Array) -> pa.Array:
    """The only result column of a DuckDB query on table `t`, which has the column `line`."""
    connection = _duck_here().connection()
    connection.register("t", pa.table({"line": line}))
    try:
        result = connection.sql(query, params=list(parameters)).to_arrow_table().column(0)
    finally:
        connection.unregister("t")
    column = result.combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
