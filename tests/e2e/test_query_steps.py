# SPDX-License-Identifier: Apache-2.0
"""What the metrics count of a query's steps is what Spark itself reports of them, once."""

from collections import Counter

import pytest

from ingest.observe.metrics.instruments import Instruments
from ingest.observe.metrics.metric_table import METRICS
from ingest.observe.observe import RuntimeWatch

STEPS = "query_step_seconds_total"


class _Counters(Instruments):
    """Also sums up what is added."""

    def __init__(self):
        super().__init__(METRICS)
        self.added = Counter()

    def add(self, name, value=1.0, *labels):
        super().add(name, value, *labels)
        if name == STEPS:
            self.added[labels] += value


def _reported(query):
    spent = Counter()
    for progress in query.recentProgress:
        for step, ms in progress["durationMs"].items():
            spent[(step,)] += ms / 1000
    return spent


def test_steps_of_each_batch_are_counted_once(spark, tmp_path):
    counters = _Counters()
    watch = RuntimeWatch(counters, {})
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("n int").json(str(tmp_path / "in"))
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = query.start()
    try:
        watch.use_session(spark)
        watch.use_query(query)
        for number in range(3):
            (tmp_path / "in" / f"{number}.json").write_text('{"n": 1}')
            query.processAllAvailable()
            watch.collect()
            watch.collect()
    finally:
        query.stop()
    watch.forget_session()

    reported = _reported(query)
    assert reported[("addBatch",)] > 0
    assert dict(counters.added) == pytest.approx(dict(reported))
