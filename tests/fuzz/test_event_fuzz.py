# SPDX-License-Identifier: Apache-2.0
"""Odd events of every format: no batch fails, no record is lost, both decoding paths agree."""

import random

import pytest

from tests.fuzz.event_campaign import EventCampaign
from tests.fuzz.event_mutation import Seed, mutated
from tests.fuzz.event_subjects import SUBJECTS, subject_of

SHORT, LONG = 1_200, 20_000
SEED = 20_261_122


def assert_faultless(name, folder, count):
    campaign = EventCampaign(subject_of(name, folder / "subject"), SEED)
    campaign.run(count)
    assert not campaign.faults, "\n".join(map(str, campaign.faults))
    assert campaign.events >= count
    rows = sum(n for kind, n in campaign.ends.items() if kind.startswith("op."))
    bad = sum(n for kind, n in campaign.ends.items() if kind.startswith("bad "))
    assert rows > count // 20
    assert bad > count // 20  # oddness is seen


@pytest.mark.parametrize("name", SUBJECTS)
def test_odd_events_end_no_batch_and_are_read_alike(name, tmp_path):
    assert_faultless(name, tmp_path, SHORT)


@pytest.mark.full
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_odd_events_end_no_batch_and_are_read_alike(name, tmp_path):
    assert_faultless(name, tmp_path, LONG)


def test_a_seed_makes_the_same_events_again_and_leaves_few_as_they_were():
    seed = Seed.of("t", b'{"id":1}', b'{"before":null,"after":{"id":1,"v":[1,{"a":"b"}]},"op":"c"}')
    made = [[mutated(random.Random(n), seed, [seed]) for n in range(300)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 200
