# SPDX-License-Identifier: Apache-2.0
"""Catalogs of every kind, for tests that hold for all of them."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

from tests.catalog_service import TOKEN, catalog_service
from tests.e2e.availability import had
from tests.e2e.hive_metastore import hive_metastore
from tests.e2e.mariadb_server import PASSWORD as MARIADB_PASSWORD
from tests.e2e.mariadb_server import USER as MARIADB_USER
from tests.e2e.mariadb_server import mariadb
from tests.e2e.postgres_server import USER as POSTGRES_USER
from tests.e2e.postgres_server import postgres

__all__ = ["LOCAL", "SERVED", "WITHOUT_VIEWS", "catalog_options"]

LOCAL = ("filesystem", "sqlite", "rest", "rest-sqlite")
"""Kinds that need no server."""

WITHOUT_VIEWS = ("filesystem", "rest")
"""Kinds that keep neither views nor properties of databases, as Paimon's filesystem catalog."""

SERVED = ("postgres", "mariadb", "hive")
"""Kinds that do."""


@contextlib.contextmanager
def catalog_options(kind: str, scratch: pathlib.Path) -> Iterator[Mapping[str, str]]:
    """Options of a catalog of a kind, whose server runs inside the context.

    Args:
        kind: of `LOCAL` or `SERVED`.
        scratch: directory for what is kept outside the warehouse.
    """
    match kind:
        case "filesystem":
            yield {}
        case "sqlite":
            yield {"metastore": "jdbc", "uri": f"jdbc:sqlite:{scratch}/catalog.db"}
        case "rest":
            with catalog_service(str(scratch / "served")) as rest:
                yield {"metastore": "rest", "uri": rest.uri, "token": TOKEN}
        case "rest-sqlite":
            options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{scratch}/served.db"}
            with catalog_service(str(scratch / "served"), options) as rest:
                yield {"metastore": "rest", "uri": rest.uri, "token": TOKEN}
        case "postgres":
            with postgres() as server:
                yield {
                    "metastore": "jdbc",
                    "uri": f"jdbc:postgresql://{server.host}:{server.port}/{server.database}",
                    "jdbc.user": POSTGRES_USER,
                }
        case "mariadb":
            with mariadb() as server:
                yield {
                    "metastore": "jdbc",
                    "uri": f"jdbc:mysql://{server.host}:{server.port}/{server.database}",
                    "jdbc.user": MARIADB_USER,
                    "jdbc.password": MARIADB_PASSWORD,
                }
        case "hive":
            with had(hive_metastore(), "Hive metastore") as metastore:
                yield {"metastore": "hive", "uri": metastore.uri}
        case _:
            raise NotImplementedError(kind)
