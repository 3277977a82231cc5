# SPDX-License-Identifier: Apache-2.0
"""Layouts of row events: the constant text between their values, learned from events.

All events of a table come from one serializer: the same members in the same order, the same text
between the values. `Layouts.learn` takes an event that gave rows, splits it into constant texts and
values, and records where the values of such events are. `Layouts.walk` has the compiled
`scan` find them in many events at once; columns are built from positions, without a Python object
per value. Events that differ from all layouts in any byte of a constant text, or have a value that
the event-by-event path may decode differently, are skipped.

A layout is made of steps: a constant text and what follows it. Members of the row image are columns
by name; key columns of the row before a change are compared with those of the row; members
that identify the table, or that the format's decoder checks, are constant; every other value is
arbitrary. An `Anatomy` defines the roles of a format's members.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.compiled.loading import (
    ABSENT,
    ANY,
    CLOSED,
    END,
    FIRST,
    FIRST_ROW,
    KEEPS_KEY,
    NAME_COUNT,
    NAMES,
    NEXT_ROW,
    OLD,
    OP,
    OP_CODE,
    OPS,
    SET_STAMP,
    STAMP,
    WHOLE,
    Wire,
)
from ingest.decode.columns import RowPlan, member_type
from ingest.decode.events import NULL, PARSE_ERRORS
from ingest.decode.outcome import convert_column
from ingest.decode.types.conversions import CONVERSION_ERRORS, convert, scanned_as
from ingest.decode.types.semantic_types import Codec
from ingest.source.records import PADDING, Payloads

Path = tuple[str, ...]
"""Of a member: names from the top; one or two."""

_MOST_LAYOUTS = 12
"""Maximum per plan; the newest are retained. Optional members and operations produce a few."""

_MOST_BYTES = 1 << 25
"""Size of events that are scanned at once: positions are 32 bits, and memory stays bounded."""

_LEAST_LEARNED = 16
"""Unmatched events before a layout is learned; doubled when nothing new was learned."""

_SAMPLES = 8

_PAUSE = 8
"""Batches that skip the scan after one of which less than an eighth matched."""

_SMALLEST_MS = 100_000_000_000
"""As milliseconds a moment of 1973, as seconds one of the year 5138 (`Anatomy.is_epoch`)."""

_PLAIN_MOMENT = (
    r"^(19[7-9][0-9]|20[0-9]{2})-[0-9]{2}-[0-9]{2}[T ]"
    r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}([0-9]{3})?)?Z?$"
)

_C, _R, _U, _D = 1, 2, 4, 8
_BITS = {"c": _C, "r": _R, "u": _U, "d": _D}
_WIDE = 2

_PIECE = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|\s+', re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """Positions of the parts of a layout in the messages of a format.

    Attributes:
        operations: by JSON token `c r u d`; events with other tokens are not scanned.
        op: member with the operation; none = it is `default_op`.
        default_op: operation where the member `op` is absent.
        row: member with the row; empty = the message, or what a schema block is around, is the row.
        deleted: member with the row of a delete, where it is another one.
        old: member with the row before an update, or some of it.
        old_is_whole: whether that has no other members than the row.
        is_array: whether `row` and `old` are arrays of rows.
        stamps: members with the moment of a change; the first that is not null counts.
        moment: reads a moment that is text, to epoch milliseconds; None = it is an integer.
        is_epoch: whether integers may be seconds (`envelopes.epoch_ms`).
        constant: members whose values are the same in all events of a layout.
        whole: members that are integers or null.
        prefix: of members of a row that are none of its columns; empty = all are.
        deletes: member of them that says with `true` that the row was deleted.
        reserved: sets of names of which a row may not have all.
        is_odd: whether a row with a member of this name is not scanned.
    """

    operations: Mapping[bytes, str] = dataclasses.field(default_factory=dict)
    op: Path = ()
    default_op: str = ""
    row: str = ""
    deleted: str = ""
    old: str = ""
    old_is_whole: bool = False
    is_array: bool = False
    stamps: tuple[Path, ...] = ()
    moment: Callable[[str | None], int | None] | None = None
    is_epoch: bool = False
    constant: frozenset[Path] = frozenset()
    whole: frozenset[Path] = frozenset()
    prefix: str = ""
    deletes: str = ""
    reserved: tuple[frozenset[str], ...] = ()
    is_odd: Callable[[str], bool] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    name: str
    start: int
    end: int
    spelling: bytes = b""


_Members = dict[str, _Member]


class _NoLayoutError(Exception):
    """Events of this form are not scanned."""


def _members(text: bytes, at: int) -> tuple[_Members, int]:
    """Members of the object at a position of valid JSON, and where it ends."""
    members: _Members = {}
    depth, name, start, end, spelling = 0, None, 0, 0, b""
    for match in _PIECE.finditer(text, at):
        piece = match.group()
        if piece.isspace():
            continue
        if depth == 1 and piece in (b",", b"}"):
            if name is not None:
                if name in members:
                    raise _NoLayoutError
                members[name] = _Member(name, start, end, spelling)
            if piece == b"}":
                return members, match.end()
            name = None
            continue
        if depth == 1 and name is None:
            name, start, spelling = msgspec.json.decode(piece, type=str), -1, piece
            continue
        if depth == 1 and start == -1:
            start = 0  # the colon
            continue
        depth += (piece in (b"{", b"[")) - (piece in (b"}", b"]"))
        start, end = start or match.start(), match.end()
    raise _NoLayoutError


def _first_of_array(text: bytes, array: _Member) -> _Member:
    """The first element of an array of objects."""
    piece = _PIECE.match(text, array.start + 1)
    start = array.start + 1
    if piece is not None and piece.group().isspace():
        start = piece.end()
    if text[array.start] != ord("[") or text[start] != ord("{"):
        raise _NoLayoutError
    _, end = _members(text, start)
    return _Member("", start, end)


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Steps are (constant text, what follows, its slot).

    Attributes:
        steps: the steps.
        ops: operations that events may have, as bits of `c r u d`.
        op: the operation of all events; 0 = events contain it.
        keeps_key: as `scanning.KEEPS_KEY`.
        names: of the row's members as they are spelt, with the slot of key columns before or -1.
    """

    steps: tuple[tuple[bytes, int, int], ...]
    ops: int
    op: int
    keeps_key: int
    names: tuple[tuple[bytes, int], ...]


