# SPDX-License-Identifier: Apache-2.0
import itertools
from collections.abc import Sequence

import pytest

from storage.errors import FileConflictError
from storage.format.metadata.file_meta import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    DeletionVectorMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
    ManifestEntry,
)
from storage.table.commit.conflict import check_conflicts, check_delta, check_vectors

ADD, DELETE = FileKind.ADD, FileKind.DELETE


def entry(
    kind: FileKind,
    name: str,
    low: int = 0,
    high: int = 9,
    level: int = 0,
    bucket: int = 0,
    total: int = 1,
    numbers: tuple[int, int] = (0, 0),
) -> ManifestEntry:
    file = DataFileMeta(
        file_name=name,
        file_size=1,
        row_count=1,
        min_key=bytes([low]),
        max_key=bytes([high]),
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=numbers[0],
        max_sequence_number=numbers[1],
        schema_id=0,
        level=level,
    )
    return ManifestEntry(
        kind=kind, partition=EMPTY_ROW, bucket=bucket, total_buckets=total, file=file
    )


def check(
    live: Sequence[ManifestEntry],
    delta: Sequence[ManifestEntry],
    *,
    overwrite: bool = False,
    follows: Sequence[str] = (),
) -> None:
    def of_bucket(partition: bytes, bucket: int) -> list[ManifestEntry]:
        return [e for e in live if (e.partition, e.bucket) == (partition, bucket)]

    check_conflicts(of_bucket, delta, key_of=tuple, overwrite=overwrite, follows=follows)


def test_appends_to_one_bucket_do_not_conflict() -> None:
    check([entry(ADD, "a")], [entry(ADD, "b"), entry(ADD, "c")])


def test_compaction_of_live_files_is_fine() -> None:
    live = [entry(ADD, "a"), entry(ADD, "b"), entry(ADD, "old", 20, 30, level=5)]
    delta = [entry(DELETE, "a"), entry(DELETE, "b"), entry(ADD, "c", level=5)]
    check(live, delta)


def test_upgrade_keeps_the_name_and_is_fine() -> None:
    check([entry(ADD, "a")], [entry(DELETE, "a"), entry(ADD, "a", level=5)])


def test_removing_a_file_that_is_gone_conflicts() -> None:
    with pytest.raises(FileConflictError, match="deletion conflicts"):
        check([entry(ADD, "b")], [entry(DELETE, "a"), entry(ADD, "c", level=5)])


def test_a_file_moved_to_another_level_meanwhile_is_gone() -> None:
    with pytest.raises(FileConflictError, match="deletion conflicts"):
        check([entry(ADD, "a", level=5)], [entry(DELETE, "a", level=0)])


def test_a_file_of_another_bucket_does_not_help() -> None:
    with pytest.raises(FileConflictError, match="deletion conflicts"):
        check([entry(ADD, "a", bucket=1)], [entry(DELETE, "a", bucket=0)])


@pytest.mark.parametrize(
    ("low", "high", "conflicts"), [(10, 12, True), (12, 20, True), (13, 20, False), (0, 9, False)]
)
def test_files_of_one_upper_level_must_not_overlap(low: int, high: int, conflicts: bool) -> None:
    live = [entry(ADD, "a", 0, 9), entry(ADD, "b", 10, 12, level=3)]
    delta = [entry(DELETE, "a", 0, 9), entry(ADD, "c", low, high, level=3)]
    if conflicts:
        with pytest.raises(FileConflictError, match="LSM conflicts"):
            check(live, delta)
    else:
        check(live, delta)


def test_overlap_in_level_0_and_between_levels_is_normal() -> None:
    live = [entry(ADD, "a", numbers=(1, 1)), entry(ADD, "b", level=4)]
    check(live, [entry(ADD, "c"), entry(ADD, "d", level=5)])


