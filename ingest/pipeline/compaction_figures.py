# SPDX-License-Identifier: Apache-2.0
"""Figures of what a batch's tasks wrote and compacted, for its report."""

from collections import Counter
from collections.abc import Iterable, Mapping

from ingest.pipeline.batch_report import Written
from ingest.pipeline.reduce_side import BucketResult
from storage.format.metadata.file_meta import CommitMessage
from storage.table.commit.commit import CommitResult

__all__ = ["CompactionFigures", "bucket_skew", "summed"]


class CompactionFigures:
    """What tasks wrote, and what became of their compactions, per table; `add` every result.

    Args:
        commits: what was committed, by table.
    """

    def __init__(self, commits: Mapping[str, tuple[CommitResult, float]]) -> None:
        self._lost = {name for name, (done, _) in commits.items() if done.compaction_dropped}
        self.done: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.written: dict[tuple[str, str], Written] = {}
        self.changelog: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}

    def add(self, result: BucketResult) -> None:
        """Take in what one task did for a table."""
        for message in result.messages:
            self._add(result.table, message)
        if any(not message.compact.empty for message in result.messages):
            before = self.seconds.get(result.table, 0.0)
            self.seconds[result.table] = before + result.finish_seconds

    def _add(self, name: str, message: CommitMessage) -> None:
        compact = message.compact
        changelog = [*message.data.changelog_files]
        self._appended(name, "data", (file.file_size for file in message.data.new_files))
        self._appended(name, "changelog", (file.file_size for file in changelog))
        self._appended(name, "index", (file.file_size for file in message.data.new_index_files))
        if not compact.empty:
            lost = name in self._lost
            (self.dropped if lost else self.done)[name] += 1
            if not lost:
                moved = {file.file_name for file in compact.compact_before}
                written = (f for f in compact.compact_after if f.file_name not in moved)
                self.bytes[name] += sum(file.file_size for file in written)
                after = {file.file_name for file in compact.compact_after}
                merged = (f for f in compact.compact_before if f.file_name not in after)
                self.read[name] += sum(file.file_size for file in merged)
                changelog += compact.changelog_files
        if changelog:
            self.changelog[name] += sum(file.row_count for file in changelog)

    def _appended(self, name: str, kind: str, sizes: Iterable[int]) -> None:
        for size in sizes:
            self.written.setdefault((name, kind), Written()).add(size)


def bucket_skew(results: Iterable[BucketResult]) -> dict[str, float]:
    """Most rows of a bucket over the mean of the buckets, per table."""
    rows: dict[str, list[int]] = {}
    for result in results:
        if count := sum(result.rows.values()):
            rows.setdefault(result.table, []).append(count)
    return {name: max(counts) * len(counts) / sum(counts) for name, counts in rows.items()}


def summed(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Positive sums by name."""
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return dict(+total)
