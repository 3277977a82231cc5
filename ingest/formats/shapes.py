# SPDX-License-Identifier: Apache-2.0
"""Shapes: what the events of one (source table, schema block) look like against the target.

A `Shape` holds the decode plan of such events and learns from the reference path: a shape without
schema block learns the columns that appear, a column may turn out to hold JSON numbers or objects.
When the target does not cover the shape it knows the delta to ask for.

1. `refresh` with the target of the hour, before the first event of a batch;
2. `fate` says what becomes of its row events; `ROWS` are decoded with `plan`;
3. `learn_*` after single events, then `plan` may be another one.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

from ingest.formats.codec_choice import Fit, bare_codec_for, codec_for
from ingest.formats.decode_plan import PlanColumn, RowPlan, make_plan
from ingest.formats.events import (
    ObservedField,
    Resolver,
    SchemaDelta,
    SourceTable,
    Target,
)
from ingest.formats.mapped_types import observe_mapped
from ingest.formats.schema_block import SchemaBlock
from ingest.formats.semantic_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    Codec,
    Kind,
    ProducerFacts,
    Semantic,
)
from ingest.formats.single_event import Tokens
from ingest.formats.token_values import NULL
from storage.format.types import DataType

__all__ = ["Fate", "FreshShapes", "Shape", "infer_type"]


class Fate(enum.Enum):
    """What becomes of a shape's row events."""

    ROWS = "decoded"
    PENDING = "withheld: the target does not cover them yet"
    UNROUTED = "not wanted"
    CONFLICT = "the target belongs to another source table"
    NO_KEY = "no primary key is known"
    REFUSED = "the target does not exist and may not be created"


_JSON_STARTS = (b"{", b"[")
_OTHERWISE_JSON = {Kind.TEXT_OR_JSON: Kind.JSON, Kind.TEXT_OR_STRUCT: Kind.STRUCT}


def infer_type(token: bytes) -> DataType:
    """Type of a new column from one value without schema (never null)."""
    first = token[:1]
    if first == b'"' or first in _JSON_STARTS:
        return STRING
    if first in (b"t", b"f"):
        return BOOLEAN
    return DOUBLE if any(mark in token for mark in (b".", b"e", b"E")) else BIGINT


