# SPDX-License-Identifier: Apache-2.0
"""Layouts of row events: the constant text between their values, learned from events.

All events of a table come from one serializer: the same members in the same order, the same text
between the values. `Layouts.learn` takes an event that the typed path took, cuts it into constant
texts and values, and knows from then on where the values of such events are. `Layouts.walk` has the
compiled `scan` find them in many events at once; columns are made of positions, without a Python
object per value. What differs from all layouts in any byte of a constant text, or has a value that
is not surely taken the same way by the typed path, is left to that path.

A layout is made of steps: a constant text and what follows it. Members of the row image are columns
by name; key columns of `before` are compared with those of `after`; names in `source` are constant,
as they say which table it is; every other value is anything.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ingest.decode.decode_plan import RowPlan, member_type
from ingest.decode.json.scanning import (
    ABSENT,
    ANY,
    END,
    FIRST,
    HAS_OLD_KEY,
    OP,
    OPS,
    Wire,
)
from ingest.decode.row_batches import convert_column
from ingest.decode.types.conversions import CONVERSION_ERRORS, convert, scanned_as
from ingest.decode.types.semantic_types import Codec
from ingest.decode.types.token_values import NULL
from ingest.source.records import PADDING, Payloads

__all__ = ["Layouts", "WalkedRows"]

_MOST_LAYOUTS = 12
"""Of one plan; the newest count. Optional members and operations make a few."""

_MOST_BYTES = 1 << 25
"""Of events that are walked at once: positions are 32 bits, and memory stays bounded."""

_LEAST_LEARNED = 16
"""Events that were not walked before a layout is learned; doubled when there was nothing new."""

_SAMPLES = 8

_PAUSE = 8
"""Batches that are not walked after one of which less than an eighth was taken."""

_CRU, _CR, _D = 7, 3, 8
_WIDE = 2

_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|\s+', re.DOTALL)
_PARSE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_IDENTITY = frozenset({"name", "db", "schema", "table"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int
    end: int


_Members = dict[str, _Member]


class _NoLayoutError(Exception):
    """Such events are not walked."""


def _members(text: bytes, at: int) -> tuple[_Members, int]:
    """Members of the object at a position of valid JSON, and where it ends."""
    found: _Members = {}
    depth, name, start, end = 0, None, 0, 0
    for match in _PIECE.finditer(text, at):
        piece = match.group()
        if piece.isspace():
            continue
        if depth == 1 and piece in (b",", b"}"):
            if name is not None:
                if name in found:
                    raise _NoLayoutError
                found[name] = _Member(name, start, end)
            if piece == b"}":
                return found, match.end()
            name = None
            continue
        if depth == 1 and name is None:
            name, start = msgspec.json.decode(piece, type=str), -1
            continue
        if depth == 1 and start == -1:
            start = 0  # the colon
            continue
        depth += (piece in (b"{", b"[")) - (piece in (b"}", b"]"))
        start, end = start or match.start(), match.end()
    raise _NoLayoutError


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Steps are (constant text, what follows, its slot); see `compiled` for `ops`."""

    steps: tuple[tuple[bytes, int, int], ...]
    ops: int
    has_old_key: bool


