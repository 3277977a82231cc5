# SPDX-License-Identifier: Apache-2.0
"""What every command has in common: suggestions, exclusive options, version, completion."""

import os
import subprocess
import sys

import pytest

from ingest.cli.main import main
from ingest.errors import SAME_STOP_S, ExitCode


def usage_error(capsys, *words):
    """Standard error of a wrong command line."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("tabel",), "table"),
        (("quarentine", "ls"), "quarantine"),
        (("table", "snapshot", "w", "t"), "snapshots"),
        (("table", "tag", "lst", "w", "t"), "ls"),
        (("status", "--jsno"), "--json"),
        (("compact", "--databse", "x"), "--database"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_right_one(capsys, words, meant):
    assert f"'{meant}'" in usage_error(capsys, *words)


def test_options_are_written_in_full(capsys):
    usage_error(capsys, "compact", "--ware", "/data", "shop.orders")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("table", "rollback", "w", "d.t"), "--snapshot, --tag, --timestamp"),
        (("table", "rollback", "w", "d.t", "--snapshot", "1", "--tag", "a"), "only one of"),
        (("table", "branch", "create", "w", "d.t", "b", "--snapshot", "1", "--tag", "a"), "--tag"),
        (("table", "analyze", "w", "d.t", "--columns", "a", "--all-columns"), "--all-columns"),
        (("stream", "rollback", "-c", "x"), "--to-batch, --to-time"),
        (("stream", "rollback", "-c", "x", "--to-batch", "0", "--to-time", "5"), "only one of"),
        (("verify", "d.t", "--warehouse", "w"), "--source, --against"),
        (("verify", "d.t", "--warehouse", "w", "--source", "a", "--against", "b"), "only one of"),
        (("compact", "--warehouse", "w", "d.t", "--full", "--minor"), "only one of"),
        (("compact", "--warehouse", "w", "-c", "x", "d.t"), "specify one of --warehouse"),
        (("orphans", "d.t"), "specify one of --warehouse"),
        (("expire", "--warehouse", "w"), "--including-tables"),
    ],
)
def test_options_that_exclude_or_need_each_other(capsys, words, named):
    assert named in usage_error(capsys, *words)


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        (("validate", "-c", "x", "--set", "a"), "expected KEY=VALUE"),
        (("table", "scan", "w", "d.t", "--timestamp", "noon"), "2024-01-31T12:00:00"),
        (("table", "scan", "w", "d.t", "--limit", "-1"), "not a non-negative integer"),
        (("table", "rescale", "w", "d.t", "--buckets", "0"), "greater than 0"),
        (("status", "--url", "x", "--max-freshness", "soon"), "such as"),
        (("pause", "-c", "x", "d.t", "--timeout", "long"), "seconds"),
        (("quarantine", "ls", "-c", "x", "--state", "old"), "replayed"),
        (("expire", "--warehouse", "w", "d.t", "--only", "rows"), "expected some of"),
    ],
)
def test_a_wrong_value_says_what_is_wanted(capsys, words, wish):
    assert wish in usage_error(capsys, *words)


def test_version_is_one_line(capsys):
    assert main(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "lakeward"
    assert version


def test_help_keeps_the_lines_of_examples(capsys):
    assert main(["table", "scan", "-h"]) == 0
    out = capsys.readouterr().out
    line = "  lakeward table scan /data/warehouse 'shop.orders$snapshots' --json\n"
    assert line in out
    assert "TABLE$files" in out


def complete(*words):
    """What the shell is offered for the last word."""
    done = subprocess.run(
        [sys.executable, "-m", "ingest.cli.main"],
        env={
            **os.environ,
            "_LAKEWARD_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("lakeward", *words)),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_the_shell_completes_commands_options_and_choices():
    assert complete("qu") == ["quarantine"]
    assert complete("table", "re") == ["rename", "rewrite-index", "rescale", "repair", "refresh"]
    assert complete("status", "--ma") == ["--max-freshness"]
    assert complete("quarantine", "ls", "--state", "") == ["new", "replayed"]


CLOSED = """\
import os, sys
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_no_error(tmp_path, unbuffered):
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, "-m", "ingest.cli.main", "table", "ls", str(tmp_path)],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_one_stop_that_is_signalled_twice_at_once_lets_the_work_end_and_a_second_one_does_not():
    program = f"""
import signal, time
from ingest.cli.parameters import StopSignal
with StopSignal("the work is") as stop:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)  # as `timeout` does, to a process and to its group
    assert stop.event.is_set()
    print("working", flush=True)
    time.sleep({2 * SAME_STOP_S})
    signal.raise_signal(signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (ExitCode.RETRY, "working\n"), done.stderr
    assert done.stderr.count("a second signal stops at once") == 1
