# SPDX-License-Identifier: Apache-2.0
"""What `lakeward table scan` reads: a table, a branch, a system table; a snapshot or changes.

Names are those of Paimon: `db.t`, `db.t$branch_b`, `db.t$files`, `db.t$branch_b$files`,
`sys.all_table_options`.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.table.catalog import FileSystemCatalog
from storage.table.inspect.system.catalog_tables import catalog_system_table
from storage.table.inspect.system.registry import system_table
from storage.table.scan.fallback import FALLBACK_BRANCH
from storage.table.scan.incremental import is_incremental
from storage.table.scan.predicate import Predicate, mask

__all__ = ["CATALOG_PREFIX", "ScanRequest", "scanned"]

CATALOG_PREFIX = "sys."
"""Begins the names of system tables of a whole catalog."""

_BRANCH = "branch_"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What is wanted.

    Attributes:
        name: of the table.
        columns: in this order; None: all.
        predicate: rows wanted; None: all.
        options: of reading, such as those of time travel.
    """

    name: str
    columns: tuple[str, ...] | None = None
    predicate: Predicate | None = None
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)


def scanned(
    catalog: FileSystemCatalog, request: ScanRequest
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The columns, and the rows batch by batch.

    Raises:
        NotFoundError: there is no such table, system table, branch or snapshot.
        InvalidRequestError: a column is unknown.
        InvalidOptionError: an option is bad.
    """
    if request.name.startswith(CATALOG_PREFIX):
        rows = catalog_system_table(catalog, request.name.removeprefix(CATALOG_PREFIX))
        return _whole(rows, request)
    base, system = _split(request.name)
    table = catalog.table(base)
    if request.options:
        table = table.with_options(request.options)
    if system is not None:
        return _whole(system_table(table, system), request)
    columns = list(request.columns or table.schema.field_names)
    if is_incremental(table) or FALLBACK_BRANCH in table.schema.options:
        rows = table.to_arrow(columns=request.columns, filter=request.predicate)
        return rows.column_names, iter(rows.to_batches())
    read = table.new_read(columns, request.predicate)
    plan = table.new_scan().with_filter(request.predicate).plan()
    return columns, (batch for split in plan.splits for batch in read.to_batches(split))


def _split(name: str) -> tuple[str, str | None]:
    """The name of a table or branch, and of the system table."""
    parts = name.split("$")
    base = parts[0]
    if len(parts) > 1 and parts[1].startswith(_BRANCH):
        base = f"{base}${parts[1]}"
        del parts[1]
    if len(parts) > 2:
        raise InvalidRequestError(
            "no such table", hint="write database.table$files, or $branch_b$files", table=name
        )
    return base, parts[1] if len(parts) == 2 else None


def _whole(rows: pa.Table, request: ScanRequest) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Some rows and columns of a table that is in memory."""
    columns = list(request.columns or rows.column_names)
    unknown = sorted(set(columns) - set(rows.column_names))
    if unknown:
        raise InvalidRequestError(
            "no such column",
            hint=f"the table has {', '.join(rows.column_names)}",
            column=unknown[0],
        )
    batches = rows.to_batches()
    if request.predicate is not None:
        batches = [batch.filter(mask(request.predicate, batch)) for batch in batches]
    return columns, (batch.select(columns) for batch in batches)
