# SPDX-License-Identifier: Apache-2.0
"""Row events of one writer schema, many in step: the fast path of Avro decoding.

`storage.format.avro.lanes` walks all messages of a schema at once, each as a block of one record
(ADR 0007). The results are columns of sources, operations and row images; odd messages are found by
bisection and left to the reference path. Data plane: no object per row.
"""

import base64
import dataclasses
import math
import re
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.connect_schema import AvroSchema, branches
from ingest.decode.events import SourceTable, failing_positions
from ingest.decode.json.envelopes import SPECIAL_MEMBERS
from ingest.decode.types.conversions import CONVERSION_ERRORS, convert
from ingest.decode.types.exact_numbers import exact_floats, texts_of
from ingest.decode.types.semantic_types import (
    Codec,
    ConversionError,
    Kind,
    decimals_from_text,
    require,
    unscaled_digits,
)
from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.avro.lanes import (
    LaneDecoder,
    Leaf,
    ListNode,
    MapNode,
    Node,
    OddDataError,
    RowNode,
)
from storage.format.avro.schema import INTEGERS, kind_of, nullable, width_of
from storage.format.types.types import ArrayType, AtomicType, MapType, RowType, TypeRoot

# Converts one Avro value at a time to its JSON equivalent.
#
# The reference of Avro decoding: the result is encoded as JSON and decoded by the decoder of JSON
# events, so that both formats have the same semantics. Strict where bytes are counted (sizes,
# unions, ends); a single odd value (a text that is not UTF-8, a boolean of 7) becomes a JSON token
# that fits no column, because it may be unused.
#
# Values are those of Connect's JSON converter: bytes as base64, NaN and infinities as texts.
#
# Source: Avro specification, "Binary Encoding"; CDC.md §1.6.


