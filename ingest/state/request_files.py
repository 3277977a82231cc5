# SPDX-License-Identifier: Apache-2.0
"""Requests and answers as files of the warehouse: commands need no connection to the daemon.

    <warehouse>/.lakeward/<stream>/requests/<time>-<id>.json    written once by a command
    <warehouse>/.lakeward/<stream>/answers/<id>.json            replaced by the daemon as it works

The daemon handles requests in the order of their names and removes each after its final answer. A
request that it dies with is handled again at the next start, so handlers must be idempotent.
Answers are deleted after a week; requests that no daemon handled in that time are refused.
"""

import contextlib
import datetime
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import orjson

from ingest.config.settings import stream_folder
from storage.errors import CorruptDataError
from storage.io.file_io import FileIO

RETENTION_MS = 7 * 24 * 3_600_000
"""Age at which answers are deleted, and requests are refused [ms]."""

State = Literal["working", "done", "failed"]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request.

    Attributes:
        id: unique; part of the file's name.
        kind: one of `ingest.daemon.requests.request_handler`; empty = the file cannot be read.
        arguments: plain values, as the kind says.
        made_ms: when [epoch ms].
    """

    id: str
    kind: str
    arguments: Mapping[str, Any]
    made_ms: int

    @property
    def name(self) -> str:
        """The file's name: sorts by time."""
        if not self.kind:
            return f"{self.id}.json"
        moment = datetime.datetime.fromtimestamp(self.made_ms / 1000, datetime.UTC)
        return f"{moment:%Y%m%dT%H%M%S}{self.made_ms % 1000:03d}-{self.id}.json"


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a request.

    Attributes:
        id: the request's.
        kind: the request's.
        state: `working`, then `done` or `failed`.
        text: progress, outcome or error, for people.
        result: the outcome for machines, once done.
        error: class of the error, once failed.
        hint: how to resolve the error.
        at_ms: when this was written [epoch ms].
    """

    id: str
    kind: str
    state: State
    text: str = ""
    result: Mapping[str, Any] = {}
    error: str = ""
    hint: str = ""
    at_ms: int = 0

    @property
    def final(self) -> bool:
        """Whether the request was handled."""
        return self.state != "working"


class RequestFiles:
    """Requests and answers of a stream, for both sides."""

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._io = file_io
        root = stream_folder(warehouse, stream)
        self._requests = f"{root}/requests"
        self._answers = f"{root}/answers"

    def ask(self, kind: str, arguments: Mapping[str, Any], *, now_ms: int) -> Request:
        """Write a request."""
        request = Request(
            id=secrets.token_hex(6), kind=kind, arguments=dict(arguments), made_ms=now_ms
        )
        self._io.overwrite_bytes(f"{self._requests}/{request.name}", _bytes(request))
        return request

    def pending(self) -> list[Request]:
        """Requests without a final answer, oldest first; an unreadable one has no kind."""
        requests: list[Request] = []
        for entry in self._io.list(self._requests):
            name = entry.path.rsplit("/", 1)[-1]
            if not name.endswith(".json"):
                continue
            try:
                data = self._io.read_bytes(entry.path)
            except FileNotFoundError:  # withdrawn meanwhile
                continue
            requests.append(_parsed(data, name))
        return requests

    def remove(self, request: Request) -> None:
        """Remove a request; also withdraws one."""
        self._io.delete(f"{self._requests}/{request.name}")

    def write(self, answer: Answer) -> None:
        """Replace the answer."""
        self._io.overwrite_bytes(f"{self._answers}/{answer.id}.json", _bytes(answer))

    def answer(self, request_id: str) -> Answer | None:
        """The answer so far; None = no daemon has begun to handle the request.

        Raises:
            CorruptDataError: it cannot be read.
        """
        path = f"{self._answers}/{request_id}.json"
        try:
            data = self._io.read_bytes(path)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptDataError("the daemon's answer cannot be read", path=path) from error

    def clean(self, now_ms: int) -> None:
        """Delete old answers."""
        old = [
            e.path for e in self._io.list(self._answers) if e.modified_ms < now_ms - RETENTION_MS
        ]
        self._io.delete_many(old)


def _parsed(data: bytes, name: str) -> Request:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError):
        request = msgspec.json.decode(data, type=Request)
        if request.name == name:
            return request
    return Request(id=name.removesuffix(".json"), kind="", arguments={}, made_ms=0)


def _bytes(content: Request | Answer) -> bytes:
    raw = msgspec.to_builtins(content)
    return orjson.dumps(raw, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
