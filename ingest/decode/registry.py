# SPDX-License-Identifier: Apache-2.0
"""Confluent's schema registry, as far as a reader needs it: id or GUID to schema.

A schema never changes under its id, so it is cached for the lifetime of the process, in every
worker. The response determines the error: an unavailable registry is retried, an unknown id makes
the record bad, anything else is an error of the configuration and not of a record.

Source: Confluent Schema Registry API reference (`/schemas/ids/{id}`, `/schemas/guids/{guid}`,
`/subjects/{subject}/versions/{version}`, `/subjects`, error codes 40401-40403); CDC.md §1.7.
"""

import base64
import dataclasses
import http.client
import json
import ssl
import threading
import time
import urllib.parse
import uuid
from typing import Any

from ingest.config.source_settings import SchemaRegistrySettings
from ingest.errors import AccessDeniedError
from storage.clock import Clock, SystemClock
from storage.errors import BadRecordError, InvalidOptionError, InvalidRequestError, RetryableError
from storage.io.counting import CallCounts

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_LARGEST_BODY = 64 << 20


class NoAnswerError(Exception):
    """The server did not answer; the text says how, without secrets."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The response of a server.

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
    """Sends GET requests to the servers of one registry, over the standard library.

    Every request has its own connection: a process requests each schema once, and a connection
    kept open would not survive the fork of a worker. Redirects are not followed, so that
    credentials only ever go to the configured host.

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
        """Request one document.

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


SchemaId = int | uuid.UUID
"""The reference of a record to its schema."""

AVRO = "AVRO"

REGISTRY_CALLS = CallCounts()
"""Requests of this process: ok, unknown, refused, retry (busy, or no answer) or wrong."""

_FIRST_DELAY_S = 0.2
_LONGEST_DELAY_S = 5.0
_UNKNOWN_DELAYS_S = (0.5, 2.0)
"""A server may lag behind the one where the schema was registered a moment ago."""
_UNKNOWN_FOR_S = 60.0
_MOST_UNKNOWN = 10_000
_DEEPEST_REFERENCE = 100
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_NOT_FOUND = 404
_OK = 200
_KNOWN_MISSES = range(40_401, 40_500)
"""Codes of a registry that lacks subject, version or schema; a plain 404 is a wrong address."""


class UnknownSchemaError(BadRecordError):
    """No registry knows the schema that a record names."""


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as it was registered.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        text: as registered.
        references: schemas whose names it uses, each before those that use it.
    """

    kind: str
    text: str
    references: tuple["RegisteredSchema", ...] = ()


