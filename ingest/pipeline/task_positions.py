# SPDX-License-Identifier: Apache-2.0
"""The positions of one source task: columns for change batches, and what the driver must know.

A source partition is read by one task where order is the source's (`ranges.whole_partitions`), so
that every record finds the highest position before it.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ingest.decode.events import ChangeBatch, SchemaDelta, SourceTable
from ingest.pipeline.plan import BatchPlan
from ingest.source.position.kinds import RECOGNISED_BY, PositionKind
from ingest.source.position.ordered_tables import POSITION_COLUMNS, epochs_of, position_kind
from ingest.source.position.track import (
    METADATA,
    Highest,
    RowPositions,
    StoredPositions,
    Track,
    highest_of,
    merged_positions,
    stored,
)
from ingest.source.records import RawBatch
from storage.errors import InternalError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND

_LOG = logging.getLogger(__name__)

_EPOCH_RUNS = 5
"""Runs of a batch in which epochs may be found: a source restarts its positions once or twice in a
batch; one whose positions are never monotonic must not block the stream."""

_Place = tuple[str, str, str, int]


def wanted_metadata(kind: PositionKind | None) -> tuple[str, ...]:
    """Return the metadata that decoders must provide; without a kind, those that determine it."""
    return RECOGNISED_BY if kind is None else (*METADATA, *kind.metadata)


class TaskPositions:
    """See the module.

    Args:
        plan: the run.

    Attributes:
        highest: after the rows of each table.
        repeated: rows of each table that were delivered again, or late.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._tracks: dict[_Place, Track] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        self.highest: dict[str, StoredPositions] = {}
        self.repeated: Counter[str] = Counter()

    def with_positions(
        self, raw: RawBatch, change: ChangeBatch, schema: TableSchema
    ) -> ChangeBatch:
        """Add the columns of positions to a change batch, if the table has them.

        Args:
            raw: the records.
            change: rows with their origin.
            schema: of the table, whole.
        """
        kind, origin = position_kind(schema), change.origin
        if kind is None or origin is None:
            raise InternalError("rows without metadata for positions", table=change.target)
        servers = origin.column("server").fill_null("").dictionary_encode()
        numbers = servers.indices.to_numpy()
        pieces: list[tuple[pa.Array, ...]] = []
        order: list[np.ndarray] = []
        for number, server in enumerate(servers.dictionary.to_pylist()):
            indices = np.flatnonzero(numbers == number)
            part = origin if len(indices) == len(numbers) else origin.take(pa.array(indices))
            placement = self._track(raw, change.target, server, schema, kind).place(part)
            self._note(raw, change, server, placement)
            pieces.append(placement.columns)
            order.append(indices)
        return _with_columns(change, schema, pieces, order)

    def memory(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        tracks = {place: (track, track.highest) for place, track in self._tracks.items()}
        epochs, highest, repeated = dict(self._epochs), dict(self.highest), self.repeated.copy()

        def restore() -> None:
            for track, position in tracks.values():
                track.highest = position
            self._tracks = {place: track for place, (track, _) in tracks.items()}
            self._epochs, self.highest, self.repeated = epochs, highest, repeated

        return restore

    def _track(
        self, raw: RawBatch, table: str, server: str, schema: TableSchema, kind: PositionKind
    ) -> Track:
        place = (table, server, raw.topic, raw.partition)
        track = self._tracks.get(place)
        if track is None:
            by_topic = self._plan.positions.get(table, {}).get(server, {})
            position = by_topic.get(raw.topic, {}).get(str(raw.partition))
            highest = Highest() if position is None else highest_of(kind, position)
            track = Track(kind, epochs_of(schema).get(server, ()), highest)
            self._tracks[place] = track
        return track

    def _note(self, raw: RawBatch, change: ChangeBatch, server: str, result: RowPositions) -> None:
        table = change.target
        if not self._plan.wants(table):
            return
        if self._plan.floor(table, raw.topic, raw.partition) <= raw.offsets[0]:
            self.repeated[table] += result.repeated
        if result.epoch_ms is not None:
            earliest_ms = self._epochs.get((table, server), result.epoch_ms)
            self._epochs[table, server] = min(earliest_ms, result.epoch_ms)
        newer = {server: {raw.topic: {str(raw.partition): stored(result.highest)}}}
        self.highest[table] = merged_positions(self.highest.get(table, {}), newer)

    def deltas(self) -> list[SchemaDelta]:
        """Request the epochs that begin in this batch."""
        if self._plan.run >= _EPOCH_RUNS:
            if self._epochs:
                _LOG.warning(
                    "positions are not monotonic: two sources may write to one topic",
                    extra={"tables": sorted({table for table, _ in self._epochs})},
                )
            return []
        return [
            SchemaDelta(table, SourceTable("", "", "", server), "", (), (), 0, epoch_ms=moment)
            for (table, server), moment in sorted(self._epochs.items())
        ]


def _with_columns(
    change: ChangeBatch,
    schema: TableSchema,
    pieces: Sequence[tuple[pa.Array, ...]],
    order: Sequence[np.ndarray],
) -> ChangeBatch:
    columns = list(pieces[0])
    if len(pieces) > 1:
        inverse = pa.array(np.argsort(np.concatenate(order), kind="stable"))
        columns = [
            pa.concat_arrays([piece[at] for piece in pieces]).take(inverse)
            for at in range(len(POSITION_COLUMNS))
        ]
    rows, extra = change.rows, dict(zip(POSITION_COLUMNS, columns, strict=True))
    names = set(rows.schema.names)
    fields, arrays = [], []
    for field in schema.arrow_schema:
        if field.name in extra or field.name in names:
            fields.append(field)
            arrays.append(extra[field.name] if field.name in extra else rows.column(field.name))
    at = rows.schema.get_field_index(VALUE_KIND)
    fields += [rows.schema.field(index) for index in range(at, rows.num_columns)]
    batch = pa.RecordBatch.from_arrays([*arrays, *rows.columns[at:]], schema=pa.schema(fields))
    return dataclasses.replace(change, rows=batch)
