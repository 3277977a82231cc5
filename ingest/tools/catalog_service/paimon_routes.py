# SPDX-License-Identifier: Apache-2.0
"""Paimon's REST protocol, version 1, over a catalog of any kind."""

from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from ingest.tools.catalog_service.protected import Call, Failure, protected

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService

PREFIX = "/paimon"
"""How the paths of this protocol begin."""


def paimon_routes(service: "CatalogService") -> list[Route]:
    """The routes of the protocol."""
    base = f"{PREFIX}/v1"

    def config(call: Call) -> dict[str, Any]:
        del call
        return {"defaults": {}, "overrides": {"prefix": service.prefix}}

    anywhere = protected(service, access="read", database=None)
    return [Route(f"{base}/config", anywhere(config), methods=["GET"])]


def error_document(failure: Failure) -> dict[str, Any]:
    """The body of an error in this protocol."""
    return {
        "resourceType": failure.resource or None,
        "resourceName": failure.name or None,
        "message": failure.message,
        "code": failure.status,
    }
