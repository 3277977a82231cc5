# SPDX-License-Identifier: Apache-2.0
import io
import json
import logging
import sys
import threading
import warnings

import pytest

from ingest.logs import (
    CHILD_VARIABLE,
    SamplingHandler,
    child_settings,
    configure_child_logging,
    configure_logging,
    log_uncaught,
    set_levels,
)


@pytest.fixture
def logs():
    root = logging.getLogger()
    before, level, form = root.handlers[:], root.level, warnings.formatwarning
    stream = io.StringIO()

    def configure(**options):
        configure_logging(stream=stream, **options)
        return stream

    yield configure
    root.handlers[:] = before
    root.setLevel(level)
    set_levels(logging.getLevelName(level), {})
    logging.captureWarnings(capture=False)
    warnings.formatwarning = form


def test_lines_are_json_off_a_terminal(logs):
    stream = logs()
    logging.getLogger("ingest.pipeline.sink").info(
        "batch %s done", 7, extra={"event": "batch", "batch_id": 7, "duration_s": 1.5}
    )
    line = json.loads(stream.getvalue())
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "ingest.pipeline.sink",
        "event": "batch",
        "msg": "batch 7 done",
        "batch_id": 7,
        "duration_s": 1.5,
    }


def test_exceptions_become_an_error_object(logs):
    stream = logs()
    try:
        raise ValueError("no")
    except ValueError as error:
        logging.getLogger("x").error("failed", exc_info=error, extra={"error": "shadowed"})
    line = json.loads(stream.getvalue())
    assert line["error"]["type"] == "ValueError"
    assert line["error"]["message"] == "no"
    assert "Traceback" in line["error"]["stack"]


def test_error_values_without_a_trace_become_a_message(logs):
    stream = logs()
    logging.getLogger("x").warning("failed", extra={"error": OSError("gone")})
    assert json.loads(stream.getvalue())["error"] == {"message": "gone"}


def test_values_that_json_does_not_know_become_text(logs):
    stream = logs()
    logging.getLogger("x").warning("odd", extra={"path": {1, 2}.__class__})
    assert json.loads(stream.getvalue())["path"] == "<class 'set'>"


def test_text_form_is_one_readable_line(logs):
    stream = logs(form="text")
    logging.getLogger("ingest.daemon.daemon").warning(
        "query failed", extra={"event": "restart", "wait_s": 2.0, "reason": "no luck"}
    )
    line = stream.getvalue()
    assert 'WARNING daemon: query failed wait_s=2 reason="no luck"\n' in line
    assert "event" not in line


def test_level_is_honoured_and_handlers_are_replaced(logs):
    stream = logs(level="error")
    stream = logs(level="error")
    logging.getLogger("x").warning("quiet")
    logging.getLogger("x").error("loud")
    assert stream.getvalue().count("\n") == 1


def test_a_trace_is_indented_under_its_line(logs):
    stream = logs(form="text")
    try:
        raise ValueError("no\n\nmore")
    except ValueError as error:
        logging.getLogger("x").error("failed", exc_info=error)
    first, *others = stream.getvalue().splitlines()
    assert first.endswith("ERROR   x: failed")
    assert others
    assert all(line.startswith("    ") for line in others)


def test_warnings_of_python_are_one_line(logs):
    stream = logs()
    text = warnings.formatwarning(UserWarning("old"), UserWarning, "/x.py", 3)
    logging.getLogger("py.warnings").warning("%s", text)
    assert json.loads(stream.getvalue())["msg"] == "UserWarning: old (/x.py:3)"


def test_a_process_of_spark_logs_as_the_daemon_says(logs, monkeypatch, capsys):
    stream = logs()
    told = child_settings(level="warning", levels={"ingest.source": "info"}, repeats=2)
    monkeypatch.setenv(CHILD_VARIABLE, told)
    configure_child_logging()
    logging.getLogger("ingest.source.kafka").info("ours")
    assert "ours" in stream.getvalue(), "a process that has a log keeps it"

    logging.getLogger().handlers.clear()
    monkeypatch.delenv(CHILD_VARIABLE)
    configure_child_logging()
    assert logging.getLogger().handlers == [], "nobody asked"

    monkeypatch.setenv(CHILD_VARIABLE, told)
    configure_child_logging()
    for number in range(5):
        logging.getLogger("ingest.source.kafka").info("one %d", number)
        logging.getLogger("ingest.other").info("not asked for")
        logging.getLogger("ingest.other").warning("again %d", number, extra={"event": "e"})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["msg"] for line in lines if line["level"] == "info"] == [
        f"one {number}" for number in range(5)
    ]
    assert [line["msg"] for line in lines if line["level"] == "warning"] == ["again 0", "again 1"]


def test_a_failed_batch_is_not_told_by_py4j(logs):
    stream = logs()
    said = "There was an exception while executing the Python Proxy on the Python Side."
    logging.getLogger("py4j.clientserver").error(said)
    logging.getLogger("py4j.clientserver").error("Could not authenticate connection.")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == [
        "Could not authenticate connection."
    ]


def test_libraries_are_kept_quiet(logs):
    stream = logs(level="debug")
    logging.getLogger("py4j.clientserver").info("chatter")
    assert stream.getvalue() == ""


class Minute:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def sampled():
    stream, clock = io.StringIO(), Minute()
    logger = logging.getLogger("sampled")
    handler = SamplingHandler(stream, 3, clock)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel("DEBUG")
    yield logger, stream, clock
    logger.removeHandler(handler)
    logger.propagate = True


def test_the_same_warning_is_written_so_often_and_the_rest_counted(sampled):
    logger, stream, clock = sampled
    for number in range(100):
        clock.now = number / 2
        logger.warning("no answer %d", number, extra={"event": "away"})
    assert stream.getvalue().splitlines() == [f"WARNING no answer {n}" for n in range(3)]
    clock.now = 61
    logger.info("anything")
    assert stream.getvalue().splitlines()[3:] == [
        "WARNING the same line was left out 97 times",
        "INFO anything",
    ]
    logger.warning("no answer", extra={"event": "away"})
    assert stream.getvalue().endswith("WARNING no answer\n")


def test_what_is_about_other_tables_or_no_warning_is_not_the_same(sampled):
    logger, stream, _ = sampled
    for number in range(20):
        logger.warning("parked", extra={"event": "parked", "table": f"t{number}"})
        logger.info("batch")
        logger.critical("bug")
    assert len(stream.getvalue().splitlines()) == 60


def test_many_different_warnings_do_not_fill_memory(sampled):
    logger, _, _ = sampled
    for number in range(12_000):
        logger.warning("x", extra={"event": f"e{number}"})
    assert len(logger.handlers[0]._windows) <= 10_001


def test_levels_of_single_loggers_come_and_go(logs):
    logs(level="info", levels={"ingest.source": "debug", "py4j": "error"})
    assert logging.getLogger("ingest.source.kafka").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("ingest.state").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("py4j").isEnabledFor(logging.WARNING)
    set_levels("warning", {})
    assert not logging.getLogger("ingest.source.kafka").isEnabledFor(logging.INFO)
    assert logging.getLogger("py4j").level == logging.WARNING


def test_what_nothing_handles_is_in_the_log(logs, monkeypatch):
    stream = logs()
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    log_uncaught()

    def work():
        raise ValueError("of a thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    try:
        raise KeyError("of the main thread")
    except KeyError:
        sys.excepthook(*sys.exc_info())
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["level"], first["msg"]) == ("critical", "ValueError: of a thread")
    assert "in work" in first["error"]["stack"]
    assert second["msg"] == "KeyError: 'of the main thread'"