class Shape:
    """See the module.

    Args:
        source: the source table.
        block: schema block of its messages, or None.
        facts: of the producer.
        primary_keys: configured key columns of a target, empty = take the Kafka key's.

    Attributes:
        keyless: whether tables without primary key are taken: every event is an insert.
    """

    keyless = False

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
        self._build()

    @property
    def target_name(self) -> str:
        """`db.table` of the target; empty = none."""
        return "" if self.target is None else self.target.identifier

    def _build(self) -> None:
        self.plan = self.pending_plan = None
        target = self.target
        if target is None:
            self.fate = Fate.UNROUTED
        elif target.refusal:
            self.fate = Fate.REFUSED
        elif target.schema is None:
            self._build_missing(target)
        elif not target.belongs_to(self.source):
            self.fate = Fate.CONFLICT
        elif not target.schema.primary_keys and not self.keyless:
            self.fate = Fate.NO_KEY
        else:
            self._build_existing(target, target.schema.primary_keys)

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
        self._key = tuple(name for name in configured if name not in constant)

    def learn_key(self, names: Iterable[str]) -> bool:
        """Take the key columns of a table that does not exist; False when none are known."""
        if not self._key:
            self._key = tuple(names)
        return self.knows_key

    @property
    def knows_key(self) -> bool:
        """Whether `learn_key` succeeded before, or is not needed."""
        if self.target is None or self.target.schema is not None:
            return True
        if self.keyless and not self._key:
            return True
        return bool(self._key) and (self.block is None or self._has_key_columns())

    def _has_key_columns(self) -> bool:
        return all(name in self._missing for name in self._key)

    # --- an existing table

    def _build_existing(self, target: Target, key: tuple[str, ...]) -> None:
        if self.block is None:
            columns = self._bare_columns(target)
        else:
            columns = self._block_columns(target, key)
        if self._missing and self.block is not None and target.evolvable:
            self.fate = Fate.PENDING
            return
        self.fate = Fate.ROWS
        null_only = (
            [*self._null_only, *self._missing] if self.block is not None else self._null_only
        )
        self.plan = make_plan(target, self.source, columns, key, null_only=tuple(null_only))

    def _bare_columns(self, target: Target) -> list[PlanColumn]:
        schema = target.schema
        fields = () if schema is None else schema.fields
        return [
            PlanColumn(field.name, field.type, self._adapted(field.name, self._bare(field.type)))
            for field in fields
        ]

    def _bare(self, type_: DataType) -> Codec | None:
        codec = bare_codec_for(type_, self._facts)
        return None if isinstance(codec, Fit) else codec

    def _adapted(self, name: str, codec: Codec | None) -> Codec | None:
        if codec is None or name not in self._kinds:
            return codec
        return dataclasses.replace(codec, kind=self._kinds[name])

    def _block_columns(self, target: Target, key: tuple[str, ...]) -> list[PlanColumn]:
        schema = target.schema
        fields = () if schema is None else schema.fields
        observed = dict(self._fields)
        columns = []
        for field in fields:
            semantic = observed.pop(field.name, None)
            fixed = field.name in key and field.name not in target.behind_key
            fixed = fixed or not target.evolvable
            fixed = fixed or self._facts.mapping.keeps(field.type)
            codec = self._block_codec(field.name, field.type, semantic, fixed)
            columns.append(PlanColumn(field.name, field.type, self._adapted(field.name, codec)))
        self._missing.update(
            (name, semantic.type)
            for name, semantic in observed.items()
            if name not in target.ignored
        )
        return columns

    def _block_codec(
        self, name: str, type_: DataType, semantic: Semantic | None, fixed: bool
    ) -> Codec | None:
        if semantic is None:
            return None
        codec = codec_for(semantic, type_, self._facts, fixed=fixed)
        if codec is Fit.WIDEN:
            self._missing[name] = semantic.type
        return None if isinstance(codec, Fit) else codec

    # --- learning

    def learn_columns(self, tokens: Tokens) -> None:
        """Take note of columns that the table lacks, from a row without schema block.

        Args:
            tokens: the row; known columns are skipped.
        """
        known = {} if self.plan is None else self.plan.index
        changed = False
        for name, token in tokens.items():
            if name in known or token == NULL or name in self._ignored:
                continue
            type_ = STRING if "to-string" in self._facts.mapping else infer_type(token)
            if (self._missing.get(name), type_) in ((None, type_), (BIGINT, DOUBLE)):
                self._missing[name] = type_
                changed = True
        if changed or self.pending_plan is None:
            self._build_pending()

    def _build_pending(self) -> None:
        """A plan that recognises rows which bring nothing new, at the price of a fast decode."""
        if self.target is None:
            return
        known = [] if self.plan is None else list(self.plan.columns)
        extra = [PlanColumn(n, t, self._bare(t)) for n, t in self._missing.items()]
        columns = known + extra
        names = {column.name for column in columns}
        key = [name for name in self._key if name in names]
        if self.plan is not None:
            key = list(self.plan.key_names)
        if key or self.keyless:
            self.pending_plan = make_plan(self.target, self.source, columns, key, emits=False)

    def learn_nulls(self, tokens: Tokens) -> None:
        """Take note of columns that the table lacks and that came with null."""
        plan = self.plan
        if plan is None:
            return
        known = {*plan.index, *plan.null_only, *self._ignored}
        extra = [name for name in tokens if name not in known]
        if extra:
            self._null_only.update(dict.fromkeys(extra))
            self._rebuild()

    def learn_values(self, tokens: Tokens) -> None:
        """Take note of columns whose values come in another JSON form than expected."""
        plan = self.plan
        if plan is None:
            return
        kinds = _other_kinds(plan, tokens)
        if any(self._kinds.get(name) is not kind for name, kind in kinds.items()):
            self._kinds.update(kinds)
            self._rebuild()

    def _rebuild(self) -> None:
        missing, pending = dict(self._missing), self.pending_plan
        self._build()
        self._missing, self.pending_plan = missing, pending

    def delta(self, topic: str, offset: int) -> SchemaDelta | None:
        """The change to ask for; None when there is nothing to ask."""
        if self.target is None or not self._missing:
            return None
        fields = tuple(ObservedField(name, type_) for name, type_ in self._missing.items())
        existing = self.target.schema
        if existing is None and not self._has_key_columns():
            return None
        key = self._key if existing is None else existing.primary_keys
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
        )


class FreshShapes:
    """The shapes that one call of `decode` meets, each with its target as it is in this call.

    Args:
        resolve: asked once per shape.
        topic: of the records.
    """

    def __init__(self, resolve: Resolver, topic: str) -> None:
        self._resolve = resolve
        self._topic = topic
        self._seen: dict[int, Shape] = {}

    def of(self, shape: Shape) -> Shape:
        """The shape, refreshed."""
        if id(shape) not in self._seen:
            self._seen[id(shape)] = shape  # kept alive, so that its id stays its own
            shape.refresh(self._resolve(shape.source, self._topic))
        return shape


def _other_kinds(plan: RowPlan, tokens: Tokens) -> Mapping[str, Kind]:
    kinds: dict[str, Kind] = {}
    for column in plan.columns:
        token = tokens.get(column.name, NULL)
        if column.codec is None or token == NULL:
            continue
        kind = column.codec.kind
        if kind in _OTHERWISE_JSON and token[:1] in _JSON_STARTS:
            kinds[column.name] = _OTHERWISE_JSON[kind]
        elif kind is Kind.DECIMAL_BYTES and token[:1] != b'"':
            kinds[column.name] = Kind.DECIMAL_NUMBER
        elif kind is Kind.INTEGER_OR_BITS and token[:1] == b'"':
            kinds[column.name] = Kind.BITS_OR_INTEGER
    return kinds
