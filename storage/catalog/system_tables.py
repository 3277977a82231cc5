# SPDX-License-Identifier: Apache-2.0
"""The system tables of a whole catalog: `sys.all_table_options` and `sys.catalog_options`.

Source: SEMANTICS.md §I. Secrets are starred in the latter.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa

from storage.catalog.catalog import Catalog
from storage.errors import NotFoundError
from storage.io.object_store.options import redacted_options
from storage.table.inspect.system.columns import TEXT, columns

__all__ = ["CATALOG_TABLES", "catalog_system_table"]

_OPTIONS = {"key": TEXT, "value": TEXT}
_ALL_OPTIONS = {"database_name": TEXT, "table_name": TEXT, **_OPTIONS}


def all_table_options_table(catalog: Catalog) -> pa.Table:
    """The options that the newest schema of every table sets."""
    rows = []
    for database in catalog.list_databases():
        for name in catalog.list_tables(database):
            try:
                options = catalog.table(f"{database}.{name}").schema.options
            except NotFoundError:
                continue  # dropped meanwhile
            rows += [
                {"database_name": database, "table_name": name, "key": key, "value": value}
                for key, value in options.items()
            ]
    return columns(_ALL_OPTIONS, rows)


def catalog_options_table(catalog: Catalog) -> pa.Table:
    """The options that the catalog was opened with."""
    shown = redacted_options(catalog.options)
    return columns(_OPTIONS, [{"key": key, "value": value} for key, value in shown.items()])


CATALOG_TABLES: Mapping[str, Callable[[Catalog], pa.Table]] = {
    "all_table_options": all_table_options_table,
    "catalog_options": catalog_options_table,
}
"""Reader by name, without `sys.`."""


def catalog_system_table(catalog: Catalog, name: str) -> pa.Table:
    """The rows of a system table of a catalog.

    Args:
        catalog: the catalog.
        name: without `sys.`.

    Raises:
        NotFoundError: there is no such table.
    """
    reader = CATALOG_TABLES.get(name.lower())
    if reader is None:
        raise NotFoundError(
            "there is no system table of this name",
            hint=f"there are {', '.join(CATALOG_TABLES)}",
            name=f"sys.{name}",
        )
    return reader(catalog)
