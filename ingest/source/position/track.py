# SPDX-License-Identifier: Apache-2.0
"""Gives the rows of one task their positions, and keeps the highest of every source partition.

Per table, server, topic and partition:

* a row whose event has a position takes it; its epoch is the number of the table's epochs that
  began by then (`source.ts_ms`), and never falls along the partition;
* one whose position floats takes the highest before it instead, where that is higher;
* a row without one (incremental snapshots, which are ordered among the streamed changes as they
  arrive in Kafka: CDC.md §2.2 rule 4) takes the highest position before it. With an equal position
  the later arrival wins, and every change after it is higher;
* a position below the highest is a change delivered again, or late: it loses against newer rows.
  If its change was made *after* all changes before it, it is neither: the source restarted its log
  (failover, restore, log reset), and the moment is reported as the beginning of an epoch.

The highest positions come with the plan, from the table's newest snapshot of the stream, and go
back with the report: a replay starts from the same ones. Data plane: whole columns.

A snapshot of the stream in a table that is in the order of the source has the property
`lakeward.positions.<stream>`: JSON `{server: {topic: {partition: [...]}}}`, cumulative over the
source partitions that feed the table (`stored` says what the list holds).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.source.position.kinds import PositionKind, in_snapshot
from storage.errors import CorruptDataError, InternalError
from storage.format.types.arrow_types import arrow_type
from storage.lsm.merge_functions.sequence_order import dense_ranks

POSITIONS_PROPERTY = "lakeward.positions."

StoredPositions = Mapping[str, Mapping[str, Mapping[str, list[Any]]]]
"""Highest positions of one table as JSON values, by server, topic and partition."""


def merged_positions(stored: StoredPositions, newer: StoredPositions) -> StoredPositions:
    """The newer of each source partition."""
    merged: dict[str, dict[str, dict[str, list[Any]]]] = {
        server: {topic: dict(parts) for topic, parts in topics.items()}
        for server, topics in stored.items()
    }
    for server, topics in newer.items():
        for topic, parts in topics.items():
            merged.setdefault(server, {}).setdefault(topic, {}).update(parts)
    return merged


def positions_property(
    stream: str, stored: StoredPositions, newer: StoredPositions
) -> dict[str, str]:
    """The property of a commit; none for tables in the order of arrival.

    Args:
        stream: the stream's name.
        stored: the table's positions before the batch.
        newer: those after the batch, of the source partitions in it.
    """
    merged = merged_positions(stored, newer)
    if not merged:
        return {}
    text = orjson.dumps(merged, option=orjson.OPT_SORT_KEYS).decode()
    return {POSITIONS_PROPERTY + stream: text}


def parsed(text: str | None, snapshot_id: int) -> StoredPositions:
    """Positions of a property.

    Raises:
        CorruptDataError: it is malformed.
    """
    if text is None:
        return {}
    try:
        raw = orjson.loads(text)
        return {s: {t: dict(p) for t, p in topics.items()} for s, topics in raw.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise CorruptDataError(
            "a snapshot's source positions cannot be read", snapshot=snapshot_id, value=text
        ) from error


METADATA = ("server", "snapshot", "source_ts_ms")
"""What is needed of every event besides its position."""

_INCREMENTAL = "incremental"
_NEVER = np.iinfo(np.int64).min

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Highest:
    """The state of a source partition after its last record.

    Attributes:
        epoch: of the partition.
        position: highest position, as storage values; None = no event had one.
        position_epoch: of that position.
        ts_ms: newest `source.ts_ms` [epoch ms]; None = none.
    """

    epoch: int = 0
    position: tuple[Any, Any, Any] | None = None
    position_epoch: int = 0
    ts_ms: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RowPositions:
    """Positions of some rows.

    Attributes:
        columns: `_seq_epoch`, `_seq_1`, `_seq_2`, `_seq_3`.
        highest: after the rows.
        repeated: rows at or below the highest position before them: delivered again, or late.
        epoch_ms: moment since which the source restarted its log, in a way that the epochs do not
            explain; None = there is none.
    """

    columns: tuple[pa.Array, pa.Array, pa.Array, pa.Array]
    highest: Highest
    repeated: int = 0
    epoch_ms: int | None = None


def stored(highest: Highest) -> list[Any]:
    """As JSON values."""
    position = None if highest.position is None else [str(part) for part in highest.position]
    return [highest.epoch, position, highest.position_epoch, highest.ts_ms]


def highest_of(kind: PositionKind, value: Sequence[Any]) -> Highest:
    """From JSON values."""
    epoch, texts, position_epoch, ts_ms = value
    if texts is None:
        return Highest(int(epoch), None, int(position_epoch), ts_ms)
    types = [arrow_type(type_) for type_ in kind.types]
    parts = [
        pa.scalar(text, pa.string()).cast(type_).as_py()
        for text, type_ in zip(texts, types, strict=True)
    ]
    return Highest(int(epoch), (parts[0], parts[1], parts[2]), int(position_epoch), ts_ms)


def _mask(condition: pa.Array) -> _Mask:
    mask: _Mask = condition.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _ascending(columns: Sequence[pa.Array]) -> _Numbers:
    """`dense_ranks` of integers, which are mostly ascending already."""
    higher = np.zeros(len(columns[0]) - 1, np.bool_)
    equal = ~higher
    for column in columns:
        values = column.to_numpy()
        higher |= equal & (values[1:] > values[:-1])
        equal &= values[1:] == values[:-1]
    if not (higher | equal).all():
        return dense_ranks(columns)
    return np.r_[0, np.cumsum(higher)]


class Track:
    """One source partition of one server and table.

    Args:
        kind: of the table's positions.
        epochs: moments that begin epochs of the server [epoch ms], ascending.
        highest: before the first row.
    """

    def __init__(self, kind: PositionKind, epochs: Sequence[int], highest: Highest) -> None:
        self._kind = kind
        self._types = [arrow_type(type_) for type_ in kind.types]
        self._numbers = all(pa.types.is_int64(type_) for type_ in self._types)
        self._epochs = np.array(epochs, np.int64)
        self.highest = highest

    def place(self, origin: pa.RecordBatch) -> RowPositions:
        """Positions of the next rows; `highest` is then the one after them.

        Args:
            origin: metadata of change rows in offset order: `METADATA` and what the kind needs.
        """
        metadata = {name: origin.column(name) for name in origin.schema.names}
        positions = self._kind.read(metadata)
        parts = positions.columns
        valid = parts[0].is_valid().to_numpy(zero_copy_only=False)
        valid &= ~_mask(pc.equal(metadata["snapshot"], _INCREMENTAL))
        moments, dated = self._moments(metadata["source_ts_ms"], valid)
        counts = np.searchsorted(self._epochs, moments, side="right")
        counts[~(valid & dated)] = 0
        epochs = np.maximum.accumulate(np.r_[self.highest.epoch, counts])[1:].astype(np.int64)
        before = self._stacked(epochs, parts)
        ranks, first = self._ranks(before, valid)
        running = np.maximum.accumulate(np.r_[first, ranks])
        exact = valid if positions.floating is None else valid & ~positions.floating
        falls = exact & (ranks <= running[:-1])
        before_ms = _NEVER if self.highest.ts_ms is None else self.highest.ts_ms
        newest = np.maximum.accumulate(np.r_[before_ms, np.where(valid & dated, moments, _NEVER)])
        restarted = exact & dated & (ranks < running[:-1]) & (moments > newest[:-1])
        restarted &= newest[:-1] != _NEVER
        sources = self._sources(ranks, first, running, exact)
        columns = tuple(column.take(sources) for column in before)
        placed = RowPositions(
            (columns[0], columns[1], columns[2], columns[3]),
            self._highest_after(before, epochs, ranks, first, newest),
            int((falls & ~in_snapshot(metadata["snapshot"])).sum()),
            int(moments[restarted].min()) if restarted.any() else None,
        )
        self.highest = placed.highest
        return placed

    def _moments(self, stamps: pa.Array, mask: _Mask) -> tuple[_Numbers, _Mask]:
        dated = stamps.is_valid().to_numpy(zero_copy_only=False) & mask
        return stamps.fill_null(0).to_numpy(), dated

    def _stacked(self, epochs: _Numbers, parts: Sequence[pa.Array]) -> list[pa.Array]:
        """The highest position before the rows, null when there is none, then the rows'."""
        high = self.highest.position or (None, None, None)
        first = None if self.highest.position is None else self.highest.position_epoch
        stacked = [pa.concat_arrays([pa.array([first], pa.int64()), pa.array(epochs)])]
        for value, part, type_ in zip(high, parts, self._types, strict=True):
            stacked.append(pa.concat_arrays([pa.array([value], type_), part.cast(type_)]))
        return stacked

    def _ranks(self, stacked: Sequence[pa.Array], mask: _Mask) -> tuple[_Numbers, int]:
        """Per row its rank in the order of positions, -1 for none; and that of the highest."""
        chosen = np.flatnonzero(np.r_[self.highest.position is not None, mask])
        ranks = np.full(len(mask) + 1, -1, np.int64)
        if len(chosen):
            complete = len(chosen) == len(ranks)
            columns = [c if complete else c.take(pa.array(chosen)) for c in stacked]
            ranks[chosen] = _ascending(columns) if self._numbers else dense_ranks(columns)
        return ranks[1:], int(ranks[0])

    def _sources(self, ranks: _Numbers, first: int, running: _Numbers, exact: _Mask) -> pa.Array:
        """Per row the stacked row whose position it takes."""
        targets = np.where(exact, ranks, running[1:])
        distinct, at = np.unique(np.r_[first, ranks], return_index=True)
        indices = at[np.searchsorted(distinct, targets)]
        indices = np.where(exact, np.arange(1, len(exact) + 1), indices)
        return pa.array(indices, mask=targets < 0)

    def _highest_after(
        self,
        stacked: Sequence[pa.Array],
        epochs: _Numbers,
        ranks: _Numbers,
        first: int,
        newest: _Numbers,
    ) -> Highest:
        all_ranks = np.r_[first, ranks]
        at = int(np.argmax(all_ranks))
        epoch = int(epochs[-1]) if len(epochs) else self.highest.epoch
        ts_ms = None if newest[-1] == _NEVER else int(newest[-1])
        if all_ranks[at] < 0:
            return Highest(epoch, None, 0, ts_ms)
        position_epoch, *parts = (column[at].as_py() for column in stacked)
        if len(parts) != 3:
            raise InternalError("a source position of the wrong size")
        return Highest(epoch, (parts[0], parts[1], parts[2]), int(position_epoch), ts_ms)
