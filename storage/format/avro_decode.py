# SPDX-License-Identifier: Apache-2.0
"""Avro records to columns: code made for one schema, one Python list per column and batch.

Source: Avro specification, "Binary Encoding"; FORMAT.md §7.5. A record can only be decoded from
front to back, byte by byte, so this is the one place of the data plane where values pass through
Python one by one; see ADR 0007 for what was measured. The made code contains numbers and no text
of the file. Numbers are collected undecoded (zig-zag), texts as slices; `avro_columns` turns the
lists into Arrow arrays at once.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.avro_columns import (
    Leaf,
    ListNode,
    MapNode,
    Node,
    RowNode,
    column_of,
)
from storage.format.avro_schema import MULTISET_COUNT
from storage.format.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
)

__all__ = ["RecordDecoder"]

_INTEGERS = ("int", "long")
_SIZED = ("bytes", "string")
_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_INDENT = "    "

_Decode: TypeAlias = Callable[[bytes, int, list[list[Any]]], int]
"""Takes data, number of records and lists; gives the position after the last record."""


class RecordDecoder:
    """Decodes the records of one file.

    Protocol: `feed` any number of blocks, then `take` the columns; and again.

    Args:
        schema_text: `avro.schema` of the file.
        fields: the wanted columns, found by name.

    Attributes:
        present: those of `fields` that the file has; the columns of `take`.
        rows: records fed since the last `take`.

    Raises:
        ValueError: the text is no schema of a record, or a column is of another kind than its
            field.
        UnsupportedFeatureError: a kind of Avro schema that Paimon never writes.
    """

    def __init__(self, schema_text: str, fields: Sequence[DataField]) -> None:
        named: dict[str, Any] = {}
        schema, null_index = _nullable(_resolved(json.loads(schema_text), named, ""))
        if _kind(schema) != "record":
            raise ValueError("the schema is not a record")
        wanted = {field.name: field for field in fields}
        made = _Source()
        if null_index is not None:  # Paimon before 1.0 declares the rows themselves nullable
            made.enter(null_index, 2)
        nodes: dict[str, Node] = {}
        for column in schema["fields"]:
            field = wanted.get(column["name"])
            if field is None:
                made.skip(column["type"], 2)
            else:
                nodes[field.name] = made.read(column["type"], field.type, 2)
        self.present = [field for field in fields if field.name in nodes]
        self.rows = 0
        self._nodes = [nodes[field.name] for field in self.present]
        self._lists: list[list[Any]] = [[] for _ in range(made.lists)]
        self._decode = made.function()

    def feed(self, data: bytes, count: int) -> None:
        """Decode a block of `count` records.

        Raises:
            ValueError, IndexError: the bytes are not that many records.
        """
        if count > len(data):
            raise ValueError(f"{count} records in {len(data)} bytes")
        end = self._decode(data, count, self._lists)
        if end != len(data):
            raise ValueError(f"{count} records end at byte {end} of {len(data)}")
        self.rows += count

    def take(self) -> list[pa.Array]:
        """The columns of what was fed, in the order of `present`, of `arrow_type` of their fields.

        Raises:
            ValueError, OverflowError: a value is not of its column's type.
        """
        columns = [column_of(node, self._lists) for node in self._nodes]
        for values in self._lists:
            values.clear()
        self.rows = 0
        return columns


def _resolved(schema: Any, named: dict[str, Any], namespace: str) -> Any:
    """The schema with names of earlier records replaced by what they name."""
    if isinstance(schema, list):
        return [_resolved(part, named, namespace) for part in schema]
    if isinstance(schema, str):
        return named.get(schema, named.get(f"{namespace}.{schema}", schema))
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _resolved(kind, named, namespace)
    found = dict(schema)
    if kind in ("record", "fixed", "enum"):
        namespace = schema.get("namespace", namespace)
        named[schema["name"]] = named[f"{namespace}.{schema['name']}"] = found
    if kind == "record":
        found["fields"] = [
            {"name": f["name"], "type": _resolved(f["type"], named, namespace)}
            for f in schema["fields"]
        ]
    elif kind == "array":
        found["items"] = _resolved(schema["items"], named, namespace)
    elif kind == "map":
        found["values"] = _resolved(schema["values"], named, namespace)
    return found


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema if isinstance(schema, str) else schema["type"])


def _nullable(schema: Any) -> tuple[Any, int | None]:
    """What is in a union with null, and the index of null; None when it is no union."""
    if not isinstance(schema, list):
        return schema, None
    rest = [part for part in schema if part != "null"]
    if len(rest) != 1 or len(schema) != 2:
        raise UnsupportedFeatureError("an Avro file has a union other than with null")
    return rest[0], schema.index("null")


class _Source:
    """Source text of the decoding function of one schema."""

    def __init__(self) -> None:
        self.lists = 0
        self._lines: list[str] = []
        self._names = 0

    def function(self) -> _Decode:
        """The made function."""
        head = ["def decode(data, count, lists):", f"{_INDENT}p = 0"]
        head += [f"{_INDENT}a{i} = lists[{i}].append" for i in range(self.lists)]
        head += [f"{_INDENT}for _ in range(count):"]
        text = "\n".join([*head, *self._lines, f"{_INDENT * 2}pass", f"{_INDENT}return p"])
        scope: dict[str, Any] = {}
        exec(compile(text, "<avro>", "exec"), scope)
        return cast(_Decode, scope["decode"])

    def read(self, schema: Any, type_: DataType, depth: int) -> Node:
        """Emit code that appends one value; gives where it goes."""
        inner, null_index = _nullable(schema)
        node = self._node(inner, type_)
        if null_index is None:
            self._read_value(inner, node, depth)
            return node
        self._emit(depth, f"if data[p] == {2 * (1 - null_index)}:", "    p += 1")
        self._read_value(inner, node, depth + 1)
        self._emit(depth, f"elif data[p] == {2 * null_index}:", "    p += 1")
        self._append_null(node, depth + 1)
        self._emit(depth, "else: raise ValueError('a union has no such member')")
        return node

    def enter(self, null_index: int, depth: int) -> None:
        """Emit code that steps into a union with null, which must not be null."""
        self._emit(depth, f"if data[p] != {2 * (1 - null_index)}:")
        self._emit(depth, "    raise ValueError('a row is null')", "p += 1")

    def skip(self, schema: Any, depth: int) -> None:
        """Emit code that passes over one value."""
        inner, null_index = _nullable(schema)
        if null_index is not None:
            self._emit(depth, "b = data[p]", "p += 1", f"if b != {2 * null_index}:")
            depth += 1
        kind = _kind(inner)
        if kind in _INTEGERS:
            self._emit(depth, "while data[p] > 127: p += 1", "p += 1")
        elif kind in _WIDTHS or kind == "fixed":
            self._emit(depth, f"p += {_width(inner)}")
        elif kind in _SIZED:
            self._size(depth)
            self._emit(depth, "p += b")
        elif kind == "record":
            self._emit(depth, "pass")
            for field in inner["fields"]:
                self.skip(field["type"], depth)
        elif kind == "array":
            self.skip(inner["items"], self._items(depth))
        elif kind == "map":
            depth = self._items(depth)
            self.skip("string", depth)
            self.skip(inner["values"], depth)
        else:
            raise UnsupportedFeatureError("an Avro file has an unknown type", type=kind)

    def _node(self, schema: Any, type_: DataType) -> Node:
        """The node of a value that is not null; its children are made when they are read."""
        kind = _kind(schema)
        index = self.lists
        self.lists += 1
        match type_:
            case AtomicType() if kind not in ("array", "map", "record", "enum"):
                return Leaf(index, kind, _logical(schema), type_)
            case ArrayType() if kind == "array":
                return ListNode(index, type_)
            case MapType() | MultisetType() if kind in ("array", "map"):
                return MapNode(index, type_)
            case RowType() if kind == "record":
                return RowNode(index, type_)
        raise ValueError(f"a column is stored as {kind}")

    def _read_value(self, schema: Any, node: Node, depth: int) -> None:
        match node:
            case Leaf():
                self._read_leaf(schema, node, depth)
            case ListNode():
                counter = self._counter(depth)
                inside = self._items(depth, counter)
                node.child = self.read(schema["items"], node.type.element, inside)
                self._emit(depth, f"a{node.index}({counter})")
            case MapNode():
                counter = self._counter(depth)
                inside = self._items(depth, counter)
                self._read_entry(schema, node, inside)
                self._emit(depth, f"a{node.index}({counter})")
            case RowNode():
                self._emit(depth, f"a{node.index}(1)")
                types = {field.name: field.type for field in node.type.fields}
                for field in schema["fields"]:
                    type_ = types.get(field["name"])
                    if type_ is None:
                        self.skip(field["type"], depth)
                    else:
                        node.children[field["name"]] = self.read(field["type"], type_, depth)

    def _read_entry(self, schema: Any, node: MapNode, depth: int) -> None:
        type_ = node.type
        if isinstance(type_, MapType):
            key, value = type_.key, type_.value
        else:
            key, value = type_.element, MULTISET_COUNT
        if _kind(schema) == "map":
            node.key = self.read("string", key, depth)
            node.value = self.read(schema["values"], value, depth)
            return
        entry, _ = _nullable(schema["items"])
        if _kind(entry) != "record" or len(entry["fields"]) != 2:
            raise ValueError("a map is stored as an array of something else than entries")
        first, second = entry["fields"]
        node.key = self.read(first["type"], key, depth)
        node.value = self.read(second["type"], value, depth)

    def _read_leaf(self, schema: Any, node: Leaf, depth: int) -> None:
        kind = node.kind
        append = f"a{node.index}"
        if kind in _INTEGERS:
            self._varint(depth)
            self._emit(depth, f"{append}(b)")
        elif kind == "boolean":
            self._emit(depth, f"{append}(data[p])", "p += 1")
        elif kind in _SIZED:
            self._size(depth)
            self._emit(depth, f"{append}(data[p:p + b])", "p += b")
        elif kind in _WIDTHS or kind == "fixed":
            width = _width(schema)
            self._emit(depth, f"{append}(data[p:p + {width}])", f"p += {width}")
        else:
            raise UnsupportedFeatureError("an Avro file has an unknown type", type=kind)

    def _append_null(self, node: Node, depth: int) -> None:
        self._emit(depth, f"a{node.index}(None)")
        if isinstance(node, RowNode):
            # the fields of a null ROW stay as long as the ROW itself
            for child in node.children.values():
                self._append_null(child, depth)

    def _varint(self, depth: int) -> None:
        """Emit: `b` is the next number, still zig-zag encoded."""
        self._emit(
            depth,
            "b = data[p]",
            "p += 1",
            "if b > 127:",
            "    b &= 127",
            "    s = 7",
            "    c = data[p]",
            "    p += 1",
            "    while c > 127:",
            "        b |= (c & 127) << s",
            "        s += 7",
            "        c = data[p]",
            "        p += 1",
            "    b |= c << s",
        )

    def _size(self, depth: int) -> None:
        """Emit: `b` is the next number, which is a size and so not negative."""
        self._varint(depth)
        self._emit(
            depth,
            "if b & 1: raise ValueError('a negative size')",
            "b >>= 1",
            "if b > len(data) - p: raise ValueError('a value is longer than its block')",
        )

    def _counter(self, depth: int) -> str:
        self._names += 1
        name = f"n{self._names}"
        self._emit(depth, f"{name} = 0")
        return name

    def _items(self, depth: int, counter: str | None = None) -> int:
        """Open the loops over the items of an array or map; gives the depth inside of them."""
        self._names += 1
        count = f"k{self._names}"
        self._emit(depth, "while True:")
        depth += 1
        self._varint(depth)
        self._emit(
            depth,
            "if b == 0: break",
            f"{count} = (b >> 1) ^ -(b & 1)",
            f"if {count} < 0:",
            f"    {count} = -{count}",
            "    while data[p] > 127: p += 1",
            "    p += 1",
            f"if {count} > len(data): raise ValueError('more items than bytes')",
        )
        if counter is not None:
            self._emit(depth, f"{counter} += {count}")
        self._emit(depth, f"for _ in range({count}):")
        return depth + 1

    def _emit(self, depth: int, *lines: str) -> None:
        self._lines += [_INDENT * depth + line for line in lines]


def _width(schema: Any) -> int:
    kind = _kind(schema)
    return _WIDTHS[kind] if kind in _WIDTHS else int(schema["size"])


def _logical(schema: Any) -> str:
    return str(schema.get("logicalType", "")) if isinstance(schema, dict) else ""
