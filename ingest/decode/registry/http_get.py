# SPDX-License-Identifier: Apache-2.0
"""One GET of a JSON document, with credentials and TLS, over the standard library.

Every request has its own connection: a process asks once per schema it meets, and a connection
kept open would not survive the fork of a worker. Redirects are not followed, so that credentials
only ever go to the configured host. Knows nothing of schemas.
"""

import base64
import dataclasses
import http.client
import json
import ssl
import urllib.parse
from typing import Any

from ingest.config.registry_settings import SchemaRegistrySettings
from storage.errors import InvalidOptionError

__all__ = ["Answer", "JsonGetter", "NoAnswerError"]

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_LARGEST_BODY = 64 << 20


class NoAnswerError(Exception):
    """The server did not answer; the text says how, without secrets."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a server said.

    Attributes:
        status: HTTP status.
        body: parsed JSON; None when it is no JSON.
    """

    status: int
    body: Any

    @property
    def error_code(self) -> int:
        """The registry's own code of an error, such as 40403; 0 without one."""
        code = self.body.get("error_code") if isinstance(self.body, dict) else None
        return code if isinstance(code, int) else 0


class JsonGetter:
    """Asks the servers of one registry.

    Args:
        settings: see there; certificates are read at once.

    Raises:
        InvalidOptionError: a certificate or key cannot be read.
    """

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        self._timeout_s = settings.timeout_s
        self._headers = {"Accept": _ACCEPT, "User-Agent": "lakeward", **_authorization(settings)}
        secure = any(url.startswith("https") for url in settings.urls)
        self._tls = _tls(settings) if secure else None

    def get(self, base: str, path: str) -> Answer:
        """Ask one server.

        Args:
            base: its address.
            path: below it, quoted, without a leading slash.

        Raises:
            NoAnswerError: no connection, no certificate that is trusted, no answer in time.
        """
        parts = urllib.parse.urlsplit(base)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, parts.port, timeout=self._timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/{path}", headers=self._headers)
            response = connection.getresponse()
            content = response.read(_LARGEST_BODY)
        except (OSError, http.client.HTTPException) as error:
            # the text of such an error names hosts and certificates, never a header
            raise NoAnswerError(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()
        try:
            return Answer(response.status, json.loads(content))
        except (ValueError, RecursionError):
            return Answer(response.status, None)


def _authorization(settings: SchemaRegistrySettings) -> dict[str, str]:
    if settings.token:
        return {"Authorization": f"Bearer {settings.token}"}
    if settings.username:
        pair = base64.b64encode(f"{settings.username}:{settings.password}".encode())
        return {"Authorization": f"Basic {pair.decode()}"}
    return {}


def _tls(settings: SchemaRegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except OSError as error:
        raise InvalidOptionError(
            "the schema registry's authorities cannot be read",
            path=settings.ca_file,
            detail=error.strerror or type(error).__name__,
        ) from None
    if settings.certificate_file:
        try:
            context.load_cert_chain(
                settings.certificate_file,
                settings.key_file or None,
                lambda: settings.key_password,
            )
        except (OSError, ValueError) as error:
            raise InvalidOptionError(
                "the client certificate for the schema registry cannot be used",
                path=settings.certificate_file,
                detail=getattr(error, "strerror", None) or type(error).__name__,
            ) from None
    return context
