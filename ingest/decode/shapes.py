# SPDX-License-Identifier: Apache-2.0
"""Shapes: the events of one (source table, schema block) compared with the target.

A `Shape` holds the decode plan of such events and learns from the reference path: a shape without
schema block learns the columns that appear, a column may turn out to hold JSON numbers or objects.
When the target does not cover the shape, it provides the delta to request.

1. `refresh` with the current target, before the first event of a batch;
2. `fate` says how its row events are handled; `ROWS` are decoded with `plan`;
3. `learn_*` after single events, which may change `plan`.
"""

import dataclasses
import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ingest.decode.columns import ColumnNames, PlanColumn, RowPlan, folded, spelt, why_no_column
from ingest.decode.events import (
    NULL,
    EventRefusedError,
    ObservedField,
    Resolver,
    SchemaBlock,
    SchemaDelta,
    SourceTable,
    Target,
    TypeRequests,
    UnavailableValueError,
    ValueRefusedError,
    number_token,
)
from ingest.decode.json.single_event import Tokens
from ingest.decode.types.conversions import Placeholder
from ingest.decode.types.exact_numbers import is_exact_double, number_type, wider_number
from ingest.decode.types.reference import decode_value
from ingest.decode.types.semantic_types import (
    BOOLEAN,
    DOUBLE,
    STRING,
    UNSIGNED_BIGINT,
    Codec,
    Fit,
    Kind,
    ProducerFacts,
    Semantic,
    bare_codec_for,
    bare_text_codec,
    codec_for,
    guessed_union,
    mapped_type,
    nullable,
    observe_mapped,
    text_codec,
    union_type,
    with_policies,
)
from storage.format.types.types import ArrayType, AtomicType, DataType, TypeRoot, type_name


class Fate(enum.Enum):
    """What becomes of a shape's row events."""

    ROWS = "decoded"
    PENDING = "withheld: the target does not cover them yet"
    UNROUTED = "not wanted"
    CONFLICT = "the target belongs to another source table"
    NO_KEY = "no primary key is known"
    REFUSED = "the target does not exist and may not be created"


_SIGNED = dataclasses.replace(UNSIGNED_BIGINT, precision=UNSIGNED_BIGINT.precision + 1)
_JSON_STARTS = (b"{", b"[")
_OTHERWISE_JSON = {Kind.TEXT_OR_JSON: Kind.JSON, Kind.TEXT_OR_STRUCT: Kind.STRUCT}


def infer_type(token: bytes) -> DataType:
    """Type of a new column from one value without schema (never null)."""
    first = token[:1]
    if first == b'"' or first in _JSON_STARTS:
        return STRING
    if first in (b"t", b"f"):
        return BOOLEAN
    return number_type(token)


