# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens and what they may do: names of databases that a token may read and write.

The file lists tokens; it holds no secret, at most a digest:

    tokens:
      - name: etl
        token_file: /run/secrets/etl      # or token_env: ETL_TOKEN, or sha256: "<64 hex digits>"
        read: ["*"]
        write: [shop]

A token that may write a database may read it. The file, and the files that it names, are read again
when they change; an unreadable version leaves the one before it in force.
"""

import dataclasses
import hashlib
import hmac
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from storage.errors import InvalidOptionError, LakewardError

_LOG = logging.getLogger(__name__)

Access = Literal["read", "write"]

ANY_DATABASE = "*"

_SOURCES = ("token_file", "token_env", "sha256")
_KEYS = ("name", *_SOURCES, "read", "write")
_SHORTEST = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Principal:
    """The client of a request.

    Attributes:
        name: of the token, for the log.
        reads: names of databases, or `*`.
        writes: names of databases, or `*`.
    """

    name: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def may(self, access: Access, database: str | None) -> bool:
        """Whether a database may be read or written; None: any database."""
        granted = self.writes if access == "write" else self.reads | self.writes
        return bool(granted if database is None else granted & {ANY_DATABASE, database})

    def readable(self, databases: Iterable[str]) -> list[str]:
        """The databases that may be read."""
        return [name for name in databases if self.may("read", name)]


EVERYBODY = Principal("anonymous", frozenset({ANY_DATABASE}), frozenset({ANY_DATABASE}))
"""The principal of all requests where there are no tokens."""


class Tokens:
    """The tokens of a file; thread-safe.

    Args:
        path: of the YAML file.
        now_s: a monotonic clock [s].
        check_s: minimum interval between checks of the files [s].

    Raises:
        InvalidOptionError: the file cannot be read, or a token in it is malformed.
    """

    def __init__(
        self,
        path: Path,
        now_s: Callable[[], float],
        environment: Mapping[str, str] = os.environ,
        check_s: float = 1.0,
    ) -> None:
        self._path = path
        self._now_s = now_s
        self._environment = environment
        self._check_s = check_s
        self._lock = threading.Lock()
        self._files: tuple[Path, ...] = ()
        self._entries: list[tuple[bytes, Principal]] = []
        self._load()
        self._read_versions = self._versions()
        self._checked_s = now_s()

    def principal(self, token: str) -> Principal | None:
        """The principal of a token; None: unknown. Takes the same time whichever token matches."""
        self._refresh()
        digest = hashlib.sha256(token.encode()).digest()
        match: Principal | None = None
        for expected, principal in self._entries:
            if hmac.compare_digest(expected, digest):
                match = principal
        return match

    def _refresh(self) -> None:
        with self._lock:
            now_s = self._now_s()
            if now_s - self._checked_s < self._check_s:
                return
            self._checked_s = now_s
            versions = self._versions()
            if versions == self._read_versions:
                return
            self._read_versions = versions
            try:
                self._load()
            except LakewardError as error:
                _LOG.error(
                    "the tokens cannot be reloaded, the previous ones stay valid: %s",
                    error,
                    extra={"event": "tokens_unreadable", "path": self._path},
                )
                return
            self._read_versions = self._versions()
            count = len(self._entries)
            _LOG.info("tokens reloaded", extra={"event": "tokens_read", "tokens": count})

    def _versions(self) -> tuple[object, ...]:
        return tuple(_version(path) for path in (self._path, *self._files))

    def _load(self) -> None:
        try:
            document = yaml.safe_load(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidOptionError(
                "the tokens file cannot be read", detail=str(error), path=self._path
            ) from error
        rows = document.get("tokens") if isinstance(document, dict) else None
        if not isinstance(rows, list) or not rows or document.keys() != {"tokens"}:
            raise self._option_error("it has one key `tokens`, a list of at least one token")
        entries = [self._entry(row) for row in rows]
        names = [principal.name for _, principal in entries]
        if len(set(names)) < len(names):
            raise self._option_error("two tokens have the same name")
        if len({digest for digest, _ in entries}) < len(entries):
            raise self._option_error("two entries have the same token")
        files = [row["token_file"] for row in rows if "token_file" in row]
        self._entries, self._files = entries, tuple(self._sibling(name) for name in files)

    def _entry(self, row: Any) -> tuple[bytes, Principal]:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
            raise self._option_error("a token has a `name`")
        name = row["name"]
        unknown = [str(key) for key in row if key not in _KEYS]
        if unknown:
            raise self._option_error(f"there are {', '.join(_KEYS)}", token=name, key=unknown[0])
        sources = [key for key in _SOURCES if key in row]
        if len(sources) != 1:
            raise self._option_error(f"give one of {', '.join(_SOURCES)}", token=name)
        digest = self._digest(sources[0], str(row[sources[0]]), name)
        return digest, Principal(name, self._names(row, "read"), self._names(row, "write"))

    def _digest(self, source: str, value: str, name: str) -> bytes:
        if source == "sha256":
            try:
                digest = bytes.fromhex(value)
            except ValueError:
                digest = b""
            if len(digest) != hashlib.sha256().digest_size:
                raise self._option_error(
                    "`sha256` has 64 hexadecimal digits, in quotes", token=name
                )
            return digest
        if source == "token_env":
            token = self._environment.get(value, "")
        else:
            try:
                token = self._sibling(value).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise self._option_error(f"its file cannot be read: {error}", token=name) from error
        token = token.strip()
        if len(token) < _SHORTEST:
            hint = f"a token has at least {_SHORTEST} characters: `openssl rand -hex 32`"
            raise self._option_error(hint, token=name, source=value)
        return hashlib.sha256(token.encode()).digest()

    def _names(self, row: Mapping[str, Any], key: str) -> frozenset[str]:
        names = row.get(key) or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._option_error(f"`{key}` is a list of databases", token=row["name"])
        return frozenset(names)

    def _sibling(self, name: str) -> Path:
        return self._path.parent / name

    def _option_error(self, hint: str, **context: str) -> InvalidOptionError:
        return InvalidOptionError(
            "the tokens file is invalid", hint=hint, path=self._path, **context
        )


def _version(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
