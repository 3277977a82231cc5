# SPDX-License-Identifier: Apache-2.0
import dataclasses
import errno
import functools
import os
import pathlib
import threading
from collections.abc import Callable

import pytest

from storage.errors import (
    CommitConflictError,
    FencedError,
    FileConflictError,
    InvalidRequestError,
    StorageUnavailableError,
)
from storage.format.metadata.file_meta import EMPTY_ROW, CommitMessage, FileSource
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import live_files
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.faulty_io import Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import (
    data_files,
    make_table,
    metadata_files,
    named_files,
    prepared,
    reopened,
    rows_batch,
    rows_of,
    write,
)

LOCAL = LocalFileIO(durable=False)


class Hooked(LocalFileIO):
    """A store in which something happens right before, or instead of, a publication."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.before: list[Callable[[], None]] = []
        self.lose: list[str] = []

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if "/snapshot/" in path:
            if self.before:
                self.before.pop(0)()
            loss = self.lose.pop(0) if self.lose else ""
            if loss == "before":
                raise StorageUnavailableError("no answer", path=path)
            done = super().put_if_absent(path, data)
            if loss == "after":
                raise StorageUnavailableError("no answer", path=path)
            return done
        return super().put_if_absent(path, data)


def others_commit(table: FileStoreTable, key: int, identifier: int = 1) -> None:
    """Another writer appends a row."""
    write(reopened(table), identifier, [("+I", key, "other")], user=f"other-{key}")


@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize("fails", ["", "/manifest-", "/manifest-list-"])
def test_all_that_a_snapshot_names_is_synced_before_it_appears(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, compacts: bool, fails: str
) -> None:
    options = {"changelog-producer": "lookup"} if compacts else {"write-only": "true"}
    table = make_table(tmp_path, file_io=LocalFileIO(), options=options)
    synced: set[str] = set()
    failed: list[str] = []
    lacking: list[set[str]] = []
    sync, link = os.fsync, os.link

    def syncing(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if fails and fails in path and not failed:
            failed.append(path)  # the disk reports a lost write once: later syncs prove nothing
            raise OSError(errno.EIO, "input/output error")
        sync(descriptor)
        synced.add(path)

    def linking(source: str, target: str) -> None:
        if "/snapshot/" in target:
            root = pathlib.Path(table.layout.root)
            written = {str(p) for part in ("bucket-0", "manifest") for p in (root / part).iterdir()}
            written |= {str(root / "bucket-0"), str(root / "manifest"), source}
            lacking.append(written - (synced - {*failed}))
        link(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "link", linking)
    for identifier in (1, 2):
        write(table, identifier, [("+I", 1, f"value {identifier}")])
    assert bool(failed) == bool(fails)
    if fails:  # no snapshot names what a failed attempt left behind
        named = set.union(*named_files(table))
        lacking = [{path for path in paths if os.path.basename(path) in named} for paths in lacking]
    assert lacking == [set()] * (4 if compacts else 2)


@pytest.mark.parametrize("single", [True, False])
def test_files_that_cannot_be_synced_do_not_stay(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, single: bool
) -> None:
    table = make_table(tmp_path, file_io=LocalFileIO(), options={"changelog-producer": "lookup"})
    sync = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".parquet"):
            raise OSError(errno.ENOSPC, "no space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with table.bucket_writer(EMPTY_ROW, 0, None) if single else table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 1, "a")]))
        with pytest.raises(StorageUnavailableError, match="free some space"):
            writer.prepare_commit(1)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_an_append_makes_one_snapshot(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    result = write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    snapshot = table.snapshots.read(1)
    assert (result.append_snapshot_id, result.compact_snapshot_id) == (1, None)
    assert not result.already_committed
    assert result.attempts == 1
    assert snapshot.commit_kind is CommitKind.APPEND
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("user", 1)
    assert (snapshot.total_record_count, snapshot.delta_record_count) == (2, 2)
    root = pathlib.Path(table.layout.root)
    assert (root / "snapshot" / "LATEST").read_text() == "1"
    assert (root / "snapshot" / "EARLIEST").read_text() == "1"
    check_table(table)


def test_a_commit_with_compaction_makes_append_then_compact(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    result = write(table, 2, [("+I", 1, "b")], full=True)
    assert (result.append_snapshot_id, result.compact_snapshot_id) == (2, 3)
    compact = table.snapshots.read(3)
    assert compact.commit_kind is CommitKind.COMPACT
    (entry,) = table.new_scan().live_entries(compact)
    assert (entry.file.file_source, entry.file.level) == (FileSource.COMPACT, 5)
    assert compact.commit_identifier == 2
    assert compact.delta_record_count == -1
    assert rows_of(table) == [(1, "b")]
    check_table(table)


def test_nothing_to_commit_makes_no_snapshot_unless_wanted(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    result = table.new_commit("u").commit([], 1)
    assert result.append_snapshot_id is None
    assert table.snapshots.latest_id() is None
    table.new_commit("u").commit([], 1, ignore_empty=False)
    assert table.snapshots.latest_id() == 1
    check_table(table)


def test_the_same_messages_again_change_nothing(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    messages = prepared(table, [("+I", 1, "b")], full=True)
    first = table.new_commit("u").commit(messages, 1)
    files = data_files(table)
    again = reopened(table).new_commit("u").commit(messages, 1)
    assert again.already_committed
    assert again.append_snapshot_id == first.append_snapshot_id
    assert again.compact_snapshot_id == first.compact_snapshot_id
    assert not again.compaction_dropped
    assert table.snapshots.latest_id() == 3
    assert data_files(table) == files
    check_table(table)


def test_a_replay_with_files_of_its_own_is_recognised_and_cleaned_up(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    replay = prepared(table, [("+I", 1, "b")], full=True)
    write(table, 2, [("+I", 1, "b")])
    before = data_files(table)
    result = table.new_commit("user").commit(replay, 2)
    assert result.already_committed
    assert result.append_snapshot_id == 2
    assert result.compaction_dropped
    assert data_files(table) < before
    assert data_files(table) == named_files(table)[0]
    assert rows_of(table) == [(1, "b")]
    check_table(table)


def test_a_replay_that_upgraded_a_live_file_does_not_delete_it(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"target-file-size": "1 b"})
    write(table, 1, [("+I", 1, "a")])
    replay = prepared(table, [("+I", 9, "b")], full=True)
    moved = {f.file_name for m in replay for f in m.compact.compact_before}
    kept = {f.file_name for m in replay for f in m.compact.compact_after}
    assert moved & kept, "the case needs an upgrade"
    write(table, 2, [("+I", 9, "b")])
    assert table.new_commit("user").commit(replay, 2).already_committed
    assert rows_of(table) == [(1, "a"), (9, "b")]
    check_table(table)


def test_a_crash_between_append_and_compact_is_a_legal_state(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    messages = prepared(table, [("+I", 1, "b")], full=True)
    counting = FaultyFileIO(LOCAL)
    dry = make_table(tmp_path / "dry", file_io=counting)
    write(dry, 1, [("+I", 1, "a")])
    dry_messages = prepared(dry, [("+I", 1, "b")], full=True)
    start = len(counting.operations)
    dry.new_commit("u").commit(dry_messages, 2)
    puts = [n for n, (op, _) in enumerate(counting.operations[start:]) if op == "put_if_absent"]
    dying = reopened(table, file_io=FaultyFileIO(LOCAL, Fault(puts[1] + 2, "before")))
    with pytest.raises(SimulatedCrash):
        dying.new_commit("u").commit(messages, 2)
    after = reopened(table)
    assert after.snapshots.latest_id() == 2
    replay = prepared(after, [("+I", 1, "b")], full=True)
    result = after.new_commit("u").commit(replay, 2)
    assert result.already_committed
    assert result.compact_snapshot_id is None
    assert result.compaction_dropped
    assert rows_of(after) == [(1, "b")]
    check_table(after)


@pytest.mark.parametrize("loss", ["before", "after"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_answer_is_asked_for_until_it_is_known(
    tmp_path: pathlib.Path, loss: str, times: int
) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    store.lose = [loss] * times
    result = write(table, 1, [("+I", 1, "a")])
    assert result.append_snapshot_id == 1
    assert not result.already_committed
    assert table.snapshots.ids() == [1]
    assert rows_of(table) == [(1, "a")]
    check_table(table)


@pytest.mark.parametrize("loss", ["before", "after"])
def test_after_an_outcome_that_stays_unknown_nothing_is_deleted(
    tmp_path: pathlib.Path, loss: str
) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    messages = prepared(table, [("+I", 1, "a")])
    store.lose = [loss] * 100
    files = data_files(table)
    with pytest.raises(StorageUnavailableError, match="unknown whether"):
        table.new_commit("u").commit(messages, 1)
    store.lose = []
    assert data_files(table) == files
    assert {name for name in metadata_files(table) if "list" in name}
    result = reopened(table).new_commit("u").commit(messages, 1)
    assert result.already_committed == (loss == "after")
    assert rows_of(table) == [(1, "a")]
    check_table(reopened(table))


def test_an_answer_lost_while_another_writer_takes_the_id(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    store.lose = ["before"]
    store.before = [lambda: others_commit(table, 7)]
    result = write(table, 1, [("+I", 1, "a")])
    assert result.append_snapshot_id == 2
    assert result.attempts == 2
    assert rows_of(table) == [(1, "a"), (7, "other")]
    check_table(reopened(table))


def test_a_lost_race_is_tried_again_and_leaves_no_metadata(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    store.before = [lambda: others_commit(table, 7), lambda: others_commit(table, 8)]
    result = write(table, 1, [("+I", 1, "a")])
    assert (result.append_snapshot_id, result.attempts) == (3, 3)
    assert rows_of(table) == [(1, "a"), (7, "other"), (8, "other")]
    assert metadata_files(table) == named_files(reopened(table))[1]
    check_table(reopened(table))


def test_a_writer_that_always_loses_gives_up_and_may_try_again(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store, options={"commit.max-retries": "2"})
    messages = prepared(table, [("+I", 1, "a")])
    store.before = [lambda n=n: others_commit(table, n) for n in (5, 6, 7)]
    with pytest.raises(CommitConflictError):
        table.new_commit("u").commit(messages, 1)
    assert metadata_files(table) == named_files(reopened(table))[1]
    assert table.new_commit("u").commit(messages, 1).append_snapshot_id == 4
    check_table(reopened(table))


def test_a_twin_that_was_faster_wins(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)

    def twin() -> None:
        write(reopened(table), 1, [("+I", 1, "a")], user="user")

    store.before = [twin]
    result = write(table, 1, [("+I", 1, "a")])
    assert result.already_committed
    assert result.append_snapshot_id == 1
    assert table.snapshots.ids() == [1]
    assert data_files(table) == named_files(reopened(table))[0]
    assert metadata_files(table) == named_files(reopened(table))[1]


def test_a_compaction_whose_input_is_gone_is_dropped_and_the_append_stays(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    messages = prepared(table, [("+I", 2, "b")], full=True)
    write(reopened(table), 1, full=True, user="compactor")
    result = table.new_commit("u").commit(messages, 2)
    assert result.append_snapshot_id == 3
    assert result.compact_snapshot_id is None
    assert result.compaction_dropped
    assert rows_of(table) == [(1, "a"), (2, "b")]
    assert data_files(table) == named_files(table)[0]
    assert metadata_files(table) == named_files(table)[1]
    check_table(table)


def test_an_append_beside_a_compaction_does_not_disturb_it(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 1, "b")])
    messages = prepared(table, full=True)
    others_commit(table, 7)
    result = table.new_commit("u").commit(messages, 3)
    assert result.compact_snapshot_id == 4
    assert rows_of(table) == [(1, "b"), (7, "other")]
    check_table(table)


def test_a_compaction_between_append_and_compact_drops_ours(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    write(table, 1, [("+I", 1, "a")])
    messages = prepared(table, [("+I", 2, "b")], full=True)

    def compactor() -> None:
        write(reopened(table), 1, full=True, user="compactor")

    store.before = [lambda: None, compactor]
    result = table.new_commit("u").commit(messages, 2)
    assert result.append_snapshot_id == 2
    assert result.compaction_dropped
    assert rows_of(reopened(table)) == [(1, "a"), (2, "b")]
    check_table(reopened(table))


def test_an_overwriting_message_that_lost_fails_whole(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    old = live_files(table, table.snapshots.read(1), bytes(12), 0)
    write(table, 2, full=True)
    (message,) = prepared(table, [("+I", 2, "b")])
    data = dataclasses.replace(message.data, deleted_files=old)
    with pytest.raises(FileConflictError):
        table.new_commit("u").commit([dataclasses.replace(message, data=data)], 3)
    assert metadata_files(table) == named_files(table)[1]


def test_checked_appends_refuse_files_that_are_live(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    messages = prepared(table, [("+I", 1, "a")])
    table.new_commit("u").commit(messages, 1)
    with pytest.raises(FileConflictError, match="live already"):
        table.new_commit("v").commit(messages, 1, check_append_conflicts=True)


def test_identifiers_must_grow(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 5, [("+I", 1, "a")])
    with pytest.raises(InvalidRequestError, match="is too small"):
        write(table, 4, [("+I", 2, "b")])
    assert write(table, 4, [("+I", 2, "b")], user="another").append_snapshot_id == 2


def test_filter_committed_keeps_what_is_newer(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    commit = table.new_commit("user")
    assert commit.filter_committed([1, 2]) == [1, 2]
    write(table, 3, [("+I", 1, "a")])
    others_commit(table, 7, identifier=9)
    assert table.new_commit("user").filter_committed([2, 3, 4, 5]) == [4, 5]


def test_batch_commits_of_one_user_and_identifier_count_once(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, BATCH_COMMIT_IDENTIFIER, [("+I", 1, "a")], user="job-1")
    assert write(table, BATCH_COMMIT_IDENTIFIER, [("+I", 1, "b")], user="job-1").already_committed
    assert not write(
        table, BATCH_COMMIT_IDENTIFIER, [("+I", 2, "b")], user="job-2"
    ).already_committed
    assert rows_of(table) == [(1, "a"), (2, "b")]
    assert table.snapshots.read(2).properties is None


def test_a_commit_is_remembered_after_its_snapshots_have_expired(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    replay = prepared(table, [("+I", 1, "replay")])
    write(table, 1, [("+I", 1, "a")])
    for number in range(3):
        others_commit(table, 10 + number)
    now = table.clock.now_ms() + 10**10
    assert expire_snapshots(table, now_ms=now, retain_min=1, retain_max=1) == 3
    fresh = reopened(table)
    result = fresh.new_commit("user").commit(replay, 1)
    assert result.already_committed
    assert result.append_snapshot_id is None
    assert fresh.new_commit("user").filter_committed([1, 2]) == [2]
    remembered = fresh.new_commit("user").latest_of_user("user")
    assert remembered is not None
    assert (remembered.commit_user, remembered.commit_identifier) == ("user", 1)
    assert len(rows_of(fresh)) == 4
    check_table(fresh)


def test_own_properties_are_carried_forward_and_others_are_not(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    commit = table.new_commit("u")
    commit.commit(
        prepared(table, [("+I", 1, "a")]), 1, properties={"lakeward.offsets": "1", "x": "y"}
    )
    others_commit(table, 7)
    properties = reopened(table).snapshots.read(2).properties or {}
    assert properties["lakeward.offsets"] == "1"
    assert "x" not in properties
    commit.commit(prepared(table, [("+I", 2, "b")]), 2, properties={"lakeward.offsets": "2"})
    assert (table.snapshots.read(3).properties or {})["lakeward.offsets"] == "2"


def test_the_watermark_never_goes_back(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    commit = table.new_commit("u")
    for identifier, (given, expected) in enumerate([(None, None), (5, 5), (3, 5), (None, 5)]):
        messages = prepared(table, [("+I", identifier, "a")])
        commit.commit(messages, identifier, watermark=given)
        snapshot = table.snapshots.latest()
        assert snapshot is not None
        assert snapshot.watermark == expected


def test_fencing_is_asked_before_every_publication(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    seen: list[int] = []

    def fence(latest: Snapshot | None) -> None:
        seen.append(0 if latest is None else latest.id)
        if latest is not None and latest.commit_user == "other-7":
            raise FencedError("a newer writer owns the stream")

    messages = prepared(table, [("+I", 1, "a")])
    store.before = [lambda: others_commit(table, 7)]
    with pytest.raises(FencedError):
        table.new_commit("u").commit(messages, 1, before_publish=fence)
    assert seen == [0, 1]
    assert metadata_files(table) == named_files(reopened(table))[1]
    assert rows_of(reopened(table)) == [(7, "other")]


def test_a_lying_latest_hint_does_not_matter(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number in range(12):
        write(table, number, [("+I", number, "a")], compaction=False)
    path = pathlib.Path(table.layout.latest_hint)
    for newest, hint in enumerate((b"", b"nonsense", b"1", b"2", b"99", b"-3", None), 13):
        path.unlink()
        if hint is not None:
            path.write_bytes(hint)
        fresh = reopened(table)
        result = write(fresh, newest, [("+I", newest, "b")], compaction=False)
        assert result.append_snapshot_id == newest, hint
        assert len(rows_of(fresh)) == newest, hint
        check_table(fresh)


def test_a_sleeper_cannot_publish_into_an_id_that_expired(tmp_path: pathlib.Path) -> None:
    store = Hooked()
    table = make_table(tmp_path, file_io=store)
    write(table, 1, [("+I", 1, "a")])

    def hours_pass(kept: int) -> None:
        for number in range(5):
            others_commit(table, 10 + number)
        now = table.clock.now_ms() + 10**10
        expire_snapshots(reopened(table), now_ms=now, retain_min=kept, retain_max=kept)

    for identifier, kept in ((2, 1), (3, 4)):
        store.before = [functools.partial(hours_pass, kept)]
        result = write(table, identifier, [("+I", identifier, "slept")])
        fresh = reopened(table)
        assert result.append_snapshot_id == fresh.snapshots.latest_id()
        assert (identifier, "slept") in rows_of(fresh)
        ids = fresh.snapshots.ids()
        assert ids == list(range(ids[0], ids[-1] + 1))
        check_table(fresh)


def test_expiry_of_everything_but_our_snapshot_does_not_undo_it(tmp_path: pathlib.Path) -> None:
    """The snapshot we built on goes right after we published: still ours, still committed."""

    class ExpiringStore(Hooked):
        def put_if_absent(self, path: str, data: bytes) -> bool:
            done = super().put_if_absent(path, data)
            if path.endswith("snapshot-3"):
                others_commit(table, 8)
                now = table.clock.now_ms()
                expire_snapshots(reopened(table), now_ms=now, retain_min=1, retain_max=2)
            return done

    table = make_table(tmp_path, file_io=ExpiringStore())
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 2, "b")])
    result = write(table, 3, [("+I", 3, "c")])
    assert result.append_snapshot_id == 3
    fresh = reopened(table)
    assert fresh.snapshots.ids() == [3, 4]
    assert rows_of(fresh) == [(1, "a"), (2, "b"), (3, "c"), (8, "other")]
    check_table(fresh)


def test_manifests_expired_under_a_slow_committer(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"manifest.merge-min-count": "2"})
    write(table, 1, [("+I", 1, "a")])
    slow = reopened(table)
    messages = prepared(slow, [("+I", 2, "b")])
    latest = slow.snapshots.latest()
    others_commit(table, 7)
    others_commit(table, 8)
    expire_snapshots(reopened(table), now_ms=10**15, retain_min=1, retain_max=1)
    commit = slow.new_commit("u")
    real = slow.snapshots.latest
    answers = iter([latest])
    slow.snapshots.latest = lambda: next(answers, None) or real()  # type: ignore[method-assign]
    result = commit.commit(messages, 2)
    assert result.append_snapshot_id == 4
    assert len(rows_of(reopened(table))) == 4
    check_table(reopened(table))


def test_threads_commit_side_by_side(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "2", "commit.max-retries": "50"})
    errors: list[BaseException] = []

    def work(user: int) -> None:
        try:
            mine = reopened(table)
            for identifier in range(4):
                key = user * 100 + identifier
                write(mine, identifier, [("+I", key, "x")], user=f"u{user}", compaction=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(user,)) for user in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert table.snapshots.ids() == list(range(1, 17))
    assert len(rows_of(table)) == 16
    assert metadata_files(table) == named_files(table)[1]
    check_table(table)


@pytest.mark.parametrize(
    "options",
    [
        {"manifest.merge-min-count": "3"},
        {"manifest.target-file-size": "3 kb", "manifest.merge-min-count": "4"},
        {
            "manifest.target-file-size": "4 kb",
            "manifest.full-compaction-threshold-size": "6 kb",
        },
    ],
)
def test_merged_manifests_keep_the_state(tmp_path: pathlib.Path, options: dict[str, str]) -> None:
    table = make_table(tmp_path, options=options)
    lists: list[int] = []
    for number in range(25):
        write(table, number, [("+I", number % 7, str(number))])
        snapshot = table.snapshots.latest()
        assert snapshot is not None
        lists.append(len(table.manifests.read_list(snapshot.base_manifest_list)))
    check_table(reopened(table))
    assert max(lists) < 25
    assert [key for key, _ in rows_of(table)] == list(range(7))


def test_a_small_commit_costs_few_operations(tmp_path: pathlib.Path) -> None:
    store = FaultyFileIO(LOCAL)
    table = make_table(tmp_path, file_io=store)
    for number in range(3):
        write(table, number, [("+I", number, "a")], compaction=False)
    messages = prepared(table, [("+I", 9, "b")], compaction=False)
    start = len(store.operations)
    table.new_commit("user").commit(messages, 9)
    assert [operation for operation, _ in store.operations[start:]] == [
        *("read_bytes", "exists", "exists", "read_bytes"),  # LATEST, whether it is true, snapshot
        *("write_bytes", "write_bytes", "write_bytes"),  # manifest, delta list, base list
        *("put_if_absent", "read_bytes", "overwrite_bytes"),  # publish, confirm, LATEST
    ]


def test_the_snapshot_names_the_newest_schema_seen(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    newer = table.alter([AddColumn("w", parse_type("INT"))])
    write(newer, 1, [("+I", 1, "a", 5)])
    write(table, 2, [("+I", 2, "b")])
    assert [table.snapshots.read(i).schema_id for i in (1, 2)] == [1, 1]
    assert rows_of(newer) == [(1, "a", 5), (2, "b", None)]


def test_overwrite_replaces_what_is_live_at_commit_time(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=[("p", "INT"), ("k", "INT"), ("v", "STRING")],
        keys=["p", "k"],
        partitions=["p"],
    )
    write(table, 1, [("+I", 1, 1, "a"), ("+I", 2, 2, "b")])
    messages = prepared(table, [("+I", 1, 5, "new")], overwrite=True)
    write(reopened(table), 1, [("+I", 1, 3, "late")], user="late")
    result = table.new_commit("u").overwrite(messages, 2)
    snapshot = table.snapshots.read(result.append_snapshot_id or 0)
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    assert rows_of(table) == [(1, 5, "new"), (2, 2, "b")]
    assert table.new_commit("u").overwrite([], 3).append_snapshot_id is None
    table.new_commit("u").truncate(4)
    assert rows_of(table) == []
    check_table(table)


def test_a_changed_bucket_count_needs_an_overwrite(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", number, "a") for number in range(8)])
    wider = table.alter([SetOption("bucket", "4")])
    with pytest.raises(InvalidRequestError, match="new bucket num 4"):
        write(wider, 2, [("+I", 1, "b")])
    everything = [("+I", *row) for row in rows_of(wider)]
    messages = prepared(wider, everything, overwrite=True)
    wider.new_commit("u").overwrite(messages, 2, replaces=lambda _: True)
    assert rows_of(wider) == rows_of(table, snapshot=1)
    write(wider, 3, [("+I", 1, "b")])
    check_table(wider)


def test_delete_uncommitted_removes_own_files_only(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"target-file-size": "1 b"})
    write(table, 1, [("+I", 1, "a")])
    live = data_files(table)
    messages: list[CommitMessage] = prepared(table, [("+I", 9, "b")], full=True)
    table.delete_uncommitted(messages)
    assert data_files(table) == live
    assert rows_of(table) == [(1, "a")]


def test_a_kind_of_a_row_reaches_the_file(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    messages = prepared(table, [("+I", 1, "a"), ("-D", 1, "a"), ("+I", 2, "b")])
    table.new_commit("u").commit(messages, 1)
    assert rows_of(table) == [(2, "b")]
    assert messages[0].data.new_files[0].delete_row_count == 1
