# SPDX-License-Identifier: Apache-2.0
"""Single members of JSON messages as columns, without looking at the rest of the message.

A `MemberReader` is made for the requested members. Messages are decoded with a
generated msgspec struct of these members, so all others are skipped by the scanner. A
message that does not fit is read again member by member; a value of another type than expected is
null: metadata never makes a record bad.
"""

import dataclasses
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.decode_plan import decode_all
from ingest.decode.metadata_columns import METADATA
from ingest.decode.types.token_values import PARSE_ERRORS
from storage.format.types.arrow_types import arrow_type

Converter = Callable[[Any], Any]

_BOUNDS = {"int32": 1 << 31, "int64": 1 << 63}


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How a member is read.

    Attributes:
        type: as msgspec decodes it; null is allowed besides.
        convert: from that to the value; None = it is the value. Not called for null.
    """

    type: Any
    convert: Converter | None = None


_TEXTS = frozenset({str, type(None)})


def _text(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


TEXT = Reading(str)
LOWER = Reading(str, str.lower)
NUMBER = Reading(int)
TOKEN = Reading(str | int | bool, _text)
"""Text, or the text of a number or a boolean; exact at any length."""
MOMENT = Reading(int)
"""Epoch milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """Where a value is in a message.

    Attributes:
        path: names from the top; one or two.
        reading: how it is read.
    """

    path: tuple[str, ...]
    reading: Reading = TEXT


Members = Mapping[str, Sequence[Member]]
"""By name of metadata where it may be; the first that is not null counts."""


