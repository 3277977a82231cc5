# SPDX-License-Identifier: Apache-2.0
"""What a JVM writes to its pipe becomes records of our own log."""

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from ingest import logs
from ingest.daemon import jvm_log
from ingest.daemon.jvm_log import RAW_LOGGER, JvmLog, log_options
from ingest.daemon.session import spark_properties

CONFIGURATION = Path(jvm_log.__file__).with_name("log4j2.properties")
LOST = (
    "Lost task 0.0 in stage 3.0 (TID 7) (10.0.0.9 executor 1): org.apache.spark.api.python."
    "PythonException: [PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call "
    'last):\n  File "/app/map_side.py", line 5, in read\n    raise KeyError(1)\nKeyError: 1\n'
    " SQLSTATE: 38000\n\tat org.apache.spark.Runner.run(Runner.scala:10)\n"
)


@pytest.fixture
def jvm(caplog):
    """Writes as a JVM does; the records that came of it."""
    caplog.set_level("DEBUG")
    log = JvmLog()
    writer = os.dup(log.fileno)
    log.handed_over()

    def records(*pieces):
        for piece in pieces:
            os.write(writer, piece if isinstance(piece, bytes) else piece.encode())
        os.close(writer)
        log.join(10)
        return [record for record in caplog.records if record.name != "asyncio"]

    return records


def line(**fields):
    return json.dumps({"ts": "2026-01-02T03:04:05.678Z", "level": "warning", **fields}) + "\n"


def test_a_line_of_its_logging_keeps_time_level_logger_and_fields(jvm):
    error = {"type": "java.io.IOException", "message": "no", "stack": "java.io.IOException: no"}
    text = line(logger="org.apache.hadoop.fs.FS", msg="slow", event="spark", error=error)
    (record,) = jvm(text[:20], text[20:])
    assert (record.name, record.levelno, record.getMessage()) == (
        "org.apache.hadoop.fs.FS",
        logging.WARNING,
        "slow",
    )
    written = json.loads(logs.JsonFormatter().format(record))
    assert written["ts"] == "2026-01-02T03:04:05.678Z"
    assert written["error"] == error
    assert logs.TextFormatter().format(record).endswith("\n    java.io.IOException: no")


def test_a_failed_task_is_one_line_with_cause_and_place(jvm):
    (record,) = jvm(line(logger="org.apache.spark.scheduler.TaskSetManager", msg=LOST))
    assert record.getMessage() == (
        "Lost task 0.0 in stage 3.0 (TID 7) (10.0.0.9 executor 1): KeyError: 1"
    )
    assert record.at == "/app/map_side.py:5 read"


def test_what_no_logging_wrote_is_one_warning_with_its_cause(jvm):
    trace = 'Traceback (most recent call last):\n  File "w.py", line 1, in f\nOSError: gone\n'
    first, second = jvm(trace, line(logger="x", msg="then"), "")
    assert (first.name, first.levelno) == (RAW_LOGGER, logging.WARNING)
    assert first.getMessage() == "OSError: gone"
    assert first.error["stack"] == trace.strip()
    assert second.getMessage() == "then"


def test_odd_lines_are_kept_and_harm_nothing(jvm):
    found = jvm(
        '{"half of', " a line\n", '{"logger": 1}\n', "[1]\n", b"\xff\xfe\n", "no newline at the end"
    )
    text = "\n".join(str(vars(record).get("error", record.getMessage())) for record in found)
    for part in ("half of a line", '"logger"', "[1]", "no newline at the end"):
        assert part in text, part


def test_a_line_that_cannot_be_logged_does_not_stop_the_reading(jvm, monkeypatch):
    def broken(fields):
        raise OverflowError(fields)

    monkeypatch.setattr("ingest.daemon.jvm_log._moment", broken)
    pieces = [line(logger="x", msg=str(number)) for number in range(3)]
    found = jvm(*[piece for piece in pieces for _ in range(2)], *["\n" * 70_000] * 3)
    assert found
    assert {record.getMessage() for record in found} == {"JVM log lines are lost"}


def test_fields_of_other_processes_do_not_take_the_place_of_a_records_own(jvm):
    (record,) = jvm(line(logger="x", msg="100 %d", args=[1], name="y", levelno=5, exc_info=True))
    assert record.getMessage() == "100 %d"
    assert (record.name, record.levelno) == ("x", logging.WARNING)


def test_what_every_jvm_says_is_no_line(jvm):
    assert (
        jvm(
            "WARNING: Using incubator modules: jdk.incubator.vector\n",
            "Picked up JAVA_TOOL_OPTIONS: -Dx=y\nPicked up _JAVA_OPTIONS: -Da=b\n",
        )
        == []
    )


def test_levels_of_single_loggers_hold_for_the_jvms_too(jvm):
    logging.getLogger("org.example").setLevel("ERROR")
    try:
        (record,) = jvm(
            line(logger="org.example.A", msg="quiet"),
            line(logger="org.example.A", msg="loud", level="error"),
        )
    finally:
        logging.getLogger("org.example").setLevel(logging.NOTSET)
    assert record.getMessage() == "loud"


