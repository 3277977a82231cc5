# SPDX-License-Identifier: Apache-2.0
"""A Spark that does not start is told as what it is, whoever says so."""

import os

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ingest.errors import exit_code_of
from ingest.session import SparkStartError, build_session


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

    def refuse(builder):
        raise error

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(SparkStartError, match="Spark did not start") as caught:
        build_session("x", master="local[1]", conf={}, parallelism=1)
    assert caught.value.detail
    assert exit_code_of(caught.value) == 69
