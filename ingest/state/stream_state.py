# SPDX-License-Identifier: Apache-2.0
"""The stream's progress in its tables, and the small file that binds a checkpoint to the stream.

Spark numbers micro-batches from 0 in every new checkpoint, so a commit identifier is
`base + batch id`, with `base` = 1 + the largest identifier the stream has in any table. It is fixed
once per checkpoint and kept in `<checkpoint>/lakeward.json` together with the concrete offsets at
which the checkpoint starts (Spark does not log those of batch 0) and, when the checkpoint is new
but the tables are not, the per-table floors below which rows are already in a table
(`docs/adr/ingest/0001`).

Properties that every snapshot of the stream carries:

* `lakeward.offsets.<stream>`  per topic what the source needs to continue after this snapshot: JSON
  `{topic: {partition: next offset}}`, cumulative over the topics that feed the table;
* `lakeward.range.<stream>`  the micro-batch's exact ranges: JSON
  `{topic: {partition: [start, end]}}`;
* `lakeward.positions.<stream>`  of tables in the order of the source, see `positions.stored`;
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import SinkSettings
from ingest.source.records import OffsetJson, PositionKind, in_snapshot, normalize
from storage.catalog.catalog import Catalog
from storage.errors import CorruptDataError, FencedError, InternalError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import RemoveOption, SetOption
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import arrow_type
from storage.io.counting import CountingFileIO
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.lsm.merge_functions.segments import dense_ranks
from storage.table.commit.commit_changes import CommitHistory
from storage.table.table import FileStoreTable

# The one form of a stream's state: a dataclass as JSON with a version, checked when it is read.
#
#     version   what is new
#     1         checkpoint's state file, progress note, list of parked tables
#     2         the progress note is in the records of the owner (`ingest.state.ownership`)
#
# A version is raised when an older Lakeward could not continue from the state without loss. Members
# that older ones may leave out need no new version: unknown members are ignored.


STATE_FORMAT = 2
"""What this version writes; it reads all before."""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


class StateFormatError(InvalidRequestError):
    """The state is of a later version. Operator action: install that version, or a later one."""


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T")
D = TypeVar("D", bound=_Dataclass)


@dataclasses.dataclass(frozen=True, slots=True)
class _Header:
    version: int = STATE_FORMAT


def encoded(content: _Dataclass) -> bytes:
    """A dataclass as JSON with the version; equal contents give equal bytes."""
    raw = {"version": STATE_FORMAT, **msgspec.to_builtins(content)}
    return orjson.dumps(raw, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)


def decoded(data: bytes, content: type[T], path: str) -> T:
    """Inverse of `encoded`; a file without a version is checked by its members alone.

    Raises:
        StateFormatError: it is of a later version.
        msgspec.DecodeError, UnicodeDecodeError: it is damaged.
    """
    version = msgspec.json.decode(data, type=_Header).version
    if version > STATE_FORMAT:
        raise StateFormatError(
            f"the stream's state has format {version}, this Lakeward knows formats up to "
            f"{STATE_FORMAT}",
            hint="a newer Lakeward has run this stream: install that version again. Going back is "
            "possible only with the warehouse's and checkpoint's state from before the upgrade",
            path=path,
            format=version,
        )
    return msgspec.json.decode(data, type=content)


class StateFile(Generic[D]):
    """One file with a dataclass, replaced atomically and durably.

    Args:
        path: of the file.
        content: the dataclass.
        title: what it is, for errors, such as "the list of parked tables".
        hint: what to do when it is damaged.
    """

    def __init__(
        self, file_io: FileIO, path: str, content: type[D], *, title: str, hint: str
    ) -> None:
        self._io = file_io
        self.path = path
        self._content = content
        self._title = title
        self._hint = hint

    def read(self) -> D | None:
        """The content; None = there is no file.

        Raises:
            CorruptDataError: it is damaged.
            StateFormatError: it is of a later version.
        """
        try:
            data = self._io.read_bytes(self.path)
        except FileNotFoundError:
            return None
        try:
            return decoded(data, self._content, self.path)
        except _UNREADABLE as error:
            raise CorruptDataError(
                f"{self._title} cannot be read", hint=self._hint, detail=str(error), path=self.path
            ) from error

    def write(self, content: D) -> None:
        """Replace the file; durable at return."""
        self._io.overwrite_bytes(self.path, encoded(content))

    def delete(self) -> None:
        """Remove the file; there may be none."""
        self._io.delete(self.path)


def snapshot_property(snapshot: Snapshot, name: str, content: type[T], title: str) -> T | None:
    """A property of a snapshot that Lakeward wrote as JSON; None = the snapshot has none.

    Args:
        snapshot: where it is.
        name: of the property.
        content: its type.
        title: what it says, for errors, such as "source offsets".

    Raises:
        CorruptDataError: it cannot be read.
    """
    text = (snapshot.properties or {}).get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=content)
    except _UNREADABLE as error:
        raise CorruptDataError(
            f"a snapshot's {title} cannot be read",
            hint="another program changed it: `lakeward table rollback` to the snapshot before",
            snapshot=snapshot.id,
            value=text,
        ) from error


# Gives the rows of one task their positions, and keeps the highest of every source partition.
#
# Per table, server, topic and partition:
#
# * a row whose event has a position takes it; its epoch is the number of the table's epochs that
#   began by then (`source.ts_ms`), and never falls along the partition;
# * one whose position floats takes the highest before it instead, where that is higher;
# * a row without one (incremental snapshots, which are ordered among the streamed changes as they
#   arrive in Kafka: CDC.md §2.2 rule 4) takes the highest position before it. With an equal
#   position the later arrival wins, and every change after it is higher;
# * a position below the highest is a change delivered again, or late: it loses against newer rows.
#   If its change was made *after* all changes before it, it is neither: the source restarted its
#   log (failover, restore, log reset), and the moment is reported as the beginning of an epoch.
#
# The highest positions come with the plan, from the table's newest snapshot of the stream, and go
# back with the report: a replay starts from the same ones. Data plane: whole columns.
#
# A snapshot of the stream in a table that is in the order of the source has the property
# `lakeward.positions.<stream>`: JSON `{server: {topic: {partition: [...]}}}`, cumulative over the
# source partitions that feed the table (`stored` says what the list holds).


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


_LOG = logging.getLogger(__name__)

OFFSETS_PROPERTY = "lakeward.offsets."
_SWEEP_PROPERTY = "lakeward.sweep."  # of earlier releases
RANGE_PROPERTY = "lakeward.range."
_FILE_NAME = "lakeward.json"
_GENERATION = "rewind-"
_SPARK_NAMES = ("metadata", "offsets", "commits", "sources", "state")

OffsetMap = dict[str, dict[str, int]]
Span = Mapping[str, Mapping[str, tuple[int, int]]]
_StoredSpan = dict[str, dict[str, tuple[int, int]]]


@dataclasses.dataclass(frozen=True, slots=True)
class TableProgress:
    """The stream's newest commit in one table.

    Attributes:
        identifier: newest commit identifier of the stream in the table; -1 = none.
        offsets: next offset per topic and partition, cumulative.
        span: ranges of the newest commit.
        snapshot_id: of that commit.
        positions: highest positions of a table in the order of the source.
    """

    identifier: int
    offsets: OffsetMap
    span: _StoredSpan
    snapshot_id: int
    positions: StoredPositions = dataclasses.field(default_factory=dict)


def progress_of(table: FileStoreTable, stream: str) -> TableProgress | None:
    """The stream's newest commit in a table, or None when it never wrote there."""
    return progress_up_to(table.latest_snapshot(), table, stream)