class Layouts:
    """Layouts of the events of one plan.

    Args:
        plan: of the events.
        anatomy: of the format.
        partial: whether a column that an update lacks is unchanged.

    Attributes:
        plan: see Args.
        anatomy: see Args.
        wires: how the scan reads each column.
        spans: output of the last walk (`scan.scan`).
        numbers: see `spans`.
    """

    def __init__(self, plan: RowPlan, anatomy: Anatomy, *, partial: bool = False) -> None:
        self.plan = plan
        self.anatomy = anatomy
        self._partial = partial
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
        self._learn_threshold = _LEAST_LEARNED
        self.spans = np.empty((self._stamp + 1, 2, 0), np.int32)
        self.numbers = np.empty((self._stamp + 1, 0), np.int64)

    # --- learning

    def learn(
        self,
        values: Sequence[bytes | None],
        rows: Sequence[int],
        prefix_of: Callable[[bytes], bytes],
    ) -> None:
        """Learn layouts from decoded events, periodically.

        Args:
            values: of a raw batch.
            rows: positions of these events.
            prefix_of: text before the payload of a message, which `}` follows; empty = none.
        """
        self._missed += len(rows)
        if self._missed < self._learn_threshold or not rows:
            return
        samples = [values[at] for at in rows[:: max(1, len(rows) // _SAMPLES)]]
        layouts = [self._layout_of(sample, prefix_of) for sample in samples if sample is not None]
        new = [layout for layout in layouts if layout is not None and layout not in self._layouts]
        self._missed = 0
        self._learn_threshold = _LEAST_LEARNED if new else 2 * self._learn_threshold
        if new:
            self._layouts = [*self._layouts, *dict.fromkeys(new)][-_MOST_LAYOUTS:]
            self._pause = 0
            self.__dict__.pop("_tables", None)

    def _layout_of(self, event: bytes, prefix_of: Callable[[bytes], bytes]) -> _Layout | None:
        try:
            prefix = prefix_of(event)
            return self._layout(event, len(prefix), b"}" if prefix else b"")
        except (_NoLayoutError, *PARSE_ERRORS):
            return None

    def _layout(self, text: bytes, start: int, rest: bytes) -> _Layout:
        message, end = _members(text, start)
        if text[end:] != rest:
            raise _NoLayoutError
        whole = _Member("", start, end)
        event = _EventParts(text, self.anatomy, message, whole)
        values = self._row_values(text, event.row, event.array)
        ops, keeps_key = event.ops, 0
        if event.old is not None and ops & _U:
            ops, keeps_key = _U, 2 if self.plan.target.needs_before else 1
            values += _rows(text, event.old, self.anatomy.is_array, OLD)
        elif self.plan.target.needs_before or (self._partial and self._lacks(text, event.row)):
            ops &= ~_U
        if not ops:
            raise _NoLayoutError
        values += event.values(self._op, self._stamp)
        members, _ = _members(text, event.row.start)
        names = tuple(
            (member.spelling, self._old_keys.get(self.plan.index.get(name, -1), -1))
            for name, member in members.items()
        )
        return _Layout(_steps(text, values), ops, event.op, keeps_key, names)

    def _lacks(self, text: bytes, row: _Member) -> bool:
        members, _ = _members(text, row.start)
        columns = enumerate(self.plan.columns)
        return any(
            column.codec is not None
            and column.member not in members
            and number not in self.plan.key
            for number, column in columns
        )

    def _row_values(self, text: bytes, row: _Member, array: _Member | None) -> list["_Value"]:
        plan, anatomy = self.plan, self.anatomy
        members, _ = _members(text, row.start)
        if any(names <= members.keys() for names in anatomy.reserved):
            raise _NoLayoutError
        if anatomy.is_odd is not None and any(map(anatomy.is_odd, members)):
            raise _NoLayoutError
        if not {*plan.key_names} <= members.keys():
            raise _NoLayoutError  # the key is elsewhere
        absent = [n for n, column in enumerate(plan.columns) if column.member not in members]
        begin = _Member("", row.start + 1, row.start + 1)
        values: list[_Value] = [(begin, ABSENT, number) for number in absent]
        for name, member in members.items():
            number = plan.index.get(name)
            if anatomy.prefix and name.startswith(anatomy.prefix):
                if number is not None and not anatomy.row:
                    raise _NoLayoutError  # a column that is metadata, too
                continue
            if number is not None and plan.columns[number].codec is not None:
                values.append((member, self.wires[number], number))
            elif name in plan.target.ignored and number is None:
                values.append((member, ANY, 0))
            elif text[member.start : member.end] != NULL:
                raise _NoLayoutError
        return values if array is None else _in_array(values, row, array)

    @functools.cached_property
    def _tables(self) -> tuple[np.ndarray, ...]:
        """Arguments of `scan`: texts, steps, layouts, words, names."""
        texts = bytearray()
        steps: list[tuple[int, int, int, int]] = []
        words: list[tuple[int, int, int]] = []
        names: list[tuple[int, int, int]] = []
        layouts = np.zeros((len(self._layouts), CLOSED + 1), np.int64)

        def put(text: bytes) -> tuple[int, int]:
            texts.extend(text)
            return len(texts) - len(text), len(text)

        for index, layout in enumerate(self._layouts):
            facts = layouts[index]
            facts[[FIRST, OPS, OP_CODE]] = len(steps), layout.ops, layout.op
            facts[[NAMES, NAME_COUNT]] = len(names), len(layout.names)
            facts[[KEEPS_KEY, CLOSED]] = layout.keeps_key, self.anatomy.old_is_whole
            first_row = 0
            for text, kind, slot in layout.steps:
                steps.append((*put(text), kind, first_row if kind == NEXT_ROW else slot))
                if kind == FIRST_ROW:
                    first_row = len(steps)
            names += [(*put(name), slot) for name, slot in layout.names]
        words += [(*put(token), ord(op)) for token, op in self.anatomy.operations.items()]
        padded = np.frombuffer(bytes(texts) + bytes(PADDING), np.uint8).copy()
        tables = (np.array(steps, np.int64), layouts, _table(words), _table(names))
        return (padded, *tables)

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
        at = hits = 0
        while at < len(events):
            base = int(events.starts[at])
            stop = max(int(np.searchsorted(ends, base + _MOST_BYTES, "right")), at + 1)
            if events.sizes[at] <= _MOST_BYTES:
                starts = np.append(events.starts[at:stop], ends[stop - 1]) - base
                rows = self._walked(scan, events.buffer[base:], starts, at)
                hits += int(np.count_nonzero(rows.firsts))
                yield rows
            at = stop
        if hits * 8 < len(events):
            self._pause = _PAUSE

    def _walked(self, scan: Any, data: np.ndarray, starts: np.ndarray, first: int) -> "WalkedRows":
        count = len(starts) - 1
        if self.anatomy.is_array:  # a row has a brace
            count = max(count, int(np.count_nonzero(data[: starts[-1]] == ord("{"))))
        if self.numbers.shape[1] < count:
            slots = self._stamp + 1
            self.spans = np.empty((slots, 2, count), np.int32)
            self.numbers = np.empty((slots, count), np.int64)
        events = np.empty(self.numbers.shape[1], np.int32)
        texts, steps, layouts, words, names = self._tables
        rows = scan.scan(
            data,
            starts,
            texts,
            steps,
            layouts,
            words,
            names,
            self._keys,
            self._op,
            self.spans,
            self.numbers,
            events,
        )
        return WalkedRows(self, scan, data, events[:rows].astype(np.int64) + first)


def _table(rows: Sequence[tuple[int, ...]]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 3)


_Value = tuple[_Member, int, int]
"""(where it is, what it is, its slot)"""


def _in_array(values: Sequence[_Value], row: _Member, array: _Member) -> list[_Value]:
    """Values of the rows of an array, of which those of the first are given."""
    first = _Member("", row.start, row.start)
    following = _Member("", row.end, array.end - 1)
    return [(first, FIRST_ROW, 0), *values, (following, NEXT_ROW, 0)]


class _EventParts:
    """Parts of an event by role.

    Attributes:
        row: the row, or the first of an array of rows.
        array: that array; None = there is none.
        old: the row before, or the array of such; None = there is none.
        ops: operations that events of the layout may have, as bits.
        op: as `_Layout.op`.
    """

    def __init__(self, text: bytes, anatomy: Anatomy, message: _Members, event: _Member) -> None:
        self._text = text
        self._anatomy = anatomy
        self._message = message
        token = self._token(anatomy.op)
        deleted = self._token((anatomy.deletes,)) in (b"true", b'"true"')
        operation = anatomy.operations.get(token) if token else anatomy.default_op
        if not operation:
            raise _NoLayoutError
        self.op = ord("d") if deleted else 0 if token else ord(anatomy.default_op)
        self.ops = _D if deleted else _BITS[operation] if self.op else sum(_BITS.values())
        row: _Member | None = event
        if anatomy.row:
            is_other = operation == "d" and anatomy.deleted
            row = message.get(anatomy.deleted if is_other else anatomy.row)
            if anatomy.deleted:
                self.ops = _D if is_other else _C | _R | _U
        if row is None:
            raise _NoLayoutError
        self.array = row if anatomy.is_array else None
        self.row = _first_of_array(text, row) if anatomy.is_array else row
        if text[self.row.start] != ord("{"):
            raise _NoLayoutError
        old = message.get(anatomy.old)
        self.old = None
        if operation == "u" and old is not None and text[old.start : old.end] != NULL:
            self.old = old

    def _member(self, path: Path) -> _Member | None:
        if not path or path[0] not in self._message:
            return None
        member = self._message[path[0]]
        if len(path) == 1:
            return member
        if self._text[member.start] != ord("{"):
            raise _NoLayoutError
        return _members(self._text, member.start)[0].get(path[1])

    def _token(self, path: Path) -> bytes:
        member = self._member(path)
        return b"" if member is None else self._text[member.start : member.end]

    def values(self, op: int, stamp: int) -> list[_Value]:
        """Values of all members except the row and the row before; arguments are slots."""
        anatomy, text = self._anatomy, self._text
        values: list[_Value] = []
        if self._token(anatomy.op) and not self.op:
            values.append((self._member(anatomy.op) or self.row, OP, op))
        fixed = {*anatomy.constant, anatomy.op, (anatomy.deletes,)}
        for path in anatomy.stamps:
            fixed.add(path)
            member = self._member(path)
            if member is not None and text[member.start : member.end] != NULL:
                kind = SET_STAMP if len(anatomy.stamps) > 1 else STAMP
                if anatomy.moment is not None:
                    kind = int(Wire.BASE64)  # text of ASCII without escapes
                values.append((member, kind, stamp))
                break
        else:
            values.append((_Member("", len(text), len(text)), ABSENT, stamp))
        nested = {path[0] for path in fixed if len(path) > 1}
        rows = {anatomy.row, anatomy.deleted, anatomy.old} - {""}
        for name, member in self._message.items():
            if not anatomy.row and not (anatomy.prefix and name.startswith(anatomy.prefix)):
                continue  # a column
            if name in nested:
                inner = _members(text, member.start)[0]
                values += [(m, ANY, 0) for n, m in inner.items() if (name, n) not in fixed]
            elif name in rows or (name,) in fixed:
                continue
            elif (name,) in anatomy.whole:
                values.append((member, WHOLE, 0))
            else:
                values.append((member, ANY, 0))
        return values


def _rows(text: bytes, old: _Member, is_array: bool, kind: int) -> list[_Value]:
    """The row before, or the first of an array of such."""
    if not is_array:
        if text[old.start] != ord("{"):
            raise _NoLayoutError
        return [(old, kind, 0)]
    row = _first_of_array(text, old)
    return _in_array([(row, kind, 0)], row, old)


def _steps(text: bytes, values: Sequence[_Value]) -> tuple[tuple[bytes, int, int], ...]:
    """Steps of a whole event whose values are these."""
    at = 0
    steps: list[tuple[bytes, int, int]] = []
    for member, kind, slot in sorted(values, key=lambda value: value[0].start):
        steps.append((text[at : member.start], int(kind), slot))
        at = member.end
    return (*steps, (text[at:], END, 0))


class WalkedRows:
    """Rows whose values were found; to be used before the next walk, which reuses the memory.

    Attributes:
        events: of each row the index of its event among those walked, ascending.
    """

    def __init__(self, layouts: Layouts, scan: Any, data: np.ndarray, events: np.ndarray) -> None:
        self._plan = layouts.plan
        self._anatomy = layouts.anatomy
        self._wires = layouts.wires
        count = len(events)
        self._spans, self._numbers = layouts.spans[:, :, :count], layouts.numbers[:, :count]
        self._scan = scan
        self._data = data
        self.events = events

    def __len__(self) -> int:
        return len(self.events)

    @property
    def firsts(self) -> np.ndarray:
        """Mask of rows that are the first of their events."""
        return np.r_[True, self.events[1:] != self.events[:-1]][: len(self)]

    @property
    def ops(self) -> str:
        """`c r u d`, one per row."""
        op = len(self._plan.columns) + len(self._plan.key)
        return self._numbers[op].astype(np.uint8).tobytes().decode()

    @property
    def stamps(self) -> np.ndarray | list[int | None]:
        """Moments of the changes [epoch ms]; None, in an array -1, where there is none."""
        begins, ends = self._spans[-1]
        moment = self._anatomy.moment
        if moment is None:
            numbers = np.where(begins > 0, self._numbers[-1], -1)
            seconds = (numbers >= 0) & (numbers < _SMALLEST_MS) & self._anatomy.is_epoch
            return np.where(seconds, numbers * 1_000, numbers)
        texts = self._texts(begins, ends, self._numbers[-1])
        if pc.all(pc.match_substring_regex(texts, _PLAIN_MOMENT), min_count=0).as_py():
            try:
                return _plain_moments(texts)
            except pa.ArrowInvalid:
                pass  # such as the 30th of February
        coded = texts.dictionary_encode()
        moments = [moment(text) for text in coded.dictionary.to_pylist()]
        return pa.array(moments, pa.int64()).take(coded.indices).to_pylist()

    def column(self, number: int, codec: Codec, refused: set[int]) -> pa.Array:
        """A column of the plan; `outcome.ColumnOf`."""
        if self._wires[number] is not Wire.TOKEN:
            try:
                return convert(codec, self._array(number))
            except CONVERSION_ERRORS:
                pass  # a value does not fit: conversion one by one finds it
        return convert_column(codec, self._values(number, refused), refused)

    def _array(self, number: int) -> pa.Array:
        wire, count = self._wires[number], len(self)
        begins, ends = self._spans[number]
        numbers = self._numbers[number]
        valid = begins > 0
        bitmap = None if valid.all() else _bitmap(valid)
        if wire is Wire.INTEGER:
            buffers = [bitmap, pa.py_buffer(np.array(numbers))]
            return pa.Array.from_buffers(pa.int64(), count, buffers)
        if wire is Wire.BOOLEAN:
            truths = _bitmap(numbers != 0)
            return pa.Array.from_buffers(pa.bool_(), count, [bitmap, truths])
        if wire is not Wire.BASE64:
            array = self._texts(begins, ends, numbers)
            if (numbers & _WIDE).any() and wire is not Wire.NUMBER:
                array.validate(full=True)  # UTF-8
            return array
        offsets, out = self._room(begins, ends)
        size = self._scan.copy_base64(self._data, count, begins, ends, offsets, out)
        if size < 0:
            raise ValueError("not base64")
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(out[:size])]
        return pa.Array.from_buffers(pa.binary(), count, buffers)

    def _room(self, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offsets and content of texts, to be filled."""
        size = int(ends.sum(dtype=np.int64) - begins.sum(dtype=np.int64))
        return np.empty(len(self) + 1, np.int32), np.empty(size + PADDING, np.uint8)

    def _texts(self, begins: np.ndarray, ends: np.ndarray, flags: np.ndarray) -> pa.Array:
        """Texts, not proved to be UTF-8."""
        offsets, out = self._room(begins, ends)
        size = self._scan.copy_texts(self._data, len(self), begins, ends, flags, offsets, out)
        valid = begins > 0
        bitmap = None if valid.all() else _bitmap(valid)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(out[:size])]
        return pa.Array.from_buffers(pa.string(), len(self), buffers)

    def _values(self, number: int, refused: set[int]) -> list[Any]:
        """Values as `conversions.wire_type` says, None where one has another type."""
        decode = msgspec.json.Decoder(member_type(self._plan.columns[number])).decode
        begins, ends = self._spans[number].tolist()
        wire = self._wires[number]
        data = self._data.data
        values: list[Any] = []
        for row, begin, end in zip(itertools.count(), begins, ends, strict=False):
            value = None
            if begin:
                quoted = wire in (Wire.TEXT, Wire.BASE64)
                quote = int(quoted or (wire is Wire.LOOSE and self._data[begin - 1] == ord('"')))
                try:
                    value = decode(data[begin - quote : end + quote])
                except PARSE_ERRORS:
                    refused.add(row)
            values.append(value)
        return values


def _plain_moments(texts: pa.Array) -> np.ndarray:
    """As `envelopes.utc_ms`, -1 for null; the arithmetic of `datetime.timestamp`."""
    plain = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us")).cast(pa.int64())
    micros = pc.fill_null(plain, 0).to_numpy()
    stamps = np.rint(micros / 1e6 * 1_000).astype(np.int64)
    stamps[~texts.is_valid().to_numpy(zero_copy_only=False)] = -1
    return stamps


def _bitmap(mask: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