ValueReader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""(data, position) to (value, end position)."""

_MOST_VARINT_BYTES = 10
_LAST_BIT = 63
_NO_TEXT = msgspec.Raw(b'"\xff"')
_NOT_PLAIN = re.compile(rb'[\x00-\x1f"\\]')


class AvroValueError(ValueError):
    """The bytes do not match the schema."""


def to_json(read: ValueReader, data: bytes, start: int) -> bytes:
    """The JSON text of a message.

    Args:
        read: of its schema.
        data: the message.
        start: start of the value; it ends with the message.

    Raises:
        AvroValueError: the bytes do not match the schema.

    Cost: 20-40 us for an event of 600 bytes.
    """
    try:
        value, end = read(data, start)
    except (IndexError, struct.error):
        raise AvroValueError("it ends too early") from None
    except RecursionError:
        raise AvroValueError("it is nested too deeply") from None
    if end != len(data):
        raise AvroValueError(f"{len(data) - end} bytes follow the value")
    return msgspec.json.encode(value)


def reader_of(tree: Any) -> ValueReader:
    """A reader of values of a schema (`connect_avro.AvroSchema.tree`)."""
    if isinstance(tree, list):
        return _union(tree)
    kind = kind_of(tree)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind == "record":
        return _record(tree)
    if kind == "array":
        return _json_array(reader_of(tree["items"]))
    if kind == "map":
        return _map(reader_of(tree["values"]))
    if kind == "enum":
        return _enum(tree["symbols"])
    return _fixed(tree["size"])


def float_value(number: float) -> float | str:
    """A number, or its text in JSON events if JSON has no such number."""
    if math.isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    raw, shift, start = byte & 0x7F, 7, at
    while byte > 0x7F:
        at += 1
        if at - start >= _MOST_VARINT_BYTES:
            raise AvroValueError(f"a varint of more than ten bytes at byte {start}")
        byte = data[at]
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), at + 1


def _size(data: bytes, at: int) -> tuple[int, int]:
    size, begin = _varint(data, at)
    if not 0 <= size <= len(data) - begin:
        raise AvroValueError(f"invalid size {size} at byte {at}")
    return size, begin


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    byte = data[at]
    return (byte == 1 if byte <= 1 else byte), at + 1


def _integer(data: bytes, at: int) -> tuple[Any, int]:
    number, end = _varint(data, at)
    if -(1 << _LAST_BIT) <= number < 1 << _LAST_BIT:
        return number, end
    return msgspec.Raw(str(number).encode()), end


def _json_float(data: bytes, at: int) -> tuple[Any, int]:
    return float_value(struct.unpack_from("<f", data, at)[0]), at + 4


def _double(data: bytes, at: int) -> tuple[Any, int]:
    return float_value(struct.unpack_from("<d", data, at)[0]), at + 8


def _bytes(data: bytes, at: int) -> tuple[str, int]:
    size, begin = _size(data, at)
    end = begin + size
    return base64.b64encode(data[begin:end]).decode(), end


def _string(data: bytes, at: int) -> tuple[Any, int]:
    size, begin = _size(data, at)
    end = begin + size
    content = data[begin:end]
    try:
        return content.decode(), end
    except UnicodeDecodeError:
        plain = _NOT_PLAIN.sub(lambda match: b"\\u%04x" % match[0][0], content)
        return msgspec.Raw(b'"' + plain + b'"'), end


_SIMPLE: dict[str, ValueReader] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _json_float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _fixed(size: int) -> ValueReader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + size
        if end > len(data):
            raise AvroValueError(f"{size} bytes at byte {at} exceed the value")
        return base64.b64encode(data[at:end]).decode(), end

    return read


def _enum(symbols: list[str]) -> ValueReader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, end = _integer(data, at)
        valid = isinstance(index, int) and 0 <= index < len(symbols)
        return (symbols[index] if valid else index), end

    return read


def _union(parts: list[Any]) -> ValueReader:
    readers = [reader_of(part) for part in parts]
    several = len(parts) - parts.count("null") > 1
    names = [_name_of(part) if several and part != "null" else "" for part in parts]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        index, begin = _varint(data, at)
        if not 0 <= index < len(readers):
            raise AvroValueError(f"a union has no branch {index} at byte {at}")
        value, end = readers[index](data, begin)
        return ({names[index]: value} if names[index] else value), end

    return read


def _name_of(part: Any) -> str:
    return str(part.get("name") or part["type"]) if isinstance(part, dict) else str(part)


def _record(tree: Any) -> ValueReader:
    members = [(field["name"], reader_of(field["type"])) for field in tree["fields"]]

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, reader in members:
            record[name], at = reader(data, at)
        return record, at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """(number of items, their start) of a block of an array or map."""
    count, begin = _varint(data, at)
    if count < 0:
        count = -count
        _, begin = _varint(data, begin)
    if count > len(data):
        raise AvroValueError(f"invalid item count {count} at byte {at}")
    return count, begin


def _json_array(item: ValueReader) -> ValueReader:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _block(data, at)
            if not count:
                return items, at
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return read


def _map(item: ValueReader) -> ValueReader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        entries: dict[str, Any] = {}
        sound = True
        while True:
            count, at = _block(data, at)
            if not count:
                return (entries if sound else _NO_TEXT), at
            for _ in range(count):
                key, at = _string(data, at)
                value, at = item(data, at)
                if isinstance(key, str):
                    entries[key] = value
                else:
                    sound = False

    return read


# Columns of Avro values as Arrow arrays: first in their natural type, then in the target column's.
#
# `plain` turns the output of `storage.format.avro.lanes` into an array of the natural Arrow type
# (including structs, lists and maps); `convert_array` is `conversions.convert` for such arrays.
# Nothing is rounded, wrapped or replaced; the reference path decodes refused values one by one, and
# the two agree on every value that this module accepts.


_PLACEHOLDER_TYPE = AtomicType(TypeRoot.BIGINT)
"""Nodes name a Paimon type for the reader of data files; it is ignored here."""

_SIGN_BIT = np.uint64(1)
_MAX_PRECISION = 38


class NodeMaker:
    """Creates the nodes of one decoder; `count` is their number."""

    def __init__(self) -> None:
        self.count = 0

    def node(self, tree: Any, names: frozenset[str] | None = None) -> Node:
        """The node of a value, with its children.

        Args:
            tree: its schema.
            names: fields of the record to decode; None = all.

        Raises:
            UnsupportedFeatureError: a union of several types.
        """
        inner, _ = nullable(tree)
        kind, index = kind_of(inner), self.count
        self.count += 1
        if kind == "record":
            row = RowNode(index, RowType(()))
            for field in inner["fields"]:
                if names is None or field["name"] in names:
                    row.children[field["name"]] = self.node(field["type"])
            return row
        if kind == "array":
            return ListNode(index, ArrayType(_PLACEHOLDER_TYPE), self.node(inner["items"]))
        if kind == "map":
            key, value = self.node("string"), self.node(inner["values"])
            return MapNode(index, MapType(_PLACEHOLDER_TYPE, _PLACEHOLDER_TYPE), key, value)
        return Leaf(
            index, "int" if kind == "enum" else kind, "", _PLACEHOLDER_TYPE, width_of(inner)
        )


# --- natural types


def plain(tree: Any, node: Node, raw: Sequence[pa.Array]) -> pa.Array:
    """The array of a node.

    Args:
        tree: schema of its values.
        node: of `NodeMaker`.
        raw: raw arrays by index.

    Raises:
        ValueError: a text is not UTF-8, or a boolean or an enum has an invalid value.
    """
    inner, _ = nullable(tree)
    array = raw[node.index]
    match node:
        case Leaf():
            return _leaf(inner, array)
        case RowNode(children=children):
            fields = {field["name"]: field["type"] for field in inner["fields"]}
            columns = [plain(fields[name], child, raw) for name, child in children.items()]
            absent = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(columns, names=list(children), mask=absent)
        case ListNode(child=child) if child is not None:
            return _lists(array, plain(inner["items"], child, raw))
        case MapNode(key=key, value=value) if key is not None and value is not None:
            pairs = [plain("string", key, raw), plain(inner["values"], value, raw)]
            return _lists(array, pa.StructArray.from_arrays(pairs, names=["key", "value"]))
    raise InternalError("an Avro schema node without its children")


def _leaf(tree: Any, raw: pa.Array) -> pa.Array:
    kind = kind_of(tree)
    if kind in (*INTEGERS, "enum"):
        numbers = raw.fill_null(0).to_numpy()
        signs = -(numbers & _SIGN_BIT).view(np.int64)
        signed = (numbers >> _SIGN_BIT).view(np.int64) ^ signs
        buffers = [raw.buffers()[0], pa.py_buffer(signed)]
        array = pa.Array.from_buffers(pa.int64(), len(raw), buffers)
        if kind != "enum":
            return array
        require(signed.min(initial=0) >= 0, "an enum below its first symbol")
        require(signed.max(initial=0) < len(tree["symbols"]), "an enum beyond its last symbol")
        return pa.array(tree["symbols"], pa.string()).take(array)
    if kind == "boolean":
        require((pc.max(raw).as_py() or 0) <= 1, "a boolean that is neither 0 nor 1")
        return raw.cast(pa.bool_())
    if kind in ("float", "double"):
        stored = pa.float32() if kind == "float" else pa.float64()
        return pa.Array.from_buffers(stored, len(raw), raw.buffers(), offset=raw.offset)
    return raw.cast(pa.string() if kind == "string" else pa.binary())


def _lists(counts: pa.Array, items: pa.Array) -> pa.ListArray:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts.fill_null(0).to_numpy(), out=offsets[1:])
    absent = counts.is_null() if counts.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=absent)


# --- conversion to a column


def convert_array(codec: Codec, tree: Any, array: pa.Array) -> pa.Array:
    """Convert one column.

    Args:
        codec: of the column.
        tree: schema of the values.
        array: result of `plain`, or a selection of it.

    Returns:
        An array of `codec.arrow`, as long as `array`.

    Raises:
        conversions.CONVERSION_ERRORS: a value does not fit.

    Cost: as `conversions.convert`; a Python step per value for decimals that become text, for bits,
    base64 or hexadecimal texts, and for JSON text.
    """
    inner, _ = nullable(tree)
    kind = codec.kind
    if kind in (Kind.FLOAT, Kind.SINGLE, Kind.NUMBER):
        return _float(codec, array)
    if kind is Kind.ARRAY:
        return _array(codec, inner, array)
    if kind is Kind.DECIMAL_PLAIN:
        numbers = array.view(pa.uint64()) if codec.unsigned else array
        return decimals_from_text(numbers.cast(pa.string()), codec.arrow)
    if kind is Kind.AS_TEXT and codec.element is not None:
        converted = convert_array(codec.element, tree, array)
        return _limited(codec, texts_of(converted, codec.element.type))
    if kind is Kind.BASE64_TEXT and pa.types.is_binary(array.type):
        texts = [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]
        return _limited(codec, pa.array(texts, pa.string()))
    if kind is Kind.BASE64 and not pa.types.is_binary(array.type):
        return convert(codec, msgspec.convert(array.to_pylist(), list[bytes | None]))
    if kind is Kind.JSON:
        return _json(codec, inner, array)
    if kind is Kind.VARIABLE_DECIMAL:
        return _variable_decimal(codec, array)
    digits = kind is Kind.DECIMAL_BYTES and (
        pa.types.is_string(codec.arrow) or codec.scale > _MAX_PRECISION
    )
    if digits or kind in (Kind.BITS, Kind.HEX, Kind.BASE64_URL, Kind.TIME_TEXT):
        return convert(codec, array.to_pylist())
    return convert(codec, array)


def _float(codec: Codec, array: pa.Array) -> pa.Array:
    if array.type == codec.arrow:
        return array
    doubles = array.cast(pa.float64())
    if codec.kind is Kind.NUMBER:
        return exact_floats(doubles.cast(pa.string()), codec.arrow)
    if codec.arrow == pa.float64():
        return doubles
    floats = doubles.cast(codec.arrow, safe=False)
    overflow = pc.and_(pc.is_finite(doubles), pc.invert(pc.is_finite(floats)))
    require(not pc.any(overflow, min_count=0).as_py(), "out of the range of FLOAT")
    return floats


def _array(codec: Codec, tree: Any, array: pa.ListArray) -> pa.Array:
    if codec.element is None:
        raise InternalError("array codec without element")
    elements = convert_array(codec.element, tree["items"], array.flatten())
    require(not elements.null_count or codec.element.type.nullable, "a null element")
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(pc.list_value_length(array).fill_null(0).to_numpy(), out=offsets[1:])
    absent = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=codec.arrow, mask=absent)


def _variable_decimal(codec: Codec, array: pa.Array) -> pa.Array:
    if not pa.types.is_struct(array.type) or {f.name for f in array.type} != {"scale", "value"}:
        raise ConversionError("not a struct of scale and value")
    texts = [
        None if value is None else unscaled_digits(value["value"], value["scale"])
        for value in array.to_pylist()
    ]
    numbers = pa.array(texts, pa.string())
    if pa.types.is_decimal(codec.arrow):
        return decimals_from_text(numbers, codec.arrow)
    return _limited(codec, numbers)


def _json(codec: Codec, tree: Any, array: pa.Array) -> pa.Array:
    texts = [
        None if value is None else msgspec.json.encode(_json_value(tree, value)).decode()
        for value in array.to_pylist()
    ]
    return _limited(codec, pa.array(texts, pa.string()))


def _limited(codec: Codec, texts: pa.Array) -> pa.Array:
    return convert(Codec(Kind.TEXT, codec.type), texts)


def _json_value(tree: Any, value: Any) -> Any:
    """A value of `plain` in the form of `avro_values`."""
    if value is None:
        return None
    inner, _ = nullable(tree)
    kind = kind_of(inner)
    if kind in ("bytes", "fixed"):
        return base64.b64encode(value).decode()
    if kind in ("float", "double"):
        return float_value(value)
    if kind == "record":
        return {f["name"]: _json_value(f["type"], value[f["name"]]) for f in inner["fields"]}
    if kind == "array":
        return [_json_value(inner["items"], item) for item in value]
    if kind == "map":
        return {pair["key"]: _json_value(inner["values"], pair["value"]) for pair in value}
    return value


def convert_sound(codec: Codec, tree: object, array: pa.Array, refused: set[int]) -> pa.Array:
    """As `convert_array`, with null for bad values, whose rows are added to `refused`."""

    def attempt(low: int, high: int) -> None:
        piece = array.take(pa.array(np.arange(low, high)))  # without the offset of a slice
        convert_array(codec, tree, piece)

    try:
        return convert_array(codec, tree, array)
    except CONVERSION_ERRORS:
        bad = failing_positions(attempt, len(array), CONVERSION_ERRORS)
    refused.update(bad)
    where = np.arange(len(array))
    absent = np.zeros(len(array), np.bool_)
    absent[bad] = True
    return convert_array(codec, tree, array.take(pa.array(where, mask=absent)))


LEAST_MESSAGES = 16
"""For fewer messages a walk costs more than the reference path."""

_BESIDE = 4
"""Bisection ends at so many messages: the reference path is faster for them than a walk."""

_SOURCE = ("db", "schema", "table", "name")
_STAMP = "ts_ms"
_OP_TYPE = pa.binary(1)

_Codes: TypeAlias = npt.NDArray[np.uint8]
_Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class RowColumns:
    """Row images, column-wise.

    Attributes:
        present: whether the event has the image.
        fields: schema of each column, by name.
        arrays: the values, as from `avro_arrays.plain`; null where there is no image.
    """

    present: _Mask
    fields: dict[str, Any]
    arrays: dict[str, pa.Array]


@dataclasses.dataclass(frozen=True, slots=True)
class EventColumns:
    """Row events, column-wise.

    Attributes:
        sources: text columns `db`, `schema`, `table` and `name`, as far as the schema has them.
        stamps: `source.ts_ms` [epoch ms], or None.
        ops: code of the operation's letter; 0 where it is not a single byte.
        after: row images after.
        before: row images before, the requested columns only; None if the schema has none.
        requested: columns of `before` that were requested.
    """

    sources: dict[str, pa.Array]
    stamps: pa.Array | None
    ops: _Codes
    after: RowColumns
    before: RowColumns | None
    requested: frozenset[str]

    def source(self) -> SourceTable | None:
        """The source table of all events; None if there are several."""
        names = {}
        for name, column in self.sources.items():
            first = column[0]
            if not pc.all(pc.equal(column, first)).as_py():
                return None
            names[name] = first.as_py()
        return SourceTable(
            names.get("db", ""), names.get("schema", ""), names["table"], names.get("name", "")
        )

    def source_ids(self) -> npt.NDArray[np.int64]:
        """A number per event, equal for events of one source table."""
        ids = np.zeros(len(self.ops), np.int64)
        for column in self.sources.values():
            codes = column.dictionary_encode()
            ids = ids * len(codes.dictionary) + codes.indices.to_numpy()
        return ids


class EnvelopeLanes:
    """Decodes messages of one writer schema.

    1. `of` returns None unless the schema is one of row events that can be decoded in step;
    2. `events` and `deleted` any number of times.

    Raises:
        OddDataError, UnsupportedFeatureError: the messages cannot be decoded in step.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._tree = schema.tree
        self._fields = schema.fields
        image = branches(self._fields["after"])[0]
        self.columns = tuple(field["name"] for field in image["fields"])
        self._image = {field["name"]: field["type"] for field in image["fields"]}
        self._decoders: dict[frozenset[str] | None, tuple[LaneDecoder, dict[str, Node]]] = {}
        self._walker = LaneDecoder(schema.tree, None, {}, 0)

    @classmethod
    def of(cls, schema: AvroSchema) -> "EnvelopeLanes | None":
        """The decoder of a schema; None if it is not an envelope, or one for the reference path."""
        if not _is_envelope(schema.fields):
            return None
        try:
            lanes = cls(schema)
            lanes._decoder(None)
            lanes._decoder(frozenset())
        except (OddDataError, UnsupportedFeatureError):
            return None
        return lanes

    def events(self, payloads: Sequence[bytes], key: Collection[str]) -> EventColumns:
        """Decode events, of `before` some columns only.

        Args:
            payloads: values without their id prefix; at least one.
            key: columns of `before` to decode.

        Raises:
            OddDataError: a message is malformed.
        """
        fields = self._fields
        requested = frozenset(key)
        nodes, raw = self._walk(payloads, requested)
        try:
            source = self._row(nodes["source"], branches(fields["source"])[0], raw)
            ops = raw[nodes["op"].index]
            return EventColumns(
                {
                    name: source.arrays[name].fill_null("")
                    for name in _SOURCE
                    if name in source.arrays
                },
                source.arrays.get(_STAMP),
                _op_codes(ops),
                self._row(nodes["after"], branches(fields["after"])[0], raw),
                self._row(nodes["before"], branches(fields["before"])[0], raw)
                if "before" in nodes
                else None,
                requested,
            )
        except ValueError as error:  # a text that is not UTF-8
            raise OddDataError from error

    def sound(self, payloads: Sequence[bytes]) -> bool:
        """Whether all messages can be walked."""
        try:
            self._walker.decode([(payload, 1) for payload in payloads])
        except OddDataError:
            return False
        return True

    def deleted(self, payloads: Sequence[bytes]) -> RowColumns:
        """All columns of `before`.

        Raises:
            OddDataError: a message is malformed.
        """
        nodes, raw = self._walk(payloads, None)
        try:
            return self._row(nodes["before"], branches(self._fields["before"])[0], raw)
        except ValueError as error:
            raise OddDataError from error

    def _walk(
        self, payloads: Sequence[bytes], key: frozenset[str] | None
    ) -> tuple[dict[str, Node], list[pa.Array]]:
        decoder, nodes = self._decoder(key)
        return nodes, decoder.decode([(payload, 1) for payload in payloads])

    def _decoder(self, key: frozenset[str] | None) -> tuple[LaneDecoder, dict[str, Node]]:
        """The decoder of events with these columns of `before`; None: of deleted rows."""
        if key not in self._decoders:
            maker, fields = NodeMaker(), self._fields
            nodes: dict[str, Node] = {}
            if "before" in fields:
                nodes["before"] = maker.node(fields["before"], key)
            if key is not None:
                nodes["after"] = maker.node(fields["after"])
                nodes["source"] = maker.node(fields["source"], frozenset({*_SOURCE, _STAMP}))
                nodes["op"] = maker.node(fields["op"])
            decoder = LaneDecoder(self._tree, None, nodes, maker.count)
            self._decoders[key] = decoder, nodes
        return self._decoders[key]

    def _row(self, node: Node, tree: Any, raw: Sequence[pa.Array]) -> RowColumns:
        children = node.children if isinstance(node, RowNode) else {}
        fields = {field["name"]: field["type"] for field in tree["fields"]}
        present = raw[node.index].is_valid().to_numpy(zero_copy_only=False)
        arrays = {name: plain(fields[name], child, raw) for name, child in children.items()}
        return RowColumns(present, fields, arrays)


