# SPDX-License-Identifier: Apache-2.0
"""Dynamic buckets: the HASH index of a partition decides, and grows with every new key.

Source: SEMANTICS.md §G.2, FORMAT.md §9.1. A key stays in the bucket that its hash went to first.
A new hash goes to the first bucket with room; when there is none, to a new bucket. Data plane:
whole arrays of hashes. Only one job may write such a table at a time; its processes share the
keys by hash and the buckets by number (`AssignerShare`). `dynamic-bucket.initial-buckets` = n
divides keys and buckets of a partition in the same way by n, though one process assigns them all.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import IndexFileMeta
from storage.format.row.bucket import murmur_rows
from storage.options.options import MAX_DYNAMIC_BUCKETS, TableOptions
from storage.table.commit.live_files import (
    BucketId,
    IndexChange,
    index_path,
    read_hash_index,
    write_hash_index,
)
from storage.table.core import TableCore

Hashes = npt.NDArray[np.int32]
Buckets = npt.NDArray[np.int32]

_BUCKET_BITS = np.int64(16)
_BUCKET_MASK = np.int64(0xFFFF)
_LOW_WORD = np.int64(0xFFFFFFFF)
_FRAME_BYTES = 4
"""Before the row of a framed partition."""


@dataclasses.dataclass(frozen=True, slots=True)
class AssignerShare:
    """The part of the keys and buckets that one of several processes assigns.

    Attributes:
        number: of this process, from 0.
        channels: processes, at least 1.
        assigners: processes that share the keys of one partition, at most `channels`.
    """

    number: int = 0
    channels: int = 1
    assigners: int = 1

    @staticmethod
    def all_of(options: TableOptions) -> "tuple[AssignerShare, ...]":
        """The shares of `dynamic-bucket.assigner-parallelism` processes, which take all keys.

        No more than there are initial buckets, as each begins with one of its own.
        """
        count = options.dynamic_bucket_assigner_parallelism or 1
        count = min(count, options.dynamic_bucket_initial_buckets or count)
        return tuple(AssignerShare(number, count, count) for number in range(count))

    def numbers_of(self, partition: bytes, hashes: Hashes) -> Buckets:
        """Which process assigns the bucket of each key of a partition (framed)."""
        if self.channels == 1:
            return np.zeros(len(hashes), np.int32)
        row = np.frombuffer(partition, np.uint8, offset=_FRAME_BYTES)
        return assigners_of(
            murmur_rows(row.reshape(1, -1)),
            hashes,
            channels=self.channels,
            assigners=self.assigners,
        )

    def owns_bucket(self, bucket: int) -> bool:
        """Whether this process may open the bucket, and rewrites its index file."""
        return bucket % self.assigners == self.number % self.assigners


def assigners_of(
    partition_hashes: Hashes, key_hashes: Hashes, *, channels: int, assigners: int
) -> Buckets:
    """Which process assigns the bucket of each row: 0 to `channels` - 1.

    Args:
        partition_hashes: of each row's partition (`bucket.hash_rows`); or one for all.
        key_hashes: of each row's trimmed primary key.
        channels: processes.
        assigners: processes that share the keys of one partition.
    """
    start = np.abs(np.fmod(partition_hashes.astype(np.int64), channels))
    step = np.abs(np.fmod(key_hashes.astype(np.int64), assigners))
    return ((start + step) % channels).astype(np.int32)


class PartitionIndex:
    """The HASH index of one partition in memory: 4 bytes a key, 5 or 6 with several buckets.

    Entries are kept in a few sorted runs whose sizes at least double from newest to oldest.

    Args:
        target_rows: hashes after which a bucket is full.
        max_buckets: buckets that may be opened; -1: as many as there are numbers.
        share: which buckets may be opened here.
        initial_buckets: among which the first keys are spread; where several processes share
            the keys, each has one.
    """

    def __init__(
        self,
        target_rows: int,
        max_buckets: int = -1,
        share: AssignerShare | None = None,
        *,
        initial_buckets: int = 1,
    ) -> None:
        if max_buckets != -1 and not 0 < max_buckets <= MAX_DYNAMIC_BUCKETS:
            raise InvalidRequestError(
                f"'dynamic-bucket.max-buckets' must be -1 or between 1 and {MAX_DYNAMIC_BUCKETS}",
                value=max_buckets,
            )
        self._target_rows = target_rows
        self._unbounded = max_buckets == -1
        self._limit = MAX_DYNAMIC_BUCKETS if self._unbounded else max_buckets
        self._share = share or AssignerShare()
        self._spread = min(initial_buckets, self._limit) if self._share.channels == 1 else 1
        self._counts: dict[int, int] = {}
        self._runs: list[_Run] = []
        self.changed: set[int] = set()

    def __len__(self) -> int:
        return sum(len(run.hashes) for run in self._runs)

    @property
    def nbytes(self) -> int:
        """Memory of the entries [bytes]."""
        return sum(run.nbytes for run in self._runs)

    @property
    def bucket_counts(self) -> Mapping[int, int]:
        """Hashes of each bucket that belongs to this share."""
        return self._counts

    def load(self, buckets: Mapping[int, Hashes]) -> None:
        """Load the index files of the buckets; to be called before anything else."""
        for bucket, hashes in sorted(buckets.items()):
            if self._share.owns_bucket(bucket):
                self._counts[bucket] = self._counts.get(bucket, 0) + len(hashes)
        entries = [_packed(hashes, np.int64(bucket)) for bucket, hashes in buckets.items()]
        if any(map(len, entries)):
            self._add(np.concatenate(entries))

    def assign(self, hashes: Hashes) -> Buckets:
        """Buckets of keys; hashes that are new get one now.

        Args:
            hashes: of keys in arrival order, with repeats.

        Returns:
            One bucket per hash.

        Raises:
            InvalidRequestError: all bucket numbers are taken.
        """
        distinct, first, inverse = _distinct(hashes)
        buckets = self._find(distinct)
        new = np.flatnonzero(buckets < 0)
        if len(new):
            arrival = new[np.argsort(first[new], kind="stable")]
            new_buckets = self._assign_new(distinct[arrival])
            buckets[arrival] = new_buckets
            self._add(_packed(distinct[arrival], new_buckets.astype(np.int64)))
            self.changed.update(np.unique(new_buckets).tolist())
        return buckets[inverse]

    def hashes_of(self, bucket: int) -> Hashes:
        """All hashes of a bucket, for its index file."""
        parts = [run.of_bucket(bucket) for run in self._runs]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def _find(self, distinct: Hashes) -> Buckets:
        """Buckets of ascending hashes; -1 where there is none."""
        out = np.full(len(distinct), -1, np.int32)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run.hashes, distinct), len(run.hashes) - 1)
            hits = run.hashes[at] == distinct
            out[hits] = run.buckets[at[hits]] if run.buckets is not None else run.bucket
        return out

    def _assign_new(self, new: Hashes) -> Buckets:
        if self._spread == 1:
            return self._assign_in(new, self._share.number, self._share.assigners)
        out = np.empty(len(new), np.int32)
        numbers = np.abs(np.fmod(new.astype(np.int64), self._spread))
        for number in np.unique(numbers).tolist():
            members = numbers == number
            out[members] = self._assign_in(new[members], number, self._spread)
        return out

    def _assign_in(self, new: Hashes, number: int, step: int) -> Buckets:
        """Buckets for new hashes among those that are `number` modulo `step`."""
        number %= step
        out = np.empty(len(new), np.int32)
        start = 0
        buckets = [bucket for bucket in sorted(self._counts) if bucket % step == number]
        for bucket in buckets:
            start = self._fill(out, start, bucket)
        while start < len(out) and number < self._limit:
            if number not in self._counts:
                self._counts[number] = 0
                buckets.append(number)
                start = self._fill(out, start, number)
            number += step
        if start < len(out):
            self._overfill(out, new, start, buckets)
        return out

    def _fill(self, out: Buckets, start: int, bucket: int) -> int:
        room = max(0, self._target_rows - self._counts[bucket])
        end = min(len(out), start + room)
        out[start:end] = bucket
        self._counts[bucket] += end - start
        return end

    def _overfill(self, out: Buckets, new: Hashes, start: int, own_buckets: Sequence[int]) -> None:
        """Spread hashes without room over some buckets; the hash itself selects one."""
        if self._unbounded or not own_buckets:
            raise InvalidRequestError(
                f"Too more bucket {MAX_DYNAMIC_BUCKETS - 1}, you should increase target bucket "
                f"row number {self._target_rows}.",
                hint="raise `dynamic-bucket.target-row-num`",
            )
        choices = np.array(sorted(own_buckets), np.int32)
        out[start:] = choices[new[start:].view(np.uint32) % np.uint32(len(choices))]

    def _add(self, packed: npt.NDArray[np.int64]) -> None:
        packed.sort()
        while self._runs and 2 * len(packed) > len(self._runs[-1].hashes):
            packed = np.concatenate([self._runs.pop().packed(), packed])
            packed.sort(kind="stable")  # two sorted runs: merged, not sorted
        self._runs.append(_Run.of(packed))


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Hashes ascending, and their buckets, which are one for all or narrow integers."""

    hashes: Hashes
    bucket: int
    buckets: npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | None

    @staticmethod
    def of(packed: npt.NDArray[np.int64]) -> "_Run":
        hashes = (packed >> _BUCKET_BITS).astype(np.int32)
        buckets = (packed & _BUCKET_MASK).astype(np.uint16)
        low, high = int(buckets.min()), int(buckets.max())
        if low == high:
            return _Run(hashes, low, None)
        return _Run(
            hashes, -1, buckets if high > np.iinfo(np.uint8).max else buckets.astype(np.uint8)
        )

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + (0 if self.buckets is None else self.buckets.nbytes)

    def packed(self) -> npt.NDArray[np.int64]:
        buckets = np.int64(self.bucket) if self.buckets is None else self.buckets.astype(np.int64)
        return _packed(self.hashes, buckets)

    def of_bucket(self, bucket: int) -> Hashes:
        if self.buckets is None:
            return self.hashes if self.bucket == bucket else self.hashes[:0]
        return self.hashes[self.buckets == bucket]


