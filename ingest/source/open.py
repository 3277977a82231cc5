# SPDX-License-Identifier: Apache-2.0
"""The one place that knows which code serves which kind of source.

Owns the `Source` protocol (planning side, one per stream, in Spark's source runner) and the two
entry points `open_source` and `open_range`. Everything else takes settings and offsets as values.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.source.file_lines import read_range
from ingest.source.files import FileSource
from ingest.source.kafka import KafkaSource
from ingest.source.kafka_consume import consume
from ingest.source.ranges import OffsetJson, SourceRange
from ingest.source.records import RawBatch
from ingest.source.topic_identities import TopicIdentities
from storage.clock import Clock, SystemClock

__all__ = ["Source", "open_range", "open_source"]


class Source(Protocol):
    """Planning side of a source.

    1. `initial` gives the first offsets of a new stream, `restore` those of a known one.
    2. `latest(start)` gives the end of the next batch, or `start` itself when there is nothing.
    3. `plan(start, end)` cuts a batch into tasks. It depends on nothing but its arguments (and, for
       files, on bytes which never change), so a batch from an earlier process can be planned again.
    4. `freeze` fixes what `latest` may reach, for a run that drains the source and stops.
    """

    def initial(self) -> OffsetJson:
        """Offsets a new stream starts at, as the settings say.

        Raises:
            RetryableError: the source did not answer.
            InvalidRequestError: the settings ask for something that is not there.
        """

    def restore(self, stored: Mapping[str, Any]) -> OffsetJson:
        """Offsets a stream goes on at, from what its tables or its progress file stored."""

    def rewind(self, start: Mapping[str, Any], position: Mapping[str, Any]) -> OffsetJson:
        """As `restore` of `start`, when a stream that has read up to `position` goes back there.

        Raises:
            DataLossError: records between the two are gone, so they cannot be read again.
        """

    def latest(
        self,
        start: Mapping[str, Any],
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        held: Collection[str] = (),
    ) -> OffsetJson:
        """End of the batch that begins at `start`, within the limits; `start` if none is due.

        Args:
            start: where it begins.
            max_records: bound over all topics [records].
            max_bytes: bound over all topics [bytes].
            held: topics that do not advance; they take no part of the bounds.

        Raises:
            DataLossError: records from `start` on are gone and `fail_on_data_loss` is on.
        """

    def available(self, start: Mapping[str, Any]) -> OffsetJson:
        """As `latest` without limits, for reporting lag; never raises for lost data."""

    def freeze(self) -> None:
        """From now on see only what is there now. Raises `RetryableError` if that is unknown."""

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[SourceRange]]:
        """Tasks of a batch, each a list of ranges to be read one after the other."""

    def close(self) -> None:
        """Release clients; the source can be used again."""


def open_source(
    settings: SourceSettings, clock: Clock | None = None, *, checkpoint: Path | None = None
) -> Source:
    """The planning side for `settings`; connects on first use.

    Args:
        settings: the source.
        clock: time.
        checkpoint: of the stream that is planned; it keeps there which topics its offsets are of.
    """
    if isinstance(settings, KafkaSourceSettings):
        identities = None if checkpoint is None else TopicIdentities(checkpoint)
        return KafkaSource(settings, clock or SystemClock(), identities)
    return FileSource(settings, clock or SystemClock())


def open_range(piece: SourceRange, source: SourceSettings) -> Iterator[RawBatch]:
    """Read exactly the records of one range, in offset order; the same on every call.

    Raises:
        DataLossError: records of the range are gone (and, for Kafka, `fail_on_data_loss` is on).
        RetryableError: the source did not answer in time; the task can be tried again.
    """
    if isinstance(source, KafkaSourceSettings):
        return consume(piece, source)
    return read_range(piece, source)
