# SPDX-License-Identifier: Apache-2.0
"""Tags: the file as Java writes it, creating and deleting, and which files go with a tag."""

import datetime
import json
import pathlib
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import Snapshot, Tag
from storage.io.local import LocalFileIO
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import (
    all_tags,
    create_tag,
    delete_tag,
    get_tag,
    rename_tag,
    replace_tag,
)
from storage.testing.invariants import check_table
from tests.table_kit import (
    data_files,
    make_table,
    metadata_files,
    named_files,
    reopened,
    rows_of,
    write,
)
from tests.unit.storage.golden_tables import GOLDEN
from tests.unit.storage.newest_files import newest_names


def _expire(table: FileStoreTable, keep: int = 1) -> int:
    return expire_snapshots(
        table, now_ms=0, retain_max=keep, retain_min=keep, time_retained_ms=0, limit=100
    )


def test_a_tag_is_the_json_of_its_snapshot_with_what_is_not_known() -> None:
    path = GOLDEN / "tags_branch_consumer" / "table" / "tag" / "tag-t1"
    document = {**json.loads(path.read_bytes()), "writerVersion": "9", "operation": "WRITE"}
    tag = Tag.from_json("t1", json.dumps(document).encode())
    assert tag.snapshot.id == 1
    assert tag.created is None
    assert json.loads(tag.to_json()) == document


@pytest.mark.parametrize(
    ("parts", "time"),
    [
        ([2026, 11, 21, 2, 49, 38, 773091000], "2026-11-21 02:49:38.773091"),
        ([2026, 11, 21, 2, 49, 38], "2026-11-21 02:49:38"),
        ([2026, 11, 21, 2, 49], "2026-11-21 02:49:00"),
        ([2026, 11, 21, 2, 49, 0, 5000], "2026-11-21 02:49:00.000005"),
    ],
)
def test_time_to_live_is_written_as_java_writes_it(parts: list[int], time: str) -> None:
    path = GOLDEN / "tags_branch_consumer" / "table" / "tag" / "tag-t1"
    document = {
        **json.loads(path.read_bytes()),
        "tagCreateTime": parts,
        "tagTimeRetained": 86400.25,
    }
    tag = Tag.from_json("t", json.dumps(document).encode())
    assert tag.created == datetime.datetime.fromisoformat(time).astimezone()
    assert tag.time_retained_ms == 86_400_250
    assert json.loads(tag.to_json()) == document
    assert not tag.snapshot.extra


@pytest.mark.parametrize("bad", [{"tagCreateTime": [2026]}, {"tagTimeRetained": "1 d"}])
def test_a_bad_time_to_live_is_corrupt(bad: dict[str, object]) -> None:
    path = GOLDEN / "tags_branch_consumer" / "table" / "tag" / "tag-t1"
    with pytest.raises(CorruptDataError):
        Tag.from_json("t", json.dumps({**json.loads(path.read_bytes()), **bad}).encode())


def test_making_listing_and_reading_tags(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(NotFoundError):
        create_tag(table, "t")
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 2, "b")])
    create_tag(table, "newest")
    create_tag(table, "first", 1, time_retained_ms=86_400_000)
    assert [(tag.name, tag.snapshot.id) for tag in all_tags(table)] == [("first", 1), ("newest", 2)]
    assert get_tag(table, "first").created is not None
    path = pathlib.Path(table.layout.tag_file("newest"))
    assert path.read_bytes() == pathlib.Path(table.layout.snapshot_file(2)).read_bytes()
    with pytest.raises(InvalidRequestError, match="already exists"):
        create_tag(table, "first")
    assert create_tag(table, "first", ignore_if_exists=True).snapshot.id == 1
    for name in ("", "  ", "a/b"):
        with pytest.raises(InvalidRequestError):
            create_tag(table, name)
    with pytest.raises(NotFoundError):
        create_tag(table, "x", 9)
    assert rows_of(table, tag="first") == [(1, "a")]


