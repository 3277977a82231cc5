# SPDX-License-Identifier: Apache-2.0
"""Debezium's signal for a snapshot of single tables, and following its notifications.

A signal is a record of the signal topic (key: the connector's `topic.prefix`), or a row of the
signalling table. Notifications of incremental snapshots carry the signal's id. Those of blocking
ones are called `Initial Snapshot` and have each an id of its own, which is also the record's key:
they come in the order of their times only where their topic has one partition.

Source: Debezium's documentation of signalling and notifications; CDC.md §1.8.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from ingest.decode.events import split_message
from ingest.source.records import POSITION_OPTION
from storage.clock import Clock
from storage.errors import InvalidRequestError, RetryableError

_WITH_DATABASE = ("sqlserver", "oracle")
"""Kinds of positions whose connectors name tables with database and schema."""

_ONE_OF_MANY = "shared: "


@dataclasses.dataclass(frozen=True, slots=True)
class SourceName:
    """How a connector names a table.

    Attributes:
        server: the connector's `topic.prefix`.
        collection: `db.table` of MySQL and MariaDB, `schema.table` of PostgreSQL,
            `db.schema.table` of SQL Server and Oracle.
    """

    server: str
    collection: str


def source_name(
    table: str, address: str, options: Mapping[str, str], *, server: str = "", collection: str = ""
) -> SourceName:
    """The name of the source table behind a table.

    Args:
        table: `database.table` of the lake.
        address: its option `lakeward.source-table`; empty = it has none.
        options: its options.
        server: as given by the user; empty = not given.
        collection: the same.

    Raises:
        InvalidRequestError: it is unknown; the hint names what to add.
    """
    if server and collection:
        return SourceName(server, collection)
    if not address or address.startswith(_ONE_OF_MANY):
        raise InvalidRequestError(
            "several source tables fill the table"
            if address
            else "the table does not name its source table",
            hint="name it: --server PREFIX --collection schema.table",
            table=table,
        )
    rest = address.removeprefix(f"{server}.") if server else address
    parts = rest.split(".")
    if not server:
        server, parts = parts[0], parts[1:]
    if not collection:
        if len(parts) not in (2, 3):
            raise InvalidRequestError(
                "the name of the source table is ambiguous",
                hint="name it: --server PREFIX --collection schema.table",
                table=table,
                source=address,
            )
        whole = len(parts) == 2 or options.get(POSITION_OPTION) in _WITH_DATABASE
        collection = ".".join(parts if whole else parts[1:])
    return SourceName(server, collection)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSignal:
    """The signal `execute-snapshot`.

    Attributes:
        id: that notifications carry.
        server: prefix of the connector that it is for.
        collections: the tables; regular expressions to the connector.
        blocking: whether streaming pauses for it; else it runs in chunks in parallel.
        filter: which rows: a condition, of a blocking snapshot a whole SELECT; empty = all.
    """

    id: str
    server: str
    collections: tuple[str, ...]
    blocking: bool = False
    filter: str = ""

    @property
    def data(self) -> Mapping[str, Any]:
        """The signal's `data`."""
        data: dict[str, Any] = {
            "data-collections": list(self.collections),
            "type": "BLOCKING" if self.blocking else "INCREMENTAL",
        }
        if self.filter:
            data["additional-conditions"] = [
                {"data-collection": name, "filter": self.filter} for name in self.collections
            ]
        return data

    def record(self) -> tuple[bytes, bytes]:
        """Key and value for the signal topic."""
        value = {"id": self.id, "type": "execute-snapshot", "data": self.data}
        return self.server.encode(), orjson.dumps(value)

    def statement(self, table: str) -> str:
        """The SQL that puts it into the signalling table."""
        texts = (self.id, "execute-snapshot", orjson.dumps(self.data).decode())
        quoted = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
        return f"INSERT INTO {table} (id, type, data) VALUES ({quoted});"

    def is_about(self, notification: "Notification") -> bool:
        """Whether a notification that came after the signal is about this snapshot."""
        if not self.blocking:
            return notification.kind == "Incremental Snapshot" and notification.id == self.id
        collections = notification.collections
        return (
            notification.kind == "Initial Snapshot"
            and notification.server in ("", self.server)
            and (not collections or any(name in self.collections for name in collections))
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A connector's notification about a snapshot.

    Attributes:
        id: of the signal, of incremental snapshots.
        kind: `Incremental Snapshot` or `Initial Snapshot`.
        type: `STARTED`, `IN_PROGRESS`, `TABLE_SCAN_COMPLETED`, `COMPLETED`, `ABORTED`…
        data: its other members.
        at_ms: when it was created, by the connector's clock [epoch ms].
    """

    id: str
    kind: str
    type: str
    data: Mapping[str, str]
    at_ms: int = 0

    @property
    def server(self) -> str:
        """The connector's `topic.prefix`."""
        return self.data.get("connector_name", "")

    @property
    def collections(self) -> Sequence[str]:
        """Tables of the snapshot; empty where it does not list them."""
        return [name.strip() for name in self.data.get("data_collections", "").split(",") if name]

    @property
    def progress(self) -> str:
        """One line for people; empty when there is nothing to say."""
        current = self.data.get("current_collection_in_progress", "")
        match self.type:
            case "STARTED":
                return "the connector has begun"
            case "IN_PROGRESS" if "last_processed_key" in self.data:
                last, most = self.data["last_processed_key"], self.data.get("maximum_key", "?")
                return f"{current}: key {last} of {most}"
            case "IN_PROGRESS":
                return f"{current}: in progress"
            case "TABLE_SCAN_COMPLETED":
                name = self.data.get("scanned_collection", "")
                rows = self.data.get("total_rows_scanned", "?")
                return f"{name}: {rows} rows scanned ({self.data.get('status', '')})"
            case "PAUSED" | "RESUMED":
                return f"the snapshot was {self.type.lower()}"
            case _:
                return ""


class _Message(msgspec.Struct):
    aggregate_type: str
    type: str
    id: str = ""
    additional_data: dict[str, str | None] | None = None
    timestamp: int | None = None


_MESSAGE = msgspec.json.Decoder(_Message)


def notification(value: bytes | None) -> Notification | None:
    """A notification, or None of any other message.

    Args:
        value: a record's value as JSON, with or without a schema block.
    """
    if value is None:
        return None
    try:
        message = _MESSAGE.decode(split_message(value).payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    data = {name: text or "" for name, text in (message.additional_data or {}).items()}
    return Notification(
        id=message.id,
        kind=message.aggregate_type,
        type=message.type,
        data=data,
        at_ms=message.timestamp or 0,
    )


_POLL_S = 0.5
_SILENT_S = 60.0
"""Silence of the connector after which the command prints a hint [s]: it polls briefly
for signals each `signal.poll.interval.ms`, and was observed to take half a minute for the first."""

_NEVER_MS = sys.maxsize

_BEGINS = ("STARTED", "SKIPPED")
"""Types of a snapshot's first notification."""

_GOOD = ("", "SUCCEEDED", "EMPTY")
"""Statuses of a successful scan of a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    """A completed snapshot.

    Attributes:
        rows: scanned, by table as the connector names it.
        seconds: since following began [s].
    """

    rows: dict[str, int]
    seconds: float


def follow(
    signal: SnapshotSignal,
    read: Callable[[], Iterable[Notification]],
    *,
    clock: Clock,
    say: Callable[[str], None],
    timeout_s: float | None = None,
) -> Followed:
    """Wait until the connector reports that the snapshot is complete.

    A blocking snapshot is the one that begins after the call; the end of an earlier one is not its
    end. After the end there is one more poll for notifications in other partitions.

    Args:
        signal: that requested it.
        read: gives the notifications since the last call.
        say: called with progress.
        timeout_s: how long to wait at most [s]; None = as long as it takes.

    Raises:
        InvalidRequestError: it was aborted or skipped, or a table could not be scanned.
        RetryableError: timeout; the snapshot continues.
    """
    began = clock.monotonic_s()
    rows: dict[str, int] = {}
    said, heard = "", False
    ended_s: float | None = None
    waiting: list[Notification] = []
    since_ms = _NEVER_MS if signal.blocking else 0
    while True:
        before_s = ended_s
        waiting += [event for event in read() if signal.is_about(event)]
        heard = heard or bool(waiting)
        if since_ms == _NEVER_MS:
            begins = (event.at_ms for event in waiting if event.type in _BEGINS)
            since_ms = min(begins, default=_NEVER_MS)
        current = [event for event in waiting if event.at_ms >= since_ms]
        if since_ms != _NEVER_MS:
            waiting = []
        for notification in sorted(current, key=_order):
            if notification.progress and notification.progress != said:
                said = notification.progress
                say(said)
            _note(notification, rows)
            if notification.type == "COMPLETED":
                ended_s = clock.monotonic_s()
        waited = clock.monotonic_s() - began
        if before_s is not None:
            return Followed(rows, before_s - began)
        if timeout_s is not None and waited >= timeout_s and ended_s is None:
            raise RetryableError(
                "the snapshot is not complete yet",
                hint="the connector continues it; its notifications report the end",
                signal=signal.id,
                waited_s=round(waited),
            )
        if not heard and waited >= _SILENT_S:
            heard = True
            say(
                "no notification yet: does the connector run, with `kafka` in "
                "signal.enabled.channels, `sink` in notification.enabled.channels and the topic "
                f"prefix {signal.server}?"
            )
        clock.sleep(_POLL_S)


def _order(notification: Notification) -> tuple[int, bool]:
    return notification.at_ms, notification.type == "COMPLETED"


def _note(notification: Notification, rows: dict[str, int]) -> None:
    if notification.type in ("ABORTED", "SKIPPED"):
        raise InvalidRequestError(
            f"the connector says that the snapshot was {notification.type.lower()}",
            hint="its log says why",
            connector=notification.server,
        )
    if notification.type != "TABLE_SCAN_COMPLETED":
        return
    name = notification.data.get("scanned_collection", "")
    count = notification.data.get("total_rows_scanned", "")
    if count.isdigit():
        rows[name] = rows.get(name, 0) + int(count)
    status = notification.data.get("status", "")
    if status not in _GOOD:
        raise InvalidRequestError(
            "the connector could not scan the table",
            hint="does it capture this table under this name (--collection)? Incremental "
            "snapshots need a primary key",
            collection=name,
            status=status,
        )