def progress_up_to(
    latest: Snapshot | None, table: FileStoreTable, stream: str
) -> TableProgress | None:
    """The same in the snapshots up to the newest."""
    snapshot = CommitHistory(table, stream).newest(latest)
    if snapshot is None:
        return None
    properties = snapshot.properties or {}
    _warn_of_open_sweep(properties.get(_SWEEP_PROPERTY + stream), snapshot, table)
    return TableProgress(
        snapshot.commit_identifier,
        stored_offsets(snapshot, stream) or {},
        snapshot_property(snapshot, RANGE_PROPERTY + stream, _StoredSpan, "source range") or {},
        snapshot.id,
        parsed(properties.get(POSITIONS_PROPERTY + stream), snapshot.id),
    )


def _warn_of_open_sweep(text: str | None, snapshot: Snapshot, table: FileStoreTable) -> None:
    """Warn where an earlier release would have deleted rows at the end of a source snapshot."""
    try:
        sweep = orjson.loads(text or "{}")
        is_open = sweep.get("commit") == snapshot.commit_identifier and sweep["state"] == "open"
    except (ValueError, KeyError, AttributeError):
        return
    if is_open:
        _LOG.warning(
            "on.resnapshot: sweep was removed; rows missing from the source snapshot stay: "
            "compare the table with `lakeward verify --repair` when the snapshot has ended",
            extra={"event": "sweep_removed", "table": table.layout.root},
        )


