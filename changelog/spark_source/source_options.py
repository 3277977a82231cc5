# SPDX-License-Identifier: Apache-2.0
"""The options of `format("lakeward")`: table, view, projection and filter.

A table is named by `path` (its directory, as in `load(path)`), or by `warehouse` and `table`.
Either may end in `$branch_<name>` and in the name of a system table: `db.t$branch_dev$snapshots`.
Every option of a table (docs/reference/table-options.md) may be set for this read or write only,
and every option of an object store; options of a catalog begin with `catalog.`. Spark passes all
keys in lower case.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from storage.catalog.catalog import Catalog
from storage.catalog.options import STORE_PREFIXES
from storage.errors import InvalidOptionError
from storage.options.options import TABLE_OPTIONS, find_option
from storage.table.scan.predicate import Predicate
from storage.table.scan.predicate_text import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.table_types import typed_table

READ_CHANGELOG = "read.changelog"

OWN_OPTIONS = {
    "path": "directory of the table",
    "warehouse": "directory or URL of a warehouse; goes with `table`",
    "table": "`database.table` in the warehouse",
    "columns": "columns to read, separated by commas; Spark prunes none for Python sources",
    "filter": "rows wanted, as SQL: `id > 5 and dt = '2026-01-31'`",
    READ_CHANGELOG: "whether rows come with `_row_kind`; a stream of a keyed table must say it",
    "max.snapshots.per.trigger": "snapshots that one micro-batch takes in at most",
    "max.rows.per.trigger": "changes after which a micro-batch takes in no further snapshot",
    "commit.user": "name of a batch write, which then happens at most once per number",
    "commit.identifier": "its number, growing; in a `foreachBatch` that of the micro-batch",
    "overwrite.partition": "what an overwrite replaces: `dt=2026-01-31,hh=10`",
}
"""Options of the source itself, with their meaning."""

WRITE_OPTIONS = frozenset({"commit.user", "commit.identifier", "overwrite.partition"})
LIMITS = frozenset({"max.snapshots.per.trigger", "max.rows.per.trigger"})
READ_OPTIONS = frozenset({"columns", "filter", READ_CHANGELOG}) | LIMITS

_SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark adds to those of the source."""

_CATALOG_PREFIX = "catalog."
"""Prefix of catalog options: `catalog.metastore`, `catalog.uri`, …"""

