# SPDX-License-Identifier: Apache-2.0
"""Columns of Avro values as Arrow arrays: first in their natural type, then in the target column's.

`plain` turns the output of `storage.format.avro.lanes` into an array of the natural Arrow type
(including structs, lists and maps); `convert_array` is `conversions.convert` for such arrays.
Nothing is rounded, wrapped or replaced; the reference path decodes refused values one by one, and
the two agree on every value that this module accepts.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.avro.values import float_value
from ingest.decode.bisection import failing_positions
from ingest.decode.types.conversions import CONVERSION_ERRORS, convert
from ingest.decode.types.decimal_columns import (
    ConversionError,
    decimals_from_text,
    require,
    unscaled_digits,
)
from ingest.decode.types.exact_numbers import exact_floats
from ingest.decode.types.odd_values import texts_of
from ingest.decode.types.semantic_types import Codec, Kind
from storage.errors import InternalError
from storage.format.avro.columns import Leaf, ListNode, MapNode, Node, RowNode
from storage.format.avro.schema import INTEGERS, kind_of, nullable, width_of
from storage.format.types.types import ArrayType, AtomicType, MapType, RowType, TypeRoot

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
