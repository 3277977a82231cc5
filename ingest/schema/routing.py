# SPDX-License-Identifier: Apache-2.0
r"""Which table the rows of a source table go to. Pure.

Source: configuration.md (`route`). Rules are tried in order, the first whose pattern matches the
whole address of a source table (`server.db.schema.table`, or the same without the server) wins.
Without any rule a table keeps its database and name; with rules, a table that none of them matches
is left out and its records are counted.

Several source tables may share one table. Equal keys of two of them would overwrite each other, so
such a rule either writes a shard column into the key or states that keys are unique.

A table of the source never becomes one of Lakeward's own, whatever the case of its name, and names
that the table format forbids are not used. Such a destination is refused, and its records go to
quarantine; with `sink.names.sanitize` a forbidden name is replaced instead:

* every `/ \ $ . :`, every control character and every blank at an end becomes `_`;
* an empty name becomes `_`, the database `sys` becomes `sys_`;
* a name that is too long for file systems (a table's of more than 255 bytes, a database's of more
  than 213) is cut after 191, and `_` with 8 hexadecimal digits of its SHA-256 follows.

Two names may become one. The table then belongs to the source table for which it was created
(`lakeward.source-table`), and the other's records go to quarantine.
"""

import dataclasses
import enum
import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.choices import ChangeKind
from ingest.config.setting import duration
from ingest.config.settings import Route, Settings, Shard
from ingest.decode.columns import ColumnNames, folded
from ingest.decode.events import SourceTable, TypeRequests
from ingest.errors import SchemaStopError
from storage.errors import InvalidOptionError
from storage.format.metadata.layout import FORBIDDEN, SYSTEM_DATABASE, name_refused
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import AtomicType, TypeRoot

_REFERENCE = re.compile(r"\$(\d)|\$\{(\w+(?:\.\w+)?)\}|<>")
_VARYING = re.compile(r"[*+?{\[|^]|\\[dDwWsSbB]")
_LONGEST = {"database": 213, "table": 255}
"""Longest names of file systems [bytes]; a database is created by a file with a longer name."""

_PREFIX_BYTES = 191
"""Prefix of a longer one that is retained [bytes], before its hash."""

_SOURCE_FIELDS = ("source.server", "source.db", "source.schema", "source.table")


@dataclasses.dataclass(frozen=True, slots=True)
class Destination:
    """Where a source table goes.

    Attributes:
        table: `database.table`.
        owner: owner of a shared table; empty = the source table.
        shard: the column that distinguishes its rows from those of others.
        shard_value: its value.
        original_name: the name from the source table or the rule, where it is replaced; else empty.
        refusal: why nothing may be written there; "" = it may.
        is_own_table: whether it is refused because the table is one of Lakeward's own.
    """

    table: str
    owner: str = ""
    shard: Shard | None = None
    shard_value: str = ""
    original_name: str = ""
    refusal: str = ""
    is_own_table: bool = False

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """Columns with one value in all rows of the source table."""
        return () if self.shard is None else ((self.shard.column, self.shard_value),)

    @property
    def key_prefix(self) -> tuple[str, ...]:
        """Columns that come first in the primary key, before those of the source."""
        shard = self.shard
        return (shard.column,) if shard is not None and shard.in_primary_key else ()


