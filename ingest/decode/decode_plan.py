# SPDX-License-Identifier: Apache-2.0
"""How the row events of one shape are decoded: columns, codecs and msgspec structs.

A plan belongs to one source table, one schema block (or none) and one version of the target's
schema. The structs are generated from it: attribute `f3` is column 3.

msgspec does not support struct members whose names need an escape in JSON. Such a column gets a
member that no event has: rows with a value for it are refused like rows with an unknown member, and
take the reference path, which reads members by their full names.
"""

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ingest.decode.column_names import folded
from ingest.decode.events import SourceTable, Target
from ingest.decode.types.conversions import wire_type
from ingest.decode.types.exact_numbers import is_exact_double, wider_number
from ingest.decode.types.semantic_types import Codec, Kind, of_key
from ingest.decode.types.token_values import MEMBERS, NULL
from storage.format.types.types import DataType

_ESCAPED = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')


@dataclasses.dataclass(frozen=True, slots=True)
class PlanColumn:
    """One column of the target.

    Attributes:
        name: of the column.
        type: of the column.
        codec: None = the event's shape has no such column, or no codec fits: only null is accepted.
        renamed: name of the JSON member if it differs.
    """

    name: str
    type: DataType
    codec: Codec | None
    renamed: str = ""

    @property
    def member(self) -> str:
        """Name of the JSON member."""
        return self.renamed or self.name


_FLOATS = (Kind.NUMBER, Kind.LOOSE_NUMBER)
_NUMBERS = (*_FLOATS, Kind.INTEGER, Kind.LOOSE_INTEGER, Kind.LOOSE_DECIMAL)


class RowPlan:
    """See the module; immutable.

    Created once per shape, in about a millisecond.

    Args:
        target: the table.
        source: the source table.
        columns: in schema order.
        key_names: primary key, a subset of the columns' members.
        null_only: see Attributes.

    Attributes:
        target: the table; its schema is None until the table exists.
        source: the source table.
        columns: in schema order.
        key: indices of the primary key's columns.
        key_names: members of the primary key's columns.
        index: columns by their members' names.
        column_names: names of the columns and of their members: these are not new in an event.
        null_only: names beyond the columns that appear with null values only.
        case_matches: (table, member, column) of columns whose members are spelt differently.
        decode_row: a row image to its struct.
        decode_key: only the key columns of a row image.
        getters: one per column: row struct to value.
        key_parts: one getter per key column.
        numbers: codecs and getters of columns whose types may be inferred from numbers.
    """

    def __init__(
        self,
        target: Target,
        source: SourceTable,
        columns: Sequence[PlanColumn],
        key_names: Sequence[str],
        null_only: Sequence[str] = (),
    ) -> None:
        self.target = target
        self.source = source
        keys = {*key_names} - target.behind_key
        self.columns = tuple(
            dataclasses.replace(column, codec=of_key(column.codec))
            if column.member in keys
            else column
            for column in columns
        )
        self.index = {column.member: i for i, column in enumerate(columns)}
        self.column_names = frozenset({*self.index, *(column.name for column in columns)})
        self.key_names = tuple(key_names)
        self.key = tuple(self.index[name] for name in key_names)
        self.null_only = tuple(name for name in dict.fromkeys(null_only) if name not in self.index)
        self.case_matches = frozenset(
            (target.identifier, column.renamed, column.name)
            for column in columns
            if column.renamed and folded(column.renamed) == folded(column.name)
        )
        self._struct_names = {*self.index, *self.null_only, *target.ignored}
        row = self._row_struct()
        before = self._key_struct()
        self.decode_row: Callable[[bytes], Any] = msgspec.json.Decoder(row).decode
        self.decode_key: Callable[[bytes], Any] = msgspec.json.Decoder(before).decode
        self.empty_row = row()
        self.getters = tuple(operator.attrgetter(f"f{i}") for i in range(len(self.columns)))
        self.numbers = [
            (column.codec, get)
            for column, get in zip(self.columns, self.getters, strict=True)
            if column.codec is not None and column.codec.kind in _NUMBERS
        ]
        self.key_parts = tuple(self.getters[i] for i in self.key)

    def _row_struct(self) -> type[msgspec.Struct]:
        members = [(f"f{i}", member_type(column), None) for i, column in enumerate(self.columns)]
        names = {f"f{i}": self._struct_name(column.member) for i, column in enumerate(self.columns)}
        for i, name in enumerate(filter(is_plain_name, self.null_only)):
            members.append((f"n{i}", None, None))
            names[f"n{i}"] = name
        ignored = filter(is_plain_name, self.target.ignored - self.index.keys())
        for i, name in enumerate(sorted(ignored)):
            members.append((f"i{i}", msgspec.Raw, None))  # skipped
            names[f"i{i}"] = name
        return msgspec.defstruct("Row", members, rename=names, forbid_unknown_fields=True, gc=False)

    def _key_struct(self) -> type[msgspec.Struct]:
        members = [(f"f{i}", member_type(self.columns[i]), None) for i in self.key]
        names = {f"f{i}": self._struct_name(self.columns[i].member) for i in self.key}
        return msgspec.defstruct("Key", members, rename=names, gc=False)

    def holds_numbers(self, row: Any) -> bool:
        """Whether columns of inferred numbers represent the numbers of a row exactly."""
        return all(_is_exact(codec, get(row)) for codec, get in self.numbers)

    def _struct_name(self, member: str) -> str:
        """The name of a member in structs; a placeholder if its name is not plain."""
        if is_plain_name(member):
            return member
        name = _ESCAPED.sub("?", member)
        while name in self._struct_names:
            name += "?"
        self._struct_names.add(name)
        return name

    @functools.cached_property
    def _raw_key(self) -> Callable[[bytes], Any]:
        null = msgspec.Raw(b"null")
        members = [(f"f{i}", msgspec.Raw, null) for i in self.key]
        names = {f"f{i}": self.columns[i].member for i in self.key}
        struct = msgspec.defstruct("RawKey", members, rename=names, gc=False)
        return msgspec.json.Decoder(struct).decode

    def key_tokens(self, image: bytes) -> dict[str, bytes]:
        """The key columns of a row image with the raw text of their values.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not a JSON object.
        """
        if not all(is_plain_name(name) for name in self.key_names):
            members = MEMBERS.decode(image)
            return {name: bytes(members.get(name, b"null")) for name in self.key_names}
        key = self._raw_key(image)
        return {self.columns[i].member: bytes(getattr(key, f"f{i}")) for i in self.key}


