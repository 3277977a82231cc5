# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of a pipeline in one archive, without secrets and without rows.

Parts are gathered independently: one that fails leaves its error in a separate file. Rows, keys,
payloads of bad records and values of secret settings are never included; names of tables, columns,
topics and hosts are.
"""

import contextlib
import functools
import io
import json
import os
import platform
import re
import shutil
import stat
import sys
import tarfile
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ingest.config.loading import Resolved
from ingest.config.setting import REDACTED
from ingest.config.settings import Settings, stream_folder
from ingest.daemon import configuration
from ingest.observe.metrics.telemetry import PAIMON_FORMAT, version_of
from ingest.state.stream_state import Warehouse, catalog_of
from ingest.tools.pipeline_status import pipeline_status
from storage.clock import Clock, SystemClock
from storage.format.types.types import type_name
from storage.io.file_io import FileIO
from storage.table.inspect.system.columns import shown_options
from storage.table.inspect.system.registry import system_table
from storage.table.table import FileStoreTable

_LEAST = 4
"""Shorter texts would redact half a log, and protect nothing."""

_USER = re.compile(r"://([^/@\s]+)@")
_QUOTED = re.compile(r"'([^']+)'")


def secret_texts(settings: Settings) -> frozenset[str]:
    """Every text of the settings that is not shown, as it is and in the forms it may occur in.

    Found by comparing the values with what `Settings.redacted` leaves of them, so a new secret
    setting needs no change here. Of a URL with credentials the credentials, of a mask its quoted
    texts.
    """
    whole = msgspec.to_builtins(settings)
    texts = {text for hidden in _differing(whole, settings.redacted()) for text in _forms(hidden)}
    return frozenset(text for text in texts if len(text) >= _LEAST)


def scrubbed(text: str, secrets: frozenset[str]) -> str:
    """The text without them, longest first, since one may be part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return _USER.sub(f"://{REDACTED}@", text)


