# SPDX-License-Identifier: Apache-2.0
"""Planning reads no more manifests than pruning leaves; manifests are merged as Java merges."""

import itertools
import pathlib
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from storage.errors import CorruptDataError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.metadata.file_meta import FileKind
from storage.format.metadata.manifest import ManifestFileMeta, decode_entries, fold
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import clear_live_cache, live_state
from storage.table.commit.publish import MergePolicy, merge_manifests
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from tests.faulty_io import FaultyFileIO
from tests.table_kit import make_table, prepared, reopened, rows_of, write
from tests.unit.storage.golden_tables import GoldenTable

_PARTITIONED = (("p", "INT"), ("k", "BIGINT"), ("v", "STRING"))


def _forget() -> None:
    clear_manifest_cache()
    clear_live_cache()


def _plan(table: FileStoreTable, **wanted: Any) -> tuple[set[str], list[str]]:
    """Names of the files in a cold plan, and the manifests that were read for it."""
    _forget()
    store = FaultyFileIO(LocalFileIO(durable=False))
    scan = reopened(table, file_io=store).new_scan()
    if "bucket" in wanted:
        scan = scan.with_bucket(wanted["bucket"])
    if "filter" in wanted:
        scan = scan.with_filter(parse_predicate(wanted["filter"]))
    plan = scan.plan()
    names = [pathlib.PurePath(path).name for _, path in store.operations if "/manifest/" in path]
    read = [name for name in names if not name.startswith("manifest-list")]
    assert len(read) == len(set(read))
    return {file.file_name for split in plan.splits for file in split.files}, read


def _state(table: FileStoreTable, metas: Iterable[ManifestFileMeta]) -> set[tuple[object, ...]]:
    entries = [e for meta in metas for e in next(table.manifests.read_manifests([meta]))]
    return {entry.identity for entry in fold(entries)}


def _manifests_of(table: FileStoreTable) -> int:
    latest = table.snapshots.latest()
    assert latest is not None
    lists = (latest.base_manifest_list, latest.delta_manifest_list)
    return sum(len(table.manifests.read_list(name)) for name in lists)


def test_partition_conditions_leave_manifests_unread(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=_PARTITIONED, keys=("p", "k"), partitions=("p",))
    for number in range(8):
        write(table, number, [("+I", number, k, "a") for k in range(3)], compaction=False)
    assert _manifests_of(table) == 8
    all_files, read = _plan(table)
    assert (len(all_files), len(read)) == (8, 8)
    for text, files in (("p = 3", 1), ("p > 5", 2), ("p = 99", 0), ("p in (1, 7)", 2)):
        found, read = _plan(table, filter=text)
        assert len(found) == files, text
        assert len(read) == files, text
    expected = [(3, k, "a") for k in range(3)]
    assert rows_of(reopened(table), filter=parse_predicate("p = 3")) == expected


def test_null_partitions_are_found(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=_PARTITIONED,
        keys=(),
        partitions=("p",),
        options={
            "bucket": "1",
            "bucket-key": "k",
        },
    )
    for number, value in enumerate((None, 1, 2)):
        write(table, number, [("+I", value, 1, "a")], compaction=False)
    found, read = _plan(table, filter="p is null")
    assert (len(found), len(read)) == (1, 1)
    found, read = _plan(table, filter="p is not null")
    assert (len(found), len(read)) == (2, 2)


def test_a_bucket_leaves_manifests_of_other_buckets_unread(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "4"})
    for number in range(4):
        messages = prepared(table, [("+I", k, "a") for k in range(64)], compaction=False)
        one = [message for message in messages if message.bucket == number]
        table.new_commit("user").commit(one, number)
    _, read = _plan(table)
    assert len(read) == 4
    found, read = _plan(table, bucket=2)
    assert (len(found), len(read)) == (1, 1)


def test_a_pruned_plan_is_the_whole_plan_cut_down(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=_PARTITIONED,
        keys=("p", "k"),
        partitions=("p",),
        options={"bucket": "3", "manifest.merge-min-count": "4"},
    )
    for number in range(12):
        rows = [("+I", k % 3, k, str(number)) for k in range(number, number + 30)]
        write(table, number, rows, compaction=number % 3 == 0, full=number == 7)
    latest = table.snapshots.latest()
    assert latest is not None
    whole = live_state(table, latest).buckets
    for text in ("p = 1", "p = 1 and k = 17", "k = 5", "p >= 1"):
        found, _ = _plan(table, filter=text)
        cached = reopened(table).new_scan().with_filter(parse_predicate(text))
        for _ in range(3):  # read anew, whole manifests, and the state held
            again = cached.plan()
            assert {f.file_name for split in again.splits for f in split.files} == found
    for bucket in range(3):
        found, _ = _plan(table, bucket=bucket)
        entries = [e for (_, number), one in whole.items() if number == bucket for e in one]
        assert found == {entry.file.file_name for entry in entries}