class Shape:
    """See the module.

    Args:
        block: schema block of its messages, or None.
        facts: of the producer.
        primary_keys: configured key columns of a target, empty = take the Kafka key's.

    Attributes:
        keyless: whether tables without primary key are accepted: every event is an insert.
        of_key: whether the block is that of records' keys, of which only the key columns count.
        has_open_types: whether `learn_widths` needs rows for missing columns.
        refusal: why all row events of the shape are refused, for any target; "" = they are not.
    """

    keyless = False
    of_key = False
    has_open_types = False

    def __init__(
        self,
        source: SourceTable,
        block: SchemaBlock | None,
        facts: ProducerFacts,
        primary_keys: Callable[[str], Sequence[str]],
    ) -> None:
        self.source = source
        self.block = block
        self.prefix = b""
        self.refusal = ""
        self._lacked_key: tuple[str, ...] = ()
        self.target: Target | None = None
        self.fate = Fate.UNROUTED
        self.plan: RowPlan | None = None
        self.pending_plan: RowPlan | None = None
        self._facts = facts
        self._primary_keys = primary_keys
        self._fresh = False
        self._key: tuple[str, ...] = ()
        self._missing: dict[str, DataType] = {}
        self._null_only: dict[str, None] = {}
        self._kinds: dict[str, Kind] = {}
        self._members: dict[str, str] = {}
        self._mismatched: dict[str, str] = {}
        self._lacks: list[str] = []
        self._outgrown: dict[str, DataType] = {}
        self._names = ColumnNames()
        self._fields = (
            []
            if block is None
            else [(f.field, observe_mapped(f, facts.mapping)) for f in block.row or ()]
        )

    def refresh(self, target: Target | None) -> None:
        """Take the current target; keeps the plan when it did not change."""
        if self._fresh and target == self.target:
            return
        self._fresh = True
        self.target = target
        self._missing.clear()
        self._null_only.clear()
        self._kinds.clear()
        self._members.clear()
        self._mismatched.clear()
        self._outgrown.clear()
        self._lacks = []
        schema = None if target is None else target.schema
        exact = target is not None and target.exact_names
        self._names = ColumnNames.of({} if schema is None else schema.options, exact=exact)
        self._build()

    @property
    def target_name(self) -> str:
        """`db.table` of the target; empty = none."""
        return "" if self.target is None else self.target.identifier

    def _build(self) -> None:
        self.plan = self.pending_plan = None
        self.refusal = self._why_refused()
        target = self.target
        if target is None:
            self.fate = Fate.UNROUTED
        elif target.refusal or self.refusal:
            self.fate = Fate.REFUSED
        elif target.schema is None:
            self._build_missing(target)
        elif not target.belongs_to(self.source):
            self.fate = Fate.CONFLICT
        elif not target.schema.primary_keys and not self.keyless:
            self.fate = Fate.NO_KEY
        else:
            self._build_existing(target, target.schema.primary_keys)

    def _why_refused(self) -> str:
        """Why no table can have the columns that the block names; "" where one can."""
        if self.block is None:
            return ""
        names = [name for name, _ in self._fields if name not in self._ignored]
        for name, times in Counter(names).items():
            why = "the schema block has it twice" if times > 1 else why_no_column(name)
            if why:
                return f"column {name!r}: {why}"
        return ""

    @property
    def _ignored(self) -> frozenset[str]:
        return frozenset() if self.target is None else self.target.ignored

    # --- a table that does not exist

    def _build_missing(self, target: Target) -> None:
        self.fate = Fate.PENDING if target.evolvable else Fate.REFUSED
        if self.block is not None:
            self._missing = {name: semantic.type for name, semantic in self._fields}
        constant = dict(target.constants)
        configured = self._primary_keys(target.identifier)
        if self.of_key and configured:
            self._missing = {n: t for n, t in self._missing.items() if n in configured}
        self._key = tuple(name for name in configured if name not in constant)

    def learn_key(self, names: Iterable[str]) -> bool:
        """Take the key columns of a table that does not exist; False when none are known."""
        if self._key:
            return self.knows_key
        self._key = tuple(names)
        if not self.knows_key:
            self._lacked_key = self.lacking_key
            self._key = ()  # a wrong key of one record does not hold for others
            return False
        return True

    @property
    def key_names(self) -> tuple[str, ...]:
        """Members of the primary key's columns that events have; empty = not known."""
        constant = {} if self.target is None else dict(self.target.constants)
        names = self._key if self.plan is None else self.plan.key_names
        return tuple(name for name in names if name not in constant)

    def key_of(self, tokens: Tokens) -> Tokens:
        """Of the members of a record's key those that are columns of the primary key."""
        names = self.key_names
        return {name: token for name, token in tokens.items() if name in names}

    @property
    def knows_key(self) -> bool:
        """Whether `learn_key` succeeded before, or is not needed."""
        if self.target is None or self.target.schema is not None:
            return True
        if self.keyless and not self._key:
            return True
        return bool(self._key) and (self.block is None or self._has_key_columns())

    def _has_key_columns(self) -> bool:
        return all(name in self._missing for name in self._key_columns())

    @property
    def lacking_key(self) -> tuple[str, ...]:
        """Key columns of a table that does not exist which no row seen so far has."""
        lacking = tuple(name for name in self._key_columns() if name not in self._missing)
        return lacking or self._lacked_key

    @property
    def has_configured_key(self) -> bool:
        """Whether the key of a table that does not exist comes from the settings, not records."""
        return self.target is not None and bool(self._primary_keys(self.target.identifier))

    def _key_columns(self) -> tuple[str, ...]:
        """The key of a table that does not exist, as its columns are spelt."""
        if self._names.exact:
            return self._key
        return tuple(spelt(name, self._missing) for name in self._key)

    # --- an existing table

    def _build_existing(self, target: Target, key: tuple[str, ...]) -> None:
        if self.block is None:
            columns = self._bare_columns(target)
        else:
            columns = self._block_columns(target, key)
        by_name = {column.name: column.member for column in columns}
        if self._missing and self.block is not None and target.evolvable:
            self.fate = Fate.PENDING
            return
        self.fate = Fate.ROWS
        null_only = (
            [*self._null_only, *self._missing] if self.block is not None else self._null_only
        )
        self.plan = RowPlan(
            target,
            self.source,
            columns,
            [by_name[name] for name in key],
            null_only=tuple(name for name in null_only if name not in by_name.values()),
        )

    def _bare_columns(self, target: Target) -> list[PlanColumn]:
        schema = target.schema
        fields = () if schema is None else schema.fields
        used = set(self._members.values())
        return [
            PlanColumn(
                field.name,
                field.type,
                self._adapted(field.name, self._bare_codec(field.name, field.type)),
                self._members.get(field.name, _unused(field.name) if field.name in used else ""),
            )
            for field in fields
        ]

    def _bare_codec(self, name: str, type_: DataType) -> Codec | None:
        codec = self._bare(type_)
        earlier = self._names.texts.get(name)
        if codec is None or earlier is None:
            return codec
        return bare_text_codec(codec, earlier, self._facts)

    def _bare(self, type_: DataType) -> Codec | None:
        codec = bare_codec_for(type_, self._facts)
        return None if isinstance(codec, Fit) else codec

    def _adapted(self, name: str, codec: Codec | None) -> Codec | None:
        if codec is None or name not in self._kinds:
            return codec
        return dataclasses.replace(codec, kind=self._kinds[name])

    def _block_columns(self, target: Target, key: tuple[str, ...]) -> list[PlanColumn]:
        schema = target.schema
        types = {} if schema is None else {field.name: field.type for field in schema.fields}
        observed = dict(self._fields)
        filled: dict[str, tuple[str, Codec | None]] = {}
        for member, semantic in self._fields:
            slots = self._names.slots(member, types, observed)
            slots = tuple(name for name in slots if name not in filled)
            if slots:
                name, codec = self._filled(target, member, semantic, slots, types, key)
                filled[name] = member, codec
            elif member not in target.ignored and (member in key or not self.of_key):
                self._missing[member] = semantic.type
        used = {member for member, _ in filled.values()}
        self._lacks = [name for name in types if name not in filled]
        columns = []
        for name, type_ in types.items():
            member, codec = filled.get(name, (_unused(name) if name in used else name, None))
            renamed = member if member != name else ""
            columns.append(PlanColumn(name, type_, self._adapted(name, codec), renamed))
        return columns

    def _filled(
        self,
        target: Target,
        member: str,
        semantic: Semantic,
        slots: Sequence[str],
        types: Mapping[str, DataType],
        key: Sequence[str],
    ) -> tuple[str, Codec | None]:
        """Which of several columns takes a column of the event, and how."""
        unchangeable = not target.evolvable or (member, type_name(semantic.type)) in target.fixed
        keys = {*key} - target.behind_key
        wider = False
        for name in slots:
            fixed = unchangeable or name in keys or self._facts.mapping.keeps(types[name])
            codec = self._fitting_codec(name, types[name], semantic, fixed)
            if not isinstance(codec, Fit):
                return name, codec
            wider |= codec is Fit.WIDEN
        asks = wider or target.type_requests is not TypeRequests.NONE
        if asks and not unchangeable and slots[0] not in keys:
            self._missing[member] = semantic.type
            self._mismatched[member] = slots[0]
        return slots[0], None

    def _fitting_codec(
        self, name: str, type_: DataType, semantic: Semantic, fixed: bool
    ) -> Codec | Fit:
        codec = self._block_codec(type_, semantic, fixed)
        if isinstance(codec, Fit) and name in self._names.texts:
            return text_codec(semantic, self._facts) or codec
        return codec

    def _block_codec(self, type_: DataType, semantic: Semantic, fixed: bool) -> Codec | Fit:
        """How values of a declared type get into a column; `fixed`: it cannot be widened."""
        return codec_for(semantic, type_, self._facts, fixed=fixed)

    # --- learning

    def learn_columns(self, tokens: Tokens, row: Tokens | None = None) -> None:
        """Record columns that the table lacks, from a row, or part of it, without block.

        Raises:
            EventRefusedError: a name is not allowed for columns.
        """
        index = {} if self.plan is None else self.plan.index
        for name, token in tokens.items():
            if token != NULL and name not in index and name not in self._ignored:
                self._require_column(name)
        changed = False
        for member, token in tokens.items():
            if member in index or token == NULL or member in self._ignored:
                continue
            name = self._known_as(member, tokens if row is None else row)
            known_type = self._missing.get(name)
            fits = known_type == DOUBLE and is_exact_double(token)
            type_ = DOUBLE if fits else self._new_type(token)
            wider = type_ if known_type is None else guessed_union(known_type, type_)
            if wider not in (None, known_type):
                self._missing[name] = wider
                changed = True
        if changed and self.plan is not None:
            whole = tokens if row is None else row
            self._lacks = [c.name for c in self.plan.columns if c.member not in whole]
        if changed or self.pending_plan is None:
            self._build_pending()

    def _new_type(self, token: bytes) -> DataType:
        """Type of a column that the table lacks and whose type is not declared."""
        if "to-string" in self._facts.mapping:
            return STRING
        return self._signed(infer_type(token))

    def learn_widths(self, tokens: Tokens) -> None:
        """Record the widths that values require of columns whose declared types are open."""

    def outgrow(self, member: str, type_: DataType) -> None:
        """Request a wider column than the table has, for a value."""
        current = self._outgrown.get(member, type_)
        self._outgrown[member] = union_type(current, type_) or type_

    def _known_as(self, member: str, row: Tokens) -> str:
        """A missing column with another spelling from other rows, or the member itself."""
        if self._names.exact or member in self._missing:
            return member
        spellings = [name for name in self._missing if folded(name) == folded(member)]
        return spellings[0] if len(spellings) == 1 and spellings[0] not in row else member

    def _require_column(self, name: str) -> None:
        why = "" if name in self._missing else why_no_column(name)
        if why:
            raise EventRefusedError("schema", f"column {name!r}: {why}")

    def _build_pending(self) -> None:
        """A plan that recognises rows without new columns, at the cost of a fast decode."""
        if self.target is None:
            return
        existing = [] if self.plan is None else list(self.plan.columns)
        existing = [column for column in existing if column.member not in self._missing]
        extra = [PlanColumn(n, t, self._new_codec(n, t)) for n, t in self._missing.items()]
        columns = existing + extra
        names = {column.member for column in columns}
        key = [name for name in self._key_columns() if name in names]
        if self.plan is not None:
            key = list(self.plan.key_names)
        if key or self.keyless:
            self.pending_plan = RowPlan(self.target, self.source, columns, key)

    def _new_codec(self, name: str, type_: DataType) -> Codec | None:
        """How values are read of a column that the table lacks."""
        if self.block is None:
            return self._bare(type_)
        codec = self._block_codec(type_, dict(self._fields)[name], False)
        return None if isinstance(codec, Fit) else codec

    @property
    def has_declared_types(self) -> bool:
        """Whether rows say nothing about the types of columns that the table lacks."""
        return self.block is not None and not self.has_open_types

    @property
    def waiting_plan(self) -> RowPlan | None:
        """The plan of rows that have no columns but those requested; None = not known."""
        missing = self.target is not None and self.target.schema is None
        if self.pending_plan is None and missing and self.has_declared_types and self.knows_key:
            self._build_pending()
        return self.pending_plan

    def learn_nulls(self, tokens: Tokens) -> None:
        """Record columns that the table lacks and whose values are null."""
        plan = self.plan
        if plan is None:
            return
        names = {*plan.index, *plan.null_only, *self._ignored}
        extra = [name for name in tokens if name not in names]
        if extra:
            self._null_only.update(dict.fromkeys(extra))
            self._rebuild()

    def learn_values(self, tokens: Tokens) -> None:
        """Record columns whose values have another JSON form than expected."""
        plan = self.plan
        if plan is None:
            return
        kinds = _other_kinds(plan, tokens)
        if any(self._kinds.get(name) is not kind for name, kind in kinds.items()):
            self._kinds.update(kinds)
            self._rebuild()

    def learn_names(self, tokens: Tokens, placeholder: Placeholder) -> bool:
        """Find columns that hold a row's values under other names, or in another type's column.

        Returns:
            Whether the plan changed, so that the row should be tried again.
        """
        plan = self.plan
        if self.block is not None or plan is None:
            return False
        types = {column.name: column.type for column in plan.columns}
        by_column: dict[str, str] = {}
        for member, token in tokens.items():
            slots = self._names.slots(member, types, tokens)
            if token == NULL and not (slots and folded(slots[0]) == folded(member)):
                continue  # nothing to hold
            takers = [name for name in slots if self._takes(name, types[name], token, placeholder)]
            if slots:
                by_column[(takers or slots)[0]] = member
        members = {**self._others_of(by_column, tokens), **by_column}
        members = {name: member for name, member in members.items() if name != member}
        if members == self._members:
            return False
        self._members = members
        self._rebuild()
        return True

    def _others_of(self, row_members: Mapping[str, str], tokens: Tokens) -> dict[str, str]:
        """Members of columns other than those found in a row, as far as they still apply."""
        members = {*row_members.values(), *tokens}
        return {
            name: member
            for name, member in self._members.items()
            if name not in row_members and member not in members and name not in tokens
        }

    def _takes(self, name: str, type_: DataType, token: bytes, placeholder: Placeholder) -> bool:
        try:
            decode_value(self._bare_codec(name, type_), token, placeholder)
        except UnavailableValueError:
            return True
        except ValueRefusedError:
            return False
        return True

    def learn_types(self, tokens: Tokens, placeholder: Placeholder) -> bool:
        """Record columns whose values in a row are of a type that does not convert.

        Returns:
            Whether the row must wait for a change of the schema.
        """
        plan, target = self.plan, self.target
        if self.block is not None or plan is None or target is None or not target.evolvable:
            return False
        types: dict[str, DataType] = {}
        for number, column in enumerate(plan.columns):
            token = tokens.get(column.member, NULL)
            if token == NULL or number in plan.key or column.codec is None:
                continue
            type_ = self._asked_type(target, column, token)
            changeable = type_ and (column.member, type_name(type_)) not in target.fixed
            if (
                type_
                and changeable
                and not self._takes(column.name, column.type, token, placeholder)
            ):
                types[column.member] = type_
                self._mismatched[column.member] = column.name
        if types:
            self._missing.update(types)
            self._build_pending()
        return bool(types)

    def _asked_type(self, target: Target, column: PlanColumn, token: bytes) -> DataType | None:
        """The type required by a value that its column does not accept; None = it is bad."""
        if not self._facts.mapping.keeps(column.type):
            wider = wider_number(column.type, self._number(token))
            if wider is not None:
                return self._signed(wider)
        return infer_type(token) if target.type_requests is TypeRequests.ALL else None

    def _signed(self, type_: DataType) -> DataType:
        """A type of signed numbers, where DECIMAL(20, 0) stands for unsigned ones."""
        wrapped = "unsigned-bigint-to-decimal" in self._facts.mapping
        return _SIGNED if wrapped and type_ == UNSIGNED_BIGINT else type_

    def _number(self, token: bytes) -> bytes:
        """The token of a number; overridden by formats that quote numbers."""
        return token

    def _rebuild(self) -> None:
        missing, pending = dict(self._missing), self.pending_plan
        self._build()
        self._missing, self.pending_plan = missing, pending

    def delta(self, topic: str, offset: int) -> SchemaDelta | None:
        """The change to request; None where there is none."""
        missing = {**self._missing, **self._outgrown}
        if self.target is None or not missing:
            return None
        fields = tuple(
            ObservedField(name, type_, self._mismatched.get(name, ""))
            for name, type_ in missing.items()
        )
        existing = self.target.schema
        if existing is None and not self._has_key_columns():
            return None
        key = self._key_columns() if existing is None else existing.primary_keys
        if key or not self.keyless:
            key = (*self.target.key_prefix, *key)
        return SchemaDelta(
            self.target.identifier,
            self.source,
            topic,
            fields,
            key,
            offset,
            owner=self.target.owner,
            constants=self.target.constants,
            lacks=tuple(self._lacks),
            declared=self.has_declared_types,
        )