def _differing(value: Any, redacted: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _differing(member, redacted.get(key) if isinstance(redacted, dict) else None)
    elif isinstance(value, (list, tuple)):
        counterparts = (
            redacted if isinstance(redacted, list) and len(redacted) == len(value) else []
        )
        for number, member in enumerate(value):
            yield from _differing(member, counterparts[number] if counterparts else None)
    elif isinstance(value, str) and value != redacted:
        yield value


def _forms(secret: str) -> Iterator[str]:
    """A hidden value, or the secret parts of it, each as it may occur in a URL or in JSON."""
    texts = _QUOTED.findall(secret) or _USER.findall(secret) or [secret, *secret.splitlines()]
    for text in texts:
        pair = text.split(":") if text.count(":") == 1 and "/" not in text else ()  # user:password
        for part in (text.strip(), *pair):
            yield from {part, unquote(part), quote(part, safe=""), json.dumps(part)[1:-1]}


_HTTP_TIMEOUT_S = 5.0
_PAGES = ("healthz", "readyz", "api/status", "config", "metrics")
_SNAPSHOTS, _LOG_BYTES, _STATE_BYTES = 30, 5_000_000, 200_000
_PACKAGES = ("lakeward", "pyspark", "pyarrow", "numpy", "confluent-kafka", "orjson", "obstore")

Part = tuple[str, str | None]
"""A file of the bundle, and why it could not be gathered; None: complete."""


def write_bundle(
    target: Path,
    resolved: Resolved,
    *,
    url: str | None = None,
    tables: Sequence[str] = (),
    most_tables: int = 50,
    logs: Sequence[Path] = (),
    ask: bool = True,
    on_part: Callable[[str], None] = lambda part: None,
    clock: Clock | None = None,
) -> list[Part]:
    """Gather everything and write the archive.

    Args:
        target: a `.tar.gz` that does not exist yet.
        resolved: the pipeline's settings.
        url: of the daemon, if not where the settings say.
        tables: those with details; none: the first of the stream's, parked ones first.
        most_tables: how many of these.
        logs: log files whose ends are put in.
        ask: whether to contact the broker and the registry, too.
        on_part: called with every part as it begins.

    Returns:
        The parts in order.

    Raises:
        OSError: the archive cannot be written.
    """
    secrets = secret_texts(resolved.settings)
    now_s = (clock or SystemClock()).now_ms() // 1000
    parts: list[Part] = []
    name = target.name.removesuffix(".tar.gz")
    with target.open("xb") as output, tarfile.open(fileobj=output, mode="w:gz") as archive:

        def add(path: str, text: str) -> None:
            raw = scrubbed(text, secrets).encode(errors="replace")
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(raw), now_s, 0o644
            archive.addfile(entry, io.BytesIO(raw))

        work = _Bundle(resolved, url, tables, most_tables, logs, ask)
        for path, make in work.parts():
            on_part(path)
            try:
                text = make()
            except Exception as error:  # noqa: BLE001 - the other parts matter all the more
                parts.append((path, scrubbed(f"{type(error).__name__}: {error}", secrets)))
                add(f"{path}.error.txt", traceback.format_exc())
            else:
                parts.append((path, None))
                add(path, text)
        add("README.txt", _contents(parts))
    return parts


class _Bundle:
    """The parts: (path, function that gathers it)."""

    def __init__(
        self,
        resolved: Resolved,
        url: str | None,
        tables: Sequence[str],
        most_tables: int,
        logs: Sequence[Path],
        ask: bool,
    ) -> None:
        self._resolved = resolved
        self._settings: Settings = resolved.settings
        metrics = self._settings.metrics
        self._url = (url or f"http://{_reachable(metrics.host)}:{metrics.port}").rstrip("/")
        self._table_names = tuple(tables)
        self._max_tables = most_tables
        self._logs = logs
        self._ask = ask

    def parts(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """In reading order."""
        yield "versions.json", lambda: _json(_versions())
        yield "machine.json", lambda: _json(_machine(self._settings))
        yield "settings.txt", self._shown_settings
        yield "checks.json", self._checks
        yield "status.json", lambda: _json(pipeline_status(self._settings, self._url))
        for page in _PAGES:
            yield f"daemon/{page.replace('/', '-')}.txt", functools.partial(self._page, page)
        yield "stream.json", self._stream
        yield "checkpoint.txt", lambda: _listing(Path(self._settings.pipeline.checkpoint))
        for table in self._tables():
            yield f"tables/{table}.json", functools.partial(self._table, table)
        for number, path in enumerate(self._logs):
            yield f"logs/{number}-{path.name}", functools.partial(_end_of, path)

    def _shown_settings(self) -> str:
        lines = self._resolved.lines
        return "".join(f"{key} = {value}    [{origin}]\n" for key, value, origin in lines)

    def _checks(self) -> str:
        findings = configuration.offline(self._settings)
        if self._ask:
            findings += configuration.online(self._settings)
        return _json([{"name": e.name, "ok": e.ok, "finding": e.finding} for e in findings])

    def _page(self, page: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self._url}/{page}", timeout=_HTTP_TIMEOUT_S) as answer:
                return str(answer.read().decode(errors="replace"))
        except urllib.error.HTTPError as error:  # "not ready" is an answer
            return f"{error.code}\n{error.read().decode(errors='replace')}"

    def _stream(self) -> str:
        """Our own state files, which hold positions and names, no rows."""
        catalog = catalog_of(Warehouse.of(self._settings.sink))
        folder = stream_folder(self._settings.sink.warehouse, self._settings.pipeline.name)
        return _json(dict(_files(catalog.file_io, folder)))

    def _tables(self) -> Sequence[str]:
        if self._table_names:
            return self._table_names
        try:
            tables: Mapping[str, Any] = pipeline_status(self._settings, self._url)["tables"]
        except Exception:  # noqa: BLE001 - `status.json` says why
            return ()
        names = sorted(tables, key=lambda name: (tables[name]["state"] == "running", name))
        return names[: self._max_tables]

    def _table(self, name: str) -> str:
        table = catalog_of(Warehouse.of(self._settings.sink)).table(name)
        return _json(_about(table))


def _about(table: FileStoreTable) -> dict[str, Any]:
    """Metadata only: no column statistics either, since those hold values."""
    snapshots = table.snapshots.ids()
    newest = [table.snapshots.read_again(number) for number in snapshots[-_SNAPSHOTS:]]
    files = system_table(table, "files")
    sizes = files.group_by(["bucket", "level"]).aggregate(
        [("file_size_in_bytes", "count"), ("file_size_in_bytes", "sum"), ("record_count", "sum")]
    )
    schemas = system_table(table, "schemas")
    return {
        "path": table.layout.root,
        "options": shown_options(table.schema.options),
        "primary_keys": list(table.schema.primary_keys),
        "partition_keys": list(table.schema.partition_keys),
        "columns": {field.name: type_name(field.type) for field in table.schema.fields},
        "schemas": schemas.select(["schema_id", "update_time"]).to_pylist(),
        "snapshots": {"first": min(snapshots, default=None), "last": max(snapshots, default=None)},
        "newest_snapshots": [
            {
                "id": snapshot.id,
                "kind": snapshot.commit_kind.value,
                "user": snapshot.commit_user,
                "identifier": snapshot.commit_identifier,
                "time_ms": snapshot.time_ms,
                "records": snapshot.total_record_count,
                "delta": snapshot.delta_record_count,
                "changelog": snapshot.changelog_record_count,
                "properties": dict(snapshot.properties or {}),
            }
            for snapshot in newest
            if snapshot is not None
        ],
        "files_by_bucket_and_level": sizes.to_pylist(),
        "tags": system_table(table, "tags").select(["tag_name", "snapshot_id"]).to_pylist(),
        "consumers": system_table(table, "consumers").to_pylist(),
    }


def _versions() -> dict[str, Any]:
    return {
        **{name: version_of(name) for name in _PACKAGES},
        "python": sys.version,
        "paimon format": PAIMON_FORMAT,
        "platform": platform.platform(),
    }


def _machine(settings: Settings) -> dict[str, Any]:
    memory = {}
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/proc/meminfo"):
        if Path(path).is_file():
            memory[path] = Path(path).read_text(encoding="ascii", errors="replace")[:400]
    places = {"checkpoint": Path(settings.pipeline.checkpoint), "tmp": Path("/tmp")}
    if "://" not in settings.sink.warehouse:
        places["warehouse"] = Path(settings.sink.warehouse)
    disks = {}
    for name, place in places.items():
        parent = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
        usage = shutil.disk_usage(parent)
        disks[name] = {"path": str(place), "free": usage.free, "total": usage.total}
    return {
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory": memory,
        "disks": disks,
        "open_files_limit": _limit(),
        "uid": os.getuid(),
    }


def _limit() -> str:
    limits = Path("/proc/self/limits")
    lines = limits.read_text(encoding="ascii").splitlines() if limits.is_file() else []
    return next((line for line in lines if line.startswith("Max open files")), "")


def _files(file_io: FileIO, folder: str) -> Iterator[tuple[str, Any]]:
    for status in list(file_io.walk(folder)):
        relative = status.path.removeprefix(folder).lstrip("/")
        if status.size > _STATE_BYTES:
            yield relative, f"{status.size} bytes"
            continue
        try:
            text = file_io.read_bytes(status.path).decode(errors="replace")
        except FileNotFoundError:  # a daemon that runs writes and removes such files all the time
            yield relative, "deleted meanwhile"
            continue
        try:
            yield relative, json.loads(text)
        except ValueError:
            yield relative, text


def _listing(folder: Path) -> str:
    """Names and sizes only: Spark's offset log holds the options of the source."""
    rows = []
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a daemon that runs removes old ones
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                relative = path.relative_to(folder)
                rows.append(f"{about.st_size:>12} {about.st_mtime:.0f} {relative}")
    return "\n".join(rows[-2_000:]) + "\n"


def _end_of(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - _LOG_BYTES))
        return log.read().decode(errors="replace")


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in ("", "0.0.0.0", "::") else host


def _json(value: object) -> str:
    return json.dumps(value, indent=2, default=str) + "\n"


def _contents(parts: Sequence[Part]) -> str:
    lines = [f"{path}" if why is None else f"{path}: missing, {why}" for path, why in parts]
    return (
        "Gathered by `lakeward doctor`. No rows, no keys, no payloads of bad records; values of\n"
        "secret settings are starred wherever they stood. Names of tables, columns, topics and\n"
        "hosts are in it: look before you send it.\n\n" + "\n".join(lines) + "\n"
    )
