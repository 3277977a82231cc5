# SPDX-License-Identifier: Apache-2.0
"""Waiting until the lake has caught up with a position of the source.

The lake knows Kafka's offsets, not the database's positions. So, in this order: the database's
position is noted; a PostgreSQL replication slot, if one is named, must confirm it, else the
connector is given some seconds; the ends of the topics are noted; the lake must reach these ends.
The evidence is the table's own snapshots, the stream's note in the warehouse or, for batches
without rows of the table, its checkpoint; or the status page of the pipeline.
"""

import dataclasses
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ingest.config.settings import Settings
from ingest.observe.observe import LAG_POLL_S
from ingest.source.open import LagProbe
from ingest.state.ownership import newest_note
from ingest.state.parking import Parking
from ingest.state.stream_state import CheckpointState, progress_of, read_offset_log
from storage.clock import Clock
from storage.errors import InvalidRequestError, RetryableError
from storage.table.table import FileStoreTable

_LOG = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_POLL_S = 1.0
_LOG_EVERY_S = 15.0

Offsets = dict[tuple[str, str], int]


class Progress(Protocol):
    """The lag of the lake."""

    def note_ends(self) -> None:
        """Record the current end offsets of the topics."""

    def lag(self) -> Mapping[str, int]:
        """Records between the lake and the noted ends, by `topic/partition`; only above 0."""


class KafkaLag:
    """Ends from Kafka, the lake's offsets from the lake."""

    def __init__(self, settings: Settings, table: FileStoreTable, name: str) -> None:
        self._settings = settings
        self._name = name
        self._table = table
        self._stream = settings.pipeline.name
        self._ends: Offsets = {}

    def note_ends(self) -> None:
        """See `Progress`."""
        feeding = progress_of(self._table, self._stream)
        topics = set() if feeding is None else set(feeding.offsets)
        with LagProbe(self._settings.source) as probe:
            watermarks = probe.poll()
        self._ends = {
            (topic, str(partition)): high
            for (topic, partition), (low, high) in watermarks.items()
            if high > low and (not topics or topic in topics)
        }

    def lag(self) -> Mapping[str, int]:
        """See `Progress`.

        Raises:
            InvalidRequestError: the table is parked: it does not catch up.
        """
        reached = self._highest_offsets()
        return {
            f"{topic}/{partition}": end - reached.get((topic, partition), 0)
            for (topic, partition), end in self._ends.items()
            if end > reached.get((topic, partition), 0)
        }

    def _highest_offsets(self) -> Offsets:
        """The highest offsets that any of the witnesses reports."""
        reached: Offsets = {}
        for offsets in self._witnesses():
            for topic, parts in offsets.items():
                for partition, offset in parts.items():
                    if isinstance(offset, int):
                        key = (topic, str(partition))
                        reached[key] = max(offset, reached.get(key, 0))
        return reached

    def _witnesses(self) -> Iterator[Mapping[str, Any]]:
        warehouse = self._settings.sink.warehouse
        parking = Parking(self._table.file_io, warehouse, self._stream)
        parking.load()
        parked = parking.parked().get(self._name)
        if parked is not None:
            raise InvalidRequestError(
                "the table is parked, so it does not catch up",
                hint="resume it with `lakeward resume`, or verify without --wait-for",
                detail=parked.reason,
                table=self._name,
            )
        progress = progress_of(self._table, self._stream)
        if progress is not None:
            yield progress.offsets
        if self._name not in parking.catching_up:  # other tables' offsets are no evidence for it
            yield parking.common_floor
            yield from self._of_note(-1 if progress is None else progress.identifier)
        yield self._checkpoint() or {}

    def _of_note(self, identifier: int) -> Iterator[Mapping[str, Any]]:
        """Start offsets of the batch being committed; its end offsets if it is in the table."""
        warehouse = self._settings.sink.warehouse
        note = newest_note(self._table.file_io, warehouse, self._stream)
        if note is not None:
            committed = identifier >= note.identifier or self._name not in note.tables
            yield note.end if committed else note.start

    def _checkpoint(self) -> Mapping[str, Any] | None:
        """End offsets of the newest finished batch, if the checkpoint is on this machine."""
        checkpoint = Path(self._settings.pipeline.checkpoint)
        try:
            state = CheckpointState.load(checkpoint)
            if state is None or state.stream != self._stream:
                return None
            files = state.directory(checkpoint)
            names = [entry.name for entry in (files / "commits").iterdir()]
            batch_ids = [int(name) for name in names if name.isdecimal()]
            return read_offset_log(files, max(batch_ids)) if batch_ids else None
        except OSError:
            return None