def test_drivers_and_executors_get_our_configuration(tmp_path):
    key = "spark.{}.extraJavaOptions".format
    found = spark_properties("local[2]", {}, 2, {})
    for role in ("driver", "executor"):
        assert f"-Dlog4j2.configurationFile={CONFIGURATION.as_uri()}" in found[key(role)]
    assert "-Dlakeward.log.task=Exception" in found[key("driver")]
    assert "lakeward.log.task" not in found[key("executor")]
    # who brings a configuration keeps it
    own = {key("driver"): "-Xss8m -Dlog4j2.configurationFile=/my/log4j2.xml"}
    assert spark_properties("local[2]", own, 2, {})[key("driver")] == own[key("driver")]
    assert log_options("-Da=b", {"SPARK_CONF_DIR": str(tmp_path)}, driver=True) != "-Da=b"
    (tmp_path / "log4j2.xml").write_text("")
    assert log_options("-Da=b", {"SPARK_CONF_DIR": str(tmp_path)}, driver=True) == "-Da=b"


PROGRAM = """
import org.apache.logging.log4j.*;
public class Speaks {
    public static void main(String[] arguments) {
        Exception broken = new IllegalStateException("broken", new RuntimeException("deep"));
        LogManager.getLogger("org.example.A").error("first line\\nsecond \\"line\\"", broken);
        LogManager.getLogger("org.example.A").warn("plain");
        LogManager.getLogger("org.example.A").info("chatter");
        LogManager.getLogger("org.apache.hadoop.util.NativeCodeLoader").warn("Unable to load");
        Logger conf = LogManager.getLogger("org.apache.spark.SparkConf");
        conf.warn("Note that spark.local.dir will be overridden by the value");
        conf.warn("The configuration key 'spark.old' has been deprecated");
        Logger tasks = LogManager.getLogger("org.apache.spark.scheduler.TaskSetManager");
        tasks.error("[batchId = 0] Task 0 in stage 0.0 failed 4 times; aborting job");
        tasks.warn("Lost task 1.3 in stage 0.0: TaskKilled (Stage cancelled: x\\ny)");
        tasks.warn("Lost task 0.0 in stage 0.0");
        Logger executor = LogManager.getLogger("org.apache.spark.executor.Executor");
        executor.error("Exception in task 0.0 in stage 0.0 (TID 0)", broken);
        executor.warn("Issue communicating with driver in heartbeater");
        LogManager.getLogger(
            "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"
        ).warn("Current batch is falling behind.");
        Logger dag = LogManager.getLogger("org.apache.spark.scheduler.DAGScheduler");
        dag.warn("Broadcasting large task binary with size 1200.0 KiB");
        dag.warn("Failed to cancel job group 47-50. Cannot find active jobs for it.");
        dag.warn("Creating new stage failed due to exception");
        LogManager.getLogger("org.apache.spark.sql.execution.streaming.runtime.Micro")
            .error("Query demo [id = 1] terminated with error", broken);
        LogManager.getLogger("org.apache.spark.sql.execution.streaming.runtime.Micro")
            .error("Could not write the log");
    }
}
"""


@pytest.mark.parametrize("driver", [True, False], ids=["driver", "executor"])
@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java")
def test_log4j_writes_our_layout_and_leaves_out_what_is_normal(tmp_path, driver):
    (tmp_path / "Speaks.java").write_text(PROGRAM)
    jars = ":".join(map(str, (Path(pyspark.__file__).parent / "jars").glob("log4j-*.jar")))
    options = log_options("-XX:TieredStopAtLevel=1", {}, driver=driver).split()
    command = ["java", *options, "-cp", jars, str(tmp_path / "Speaks.java")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "compiler" in done.stderr and done.returncode:
        pytest.skip("needs a Java with a compiler")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(each) for each in done.stderr.splitlines()]
    found = [(each["level"], each["logger"].rpartition(".")[2], each["msg"]) for each in lines]
    failed = ("error", "Executor", "Exception in task 0.0 in stage 0.0 (TID 0)")
    assert found == [
        ("error", "A", 'first line\nsecond "line"'),
        ("warning", "A", "plain"),
        ("warning", "SparkConf", "The configuration key 'spark.old' has been deprecated"),
        ("warning", "TaskSetManager", "Lost task 0.0 in stage 0.0"),
        *([] if driver else [failed]),
        ("warning", "Executor", "Issue communicating with driver in heartbeater"),
        ("warning", "DAGScheduler", "Creating new stage failed due to exception"),
        ("error", "Micro", "Could not write the log"),
    ]
    assert list(lines[0]) == ["ts", "level", "logger", "event", "msg", "error"]
    assert list(lines[1]) == ["ts", "level", "logger", "event", "msg"]
    error = lines[0]["error"]
    assert (error["type"], error["message"]) == ("java.lang.IllegalStateException", "broken")
    assert "Caused by: java.lang.RuntimeException: deep" in error["stack"]