class FreshShapes:
    """The shapes of one call of `decode`, each refreshed with its current target.

    Args:
        resolve: called once per shape.
        topic: of the records.
    """

    def __init__(self, resolve: Resolver, topic: str) -> None:
        self._resolve = resolve
        self._topic = topic
        self._by_id: dict[int, Shape] = {}

    def of(self, shape: Shape) -> Shape:
        """The shape, refreshed."""
        if id(shape) not in self._by_id:
            self._by_id[id(shape)] = shape  # kept alive, so that its id is not reused
            shape.refresh(self._resolve(shape.source, self._topic))
        return shape


def _unused(name: str) -> str:
    """A member's name that no event has, for a column whose own name another column uses."""
    return f"{name}\ud800"  # text in JSON has no lone surrogates


def _other_kinds(plan: RowPlan, tokens: Tokens) -> Mapping[str, Kind]:
    kinds: dict[str, Kind] = {}
    for column in plan.columns:
        token = tokens.get(column.member, NULL)
        if column.codec is None or token == NULL:
            continue
        kind = column.codec.kind
        if kind is Kind.TEXT_OR_ANY and column.codec.element is None and token[:1] != b'"':
            kinds[column.name] = Kind.ANY_TEXT
        elif kind in _OTHERWISE_JSON and token[:1] in _JSON_STARTS:
            kinds[column.name] = _OTHERWISE_JSON[kind]
        elif kind is Kind.DECIMAL_BYTES and token[:1] != b'"':
            kinds[column.name] = Kind.DECIMAL_NUMBER
        elif kind is Kind.INTEGER_OR_BITS and token[:1] == b'"':
            kinds[column.name] = Kind.BITS_OR_INTEGER
    return kinds


