# SPDX-License-Identifier: Apache-2.0
"""The daemon's log as an on-call engineer gets it: one layout, whoever speaks, and one error."""

import json
import re

import pytest

from tests.e2e.daemon_process import DaemonProcess, eventually, files_config, kafka_config
from tests.free_ports import free_port
from tests.soak.soak import Load

FAILING = {"conf": {"spark.python.daemon.module": "tests.e2e.failing_worker"}}


def with_events(tmp_path, **sections):
    load = Load(tmp_path / "events", seed=7, per_file=0)
    for events in load.shop.insert("customers", 20, snapshot=True):
        load._write(events)
    return files_config(tmp_path, **sections)


def ended(config, timeout=300.0):
    daemon = DaemonProcess(config, "--once")
    return daemon, daemon.wait(timeout)


@pytest.mark.spark
def test_a_failing_task_is_one_error_with_its_cause(tmp_path):
    daemon, code = ended(with_events(tmp_path, log={"format": "json"}, spark=FAILING))
    lines = daemon.log_lines()
    assert code == 69, daemon.log_tail()

    (error,) = [line for line in lines if line["level"] in {"error", "critical"}]
    assert error["event"] == "fatal"
    assert error["msg"].startswith("the streaming query failed; ZeroDivisionError: made to fail")
    assert error["error"]["type"] == "QueryFailedError"
    assert "failing_worker.py" in error["error"]["stack"]
    traced = [line for line in lines if "Traceback" in json.dumps(line)]
    assert traced == [error]

    by_logger = {line["logger"]: line for line in lines}
    lost = by_logger["org.apache.spark.scheduler.TaskSetManager"]
    assert lost["level"] == "warning"
    assert re.search(r"Lost task .*: ZeroDivisionError: made to fail$", lost["msg"])
    assert "failing_worker.py:" in lost["at"]

    said = by_logger["tests.worker"]
    assert (said["level"], said["msg"], said["table"]) == (
        "warning",
        "about to fail",
        "shop.orders",
    )
    assert "something is old" in by_logger["py.warnings"]["msg"]
    assert "written past all logging" in by_logger["spark.stderr"]["msg"]


def test_what_kafkas_client_says_is_in_the_log(tmp_path):
    config = kafka_config(tmp_path, f"127.0.0.1:{free_port()}", ".*")
    with config.open("a") as file:
        file.write("log: {format: json}\n")
    with DaemonProcess(config) as daemon:
        eventually(
            lambda: "Connection refused" in daemon.log_path.read_text(),
            timeout=60,
            what="the client's word",
        )
        eventually(lambda: '"outage"' in daemon.log_path.read_text(), timeout=60, what="ours")
        daemon.terminate()
    lines = daemon.log_lines()
    assert {line["level"] for line in lines} <= {"info", "warning"}
    refused = next(line for line in lines if line["logger"] == "librdkafka")
    assert "Connection refused" in refused["msg"]
    outage = next(line for line in lines if line.get("event") == "outage")
    assert outage["msg"].startswith("kafka did not answer"), "the cause comes first"