@dataclasses.dataclass(frozen=True)
class Routing:
    """All rules of a pipeline.

    Attributes:
        routes: in order.
        default_database: of targets and events that name none.
        own_tables: Lakeward's own tables, and their purposes.
        sanitize: whether names that the table format forbids are replaced.
    """

    routes: tuple[Route, ...] = ()
    default_database: str = "lakeward"
    own_tables: tuple[tuple[str, str], ...] = ()
    sanitize: bool = False

    def destination(self, source: SourceTable) -> Destination | None:
        """Where a source table goes, which may be refused; None = nowhere."""
        if not self.routes:
            database = source.database or source.schema or self.default_database
            return self._destination_named(source, database, source.table)
        for route, pattern in zip(self.routes, self._patterns, strict=True):
            match = pattern.fullmatch(source.address) or pattern.fullmatch(source.label)
            if match is not None:
                return self._destination_by(route, match, source)
        return None

    def writable_destination(self, source: SourceTable) -> Destination | None:
        """Where rows of a source table are written; None = nowhere."""
        destination = self.destination(source)
        return None if destination is None or destination.refusal else destination

    def _destination_by(
        self, route: Route, match: re.Match[str], source: SourceTable
    ) -> Destination:
        target = _expanded(route.sink_table, match, source)
        table = target
        if self.sanitize:  # a dot in one part of the address does not end the database's name
            table = _expanded(route.sink_table, match, source, _sanitized)
        database, dot, name = table.partition(".")
        if not dot:
            database, name = self.default_database, table
        place = self._destination_named(source, database, name, target)
        owner = f"shared: {route.sink_table}" if route.shares else ""
        shard = route.shard
        value = "" if shard is None else _expanded(shard.value, match, source)
        return dataclasses.replace(place, owner=owner, shard=shard, shard_value=value)

    def _destination_named(
        self, source: SourceTable, database: str, name: str, requested_name: str = ""
    ) -> Destination:
        requested_name = requested_name or f"{database}.{name}"
        if self.sanitize:
            database, name = _sanitized(database, "database"), _sanitized(name)
        table = f"{database}.{name}"
        original_name = requested_name if requested_name not in (table, name) else ""
        conflict = self._own_refused(source, table)
        refusal = conflict or _name_refused(source, database, name)
        return Destination(
            table, original_name=original_name, refusal=refusal, is_own_table=bool(conflict)
        )

    def _own_refused(self, source: SourceTable, table: str) -> str:
        purpose = self._purposes.get(folded(table))
        if purpose is None:
            return ""
        return (
            f"{table} is the name of a table of Lakeward's own ({purpose}): send source table "
            f"{source.address} to another table with a rule of `route`"
        )

    @functools.cached_property
    def _purposes(self) -> Mapping[str, str]:
        return {folded(name): purpose for name, purpose in self.own_tables}

    @functools.cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(route.source_table) for route in self.routes)

    def check(self) -> None:
        """Validate the rules before the first event.

        Raises:
            InvalidOptionError: a pattern or template is malformed, or a rule maps several
            source tables to one table without an answer for equal keys.
        """
        for number, route in enumerate(self.routes):
            key = f"route[{number}]"
            try:
                groups = re.compile(route.source_table).groups
            except re.error as error:
                raise InvalidOptionError(
                    "not a regular expression",
                    detail=str(error),
                    key=f"{key}.source-table",
                    value=route.source_table,
                ) from error
            _check_template(route.sink_table, groups, f"{key}.sink-table")
            if route.shard is not None:
                _check_template(route.shard.value, groups, f"{key}.shard.value")
                if not _REFERENCE.search(route.shard.value):
                    raise InvalidOptionError(
                        "the shard value is the same for every source table",
                        hint="use `${source.db}`, `${source.table}` or a group such as `$1`",
                        key=f"{key}.shard.value",
                        value=route.shard.value,
                    )
            _check_sharing(route, key)
            self._check_target(route, key)

    def _check_target(self, route: Route, key: str) -> None:
        """A rule that names one table must name one that may be written."""
        if _REFERENCE.search(route.sink_table):
            return
        table = route.sink_table
        table = table if "." in table else f"{self.default_database}.{table}"
        database, _, name = table.partition(".")
        purpose = self._purposes.get(folded(table))
        hint = "name another table"
        problem = name_refused("database", database) or name_refused("table", name)
        if purpose is not None:
            problem = f"this is the name of a table of Lakeward's own ({purpose})"
        elif problem:
            hint = f"{hint}; its name has no blanks at the ends and none of / \\ $ . :"
        if problem:
            raise InvalidOptionError(
                problem, hint=hint, key=f"{key}.sink-table", value=route.sink_table
            )


