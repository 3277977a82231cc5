# SPDX-License-Identifier: Apache-2.0
"""A Spark that does not start is told as what it is, whoever says so."""

import os
import subprocess

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ingest.daemon.session import (
    JAVA_OPTIONS,
    SparkStartError,
    build_session,
    spark_properties,
)
from ingest.errors import exit_code_of
from storage.errors import InvalidOptionError


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("an error\n: java.lang.IllegalArgumentException: no such master"),
        PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
    ],
    ids=["the JVM says no", "there is no JVM"],
)
def test_a_session_that_cannot_be_had_is_one_kind_of_error(monkeypatch, error):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))

    def refuse(*_):
        raise error

    monkeypatch.setattr("ingest.daemon.session._start_jvm", lambda properties, **_: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(SparkStartError, match="Spark did not start") as caught:
        build_session("x", master="local[1]", conf={}, parallelism=1)
    assert caught.value.detail
    assert exit_code_of(caught.value) == 69


def test_the_last_words_of_a_jvm_that_does_not_start_are_in_the_log(monkeypatch, caplog):
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))

    def launched(conf, popen):
        command = ["sh", "-c", "echo 'Error: no such option' >&2; exit 1"]
        subprocess.run(command, check=False, **popen)
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("ingest.daemon.session.SparkContext._gateway", None)
    monkeypatch.setattr("ingest.daemon.session.launch_gateway", launched)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    with pytest.raises(SparkStartError, match="Spark did not start"):
        build_session("x", master="local[1]", conf={}, parallelism=1)
    (record,) = [one for one in caplog.records if one.name == "spark.stderr"]
    assert record.getMessage() == "Error: no such option"


def test_java_options_with_an_open_quote_are_a_mistake_in_the_settings():
    with pytest.raises(InvalidOptionError, match="malformed Java options") as caught:
        spark_properties("local[2]", {JAVA_OPTIONS: "-Dpassword='geheim"}, 2, {})
    assert caught.value.context["key"] == "spark.conf"
    assert "geheim" not in str(caught.value)
