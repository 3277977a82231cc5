# SPDX-License-Identifier: Apache-2.0
"""Waits until a connector has made a snapshot, by its notifications."""

import dataclasses
import sys
from collections.abc import Callable, Iterable

from ingest.tools.resnapshot.snapshot_signals import Notification, SnapshotSignal
from storage.clock import Clock
from storage.errors import InvalidRequestError, RetryableError

__all__ = ["Followed", "follow"]

_POLL_S = 0.5
_SILENT_S = 60.0
"""Silence of the connector after which the command prints a hint [s]: it polls for signals in
short moments each `signal.poll.interval.ms`, and was seen to take half a minute for the first."""

_NEVER_MS = sys.maxsize

_BEGINS = ("STARTED", "SKIPPED")
"""What a snapshot begins with."""

_GOOD = ("", "SUCCEEDED", "EMPTY")
"""How the scan of a table may end well."""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    """A snapshot that is done.

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
    """Wait until the connector says that the snapshot is complete.

    A blocking snapshot is what begins after the call; the end of one that had begun before is not
    its end. After the end there is one more poll for what came to other partitions a moment later.

    Args:
        signal: that requested it.
        read: gives the notifications since the last call.
        clock: time.
        say: called with progress.
        timeout_s: how long to wait at most [s]; None = as long as it takes.

    Raises:
        InvalidRequestError: it was aborted or skipped, or a table could not be scanned.
        RetryableError: the time is over; the snapshot continues.
    """
    began = clock.monotonic_s()
    rows: dict[str, int] = {}
    said, heard = "", False
    ended_s: float | None = None
    waiting: list[Notification] = []
    since_ms = _NEVER_MS if signal.blocking else 0
    while True:
        before_s = ended_s
        waiting += [each for each in read() if signal.is_about(each)]
        heard = heard or bool(waiting)
        if since_ms == _NEVER_MS:
            begins = (each.at_ms for each in waiting if each.type in _BEGINS)
            since_ms = min(begins, default=_NEVER_MS)
        ours = [each for each in waiting if each.at_ms >= since_ms]
        if since_ms != _NEVER_MS:
            waiting = []
        for notification in sorted(ours, key=_order):
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