def _expanded(
    template: str,
    match: re.Match[str],
    source: SourceTable,
    form: Callable[[str], str] = str,
) -> str:
    """A template with its references replaced, parts of the address transformed by `form`."""

    def part(reference: re.Match[str]) -> str:
        group, field = reference.group(1), reference.group(2)
        if group is not None:
            return match.group(int(group)) or ""
        part = source.table if field is None else _parts(source)[field]
        return form(part) if part else part

    return _REFERENCE.sub(part, template)


def _sanitized(name: str, what: str = "table") -> str:
    """A name that the table format allows; one that it allows stays. See the module."""
    if name_refused(what, name):
        trimmed = name.strip()
        ends = len(name) - len(name.lstrip()), len(name) - len(name.rstrip())
        padded = "_" * ends[0] + trimmed + "_" * ends[1] if trimmed else "_" * max(1, len(name))
        name = FORBIDDEN.sub("_", padded)
        name = f"{name}_" if what == "database" and name == SYSTEM_DATABASE else name
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _LONGEST[what]:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:8]
    return f"{raw[:_PREFIX_BYTES].decode('utf-8', 'ignore')}_{digest}"


def _name_refused(source: SourceTable, database: str, name: str) -> str:
    for what, part in (("database", database), ("table", name)):
        if problem := name_refused(what, part):
            return (
                f"{problem} by the table format: `{part}`; set `sink.names.sanitize: true`, or "
                f"send source table {source.address} to another table with a rule of `route`"
            )
    return ""


def _parts(source: SourceTable) -> Mapping[str, str]:
    values: Sequence[str] = (source.server, source.database, source.schema, source.table)
    return dict(zip(_SOURCE_FIELDS, values, strict=True))


def _check_template(template: str, groups: int, key: str) -> None:
    for reference in _REFERENCE.finditer(template):
        group, field = reference.group(1), reference.group(2)
        if group is not None and not 1 <= int(group) <= groups:
            raise InvalidOptionError(
                f"${group} is no group of the pattern",
                hint=f"the pattern has {groups} groups",
                key=key,
                value=template,
            )
        if field is not None and field not in _SOURCE_FIELDS:
            raise InvalidOptionError(
                "unknown reference",
                hint=f"there are {', '.join(f'${{{name}}}' for name in _SOURCE_FIELDS)}",
                key=key,
                value=template,
            )


def _check_sharing(route: Route, key: str) -> None:
    """A rule that may fill one table from several must state what distinguishes their keys."""
    if route.shares or not _VARYING.search(_unreferenced(route)):
        return
    raise InvalidOptionError(
        "several source tables may come together in one table, where rows with equal keys would "
        "overwrite each other",
        hint="add `shard: {column: _shard, value: '${source.db}'}`; or, if no key is ever in two "
        "of them, `shard: {keys.are.unique: true}`; or use a group of the pattern in `sink-table`",
        key=f"{key}.sink-table",
        value=route.sink_table,
    )


def _unreferenced(route: Route) -> str:
    """The pattern without the parts of the address that the name of the target contains."""
    pattern = route.source_table
    group_numbers = {
        int(match.group(1)) for match in _REFERENCE.finditer(route.sink_table) if match[1]
    }
    spans, open_groups, number = [], [], 0
    for at, char in enumerate(pattern):
        escaped = at > 0 and pattern[at - 1] == "\\"
        if char == "(" and not escaped:
            capturing = pattern[at + 1 : at + 2] != "?" or pattern[at + 1 : at + 4] == "?P<"
            number += capturing
            open_groups.append((at, number if capturing else 0))
        elif char == ")" and not escaped and open_groups:
            start, group = open_groups.pop()
            if group in group_numbers:
                spans.append((start, at + 1))
    pattern_rest = pattern
    for start, end in sorted(spans, reverse=True):
        pattern_rest = pattern_rest[:start] + pattern_rest[end:]
    names = {
        match.group(2) or "source.table"
        for match in _REFERENCE.finditer(route.sink_table)
        if not match[1]
    }
    if "source.table" in names:
        pattern_rest = pattern_rest[: pattern_rest.rfind(".")] if "." in pattern_rest else ""
        if "source.db" in names:
            pattern_rest = ""
    return pattern_rest


