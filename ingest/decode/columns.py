# SPDX-License-Identifier: Apache-2.0
"""Columns of the row events of one shape: names, codecs, metadata columns, structs.

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
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.choices import nearest
from ingest.decode.events import (
    MEMBERS,
    NULL,
    OFFSET_COLUMN,
    PARSE_ERRORS,
    UNAVAILABLE_COLUMN,
    ChangeBatch,
    DecodeResult,
    Resolver,
    SourceTable,
    Target,
)
from ingest.decode.types.conversions import wire_type
from ingest.decode.types.exact_numbers import is_exact_double, wider_number
from ingest.decode.types.semantic_types import Codec, Kind, of_key
from ingest.source.records import NO_TIMESTAMP, RawBatch
from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.schema import check_column_name
from storage.format.types.types import DataType, MapType, arrow_type, parse_type, type_name

# Maps columns of the source to columns of a table whose names differ.
#
# The table's options store what its schema cannot express, so that every process and every replay
# decodes in the same way (ADR 0011):
#
# * `lakeward.former-names` JSON, column to its earlier names in the source, newest first: an event
#   written before a rename still finds the column;
# * `lakeward.typed-columns` JSON, column of the source to the further columns that hold its values
#   of types that do not convert (`on.incompatible: new_column`), in order of creation;
# * `lakeward.text-columns` JSON, column to its type before it became STRING: values that are not
#   text are written as the cast of that type writes them;
# * `lakeward.dropped-columns` JSON, column to the reason for which it was dropped: events written
#   before the drop do not add it again;
# * `lakeward.ddl-heard` JSON, source table to the last statement that changed these names, as
#   topic, partition and offset: no statement is applied twice.


FORMER_OPTION = "lakeward.former-names"
TYPED_OPTION = "lakeward.typed-columns"
TEXT_OPTION = "lakeward.text-columns"
DROPPED_OPTION = "lakeward.dropped-columns"
HEARD_OPTION = "lakeward.ddl-heard"

Names = Mapping[str, tuple[str, ...]]


def folded(name: str) -> str:
    """Canonical form of names that differ only in letter case or in Unicode normal form."""
    text = name.casefold()
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of distinct names that differ only in letter case or normal form, in order."""
    groups: dict[str, dict[str, None]] = {}
    for name in names:
        groups.setdefault(folded(name), {})[name] = None
    return [tuple(group) for group in groups.values() if len(group) > 1]


def spelt(name: str, columns: Iterable[str]) -> str:
    """The spelling of a name among the columns, if exactly one of them matches."""
    names = list(columns)
    if name in names:
        return name
    matches = [column for column in names if folded(column) == folded(name)]
    return matches[0] if len(matches) == 1 else name