def is_plain_name(name: str) -> bool:
    """Whether a member's name needs no escape in JSON, so that a struct may have it."""
    return _ESCAPED.search(name) is None


def member_type(column: PlanColumn) -> Any:
    """The type that msgspec decodes a column's values to."""
    if column.codec is None or not is_plain_name(column.member):
        return None
    wire = wire_type(column.codec)
    return wire if wire is msgspec.Raw else wire | None


def _is_exact(codec: Codec, value: Any) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    token = bytes(value) if isinstance(value, msgspec.Raw) else NULL
    if token == NULL or (token[:1] == b'"' and codec.kind is not Kind.NUMBER):
        return True
    return is_exact_double(token) if codec.kind in _FLOATS else not wider_number(codec.type, token)


_DECODE_ERRORS = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    RecursionError,
    TypeError,  # None is a missing row
)


def decode_all(
    decode: Callable[[bytes], Any], texts: Sequence[bytes | None]
) -> tuple[list[Any], list[int]]:
    """Structs, None where decoding failed; and the indices of the failures.

    `map` continues after a failed text, so the others never leave the C loop.
    """
    decoded: list[Any] = []
    failed: list[int] = []
    decoding = map(decode, texts)  # type: ignore[arg-type]
    while True:
        try:
            decoded.extend(decoding)
        except _DECODE_ERRORS:
            failed.append(len(decoded))
            decoded.append(None)
        else:
            return decoded, failed


def is_value(value: object) -> bool:
    """Whether a decoded member, raw or not, is not null."""
    return value is not None and not (isinstance(value, msgspec.Raw) and bytes(value) == NULL)
