# SPDX-License-Identifier: Apache-2.0
"""Which table the rows of a source table go to. Pure.

Source: CONFIGURATION.md (`route`). Rules are tried in order, the first whose pattern matches the
whole address of a source table (`server.db.schema.table`, or the same without the server) wins.
Without any rule a table keeps its database and name; with rules, a table that none of them takes is
left out and its records are counted.

Several source tables may share one table. Equal keys of two of them would overwrite each other, so
such a rule either writes a shard column into the key or states that keys are unique.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

from ingest.formats.events import SourceTable
from storage.errors import InvalidOptionError

__all__ = ["Destination", "Route", "Routing", "Shard"]

_REFERENCE = re.compile(r"\$(\d)|\$\{(\w+(?:\.\w+)?)\}|<>")
_VARYING = re.compile(r"[*+?{\[|^]|\\[dDwWsSbB]")
_SOURCE_FIELDS = ("source.server", "source.db", "source.schema", "source.table")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A column that tells the source tables of a shared table apart.

    Attributes:
        column: its name.
        value: template, see `Route.sink_table`.
        in_primary_key: whether it comes first in the primary key.
    """

    column: str
    value: str
    in_primary_key: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One rule.

    Attributes:
        source_table: regular expression for the whole address of a source table.
        sink_table: `database.table`, or `table` in the default database. `$1`…`$9` are groups of
            the pattern, `<>` is the table's name, `${source.db}`, `${source.schema}`,
            `${source.table}` and `${source.server}` are parts of the address.
        shard: of a table that several source tables share.
        keys_are_unique: no key is in two of the source tables that share a table.
    """

    source_table: str
    sink_table: str
    shard: Shard | None = None
    keys_are_unique: bool = False

    @property
    def shares(self) -> bool:
        """Whether the rule lets several source tables into one table."""
        return self.shard is not None or self.keys_are_unique


@dataclasses.dataclass(frozen=True, slots=True)
class Destination:
    """Where a source table goes.

    Attributes:
        table: `database.table`.
        owner: whose the table is; empty = the source table's alone.
        shard: the column that tells its rows from those of others.
        shard_value: its value.
    """

    table: str
    owner: str = ""
    shard: Shard | None = None
    shard_value: str = ""

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
    """

    routes: tuple[Route, ...] = ()
    default_database: str = "lakeward"

    def destination(self, source: SourceTable) -> Destination | None:
        """Where a source table goes; None = nowhere."""
        if not self.routes:
            database = source.database or source.schema or self.default_database
            return Destination(f"{database}.{source.table}")
        for route, pattern in zip(self.routes, self._patterns, strict=True):
            found = pattern.fullmatch(source.address) or pattern.fullmatch(source.label)
            if found is not None:
                return self._of(route, found, source)
        return None

    def _of(self, route: Route, found: re.Match[str], source: SourceTable) -> Destination:
        table = _filled(route.sink_table, found, source)
        if "." not in table:
            table = f"{self.default_database}.{table}"
        owner = f"shared: {route.sink_table}" if route.shares else ""
        if route.shard is None:
            return Destination(table, owner)
        return Destination(table, owner, route.shard, _filled(route.shard.value, found, source))

    @functools.cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(route.source_table) for route in self.routes)

    def check(self) -> None:
        """Find mistakes before the first event.

        Raises:
            InvalidOptionError: a pattern or template is malformed, or a rule lets several source
                tables into one table and says nothing about equal keys.
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


def _filled(template: str, found: re.Match[str], source: SourceTable) -> str:
    def part(reference: re.Match[str]) -> str:
        group, field = reference.group(1), reference.group(2)
        if group is not None:
            return found.group(int(group)) or ""
        return source.table if field is None else _parts(source)[field]

    return _REFERENCE.sub(part, template)


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
    """A rule that may fill one table from several must say what keeps their keys apart."""
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
    """The pattern without what the name of the target takes over from the address."""
    pattern = route.source_table
    used = {int(found.group(1)) for found in _REFERENCE.finditer(route.sink_table) if found[1]}
    spans, opened, number = [], [], 0
    for at, char in enumerate(pattern):
        escaped = at > 0 and pattern[at - 1] == "\\"
        if char == "(" and not escaped:
            capturing = pattern[at + 1 : at + 2] != "?" or pattern[at + 1 : at + 4] == "?P<"
            number += capturing
            opened.append((at, number if capturing else 0))
        elif char == ")" and not escaped and opened:
            start, group = opened.pop()
            if group in used:
                spans.append((start, at + 1))
    rest = pattern
    for start, end in sorted(spans, reverse=True):
        rest = rest[:start] + rest[end:]
    names = {
        found.group(2) or "source.table"
        for found in _REFERENCE.finditer(route.sink_table)
        if not found[1]
    }
    if "source.table" in names:
        rest = rest[: rest.rfind(".")] if "." in rest else ""
        if "source.db" in names:
            rest = ""
    return rest
