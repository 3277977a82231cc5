# SPDX-License-Identifier: Apache-2.0
"""Drills with two daemons of one stream: one works, and no batch of the other is ever seen."""

import signal
import time

import pytest

from ingest.errors import ExitCode
from tests.sessions import signal_session

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

OWNER_TTL = "4s"


def test_second_daemon_is_started(stage, tmp_path):
    """With a checkpoint of its own, as in another pod."""
    on = stage(pipeline={"owner.ttl": OWNER_TTL})
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.producing(each=60, every_s=0.5), on.fault():
        with on.start_other("other", checkpoint=str(tmp_path / "other")) as other:
            began = time.monotonic()
            assert other.wait(150) == ExitCode.RETRY, other.log_tail()
            on.evidence.notes["seconds until the other ended"] = round(time.monotonic() - began, 1)
        on.batch_begins()
    on.caught_up()
    on.finish()


def test_paused_daemon_wakes_up_after_a_take_over(stage, tmp_path):
    """All its processes stop in the middle of a batch, and go on when another has taken over."""
    on = stage(pipeline={"owner.ttl": OWNER_TTL})
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    first = on.running
    on.produce(3_000)
    on.batch_begins()
    with on.fault():
        signal_session(first.process.pid, signal.SIGSTOP)
        other = on.start_other("other", checkpoint=str(tmp_path / "other"))
        on.becomes(other)
        on.produce(2_000)
        on.caught_up()
        signal_session(first.process.pid, signal.SIGCONT)
        on.produce(2_000)
        on.evidence.exits.append(first.wait(120))
        assert other.alive
    on.caught_up()
    on.finish()