def stored_offsets(snapshot: Snapshot, stream: str) -> OffsetMap | None:
    """A stream's offsets in a snapshot of any writer; None when it has none.

    Raises:
        CorruptDataError: they cannot be read.
    """
    return snapshot_property(snapshot, OFFSETS_PROPERTY + stream, OffsetMap, "source offsets")


def require_own(
    progress: TableProgress | None,
    table: str,
    identifier: int,
    ranges: Mapping[str, Mapping[str, tuple[int, int]]],
) -> None:
    """Verify that a commit that exists already is our own, whose reply was lost.

    Args:
        progress: the stream's newest commit in the table.
        table: `database.table`.
        identifier: of our commit.
        ranges: of our commit.

    Raises:
        FencedError: it is not.
    """
    if progress is None or progress.identifier != identifier or progress.span != ranges:
        raise FencedError(
            "another process committed this batch",
            hint="two daemons run one stream: stop one of them",
            table=table,
            identifier=identifier,
        )


def commit_properties(
    stream: str,
    known_offsets: Mapping[str, Mapping[str, int]],
    span: Span,
    topics: Iterable[str],
    floor: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[dict[str, str], OffsetMap]:
    """Properties of a commit, and the table's offsets after it.

    Args:
        known_offsets: the table's offsets before the batch.
        span: ranges of the whole batch.
        topics: topics that fed this table in this or an earlier batch.
        floor: offsets below which the table has everything already; while the stream reads
            below it again, the table's offsets stay at it.
    """
    floor = floor or {}
    offsets = {topic: dict(parts) for topic, parts in known_offsets.items()}
    feeding = set(topics) | set(offsets)
    ranges: dict[str, dict[str, tuple[int, int]]] = {}
    for topic in sorted(feeding & set(span)):
        ranges[topic] = dict(span[topic])
        by_partition = offsets.setdefault(topic, {})
        for partition, (_, end) in span[topic].items():
            # also backwards: a recreated topic starts over, when the settings allow it
            by_partition[partition] = max(end, floor.get(topic, {}).get(partition, end))
    properties = {
        OFFSETS_PROPERTY + stream: _dumps(offsets),
        RANGE_PROPERTY + stream: _dumps(ranges),
    }
    return properties, offsets


def _dumps(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode("utf-8")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The content of `<checkpoint>/lakeward.json`.

    Attributes:
        stream: the stream this checkpoint belongs to.
        base: commit identifier of Spark's batch 0.
        initial: concrete offsets where the checkpoint starts, in the source's own form.
        floors: per table the offsets that it had when the checkpoint was made; under
            `ANY_TABLE` those of all tables that are not named.
        bad_floors: per rewound table the offsets from which its bad records are quarantined,
            whatever the quarantine table's floor.
        generation: how often the stream was rewound; Spark's own files are in `directory`.
    """

    stream: str
    base: int
    initial: Mapping[str, Any]
    floors: Mapping[str, OffsetMap]
    bad_floors: Mapping[str, OffsetMap] = dataclasses.field(default_factory=dict)
    generation: int = 0

    def directory(self, checkpoint: Path) -> Path:
        """Where Spark keeps its logs: a new directory each time the stream is rewound."""
        return checkpoint / f"{_GENERATION}{self.generation}" if self.generation else checkpoint

    @staticmethod
    def load(checkpoint: Path) -> "CheckpointState | None":
        """Read the file, or None when the checkpoint is new.

        Raises:
            CorruptDataError: the file is damaged.
            StateFormatError: it is of a later version.
        """
        return _state_file(checkpoint).read()

    def save(self, checkpoint: Path) -> None:
        """Write the file durably; the directory is created."""
        _state_file(checkpoint).write(self)


def _state_file(checkpoint: Path) -> StateFile[CheckpointState]:
    return StateFile(
        LocalFileIO(),
        str(checkpoint / _FILE_NAME),
        CheckpointState,
        title="the checkpoint's state file",
        hint="restore it, or `lakeward run --recover-offsets`: the tables hold the offsets",
    )


def next_generation(checkpoint: Path) -> int:
    """The first generation without files in the checkpoint; 0 for a new checkpoint."""
    names = [path.name.removeprefix(_GENERATION) for path in checkpoint.glob(f"{_GENERATION}*")]
    used = [int(name) for name in names if name.isdigit()]
    if any((checkpoint / name).exists() for name in (_FILE_NAME, *_SPARK_NAMES)):
        used.append(0)
    return max(used, default=-1) + 1


def spark_files(checkpoint: Path, *, but: Path) -> list[Path]:
    """Files of a checkpoint's generations other than the one in directory `but`."""
    old = [path for path in checkpoint.glob(f"{_GENERATION}*") if path != but]
    if but != checkpoint:
        old += [path for name in _SPARK_NAMES if (path := checkpoint / name).exists()]
    return old


def read_offset_log(checkpoint: Path, batch_id: int) -> Mapping[str, Any] | None:
    """The source's end offset of a planned batch, as Spark wrote it before running the batch.

    Returns:
        The offset, or None when the log has no such batch (batch -1).
    """
    path = checkpoint / "offsets" / str(batch_id)
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        raw = orjson.loads(lines[-1])
    except (ValueError, IndexError) as error:
        raise _damaged(path) from error
    if not isinstance(raw, dict):
        raise _damaged(path)
    return raw


def _damaged(path: Path) -> CorruptDataError:
    return CorruptDataError(
        "Spark's offset log cannot be read",
        hint="restore the checkpoint, or resume from the offsets committed in the tables: "
        "`lakeward run --recover-offsets`",
        path=path,
    )


# Tables that were rolled back or fast-forwarded without their stream.
#
# The snapshots that are removed hold rows, and the stream's offsets in the table. A stream that
# continued from its own memory or checkpoint would never write these rows again. So
#
# * a note in the table's options is written before the snapshots are removed. A daemon does not
#   start while it exists; `lakeward run --recover-offsets` reads again what such tables lack, and
#   removes it;
# * a commit of a running daemon finds that the newest snapshot does not have the offsets that it
#   committed last, and ends the daemon.


ROLLBACK_OPTION = "lakeward.taken-back"
"""Table option: what the table was rolled back to, and the topics of the streams that wrote it."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    to: str
    streams: Mapping[str, tuple[str, ...]]


_HINT = "start the pipeline with `lakeward run --recover-offsets`: it reads again what is missing"


def streams_of(snapshot: Snapshot | None) -> list[str]:
    """The streams that write a table, by its newest snapshot."""
    properties = {} if snapshot is None else snapshot.properties or {}
    return sorted(
        key.removeprefix(OFFSETS_PROPERTY) for key in properties if key.startswith(OFFSETS_PROPERTY)
    )


def note_rollback(
    table: FileStoreTable,
    newest: Snapshot | None,
    target: str,
    more: Mapping[str, Iterable[str]] = MappingProxyType({}),
) -> FileStoreTable:
    """Note in a table's options that its newest snapshots are about to be removed.

    Args:
        table: at the branch that streams write.
        newest: its newest snapshot; None: it has none.
        target: what it is rolled back to, for people.
        more: further topics by stream, which the snapshot does not have.

    Returns:
        The table with the note.
    """
    own = {name: newest and stored_offsets(newest, name) for name in streams_of(newest)}
    streams = {name: set(offsets or ()) for name, offsets in own.items()}
    earlier = _note_of(table.schema.options).streams  # of a rollback that is not recovered yet
    for name, topics in (*earlier.items(), *more.items()):
        streams.setdefault(name, set()).update(topics)
    sorted_topics = {name: tuple(sorted(streams[name])) for name in sorted(streams)}
    return table.alter([_option(_Note(target, sorted_topics))])


def forget_rollback(table: FileStoreTable, stream: str) -> None:
    """Remove a stream from the note: it has recovered the table's own offsets."""
    note = _note_of(table.schema.options)
    if stream not in note.streams:
        return
    streams = {name: topics for name, topics in note.streams.items() if name != stream}
    table.alter([_option(_Note(note.to, streams)) if streams else RemoveOption(ROLLBACK_OPTION)])


def rolled_back_topics(
    options: Mapping[str, Mapping[str, str]], stream: str
) -> dict[str, tuple[str, ...]]:
    """The tables that were rolled back since a stream wrote them, and the topics that fed them.

    Args:
        options: of all tables, by name.

    Raises:
        CorruptDataError: a note cannot be read.
    """
    notes = {name: _note_of(options[name]).streams for name in sorted(options)}
    return {name: streams[stream] for name, streams in notes.items() if stream in streams}


def require_not_rolled_back(options: Mapping[str, Mapping[str, str]], stream: str) -> None:
    """Refuse to start a stream on tables that were rolled back.

    Raises:
        InvalidRequestError: one has the note.
        CorruptDataError: a note cannot be read.
    """
    for name in rolled_back_topics(options, stream):
        raise InvalidRequestError(
            f"the table was rolled back to {_note_of(options[name]).to} since the stream wrote it",
            detail="rows committed after that would be missing",
            hint=_HINT,
            table=name,
        )


def require_history(
    latest: Snapshot | None,
    table: FileStoreTable,
    name: str,
    stream: str,
    known_offsets: Sequence[OffsetMap],
) -> None:
    """Stop a commit to a table that was rolled back, and write the note if there is none.

    Args:
        latest: the newest snapshot.
        name: `database.table`.
        stream: that commits.
        known_offsets: offsets that it may have: those of the last commit and of this one.

    Raises:
        FencedError: it has other offsets.
    """
    stored = None if latest is None else stored_offsets(latest, stream)
    if latest is None and len(known_offsets) > 1:  # dropped and created again
        stored = {}
    # engines that do not carry properties from snapshot to snapshot may have made the newest one
    if stored is None or stored in known_offsets:
        return
    if not _is_lower(stored, known_offsets[0]):
        raise FencedError(
            "another process committed to this table",
            detail=f"it has {stored}",
            hint="two daemons run one stream: stop one of them",
            table=name,
        )
    to = f"snapshot {latest.id}" if latest else "an empty table"
    note_rollback(table.latest(), latest, to, {stream: known_offsets[0]})
    raise FencedError(
        "the table was rolled back since the stream wrote it",
        detail=f"it has {stored or 'no snapshot: was it dropped and created again?'}",
        hint=_HINT,
        table=name,
    )


def _is_lower(stored: OffsetMap, committed: OffsetMap) -> bool:
    """Whether a table's offsets are below those committed to it."""
    return any(
        stored.get(topic, {}).get(key, -1) < offset
        for topic, parts in committed.items()
        for key, offset in parts.items()
    )


def lowered(
    start: Mapping[str, Any], rolled_back: Iterable[tuple[Iterable[str], OffsetMap]]
) -> OffsetJson:
    """Where to start so that tables that were rolled back miss nothing. Pure.

    Args:
        start: start offsets of the other tables, in the source's own form or as stored.
        rolled_back: per rolled back table the topics that fed it, and the offsets that it has now.

    Returns:
        As stored; a partition that is left out is read from its beginning.
    """
    result = {topic: dict(entry) for topic, entry in start.items()}
    for topics, offsets in rolled_back:
        for topic in {*topics, *offsets} & result.keys():
            current, entry = offsets.get(topic, {}), result[topic]
            for key in [key for key in entry if key.isdecimal()]:
                if current.get(key, 0) >= entry[key]:
                    continue
                # members that are no partitions describe the former position
                entry = {name: value for name, value in entry.items() if name.isdecimal()}
                entry[key] = current.get(key)
            result[topic] = {key: value for key, value in entry.items() if value is not None}
            if not result[topic]:
                del result[topic]
    return normalize(result)


def _option(note: _Note) -> SetOption:
    return SetOption(ROLLBACK_OPTION, msgspec.json.encode(note).decode())


def _note_of(options: Mapping[str, str]) -> _Note:
    text = options.get(ROLLBACK_OPTION)
    if text is None:
        return _Note("", {})
    try:
        return msgspec.json.decode(text, type=_Note)
    except msgspec.DecodeError as error:
        raise CorruptDataError(
            "the rollback note of a table cannot be read",
            hint=_HINT,
            option=ROLLBACK_OPTION,
            value=text,
        ) from error


# Cache of the tables and schemas that a worker process has opened, across tasks and batches.
#
# Everything here can be rebuilt from the warehouse: idle Python workers vanish (SPARK.md §6).
# Schema versions never change once written, so a cached one is always right.


@dataclasses.dataclass(frozen=True, slots=True)
class Warehouse:
    """What a process needs to open a warehouse; sent to the executors with every stage.

    Attributes:
        location: absolute path or URL.
        options: of its object store and its catalog, credentials included; not part of the text
            form.
    """

    location: str
    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)

    @staticmethod
    def of(sink: SinkSettings) -> "Warehouse":
        """The warehouse that the settings name."""
        options = {**sink.options, **sink.catalog}
        return Warehouse(sink.warehouse, tuple(sorted(options.items())))


@functools.lru_cache(maxsize=4)
def catalog_of(warehouse: Warehouse) -> Catalog:
    """The catalog of a warehouse, one per process; calls of its store are counted."""
    return Catalog.open(warehouse.location, dict(warehouse.options)).through(CountingFileIO)


def schema_of(warehouse: Warehouse, table: str, schema_id: int) -> TableSchema:
    """One version of a table's schema."""
    return table_of(warehouse, table, schema_id).schema


@functools.lru_cache(maxsize=4096)
def table_of(warehouse: Warehouse, table: str, schema_id: int) -> FileStoreTable:
    """A table opened at one version of its schema."""
    return catalog_of(warehouse).table(table).with_schema(schema_id)