# Shapes of events with less type information than Debezium's: columns determine the decoding.
#
# A number may be sent as text, a date as its database prints it, bytes in the format's own
# encoding. So the column alone determines how a value is decoded, and every value is checked. Types
# sent beside the rows (Canal's `mysqlType`) are used for new columns and for widening, and to
# resolve the numbers of ENUM and SET members. A type may be open (length or precision unknown):
# then the values determine the width of the column.


_KINDS = {
    TypeRoot.BOOLEAN: Kind.LOOSE_BOOLEAN,
    TypeRoot.TINYINT: Kind.LOOSE_INTEGER,
    TypeRoot.SMALLINT: Kind.LOOSE_INTEGER,
    TypeRoot.INT: Kind.LOOSE_INTEGER,
    TypeRoot.BIGINT: Kind.LOOSE_INTEGER,
    TypeRoot.FLOAT: Kind.LOOSE_NUMBER,
    TypeRoot.DOUBLE: Kind.LOOSE_NUMBER,
    TypeRoot.DECIMAL: Kind.LOOSE_DECIMAL,
}
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_TEXT_MOMENTS = {TypeRoot.DATE: Kind.SQL_DATE, TypeRoot.TIMESTAMP: Kind.SQL_TIMESTAMP}
_BYTES = {"latin1": Kind.LATIN1, "hex": Kind.LOOSE_HEX}


