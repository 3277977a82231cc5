# SPDX-License-Identifier: Apache-2.0
"""Avro records to columns: many blocks together, few or damaged ones record by record.

Source: Avro specification, "Binary Encoding"; FORMAT.md §7.5; ADR 0015. `lanes` decodes enough
sound blocks. A file of few blocks goes through `BlockDecoder`, and so do damaged blocks, which
it diagnoses. Both record where values begin; the columns are built from the positions.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.avro.columns import Leaf, ListNode, MapNode, Node, RowNode, column_of
from storage.format.avro.lanes import LEAST_LANES, LaneDecoder, OddDataError
from storage.format.avro.schema import (
    INTEGERS,
    MULTISET_COUNT,
    SIZED,
    kind_of,
    logical_of,
    nullable,
    resolved,
    width_of,
)
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
)
from storage.format.varint import read_zigzag

_Step: TypeAlias = Callable[[int], int]
"""Takes the start of a value; returns its end."""

_Value: TypeAlias = tuple[Callable[[Any], None] | None, int, int, int, _Step | None]
"""How to skip a value: what records its position; marks of a value and of null in a union, or
-1; its width [bytes], 0 for a number of variable length, -1 for a size and so many bytes; the step
over a nested value."""


class BlockError(ValueError):
    """A block does not hold the records it should."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(detail)
        self.position = position


class RecordDecoder:
    """Decodes the records of one schema.

    Args:
        fields: the requested columns, looked up by name.

    Attributes:
        present: those of `fields` that the schema has; the columns of `decode`.

    Raises:
        ValueError: the text is no schema of a record, or a column is of another kind than its
            field.
        UnsupportedFeatureError: a kind of Avro schema that Paimon never writes.
    """

    def __init__(self, schema_text: str, fields: Sequence[DataField]) -> None:
        schema, null_index = nullable(resolved(json.loads(schema_text), {}, ""))
        if kind_of(schema) != "record":
            raise ValueError("the schema is not a record")
        kinds = {column["name"]: column["type"] for column in schema["fields"]}
        self.present = [field for field in fields if field.name in kinds]
        indexes = itertools.count()
        self._nodes = [_node(kinds[field.name], field.type, indexes) for field in self.present]
        nodes = {f.name: node for f, node in zip(self.present, self._nodes, strict=True)}
        count = next(indexes)
        try:
            self._lanes = LaneDecoder(schema, null_index, nodes, count)
            self._single = BlockDecoder(schema, null_index, nodes, count)
        except OddDataError as error:
            raise UnsupportedFeatureError("an Avro file has an unknown type") from error

    def decode(self, blocks: Sequence[tuple[bytes, int]]) -> list[pa.Array]:
        """The columns of some blocks, each given as its bytes and its number of records.

        Returns:
            In the order of `present`, of `arrow_type` of their fields.

        Raises:
            BlockError: the bytes are not that many records.
            ValueError, OverflowError: a value is not of its column's type.
        """
        if len(blocks) >= LEAST_LANES:
            with contextlib.suppress(OddDataError):
                raw = self._lanes.decode(blocks)
                return [column_of(node, raw) for node in self._nodes]
        raw = self._single.decode(blocks)
        return [column_of(node, raw) for node in self._nodes]


def _node(schema: Any, type_: DataType, indexes: Iterator[int]) -> Node:
    """The node of a value and of all that is in it."""
    inner, _ = nullable(schema)
    kind, index = kind_of(inner), next(indexes)
    match type_:
        case AtomicType() if kind not in ("array", "map", "record", "enum"):
            return Leaf(index, kind, logical_of(inner), type_, width_of(inner))
        case ArrayType(element=element) if kind == "array":
            return ListNode(index, type_, _node(inner["items"], element, indexes))
        case MapType(key=key, value=value) if kind in ("array", "map"):
            return MapNode(index, type_, *_entry(inner, key, value, indexes))
        case MultisetType(element=key) if kind in ("array", "map"):
            return MapNode(index, type_, *_entry(inner, key, MULTISET_COUNT, indexes))
        case RowType(fields=fields) if kind == "record":
            types = {field.name: field.type for field in fields}
            children = {
                field["name"]: _node(field["type"], types[field["name"]], indexes)
                for field in inner["fields"]
                if field["name"] in types
            }
            return RowNode(index, type_, children)
    raise ValueError(f"a column is stored as {kind}")


