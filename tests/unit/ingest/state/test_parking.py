# SPDX-License-Identifier: Apache-2.0
"""The list of parked tables: durable, atomic, and what it notes of parked tables."""

import pytest

from ingest.state.ownership import Parking, faults_to_park, higher, lost_file, reason_of
from storage.errors import (
    CorruptDataError,
    FencedError,
    InternalError,
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from storage.io.local import LocalFileIO
from tests.unit.ingest.simulated_stream import SimulatedStream, event

SINCE = {"t": {"0": 10, "1": 4}, "u": {"0": 7}}


HERE = {"t": {"0": 50}}
NEXT = {"t": {"0": 60, "2": 0}}


def opened(tmp_path):
    parking = Parking(LocalFileIO(durable=False), str(tmp_path), "shop")
    parking.load()
    return parking


def park(parking, table="shop.orders", since=SINCE, topics=("t",)):
    return parking.park(table, reason="broken", by="stream", since=since, now_ms=5, topics=topics)


def test_a_parked_table_is_there_for_the_next_process(tmp_path):
    parking = opened(tmp_path)
    assert park(parking)
    entry = opened(tmp_path).parked()["shop.orders"]
    assert (entry.reason, entry.by, entry.parked_ms) == ("broken", "stream", 5)
    assert (entry.since, entry.topics) == (SINCE, ("t",))


def test_parking_again_keeps_the_older_place(tmp_path):
    parking = opened(tmp_path)
    park(parking)
    assert not park(parking, since={"t": {"0": 99}})
    assert parking.parked()["shop.orders"].since == SINCE


def test_topics_and_partitions_met_later_are_added_once(tmp_path):
    parking = opened(tmp_path)
    park(parking)
    parking.met({"shop.orders": {"u"}, "shop.else": {"v"}}, HERE, NEXT, 3)
    entry = opened(tmp_path).parked()["shop.orders"]
    assert entry.topics == ("t", "u")
    assert entry.since == {"t": {"0": 10, "1": 4, "2": 0}, "u": {"0": 7}}
    before = (tmp_path / ".lakeward/shop/parked.json").stat().st_mtime_ns
    parking.met({"shop.orders": {"u"}}, HERE, NEXT, 4)
    assert (tmp_path / ".lakeward/shop/parked.json").stat().st_mtime_ns == before


def test_a_partition_that_begins_again_is_missed_from_its_beginning(tmp_path):
    parking = opened(tmp_path)
    park(parking)
    park(parking, "shop.items")
    parking.resume(["shop.items"], {"t": {"0": 30, "1": 9}})
    parking.met({}, {"t": {"0": 40, "1": 9}}, {"t": {"0": 3, "1": 9}}, 7)
    again = opened(tmp_path)
    assert again.parked()["shop.orders"].since["t"] == {"0": 0, "1": 4}
    assert again.common_floor == {"t": {"1": 9}}
    assert again.of_present_topics(SINCE, 6) == {"t": {"1": 4}, "u": {"0": 7}}
    assert again.of_present_topics(SINCE, 7) == SINCE, "committed by the batch that read it anew"


def test_resumed_tables_are_behind_until_all_are_level(tmp_path):
    parking = opened(tmp_path)
    park(parking)
    park(parking, "shop.items")
    parking.resume(["shop.orders"], {"t": {"0": 30}})
    parking.resume(["shop.items"], {"t": {"0": 20, "1": 9}})
    again = opened(tmp_path)
    assert (again.parked(), again.catching_up) == ({}, ("shop.items", "shop.orders"))
    assert again.common_floor == {"t": {"0": 30, "1": 9}}
    again.caught_up()
    assert (opened(tmp_path).catching_up, opened(tmp_path).common_floor) == ((), {})


def test_a_table_parked_again_is_not_behind(tmp_path):
    parking = opened(tmp_path)
    park(parking)
    parking.resume(["shop.orders"], {"t": {"0": 30}})
    park(parking)
    assert (parking.catching_up, parking.common_floor) == ((), {"t": {"0": 30}})


def test_only_parked_tables_can_be_resumed(tmp_path):
    with pytest.raises(InvalidRequestError, match="not parked"):
        opened(tmp_path).resume(("shop.orders",), {})


def test_a_damaged_list_stops_the_stream_rather_than_lose_rows(tmp_path):
    park(opened(tmp_path))
    (tmp_path / ".lakeward/shop/parked.json").write_text("{")
    with pytest.raises(CorruptDataError, match="parked tables"):
        opened(tmp_path)


def test_higher_takes_the_larger_of_each_partition():
    assert higher({"t": {"0": 1, "1": 5}}, {"t": {"0": 3}, "u": {"0": 2}}) == {
        "t": {"0": 3, "1": 5},
        "u": {"0": 2},
    }


TABLES = ("a.x", "a.y", "q._quarantine")


def judged(failures, tables=TABLES, answers=True):
    return faults_to_park(failures, tables, quarantine="q._quarantine", answers=lambda: answers)


def test_a_table_with_damaged_bytes_or_odd_options_is_parked_with_the_reason():
    parked = judged(
        {"a.x": CorruptDataError("bad footer", path="f"), "a.y": InvalidOptionError("no")}
    )
    assert parked == {
        "a.x": "CorruptDataError: bad footer path=`f`",
        "a.y": "InvalidOptionError: no",
    }


@pytest.mark.parametrize(
    "error",
    [
        StorageUnavailableError("away"),
        FencedError("newer"),
        InternalError("bug"),
        PermissionError("denied"),
    ],
)
def test_what_is_not_about_one_table_ends_the_query(error):
    with pytest.raises(type(error)):
        judged({"a.x": error})


def test_the_quarantine_table_is_never_parked():
    with pytest.raises(CorruptDataError):
        judged({"q._quarantine": CorruptDataError("x"), "a.x": CorruptDataError("x")})


def test_when_every_table_fails_or_the_warehouse_is_away_nothing_is_hidden():
    both = {"a.x": CorruptDataError("x"), "a.y": CorruptDataError("y")}
    with pytest.raises(CorruptDataError):
        judged(both, tables=("a.x", "a.y"))
    with pytest.raises(CorruptDataError):
        judged({"a.x": CorruptDataError("x")}, answers=False)
    assert judged({"a.x": CorruptDataError("x")}, tables=("a.x",)) == {"a.x": "CorruptDataError: x"}


def test_a_file_is_lost_when_the_newest_snapshot_names_it(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    stream.topics.add("a", 0, *event("orders", 1, 1))
    stream.batch()
    stream.batch()
    table = stream.catalog.table("shop.orders")
    (file,) = (tmp_path / "lake/shop.db/orders/bucket-0").iterdir()
    assert lost_file(table, FileNotFoundError(2, "no", "/lake/bucket-0/data-old.parquet")) is None
    found = lost_file(table, FileNotFoundError(2, "no", str(file)))
    assert isinstance(found, CorruptDataError)
    manifest = table.layout.manifest(table.latest_snapshot().delta_manifest_list)
    assert lost_file(table, FileNotFoundError(2, "no", manifest)) is not None


def test_a_table_that_lost_a_data_file_is_parked_when_the_file_is_needed(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for number in range(12):
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.topics.add("b", 0, *event("sums", number, 1))
        stream.batch()
    for path in (tmp_path / "lake/shop.db/orders/bucket-0").iterdir():
        path.unlink()
    for number in range(12, 24):  # compaction comes to it
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.topics.add("b", 0, *event("sums", number, 1))
        stream.batch()
    entry = stream.book.parking.parked()["shop.orders"]
    assert "a file that the table needs is missing" in entry.reason
    stream.work()
    assert len(stream.rows("shop.sums")) == 24


def test_a_reason_is_one_line():
    assert "\n" not in reason_of(CorruptDataError("first\nsecond"))
    assert len(reason_of(CorruptDataError("x" * 2_000))) == 500
