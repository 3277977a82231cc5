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
"""How long the connector may say nothing before the command wonders [s]: it looks for signals in
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
    its end. After the end there is one more look for what came to other partitions a moment later.

    Args:
        signal: that asked for it.
        read: gives the notifications since the last call.
        clock: time.
        say: told of progress.
        timeout_s: how long to wait at most [s]; None = as long as it takes.

    Raises:
        InvalidRequestError: it was aborted or skipped, or a table could not be scanned.
        RetryableError: the time is over; the snapshot goes on.
    """
    began = clock.monotonic_s()
    rows: dict[str, int] = {}
    said, heard = "", False
    ended_s: float | None = None
    waiting: list[Notification] = []
    since_ms = _NEVER_MS if signal.blocking else 0
    while True:
        before_s = ended_s
        waiting += [told for told in read() if signal.is_about(told)]
        heard = heard or bool(waiting)
        if since_ms == _NEVER_MS:
            begins = (told.at_ms for told in waiting if told.type in _BEGINS)
            since_ms = min(begins, default=_NEVER_MS)
        ours = [told for told in waiting if told.at_ms >= since_ms]
        if since_ms != _NEVER_MS:
            waiting = []
        for told in sorted(ours, key=_order):
            if told.progress and told.progress != said:
                said = told.progress
                say(said)
            _note(told, rows)
            if told.type == "COMPLETED":
                ended_s = clock.monotonic_s()
        waited = clock.monotonic_s() - began
        if before_s is not None:
            return Followed(rows, before_s - began)
        if timeout_s is not None and waited >= timeout_s and ended_s is None:
            raise RetryableError(
                "the snapshot is not complete yet",
                hint="the connector goes on with it; its notifications will tell",
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


def _order(told: Notification) -> tuple[int, bool]:
    return told.at_ms, told.type == "COMPLETED"


def _note(told: Notification, rows: dict[str, int]) -> None:
    if told.type in ("ABORTED", "SKIPPED"):
        raise InvalidRequestError(
            f"the connector says that the snapshot was {told.type.lower()}",
            hint="its log says why",
            connector=told.server,
        )
    if told.type != "TABLE_SCAN_COMPLETED":
        return
    name, count = told.data.get("scanned_collection", ""), told.data.get("total_rows_scanned", "")
    if count.isdigit():
        rows[name] = rows.get(name, 0) + int(count)
    status = told.data.get("status", "")
    if status not in _GOOD:
        raise InvalidRequestError(
            "the connector could not scan the table",
            hint="does it capture this table under this name (--collection)? Incremental "
            "snapshots need a primary key",
            collection=name,
            status=status,
        )