def _entry(
    schema: Any, key: DataType, value: DataType, indexes: Iterator[int]
) -> tuple[Node, Node]:
    """The nodes of a map's keys and values."""
    if kind_of(schema) == "map":
        kinds = ["string", schema["values"]]
    else:
        entry, _ = nullable(schema["items"])
        if kind_of(entry) != "record" or len(entry["fields"]) != 2:
            raise ValueError("a map is stored as an array whose items are not entries")
        kinds = [field["type"] for field in entry["fields"]]
    return _node(kinds[0], key, indexes), _node(kinds[1], value, indexes)


def _after_sized(data: bytes, position: int) -> int:
    size, position = read_zigzag(data, position)
    if size < 0:
        raise ValueError("a negative size")
    return position + size


class BlockDecoder(LaneDecoder):
    """Decodes blocks record by record and reports damage; otherwise as `LaneDecoder`.

    `decode` raises a `BlockError` for the first block that does not hold its records.
    """

    _bytes = b""

    def _walk(self, blocks: Sequence[tuple[bytes, int]]) -> None:
        self._bytes = self._load(blocks)
        record: Any = self._record
        position = end = 0
        try:
            for number, (data, count) in enumerate(blocks):
                begin, end = end, end + len(data)
                if count > len(data):
                    raise BlockError(number, f"{count} records in {len(data)} bytes")
                try:
                    for _ in range(count):
                        position = record(position)
                except IndexError as error:
                    raise BlockError(number, "the block ends within a record") from error
                except (ValueError, OverflowError) as error:
                    raise BlockError(number, str(error)) from error
                if position != end:
                    detail = f"{count} records end at byte {position - begin} of {len(data)}"
                    raise BlockError(number, detail)
        finally:
            self._bytes = b""
        for positions in self._start_lists:
            positions[:] = [np.array(positions, np.int64)]

    def _row_in_union(self, step: _Step, null_index: int) -> _Step:
        def row(position: int) -> int:
            if self._bytes[position] != 2 * (1 - null_index):
                raise ValueError("a row is null")
            return step(position + 1)

        return row

    def _value_step(self, schema: Any, node: Node | None) -> _Step:
        return self._values_step([self._value(schema, node)])

    def _record_step(self, schema: Any, nodes: dict[str, Node]) -> _Step:
        fields = schema["fields"]
        if not fields:
            raise OddDataError
        return self._values_step(
            [self._value(field["type"], nodes.get(field["name"])) for field in fields]
        )

    def _value(self, schema: Any, node: Node | None) -> _Value:
        inner, null_index = nullable(schema)
        note, items = None, -1
        if node is not None:
            index, items = self._note_starts(node, null_index)
            note = self._start_lists[index].append
        present, null = (-1, -1) if null_index is None else (2 - 2 * null_index, 2 * null_index)
        kind = kind_of(inner)
        if kind in ("record", "array", "map"):
            nested = cast(_Step, self._inner_step(inner, node, items))
            return note, present, null, 0, nested
        if kind in (*INTEGERS, "enum"):
            width = 0
        elif kind in SIZED:
            width = -1
        else:
            width = width_of(inner)
            if not width:
                raise OddDataError
        return note, present, null, width, None

    def _values_step(self, values: Sequence[_Value]) -> _Step:  # noqa: C901 - see `step`
        """Skip consecutive values."""

        def step(position: int) -> int:  # noqa: C901 - no calls: it runs once per value of a file
            data = self._bytes
            for note, present, null, width, nested in values:
                if note is not None:
                    note(position)
                if present >= 0:
                    mark = data[position]
                    position += 1
                    if mark != present:
                        if mark != null:
                            raise ValueError("unknown branch of a union")
                        continue
                if nested is not None:
                    position = nested(position)
                elif width > 0:
                    position += width
                elif not width:
                    while data[position] > 127:
                        position += 1
                    position += 1
                else:
                    size = data[position]
                    if size > 127 or size & 1:
                        position = _after_sized(data, position)
                    else:
                        position += 1 + (size >> 1)
            return position

        return step

    def _items_step(self, item: _Step, items: int) -> _Step:
        note: Any = self._start_lists[items].append if items >= 0 else None

        def step(position: int) -> int:
            data = self._bytes
            while True:
                count, position = read_zigzag(data, position)
                if count == 0:
                    return position
                if count < 0:
                    count = -count
                    _, position = read_zigzag(data, position)
                for _ in range(count):
                    if note is not None:
                        note(position)
                    position = item(position)

        return step