def routing_of(settings: Settings) -> Routing:
    """Which source table of a pipeline goes where."""
    sink = settings.sink
    return Routing(settings.routes, sink.default_database, settings.own_tables, sink.sanitize_names)


def check_routes(settings: Settings) -> None:
    """Refuse rules that cannot work, and a quarantine table that is the history's.

    Raises:
        InvalidOptionError: see `Routing.check`.
    """
    routing_of(settings).check()
    if len({folded(name) for name, _ in settings.own_tables}) < len(settings.own_tables):
        raise InvalidOptionError(
            "Lakeward keeps the history of schema changes in this table",
            hint="give the quarantine table another name",
            key="bad.records.table",
            value=settings.bad_records.table,
        )


# Event time of a table: `tables[].watermark` = `<column> - <interval>`.
#
# The watermark of a snapshot is the highest value of the column among all rows committed so far,
# less the interval. Tasks report the highest value of their rows; the driver puts the difference
# into the commit, and storage never lets it go back. Partitions of a topic that are silent do not
# hold it. A column without zone counts as UTC, which is how Paimon keeps it.


_SEPARATOR = " - "
_ROOTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)


@dataclasses.dataclass(frozen=True, slots=True)
class EventTime:
    """A setting `watermark`.

    Attributes:
        column: of the table.
        delay_ms: how late rows may be [ms].
    """

    column: str
    delay_ms: int


@functools.lru_cache(maxsize=1024)
def event_time(text: str) -> EventTime:
    """Read a setting.

    Raises:
        ValueError: it is not `<column> - <interval>`.
    """
    column, separator, interval = text.rpartition(_SEPARATOR)
    if not separator or not column.strip():
        raise ValueError("`<column> - <interval>`, such as `created_at - 30s`")
    return EventTime(column.strip(), round(1000 * duration.parse(interval.strip())))


def check_watermarks(settings: Settings) -> None:
    """Refuse rules that cannot be read.

    Raises:
        InvalidOptionError: names the rule.
    """
    for number, rule in enumerate(settings.tables):
        if rule.watermark is None:
            continue
        try:
            event_time(rule.watermark)
        except ValueError as wanted:
            raise InvalidOptionError(
                "invalid value of a setting",
                detail=f"expected {wanted}",
                key=f"tables[{number}].watermark",
                value=rule.watermark,
            ) from wanted


def watermark_refused(schema: TableSchema, text: str) -> str:
    """Why a table of this schema cannot have the watermark; "" when it can."""
    column = event_time(text).column
    if column not in schema.field_names:
        return (
            f"watermark: the table has no column {column}; it has "
            f"{', '.join(schema.field_names)}: correct `watermark` of its rule, or add the column "
            "by `computed`"
        )
    type_ = schema.field(column).type
    if not isinstance(type_, AtomicType) or type_.root not in _ROOTS:
        return (
            f"watermark: column {column} is no TIMESTAMP: name another, or make one by `computed`, "
            f"such as `{column}_at = cast({column} as timestamp)`"
        )
    return ""


def watermark_of(settings: Settings, table: str, event_time_ms: int | None) -> int | None:
    """The watermark of a commit whose rows reach an event time [epoch ms]; None = it has none."""
    text = settings.rule_value(table, lambda rule: rule.watermark)
    if text is None or event_time_ms is None:
        return None
    return event_time_ms - event_time(text).delay_ms


def highest_ms(rows: pa.RecordBatch, column: str) -> int | None:
    """The highest event time of some rows [epoch ms, rounded down]; None when there is none."""
    index = rows.schema.get_field_index(column)
    if index < 0 or not pa.types.is_timestamp(rows.schema.field(index).type):
        return None
    values = rows.column(index)
    if values.null_count == len(values):
        return None
    unit = values.type.unit
    highest = np.datetime64(pc.max(values).value, unit)
    return int(highest.astype("datetime64[ms]").astype(np.int64))


# Decisions of a pipeline's settings on schema changes. Pure.
#
# Terms are Flink CDC's: five modes (`pipeline.schema.change.behavior`), kinds of changes with their
# partial names (`sink.include.schema.changes`, `sink.exclude.schema.changes`), and per table the
# handling of a type that does not convert (`on.incompatible`). schema-changes.md has the whole
# table.
#
# The driver's decisions on shapes that no schema covers hold for the process (`Answers`), because a
# request costs a second run of a batch.


