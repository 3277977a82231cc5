# SPDX-License-Identifier: Apache-2.0
"""Materialized tables of the warehouse, refreshed by the clock while the stream runs.

SQL and its engine are imported with the first refresh: most warehouses have no materialized table.
"""

import logging

from storage.catalog.catalog import Catalog
from storage.clock import Clock
from storage.errors import LakewardError
from storage.table.materialized_table import MATERIALIZED_TABLE

__all__ = ["REFRESH_EVERY_S", "MaterializedRefresh"]

_LOG = logging.getLogger(__name__)

REFRESH_EVERY_S = 15.0
"""Between two looks at the clock of the known materialized tables [s]; each reads the newest schema
and snapshots of the table."""

DISCOVER_EVERY_S = 600.0
"""Between two searches for materialized tables [s]: each reads a schema of every table."""


class MaterializedRefresh:
    """Refreshes what is due. `due` may be called by any thread, `run` by one.

    Args:
        catalog: of the warehouse.
        clock: time.
    """

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._names: list[str] = []
        self._looked_s = clock.monotonic_s()
        self._searched_s: float | None = None

    def due(self) -> bool:
        """Whether a pass is due; the next one is then some seconds later."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < REFRESH_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def run(self) -> dict[str, int]:
        """Refresh the tables that are due; a failure is logged and tried again by the next pass.

        Returns:
            Rows written, by the tables that were refreshed.
        """
        now_s = self._clock.monotonic_s()
        if self._searched_s is None or now_s - self._searched_s >= DISCOVER_EVERY_S:
            self._searched_s = now_s
            self._names = list(self._catalog.tables_of_type(MATERIALIZED_TABLE))
        if not self._names:
            return {}
        from storage.sql.materialized import refresh_due  # noqa: PLC0415

        refreshed = {}
        for name in self._names:
            try:
                rows = refresh_due(self._catalog, name, self._clock.now_ms())
            except (LakewardError, OSError) as error:
                _LOG.warning(
                    "a materialized table could not be refreshed, retrying later",
                    extra={"event": "refresh_failed", "table": name},
                    exc_info=error,
                )
                continue
            if rows is not None:
                refreshed[name] = rows
                _LOG.info(
                    "a materialized table was refreshed",
                    extra={"event": "refreshed", "table": name, "rows": rows},
                )
        return refreshed