def reserved_name(names: Iterable[str]) -> str:
    """Why columns with names of Lakeward's own cannot be written; "" = there are none."""
    conflicts = sorted({*names} & {OFFSET_COLUMN, UNAVAILABLE_COLUMN})
    if not conflicts:
        return ""
    return (
        f"column {conflicts[0]} has a name that Lakeward needs for itself: leave it out with "
        "`columns.exclude` in a rule of `tables`, or have the connector rename it"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names of a table's columns, from its options; see the module for the attributes.

    Attributes:
        exact: whether names are case-sensitive (`source.names.case`).
    """

    former: Names = dataclasses.field(default_factory=dict)
    typed: Names = dataclasses.field(default_factory=dict)
    texts: Mapping[str, DataType] = dataclasses.field(default_factory=dict)
    dropped: Mapping[str, str] = dataclasses.field(default_factory=dict)
    applied_ddl: Mapping[str, tuple[str, int, int]] = dataclasses.field(default_factory=dict)
    exact: bool = False

    @staticmethod
    def of(options: Mapping[str, str], *, exact: bool = False) -> "ColumnNames":
        """Parse a table's options; `exact` is the pipeline's.

        Raises:
            CorruptDataError: an option is malformed.
        """
        keys = (FORMER_OPTION, TYPED_OPTION, TEXT_OPTION, DROPPED_OPTION, HEARD_OPTION)
        names = _parsed(tuple(options.get(key, "") for key in keys))
        return dataclasses.replace(names, exact=True) if exact else names

    @property
    def further(self) -> frozenset[str]:
        """Columns that hold a further type of another column."""
        return frozenset(name for names in self.typed.values() for name in names)

    def slots(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> tuple[str, ...]:
        """The table's candidate columns for a column of the source; the first that fits is used.

        Args:
            member: name of the source's column.
            columns: of the table.
            present: names of all columns of the event.
        """
        first = self._first(member, columns, present)
        further = self.typed.get(first or member, ())
        head = () if first is None else (first,)
        return head + tuple(name for name in further if name in columns)

    def _first(self, member: str, columns: Collection[str], present: Collection[str]) -> str | None:
        if self.former and (column := self._by_former_name(columns, present).get(member)):
            return column
        if member in columns:
            return None if member in self.further else member
        return None if self.typed.get(member) else self._same_but_case(member, columns, present)

    def _by_former_name(
        self, columns: Collection[str], present: Collection[str]
    ) -> Mapping[str, str]:
        """Members of an event with former names of columns, and those columns.

        A member may also be the current name of another column: in an event so old that the other
        column had a former name too.
        """
        mapping: dict[str, str] = {}
        changed = True
        while changed:
            changed = False
            for column, earlier in self.former.items():
                is_current = column in present and column not in mapping
                if is_current or column not in columns or column in mapping.values():
                    continue
                keys = {folded(name) for name in earlier}  # statements ignore case
                member = next((n for n in present if folded(n) in keys and n not in mapping), None)
                if member is not None:
                    mapping[member] = column
                    changed = True
        return mapping

    def _same_but_case(
        self, member: str, columns: Collection[str], present: Collection[str]
    ) -> str | None:
        """The column with another spelling of a member's name: most databases ignore case.

        None if an event or the table has both spellings: they are two columns.
        """
        if self.exact:
            return None
        name = folded(member)
        matches = [column for column in columns if folded(column) == name]
        if len(matches) != 1 or matches[0] in self.further:
            return None
        return matches[0] if sum(folded(spelling) == name for spelling in present) == 1 else None

    def current_name(self, member: str, columns: Collection[str]) -> str:
        """Current name of a column that the table never had, if it was renamed before."""
        for column, earlier in self.former.items():
            if member in earlier and column not in columns:
                return column
        return member

    def options(self) -> dict[str, str]:
        """As table options; "" for empty ones."""
        texts = {name: type_name(type_) for name, type_ in self.texts.items()}
        return {
            FORMER_OPTION: _text(self.former),
            TYPED_OPTION: _text(self.typed),
            TEXT_OPTION: _text(texts),
            DROPPED_OPTION: _text(self.dropped),
            HEARD_OPTION: _text(self.applied_ddl),
        }

    def renamed(self, old: str, new: str) -> "ColumnNames":
        """After a rename of a column of the table."""
        earlier = (old, *(name for name in self.former.get(old, ()) if name != new))
        former = {name: names for name, names in self.former.items() if name != old}
        typed = {new if name == old else name: names for name, names in self.typed.items()}
        texts = {new if name == old else name: type_ for name, type_ in self.texts.items()}
        dropped = {name: why for name, why in self.dropped.items() if name != new}
        return ColumnNames(
            {**former, new: earlier}, typed, texts, dropped, self.applied_ddl, self.exact
        )

    def with_former(self, column: str, earlier: str) -> "ColumnNames":
        """After a column was renamed elsewhere."""
        previous = tuple(name for name in self.former.get(column, ()) if name != earlier)
        return dataclasses.replace(self, former={**self.former, column: (earlier, *previous)})

    def with_applied(self, source: str, place: tuple[str, int, int]) -> "ColumnNames":
        """After a statement was applied."""
        return dataclasses.replace(self, applied_ddl={**self.applied_ddl, source: place})

    def has_applied(self, source: str, place: tuple[str, int, int]) -> bool:
        """Whether a statement was already applied."""
        last_mark = self.applied_ddl.get(source)
        return last_mark is not None and last_mark[:2] == place[:2] and last_mark[2] >= place[2]

    def without(self, column: str, reason: str) -> "ColumnNames":
        """After a column and its further types were dropped."""
        former = {name: names for name, names in self.former.items() if name != column}
        typed = {name: names for name, names in self.typed.items() if name != column}
        texts = {name: type_ for name, type_ in self.texts.items() if name != column}
        removed = dict.fromkeys((column, *self.former.get(column, ())), reason)
        dropped = {**self.dropped, **removed}
        return ColumnNames(former, typed, texts, dropped, self.applied_ddl, self.exact)

    def without_former(self, column: str) -> "ColumnNames":
        """After the source dropped a column that the table keeps: its former names are free."""
        former = {name: names for name, names in self.former.items() if name != column}
        return dataclasses.replace(self, former=former)

    def with_column(self, column: str) -> "ColumnNames":
        """After a column of that name was added: former uses of the name are removed."""
        former = {
            name: tuple(alias for alias in names if alias != column)
            for name, names in self.former.items()
        }
        dropped = {name: why for name, why in self.dropped.items() if name != column}
        return dataclasses.replace(self, former=former, dropped=dropped)

    def with_further(self, member: str, column: str) -> "ColumnNames":
        """After a column was added for a further type of another."""
        typed = {**self.typed, member: (*self.typed.get(member, ()), column)}
        return dataclasses.replace(self, typed=typed)

    def with_text(self, column: str, type_: DataType) -> "ColumnNames":
        """After a column became STRING; its first type is kept."""
        return dataclasses.replace(self, texts={column: type_, **self.texts})


NO_NAMES = ColumnNames()
"""Of a table without such options."""


def why_no_column(name: str) -> str:
    """Why a column cannot have a name; "" = it can."""
    if name in (OFFSET_COLUMN, UNAVAILABLE_COLUMN):
        return reserved_name([name])
    try:
        check_column_name(name)
    except InvalidRequestError as error:
        return error.message
    return ""


def free_name(name: str, used_names: Iterable[str]) -> str:
    """`<name>_<n>` with the smallest n from 1 that is unused, ignoring case."""
    folded_names = {folded(column) for column in used_names}
    number = 1
    while folded(f"{name}_{number}") in folded_names:
        number += 1
    return f"{name}_{number}"


@functools.lru_cache(maxsize=4096)
def _parsed(texts: Sequence[str]) -> ColumnNames:
    if not any(texts):
        return ColumnNames()
    try:
        parts = (orjson.loads(text) if text else {} for text in texts)
        former, typed, changed, dropped, applied_ddl = parts
        return ColumnNames(
            {name: tuple(names) for name, names in former.items()},
            {name: tuple(names) for name, names in typed.items()},
            {name: parse_type(text) for name, text in changed.items()},
            dict(dropped),
            {name: (topic, part, offset) for name, (topic, part, offset) in applied_ddl.items()},
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptDataError("a table's column options cannot be read", value=texts) from error


def _text(names: Mapping[str, object]) -> str:
    entries = {name: value for name, value in names.items() if value}
    return orjson.dumps(entries, option=orjson.OPT_SORT_KEYS).decode() if entries else ""


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
        folded_names: of the columns and of their members: these need not be new in an event.
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
        self.folded_names = frozenset(map(folded, {*self.index, *(c.name for c in columns)}))
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

    def has_values(self, row: Any) -> bool:
        """Whether a row struct has a value in a column that is not of the key."""
        return any(get(row) is not None for i, get in enumerate(self.getters) if i not in self.key)

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


# Metadata columns: what is known of a change besides its row.
#
# Values come as a batch `origin` beside the rows: columns named as here, of these types, one row
# per row. What a source does not have is null. In tables the names have the pipeline's prefix.
#
# Nothing is read unless a target requests it (`Target.origin`). It is read in a separate pass over
# the decoded records, independent of the path that decoded them: only the requested members, many
# records at a time (`OriginReader`). Metadata of the record (topic, offset, key, ...) is added
# here.


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """One kind of metadata: its type, nullable, and what it says."""

    type: DataType
    meaning: str


def _row(type_: str, meaning: str) -> Metadata:
    return Metadata(parse_type(type_), meaning)


METADATA: dict[str, Metadata] = {
    # the change
    "op": _row("STRING", "c, u, d or r, as the event says"),
    "ts_ms": _row("BIGINT", "when the connector handled the event [epoch ms]"),
    "source_ts_ms": _row("BIGINT", "when the source made the change [epoch ms]"),
    "op_ts": _row("TIMESTAMP_LTZ(3)", "when the source made the change"),
    # where it comes from
    "connector": _row("STRING", "mysql, postgresql, …"),
    "server": _row("STRING", "logical name of the source: the connector's topic prefix"),
    "database": _row("STRING", "source database"),
    "schema": _row("STRING", "source schema"),
    "table": _row("STRING", "source table"),
    "snapshot": _row("STRING", "which part of a snapshot the row is; `false` for streamed changes"),
    # its position in the source
    "lsn": _row("BIGINT", "PostgreSQL: position in the log"),
    "txid": _row("STRING", "transaction id, as text, for some are longer than a BIGINT"),
    "gtid": _row("STRING", "MySQL, MariaDB: global transaction id"),
    "file": _row("STRING", "MySQL, MariaDB: binlog file"),
    "pos": _row("BIGINT", "MySQL, MariaDB: position in the binlog file"),
    "row": _row("INT", "MySQL, MariaDB: row inside the binlog event"),
    "server_id": _row("BIGINT", "MySQL, MariaDB: server"),
    "thread": _row("BIGINT", "MySQL, MariaDB: thread"),
    "scn": _row("STRING", "Oracle: system change number, of any length"),
    "commit_scn": _row("STRING", "Oracle: system change number of the commit"),
    "ssn": _row("BIGINT", "Oracle: number inside the system change"),
    "change_lsn": _row("STRING", "SQL Server: position of the change"),
    "commit_lsn": _row("STRING", "SQL Server: position of the commit"),
    "event_serial_no": _row("BIGINT", "SQL Server: number inside the change"),
    "total_order": _row("BIGINT", "place in the transaction, if the connector provides it"),
    "sequence": _row("STRING", "position as the connector writes it (Debezium: JSON text)"),
    # the record that carried it
    "topic": _row("STRING", "topic"),
    "partition": _row("INT", "partition of the topic"),
    "offset": _row("BIGINT", "offset in the partition"),
    "timestamp": _row("TIMESTAMP_LTZ(3)", "of the record"),
    "timestamp_type": _row("STRING", "CreateTime, LogAppendTime or NoTimestampType"),
    "key": _row("BYTES", "of the record, as it came"),
    "headers": Metadata(
        MapType(
            parse_type("STRING NOT NULL"),
            parse_type("BYTES"),
        ),
        "of the record; the last of those with one name",
    ),
}
"""Metadata by name, without prefix."""


def checked_metadata(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each of which must be in the table, without duplicates.

    Raises:
        InvalidRequestError: a name is unknown or duplicate.
    """
    result: list[str] = []
    for name in names:
        if name not in METADATA:
            hint = nearest(name, METADATA) or f"there are: {', '.join(METADATA)}"
            raise InvalidRequestError("there is no such metadata column", hint=hint, column=name)
        if name in result:
            raise InvalidRequestError("a metadata column is named twice", column=name)
        result.append(name)
    return tuple(result)


def origin_schema(names: Iterable[str]) -> pa.Schema:
    """The schema of an `origin` batch with some metadata."""
    return pa.schema([pa.field(name, arrow_type(METADATA[name].type)) for name in names])


def origin_column(origin: pa.RecordBatch | None, name: str, num_rows: int) -> pa.Array:
    """A metadata column; null where the origin has none."""
    type_ = arrow_type(METADATA[name].type)
    position = -1 if origin is None else origin.schema.get_field_index(name)
    if origin is None or position < 0:
        return pa.nulls(num_rows, type_)
    column = origin.column(position)
    return column if column.type == type_ else column.cast(type_)


OriginReader = Callable[[RawBatch, Sequence[int], Collection[str]], Mapping[str, pa.Array]]
"""(raw batch, positions in it, names of metadata) to columns, one value per position; of the types
in `ingest.decode.columns`. Names that the format has nothing for are left out."""

_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_RECORD = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
_RECORD |= {"key", "headers"}


class RequestedOrigins:
    """A resolver that notes which targets request metadata."""

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        self._names: dict[str, tuple[str, ...]] = {}

    def __call__(self, source: SourceTable, topic: str) -> Target | None:
        """See `Resolver`."""
        target = self._resolve(source, topic)
        if target is not None:
            if target.origin:
                self._names[target.identifier] = target.origin
            else:
                self._names.pop(target.identifier, None)
        return target

    def plain(self, source: SourceTable, topic: str) -> Target | None:
        """The target without requests, for a decoder whose rows pass through another one."""
        target = self(source, topic)
        return dataclasses.replace(target, origin=()) if target is not None else None

    def filled(self, result: DecodeResult, raw: RawBatch, read: OriginReader) -> DecodeResult:
        """The result with the origins that targets request."""
        if not self._names or not any(change.target in self._names for change in result.changes):
            return result
        offsets = np.array(raw.offsets, np.int64)
        changes = [self._with_origin(change, raw, offsets, read) for change in result.changes]
        return dataclasses.replace(result, changes=changes)

    def _with_origin(
        self,
        change: ChangeBatch,
        raw: RawBatch,
        offsets: npt.NDArray[np.int64],
        read: OriginReader,
    ) -> ChangeBatch:
        names = self._names.get(change.target)
        if not names:
            return change
        at = np.searchsorted(offsets, change.rows.column(OFFSET_COLUMN).to_numpy())
        firsts = np.r_[True, at[1:] != at[:-1]]
        places = at[firsts].tolist()
        metadata = {**read(raw, places, names), **_record_columns(raw, places, names)}
        schema = origin_schema(names)
        columns = [
            metadata[name].cast(schema.field(name).type)
            if name in metadata
            else origin_column(None, name, len(places))
            for name in names
        ]
        origin = pa.RecordBatch.from_arrays(columns, schema=schema)
        if len(places) < len(at):  # several rows of one record
            origin = origin.take(pa.array(np.cumsum(firsts) - 1))
        return dataclasses.replace(change, origin=origin)


def _record_columns(
    raw: RawBatch, places: Sequence[int], names: Collection[str]
) -> dict[str, pa.Array]:
    """Metadata of records themselves, independent of their content."""
    count = len(places)
    columns: dict[str, pa.Array] = {}
    for name in _RECORD.intersection(names):
        match name:
            case "topic":
                columns[name] = pa.repeat(pa.scalar(raw.topic, pa.string()), count)
            case "partition":
                columns[name] = pa.repeat(pa.scalar(raw.partition, pa.int32()), count)
            case "offset":
                columns[name] = pa.array([raw.offsets[at] for at in places], pa.int64())
            case "key":
                columns[name] = pa.array([raw.keys[at] for at in places], pa.binary())
            case "headers":
                columns[name] = _headers(raw, places)
            case "timestamp":
                stamps = [raw.timestamp(at)[1] for at in places]
                times = [None if stamp == NO_TIMESTAMP else stamp for stamp in stamps]
                columns[name] = pa.array(times, pa.int64()).cast(pa.timestamp("ms"))
            case _:
                kinds = [_TIMESTAMP_TYPES[raw.timestamp(at)[0]] for at in places]
                columns[name] = pa.array(kinds, pa.string())
    if "timestamp" in columns:
        columns["timestamp"] = columns["timestamp"].cast(origin_schema(["timestamp"]).field(0).type)
    return columns


def _headers(raw: RawBatch, places: Sequence[int]) -> pa.Array:
    type_ = origin_schema(["headers"]).field(0).type
    return pa.array([list(dict(raw.headers(at)).items()) for at in places], type_)


# Single members of JSON messages as columns, without looking at the rest of the message.
#
# A `MemberReader` is made for the requested members. Messages are decoded with a
# generated msgspec struct of these members, so all others are skipped by the scanner. A
# message that does not fit is read again member by member; a value of another type than expected is
# null: metadata never makes a record bad.


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


def _text_of(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


TEXT = Reading(str)
LOWER = Reading(str, str.lower)
NUMBER = Reading(int)
TOKEN = Reading(str | int | bool, _text_of)
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
            if convert is _text_of and set(map(type, values)) <= _TEXTS:
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
