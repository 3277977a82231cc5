# SPDX-License-Identifier: Apache-2.0
"""What tasks asked of store and registry reaches the driver, whatever becomes of their work."""

import pickle

import pytest

from ingest.config.source_settings import SchemaRegistrySettings
from ingest.decode.registry import REGISTRY_CALLS, SchemaRegistry
from ingest.pipeline.batch_report import JobOutcome, task_use, with_rerun, without_tables
from ingest.pipeline.exchange import BucketResult, RangeReport, TaskUse
from storage.errors import RetryableError
from storage.io.counting import CallCounts, CountingFileIO
from storage.io.local import LocalFileIO


def puts(count):
    counts = CallCounts()
    for _ in range(count):
        counts.add("put", "ok", 0.01, 10)
    return TaskUse(store=counts.figures())


def result(table, use=None):
    return BucketResult(table=table, messages=(), rows={}, sorted_runs=0, seconds=0.0, use=use)


def test_a_task_tells_what_it_did_and_not_what_its_process_did_before(tmp_path):
    store = CountingFileIO(LocalFileIO(durable=False))
    store.write_bytes(f"{tmp_path}/a", b"1")
    begun = TaskUse.now()
    store.write_bytes(f"{tmp_path}/b", b"22")
    told = pickle.loads(pickle.dumps(begun.until_now()))
    assert told.store.calls == {("put", "ok"): 1}
    assert told.store.sizes == {"put": 2}


def test_work_that_is_thrown_away_was_asked_for_all_the_same():
    report = RangeReport(use=puts(1))
    results = (result("a.x", puts(2)), result("a.y"))
    first = JobOutcome(RangeReport.of([report]), results, task_use([report], results))
    assert first.use.store.calls == {("put", "ok"): 3}
    assert without_tables(first, {"a.x"}).use.store.calls == {("put", "ok"): 3}
    again = JobOutcome(RangeReport.of([RangeReport()]), (result("a.x"),), puts(4))
    assert with_rerun(first, again, {"a.x"}).use.store.calls == {("put", "ok"): 7}


def test_requests_to_a_registry_that_does_not_answer_are_counted():
    before = REGISTRY_CALLS.figures()
    settings = SchemaRegistrySettings(urls=("http://127.0.0.1:9",), retry_for_s=0.0)
    with pytest.raises(RetryableError):
        SchemaRegistry(settings).schema(1)
    assert REGISTRY_CALLS.figures().since(before).calls == {("get", "retry"): 1}
