# SPDX-License-Identifier: Apache-2.0
"""State of every earlier format still starts, and goes on; that of later ones is refused."""

import shutil
from pathlib import Path

import pytest

from ingest.decode.events import ObservedField, SchemaDelta, SourceTable
from ingest.errors import ExitCode, exit_code_of
from ingest.state.ownership import Parking, Pausing, newest_record
from ingest.state.stream_state import STATE_FORMAT, CheckpointState, StateFormatError, progress_of
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock
from storage.format.types.types import AtomicType, TypeRoot
from storage.io.local import LocalFileIO
from tests.unit.ingest.lake_settings import lake_settings
from tests.unit.ingest.old_state import read
from tests.unit.ingest.simulated_stream import SimulatedStream

STATES = Path(__file__).parents[1] / "states"
IO = LocalFileIO(durable=False)


def test_there_is_state_of_every_format():
    names = {path.name for path in STATES.glob("format-*.tar.xz")}
    assert names == {f"format-{number}.tar.xz" for number in range(1, STATE_FORMAT + 1)}


@pytest.mark.parametrize("lost", [False, True], ids=["with checkpoint", "checkpoint lost"])
@pytest.mark.parametrize("number", range(1, STATE_FORMAT + 1))
def test_old_state_goes_on_without_loss(tmp_path, monkeypatch, number, lost):
    records, rows, bad = read(STATES / f"format-{number}.tar.xz", tmp_path)
    if lost:
        shutil.rmtree(tmp_path / "checkpoint")
    stream = SimulatedStream(tmp_path, monkeypatch)
    for topic, parts in records.items():
        stream.topics.records[topic].update(parts)
    assert set(stream.book.parking.parked()) == {"shop.items"}
    stream.drain()
    for table, expected in rows.items():
        assert stream.rows(table) == expected, table
    assert stream.quarantined() == bad
    assert newest_record(IO, str(tmp_path / "lake"), "shop").note is not None
    assert not (tmp_path / "lake/.lakeward/shop/progress.json").exists()


LATER = f'"version": {STATE_FORMAT + 1}'


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("checkpoint/lakeward.json", lambda root: CheckpointState.load(root / "checkpoint")),
        (
            "lake/.lakeward/shop/parked.json",
            lambda root: Parking(IO, f"{root}/lake", "shop").load(),
        ),
        (
            "lake/.lakeward/shop/paused.json",
            lambda root: Pausing(IO, f"{root}/lake", "shop").load(),
        ),
        (
            "lake/.lakeward/shop/owner/record-000000000001",
            lambda root: newest_record(IO, f"{root}/lake", "shop"),
        ),
    ],
)
def test_later_state_is_refused_with_what_to_do(tmp_path, name, load):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text("{" + LATER + ', "what": "is not known today"}')
    with pytest.raises(StateFormatError, match=f"format {STATE_FORMAT + 1}") as caught:
        load(tmp_path)
    assert "install that version again" in caught.value.hint
    assert exit_code_of(caught.value) == ExitCode.CONFIG


@pytest.mark.parametrize(
    ("sweep", "warned"),
    [
        ('{"commit":7,"topic":"t","partition":0,"next":9,"state":"open","floor":5}', True),
        ('{"commit":6,"topic":"t","partition":0,"next":9,"state":"open"}', False),
        ('{"commit":7,"topic":"t","partition":0,"next":9,"state":"quiet"}', False),
        ("", False),
        ("not JSON", False),
    ],
)
def test_an_open_sweep_of_an_earlier_release_is_ignored_with_a_warning(
    tmp_path, caplog, sweep, warned
):
    book = TableRegistry(lake_settings(tmp_path), ManualClock())
    book.load()
    columns = (ObservedField("id", AtomicType(TypeRoot.BIGINT)),)
    source = SourceTable("shop", "inventory", "items")
    book.schemas.apply(
        [SchemaDelta("shop.items", source, "t", columns, primary_key=("id",), offset=0)], now_ms=0
    )
    table = book.table("shop.items")
    properties = {"lakeward.offsets.shop": '{"t":{"0":9}}', "lakeward.sweep.shop": sweep}
    table.new_commit("shop").commit((), 7, properties=properties, ignore_empty=False)
    progress = progress_of(table, "shop")
    assert (progress.identifier, progress.offsets) == (7, {"t": {"0": 9}})
    assert ["verify --repair" in record.message for record in caplog.records] == [True] * warned
