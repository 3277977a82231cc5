# SPDX-License-Identifier: Apache-2.0
"""Drills in which a process of the daemon dies or is told to stop."""

import os
import random
import signal
import time

import pytest

from ingest.errors import ExitCode
from tests.drills.daemon_parts import executors, java_processes

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

LONG = {"trigger": {"interval": "500ms", "max.records": 120_000}}


def test_driver_is_killed(stage):
    """With everything it started, and alone, at other moments of a batch."""
    on = stage()
    chance = random.Random(7)
    on.produce(1_000, snapshot=300)
    on.stream.corruption()
    on.start()
    on.caught_up()
    with on.producing(each=60, every_s=0.5), on.fault():
        for everything in (True, False):
            on.batch_begins()
            time.sleep(chance.random())
            if everything:
                on.running.kill_all()
            else:
                on.running.kill()
            on.start()
            on.until(lambda: on.log("batch", this_run=True), "the first batch of the next one")
    # who dies between a batch's rows and its compaction leaves the changelog to the next one
    on.stream.everything_again()
    on.caught_up()
    on.finish()


def test_jvm_is_killed(stage):
    on = stage()
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    on.produce(6_000)
    on.batch_begins()
    with on.fault():
        [jvm] = java_processes(on.running.process.pid)
        began = time.monotonic()
        os.kill(jvm, signal.SIGKILL)
        assert on.ended(150) in (ExitCode.UNEXPECTED, ExitCode.RETRY, ExitCode.UNAVAILABLE)
        on.evidence.notes["seconds until the process ended"] = round(time.monotonic() - began, 1)
        on.start()
    on.caught_up()
    on.finish()


def test_executor_is_killed_in_a_batch(stage):
    on = stage(pipeline=LONG, more={"spark": {"master": "local-cluster[2,1,1024]"}})
    on.produce(20_000, snapshot=300)
    on.start()
    on.caught_up()
    on.terminate()
    on.produce(20_000)
    on.start()
    on.batch_begins()
    with on.fault():
        before = executors(on.running.process.pid)
        assert len(before) == 2
        time.sleep(0.5)
        assert on.shows("batch_in_progress") == 1
        os.kill(before[0], signal.SIGKILL)
        on.until(lambda: on.shows("executors", state="dead") == 1, "the lost one is counted", 150)
    on.caught_up()
    on.until(lambda: len(executors(on.running.process.pid)) == 2, "another one in its place")
    assert on.running.alive
    on.finish()


def test_stopped_during_a_long_batch(stage):
    """The batch that runs is ended and recorded; no other begins; nothing is done again."""
    on = stage(pipeline=LONG)
    on.produce(500, snapshot=300)
    on.start()
    on.caught_up()
    on.terminate()
    on.produce(90_000)
    on.start()
    on.batch_begins()
    time.sleep(1.0)
    with on.fault():
        on.running.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert on.running.wait(240) == ExitCode.OK, on.running.log_tail()
        on.evidence.notes["seconds to drain"] = round(time.monotonic() - began, 1)
    after = [line["event"] for line in on.log(since_fault=True) if line.get("event")]
    assert after.index("drain") < after.index("batch"), "the batch was over before the signal"
    assert after.count("batch") == 1
    done = max(on.batches())
    users = on.commit_users()
    on.produce(500)
    on.start()
    on.caught_up()
    again = on.log("batch", this_run=True)
    assert {line["outcome"] for line in again} <= {"committed", "empty"}
    assert min(line["identifier"] for line in again) == done + 1
    assert on.commit_users() == users
    on.finish()
