# SPDX-License-Identifier: Apache-2.0
"""Runs cases of statements, and writes down what they give.

A case has `id`, perhaps `tables` and `catalog`, and `steps`. A step is `sql` with one of: `rows`
(and `columns`), `affected`, or `error`: the class, and what its text must hold (`message`, `hint`,
`line`, `column`). Rows are compared in order where the statement has ORDER BY, else as a multiset.
`<tmp>` stands for the warehouse.

    python -m tests.sql            # run all cases
    python -m tests.sql --rewrite tests/sql/cases/select.yaml   # write results; review the diff
"""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import yaml

from ingest.observe.text_table import plain, rows_of
from storage.catalog.catalog import Catalog, FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.errors import LakewardError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import VALUE_KIND, parse_type
from storage.io.local import LocalFileIO
from storage.sql.session import Result, SqlSession
from tests.table_kit import KINDS

CASES = pathlib.Path(__file__).parent / "cases"
DATABASE = "db"
_NOW_MS = 1_700_000_000_000
_MINUTE_MS = 60_000


def load(path: pathlib.Path) -> list[dict[str, Any]]:
    """The cases of a file."""
    found: list[dict[str, Any]] = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return found


def run_case(case: Mapping[str, Any], warehouse: pathlib.Path) -> Iterator[str]:
    """The differences between what a case wants and what its statements give."""
    session = open_session(case, warehouse)
    for number, step in enumerate(case["steps"], start=1):
        wanted = {key: value for key, value in step.items() if key != "sql"}
        before = newest(session) if "error" in wanted else {}
        found = outcome(session, step["sql"], warehouse)
        if "error" in found and before and newest(session) != before:
            yield f"step {number}: {step['sql']}\n  failed, and made a snapshot"
        for text in differences(wanted, found, step["sql"]):
            yield f"step {number}: {step['sql']}\n  {text}"


def newest(session: SqlSession) -> dict[str, int | None]:
    """The newest snapshots of the tables of a case."""
    catalog = session.catalog
    if DATABASE not in catalog.list_databases():
        return {}
    names = [f"{DATABASE}.{name}" for name in catalog.list_tables(DATABASE)]
    return {
        name: None if (latest := catalog.newest_snapshot(name)) is None else latest.id
        for name in names
    }


def open_session(case: Mapping[str, Any], warehouse: pathlib.Path) -> SqlSession:
    """A session with the tables of a case."""
    catalog: Catalog
    clock = ManualClock(_NOW_MS)
    if case.get("catalog") == "jdbc":
        uri = f"jdbc:sqlite:{warehouse}/catalog.db"
        catalog = Catalog.open(str(warehouse), {"metastore": "jdbc", "uri": uri})
    else:
        file_io = LocalFileIO(durable=False)
        catalog = FileSystemCatalog(str(warehouse), file_io, clock, SeededIds(1))
    catalog.create_database(DATABASE)
    for name, description in (case.get("tables") or {}).items():
        make_table(catalog, name, description, clock)
    session = SqlSession(catalog, DATABASE)
    session.options["table.local-time-zone"] = "UTC"
    return session


def make_table(
    catalog: Catalog, name: str, description: Mapping[str, Any], clock: ManualClock
) -> None:
    """Make a table and write its commits, a minute apart."""
    table = catalog.create_table(
        f"{DATABASE}.{name}",
        new_schema(
            [(column, parse_type(type_)) for column, type_ in description["columns"]],
            primary_keys=description.get("key", ()),
            partition_keys=description.get("partition", ()),
            options={"bucket": "1" if description.get("key") else "-1"}
            | description.get("options", {}),
        ),
    )
    arrow = table.schema.arrow_schema
    for number, rows in enumerate(description.get("commits", ()), start=1):
        clock.advance(_MINUTE_MS)
        kinds = pa.array([KINDS[row[0]] for row in rows], pa.int8())
        columns = [
            pa.array([_value(row[place], field.type) for row in rows], field.type)
            if not pa.types.is_temporal(field.type)
            else pa.array([row[place] for row in rows], pa.string()).cast(field.type)
            for place, field in enumerate(arrow, start=1)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow)
        with table.new_write("test") as writer:
            writer.write(batch.append_column(VALUE_KIND, kinds))
            table.new_commit("test").commit(writer.prepare_commit(), number)


def _value(value: Any, type_: pa.DataType) -> Any:
    """A value of YAML, where maps are lists of pairs."""
    return list(map(tuple, value)) if value is not None and pa.types.is_map(type_) else value


class _Dumper(yaml.SafeDumper):
    """Writes every part in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def outcome(session: SqlSession, text: str, warehouse: pathlib.Path) -> dict[str, Any]:
    """What a statement gives, in the form of a step."""
    place = str(warehouse)
    try:
        *_, result = session.execute(text.replace("<tmp>", place))
    except LakewardError as error:
        return {"error": _error(error, place)}
    return _document(result, place)


def _document(result: Result, place: str) -> dict[str, Any]:
    if result.rows is None:
        return {"affected": result.affected}
    rows = [[_masked(plain(value), place) for value in row] for row in rows_of(result.rows)]
    return {"columns": result.rows.column_names, "rows": rows}


def _error(error: LakewardError, place: str) -> dict[str, Any]:
    facts = {"class": type(error).__name__, "message": error.message}
    if error.detail:
        facts["detail"] = error.detail
    if error.hint:
        facts["hint"] = error.hint
    facts |= {key: error.context[key] for key in ("line", "column") if key in error.context}
    return {key: _masked(value, place) for key, value in facts.items()}


def _masked(value: Any, place: str) -> Any:
    return value.replace(place, "<tmp>") if isinstance(value, str) else value


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], text: str) -> Iterator[str]:
    """What differs between a wanted and a found outcome."""
    if not wanted:
        yield f"the step wants nothing; found {found}"
    for key, value in wanted.items():
        seen = found.get(key)
        if key == "error" and isinstance(seen, dict):
            for part, wish in value.items():
                exact = part in ("line", "column", "class")
                if seen.get(part) != wish if exact else wish not in seen.get(part, ""):
                    yield f"{part}: expected {wish!r}, found {seen}"
        elif key == "rows" and seen is not None and not re.search(r"ORDER\s+BY", text, re.I):
            if sorted(map(repr, value)) != sorted(map(repr, seen)):
                yield f"rows: expected {value}, found {seen}"
        elif seen != value:
            yield f"{key}: expected {value!r}, found {found}"


def rewritten(path: pathlib.Path, temporary: pathlib.Path) -> str:
    """The text of a file with the outcomes of its statements."""
    cases = load(path)
    for number, case in enumerate(cases):
        warehouse = temporary / str(number)
        warehouse.mkdir()
        session = open_session(case, warehouse)
        case["steps"] = [
            {"sql": step["sql"], **outcome(session, step["sql"], warehouse)}
            for step in case["steps"]
        ]
    head = (
        "# Statements and what they give; written by `python -m tests.sql --rewrite`, reviewed.\n"
    )
    return head + yaml.dump(
        cases,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