def test_planning_among_ten_thousand_files_decodes_few(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "100"})
    write(table, 1, [("+I", k, "a") for k in range(500)])
    latest = table.snapshots.latest()
    assert latest is not None
    entries = list(live_state(table, latest).entries())
    many = [
        replace(one, file=replace(one.file, file_name=f"f-{n}-{place}"))
        for n in range(100)
        for place, one in enumerate(entries)
    ]
    metas = table.manifests.write_manifests(many, 1 << 23)
    base, _ = table.manifests.write_list(metas)
    delta, _ = table.manifests.write_list([])
    table.snapshots.publish(
        replace(
            latest,
            id=2,
            base_manifest_list=base,
            base_manifest_list_size=None,
            delta_manifest_list=delta,
            delta_manifest_list_size=None,
            uuid="x",
        )
    )
    found, read = _plan(table, bucket=7)
    assert (len(found), len(read)) == (100, len(metas))


# ------------------------------------------------------------------------------- merging


def test_manifests_are_merged_when_java_merges_them(tmp_path: pathlib.Path) -> None:
    table = GoldenTable("manifest_compaction").copied_to(tmp_path / "table")
    options = table.options
    policy = MergePolicy(
        target_size=options.manifest_target_size,
        full_threshold=options.manifest_full_compaction_threshold,
        min_count=options.manifest_merge_min_count,
    )
    ids = table.snapshots.ids()
    for before, after in itertools.pairwise(ids):
        one, two = table.snapshots.read(before), table.snapshots.read(after)
        metas = [
            *table.manifests.read_list(one.base_manifest_list),
            *table.manifests.read_list(one.delta_manifest_list),
        ]
        java = table.manifests.read_list(two.base_manifest_list)
        ours, written = merge_manifests(metas, table.manifests, policy)
        old = {meta.file_name for meta in metas}
        assert [m.file_name for m in ours if m.file_name in old] == [
            m.file_name for m in java if m.file_name in old
        ]
        assert len(ours) == len(java)
        assert len(written) == sum(meta.file_name not in old for meta in java)
        assert _state(table, ours) == _state(table, java)


def test_large_manifests_of_other_partitions_stay_unread_in_a_rewrite(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path, columns=_PARTITIONED, keys=("p", "k"), partitions=("p",))
    for number in range(4):
        write(table, number, [("+I", number, k, "a") for k in range(3)], compaction=False)
    for number in (9, 10):
        messages = prepared(table, [("+I", 2, 1, "b")], overwrite=True)
        table.new_commit("user").overwrite(messages, number)
    latest = table.snapshots.latest()
    assert latest is not None
    lists = (latest.base_manifest_list, latest.delta_manifest_list)
    metas = [meta for name in lists for meta in table.manifests.read_list(name)]
    _forget()
    store = FaultyFileIO(LocalFileIO(durable=False))
    again = reopened(table, file_io=store)
    policy = MergePolicy(target_size=1, full_threshold=1, min_count=30)
    merged, _ = merge_manifests(metas, again.manifests, policy)
    read = {pathlib.PurePath(path).name for name, path in store.operations if name == "read_bytes"}
    others = [meta.file_name for meta in (*metas[:2], metas[3])]
    assert read.isdisjoint(others)
    assert metas[2].file_name in read
    assert [meta.file_name for meta in merged][:3] == others
    assert _state(table, merged) == _state(table, metas)


# ------------------------------------------------------------------------------ encoding


@pytest.mark.parametrize(
    ("text", "codec"),
    [("zstd", "zstandard"), ("none", "null"), ("deflate", "deflate"), ("snappy", "snappy")],
)
def test_manifest_compression(tmp_path: pathlib.Path, text: str, codec: str) -> None:
    table = make_table(tmp_path, options={"manifest.compression": text})
    write(table, 1, [("+I", k, "a") for k in range(5)])
    table.manifests.write_index_manifest([])
    for path in pathlib.Path(table.layout.manifest_dir).iterdir():
        assert b"avro.codec" + bytes([2 * len(codec)]) + codec.encode() in path.read_bytes()
    _forget()
    assert len(rows_of(reopened(table))) == 5


def test_removals_without_statistics(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"manifest.delete-file-drop-stats": "true"})
    write(table, 1, [("+I", 1, "a")], compaction=False)
    write(table, 2, [("+I", 1, "b")], full=True)
    _forget()
    for path in pathlib.Path(table.layout.manifest_dir).glob("manifest-[0-9a-f]*"):
        for entry in decode_entries(path.read_bytes()):
            dropped = entry.file.value_stats_cols == ()
            assert dropped == (entry.kind is FileKind.DELETE)
            assert bool(entry.file.value_stats.null_counts) != dropped
    assert rows_of(reopened(table)) == [(1, "b")]


@pytest.mark.parametrize("codec", ["zstandard", "null", "deflate", "snappy"])
def test_blocks_of_all_codecs_and_wrong_counts(codec: str) -> None:
    writer = ContainerWriter(
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}', codec=codec
    )
    for number in range(50):
        writer.append({"a": number})
    data = writer.finish()
    assert [record["a"] for record in read_records(data)] == list(range(50))
    place = data.rindex(b"\x64", 0, len(data) - 16)  # 50 as a zigzag number
    if codec == "null":
        place = data.index(b"\x64", data.index(codec.encode()))
        for count in (48, 52):
            broken = data[:place] + bytes([2 * count]) + data[place + 1 :]
            with pytest.raises(CorruptDataError):
                list(read_records(broken))
    with pytest.raises(CorruptDataError):
        list(read_records(data[:-20]))
