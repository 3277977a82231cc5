# SPDX-License-Identifier: Apache-2.0
"""Catalogs of every kind, for tests that hold for all of them."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

from tests.e2e.hive_metastore import hive_metastore
from tests.e2e.mariadb_server import PASSWORD as MARIADB_PASSWORD
from tests.e2e.mariadb_server import USER as MARIADB_USER
from tests.e2e.mariadb_server import mariadb
from tests.e2e.postgres_server import USER as POSTGRES_USER
from tests.e2e.postgres_server import postgres
from tests.unit.storage.catalog.rest_server import TOKEN, rest_server

__all__ = ["LOCAL", "SERVED", "catalog_options"]

LOCAL = ("filesystem", "sqlite", "rest")
"""Kinds that need no server."""

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
            with rest_server(str(scratch / "served")) as rest:
                yield {"metastore": "rest", "uri": rest.uri, "token": TOKEN}
        case "hive":
            with hive_metastore(scratch) as uri:
                yield {"metastore": "hive", "uri": uri}
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
        case _:
            raise NotImplementedError(kind)
