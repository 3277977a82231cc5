# SPDX-License-Identifier: Apache-2.0
"""The transforms of a table, as configured and planned, and the columns that result.

Expressions see the columns of the source, unmasked and also those that are excluded; then earlier
computed columns; then metadata under its prefixed name. A column of the source always comes first.

Types are known only with a table. Errors that need no types (names in expressions, mistakes in
rules, renamed columns) are reported when the pipeline is checked.
"""

import dataclasses
import decimal
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.choices import nearest
from ingest.config.settings import Settings
from ingest.decode.columns import METADATA, ColumnNames, checked_metadata
from ingest.transform.functions.arithmetic import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DOUBLE,
    INT,
    MAX_PRECISION,
    STRING,
    Cells,
    Frame,
    Planned,
    is_bytes,
    nullable,
    runner,
    strict_cast,
    zone_named,
)
from ingest.transform.functions.call_site import Function, Site, constant, type_label
from ingest.transform.functions.condition_functions import (
    CONDITIONS,
    INTERVAL_MARK,
    NUMBER_FUNCTIONS,
    choice,
)
from ingest.transform.functions.text_functions import ALGORITHMS, TEXT_FUNCTIONS, hex_digests
from ingest.transform.functions.time_functions import TIME_FUNCTIONS
from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.files.orc.tail import Zone
from storage.format.metadata.schema import TableSchema
from storage.format.types.casts import can_cast, to_text
from storage.format.types.types import (
    AtomicType,
    DataType,
    TypeRoot,
    arrow_type,
    parse_type,
    type_name,
    type_to_json,
)
from storage.table.scan.expression_text import (
    Call,
    Case,
    CastTo,
    ColumnName,
    Literal,
    LiteralKind,
    Node,
    expression_error,
    nodes_of,
    parse_expression,
    split_assignment,
)

# SQL expressions over Arrow batches, with the types of Paimon's columns.
#
# `plan_expression` reads and checks a text against columns once; `Planned.run` gives the values of
# a frame and the rows that have none. Deterministic: the same batch, time and zone give the same
# values. A result is always nullable, because a delete may contain only its key.


FUNCTIONS: dict[str, Function] = {
    **CONDITIONS,
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    **TIME_FUNCTIONS,
}
"""Everything that can be called, by name in lower case."""

_INTEGER_LIMITS = ((INT, 1 << 31), (BIGINT, 1 << 63))
_TIME_LITERALS = {
    LiteralKind.DATE: AtomicType(TypeRoot.DATE),
    LiteralKind.TIME: AtomicType(TypeRoot.TIME, precision=3),
    LiteralKind.TIMESTAMP: AtomicType(TypeRoot.TIMESTAMP, precision=6),
    LiteralKind.TIMESTAMP_LTZ: AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=6),
}


def plan_expression(text: str, columns: Mapping[str, DataType], zone: Zone | None) -> Planned:
    """Read and check an expression.

    Args:
        text: SQL.
        columns: names and types of what it may use.
        zone: time zone in which TIMESTAMP_LTZ is evaluated; None for UTC.

    Raises:
        InvalidRequestError: it is malformed, names something unknown, or types do not fit; with the
            position and a suggestion.
    """
    planned = _Binder(text, columns, zone).bind(parse_expression(text))
    if planned.type is None:
        raise expression_error(text, 0, "NULL has no type", "write CAST(NULL AS STRING)")
    return planned