def _is_envelope(fields: dict[str, Any]) -> bool:
    """Whether these are the fields of a row event that can be decoded in step."""
    if not {"after", "source", "op"} <= fields.keys():
        return False
    images = [_only_record(fields[name]) for name in ("before", "after") if name in fields]
    source = _only_record(fields["source"])
    if None in images or source is None or any(image is not images[0] for image in images):
        return False
    origin = {field["name"]: _only_kind(field["type"]) for field in source["fields"]}
    texts = [origin[name] for name in _SOURCE if name in origin]
    return (
        "table" in origin
        and origin.keys().isdisjoint(SPECIAL_MEMBERS)
        and _only_kind(fields["op"]) == "string"
        and texts.count("string") == len(texts)
        and origin.get(_STAMP, "long") in INTEGERS
    )


def _only_kind(tree: Any) -> str:
    parts = branches(tree)
    return kind_of(parts[0]) if len(parts) == 1 else ""


def _only_record(tree: Any) -> dict[str, Any] | None:
    return branches(tree)[0] if _only_kind(tree) == "record" else None


def _op_codes(ops: pa.Array) -> _Codes:
    letters = pc.equal(pc.binary_length(ops), 1).fill_null(False)
    if not pc.all(letters).as_py():
        ops = pc.if_else(letters, ops, pa.scalar(b"\0"))
    buffers = ops.cast(_OP_TYPE).buffers()
    return np.frombuffer(buffers[1], np.uint8, len(ops))