class StatusLag:
    """Everything from the pipeline's status page."""

    def __init__(self, url: str, clock: Clock) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidRequestError("not the address of a status page", address=url)
        url = url.rstrip("/")
        self._url = url if url.endswith("/api/status") else f"{url}/api/status"
        self._clock = clock
        self._noted_s = 0.0

    def note_ends(self) -> None:
        """See `Progress`."""
        self._noted_s = self._clock.monotonic_s()

    def lag(self) -> Mapping[str, int]:
        """See `Progress`; the page polls the topics every `LAG_POLL_S`."""
        remaining_s = self._noted_s + LAG_POLL_S + 1 - self._clock.monotonic_s()
        if remaining_s > 0:
            self._clock.sleep(remaining_s)
        lags: dict[str, int] = {}
        for topic, parts in self._document().get("source", {}).items():
            for partition, facts in parts.items():
                lag = facts.get("lag")
                if lag is None:  # the page has no recent lag of the topic
                    lags[f"{topic}/{partition}"] = 1
                elif lag > 0:
                    lags[f"{topic}/{partition}"] = int(lag)
        return lags

    def _document(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as answer:
                document = json.loads(answer.read())
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise RetryableError(
                "the pipeline's status page does not answer",
                hint="name it with --status-url, or give the configuration with -c",
                detail=str(error),
                address=self._url,
            ) from error
        if not isinstance(document, dict):
            raise RetryableError("not the status page of a pipeline", address=self._url)
        return document


@dataclasses.dataclass(slots=True, kw_only=True)
class LagWait:
    """Waits for lag 0 at a position.

    Attributes:
        progress: how far the lake is.
        position: returns the end of the source's log.
        is_confirmed: whether the connector has confirmed a position; None = unknown.
        clock: time.
        settle_s: time the connector gets to send, where that is unknown [s].
        timeout_s: when to give up [s].
    """

    progress: Progress
    position: Callable[[], str | None]
    is_confirmed: Callable[[str], bool] | None
    clock: Clock
    settle_s: float = 5.0
    timeout_s: float = 600.0

    def __call__(self) -> str | None:
        """Wait.

        Returns:
            The position that the lake has reached; None where the source has none.

        Raises:
            RetryableError: it took too long; says what is missing.
        """
        begun_s = self.clock.monotonic_s()
        position = self.position()
        if position is not None and self.is_confirmed is not None:
            is_confirmed, at = self.is_confirmed, position
            self._until(
                begun_s, lambda: {} if is_confirmed(at) else {"replication slot": 1}, position
            )
        else:
            self.clock.sleep(self.settle_s)
        self.progress.note_ends()
        self._until(begun_s, self.progress.lag, position)
        return position

    def _until(
        self, begun_s: float, lag: Callable[[], Mapping[str, int]], position: str | None
    ) -> None:
        logged_s = begun_s
        while True:
            lags = lag()
            if not lags:
                return
            now_s = self.clock.monotonic_s()
            text = ", ".join(f"{name} by {count}" for name, count in sorted(lags.items())[:5])
            if now_s - begun_s > self.timeout_s:
                raise RetryableError(
                    "the lake did not catch up with the source in time",
                    hint="see whether the connector and the pipeline run, or give --wait-timeout",
                    behind=text,
                    position=position,
                    waited_s=round(now_s - begun_s),
                )
            if now_s - logged_s >= _LOG_EVERY_S:
                logged_s = now_s
                _LOG.info("waiting for the lake", extra={"event": "waiting", "behind": text})
            self.clock.sleep(_POLL_S)
