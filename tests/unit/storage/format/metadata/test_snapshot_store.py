# SPDX-License-Identifier: Apache-2.0
import pickle

import pytest

from storage.errors import NotFoundError, StorageUnavailableError
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import SchemaStore, new_schema
from storage.format.metadata.snapshot import CommitKind, Snapshot, SnapshotStore
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO


def snapshot(snapshot_id, user="u"):
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list="b",
        delta_manifest_list="d",
        commit_user=user,
        commit_identifier=snapshot_id,
        commit_kind=CommitKind.APPEND,
        time_ms=1000 * snapshot_id,
        total_record_count=0,
        delta_record_count=0,
    )


@pytest.fixture
def layout(tmp_path):
    return TableLayout(str(tmp_path / "t"))


@pytest.fixture
def store(layout):
    return SnapshotStore(LocalFileIO(durable=False), layout)


def publish(store, *ids):
    for snapshot_id in ids:
        assert store.publish(snapshot(snapshot_id))


def write(path, text):
    LocalFileIO(durable=False).overwrite_bytes(path, text.encode())


def test_a_table_without_snapshots(store):
    assert store.latest() is store.latest_id() is store.earliest_id() is None
    assert store.ids() == []
    assert store.at_time(10**9) is None


def test_one_writer_wins_an_id(store, layout):
    publish(store, 1)
    assert not store.publish(snapshot(1, user="other"))
    assert SnapshotStore(LocalFileIO(), layout).read(1).commit_user == "u"


def test_hints_are_written(store, layout):
    publish(store, 1, 2)
    read = LocalFileIO().read_bytes
    assert (read(layout.earliest_hint), read(layout.latest_hint)) == (b"1", b"2")
    store.write_earliest_hint(2)
    assert store.earliest_id() == 2


@pytest.mark.parametrize("hint", ["1", "2", "4", "99", "-1", "", "garbage", "9" * 400])
def test_hints_may_lie(store, layout, hint):
    publish(store, 1, 2, 3, 4)
    write(layout.latest_hint, hint)
    write(layout.earliest_hint, hint if hint not in ("2", "4") else "99")
    assert store.latest_id() == 4
    assert store.earliest_id() == 1


def test_a_far_behind_hint_is_not_followed_step_by_step(store, layout):
    publish(store, *range(1, 30))
    write(layout.latest_hint, "1")
    assert store.latest_id() == 29


def test_other_files_in_the_directory_are_not_snapshots(store, layout):
    publish(store, 7)
    for name in (".snapshot-9.x.tmp", "snapshot-", "snapshot-9.tmp", "snapshot-²", "other-8"):
        write(f"{layout.snapshot_dir}/{name}", "{}")
    assert store.ids() == [7]


def test_expired_snapshots_are_not_found(store):
    publish(store, 1, 2)
    assert store.delete(1)
    assert not store.delete(1)
    with pytest.raises(NotFoundError, match="id=`1`"):
        store.read(1)
    assert store.earliest_id() == 2


def test_time_travel(store):
    publish(store, 3, 4, 5)
    assert store.at_time(2999) is None
    assert [store.at_time(ms).id for ms in (3000, 4999, 10**9)] == [3, 4, 5]


class HintsFail(LocalFileIO):
    def overwrite_hint(self, path, data):
        raise StorageUnavailableError("no")


def test_a_failing_hint_does_not_fail_the_commit(layout):
    store = SnapshotStore(HintsFail(durable=False), layout)
    publish(store, 1, 2)
    assert store.latest_id() == 2


def test_stores_travel_without_their_cache(store):
    publish(store, 1)
    again = pickle.loads(pickle.dumps(store))
    assert again.latest() == snapshot(1)


class Counting(LocalFileIO):
    """Counts the snapshot files that are read."""

    def __init__(self):
        super().__init__(durable=False)
        self.read = []

    def read_bytes(self, path):
        if "snapshot-" in path:
            self.read.append(int(path.rpartition("-")[2]))
        return super().read_bytes(path)


def test_a_walk_below_the_newest_reads_each_snapshot_once(layout):
    files = Counting()
    store = SnapshotStore(files, layout)
    publish(SnapshotStore(files, layout), 1, 2, 3)
    for _ in range(3):
        assert [store.recall(one).id for one in range(store.latest().id, 0, -1)] == [3, 2, 1]
    assert files.read == [3, 2, 1, 3, 3]
    publish(SnapshotStore(files, layout), 4)
    assert store.latest().id == 4
    assert files.read[5:] == [4, 3]  # that the one known as the newest is still there
    store.recall(2)
    assert len(files.read) == 7


@pytest.mark.parametrize("reads", [(), (1,), (2,), (1, 2, 3)])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("by_id", [False, True])
def test_ids_that_were_taken_back_and_used_anew_are_not_mistaken(layout, reads, count, by_id):
    store, other = (SnapshotStore(LocalFileIO(durable=False), layout) for _ in range(2))
    publish(other, 1, 2, 3)
    assert store.latest().id == 3
    for one in reads:
        store.recall(one)
    for one in (3, 2):
        other.delete(one)
    for one in range(2, 2 + count):
        other.publish(snapshot(one, user="new"))
    newest = store.read(1 + count) if by_id else store.latest()
    assert newest == snapshot(1 + count, user="new")
    assert store.recall(1) == snapshot(1)
    for one in range(2, 2 + count):
        assert store.recall(one) == store.read(one) == snapshot(one, user="new")


def test_one_changed_snapshot_makes_the_store_forget_all(store):
    publish(store, 1, 2, 3)
    for one in (3, 2):
        store._file_io.delete(store._layout.snapshot_file(one))
    for one in (2, 3):
        store._file_io.put_if_absent(
            store._layout.snapshot_file(one), snapshot(one, user="new").to_json()
        )
    assert store.read(2).commit_user == "new"
    assert store.recall(3).commit_user == "new"


def test_a_schema_that_is_replaced_is_noticed_by_a_listing(layout):
    store, other = (SchemaStore(LocalFileIO(durable=False), layout) for _ in range(2))
    for name in ("a", "longer"):
        schema = new_schema([(name, parse_type("INT"))], now_ms=0)
        LocalFileIO(durable=False).overwrite_bytes(layout.schema_file(0), schema.to_json())
        assert store.latest() == schema
        assert store.read(0) == schema
        other.forget()
        assert other.read(0) == schema


def test_schemas(layout):
    store = SchemaStore(LocalFileIO(durable=False), layout)
    assert store.latest() is None
    schema = new_schema([("a", parse_type("INT"))], now_ms=0)
    assert store.publish(schema)
    assert not store.publish(schema)
    again = pickle.loads(pickle.dumps(store))
    assert again.ids() == [0]
    assert again.latest() == again.read(0) == schema
    with pytest.raises(NotFoundError):
        store.read(3)