class _Binder:
    """Gives every node of an expression its type and its kernel."""

    def __init__(self, text: str, columns: Mapping[str, DataType], zone: Zone | None) -> None:
        self._text = text
        self._columns = columns
        self._zone = zone

    def bind(self, node: Node) -> Planned:
        match node:
            case Literal():
                return self._literal(node)
            case ColumnName():
                return self._column(node)
            case CastTo():
                return self._cast(node)
            case Case():
                return self._case(node)
            case Call():
                return self._call(node)

    def _site(self, name: str, node: Node, arguments: Sequence[Planned]) -> Site:
        return Site(self._text, name, tuple(arguments), node.start, node.end, self._zone)

    def _call(self, node: Call) -> Planned:
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise expression_error(
                self._text,
                node.start,
                f"there is no function `{node.name}`",
                nearest(node.name, (name for name in FUNCTIONS if name.isidentifier())),
            )
        return function.planned(self._site(node.name, node, [self.bind(a) for a in node.arguments]))

    def _case(self, node: Case) -> Planned:
        branches = [(self.bind(test), self.bind(value)) for test, value in node.branches]
        otherwise = None if node.otherwise is None else self.bind(node.otherwise)
        return choice(self._site("case", node, ()), branches, otherwise)

    def _cast(self, node: CastTo) -> Planned:
        part = self.bind(node.part)
        site = self._site("cast", node, [part])
        if part.type is None:
            return site.coerced(part, node.type)
        kernel = strict_cast(part.type, node.type, self._zone)
        if kernel is None:
            raise site.error(f"{type_label(part.type)} cannot be cast to {type_label(node.type)}")
        if not node.attempt:
            return site.result(node.type, kernel)
        attempt = runner(kernel, [part], site.text)

        def run(frame: Frame) -> Cells:
            # what fails inside of the argument still fails
            return Cells(attempt(frame).values, part.run(frame).failures)

        return site.lazy(node.type, run, [part])

    def _column(self, node: ColumnName) -> Planned:
        type_ = self._columns.get(node.name)
        if type_ is None:
            raise expression_error(
                self._text,
                node.start,
                f"there is no column `{node.name}`",
                nearest(node.name, self._columns) or _quote_hint(node.name),
            )
        name = node.name
        return Planned(
            type_,
            lambda frame: frame.column(name),
            frozenset({name}),
            None,
            self._text[node.start : node.end],
            node.start,
        )

    def _literal(self, node: Literal) -> Planned:
        text = self._text[node.start : node.end]
        match node.kind:
            case LiteralKind.NULL:
                return constant(pa.scalar(None, pa.null()), None, text, node.start)
            case LiteralKind.INTERVAL:
                scalar = pa.scalar(INTERVAL_MARK + node.text)
                return constant(scalar, None, text, node.start)
            case LiteralKind.BOOLEAN:
                return constant(pa.scalar(node.text == "true"), BOOLEAN, text, node.start)
            case LiteralKind.BYTES:
                return constant(pa.scalar(bytes.fromhex(node.text)), BYTES, text, node.start)
            case LiteralKind.TEXT:
                planned = constant(pa.scalar(node.text), STRING, text, node.start)
                return dataclasses.replace(planned, typed=False)
            case LiteralKind.NUMBER:
                return self._number(node, text)
            case _:
                return self._time(node, text)

    def _number(self, node: Literal, text: str) -> Planned:
        if "e" in node.text.lower():
            return constant(pa.scalar(float(node.text)), DOUBLE, text, node.start)
        value = decimal.Decimal(node.text)
        if "." not in node.text:
            for type_, limit in _INTEGER_LIMITS:
                if -limit <= value < limit:
                    scalar = pa.scalar(int(value), arrow_type(type_))
                    return constant(scalar, type_, text, node.start)
        scale = len(node.text.partition(".")[2])
        precision = max(len(value.as_tuple().digits), scale, 1)
        if precision > MAX_PRECISION:
            raise expression_error(
                self._text, node.start, f"a number of more than {MAX_PRECISION} digits"
            )
        decimal_type = AtomicType(TypeRoot.DECIMAL, precision=precision, scale=scale)
        return constant(pa.scalar(value, arrow_type(decimal_type)), decimal_type, text, node.start)

    def _time(self, node: Literal, text: str) -> Planned:
        type_ = _TIME_LITERALS[node.kind]
        fraction = len(node.text.partition(".")[2])
        if (
            type_.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
            and fraction > type_.precision
        ):
            type_ = dataclasses.replace(type_, precision=min(fraction, 9))
        part = constant(pa.scalar(node.text), STRING, text, node.start)
        kernel = strict_cast(STRING, type_, self._zone)
        if kernel is None:
            raise expression_error(self._text, node.start, f"no {type_label(type_)}")
        return self._site("literal", node, [part]).result(type_, kernel)


def _quote_hint(name: str) -> str:
    return f"string literals are written in single quotes: '{name}'"