def loose_codec_for(column: DataType, facts: ProducerFacts) -> Codec | Fit:
    """How values without a declared encoding are converted to a column of the target.

    Args:
        facts: of the producer; `time_precision_mode` other than `isostring` = times are integers,
            `binary_handling_mode` may be `latin1` too.
    """
    if isinstance(column, ArrayType):
        element = loose_codec_for(column.element, facts)
        return element if isinstance(element, Fit) else Codec(Kind.ARRAY, column, element=element)
    if isinstance(column, AtomicType):
        root, kind = column.root, _KINDS.get(column.root)
        if root in _TEXTS and "to-string" not in facts.mapping:
            kind = Kind.TEXT_OR_JSON
        if facts.time_precision_mode == "isostring":
            kind = _TEXT_MOMENTS.get(root, kind)
        if root in (TypeRoot.BINARY, TypeRoot.VARBINARY):
            kind = _BYTES.get(facts.binary_handling_mode)
        if kind is not None:
            return with_policies(Codec(kind, column), column, facts)
    return bare_codec_for(column, facts)


@dataclasses.dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column whose type is sent beside the rows.

    Attributes:
        name: of the column.
        type: nullable.
        bounded: whether its length and precision are known rather than assumed.
        observed_type: of an open type: the type that a value's JSON text requires; None = not open.
        kind: MEMBER or MEMBERS where values are numbers of `members`.
        members: of an ENUM or SET.
    """

    name: str
    type: DataType
    bounded: bool = True
    observed_type: Callable[[bytes], DataType] | None = None
    kind: Kind = Kind.TEXT
    members: tuple[str, ...] = ()


class LooseShape(Shape):
    """See the module.

    Args:
        types: the columns as the event describes them; None = it does not.
        facts: of the producer.
        primary_keys: configured key columns of a target.
        all_text: whether columns are STRING where `types` is None, whatever their values are.
    """

    def __init__(
        self,
        source: SourceTable,
        types: Sequence[TypedColumn] | None,
        facts: ProducerFacts,
        primary_keys: Callable[[str], Sequence[str]],
        *,
        all_text: bool = False,
    ) -> None:
        block = None if types is None else SchemaBlock(b"", "", (), ())
        super().__init__(source, block, facts, primary_keys)
        self._all_text = all_text
        self.has_open_types = any(column.observed_type for column in types or ())
        self._observed_type_of = {
            column.name: column.observed_type for column in types or () if column.observed_type
        }
        self._fields = [
            (
                column.name,
                Semantic(
                    column.kind,
                    mapped_type(column.type, facts.mapping),
                    bounded=column.bounded,
                    members=column.members,
                ),
            )
            for column in types or ()
        ]

    def _bare(self, type_: DataType) -> Codec | None:
        codec = loose_codec_for(type_, self._facts)
        if isinstance(codec, Fit):
            return None
        if self._all_text and codec.kind is Kind.TEXT_OR_JSON:
            return dataclasses.replace(codec, kind=Kind.TEXT_OR_ANY)
        return codec

    def _new_type(self, token: bytes) -> DataType:
        return STRING if self._all_text else super()._new_type(token)

    # --- open types

    def learn_widths(self, tokens: Tokens) -> None:
        """See `Shape.learn_widths`."""
        for name, type_ in self._missing.items():
            token = tokens.get(name, NULL)
            if token != NULL and name in self._observed_type_of:
                self._missing[name] = self._wider(name, type_, token, guessed_union) or type_

    def learn_types(self, tokens: Tokens, placeholder: Placeholder) -> bool:
        """See `Shape.learn_types`: values of open types may require wider columns."""
        plan, target = self.plan, self.target
        if not self._observed_type_of or plan is None or target is None or not target.evolvable:
            return super().learn_types(tokens, placeholder)
        fixed_names = {name for name, _ in target.fixed}
        changed = False
        for number, column in enumerate(plan.columns):
            name, token = column.member, tokens.get(column.member, NULL)
            keeps = (
                number in plan.key or name in fixed_names or self._facts.mapping.keeps(column.type)
            )
            if token == NULL or name not in self._observed_type_of or keeps:
                continue
            if self._takes(column.name, column.type, token, placeholder):
                continue
            wider = self._wider(name, column.type, token, union_type)
            if wider is not None and self._takes(column.name, wider, token, placeholder):
                self.outgrow(name, nullable(wider))
                changed = True
        return changed

    def _wider(
        self,
        name: str,
        type_: DataType,
        token: bytes,
        union: Callable[[DataType, DataType], DataType | None],
    ) -> DataType | None:
        try:
            observed = self._observed_type_of[name](token)
            return union(type_, mapped_type(observed, self._facts.mapping))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _number(self, token: bytes) -> bytes:
        try:
            return number_token(token)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return token

    def _block_codec(self, type_: DataType, semantic: Semantic, fixed: bool) -> Codec | Fit:
        union = union_type(nullable(type_), semantic.type)
        if union is None and self._asks and not fixed:
            return Fit.NEVER
        if semantic.bounded and not fixed and union not in (None, nullable(type_)):
            return Fit.WIDEN
        if semantic.members and isinstance(type_, AtomicType) and type_.root in _TEXTS:
            return Codec(semantic.kind, type_, members=semantic.members)
        codec = self._bare(type_) or Fit.NEVER
        if isinstance(codec, Codec) and codec.kind is Kind.LOOSE_NUMBER and union == codec.type:
            return dataclasses.replace(codec, kind=Kind.LOOSE_FLOAT)  # declared FLOAT or DOUBLE
        return codec

    def _fitting_codec(
        self, name: str, type_: DataType, semantic: Semantic, fixed: bool
    ) -> Codec | Fit:
        if name in self._names.texts:
            return self._bare_codec(name, type_) or Fit.NEVER
        return super()._fitting_codec(name, type_, semantic, fixed)

    @property
    def _asks(self) -> bool:
        return self.target is not None and self.target.type_requests is not TypeRequests.NONE
