# SPDX-License-Identifier: Apache-2.0
"""Drills in which the disk is full; nothing is torn, and it goes on when there is room again."""

import contextlib

import pytest

from storage.catalog.catalog import FileSystemCatalog
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
    return len(on.log("restart")) + len(on.log("outage")) + len(on.log("fatal"))


def seen_to_be_full(on):
    """The metric has it, too."""
    on.until(
        lambda: any(
            free < 0.05 * size
            for free, size in zip(
                on.watch.samples[-1].series("disk_free_bytes"),
                on.watch.samples[-1].series("disk_size_bytes"),
                strict=True,
            )
        ),
        "the metric shows the full disk",
        60,
        alive=False,
    )


def filled_and_emptied(on, disk, changes):
    """The disk is full while so many changes come, until that is noticed more than once."""
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        disk.fill()
        before = failures(on)
        on.produce(changes)
        on.until(lambda: failures(on) > before + 1, "the full disk is noticed", 150)
        on.lag_is_seen()
        seen_to_be_full(on)
    disk.empty()
    on.caught_up()
    on.finish()


def test_disk_is_full_while_files_are_written(stage, disk):
    on = on_disk(stage, disk)
    filled_and_emptied(on, disk, 4_000)


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
            disk.empty()
            on.caught_up()
            disk.fill(leave=pages * PAGE)
            before = failures(on)
            on.stream.changes(40)
            with contextlib.suppress(AssertionError):
                on.until(lambda b=before: failures(on) > b, "failure", 20, alive=False)
            reached |= {line["error"]["message"] for line in on.log("outage")}
        seen_to_be_full(on)
    disk.empty()
    on.caught_up()
    on.evidence.notes["different failures"] = len(reached)
    # a compaction that failed after its batch's rows were committed takes its changelog along:
    # it comes with the next compaction of the bucket
    on.stream.everything_again()
    on.caught_up()
    assert any("manifest" in message or "snapshot" in message for message in reached), reached
    on.finish()


def test_disk_of_the_checkpoint_is_full(stage, disk):
    on = stage(pipeline={**QUICK, "checkpoint": str(disk.place / "state")}, inside=disk.inside)
    filled_and_emptied(on, disk, 1_000)
