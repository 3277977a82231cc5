# SPDX-License-Identifier: Apache-2.0
"""Avro records to columns: many blocks in step, few or odd ones by code made for their schema.

Source: Avro specification, "Binary Encoding"; FORMAT.md §7.5; ADR 0007. `avro_lanes` decodes
whatever comes as enough blocks and is sound. The rest goes through one Python function made for the
schema, value by value: files of few blocks, and damaged ones, of which it says what is wrong. The
made code contains numbers and no text of the file. Numbers are collected undecoded (zig-zag), texts
as slices; `avro_columns` turns either into the columns' arrays.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.avro.columns import (
    Leaf,
    ListNode,
    MapNode,
    Node,
    RowNode,
    column_of,
    raw_arrays,
)
from storage.format.avro.kinds import (
    INTEGERS,
    SIZED,
    WIDTHS,
    kind_of,
    logical_of,
    nullable,
    resolved,
    width_of,
)
from storage.format.avro.lanes import LEAST_LANES, LaneDecoder, OddDataError
from storage.format.avro.schema import MULTISET_COUNT
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
)

__all__ = ["BlockError", "RecordDecoder"]

_INDENT = "    "

_Decode: TypeAlias = Callable[[bytes, int, list[list[Any]]], int]
"""Takes data, number of records and lists; gives the position after the last record."""


class BlockError(ValueError):
    """A block does not hold the records it should.

    Attributes:
        position: of the block among those given.
    """

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(detail)
        self.position = position


class RecordDecoder:
    """Decodes the records of one schema.

    Args:
        schema_text: of the record.
        fields: the wanted columns, found by name.

    Attributes:
        present: those of `fields` that the schema has; the columns of `decode`.

    Raises:
        ValueError: the text is no schema of a record, or a column is of another kind than its
            field.
        UnsupportedFeatureError: a kind of Avro schema that Paimon never writes.
    """

    def __init__(self, schema_text: str, fields: Sequence[DataField]) -> None:
        named: dict[str, Any] = {}
        schema, null_index = nullable(resolved(json.loads(schema_text), named, ""))
        if kind_of(schema) != "record":
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
        self._nodes = [nodes[field.name] for field in self.present]
        self._count = made.lists
        self._decode = made.function()
        self._lanes: LaneDecoder | None = None
        with contextlib.suppress(OddDataError):
            self._lanes = LaneDecoder(schema, null_index, nodes, made.lists)

    def decode(self, blocks: Sequence[tuple[bytes, int]]) -> list[pa.Array]:
        """The columns of some blocks, each given as its bytes and its number of records.

        Returns:
            In the order of `present`, of `arrow_type` of their fields.

        Raises:
            BlockError: the bytes are not that many records.
            ValueError, OverflowError: a value is not of its column's type.
        """
        if self._lanes is not None and len(blocks) >= LEAST_LANES:
            with contextlib.suppress(OddDataError):
                raw = self._lanes.decode(blocks)
                return [column_of(node, raw) for node in self._nodes]
        lists: list[list[Any]] = [[] for _ in range(self._count)]
        for position, (data, count) in enumerate(blocks):
            try:
                self._feed(data, count, lists)
            except (ValueError, IndexError, OverflowError, MemoryError) as error:
                raise BlockError(position, str(error)) from error
        return [column_of(node, raw_arrays(node, lists)) for node in self._nodes]

    def _feed(self, data: bytes, count: int, lists: list[list[Any]]) -> None:
        if count > len(data):
            raise ValueError(f"{count} records in {len(data)} bytes")
        end = self._decode(data, count, lists)
        if end != len(data):
            raise ValueError(f"{count} records end at byte {end} of {len(data)}")


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
        inner, null_index = nullable(schema)
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
        inner, null_index = nullable(schema)
        if null_index is not None:
            self._emit(depth, "b = data[p]", "p += 1", f"if b != {2 * null_index}:")
            depth += 1
        kind = kind_of(inner)
        if kind in (*INTEGERS, "enum"):
            self._emit(depth, "while data[p] > 127: p += 1", "p += 1")
        elif kind in WIDTHS or kind == "fixed":
            self._emit(depth, f"p += {width_of(inner)}")
        elif kind in SIZED:
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
        kind = kind_of(schema)
        index = self.lists
        self.lists += 1
        match type_:
            case AtomicType() if kind not in ("array", "map", "record", "enum"):
                return Leaf(index, kind, logical_of(schema), type_, width_of(schema))
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
        if kind_of(schema) == "map":
            node.key = self.read("string", key, depth)
            node.value = self.read(schema["values"], value, depth)
            return
        entry, _ = nullable(schema["items"])
        if kind_of(entry) != "record" or len(entry["fields"]) != 2:
            raise ValueError("a map is stored as an array of something else than entries")
        first, second = entry["fields"]
        node.key = self.read(first["type"], key, depth)
        node.value = self.read(second["type"], value, depth)

    def _read_leaf(self, schema: Any, node: Leaf, depth: int) -> None:
        kind = node.kind
        append = f"a{node.index}"
        if kind in INTEGERS:
            self._varint(depth)
            self._emit(depth, f"{append}(b)")
        elif kind == "boolean":
            self._emit(depth, f"{append}(data[p])", "p += 1")
        elif kind in SIZED:
            self._size(depth)
            self._emit(depth, f"{append}(data[p:p + b])", "p += b")
        elif kind in WIDTHS or kind == "fixed":
            width = width_of(schema)
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
