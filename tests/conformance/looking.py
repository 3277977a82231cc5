# SPDX-License-Identifier: Apache-2.0
"""What a `check` looks at: the table, a branch, a system table or a SELECT over them."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from storage.catalog.catalog import FileSystemCatalog
from storage.catalog.system_tables import catalog_system_table
from storage.format.types.types import DataField, type_from_arrow
from storage.table.scan.predicate import parse_predicate
from tests.conformance.id_sets import decoded_like
from tests.conformance.session import TableSession
from tests.conformance.statements import CaseStatements
from tests.conformance.values import expected_rows, found_rows
from tests.golden.values import difference

__all__ = ["Seen", "look", "row_differences"]

_CATALOG = "sys."

_NAME = re.compile(r"(?P<table>[^$]*)(?:\$branch_(?P<branch>[^$]+))?(?:\$(?P<system>\w+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a check found.

    Attributes:
        rows: the rows.
        fields: their columns.
        opened: number of data files that were opened for it.
    """

    rows: pa.Table
    fields: Sequence[DataField]
    opened: int = 0

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [field.name for field in self.fields]

    def comparable(self, unordered: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        """Rows in the comparable form."""
        return found_rows(self.rows, self.fields, unordered)


def look(
    session: TableSession | None,
    body: Mapping[str, Any],
    catalog: FileSystemCatalog,
    statements: CaseStatements | None = None,
) -> Seen:
    """Carry the query of a `check` out.

    Args:
        session: of the case's table; None: it has none.
        body: of the `check`.
        catalog: that the table is in.
        statements: run the statement of a check that has one.

    Raises:
        LakewardError: what the storage layer says of it.
    """
    options = {key: str(value) for key, value in (body.get("options") or {}).items()}
    if "sql" in body:
        assert statements is not None
        rows, opened = statements.rows(body["sql"], options)
        return Seen(rows, _fields_of(rows), opened)
    return _seen(session, body.get("table") or "", {**body, "options": options}, catalog)


def _seen(
    session: TableSession | None,
    name: str,
    body: Mapping[str, Any],
    catalog: FileSystemCatalog,
) -> Seen:
    if name.startswith(_CATALOG):
        rows = catalog_system_table(catalog, name.removeprefix(_CATALOG))
        return Seen(rows, _fields_of(rows))
    if session is None:
        raise ValueError("the case has no table")
    return _table(session, name, body)


def _table(session: TableSession, name: str, body: Mapping[str, Any]) -> Seen:
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"the runner knows no table {name}")
    branch, system = parts["branch"] or "main", parts["system"]
    columns = body.get("columns")
    predicate = parse_predicate(body["filter"]) if "filter" in body else None
    if system is None:
        return Seen(*session.read(body["options"], branch, columns=columns, predicate=predicate))
    rows = session.system(system, body["options"], branch)
    if columns is not None and rows.column_names[: len(columns)] == columns:
        rows = rows.select(columns)
    return Seen(rows, _fields_of(rows))


def _fields_of(rows: pa.Table) -> list[DataField]:
    return [
        DataField(id=number, name=field.name, type=type_from_arrow(field.type))
        for number, field in enumerate(rows.schema)
    ]


def row_differences(body: Mapping[str, Any], seen: Seen, unordered: Sequence[str]) -> Iterator[str]:
    """Every difference between the rows a check wants and those it found."""
    rows = seen.comparable(unordered)

    def comparable(wanted: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        return expected_rows(wanted, seen.fields, unordered)

    if body.get("columns") is not None and seen.names != list(body["columns"]):
        yield f"expected columns {body['columns']}, found {seen.names}"
        return
    if "rows" in body:
        text = difference(*decoded_like(body["rows"], comparable(body["rows"]), rows))
        if text:
            yield text
    if "contains" in body:
        missing = [row for row in comparable(body["contains"]) if row not in rows]
        if missing:
            yield f"does not contain {missing}"
    if "rows_any" in body and all(
        difference(comparable(choice), rows) for choice in body["rows_any"]
    ):
        yield f"found {rows}, none of {body['rows_any']}"
