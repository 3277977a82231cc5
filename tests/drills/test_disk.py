# SPDX-License-Identifier: Apache-2.0
"""Drills in which the disk is full; nothing is torn, and it goes on when there is room again."""

import contextlib
import time

import pytest

from storage.table.catalog import FileSystemCatalog
from tests.drills.small_disk import PAGE, small_disk
from tests.e2e.availability import had

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

QUICK = {"trigger": {"interval": "200ms", "max.records": 4_000}}
MEBIBYTES = 64


@pytest.fixture
def disk(tmp_path):
    with had(small_disk(tmp_path / "disk", MEBIBYTES), "small disk") as made:
        yield made


def on_disk(stage, disk, **more):
    return stage(
        pipeline={**QUICK, **more},
        warehouse=str(disk.place / "warehouse"),
        lake=lambda: FileSystemCatalog(str(disk.outside / "warehouse")),
        inside=disk.inside,
    )


def failures(on):
    return len(on.log("restart")) + len(on.log("fatal")) + len(on.log("disk_full"))


def test_disk_is_full_while_files_are_written(stage, disk):
    on = on_disk(stage, disk)
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        disk.fill()
        before = failures(on)
        on.produce(4_000)
        on.until(lambda: failures(on) > before, "the full disk is noticed", 60, alive=False)
        time.sleep(4.0)  # and it stays full for some tries
        disk.empty()
    on.goes_on()
    on.caught_up()
    on.finish()


def test_disk_is_full_while_committing(stage, disk):
    """Room for some files of a batch and not for the others: every one of them is once the one
    for which there is none, from the data file to the snapshot."""
    on = on_disk(stage, disk)
    on.produce(500, snapshot=100)
    on.start()
    on.caught_up()
    reached = set()
    with on.fault():
        for pages in (2, 5, 7, 9, 11, 13, 15):
            disk.fill(leave=pages * PAGE)
            before = failures(on)
            on.stream.changes(40)
            with contextlib.suppress(AssertionError):
                on.until(lambda b=before: failures(on) > b, "failure", 12, alive=False)
            reached |= {line.get("error", {}).get("message", "") for line in on.log("restart")}
            disk.empty()
            on.goes_on()
            on.caught_up()
    on.evidence.notes["different failures"] = len(reached)
    assert any("manifest" in message or "snapshot" in message for message in reached), reached
    on.finish()


def test_disk_of_the_checkpoint_is_full(stage, disk):
    on = stage(pipeline={**QUICK, "checkpoint": str(disk.place / "state")}, inside=disk.inside)
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        disk.fill()
        before = failures(on)
        on.produce(1_000)
        on.until(lambda: failures(on) > before, "the full disk is noticed", 60, alive=False)
        time.sleep(4.0)
        disk.empty()
    on.goes_on()
    on.caught_up()
    on.finish()