def _packed(hashes: Hashes, buckets: npt.NDArray[np.int64] | np.int64) -> npt.NDArray[np.int64]:
    """Hash and bucket in one number that sorts by hash."""
    return (hashes.astype(np.int64) << _BUCKET_BITS) | buckets


def _distinct(
    hashes: Hashes,
) -> tuple[Hashes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ascending distinct hashes, their first positions, and for each hash its number among them."""
    count = len(hashes)
    # hash and row number in one word: one sort of plain integers instead of an argsort
    words = (hashes.astype(np.int64) << np.int64(32)) | np.arange(count, dtype=np.int64)
    words.sort()
    ordered, rows = (words >> np.int64(32)).astype(np.int32), words & _LOW_WORD
    starts = np.empty(count, bool)
    starts[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=starts[1:])
    inverse = np.empty(count, np.int64)
    inverse[rows] = np.cumsum(starts) - 1
    return ordered[starts], rows[starts], inverse


class DynamicBuckets:
    """The HASH indexes of the partitions that one writer touches.

    Protocol: `begin` with the index files of the snapshot that the next commit builds on,
    `assign` any number of times, `write_index_files` at the end of the commit interval, and so
    on. An index is kept in memory while its partition is written and the table holds what was
    handed over.

    Args:
        share: of the keys and buckets; the rows of one bucket must reach one writer.
        fresh: start without the indexes of the table, for an overwrite.
    """

    def __init__(
        self, table: TableCore, share: AssignerShare | None = None, *, fresh: bool = False
    ) -> None:
        self._table = table
        self._share = share or AssignerShare()
        self._fresh = fresh
        self._indexes: dict[bytes, PartitionIndex] = {}
        self._files: dict[bytes, dict[int, IndexFileMeta]] = {}
        self._live: dict[bytes, dict[int, IndexFileMeta]] = {}
        self._used_partitions: set[bytes] = set()

    def begin(self, files: Mapping[BucketId, Sequence[IndexFileMeta]]) -> None:
        """Start a commit interval.

        Indexes that differ from those of the table are dropped: others wrote, or what was
        handed over was not committed. So are those not used in the last interval.

        Args:
            files: the HASH index files of the newest snapshot.
        """
        self._live = {}
        for (partition, bucket), metas in () if self._fresh else files.items():
            self._live.setdefault(partition, {})[bucket] = metas[-1]
        for partition in list(self._indexes):
            stays = partition in self._used_partitions and _names(self._files[partition]) == _names(
                self._live.get(partition, {})
            )
            if not stays:
                del self._indexes[partition], self._files[partition]
        self._used_partitions.clear()

    def assign(self, partition: bytes, hashes: Hashes) -> Buckets:
        """Buckets of rows of one partition.

        Args:
            partition: framed.
            hashes: of the trimmed primary keys, in arrival order.

        Raises:
            InvalidRequestError: rows of another process's share, or no bucket number is left.
        """
        if not self._own_mask(partition, hashes).all():
            raise InvalidRequestError(
                "rows came to a process that does not assign their buckets",
                hint="send each row to the process that `assigners_of` names",
                process=self._share.number,
                processes=self._share.channels,
            )
        index = self._indexes.get(partition)
        if index is None:
            index = self._load(partition)
            self._indexes[partition] = index
        self._used_partitions.add(partition)
        return index.assign(hashes)

    def write_index_files(self) -> dict[BucketId, IndexChange]:
        """Rewrite the index file of every bucket that got new keys.

        Returns:
            What changes per bucket. The caller owns the new files: they must be committed, or
            removed by `delete`.
        """
        written: dict[BucketId, IndexChange] = {}
        try:
            for partition, index in sorted(self._indexes.items()):
                for bucket in sorted(index.changed):
                    hashes = index.hashes_of(bucket)
                    new = write_hash_index(self._table, partition, bucket, hashes)
                    replaced = self._files[partition].get(bucket)
                    deleted = () if replaced is None else (replaced,)
                    written[(partition, bucket)] = IndexChange((new,), deleted)
        except BaseException:
            self.delete(written)
            raise
        for (partition, bucket), change in written.items():
            self._files[partition][bucket] = change.new[0]
            self._indexes[partition].changed.clear()
        return written

    def delete(self, written: Mapping[BucketId, IndexChange]) -> None:
        """Remove new index files that will not be committed."""
        self._table.delete_quietly(
            index_path(self._table, *bucket, file)
            for bucket, change in written.items()
            for file in change.new
        )

    def _load(self, partition: bytes) -> PartitionIndex:
        options = self._table.options
        index = PartitionIndex(
            options.dynamic_bucket_target_row_num,
            options.dynamic_bucket_max_buckets,
            self._share,
            initial_buckets=options.dynamic_bucket_initial_buckets or 1,
        )
        files = dict(self._live.get(partition, {}))
        by_bucket: dict[int, Hashes] = {}
        for bucket, file in files.items():
            hashes = read_hash_index(self._table, partition, bucket, file)
            if not self._share.owns_bucket(bucket):
                hashes = hashes[self._own_mask(partition, hashes)]
            by_bucket[bucket] = hashes
        index.load(by_bucket)
        self._files[partition] = files
        return index

    def _own_mask(self, partition: bytes, hashes: Hashes) -> npt.NDArray[np.bool_]:
        matches: npt.NDArray[np.bool_] = (
            self._share.numbers_of(partition, hashes) == self._share.number
        )
        return matches if self._share.channels > 1 else np.ones(len(hashes), bool)


def _names(files: Mapping[int, IndexFileMeta]) -> set[tuple[int, str]]:
    return {(bucket, file.file_name) for bucket, file in files.items()}