class MemberReader:
    """See the module.

    Args:
        members: by name of metadata where it may be; the first that is not null counts. Those
            of one path are of one type.
        names: requested; names that `members` lacks are left out.
        required: member that every valid message has; empty = none.
    """

    def __init__(
        self,
        members: Members,
        names: Collection[str],
        *,
        required: str = "",
    ) -> None:
        self._required = required
        self._members = [
            (name, member) for name in names if name in members for member in members[name]
        ]
        self._types = {member.path: member.reading.type for _, member in self._members}
        self._numbers = {path: number for number, path in enumerate(self._types)}
        tops = dict.fromkeys(path[0] for path in self._types)
        self._tops = {top: f"t{number}" for number, top in enumerate(tops)}
        self._nested: dict[tuple[bool, str], Any] = {}
        """Empty objects, in place of null."""
        self._strict = msgspec.json.Decoder(self._message(strict=True)).decode
        self._loose = msgspec.json.Decoder(self._message(strict=False)).decode
        self._getters = [operator.attrgetter(self._attribute(path)) for path in self._types]
        self._single = [msgspec.json.Decoder(type_, strict=False) for type_ in self._types.values()]

    def _attribute(self, path: tuple[str, ...]) -> str:
        name = f"m{self._numbers[path]}"
        return name if len(path) == 1 else f"{self._tops[path[0]]}.{name}"

    def _message(self, *, strict: bool) -> type[msgspec.Struct]:
        fields: list[tuple[str, Any, Any]] = []
        names: dict[str, str] = {}
        for top, attribute in self._tops.items():
            inner = [path for path in self._types if path[0] == top and len(path) > 1]
            if inner:
                nested = self._struct("Inner", inner, strict)
                fields.append((attribute, nested | None, msgspec.field(default_factory=nested)))
                names[attribute] = top
                self._nested[strict, attribute] = nested()
        direct = [path for path in self._types if len(path) == 1]
        required = self._required if strict else ""
        if required and (required,) not in direct:
            fields.append(("required", msgspec.Raw, msgspec.NODEFAULT))
            names["required"] = required
        return self._struct("Outer", direct, strict, fields, names)

    def _struct(
        self,
        name: str,
        paths: Sequence[tuple[str, ...]],
        strict: bool,
        fields: Sequence[tuple[str, Any, Any]] = (),
        names: Mapping[str, str] | None = None,
    ) -> type[msgspec.Struct]:
        members: list[tuple[str, Any, Any]] = []
        rename = dict(names or {})
        for path in paths:
            attribute = f"m{self._numbers[path]}"
            rename[attribute] = path[-1]
            if strict:
                default = msgspec.NODEFAULT if path == (self._required,) else None
                members.append((attribute, self._types[path] | None, default))
            else:
                members.append((attribute, msgspec.Raw, msgspec.Raw(b"null")))
        return msgspec.defstruct(name, [*members, *fields], rename=rename, gc=False, kw_only=True)

    def columns(
        self,
        messages: Sequence[bytes | None],
        again: Callable[[int], bytes | None] | None = None,
    ) -> dict[str, pa.Array]:
        """Columns by name.

        Args:
            messages: JSON objects; for None, or anything else, all columns are null.
            again: returns the message at an index, extracted more carefully; None = unchanged.
        """
        if not self._members:
            return {}
        events, failed = decode_all(self._strict, messages)
        texts = [messages[at] if again is None else again(at) for at in failed]
        if again is not None:
            seconds, unread = decode_all(self._strict, texts)
            for at, event in zip(failed, seconds, strict=True):
                events[at] = event
            texts = [texts[index] for index in unread]
            failed = [failed[index] for index in unread]
        loose = {at: self._singly(text) for at, text in zip(failed, texts, strict=True)}
        self._fill(events, strict=True)
        metadata: dict[str, pa.Array] = {}
        columns = [self._values(number, events, loose) for number in range(len(self._types))]
        for name, member in self._members:
            values, convert = columns[self._numbers[member.path]], member.reading.convert
            if convert is _text and set(map(type, values)) <= _TEXTS:
                convert = None
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            column = metadata_column(name, values)
            metadata[name] = column if name not in metadata else pc.coalesce(metadata[name], column)
        return metadata

    def _fill(self, events: Sequence[Any], *, strict: bool) -> None:
        """Replace nested objects that are null by empty ones."""
        for (kind, attribute), placeholder in self._nested.items():
            if kind is strict and None in map(operator.attrgetter(attribute), filter(None, events)):
                for event in filter(None, events):
                    if getattr(event, attribute) is None:
                        setattr(event, attribute, placeholder)

    def _values(
        self, number: int, events: Sequence[Any], loose: Mapping[int, Sequence[Any]]
    ) -> list[Any]:
        get = self._getters[number]
        if not loose:
            return list(map(get, events))
        return [
            loose[at][number] if event is None else get(event) for at, event in enumerate(events)
        ]

    def _singly(self, message: bytes | None) -> list[Any]:
        """Values of one message, each read alone."""
        nulls: list[Any] = [None] * len(self._types)
        if message is None:
            return nulls
        try:
            event = self._loose(message)
        except PARSE_ERRORS:
            return nulls
        self._fill([event], strict=False)
        return [
            _decode_token(decoder, bytes(get(event)))
            for decoder, get in zip(self._single, self._getters, strict=True)
        ]


def _decode_token(decoder: "msgspec.json.Decoder[Any]", token: bytes) -> Any:
    try:
        return None if token == b"null" else decoder.decode(token)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def metadata_type(name: str) -> pa.DataType:
    """Arrow type of a kind of metadata."""
    return arrow_type(METADATA[name].type)


def metadata_column(name: str, values: list[Any]) -> pa.Array:
    """An array of the metadata's type; numbers that it does not hold are null."""
    type_ = metadata_type(name)
    raw = pa.int64() if pa.types.is_timestamp(type_) else type_
    try:
        array = pa.array(values, raw)
    except (pa.ArrowInvalid, OverflowError):
        bound = _BOUNDS[str(raw)]
        array = pa.array(
            [v if v is not None and -bound <= v < bound else None for v in values], raw
        )
    return array.cast(pa.timestamp("ms")).cast(type_) if raw is not type_ else array