_BRANCH = "branch_"
_MARK = "$"
_SYSTEM_DATABASE = "sys"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one read or write.

    Attributes:
        path: directory of the table, without suffixes; None: by warehouse and name.
        warehouse: of the table; None: by path.
        table: `database.table`, without suffixes.
        branch: of the table; None: its main one.
        system_table: name of a system table; None: the rows themselves.
        columns: projection, in order; None: all.
        predicate: row filter; None: all.
        table_options: override those of the table.
        catalog_options: of the catalog, without `catalog.`.
        reader_options: the other options of `OWN_OPTIONS`, by key.
    """

    path: str | None
    warehouse: str | None
    table: str | None
    branch: str | None
    system_table: str | None
    columns: tuple[str, ...] | None
    predicate: Predicate | None
    table_options: Mapping[str, str]
    store_options: Mapping[str, str]
    catalog_options: Mapping[str, str]
    reader_options: Mapping[str, str]

    @staticmethod
    def parse(options: Mapping[str, str]) -> "SourceOptions":
        """Read Spark's options.

        Raises:
            InvalidOptionError: an option is unknown, missing, or contradicts another.
            InvalidRequestError: the filter cannot be parsed.
        """
        entries = {key.lower(): str(value) for key, value in options.items()}
        source = {key: value for key, value in entries.items() if key in OWN_OPTIONS}
        store = {key: value for key, value in entries.items() if key.startswith(STORE_PREFIXES)}
        catalog = {key: value for key, value in entries.items() if key.startswith(_CATALOG_PREFIX)}
        known_keys = {*source, *store, *catalog, *_SPARKS}
        table_keys = [key for key in entries if key not in known_keys]
        for key in table_keys:
            _check_known(key)
        path, warehouse, table = source.get("path"), source.get("warehouse"), source.get("table")
        _check_place(path, warehouse, table)
        if path and catalog:
            raise InvalidOptionError(
                "a table opened by path has no catalog",
                hint="give `warehouse` and `table` instead of `path`",
                key=min(catalog),
            )
        base, branch, system = _unmarked(path or table or "")
        filter_text = source.get("filter", "").strip()
        return SourceOptions(
            path=base if path else None,
            warehouse=None if path else warehouse,
            table=None if path else base,
            branch=branch,
            system_table=system,
            columns=_names(source["columns"]) if source.get("columns") else None,
            predicate=parse_predicate(filter_text) if filter_text else None,
            table_options={key: entries[key] for key in table_keys},
            store_options=store,
            catalog_options={
                key.removeprefix(_CATALOG_PREFIX): value for key, value in catalog.items()
            },
            reader_options=source,
        )

    @property
    def reads_changelog(self) -> bool:
        """Whether rows have their kinds."""
        return bool(self.flag(READ_CHANGELOG))

    def flag(self, key: str) -> bool | None:
        """A boolean; None if the option is not set.

        Raises:
            InvalidOptionError: it is neither `true` nor `false`.
        """
        text = self.reader_options.get(key)
        if text is None:
            return None
        if text.strip().lower() not in ("true", "false"):
            raise InvalidOptionError("option is neither true nor false", key=key, value=text)
        return text.strip().lower() == "true"

    @property
    def catalog_table(self) -> str | None:
        """Name of a system table of the whole catalog, `sys.<name>`; None: of a table."""
        database, _, name = (self.table or "").partition(".")
        return name if database == _SYSTEM_DATABASE else None

    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return Catalog.open(self.warehouse or "", {**self.store_options, **self.catalog_options})

    def open(self) -> FileStoreTable | Any:
        """The table, with its dynamic options.

        Raises:
            NotFoundError: there is no such table, branch, tag, or snapshot.
            InvalidOptionError: the options contradict each other or those of the table.
        """
        if self.path is not None:
            store = self.store_options or None
            core = FileStoreTable.open(self.path, options=store, branch=self.branch)
            table = typed_table(core)
        else:
            mark = f"{_MARK}{_BRANCH}{self.branch}" if self.branch else ""
            table = self.catalog().table(f"{self.table}{mark}")
        return table.with_options(self.table_options) if self.table_options else table

    def refuse(self, keys: Iterable[str], what: str) -> None:
        """Refuse options that would be ignored.

        Args:
            what: what does not support them.

        Raises:
            InvalidOptionError: one is set.
        """
        for key in sorted(keys):
            if key in self.reader_options:
                raise InvalidOptionError(f"{what} has no such option", hint="remove it", key=key)

    def count(self, key: str) -> int | None:
        """A positive integer; None if the option is not set.

        Raises:
            InvalidOptionError: it is not.
        """
        if key not in self.reader_options:
            return None
        number = self.number(key)
        if number < 1:
            raise InvalidOptionError("option is not positive", key=key, value=number)
        return number

    def number(self, key: str) -> int:
        """A non-negative integer of an option that is set.

        Raises:
            InvalidOptionError: it is not.
        """
        text = self.reader_options[key].strip()
        if not text.isdecimal():
            raise InvalidOptionError("option is not a non-negative integer", key=key, value=text)
        return int(text)


def _check_place(path: str | None, warehouse: str | None, table: str | None) -> None:
    if path and (warehouse or table):
        raise InvalidOptionError(
            "conflicting options for the table",
            hint="give `path` alone, or `warehouse` and `table`",
            path=path,
        )
    if path or (warehouse and table):
        return
    raise InvalidOptionError(
        "no table given",
        hint='give its directory, load("/lake/db.db/orders"), or the options `warehouse` and '
        "`table` (`db.orders`)",
        missing="table" if warehouse else "path",
    )


def _unmarked(name: str) -> tuple[str, str | None, str | None]:
    """A name without its suffixes, the branch, the system table."""
    head, slash, last = name.rpartition("/")
    base, *marks = last.split(_MARK)
    branch = system = None
    if marks and marks[0].startswith(_BRANCH):
        branch = marks.pop(0).removeprefix(_BRANCH)
    if marks:
        system = marks.pop(0)
    if marks or branch == "" or system == "" or not base:
        raise InvalidOptionError(
            "not a table name",
            hint="write `db.t`, `db.t$branch_dev`, `db.t$snapshots` or `db.t$branch_dev$snapshots`",
            table=name,
        )
    return f"{head}{slash}{base}", branch, system


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip().strip("`") for part in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise InvalidOptionError(
            "empty or duplicate column names", hint="write `id,name`", columns=text
        )
    return names


def _check_known(key: str) -> None:
    if find_option(key) is not None or key.startswith(("lakeward.", "parquet.", "orc.", "avro.")):
        return
    keys: Sequence[str] = [*OWN_OPTIONS, *(row.key for row in TABLE_OPTIONS)]
    matches = difflib.get_close_matches(key, keys, 1)
    raise InvalidOptionError(
        "there is no such option",
        hint=f"did you mean `{matches[0]}`?" if matches else "see docs/reference/table-options.md",
        key=key,
    )
