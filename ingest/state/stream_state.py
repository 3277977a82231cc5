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
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from ingest.source.position.track import POSITIONS_PROPERTY, StoredPositions, parsed
from ingest.source.ranges import floor_of
from ingest.state.state_file import StateFile, snapshot_property
from storage.errors import CorruptDataError, FencedError
from storage.format.metadata.snapshot import Snapshot
from storage.io.local import LocalFileIO
from storage.table.commit.commit_history import CommitHistory
from storage.table.table import FileStoreTable

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
        stream: the stream's name.
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

    def floor(self, table: str) -> Mapping[str, Mapping[str, int]]:
        """Offsets below which a table has everything."""
        return floor_of(self.floors, table)

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
