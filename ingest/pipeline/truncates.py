# SPDX-License-Identifier: Apache-2.0
"""What a TRUNCATE of the source does to a table: `source.on.truncate`.

A truncate event has one offset of one partition. With `apply` the table loses everything that
came before it: rows of the batch with smaller offsets are left out, and the rows that the table
held are deleted one by one through the ordinary writers, so that every changelog producer
and every index learns of them. The source task that reads the event sends these deletes
(`map_side`), in a second run of the batch for the emptied tables alone, at the offset of the event:
what follows it in the partition follows the deletes.

What came before is known only where all records of a table come through one partition of one
topic; elsewhere, and where deletes do not remove rows, the table is parked with the reason.

No state is kept: a retried batch finds the same events, and skips tables that have committed it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN
from ingest.errors import TruncateStopError
from ingest.source.records import position_kind
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.table import FileStoreTable

_FIELDS = (pa.field(VALUE_KIND, pa.int8(), False), pa.field(OFFSET_COLUMN, pa.int64(), False))

_WAY_OUT = "set `source.on.truncate: ignore`, reload and resume the table; then empty it by hand"


@dataclasses.dataclass(frozen=True, slots=True)
class Truncate:
    """A truncate event for a table that is written.

    Attributes:
        table: `database.table`.
        topic: where the event is.
        partition: of the topic.
        offset: in the partition.
        stops: whether it ends the stream.
        refusal: why the table cannot be emptied, by the pipeline's settings; "" = it
            can.
    """

    table: str
    topic: str
    partition: int
    offset: int
    stops: bool = False
    refusal: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class TruncationPoint:
    """Where a table is emptied in a run.

    Attributes:
        topic: of the event.
        partition: of the topic.
        offset: of the last truncate event in the batch.
        snapshot_id: whose rows are deleted; 0 = there are none.
    """

    topic: str
    partition: int
    offset: int
    snapshot_id: int

    def is_at(self, topic: str, partition: int, offsets: Sequence[int]) -> bool:
        """Whether the event is among records, which are in offset order."""
        in_partition = (self.topic, self.partition) == (topic, partition) and len(offsets) > 0
        return in_partition and offsets[0] <= self.offset <= offsets[-1] and self.offset in offsets


def refuse_truncates(truncates: Iterable[Truncate]) -> None:
    """Stop at the first event that the settings do not allow.

    Raises:
        TruncateStopError: there is one.
    """
    stopping = [event for event in truncates if event.stops]
    if not stopping:
        return
    first_truncate = min(stopping, key=lambda event: (event.topic, event.partition, event.offset))
    raise TruncateStopError(
        "the source truncated a table",
        hint="set `source.on.truncate` to `apply` or `ignore`, then start again: the stream "
        "resumes exactly here",
        table=first_truncate.table,
        topic=first_truncate.topic,
        partition=first_truncate.partition,
        offset=first_truncate.offset,
    )


def truncation_points(
    truncates: Iterable[Truncate],
    tables: Mapping[str, FileStoreTable],
    feeds: Mapping[str, Iterable[str]],
    partitions: Mapping[str, int],
) -> tuple[dict[str, TruncationPoint], dict[str, str]]:
    """Which tables are emptied where, and which cannot be.

    Args:
        truncates: of one batch.
        tables: the tables, as they are before the batch.
        feeds: by table the topics that ever fed it.
        partitions: by topic the number of its partitions.

    Returns:
        (by table the cut at its last truncate; by table why it is to be parked).
    """
    points: dict[str, TruncationPoint] = {}
    refusals: dict[str, str] = {}
    for event in sorted(truncates, key=lambda event: event.offset):
        table = tables.get(event.table)
        if table is None:
            continue
        topics = {*feeds.get(event.table, ()), event.topic}
        reason = event.refusal or unordered(topics, partitions) or why_kept(table)
        if reason:
            place = f"topic {event.topic}, partition {event.partition}, offset {event.offset}"
            text = f"the source truncated the table ({place}), but {reason}: {_WAY_OUT}"
            refusals.setdefault(event.table, text)
        else:
            snapshot_id = table.snapshots.latest_id() or 0
            points[event.table] = TruncationPoint(
                event.topic, event.partition, event.offset, snapshot_id
            )
    return {name: cut for name, cut in points.items() if name not in refusals}, refusals


def unordered(topics: Iterable[str], partitions: Mapping[str, int]) -> str:
    """Say why it is unknown which records came before the event; "" = it is known."""
    names = sorted(topics)
    if len(names) > 1:
        return f"it is fed by several topics ({', '.join(names[:3])}), which have no order"
    if partitions.get(names[0], 1) > 1:
        return f"topic {names[0]} has {partitions[names[0]]} partitions, which have no order"
    return ""


def why_kept(table: FileStoreTable) -> str:
    """Say why deletes would not empty a table; "" = they do."""
    options = table.options
    if not table.schema.primary_keys:
        return "append tables keep their rows"
    if options.ignore_delete:
        return "it ignores deletes"
    if options.rowkind_field is not None:
        return "its rows say their kind themselves (rowkind.field)"
    if options.merge_engine != "deduplicate":
        # a delete and a later row of its key in one batch are merged before they meet older rows
        return f"deletes may leave traces of its rows (merge-engine {options.merge_engine})"
    if options.sequence_field and position_kind(table.schema) is None:
        return (
            f"its rows are in the order of {', '.join(options.sequence_field)}, not of the source"
        )
    return ""


def deletes_of(table: FileStoreTable, truncation: TruncationPoint) -> Iterator[pa.RecordBatch]:
    """A delete for every row that a table holds, whole, as downstream tables may need it.

    Yields:
        Change rows of a source task: the table's columns, kind, and the event's offset.

    Raises:
        CorruptDataError: a file violates the format, or is missing of the newest snapshot.
        NotFoundError: the snapshot has expired.
        FileNotFoundError: a file of it is missing.
    """
    if not truncation.snapshot_id:
        return
    # rows of level 0 too, which batch reads of some tables leave out
    plan = table.new_scan().with_snapshot(truncation.snapshot_id).with_all_levels().plan()
    read = table.new_read()
    for split in plan.splits:
        for batch in read.to_batches(split):
            yield _as_deletes(table, batch, truncation.offset)


def _as_deletes(table: FileStoreTable, rows: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    """Make change rows that delete rows of a table, all at one offset.

    Args:
        rows: its columns by name, maybe others too.
        offset: their position in the partition.
    """
    schema = table.schema.arrow_schema
    count = rows.num_rows
    kinds = pa.repeat(pa.scalar(int(RowKind.DELETE), pa.int8()), count)
    offsets = pa.repeat(pa.scalar(offset, pa.int64()), count)
    columns = [rows.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(
        [*columns, kinds, offsets], schema=pa.schema([*schema, *_FIELDS])
    )