class Mode(enum.StrEnum):
    """`pipeline.schema.change.behavior`."""

    EVOLVE = "evolve"
    TRY_EVOLVE = "try_evolve"
    LENIENT = "lenient"
    IGNORE = "ignore"
    EXCEPTION = "exception"


class Incompatible(enum.StrEnum):
    """`tables[].on.incompatible`."""

    ROWS = "quarantine_rows"
    TABLE = "quarantine_table"
    NEW_COLUMN = "new_column"
    STRING = "string"
    FAIL = "fail"


class PolicyDecision(enum.Enum):
    """Decision of the settings on a change."""

    MAKE = "made"
    KEEP = "not made: the table stays as it is"
    STOP = "the stream stops"


class Outcome(enum.StrEnum):
    """Outcome of a change."""

    APPLIED = "applied"
    IGNORED = "ignored"
    REFUSED = "refused"
    PARKED = "parked"
    STOPPED = "stopped"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One change and its outcome: a row of the history.

    Attributes:
        kind: of the change.
        column: of the table; "" = the change is of the whole table.
        old: type or name before; "" = there was none.
        new: type or name after; "" = there is none.
        outcome: outcome of the change.
        reason: why it was not applied, or applied in another way; "" = as requested.
        source: the source table that requested it.
        topic: of the first record that requested it.
        partition: of that record.
        offset: of that record.
    """

    kind: ChangeKind
    column: str
    old: str
    new: str
    outcome: Outcome
    reason: str = ""
    source: str = ""
    topic: str = ""
    partition: int = -1
    offset: int = -1

    @property
    def text(self) -> str:
        """For people and logs."""
        what = " ".join(part for part in (self.kind.replace(".", " "), self.column) if part)
        types = " to ".join(part for part in (self.old, self.new) if part)
        text = f"{what}: {types}" if types else what
        return f"{text} ({self.reason})" if self.reason else text


_DESTRUCTIVE = frozenset({ChangeKind.TRUNCATE_TABLE, ChangeKind.DROP_TABLE})
"""Left out in `lenient` unless named in `include`."""

_DEFAULTS = {Mode.EVOLVE: Incompatible.FAIL}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy:
    """Decisions of the settings for one table.

    Attributes:
        mode: of the pipeline.
        kinds: of changes that are applied if the mode allows.
        incompatible_rule: how types that do not convert are handled; None = not set by the rules.
        exact_names: whether a column that is spelt in another case is another column.
    """

    mode: Mode = Mode.LENIENT
    kinds: frozenset[ChangeKind] = frozenset(ChangeKind) - _DESTRUCTIVE
    incompatible_rule: Incompatible | None = None
    exact_names: bool = False

    @staticmethod
    def of(
        mode: str,
        include: Iterable[str],
        exclude: Iterable[str],
        incompatible: str | None,
        *,
        exact_names: bool = False,
    ) -> "ChangePolicy":
        """From settings; kinds by their full names, no kind included = all."""
        behavior = Mode(mode)
        included = frozenset(ChangeKind(name) for name in include)
        if not included:
            included = frozenset(ChangeKind)
            if behavior is Mode.LENIENT:
                included -= _DESTRUCTIVE
        excluded = frozenset(ChangeKind(name) for name in exclude)
        handling = None if incompatible is None else Incompatible(incompatible)
        return ChangePolicy(
            mode=behavior,
            kinds=included - excluded,
            incompatible_rule=handling,
            exact_names=exact_names,
        )

    @property
    def incompatible(self) -> Incompatible:
        """Handling of a type that does not convert."""
        return self.incompatible_rule or _DEFAULTS.get(self.mode, Incompatible.ROWS)

    @property
    def takes_text(self) -> bool:
        """Whether a column becomes STRING because the source's did: nothing is lost by it."""
        return self.incompatible_rule is None and self.mode in (Mode.EVOLVE, Mode.TRY_EVOLVE)

    def decide(self, kind: ChangeKind) -> PolicyDecision:
        """The decision on a change of that kind.

        A table is created in every mode, as Flink CDC does: without it there is nowhere to write.
        """
        if kind not in self.kinds:
            return PolicyDecision.KEEP
        if kind is ChangeKind.CREATE_TABLE:
            return PolicyDecision.MAKE
        if self.mode is Mode.EXCEPTION:
            return PolicyDecision.STOP
        return PolicyDecision.KEEP if self.mode is Mode.IGNORE else PolicyDecision.MAKE

    def why_kept(self, kind: ChangeKind) -> str:
        """The reason of a decision `KEEP`."""
        if kind not in self.kinds:
            return f"{kind} is not among the included schema changes"
        return f"schema.change.behavior is {self.mode}"


