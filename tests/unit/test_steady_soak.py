# SPDX-License-Identifier: Apache-2.0
"""The judge of the soak at half load: a calm hour passes, and each thing that grows is told."""

import dataclasses

import pytest

from tests.soak.steady import EVERY_S, Sample, Steady, judge

MINUTES = 60
CALM = Sample(at=0, memory_mb=1500, lag=900, freshness_s=1.2, files=60, runs=4)


def judged(**grow):
    """What fails when figures grow by so much in every minute."""
    result = Steady(minutes=MINUTES, load_per_s=1_000, carried_per_s=990)
    samples = []
    for number in range(int(MINUTES * 60 / EVERY_S)):
        minute = number * EVERY_S / 60
        later = {name: getattr(CALM, name) + each * minute for name, each in grow.items()}
        samples.append(dataclasses.replace(CALM, at=number * EVERY_S, **later))
    judge(result, samples)
    return result.failures


def test_what_stays_where_it_is_passes():
    assert judged() == []
    assert judged(memory_mb=0.9) == []


@pytest.mark.parametrize(
    ("grow", "told"),
    [
        ({"memory_mb": 1.1}, "memory grows by 1.10 MiB/min"),
        ({"freshness_s": 0.1}, "freshness"),
        ({"lag": 300}, "lag"),
        ({"files": 2}, "files"),
        ({"runs": 0.2}, "runs"),
    ],
)
def test_what_grows_is_told(grow, told):
    (failure,) = judged(**grow)
    assert told in failure


def test_an_hour_that_was_not_looked_at_does_not_pass():
    result = Steady(minutes=MINUTES, load_per_s=1_000, carried_per_s=990)
    judge(result, [dataclasses.replace(CALM, at=60 * n) for n in range(MINUTES)])
    assert "only 55 samples of 1650" in result.failures[0]


def test_half_the_load_must_have_been_there():
    result = Steady(minutes=MINUTES, load_per_s=1_000, carried_per_s=500)
    judge(result, [dataclasses.replace(CALM, at=2 * n) for n in range(30 * MINUTES)])
    assert result.failures == ["only 500 events/s were made"]
