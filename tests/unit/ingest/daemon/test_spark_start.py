# SPDX-License-Identifier: Apache-2.0
"""Spark starts in a thread; what goes wrong there is raised where its session is needed."""

import dataclasses
import subprocess
import sys
import threading

import pytest

from ingest.daemon import spark_start
from ingest.daemon.session import SparkStartError
from ingest.daemon.spark_start import SparkStart
from tests.unit.ingest.lake_settings import lake_settings


@pytest.fixture
def loads(monkeypatch):
    """Settings whose stream was loaded."""
    loaded = []

    def load(spark, settings):
        loaded.append(settings)
        return object()

    monkeypatch.setattr(spark_start, "_load_stream", load)
    monkeypatch.setattr(spark_start, "_warm_up", lambda spark: None)
    return loaded


def test_the_session_is_waited_for_and_its_stream_is_loaded_once(tmp_path, monkeypatch, loads):
    go_on, session = threading.Event(), object()

    def open_session(settings):
        assert go_on.wait(30)
        return session

    monkeypatch.setattr(spark_start, "_open_session", open_session)
    settings = lake_settings(tmp_path)
    start = SparkStart(settings)
    go_on.set()
    assert start.session() is session
    assert start.stream(settings) is start.stream(settings)
    assert loads == [settings]


def test_settings_that_were_read_again_have_a_stream_of_their_own(tmp_path, monkeypatch, loads):
    monkeypatch.setattr(spark_start, "_open_session", lambda settings: object())
    settings = lake_settings(tmp_path)
    start = SparkStart(settings)
    before = start.stream(settings)
    pipeline = dataclasses.replace(settings.pipeline, trigger_interval_s=7.0)
    assert start.stream(dataclasses.replace(settings, pipeline=pipeline)) is not before


def test_a_spark_that_does_not_start_is_an_error_of_who_needs_it(tmp_path, monkeypatch):
    def fail(settings):
        raise SparkStartError("Spark did not start")

    monkeypatch.setattr(spark_start, "_open_session", fail)
    start = SparkStart(lake_settings(tmp_path))
    with pytest.raises(SparkStartError):
        start.session()


def test_a_stop_ends_the_wait_for_the_session(tmp_path, monkeypatch, loads):
    go_on, stop = threading.Event(), threading.Event()
    monkeypatch.setattr(spark_start, "_open_session", lambda settings: go_on.wait(30))
    start = SparkStart(lake_settings(tmp_path))
    stop.set()
    assert start.session(stop) is None
    go_on.set()
    assert start.session(threading.Event()) is True


def test_a_session_that_is_stopped_meanwhile_does_not_fail_the_warm_up():
    spark_start._warm_up(None)  # pyspark's own attributes are None then


def test_little_is_imported_before_the_jvm_is_forked_but_what_registers_for_forks():
    names = ("concurrent.futures.thread", "pyarrow", "ingest.pipeline.sink")
    code = f"import sys, ingest.daemon.spark_start; print(*(n in sys.modules for n in {names}))"
    found = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert found.split() == ["True", "False", "False"]
