# SPDX-License-Identifier: Apache-2.0
"""Following a table: how its stream begins, which snapshot comes next, and what it brought.

Source: SEMANTICS.md §C.8, §F.12. Which changes a snapshot brought:

* without a changelog producer the files that an APPEND snapshot added, as they were flushed;
* with one its changelog files, whatever kind of snapshot has them;
* where `streaming-read-overwrite` says so, what an OVERWRITE removed and added.

A snapshot that has expired may live on as a long-lived changelog (§F.8). `stream_scan` and
`stream_range` keep the position; everything else about a stream is decided here.
"""

from collections.abc import Iterator

from changelog.starting import Beginning, first_scan
from storage.errors import DataLossError, NotFoundError
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.read.missing_files import explain_missing_files
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan import ChangeSplit, Split, TableScan

__all__ = ["Follower"]

_NO_PRODUCER = "none"
_CHECK_EVERY = 16
"""Of how many empty polls one checks whether the snapshot can still come; it takes a listing."""


class Follower:
    """Follows the snapshots of a table, perhaps to an end. Keeps no position. Picklable.

    Args:
        table: with the options of the stream: `scan.bounded`, `scan.bounded.watermark`,
            `streaming-read-…`.
        predicate: rows wanted; None = all.
        buckets: buckets wanted; None = all.
    """

    def __init__(
        self,
        table: TableCore,
        predicate: Predicate | None = None,
        buckets: frozenset[int] | None = None,
    ) -> None:
        self._table = table
        self._predicate = predicate
        self._buckets = buckets
        self._produces = table.options.changelog_producer != _NO_PRODUCER
        scan = TableScan(table, predicate=predicate, buckets=buckets)
        self._scan = scan if self._produces else scan.with_postponed()
        self._last_id: int | None = None
        self._ended = False
        self._empty_polls = 0

    @property
    def bounded(self) -> bool:
        """Whether there is a last snapshot."""
        return self._last_id is not None

    @property
    def ended(self) -> bool:
        """Whether `snapshots` has come to the end of a bounded stream."""
        return self._ended

    def end_at_newest(self) -> None:
        """From now on follow no snapshot that is not there yet."""
        newest = self._table.snapshots.latest_id() or 0
        self._last_id = newest if self._last_id is None else min(newest, self._last_id)

    def snapshots(self, next_id: int) -> Iterator[Snapshot]:
        """The snapshots that are there from one on, up to the end and to the delay of reads.

        Raises:
            DataLossError: the next snapshot has expired or was rolled back; says what to do.
            CorruptDataError: its file is damaged.
        """
        self._ended = False
        while self._last_id is None or next_id <= self._last_id:
            snapshot = self._poll(next_id)
            if snapshot is None:
                return
            if self.past_watermark(snapshot):
                break
            if self._too_recent(snapshot):
                return
            yield snapshot
            next_id += 1
        self._ended = True

    def past_watermark(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot comes after the watermark that bounds the stream."""
        bound = self._table.options.scan_bounded_watermark
        return bound is not None and snapshot.watermark is not None and snapshot.watermark > bound

    def require(self, snapshot_id: int) -> Snapshot:
        """A snapshot that was there before.

        Raises:
            DataLossError: it has expired, or the table was rolled back before it.
            CorruptDataError: its file is damaged.
        """
        snapshot = self._find(snapshot_id)
        if snapshot is None:
            self._check_to_come(snapshot_id)
            raise self._rolled_back(snapshot_id, self._table.snapshots.latest_id())
        return snapshot

    def state(self, beginning: Beginning) -> tuple[Split, ...]:
        """The files of the state that a stream begins with.

        Raises:
            CorruptDataError: metadata is damaged.
        """
        scan = first_scan(self._table, beginning).with_filter(self._predicate)
        if self._buckets is not None:
            scan = scan.with_bucket(*self._buckets)
        return scan.plan(beginning.state).splits

    def changes(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The files that hold the changes of a snapshot; none for most compactions and overwrites.

        Raises:
            CorruptDataError: a manifest cannot be decoded, or is missing of the newest snapshot.
            FileNotFoundError: a manifest is missing, as after expiry.
            NotFoundError: the snapshot has expired, or the one before an overwrite, whose deletion
                vectors count.
        """
        keyed = bool(self._table.schema.primary_keys)
        with explain_missing_files(self._table, snapshot.id):
            if self._reads_overwrite(snapshot):
                scan = self._scan
                return scan.plan_overwrite(snapshot) if keyed else scan.plan_delta(snapshot)
            if self._produces:
                return self._scan.plan_changelog(snapshot)
            if snapshot.commit_kind is CommitKind.APPEND:
                return self._scan.plan_delta(snapshot)
            return ()

    def change_count(self, snapshot: Snapshot) -> int:
        """About how many changes a snapshot brought, without reading its manifests [rows].

        Returns:
            0 only where there are none.
        """
        if self._reads_overwrite(snapshot):
            return max(1, abs(snapshot.delta_record_count))
        if self._produces:
            if snapshot.changelog_manifest_list is None:
                return 0
            return max(1, snapshot.changelog_record_count or 0)
        if snapshot.commit_kind is CommitKind.APPEND:
            return max(1, snapshot.delta_record_count)
        return 0

    def _reads_overwrite(self, snapshot: Snapshot) -> bool:
        options = self._table.options
        if snapshot.commit_kind is not CommitKind.OVERWRITE:
            return False
        if self._table.schema.primary_keys:
            return options.streaming_read_overwrite
        return options.streaming_read_append_overwrite

    def _too_recent(self, snapshot: Snapshot) -> bool:
        delay = self._table.options.streaming_read_snapshot_delay_ms
        return delay is not None and snapshot.time_ms > self._table.clock.now_ms() - delay

    def _poll(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot, or the long-lived changelog that is left of it; None: it is not there yet."""
        snapshot = self._find(snapshot_id)
        if snapshot is not None:
            self._empty_polls = 0
            return snapshot
        if self._empty_polls % _CHECK_EVERY == 0:
            self._check_to_come(snapshot_id)
        self._empty_polls += 1
        return None

    def _find(self, snapshot_id: int) -> Snapshot | None:
        snapshot = self._table.snapshots.read_again(snapshot_id)
        if snapshot is None and self._table.changelogs.exists(snapshot_id):
            try:
                return self._table.changelogs.read(snapshot_id)
            except NotFoundError:
                return None
        return snapshot

    def _check_to_come(self, snapshot_id: int) -> None:
        ids = self._table.snapshots.ids()
        if not ids:
            if snapshot_id > 1:
                raise self._rolled_back(snapshot_id, None)
            return
        if snapshot_id > ids[-1] + 1:
            raise self._rolled_back(snapshot_id, ids[-1])
        if snapshot_id < ids[0] and self._find(snapshot_id) is None:
            raise DataLossError(
                f"The wanted read snapshot with id {snapshot_id} has expired.",
                detail=f"snapshots {ids[0]} to {ids[-1]} are left",
                hint="start again with `scan.mode`; to prevent it, keep snapshots or changelogs "
                "longer (`snapshot.time-retained`, `changelog.time-retained`), or read with a "
                "`consumer-id`, which keeps what it has not read",
                table=self._table.layout.root,
            )

    def _rolled_back(self, snapshot_id: int, latest: int | None) -> DataLossError:
        return DataLossError(
            "The next expected snapshot is too big! Most possible cause might be the table had "
            f"been recreated. The next snapshot id is {snapshot_id}, while the latest snapshot id "
            f"is {latest}",
            hint="start again: delete the consumer or the checkpoint that names this snapshot",
            table=self._table.layout.root,
        )
