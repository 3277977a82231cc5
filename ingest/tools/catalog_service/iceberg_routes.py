# SPDX-License-Identifier: Apache-2.0
"""Iceberg's REST protocol, read-only, over the Iceberg metadata beside tables."""

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from ingest.tools.catalog_service.protected import Failure

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService

PREFIX = "/iceberg"
"""How the paths of this protocol begin."""


def iceberg_routes(service: "CatalogService") -> list[Route]:
    """The routes of the protocol."""
    del service
    return []


def error_document(failure: Failure) -> dict[str, Any]:
    """The body of an error in this protocol."""
    return {"error": {"message": failure.message, "type": "Exception", "code": failure.status}}