# Masks: columns that are written unreadable.
#
#     sha256, sha256('salt')    hexadecimal digest of the salt followed by the string or bytes
#     md5, md5('salt')          the same; not collision-resistant, for old systems only
#     last(4), first(4)         that many characters; empty for a value that would be shown whole
#     redact, redact('***')     the same string for every value
#     null                      null
#
# Null stays null. Values that are no strings are masked in the string form that a cast to STRING
# gives. A salt is a secret: it is in no message and no `repr`.


MASK_NAMES = ("sha256", "md5", "first", "last", "redact", "null")
_MASK = re.compile(
    r"\s*(?P<name>\w+)\s*(?:\(\s*(?:'(?P<text>(?:[^']|'')*)'|(?P<bare>[^')(]*?))\s*\))?\s*"
)
_REDACTED = "***"


@dataclasses.dataclass(frozen=True, slots=True)
class Mask:
    """How a column is masked.

    Attributes:
        name: one of `MASK_NAMES`.
        count: characters shown by `first` and `last`.
        text: the salt, or the string that replaces every value.
    """

    name: str
    count: int = 0
    text: str = dataclasses.field(default="", repr=False)

    @property
    def keeps_apart(self) -> bool:
        """Whether different values stay different, so that a key may have this mask."""
        return self.name in ALGORITHMS

    def result_type(self, source: DataType) -> DataType:
        """The type of the masked column; null keeps the type, all others make a STRING.

        Raises:
            InvalidRequestError: the type has no text.
        """
        if self.name == "null":
            return nullable(source)
        if self.name in ("first", "last") and is_bytes(source):
            raise InvalidRequestError(
                "bytes have no characters to show", hint="use sha256, redact or null"
            )
        if self.name != "redact" and not is_bytes(source) and not can_cast(source, STRING):
            raise InvalidRequestError(
                "this mask does not support the column's type",
                hint="use redact or null",
                type=type_name(source),
                mask=self.name,
            )
        return STRING

    def apply(self, column: pa.Array, source: DataType) -> pa.Array:
        """The masked values; null stays null."""
        if self.name == "null":
            return pa.nulls(len(column), arrow_type(source))
        if self.name == "redact":
            replacement = pa.scalar(self.text, pa.string())
            return pc.if_else(column.is_valid(), replacement, pa.scalar(None, pa.string()))
        if self.name in ALGORITHMS:
            plain = column if is_bytes(source) else _texts(column, source)
            return hex_digests(plain, self.name, self.text.encode())
        return self._part(_texts(column, source))

    def _part(self, texts: pa.Array) -> pa.Array:
        if self.name == "first":
            part = pc.utf8_slice_codeunits(texts, 0, self.count)
        else:
            part = pc.utf8_slice_codeunits(texts, -self.count)
        whole = pc.less_equal(pc.utf8_length(texts), self.count)
        return pc.if_else(whole, pa.scalar(""), part)


def parse_mask(text: str) -> Mask:
    """Read a mask.

    Raises:
        InvalidRequestError: there is no such mask, or its argument does not fit. The argument is
            not shown, for it may be a salt.
    """
    match = _MASK.fullmatch(text)
    name = "" if match is None else match["name"].lower()
    if match is None or name not in MASK_NAMES:
        word = re.match(r"\s*\w*", text)
        raise InvalidRequestError(
            "there is no such mask",
            hint=nearest(name, MASK_NAMES)
            or "masks are sha256, md5, first(n), last(n), redact, null",
            mask="" if word is None else word.group().strip(),
        )
    quoted, bare = match["text"], (match["bare"] or "").strip()
    argument = quoted.replace("''", "'") if quoted is not None else bare
    if name in ("first", "last"):
        if re.fullmatch(r"[1-9]\d{0,3}", argument) is None:
            raise _wrong(name, f"write it like: {name}(4)")
        return Mask(name, count=int(argument))
    if name == "null" and argument:
        raise _wrong(name, "write it like: null")
    if name == "redact" and not argument:
        argument = _REDACTED
    return Mask(name, text=argument)