class SchemaRegistry:
    """Schemas by id, each requested once.

    1. `schema` any number of times, from any thread of the process. Not picklable: make one per
       process from its settings.
    """

    def __init__(self, settings: SchemaRegistrySettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._getter = JsonGetter(settings)
        self._lock = threading.Lock()
        self._by_id: dict[SchemaId, RegisteredSchema] = {}
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._unknown: dict[SchemaId, float] = {}
        self._waited_until = 0.0

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """The schema of an id or GUID, its references resolved.

        Raises:
            UnknownSchemaError: no server has it, or what it refers to.
            RetryableError: no server answers for as long as the settings say.
            AccessDeniedError: the credentials were refused.
            InvalidRequestError: the server is not a schema registry.
        """
        cached = self._by_id.get(schema_id)
        if cached is not None:
            return cached
        with self._lock:
            if schema_id not in self._by_id:
                self._by_id[schema_id] = self._fetched(schema_id)
            return self._by_id[schema_id]

    def subjects(self) -> int:
        """How many subjects the registry has: whether it can be reached, and is one.

        Raises:
            RetryableError, AccessDeniedError, InvalidRequestError: as `schema`.
        """
        subjects = self._get("subjects")
        if not isinstance(subjects, list):
            raise self._no_registry("subjects are not listed")
        return len(subjects)

    def _fetched(self, schema_id: SchemaId) -> RegisteredSchema:
        now = self._clock.monotonic_s()
        if self._unknown.get(schema_id, now) > now:
            raise _unknown(schema_id)
        kind = "guids" if isinstance(schema_id, uuid.UUID) else "ids"
        path = f"schemas/{kind}/{schema_id}"
        # a topic that is not Avro may name thousands of schemas: they share one wait
        delays_s = () if self._waited_until > now else _UNKNOWN_DELAYS_S
        for delay_s in (*delays_s, None):
            answer = self._get(path)
            if answer is not None:
                return self._parsed(answer, ())
            if delay_s is not None:
                self._clock.sleep(delay_s)
        until = self._clock.monotonic_s() + _UNKNOWN_FOR_S
        if delays_s:
            self._waited_until = until
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown.clear()
        self._unknown[schema_id] = until
        raise _unknown(schema_id)

    def _parsed(self, body: Any, above: tuple[tuple[str, int], ...]) -> RegisteredSchema:
        text = body.get("schema") if isinstance(body, dict) else None
        if not isinstance(text, str):
            raise self._no_registry("the answer has no schema")
        references = tuple(
            self._version(str(reference.get("subject")), int(reference.get("version", -1)), above)
            for reference in body.get("references") or ()
        )
        return RegisteredSchema(str(body.get("schemaType") or AVRO), text, references)

    def _version(
        self, subject: str, version: int, above: tuple[tuple[str, int], ...]
    ) -> RegisteredSchema:
        key = subject, version
        if key in above or len(above) > _DEEPEST_REFERENCE:
            raise UnknownSchemaError(
                "schemas refer to each other in a circle", subject=subject, version=version
            )
        if key not in self._versions:
            quoted = urllib.parse.quote(subject, safe="")
            body = self._get(f"subjects/{quoted}/versions/{version}")
            if body is None:
                raise UnknownSchemaError(
                    "the registry does not know a schema that another refers to",
                    subject=subject,
                    version=version,
                )
            self._versions[key] = self._parsed(body, (*above, key))
        return self._versions[key]

    # --- requests

    def _get(self, path: str) -> Any:
        """The first answer of a server; None when no server has it."""
        until = self._clock.monotonic_s() + self._settings.retry_for_s
        delay_s = _FIRST_DELAY_S
        while True:
            not_found, failures = False, []
            for url in self._settings.urls:
                try:
                    answer = self._requested(url, path)
                except NoAnswerError as error:
                    failures.append(f"{url}: {error}")
                    continue
                if answer.status in _PASSING:
                    failures.append(f"{url}: {_described(answer)}")
                elif answer.error_code in _KNOWN_MISSES and answer.status == _NOT_FOUND:
                    not_found = True
                else:
                    return self._body(answer, url)
            if not_found and not failures:
                return None
            if self._clock.monotonic_s() + delay_s > until:
                raise RetryableError(
                    "the schema registry does not answer",
                    path=path,
                    detail="; ".join(failures),
                    hint="check that it runs and can be reached from the workers",
                )
            self._clock.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    def _requested(self, url: str, path: str) -> Answer:
        began, outcome = time.perf_counter(), "retry"
        try:
            answer = self._getter.get(url, path)
            outcome = _outcome(answer)
            return answer
        finally:
            REGISTRY_CALLS.add("get", outcome, time.perf_counter() - began)

    def _body(self, answer: Answer, url: str) -> Any:
        if answer.status in _REFUSED:
            raise AccessDeniedError(
                "the schema registry refused our credentials",
                url=url,
                status=answer.status,
                hint="check user and password, or the token, of the registry",
            )
        if answer.status != _OK or not isinstance(answer.body, (dict, list)):
            raise self._no_registry(f"{url}: {_described(answer)}")
        return answer.body

    def _no_registry(self, detail: str) -> InvalidRequestError:
        return InvalidRequestError(
            "what answers at the schema registry's address is no schema registry",
            detail=detail,
            hint="for Apicurio the address ends with /apis/ccompat/v7",
        )


def _outcome(answer: Answer) -> str:
    if answer.status == _OK:
        return "ok"
    if answer.status in _PASSING:
        return "retry"
    if answer.status in _REFUSED:
        return "refused"
    return "unknown" if answer.error_code in _KNOWN_MISSES else "wrong"


def _described(answer: Answer) -> str:
    message = answer.body.get("message") if isinstance(answer.body, dict) else None
    text = f"status {answer.status}"
    return f"{text}, {str(message)[:200]}" if message else text


def _unknown(schema_id: SchemaId) -> UnknownSchemaError:
    return UnknownSchemaError("the schema registry does not know the schema", id=schema_id)