class Layouts:
    """Layouts of the events of one plan.

    Args:
        plan: of the events.

    Attributes:
        plan: see Args.
        wires: how the scan reads each column.
        spans: what the last walk noted, as `scan.scan` says.
        numbers: see `spans`.
    """

    def __init__(self, plan: RowPlan) -> None:
        self.plan = plan
        codecs = [column.codec for column in plan.columns]
        self.wires = [Wire.TOKEN if codec is None else scanned_as(codec) for codec in codecs]
        self._old_keys = {number: len(codecs) + at for at, number in enumerate(plan.key)}
        self._op = len(codecs) + len(plan.key)
        self._stamp = self._op + 1
        pairs = list(self._old_keys.items())
        self._keys = np.array(pairs, np.int64).reshape(-1, 2)
        self._layouts: list[_Layout] = []
        self._pause = 0
        self._missed = 0
        self._patience = _LEAST_LEARNED
        self.spans = np.empty((self._stamp + 1, 2, 0), np.int32)
        self.numbers = np.empty((self._stamp + 1, 0), np.int64)

    # --- learning

    def learn(self, values: Sequence[bytes | None], taken: Sequence[int], prefix: bytes) -> bool:
        """Learn from events that the typed path took, now and then.

        Args:
            values: of a raw batch.
            taken: positions of these events.
            prefix: what stands before a payload, behind which comes `}`; empty = nothing.

        Returns:
            Whether there are layouts.
        """
        self._missed += len(taken)
        if self._missed < self._patience or not taken:
            return bool(self._layouts)
        new = [
            layout
            for at in taken[:: max(1, len(taken) // _SAMPLES)]
            if (layout := self._layout_of(values[at], prefix)) and layout not in self._layouts
        ]
        self._missed = 0
        self._patience = _LEAST_LEARNED if new else 2 * self._patience
        if new:
            self._layouts = [*self._layouts, *dict.fromkeys(new)][-_MOST_LAYOUTS:]
            self._pause = 0
            self.__dict__.pop("_tables", None)
        return bool(self._layouts)

    def _layout_of(self, event: bytes | None, prefix: bytes) -> _Layout | None:
        if event is None or not event.startswith(prefix):
            return None
        try:
            return self._layout(event, len(prefix), b"}" if prefix else b"")
        except (_NoLayoutError, *_PARSE_ERRORS):
            return None

    def _layout(self, text: bytes, start: int, rest: bytes) -> _Layout:
        envelope, end = _members(text, start)
        if text[end:] != rest or not envelope.keys() >= {"op", "source"}:
            raise _NoLayoutError
        images = {
            name: member
            for name in ("before", "after")
            if (member := envelope.get(name)) and text[member.start : member.end] != NULL
        }
        if any(text[member.start] != ord("{") for member in images.values()):
            raise _NoLayoutError
        row = images.get("after") or images.get("before")
        if row is None:
            raise _NoLayoutError
        values = self._row_values(text, row)
        ops, has_old_key = _D, False
        if row.name == "after":
            has_old_key = "before" in images
            ops = _CR if self.plan.target.needs_before and not has_old_key else _CRU
            if has_old_key:
                values += self._old_values(text, images["before"])
        values += self._source_values(text, envelope["source"])
        values.append((envelope["op"], OP, self._op))
        values += [
            (member, ANY, 0)
            for name, member in envelope.items()
            if name not in ("before", "after", "source", "op")
        ]
        return _Layout(_steps(text, values), ops, has_old_key)

    def _row_values(self, text: bytes, row: _Member) -> list["_Value"]:
        plan = self.plan
        values: list[_Value] = []
        members, _ = _members(text, row.start)
        for name, member in members.items():
            number = plan.index.get(name)
            if number is not None and plan.columns[number].codec is not None:
                values.append((member, self.wires[number], number))
            elif name in plan.target.ignored and number is None:
                values.append((member, ANY, 0))
            elif text[member.start : member.end] != NULL:
                raise _NoLayoutError
        columns = enumerate(plan.columns)
        lacking = [number for number, column in columns if column.member not in members]
        return values + [(None, ABSENT, number) for number in lacking]

    def _old_values(self, text: bytes, row: _Member) -> list["_Value"]:
        members, _ = _members(text, row.start)
        keys = {name: self.plan.index[name] for name in self.plan.key_names}
        if not keys.keys() <= members.keys():
            raise _NoLayoutError
        return [
            (member, self.wires[keys[name]], self._old_keys[keys[name]])
            if name in keys
            else (member, ANY, 0)
            for name, member in members.items()
        ]

    def _source_values(self, text: bytes, source: _Member) -> list["_Value"]:
        if text[source.start] != ord("{"):
            raise _NoLayoutError
        members, _ = _members(text, source.start)
        stamp = members.pop("ts_ms", None)
        others = [m for name, m in members.items() if name not in _IDENTITY]
        kind = Wire.INTEGER if stamp else ABSENT
        return [(stamp, kind, self._stamp), *((member, ANY, 0) for member in others)]

    @functools.cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `scan` takes: texts, steps, layouts."""
        texts = bytearray()
        steps: list[tuple[int, int, int, int]] = []
        layouts = np.zeros((len(self._layouts), 3), np.int64)
        for which, layout in enumerate(self._layouts):
            layouts[which, [FIRST, OPS, HAS_OLD_KEY]] = len(steps), layout.ops, layout.has_old_key
            for text, kind, slot in layout.steps:
                steps.append((len(texts), len(text), kind, slot))
                texts += text
        padded = np.frombuffer(bytes(texts) + bytes(PADDING), np.uint8).copy()
        return padded, np.array(steps, np.int64), layouts

    # --- walking

    def walk(
        self, scan: Any, payloads: Payloads, positions: Sequence[int]
    ) -> "Iterator[WalkedRows]":
        """Find the values of events that have one of the layouts.

        Args:
            scan: the compiled functions.
            payloads: values of a raw batch.
            positions: of events among them, none of which is null.
        """
        if self._pause or not self._layouts:
            self._pause = max(0, self._pause - 1)
            return
        events = (
            payloads[positions.start : positions.stop]
            if isinstance(positions, range)
            else payloads.some(positions)
        )
        ends = events.starts + events.sizes
        at = taken = 0
        while at < len(events):
            before = int(events.starts[at])
            to = max(int(np.searchsorted(ends, before + _MOST_BYTES, "right")), at + 1)
            if events.sizes[at] <= _MOST_BYTES:
                starts = np.append(events.starts[at:to], ends[to - 1]) - before
                rows = self._walked(scan, events.buffer[before:], starts, at)
                taken += len(rows)
                yield rows
            at = to
        if taken * 8 < len(events):
            self._pause = _PAUSE

    def _walked(self, scan: Any, data: np.ndarray, starts: np.ndarray, first: int) -> "WalkedRows":
        count = len(starts) - 1
        if self.numbers.shape[1] < count:
            slots = self._stamp + 1
            self.spans = np.empty((slots, 2, count), np.int32)
            self.numbers = np.empty((slots, count), np.int64)
        found = np.empty(count, np.int32)
        texts, steps, layouts = self._tables
        scan.scan(
            data,
            starts,
            texts,
            steps,
            layouts,
            self._keys,
            self._op,
            self.spans,
            self.numbers,
            found,
        )
        rows = np.flatnonzero((found >= 0) & (self.numbers[self._stamp, :count] >= 0))
        return WalkedRows(self, scan, data, rows, first, len(rows) < count)


_Value = tuple[_Member | None, int, int]
"""(where it is, None of an absent column; what it is; slot)"""


def _steps(text: bytes, values: Sequence[_Value]) -> tuple[tuple[bytes, int, int], ...]:
    """Steps of a whole event whose values are these."""
    at = 0
    steps: list[tuple[bytes, int, int]] = []
    present = [(member, kind, slot) for member, kind, slot in values if member is not None]
    for member, kind, slot in sorted(present, key=lambda value: value[0].start):
        steps.append((text[at : member.start], int(kind), slot))
        at = member.end
    steps += [(b"", kind, slot) for member, kind, slot in values if member is None]
    return (*steps, (text[at:], END, 0))


class WalkedRows:
    """Rows whose values were found; to be used before the next walk, which takes the same memory.

    Attributes:
        rows: indices of the events that were taken, ascending, from `first` on.
        first: see `rows`.
    """

    def __init__(
        self,
        layouts: Layouts,
        scan: Any,
        data: np.ndarray,
        rows: np.ndarray,
        first: int,
        gaps: bool,
    ) -> None:
        self._plan = layouts.plan
        self._wires = layouts.wires
        self._spans, self._numbers = layouts.spans, layouts.numbers
        self._scan = scan
        self._data = data
        self.rows = rows
        self.first = first
        self._some = rows if gaps else slice(len(rows))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ops(self) -> str:
        """`c r u d`, one per row."""
        op = len(self._plan.columns) + len(self._plan.key)
        return self._numbers[op, self._some].astype(np.uint8).tobytes().decode()

    @property
    def stamps(self) -> np.ndarray:
        """`source.ts_ms` [epoch ms] of those rows that have one, -1 of the others."""
        begins = self._spans[-1, 0, self._some]
        return np.where(begins > 0, self._numbers[-1, self._some], -1)

    def column(self, number: int, codec: Codec, refused: set[int]) -> pa.Array:
        """A column of the plan; `row_batches.ColumnOf`."""
        if self._wires[number] is not Wire.TOKEN:
            try:
                return convert(codec, self._array(number))
            except CONVERSION_ERRORS:
                pass  # some value does not fit: taken one by one the values show which
        return convert_column(codec, self._values(number, refused), refused)

    def _array(self, number: int) -> pa.Array:
        wire, rows, some = self._wires[number], self.rows, self._some
        begins, ends = self._spans[number]
        numbers = self._numbers[number]
        valid = begins[some] > 0
        bitmap = None if valid.all() else _bitmap(valid)
        if wire is Wire.INTEGER:
            buffers = [bitmap, pa.py_buffer(np.array(numbers[some]))]
            return pa.Array.from_buffers(pa.int64(), len(rows), buffers)
        if wire is Wire.BOOLEAN:
            truths = _bitmap(numbers[some] != 0)
            return pa.Array.from_buffers(pa.bool_(), len(rows), [bitmap, truths])
        offsets = np.empty(len(rows) + 1, np.int32)
        size = int(ends[some].sum(dtype=np.int64) - begins[some].sum(dtype=np.int64))
        out = np.empty(size + PADDING, np.uint8)
        if wire is Wire.BASE64:
            size = self._scan.copy_base64(self._data, rows, begins, ends, offsets, out)
            if size < 0:
                raise ValueError("not base64")
        else:
            size = self._scan.copy_texts(self._data, rows, begins, ends, numbers, offsets, out)
        type_ = pa.binary() if wire is Wire.BASE64 else pa.string()
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(out[:size])]
        array = pa.Array.from_buffers(type_, len(rows), buffers)
        if wire is Wire.TEXT and (numbers[some] & _WIDE).any():
            array.validate(full=True)  # UTF-8
        return array

    def _values(self, number: int, refused: set[int]) -> list[Any]:
        """Values as the typed path has them, None where one has another type."""
        decode = msgspec.json.Decoder(member_type(self._plan.columns[number])).decode
        begins, ends = self._spans[number][:, self._some].tolist()
        quote = 1 if self._wires[number] in (Wire.TEXT, Wire.BASE64) else 0
        data = self._data.data
        values: list[Any] = []
        for row, begin, end in zip(itertools.count(), begins, ends, strict=False):
            value = None
            if begin:
                try:
                    value = decode(data[begin - quote : end + quote])
                except _PARSE_ERRORS:
                    refused.add(row)
            values.append(value)
        return values


def _bitmap(mask: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
