# SPDX-License-Identifier: Apache-2.0
"""The state of a pipeline and its tables, from the warehouse and, if it answers, its daemon."""

import dataclasses
import datetime
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ingest.config.settings import Settings
from ingest.config.source_settings import FileSourceSettings
from ingest.daemon.requests.request_client import daemon_status, request_files, status_document_at
from ingest.errors import ExitCode
from ingest.observe.text_table import aligned, human_time
from ingest.source.records import resume_token
from ingest.state.ownership import (
    BatchNote,
    OwnerRecord,
    ParkedTable,
    Parking,
    Pausing,
    newest_note,
    newest_record,
)
from ingest.state.stream_state import TableProgress, Warehouse, catalog_of, progress_of
from storage.catalog.catalog import Catalog
from storage.errors import LakewardError


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a pipeline.

    Attributes:
        text: for people.
        exit_code: of `status --check` unless another problem is more severe.
    """

    text: str
    exit_code: ExitCode = ExitCode.UNEXPECTED


def pipeline_status(settings: Settings, url: str | None = None) -> dict[str, Any]:
    """Everything as plain values.

    `daemon` is None when none answers; tables have `state` (`running`, `parked`, `behind`,
    `unreadable`), `snapshot`, `committed_ms`, and parked ones `reason`, `by`, `parked_ms`.
    `missed` counts Kafka offsets: of a parked table those that its topics were read since, of one
    that is behind those that it still has to read.

    Args:
        url: of its daemon's endpoint, if not as in the settings.
    """
    catalog = catalog_of(Warehouse.of(settings.sink))
    stream = settings.pipeline.name
    parking = Parking(catalog.file_io, settings.sink.warehouse, stream)
    parking.load()
    note = newest_note(catalog.file_io, settings.sink.warehouse, stream)
    pausing = Pausing(catalog.file_io, settings.sink.warehouse, stream)
    pause = pausing.load()
    daemon = daemon_status(settings, url)
    owner = newest_record(catalog.file_io, settings.sink.warehouse, stream)
    return {
        "pipeline": stream,
        "warehouse": settings.sink.warehouse,
        "owner": None if owner is None else _of_owner(owner),
        "daemon": None if daemon is None else _of_daemon(daemon),
        "paused": None if pause is None else dataclasses.asdict(pause),
        "batch": None if note is None else {"identifier": note.identifier, "end": note.end},
        "tables": _tables(settings, catalog, parking, note, daemon),
        "requests": [
            {"id": request.id, "kind": request.kind, "made_ms": request.made_ms}
            for request in request_files(settings).pending()
        ],
    }


def status_at(url: str) -> dict[str, Any]:
    """The same from a daemon alone; what only the warehouse has is missing."""
    document = status_document_at(url)
    if document is None:
        empty: dict[str, Any] = {"pipeline": None, "warehouse": None, "daemon": None}
        return empty | {"paused": None, "batch": None, "tables": {}, "requests": []}
    paused = document.get("paused")
    return {
        "pipeline": document["pipeline"],
        "warehouse": document.get("facts", {}).get("warehouse"),
        "daemon": _of_daemon(document),
        "paused": None if paused is None else {"reason": paused["reason"]},
        "batch": None,
        "tables": {
            name: {
                "state": facts.get("state", "running"),
                "snapshot": facts.get("snapshot_id"),
                "committed_ms": _epoch_ms(facts.get("committed_at")),
                **{key: facts[key] for key in ("reason", "by", "freshness_s") if key in facts},
            }
            for name, facts in sorted(document.get("tables", {}).items())
        },
        "requests": [],
    }


def problems_of(status: Mapping[str, Any], max_freshness_s: float | None) -> list[Problem]:
    """Problems of a pipeline. Pure.

    Args:
        status: of `pipeline_status` or `status_at`.
        max_freshness_s: how old the newest change of a table may be; None = no limit [s].
    """
    daemon = status["daemon"]
    problems = []
    if daemon is None:
        problems.append(Problem("no daemon answers", ExitCode.UNAVAILABLE))
    else:
        problems += [Problem(f"not ready: {reason}") for reason in daemon["not_ready"]]
    if status["paused"] is not None and daemon is None:
        problems.append(Problem(f"the stream is paused: {status['paused']['reason']}"))
    flowing: list[float | None] = []
    for name, facts in status["tables"].items():
        if facts["state"] in ("parked", "unreadable"):
            problems.append(Problem(f"{name} is {facts['state']}: {facts.get('reason', '')}"))
            continue
        flowing.append(facts.get("freshness_s"))
        if max_freshness_s is not None and (flowing[-1] or 0.0) > max_freshness_s:
            problems.append(
                Problem(f"{name} is {flowing[-1]:.0f} s old, {max_freshness_s:.0f} s are allowed")
            )
    if max_freshness_s is not None and daemon is not None and flowing and not any(flowing):
        unknown = all(age is None for age in flowing)
        if unknown:
            problems.append(Problem("how fresh the tables are is not known yet"))
    return problems


def _of_owner(record: OwnerRecord) -> dict[str, Any]:
    """The last owner of the stream, and whether it has released it."""
    return {
        "epoch": record.epoch,
        "left": record.kind == "left",
        "host": record.owner.host,
        "pid": record.owner.pid,
        "since_ms": record.owner.since_ms,
    }


def _of_daemon(document: Mapping[str, Any]) -> dict[str, Any]:
    lags = [
        facts["lag"]
        for parts in document.get("source", {}).values()
        for facts in parts.values()
        if "lag" in facts
    ]
    return {
        "state": document.get("state"),
        "version": document.get("version"),
        "uptime_s": document.get("uptime_s"),
        "lag_records": sum(lags) if lags else None,
        "last_batch": document.get("batch", {}).get("last"),
        "not_ready": document["reasons"],
    }


def _tables(
    settings: Settings,
    catalog: Catalog,
    parking: Parking,
    note: BatchNote | None,
    daemon: Mapping[str, Any] | None,
) -> dict[str, dict[str, Any]]:
    parked = parking.parked()
    stream = settings.pipeline.name
    counted = not isinstance(settings.source, FileSourceSettings)
    end = {} if note is None else resume_token(note.end)
    names = [
        f"{db}.{table}" for db in catalog.list_databases() for table in catalog.list_tables(db)
    ]

    def look(name: str) -> tuple[TableProgress | None, int | None, str]:
        try:
            table = catalog.table(name)
            progress = progress_of(table, stream)
            latest = table.snapshots.latest()
        except (LakewardError, OSError) as error:
            return None, None, str(error)
        return progress, None if latest is None else latest.time_ms, ""

    with ThreadPoolExecutor(max_workers=8) as pool:
        looks = dict(zip(names, pool.map(look, names), strict=True))
    result: dict[str, dict[str, Any]] = {}
    for name in sorted({*names, *parked}):
        progress, committed_ms, trouble = looks.get(name, (None, None, ""))
        entry = parked.get(name)
        if progress is None and entry is None and not trouble:
            continue  # not a table of this stream
        state = "behind" if name in parking.catching_up else "unreadable" if trouble else "running"
        facts: dict[str, Any] = {
            "state": state if entry is None else "parked",
            "snapshot": None if progress is None else progress.snapshot_id,
            "committed_ms": committed_ms,
        }
        if entry is not None:
            facts |= _parked(entry)
            if counted:
                since = resume_token(entry.since)
                feeding = {topic: end[topic] for topic in entry.topics if topic in end}
                facts["missed"] = _distance(since, feeding)
        elif state == "behind" and counted:
            facts["missed"] = _distance(end, parking.common_floor)
        elif trouble:
            facts["reason"] = trouble
        if daemon is not None:
            report = daemon.get("tables", {}).get(name, {})
            facts |= {key: report[key] for key in ("freshness_s",) if key in report}
        result[name] = facts
    return result


def _distance(start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> int:
    return sum(
        max(0, offset - start.get(topic, {}).get(key, 0))
        for topic, parts in end.items()
        for key, offset in parts.items()
    )


def _parked(entry: ParkedTable) -> dict[str, Any]:
    since = resume_token(entry.since)
    return {
        "reason": entry.reason,
        "by": entry.by,
        "parked_ms": entry.parked_ms,
        "topics": list(entry.topics),
        "since": {topic: since[topic] for topic in entry.topics if topic in since},
    }


def status_text(status: Mapping[str, Any]) -> str:
    """The same for people."""
    daemon = status["daemon"]
    lines = [f"pipeline {status['pipeline']}, warehouse {status['warehouse']}"]
    if status["pipeline"] is None:
        return "no daemon answers there"
    if daemon is None:
        lines.append("no daemon answers; what follows is from the warehouse")
    else:
        lines += _daemon_lines(daemon)
    owner = status.get("owner")
    if owner is not None and not owner["left"]:
        lines.append(
            f"owned by {owner['host']}, pid {owner['pid']}, since {_time(owner['since_ms'])}, "
            f"epoch {owner['epoch']}"
        )
    if status["paused"] is not None and daemon is None:
        lines.append(f"the stream is paused: {status['paused']['reason']}")
    rows = [
        [
            name,
            f["state"] if daemon is not None or f["state"] != "running" else "",
            f["snapshot"],
            _time(f["committed_ms"]),
            _seconds(f.get("freshness_s")),
            f.get("missed", ""),
        ]
        for name, f in status["tables"].items()
    ]
    if rows:
        head = ["table", "state", "snapshot", "committed", "freshness", "missed records"]
        shown = len(head) if any(row[-1] != "" for row in rows) else -1
        lines += ["", aligned(head[:shown], [row[:shown] for row in rows])]
    for name, facts in status["tables"].items():
        if facts["state"] == "parked":
            when = f" at {human_time(facts['parked_ms'])}" if "parked_ms" in facts else ""
            lines.append(f"\n{name} parked by the {facts['by']}{when}: {facts['reason']}")
        elif facts.get("reason"):
            lines.append(f"\n{name}: {facts['reason']}")
    if status["requests"]:
        lines.append("\nwaiting requests:")
        lines += [
            f"  {request['kind']} ({request['id']}), since {human_time(request['made_ms'])}"
            for request in status["requests"]
        ]
    return "\n".join(lines)


def _daemon_lines(daemon: Mapping[str, Any]) -> list[str]:
    lag, last = daemon["lag_records"], daemon["last_batch"]
    lines = [
        f"daemon {daemon['state']}, up {daemon['uptime_s']:.0f} s"
        + ("" if lag is None else f", lag {lag:,} records")
    ]
    if last is not None:
        lines.append(
            f"last batch {last['outcome']}: {last['events']:,} records, {last['rows']:,} rows "
            f"in {last['duration_s']:.1f} s, ended {_time(_epoch_ms(last['ended_at']))}"
        )
    return lines + [f"  not ready: {reason}" for reason in daemon["not_ready"]]


def _epoch_ms(moment: str | None) -> int | None:
    if moment is None:
        return None
    return int(datetime.datetime.fromisoformat(moment).timestamp() * 1000)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.1f} s"


def _time(time_ms: int | None) -> str:
    return "" if time_ms is None else human_time(time_ms)