def change_policy(settings: Settings, table: str) -> ChangePolicy:
    """Of `database.table`."""
    return ChangePolicy.of(
        settings.pipeline.schema_change_behavior,
        settings.sink.include_schema_changes,
        settings.sink.exclude_schema_changes,
        settings.rule_value(table, lambda rule: rule.on_incompatible),
        exact_names=settings.events.exact_names,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Decisions on the source columns of one table.

    Attributes:
        ignored: columns of the source that are left out of rows.
        fixed: columns of the source and types (as text) that request nothing.
    """

    ignored: frozenset[str] = frozenset()
    fixed: frozenset[tuple[str, str]] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ignored or self.fixed)

    def and_also(self, ignored: Iterable[str], fixed: Iterable[tuple[str, str]]) -> "Answers":
        """With further answers."""
        return Answers(self.ignored | {*ignored}, self.fixed | {*fixed})


class AnswerBook:
    """The decisions for all tables."""

    def __init__(self) -> None:
        self._answers: dict[str, Answers] = {}

    def take(
        self,
        name: str,
        ignored: Collection[str],
        fixed: Collection[tuple[str, str]],
        *,
        changed: bool,
    ) -> None:
        """Add answers of a decision; a changed table forgets older ones."""
        answers = Answers() if changed else self._answers.get(name, Answers())
        self._answers[name] = answers.and_also(ignored, fixed)

    def current(self) -> dict[str, Answers]:
        """All answers, for further runs of the same batch."""
        return {name: answers for name, answers in self._answers.items() if answers}

    def lasting(self, options: Mapping[str, Mapping[str, str]]) -> dict[str, Answers]:
        """Those that hold for further batches.

        A dropped column may exist again, which each batch determines.
        """
        lasting: dict[str, Answers] = {}
        for name, answers in self.current().items():
            dropped_columns = ColumnNames.of(options.get(name, {})).dropped
            lasting[name] = Answers(answers.ignored.difference(dropped_columns), answers.fixed)
        return {name: answers for name, answers in lasting.items() if answers}


@dataclasses.dataclass(frozen=True, slots=True)
class AppliedChanges:
    """Outcome of a batch's schema deltas.

    Attributes:
        applied: (table, change) pairs, for people.
        refused: tables some of whose records fit no allowed change, and why.
        verdicts: (table, outcome of one change), of all requested changes.
    """

    applied: tuple[tuple[str, str], ...]
    refused: Mapping[str, str]
    verdicts: tuple[tuple[str, Verdict], ...] = ()


def stop_error(table: str, verdict: Verdict) -> SchemaStopError:
    """The error that ends the stream before anything of the batch is committed."""
    return SchemaStopError(
        "a schema change stops the stream",
        hint="alter the table by hand or allow the change in the settings, then start again: the "
        "stream resumes exactly here",
        table=table,
        change=verdict.text,
        topic=verdict.topic,
        partition=verdict.partition,
        offset=verdict.offset,
    )


def type_requests_of(policy: ChangePolicy) -> TypeRequests:
    """Which values of other types a table's records may request.

    Types that events declare are changes of the source's schema. A single deviating value of an
    event that declares none is a change only if the table's rules say so.
    """
    return TypeRequests.DECLARED if policy.incompatible_rule is None else TypeRequests.ALL