def _wrong(name: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError("invalid mask argument", hint=hint, mask=name)


def _texts(column: pa.Array, source: DataType) -> pa.Array:
    return column if pa.types.is_string(column.type) else to_text(column, source)


_CLOCKS = frozenset({"now", "current_timestamp"})
_STEADY = frozenset({"connector", "server", "database", "schema", "table", "topic"})
"""Metadata that are the same for all changes of a row."""

HIDDEN_OPTION = "lakeward.hidden-columns"
"""Table option for `hidden_to_text`."""

KEY_OPTION = "lakeward.key-recipe"
"""Table option for `rule_names.key_recipe` as JSON; only where the key has such columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class TransformRule:
    """The transforms of a table, as configured.

    Attributes:
        filter: a condition; rows that do not satisfy it are not in the table.
        computed: `name = expression` each.
        exclude: columns of the source that the table does not get.
        mask: mask by column. May hold salts, so it is left out of `repr`.
        metadata: names of `METADATA`.
        metadata_prefix: in front of metadata columns and of `deleted`.
        soft_delete: whether deletes set `<prefix>deleted` instead of removing the row.
        partition_by: columns, or `name = expression` each, in path order.
    """

    filter: str | None = None
    computed: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    mask: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, hash=False)
    metadata: tuple[str, ...] = ()
    metadata_prefix: str = "_cdc_"
    soft_delete: bool = False
    partition_by: tuple[str, ...] = ()

    @property
    def deleted_column(self) -> str:
        """Name of the column that soft deletes set."""
        return f"{self.metadata_prefix}deleted"

    @property
    def empty(self) -> bool:
        """Whether rows stay as they are."""
        lists = (self.computed, self.exclude, self.mask, self.metadata, self.partition_by)
        return not (self.filter or any(lists) or self.soft_delete)

    @property
    def assignments(self) -> tuple[tuple[str, str], ...]:
        """Names and expressions of computed columns, partition columns last.

        Raises:
            InvalidRequestError: one is no assignment.
        """
        texts = [*self.computed, *(text for text in self.partition_by if "=" in text)]
        return tuple(split_assignment(text) for text in texts)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Names of the partition columns, in path order."""
        return tuple(
            split_assignment(text)[0] if "=" in text else text.strip('`" ')
            for text in self.partition_by
        )

    @property
    def all_metadata(self) -> dict[str, str]:
        """All `METADATA` by the columns that would hold them, configured or not."""
        return {self.metadata_prefix + name: name for name in METADATA}

    @property
    def derived_names(self) -> tuple[str, ...]:
        """Columns that the pipeline makes, in the order in which a new table gets them."""
        computed = [name for name, _ in self.assignments]
        metadata = [self.metadata_prefix + name for name in self.metadata]
        return (*computed, *metadata, *([self.deleted_column] if self.soft_delete else []))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PlannedRule:
    """A rule with everything checked against the columns of the source.

    Attributes:
        rule: as configured.
        filter: the condition, or None.
        computed: by name, in order; partition columns with an expression last.
        masks: by column; of those that the source has.
        metadata: by column name in the table: the metadata's name.
        used_columns: columns of the source that expressions read, also through other columns.
        used_metadata: names of metadata, without prefix, that expressions read.
        inputs: for each computed column, the columns of the source and the metadata in it.
        filter_inputs: those in the filter.
        timed: computed columns that depend on when a row is taken in, or on metadata that differ
            between the changes of a row.
    """

    rule: TransformRule
    filter: Planned | None
    computed: Mapping[str, Planned]
    masks: Mapping[str, Mask]
    metadata: Mapping[str, str]
    used_columns: frozenset[str]
    used_metadata: frozenset[str]
    inputs: Mapping[str, frozenset[str]]
    filter_inputs: frozenset[str]
    timed: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class TableShape:
    """The columns that a new table gets.

    Attributes:
        columns: names and types in order.
        partition_keys: in path order.
        hidden: source types of columns that rows are decoded with but the table does not have, or
            has masked with another type: to be kept with the table (`RowTransform.of`).
        warnings: for the user.
    """

    columns: tuple[tuple[str, DataType], ...]
    partition_keys: tuple[str, ...]
    hidden: Mapping[str, DataType]
    warnings: tuple[str, ...]


def plan_rule(rule: TransformRule, source: Mapping[str, DataType], zone: str) -> PlannedRule:
    """Check a rule against the columns of the source.

    Args:
        rule: as configured.
        source: names and types of the source's columns.
        zone: time zone in which TIMESTAMP_LTZ is evaluated.

    Raises:
        InvalidRequestError: an expression, mask or name is wrong; with a suggestion.
    """
    clock = zone_named(zone)
    prefixed = rule.all_metadata
    scope = {name: nullable(METADATA[key].type) for name, key in prefixed.items()}
    scope.update(source)
    computed: dict[str, Planned] = {}
    inputs: dict[str, frozenset[str]] = {}
    timed: set[str] = set()
    for name, text in rule.assignments:
        if name in computed:
            raise InvalidRequestError("a column is computed twice", column=name)
        computed[name] = planned = plan_expression(text, scope, clock)
        inputs[name] = _inputs_of(planned.columns, inputs, source)
        if _reads_clock(text) or planned.columns & timed - source.keys():
            timed.add(name)
        if any(prefixed.get(key, "table") not in _STEADY for key in inputs[name] - source.keys()):
            timed.add(name)
        if name not in source:
            scope[name] = nullable(planned.type) if planned.type is not None else BOOLEAN
    condition = None if rule.filter is None else _condition(rule.filter, scope, clock)
    masks = {name: parse_mask(text) for name, text in rule.mask.items()}
    masks = {name: mask for name, mask in masks.items() if name in source}
    names = checked_metadata(rule.metadata)
    _check_names(rule, source, computed, masks)
    evaluated = [planned.columns for planned in computed.values()]
    evaluated += [] if condition is None else [condition.columns]
    reached = frozenset[str]().union(
        *(_inputs_of(columns, inputs, source) for columns in evaluated)
    )
    return PlannedRule(
        rule=rule,
        filter=condition,
        computed=computed,
        masks=masks,
        metadata={rule.metadata_prefix + name: name for name in names},
        used_columns=frozenset(name for name in reached if name in source),
        used_metadata=frozenset(prefixed[name] for name in reached if name not in source),
        inputs=inputs,
        filter_inputs=frozenset()
        if condition is None
        else _inputs_of(condition.columns, inputs, source),
        timed=frozenset(timed),
    )


def _reads_clock(text: str) -> bool:
    nodes = nodes_of(parse_expression(text))
    return any(isinstance(node, Call) and node.name in _CLOCKS for node in nodes)


def _condition(text: str, scope: Mapping[str, DataType], zone: Zone | None) -> Planned:
    planned = plan_expression(text, scope, zone)
    type_ = planned.type
    if not isinstance(type_, AtomicType) or type_.root is not TypeRoot.BOOLEAN:
        raise InvalidRequestError(
            "a filter is not a condition", hint="compare something, like: qty <> 0", filter=text
        )
    return planned


def _inputs_of(
    names: Iterable[str], inputs: Mapping[str, frozenset[str]], source: Mapping[str, DataType]
) -> frozenset[str]:
    """Columns of the source, and metadata, that names are computed from or stand for."""
    columns: set[str] = set()
    for name in names:
        columns |= inputs[name] if name in inputs and name not in source else {name}
    return frozenset(columns)


def _check_names(
    rule: TransformRule,
    source: Mapping[str, DataType],
    computed: Mapping[str, Planned],
    masks: Mapping[str, Mask],
) -> None:
    _check_once(rule, masks)
    for name in rule.derived_names:
        if name in source and name not in rule.exclude:
            raise InvalidRequestError(
                "a derived column has the name of a source column",
                hint="choose another name, or exclude the source column",
                column=name,
            )
    for name in rule.partition_columns:
        if name not in computed and (name not in source or name in rule.exclude):
            raise InvalidRequestError(
                "a partition column does not exist",
                hint=nearest(name, source) or "write it like: dt = date_format(at, 'yyyy-MM-dd')",
                column=name,
            )


def table_shape(
    rule: TransformRule,
    source: Sequence[tuple[str, DataType]],
    primary_key: Sequence[str] = (),
    zone: str = "UTC",
) -> TableShape:
    """The columns of a new table.

    Args:
        rule: as configured.
        source: columns of the source, in order.
        primary_key: of the table.
        zone: as `plan_rule`.

    Raises:
        InvalidRequestError: as `plan_rule`; or a key column is excluded, or masked so that
            different keys become one.
    """
    types = dict(source)
    planned = plan_rule(rule, types, zone)
    warnings = [*_missing_warnings(rule, types), *check_key_masks(planned, primary_key)]
    for name in (*primary_key, *rule.partition_columns):
        refuse_timed(planned, name)
    for name in primary_key:
        if name in rule.exclude and name not in planned.computed:
            raise InvalidRequestError("a key column cannot be excluded", column=name)
    columns: list[tuple[str, DataType]] = []
    hidden = {name: types[name] for name in sorted(planned.used_columns) if name in rule.exclude}
    for name, type_ in source:
        if name in rule.exclude:
            continue
        mask = planned.masks.get(name)
        result_type = type_ if mask is None else mask.result_type(type_)
        if mask is not None and result_type != nullable(type_):
            hidden[name] = type_
        columns.append((name, result_type))
    for name, value in planned.computed.items():
        assert value.type is not None
        columns.append((name, nullable(value.type)))
    columns += [(name, METADATA[key].type) for name, key in planned.metadata.items()]
    if rule.soft_delete:
        columns.append((rule.deleted_column, BOOLEAN))
    return TableShape(tuple(columns), rule.partition_columns, hidden, tuple(warnings))


def stored_type(rule: TransformRule, name: str, source: DataType) -> DataType | None:
    """The type that a column of the source has in the table; None when it is excluded.

    For columns that the source gets while the table exists.

    Raises:
        InvalidRequestError: the pipeline makes a column of that name, or the mask does not fit.
    """
    if name in rule.exclude:
        return None
    if name in rule.derived_names:
        raise InvalidRequestError(
            "a derived column has the name of a source column",
            hint="choose another name, or exclude the source column",
            column=name,
        )
    return parse_mask(rule.mask[name]).result_type(source) if name in rule.mask else source


def hidden_to_text(hidden: Mapping[str, DataType]) -> str:
    """`TableShape.hidden` as the text of a table option."""
    return json.dumps({name: type_to_json(type_) for name, type_ in hidden.items()})


def hidden_from_text(text: str) -> dict[str, DataType]:
    """What `hidden_to_text` wrote; empty for an empty text.

    Raises:
        CorruptDataError: the text is of another form.
    """
    try:
        return {name: parse_type(type_) for name, type_ in json.loads(text or "{}").items()}
    except (ValueError, AttributeError) as error:
        raise CorruptDataError("not a list of hidden columns", detail=repr(error)) from error


def _missing_warnings(rule: TransformRule, source: Mapping[str, DataType]) -> list[str]:
    """Warnings of columns that the source does not have (yet): a rule may be for many tables."""
    warnings = []
    for what, names in (("exclude", rule.exclude), ("mask", rule.mask)):
        for name in names:
            if name not in source:
                hint = nearest(name, source)
                warnings.append(f"{what}: there is no column `{name}`" + (hint and f"; {hint}"))
    return warnings


def refuse_timed(planned: PlannedRule, name: str) -> None:
    """Check that a column that locates a row does not depend on the clock.

    Raises:
        InvalidRequestError: it does; the next change would not reach the row.
    """
    if name in planned.timed:
        raise InvalidRequestError(
            "a key or partition column depends on now() or on metadata that differ between the "
            "changes of a row, so they would not reach the same row",
            hint="use a column of the source, such as the row's creation time",
            column=name,
        )


def check_key_masks(planned: PlannedRule, primary_key: Sequence[str]) -> tuple[str, ...]:
    """Warnings of masked key columns.

    Raises:
        InvalidRequestError: a mask maps different keys to one.
    """
    warnings = []
    for name in primary_key:
        mask = planned.masks.get(name)
        if mask is None:
            continue
        if not mask.keeps_apart:
            raise InvalidRequestError(
                "a mask would map different keys to one",
                hint="use sha256, or another primary key",
                column=name,
                mask=mask.name,
            )
        warnings.append(f"key column `{name}` is masked: a change of salt makes all rows new ones")
    return tuple(warnings)


def transform_rule(settings: Settings, table: str) -> TransformRule:
    """The transforms that the settings have for `database.table`; masks add up by column."""
    masks: dict[str, str] = {}
    for rule in settings.tables:
        if rule.covers(table):
            masks.update(rule.mask or {})
    return TransformRule(
        filter=settings.rule_value(table, lambda rule: rule.filter),
        computed=settings.rule_value(table, lambda rule: rule.computed) or (),
        exclude=settings.rule_value(table, lambda rule: rule.columns_exclude) or (),
        mask=masks,
        metadata=settings.sink.metadata_columns,
        metadata_prefix=settings.sink.metadata_prefix,
        soft_delete=settings.rule_value(table, lambda rule: rule.deletes) == "soft",
        partition_by=settings.rule_value(table, lambda rule: rule.partition_by) or (),
    )


def wanted_columns(rule: TransformRule) -> frozenset[str]:
    """Columns of the source that the text of a rule's expressions names.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    filtered = frozenset() if rule.filter is None else _columns_of(parse_expression(rule.filter))
    names = _inputs_of(filtered, inputs, {}).union(*inputs.values())
    return names.difference(rule.all_metadata)


def source_key(rule: TransformRule, primary_key: Sequence[str]) -> tuple[str, ...]:
    """The columns of the source that a configured primary key is made of.

    Those of the key that the source has; if it has none, those that the key is computed from.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    plain = tuple(name for name in primary_key if name not in inputs)
    if plain or not primary_key:
        return plain
    behind = frozenset[str]().union(*(inputs[name] for name in primary_key))
    return tuple(sorted(behind.difference(rule.all_metadata)))


def source_key_of(settings: Settings, table: str) -> tuple[str, ...]:
    """The columns of the source behind the configured key of `database.table`; () = no key.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    key = settings.primary_key(table)
    return source_key(transform_rule(settings, table), key) if key else ()


def moved_by(rule: TransformRule, primary_key: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Key columns that are computed from columns outside of the key, with those columns.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    inputs = _inputs_by_name(rule)
    outside = {*primary_key, *rule.all_metadata}
    moving = {name: inputs[name] - outside for name in primary_key if name in inputs}
    return {name: tuple(sorted(names)) for name, names in moving.items() if names}


def key_recipe(rule: TransformRule, primary_key: Sequence[str], zone: str) -> dict[str, str]:
    """How key columns are computed, as digests, for those that are not plain source columns.

    Another recipe gives other keys: stored rows would not be found any more.

    Raises:
        InvalidRequestError: an expression is malformed.
    """
    texts = {name: f"{text}\0{zone}" for name, text in _inlined(rule).items()}
    texts |= {name: f"mask\0{mask}" for name, mask in rule.mask.items() if name not in texts}
    return {
        name: hashlib.sha256(texts[name].encode()).hexdigest()[:16]
        for name in primary_key
        if name in texts
    }


def _inlined(rule: TransformRule) -> dict[str, str]:
    """The expressions of computed columns, with those of the computed columns that they name."""
    texts: dict[str, str] = {}
    for name, text in rule.assignments:
        earlier = sorted(_columns_of(parse_expression(text)) & texts.keys())
        texts[name] = "\0".join([text.strip(), *(texts[column] for column in earlier)])
    return texts


def check_rule(rule: TransformRule) -> None:
    """Check what can be checked without the columns of a source.

    Raises:
        InvalidRequestError: an expression is malformed or calls an unknown function, a mask or a
            metadata column does not exist, a column is defined twice.
    """
    if rule.filter is not None:
        check_part("filter", rule.filter)
    for text in rule.computed:
        check_part("computed", text)
    for text in rule.partition_by:
        check_part("partition.by", text)
    for mask in rule.mask.values():
        check_part("mask", mask)
    checked_metadata(rule.metadata)
    _check_once(rule, rule.mask)


def _check_once(rule: TransformRule, masked: Iterable[str]) -> None:
    derived = rule.derived_names
    duplicate = next((name for name in derived if derived.count(name) > 1), None)
    if duplicate is not None:
        raise InvalidRequestError("a column is defined twice", column=duplicate)
    column = next((name for name in masked if name in rule.exclude), None)
    if column is not None:
        raise InvalidRequestError("a column is masked and excluded", column=column)


def check_part(kind: str, text: str) -> None:
    """Check one text of a rule.

    Args:
        kind: `filter`, `computed`, `partition.by` or `mask`.
        text: as configured.

    Raises:
        InvalidRequestError: as `check_rule`.
    """
    _CHECKS[kind](text)


def _check_assignment(text: str) -> None:
    _check_expression(split_assignment(text)[1])


def _check_partition(text: str) -> None:
    if "=" in text:
        _check_assignment(text)


def _check_expression(text: str) -> None:
    for node in nodes_of(parse_expression(text)):
        if isinstance(node, Call) and node.name not in FUNCTIONS:
            names = (name for name in FUNCTIONS if name.isidentifier())
            raise expression_error(
                text, node.start, f"there is no function `{node.name}`", nearest(node.name, names)
            )


def _check_mask(text: str) -> None:
    parse_mask(text)


_CHECKS: Mapping[str, Callable[[str], None]] = {
    "filter": _check_expression,
    "computed": _check_assignment,
    "partition.by": _check_partition,
    "mask": _check_mask,
}


def _inputs_by_name(rule: TransformRule) -> dict[str, frozenset[str]]:
    """For each computed column the columns in its expression that are not computed."""
    inputs: dict[str, frozenset[str]] = {}
    for name, text in rule.assignments:
        inputs[name] = _inputs_of(_columns_of(parse_expression(text)), inputs, {})
    return inputs


def _columns_of(node: Node) -> frozenset[str]:
    return frozenset(column.name for column in column_nodes(node))


def column_nodes(node: Node) -> list[ColumnName]:
    """The column references of an expression."""
    return [part for part in nodes_of(node) if isinstance(part, ColumnName)]


def present_rule(rule: TransformRule, table: TableSchema) -> TransformRule:
    """Replace former names of the table's columns in a rule by their present ones.

    When the source renames a column the table's is renamed, too (ADR 0011). A configuration with
    the former name still means the column: neither a rename may remove its mask, nor a new type,
    for which the table got a further column.

    Raises:
        InvalidRequestError: an expression is malformed.
        CorruptDataError: the table's options are not what Lakeward writes.
    """
    names = ColumnNames.of(table.options)
    current_names = {*table.field_names, *rule.derived_names}
    present = {
        earlier: column
        for column, former in names.former.items()
        if column in table.field_names
        for earlier in former
        if earlier not in current_names
    }
    if not present and not names.typed:
        return rule
    masks = {present[name]: mask for name, mask in rule.mask.items() if name in present}
    masks |= {name: mask for name, mask in rule.mask.items() if name not in present}
    for name, columns in names.typed.items():
        if name in masks:
            masks = dict.fromkeys(columns, masks[name]) | masks
    if not present:
        return dataclasses.replace(rule, mask=masks)
    return dataclasses.replace(
        rule,
        filter=None if rule.filter is None else _renamed_expression(rule.filter, present),
        computed=tuple(_renamed_assignment(text, present) for text in rule.computed),
        exclude=tuple(dict.fromkeys(present.get(name, name) for name in rule.exclude)),
        mask=masks,
        partition_by=tuple(
            _renamed_assignment(text, present) if "=" in text else text
            for text in rule.partition_by
        ),
    )


def _renamed_assignment(text: str, present: Mapping[str, str]) -> str:
    name, expression = split_assignment(text)
    return f"{_quoted(name)} = {_renamed_expression(expression, present)}"


def _renamed_expression(text: str, present: Mapping[str, str]) -> str:
    nodes = [node for node in column_nodes(parse_expression(text)) if node.name in present]
    for node in sorted(nodes, key=lambda node: -node.start):
        text = text[: node.start] + _quoted(present[node.name]) + text[node.end :]
    return text


def _quoted(name: str) -> str:
    return f"`{name}`" if '"' in name else f'"{name}"'
