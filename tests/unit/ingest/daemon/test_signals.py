# SPDX-License-Identifier: Apache-2.0
"""Signals of a real process: heard also while its main thread is busy and deaf."""

import errno
import signal
import subprocess
import sys
import time

import pytest

from ingest.daemon.daemon import DaemonSignals
from ingest.errors import SAME_STOP_S

PROGRAM = """
import logging, sys, time, hashlib, threading
from ingest.daemon.daemon import DaemonSignals
logging.basicConfig(level="INFO", stream=sys.stderr)

def say(text):
    sys.stdout.write(text + chr(10)); sys.stdout.flush()

done = threading.Event()
def stop():
    say("stop")
    if "{mode}" == "ends":
        done.set()
def overdue():
    say("overdue")
    done.set()
with DaemonSignals(
    stop=stop, overdue=overdue, reload=lambda: say("reload"), grace_s=lambda: {grace}
):
    import signal as s
    s.signal(s.SIGINT, lambda *a: say("taken"))   # as Spark does
    say("ready")
    if "{mode}" == "deaf":
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2**30)    # no Python step for minutes
    while not done.wait(0.05):
        pass
say("ended")
"""


@pytest.fixture
def process():
    made = []

    def start(mode, grace=30.0):
        text = PROGRAM.replace("{mode}", mode).replace("{grace}", str(grace))
        child = subprocess.Popen(
            [sys.executable, "-c", text],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        made.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in made:
        child.kill()
        child.communicate()


def test_the_first_signal_drains(process):
    child = process("ends")
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert out == "stop\nended\n"
    assert child.returncode == 0
    assert "draining" in err


def test_the_second_signal_ends_at_once_also_a_deaf_process(process):
    child = process("deaf")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "stop\n"
    child.send_signal(signal.SIGTERM)  # of the same stop
    time.sleep(2 * SAME_STOP_S)
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == 75


def test_a_batch_without_end_is_given_up_after_the_grace_period(process):
    child = process("gives up", grace=0.3)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert out == "stop\noverdue\nended\n"
    assert "aborted" in err


def test_reload_and_stacks_leave_the_process_alone(process):
    child = process("ends")
    child.send_signal(signal.SIGHUP)
    assert child.stdout.readline() == "reload\n"
    for one in (signal.SIGUSR1, signal.SIGQUIT):
        child.send_signal(one)
        time.sleep(0.5)  # a second one that comes while stacks are written is left out
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=20)
    assert out == "stop\nended\n"
    assert err.count("Current thread") + err.count("Thread 0x") >= 4
    assert "most recent call first" in err


def test_signals_that_a_library_took_are_claimed_again():
    program = """
import signal, threading, time
from ingest.daemon.daemon import DaemonSignals
done = threading.Event()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
with DaemonSignals(stop=done.set, overdue=done.set, reload=done.set, grace_s=lambda: 30) as signals:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signals.claim()
    signal.raise_signal(signal.SIGINT)
    assert done.wait(10)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def signals_of(stop, ended):
    """Signals of this process; what would end it is noted."""
    return DaemonSignals(
        stop=stop,
        overdue=lambda: None,
        reload=lambda: None,
        grace_s=lambda: 30.0,
        end=ended.append,
    )


def test_a_stop_that_was_asked_for_otherwise_is_no_signal_that_a_second_one_could_follow():
    stopped, ended = [], []
    with signals_of(lambda: stopped.append(1), ended) as signals:
        for _ in range(3):
            signals.stop()
        signal.raise_signal(signal.SIGTERM)  # the platform ends the pod that drains
        _until(lambda: signals._signalled_s is not None)
        assert (stopped, ended) == ([1], [])
        time.sleep(SAME_STOP_S)
        signal.raise_signal(signal.SIGTERM)
        _until(lambda: ended)
        assert (stopped, ended) == ([1], [75])


def test_a_stop_that_meets_a_full_disk_leaves_the_second_signal_heard():
    ended = []

    def stop():
        raise OSError(errno.ENOSPC, "No space left on device")

    with signals_of(stop, ended) as signals:
        signal.raise_signal(signal.SIGTERM)
        _until(lambda: signals._signalled_s is not None)
        time.sleep(SAME_STOP_S)
        signal.raise_signal(signal.SIGTERM)
        _until(lambda: ended)
    assert ended == [75]


def _until(done):
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