def test_a_compaction_beside_rows_that_are_not_newer_conflicts() -> None:
    delta = [entry(DELETE, "a", numbers=(1, 5)), entry(ADD, "b", level=5, numbers=(1, 5))]
    check([entry(ADD, "a"), entry(ADD, "new", numbers=(6, 9))], delta)
    live = [entry(ADD, "a"), entry(ADD, "meanwhile", numbers=(5, 9))]
    with pytest.raises(FileConflictError, match="are not newer"):
        check(live, delta)
    with pytest.raises(FileConflictError, match="are not newer"):
        check(live, delta[:1])  # nothing was left
    check(live, delta, follows=["meanwhile"])
    check(live, delta, overwrite=True)
    check(live, [entry(ADD, "c", numbers=(9, 9))])


def test_postponed_rows_are_compacted_beside_new_ones() -> None:
    live = [entry(ADD, name, bucket=-2, total=-2) for name in ("a", "meanwhile")]
    check(live, [entry(DELETE, "a", bucket=-2, total=-2)])


def test_adding_a_live_file_again_conflicts() -> None:
    with pytest.raises(FileConflictError, match="live already"):
        check([entry(ADD, "a")], [entry(ADD, "a")])


def test_bucket_count_changes_only_by_overwrite() -> None:
    live, delta = [entry(ADD, "a", total=1)], [entry(ADD, "b", total=4)]
    with pytest.raises(FileConflictError, match="from 1 to 4 without overwrite"):
        check(live, delta)
    check(live, delta, overwrite=True)


@pytest.mark.parametrize("kinds", list(itertools.product(FileKind, FileKind)))
def test_a_delta_names_a_file_at_a_level_once(kinds: tuple[FileKind, FileKind]) -> None:
    with pytest.raises(FileConflictError, match="twice"):
        check_delta([entry(kinds[0], "a"), entry(kinds[1], "a")])
    check_delta([entry(kinds[0], "a"), entry(kinds[1], "a", level=1)])


def vectors(name: str, files: str, bucket: int = 0) -> IndexManifestEntry:
    metas = tuple(
        DeletionVectorMeta(data_file_name=one, offset=1, length=22, cardinality=1) for one in files
    )
    file = IndexFileMeta(
        index_type=IndexType.DELETION_VECTORS,
        file_name=name,
        file_size=31,
        row_count=len(metas),
        deletion_vectors=metas,
    )
    return IndexManifestEntry(kind=ADD, partition=EMPTY_ROW, bucket=bucket, file=file)


def check_marks(
    live: str,
    delta: Sequence[ManifestEntry],
    before: Sequence[IndexManifestEntry],
    after: Sequence[IndexManifestEntry],
) -> None:
    def of_bucket(partition: bytes, bucket: int) -> list[ManifestEntry]:
        return [entry(ADD, name) for name in live] if bucket == 0 else []

    check_vectors(of_bucket, delta, before, after)


def test_a_new_vector_needs_its_file() -> None:
    check_marks("ab", [], [], [vectors("i", "ab")])
    check_marks("a", [entry(ADD, "b")], [], [vectors("i", "ab")])
    with pytest.raises(FileConflictError, match="file deletion conflicts"):
        check_marks("a", [], [], [vectors("i", "ab")])
    with pytest.raises(FileConflictError, match="file deletion conflicts"):
        check_marks("ab", [], [], [vectors("i", "ab", bucket=1)])


def test_a_removed_file_must_not_keep_a_vector() -> None:
    before = [vectors("i", "ab")]
    removal = [entry(DELETE, "a"), entry(ADD, "c")]
    with pytest.raises(FileConflictError, match="got a deletion vector"):
        check_marks("ab", removal, before, before)
    with pytest.raises(FileConflictError, match="got a deletion vector"):
        check_marks("ab", removal, [], before)
    check_marks("ab", removal, before, [vectors("j", "b")])
    check_marks("ab", [entry(DELETE, "c")], before, before)


def test_an_upgraded_file_keeps_its_vector() -> None:
    before = [vectors("i", "a")]
    check_marks("a", [entry(DELETE, "a", level=0), entry(ADD, "a", level=5)], before, before)


def test_vectors_left_over_by_others_do_not_matter() -> None:
    stale = [vectors("i", "z")]
    check_marks("a", [], stale, [vectors("j", "za")])
    check_marks("a", [entry(DELETE, "a")], stale, stale)