def sound_runs(
    lanes: EnvelopeLanes, payloads: Sequence[bytes], key: Collection[str]
) -> Iterator[tuple[Sequence[int], EventColumns | None]]:
    """Decode messages, except the odd ones.

    Yields:
        (positions, events); events is None for messages left to the reference path.
    """
    pending: list[Sequence[int]] = [range(len(payloads))]
    while pending:
        span = pending.pop()
        if len(span) < LEAST_MESSAGES:
            yield span, None
            continue
        batch = payloads if len(span) == len(payloads) else [payloads[at] for at in span]
        try:
            yield span, lanes.events(batch, key)
            continue
        except OddDataError:
            odd = _odd(lanes, batch)
        if odd:
            yield [span[index] for index in odd], None
            rest = sorted(set(range(len(span))).difference(odd))
            pending += [[span[index] for index in rest]] if rest else []
        elif len(span) == 1:
            yield span, None
        else:  # a text that is not UTF-8
            middle = len(span) // 2
            pending += [span[middle:], span[:middle]]


def _odd(lanes: EnvelopeLanes, payloads: Sequence[bytes]) -> list[int]:
    """Positions of messages that cannot be walked, and of a few neighbours."""
    positions: list[int] = []
    pending = [(0, len(payloads))]
    while pending:
        start, end = pending.pop()
        if lanes.sound(payloads[start:end]):
            continue
        if end - start <= _BESIDE:
            positions += range(start, end)
        else:
            middle = (start + end) // 2
            pending += [(middle, end), (start, middle)]
    return sorted(positions)
