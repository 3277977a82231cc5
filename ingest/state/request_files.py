# SPDX-License-Identifier: Apache-2.0
"""Requests and answers as files of the warehouse, so that commands need no way to the daemon.

    <warehouse>/.lakeward/<stream>/requests/<time>-<id>.json    written once by a command
    <warehouse>/.lakeward/<stream>/answers/<id>.json            replaced by the daemon as it works

The daemon handles requests in the order of their names and removes each after its final answer. A
request that it dies with is handled again at the next start, so handlers must bear that. Answers go
after a week; so do requests that no daemon took in that time: nobody means them any more.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from ingest.config.stream_folder import stream_folder
from storage.errors import CorruptDataError
from storage.io.file_io import FileIO

__all__ = ["KEPT_MS", "Answer", "Request", "RequestFiles"]

KEPT_MS = 7 * 24 * 3_600_000
"""Age at which answers, and requests that nobody took, are removed [ms]."""

State = Literal["working", "done", "failed"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asks.

    Attributes:
        id: unique; part of the file's name.
        kind: one of `ingest.daemon.requests.kinds`.
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
        moment = datetime.datetime.fromtimestamp(self.made_ms / 1000, datetime.UTC)
        return f"{moment:%Y%m%dT%H%M%S}{self.made_ms % 1000:03d}-{self.id}.json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request.

    Attributes:
        id: the request's.
        kind: the request's.
        state: `working`, then `done` or `failed`.
        text: for people: progress, the outcome, or what went wrong.
        result: for machines, once done.
        error: class of the error, once failed.
        hint: what to do about it.
        at_ms: when this was written [epoch ms].
    """

    id: str
    kind: str
    state: State
    text: str = ""
    result: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    error: str = ""
    hint: str = ""
    at_ms: int = 0

    @property
    def final(self) -> bool:
        """Whether nothing more will come."""
        return self.state != "working"


class RequestFiles:
    """Both sides' way to the files.

    Args:
        file_io: store of the warehouse.
        warehouse: its root.
        stream: the stream's name.
    """

    def __init__(self, file_io: FileIO, warehouse: str, stream: str) -> None:
        self._io = file_io
        root = stream_folder(warehouse, stream)
        self._requests = f"{root}/requests"
        self._answers = f"{root}/answers"

    def ask(self, kind: str, arguments: Mapping[str, Any], *, now_ms: int) -> Request:
        """Write a request."""
        made = Request(
            id=secrets.token_hex(6), kind=kind, arguments=dict(arguments), made_ms=now_ms
        )
        raw = dataclasses.asdict(made)
        self._io.overwrite_bytes(f"{self._requests}/{made.name}", _dumps(raw))
        return made

    def waiting(self) -> list[Request]:
        """Requests without a final answer, oldest first. What cannot be read has no kind."""
        found: list[Request] = []
        for entry in self._io.list(self._requests):
            name = entry.path.rsplit("/", 1)[-1]
            if not name.endswith(".json"):
                continue
            try:
                data = self._io.read_bytes(entry.path)
            except FileNotFoundError:  # withdrawn meanwhile
                continue
            found.append(_request(data, name))
        return found

    def done(self, request: Request) -> None:
        """Remove a request; also withdraws one."""
        self._io.delete(f"{self._requests}/{request.name}")

    def write(self, answer: Answer) -> None:
        """Replace the answer."""
        raw = dataclasses.asdict(answer)
        self._io.overwrite_bytes(f"{self._answers}/{answer.id}.json", _dumps(raw))

    def answer(self, request_id: str) -> Answer | None:
        """The answer so far, or None when nobody took the request yet.

        Raises:
            CorruptDataError: it cannot be read.
        """
        path = f"{self._answers}/{request_id}.json"
        try:
            data = self._io.read_bytes(path)
        except FileNotFoundError:
            return None
        try:
            return Answer(**orjson.loads(data))
        except (ValueError, TypeError) as error:
            raise CorruptDataError("the daemon's answer cannot be read", path=path) from error

    def clean(self, now_ms: int) -> None:
        """Remove old answers."""
        old = [e.path for e in self._io.list(self._answers) if e.modified_ms < now_ms - KEPT_MS]
        self._io.delete_many(old)


def _request(data: bytes, name: str) -> Request:
    try:
        raw = Request(**orjson.loads(data))
        if raw.name == name and isinstance(raw.arguments, dict):
            return raw
    except (ValueError, TypeError):
        pass
    return _Unreadable(id=name.removesuffix(".json"), kind="", arguments={}, made_ms=0)


class _Unreadable(Request):
    __slots__ = ()

    @property
    def name(self) -> str:
        return f"{self.id}.json"


def _dumps(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
