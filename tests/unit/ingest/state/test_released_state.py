# SPDX-License-Identifier: Apache-2.0
"""State that earlier releases wrote is read whole, and the stream continues from it.

`release-1` is what the first release wrote; `release-2` is what was written before all records of
the state became one type of file (`docs/adr/ingest/0030`).
"""

import shutil

import pytest

from ingest.daemon.requests.replay import ledger_file
from ingest.source.records import ANY_TABLE
from ingest.state.ownership import (
    BatchNote,
    OwnerRecord,
    ParkedTable,
    Parking,
    Pausing,
    newest_note,
    newest_record,
)
from ingest.state.request_files import RequestFiles
from ingest.state.stream_state import (
    CheckpointState,
    decoded,
    encoded,
    forget_rollback,
    progress_of,
    require_not_rolled_back,
    rolled_back_topics,
)
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InvalidRequestError
from storage.io.local import LocalFileIO
from tests.unit.ingest.daemon.requests.test_replay import Replays
from tests.unit.ingest.released_state import LAST, MISSED, ROWS, TRAFFIC, unpack
from tests.unit.ingest.state.test_old_state import STATES

IO = LocalFileIO(durable=False)
RELEASES = ("release-1", "release-2")


@pytest.fixture(params=RELEASES)
def root(request, tmp_path):
    unpack(STATES / f"{request.param}.tar.xz", tmp_path)
    return tmp_path


@pytest.fixture
def place(root):
    return IO, str(root / "lake"), "shop"


def test_checkpoint(root):
    assert CheckpointState.load(root / "checkpoint") == CheckpointState(
        stream="shop",
        base=3,
        initial={"a": {"0": 7}},
        floors={ANY_TABLE: {"a": {"0": 8}}, "shop.items": {}},
        bad_floors={"shop.items": {"a": {"0": 7}}},
        generation=1,
    )


def test_owner_records_and_their_notes(root, place):
    kinds = []
    for path in sorted((root / "lake/.lakeward/shop/owner").glob("record-*")):
        record = decoded(path.read_bytes(), OwnerRecord, str(path))
        assert encoded(record) == path.read_bytes()
        kinds.append(record.kind)
    assert kinds[:3] == ["taken", "batch", "batch"]
    assert kinds[3:] == ["taken", "settled", "taken", "left", "taken", "taken", "batch"]
    newest = newest_record(*place)
    assert (newest.number, newest.epoch, newest.settled, newest.ttl_s) == (10, 5, False, 30.0)
    assert (newest.owner.host, newest.owner.since_ms) == ("vm", 1_700_000_001_000)
    assert newest_note(*place) == BatchNote(
        identifier=3,
        start={"a": {"0": 7}},
        end={"a": {"0": 13}},
        tables=("shop.items", "shop.orders"),
    )


def test_parked_tables(place):
    parking = Parking(*place)
    parking.load()
    entry = ParkedTable(
        reason="by hand", by="person", parked_ms=0, since={"a": {"0": 7}}, topics=("a",)
    )
    assert parking.parked() == {"shop.sums": entry}
    assert (parking.catching_up, parking.common_floor) == (("shop.items",), {"a": {"0": 8}})
    assert parking.resume(("shop.sums",), {}) == {"shop.sums": entry}


def test_pause(place):
    pausing = Pausing(*place)
    assert (pausing.load().reason, pausing.pause.since_ms) == ("maintenance", 1_750_000_000_000)
    assert pausing.clear()
    assert Pausing(*place).load() is None


def test_requests_and_answers(place):
    files = RequestFiles(*place)
    (request,) = files.pending()
    assert (request.kind, request.arguments) == ("resume", {"tables": ["shop.sums"]})
    assert request.made_ms == 1_750_000_000_001
    answer = files.answer("0123456789ab")
    assert (answer.kind, answer.state, answer.final) == ("compact", "failed", True)
    assert (answer.error, answer.hint) == ("InvalidRequestError", "write database.table")
    assert (answer.text, answer.at_ms) == ("there is no such table", 1_750_000_000_002)
    files.remove(request)
    assert files.pending() == []


def test_properties_of_snapshots(place):
    catalog = FileSystemCatalog(place[1])
    items, orders = (progress_of(catalog.table(f"shop.{n}"), "shop") for n in ("items", "orders"))
    assert (items.identifier, items.offsets, items.span) == (
        3,
        {"a": {"0": 13}},
        {"a": {"0": (7, 13)}},
    )
    assert (orders.identifier, orders.offsets) == (1, {"a": {"0": 7}}), "the replay's is another's"
    assert progress_of(catalog.table("shop.other"), "shop") is None


def test_rolled_back_tables(place):
    catalog = FileSystemCatalog(place[1])
    table = catalog.table("shop.other")
    options = {"shop.other": table.schema.options}
    assert rolled_back_topics(options, "other") == {"shop.other": ("c", "d")}
    assert rolled_back_topics(options, "shop") == {}
    with pytest.raises(InvalidRequestError, match="snapshot 1"):
        require_not_rolled_back(options, "other")
    forget_rollback(table, "other")
    assert rolled_back_topics({"shop.other": table.latest().schema.options}, "other") == {}


def test_unfinished_replay(place):
    ledger = ledger_file(*place).read()
    assert ledger.identifiers == {"shop.orders": 1_700_000_001_000}
    assert ledger.records == {"shop.orders": (("a", 0, 1), ("a", 0, 4))}


@pytest.mark.parametrize("lost", [False, True], ids=["with checkpoint", "checkpoint lost"])
def test_the_stream_continues(root, monkeypatch, lost):
    if lost:
        shutil.rmtree(root / "checkpoint")
    lake = Replays(root, monkeypatch)
    lake.add(*TRAFFIC, *MISSED, *LAST)
    assert set(lake.stream.book.parking.parked()) == {"shop.sums"}
    assert lake.states() == {1: "new", 4: "new", 6: "new"}
    with pytest.raises(InvalidRequestError, match="parked tables"):  # what is left is for one
        lake.replay()
    assert lake.states() == {1: "replayed", 4: "replayed", 6: "new"}
    lake.stream.drain()
    for table, rows in ROWS.items():
        assert lake.rows(table) == rows, table
    assert lake.stream.quarantined() == {("a", 0, 1), ("a", 0, 4), ("a", 0, 6)}
    assert lake.states() == {1: "replayed", 4: "replayed", 6: "new"}
