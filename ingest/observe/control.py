# SPDX-License-Identifier: Apache-2.0
"""Control over HTTP: `POST /api/pause`, `resume`, `reload`, `compact`, `drain`, behind a token.

Disabled unless `control.token` is set. A call becomes a request file like those of the commands
(`ingest.daemon.requests`), so it survives a crash of the process. Other sites cannot forge calls:
the token is not a cookie, the body must be JSON, and cross-site calls are refused. Wrong tokens are
counted by address; after a few the address is blocked for a minute.
"""

import dataclasses
import hmac
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from ingest.state.request_files import RequestFiles
from storage.clock import Clock
from storage.errors import LakewardError

_LOG = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Wrong tokens of one address within `LOCKED_S` after which it is blocked."""

LOCKED_S = 60.0
"""Period in which wrong tokens are counted [s]."""

_MAX_ADDRESSES = 1000
_MAX_WAIT_S = 60.0
_POLL_S = 0.2

_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "check": {},
    "pause": {"tables": list, "reason": str},
    "resume": {"tables": list, "skip_missed": bool},
    "reload": {},
    "compact": {"table": str},
    "drain": {},
}
"""Fields of the body by action, with their types; every action also has `wait_s`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a call."""

    status: HTTPStatus
    document: Mapping[str, Any]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class _RefusedCallError(Exception):
    def __init__(self, status: HTTPStatus, error: str, **headers: str) -> None:
        super().__init__(error)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = Reply(status, {"error": error}, fields)


class Control:
    """See the module. Thread-safe.

    Args:
        token: bearer token of callers; None = control is disabled.
        files: request files.
        drain: makes the daemon finish its batch and exit.
        wake: makes the daemon poll for requests immediately.
        clock: clock.
    """

    def __init__(
        self,
        token: str | None,
        files: RequestFiles,
        *,
        drain: Callable[[], None],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._token = token
        self._files = files
        self._drain = drain
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[str, deque[float]] = {}

    @property
    def enabled(self) -> bool:
        """Whether control is enabled."""
        return self._token is not None

    def use_token(self, token: str | None) -> None:
        """Replace the token."""
        self._token = token

    @staticmethod
    def knows(path: str) -> bool:
        """Return whether a path is that of an action."""
        return path.startswith("/api/") and path[len("/api/") :] in _MEMBERS

    def call(self, path: str, headers: Mapping[str, str], body: bytes, address: str) -> Reply:
        """Answer a POST.

        Args:
            path: path of an action (see `knows`).
            headers: headers of the call; names in any case.
            body: JSON.
            address: address of the caller, for the log and the count of wrong tokens.
        """
        action = path[len("/api/") :]
        try:
            self._admit({name.lower(): value for name, value in headers.items()}, address)
            reply = self._do(action, _members(action, body), address)
        except _RefusedCallError as refused:
            reply = refused.reply
        except (LakewardError, OSError) as error:
            reply = Reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        refused_call = reply.status >= HTTPStatus.BAD_REQUEST
        _LOG.log(
            logging.WARNING if refused_call else logging.INFO,
            "control",
            extra={
                "event": "control",
                "action": action,
                "address": address,
                "status": int(reply.status),
                **({"reason": reply.document.get("error", "")} if refused_call else {}),
            },
        )
        return reply

    def _admit(self, headers: Mapping[str, str], address: str) -> None:
        token = self._token
        if token is None:
            raise _RefusedCallError(
                HTTPStatus.NOT_FOUND, "control over HTTP is disabled: set `control.token`"
            )
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise _RefusedCallError(HTTPStatus.FORBIDDEN, "cross-site requests are refused")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _RefusedCallError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json"
            )
        if self._locked(address):
            raise _RefusedCallError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many wrong tokens from this address",
                Retry_After=str(int(LOCKED_S)),
            )
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(credentials.strip().encode(), token.encode())
        if scheme.lower() != "bearer" or not matches:
            self._remember(address)
            raise _RefusedCallError(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or wrong",
                WWW_Authenticate='Bearer realm="lakeward"',
            )

    def _locked(self, address: str) -> bool:
        now_s = self._clock.monotonic_s()
        with self._lock:
            wrong = self._wrong.get(address)
            while wrong and now_s - wrong[0] >= LOCKED_S:
                wrong.popleft()
            return wrong is not None and len(wrong) >= MAX_ATTEMPTS

    def _remember(self, address: str) -> None:
        with self._lock:
            wrong = self._wrong.pop(address, None) or deque(maxlen=MAX_ATTEMPTS)
            wrong.append(self._clock.monotonic_s())
            self._wrong[address] = wrong
            while len(self._wrong) > _MAX_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _do(self, action: str, members: dict[str, Any], address: str) -> Reply:
        wait_s = float(min(members.pop("wait_s", 0), _MAX_WAIT_S))
        if action == "check":
            return Reply(HTTPStatus.OK, {"state": "done", "text": "the token is valid"})
        if action == "drain":
            self._drain()
            return Reply(
                HTTPStatus.ACCEPTED,
                {"state": "working", "text": "finishing the batch in progress, then exiting"},
            )
        kind, arguments = _request(action, members, address)
        request = self._files.ask(kind, arguments, now_ms=self._clock.now_ms())
        self._wake()
        return self._outcome(request.id, kind, wait_s)

    def _outcome(self, request: str, kind: str, wait_s: float) -> Reply:
        """Return the outcome of a request, waiting for it as long as the caller wants."""
        facts = {"request": request, "kind": kind}
        deadline = self._clock.monotonic_s() + wait_s
        while self._clock.monotonic_s() < deadline:
            answer = self._files.answer(request)
            if answer is not None and answer.final:
                facts |= {"state": answer.state, "text": answer.text, "hint": answer.hint}
                succeeded = answer.state == "done"
                return Reply(HTTPStatus.OK if succeeded else HTTPStatus.CONFLICT, facts)
            self._clock.sleep(_POLL_S)
        text = "request submitted; it is handled between two batches"
        return Reply(HTTPStatus.ACCEPTED, {**facts, "state": "waiting", "text": text})


def _members(action: str, body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body) if body else {}
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise _RefusedCallError(HTTPStatus.BAD_REQUEST, "the body must be one JSON object")
    allowed: dict[str, type | tuple[type, ...]] = {**_MEMBERS[action], "wait_s": (int, float)}
    for name, value in members.items():
        kind = allowed.get(name)
        if kind is None:
            names = ", ".join(sorted(allowed))
            raise _RefusedCallError(
                HTTPStatus.BAD_REQUEST, f"unknown field `{name}`; known fields: {names}"
            )
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _RefusedCallError(HTTPStatus.BAD_REQUEST, f"wrong type of the field `{name}`")
    return members


def _request(action: str, members: dict[str, Any], address: str) -> tuple[str, dict[str, Any]]:
    """Return kind and arguments of a request: for the whole stream, unless tables are named."""
    if action in ("reload", "compact"):
        return action, members
    if "tables" not in members:
        if action == "pause":
            reason = members.get("reason") or f"paused over HTTP from {address}"
            return "pause_stream", {"reason": reason}
        return "resume_stream", {}
    if action == "pause":
        members.setdefault("reason", f"paused over HTTP from {address}")
    return action, members
