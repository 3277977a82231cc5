# SPDX-License-Identifier: Apache-2.0
"""Every kind of state that a pipeline keeps, as one release of Lakeward wrote it.

`python -m tests.unit.ingest.released_state FILE` writes it with the code as it is. Do it before a
change of how state is written, and keep the files that are there: what a release has written must
be read by all later ones.

A stream in the middle of its work:

* `shop.items` was parked, was resumed and is catching up; `shop.sums` is parked;
* a replay of two records of the quarantine table died between its commit and its marks;
* the process died in the middle of a batch's commits;
* the stream is paused, one request waits, one was answered;
* `shop.other` was rolled back since the stream `other` wrote it.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from ingest.state.lease import lease_of
from ingest.state.ownership import Pausing
from ingest.state.request_files import Answer, RequestFiles
from ingest.state.stream_state import note_rollback
from storage.format.metadata.schema import new_schema
from storage.io.local import LocalFileIO
from tests.unit.ingest.daemon.requests.test_replay import BIGINT, Replays
from tests.unit.ingest.simulated_stream import Died, event

TRAFFIC = [
    event("orders", 1, 10),
    event("orders", 2, 0.5),  # quarantined, replayed
    event("items", 1, 100),
    event("sums", 1, 7),
    event("orders", 3, 0.25),  # quarantined, replayed
    event("orders", 3, 30, "u"),
    event("sums", 1, [1, {}]),  # stays in quarantine
]
MISSED = [event("items", 2, 200), event("sums", 1, 5), event("orders", 4, 40)]
LAST = [event("items", 1, 101, "u"), event("orders", 5, 50), event("sums", 2, 8)]
ROWS = {
    "shop.orders": {1: 10, 2: 0.5, 3: 30, 4: 40, 5: 50},
    "shop.items": {1: 101, 2: 200},
    "shop.sums": {1: 12, 2: 8},
}
"""What the tables must hold in the end."""


def write(target):
    """Make the state, and pack it."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        root = Path(place)
        lake = Replays(root, patch)
        _work(lake)
        _notes(lake.stream)
        with tarfile.open(target, "w:xz") as tar:
            for name in ("lake", "checkpoint"):
                tar.add(root / name, name)


def _work(lake):
    stream = lake.stream
    lake.add(*TRAFFIC)
    lake.work()
    stream.pause("shop.items")
    lake.add(*MISSED[:1])
    lake.work()
    stream.resume("shop.items")
    stream.pause("shop.sums")
    lake.widen()
    stream.fuse.left = 4  # ledger, commit, then the marks
    with pytest.raises(Died):
        lake.replay_once()
    stream.open()
    lake.add(*MISSED[1:], *LAST)
    stream.leave()
    lease = lease_of(stream.settings, stream.book, stream.clock)
    lease.acquire()
    stream.open()
    stream.fuse.left = 12  # parked tables, the note, one table
    with pytest.raises(Died):
        stream._batch()


def _notes(stream):
    place = (LocalFileIO(), str(stream.directory / "lake"), "shop")
    Pausing(*place).set("maintenance", now_ms=1_750_000_000_000)
    files = RequestFiles(*place)
    files.ask("resume", {"tables": ["shop.sums"]}, now_ms=1_750_000_000_001)
    files.write(
        Answer(
            id="0123456789ab",
            kind="compact",
            state="failed",
            text="there is no such table",
            error="InvalidRequestError",
            hint="write database.table",
            at_ms=1_750_000_000_002,
        )
    )
    schema = new_schema(
        [("id", BIGINT)], primary_keys=("id",), partition_keys=(), options={"bucket": "1"}, now_ms=0
    )
    stream.catalog.create_table("shop.other", schema)
    table = stream.catalog.table("shop.other")
    table.new_commit("other").commit(
        (), 0, properties={"lakeward.offsets.other": '{"c":{"0":9}}'}, ignore_empty=False
    )
    note_rollback(table, table.snapshots.latest(), "snapshot 1", {"other": ["d"]})


def unpack(source, directory):
    """Lay out the state."""
    with tarfile.open(source) as tar:
        tar.extractall(directory, filter="data")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