def test_replacing_and_renaming(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number in (1, 2):
        write(table, number, [("+I", number, "a")])
    create_tag(table, "t", 1)
    with pytest.raises(NotFoundError):
        replace_tag(table, "u")
    assert replace_tag(table, "t").snapshot.id == 2
    create_tag(table, "taken", 1)
    with pytest.raises(InvalidRequestError, match="already exists"):
        rename_tag(table, "t", "taken")
    rename_tag(table, "t", "u")
    assert [tag.name for tag in all_tags(table)] == ["taken", "u"]
    with pytest.raises(NotFoundError):
        get_tag(table, "t")


def test_a_tag_keeps_its_rows_until_it_is_deleted(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")], compaction=False)
    create_tag(table, "t")
    write(table, 2, [("+I", 1, "b")], full=True)
    write(table, 3, [("+I", 2, "c")], compaction=False)
    before = data_files(table)
    _expire(table)
    assert rows_of(reopened(table), tag="t") == [(1, "a")]
    kept = data_files(table)
    assert kept < before
    assert delete_tag(table, "t")
    assert not delete_tag(table, "t")
    assert data_files(table) == newest_names(table)
    assert rows_of(reopened(table)) == [(1, "b"), (2, "c")]
    assert metadata_files(table) == named_files(table)[1]
    check_table(reopened(table))


def test_deleting_a_tag_leaves_what_its_neighbours_and_branches_name(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    for number in range(1, 5):
        write(table, number, [("+I", number, "a")], compaction=False)
        create_tag(table, f"t{number}")
    create_tag(table, "twin", 2)
    write(table, 5, [("+I", 5, "a")], full=True)
    write(table, 6, [("+I", 6, "a")], compaction=False)
    _expire(table)
    for name in ("t2", "t3"):
        assert delete_tag(table, name)
    expected = [(number, "a") for number in range(1, 5)]
    again = reopened(table)
    assert rows_of(again, tag="t1") == expected[:1]
    assert rows_of(again, tag="twin") == expected[:2]
    assert rows_of(again, tag="t4") == expected
    for name in ("t4", "twin", "t1"):
        delete_tag(table, name)
        for tag in all_tags(table):
            assert rows_of(reopened(table), tag=tag.name) == expected[: tag.snapshot.id]
    assert len(rows_of(reopened(table))) == 6
    assert data_files(table) == newest_names(table)


def test_a_snapshot_that_expires_while_it_is_tagged_is_not_tagged(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")])

    class Expiring(LocalFileIO):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            if "/tag/" in path:
                _expire(table)
            return super().put_if_absent(path, data)

    racing = reopened(table, file_io=Expiring(durable=False))
    with pytest.raises(NotFoundError, match="while it was being tagged"):
        create_tag(racing, "t", 1)
    assert all_tags(table) == []


def test_a_damaged_tag_is_named(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    create_tag(table, "t", 1)
    pathlib.Path(table.layout.tag_file("t")).write_bytes(b'{"id"')
    with pytest.raises(CorruptDataError, match="tag-t"):
        get_tag(table, "t")


def test_documents_of_newer_versions_keep_their_members() -> None:
    path = GOLDEN / "tags_branch_consumer" / "table" / "snapshot" / "snapshot-1"
    document = {**json.loads(path.read_bytes()), "operation": "WRITE", "logOffsets": {"0": 1}}
    snapshot = Snapshot.from_json(json.dumps(document).encode())
    changed = msgspec.structs.replace(snapshot, statistics="s")
    assert json.loads(changed.to_json()) == {**document, "statistics": "s"}


def test_a_tag_without_its_changelog_list_does_not_stop_expiry(tmp_path: pathlib.Path) -> None:
    """Java removes the changelog list of an expired snapshot that is tagged; expiry goes on."""
    table = make_table(tmp_path)
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")], compaction=False)
    create_tag(table, "t", 1)
    path = pathlib.Path(table.layout.tag_file("t"))
    document = {**json.loads(path.read_bytes()), "changelogManifestList": "manifest-list-gone-0"}
    path.write_text(json.dumps(document))
    assert _expire(table) == 2
    assert rows_of(reopened(table), tag="t") == [(1, "a")]
    assert delete_tag(table, "t")
    assert len(rows_of(reopened(table))) == 3


def test_a_tag_that_is_renamed_while_tags_are_listed_is_listed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    for name in ("a", "b"):
        create_tag(table, name)
    names = ["b", "c"]
    read = LocalFileIO.read_many

    def racing(file_io: LocalFileIO, paths: Sequence[str]) -> Iterator[bytes]:
        if names:
            rename_tag(table, names.pop(0), names.pop(0))
        return read(file_io, paths)

    monkeypatch.setattr(LocalFileIO, "read_many", racing)
    assert [tag.name for tag in all_tags(table)] == ["a", "c"]
