# SPDX-License-Identifier: Apache-2.0
"""Odd events of every format: no batch fails, no record is lost, both decoding paths agree."""

import base64
import random

import pytest

from tests.fuzz.event_campaign import DecoderCampaign, EventCampaign
from tests.fuzz.event_mutation import Seed, mutated
from tests.fuzz.event_streams import StreamCampaign
from tests.fuzz.event_subjects import DECODED, SUBJECTS, subject_of

SHORT, LONG = 800, 20_000
WALKED = (
    *("debezium-json block postgres", "debezium-flat", "canal-json", "maxwell-json", "ogg-json"),
    *("json", "upsert-json"),
)
"""Of whose odd events the compiled scan decodes some, however few there are."""
PIPELINES = [
    name for name in SUBJECTS if name not in DECODED or name in ("ogg-json", "debezium-json fail")
]
SEED = 20_261_122

_DIGITS = base64.b64encode((7 * 10**6_500).to_bytes(2_800, "big"))
_ROW = b'"source":{"db":"shop","schema":"public","table":"%s"},"op":"u"}'
_MARIA = b'"source":{"db":"shop","table":"%s"},"op":"u"}'
_BLOCK = (
    b'{"schema":{"type":"struct","fields":[{"type":"struct","field":"after","fields":['
    b'{"type":"int32","field":"id"},{"type":"bytes","field":"nine","name":'
    b'"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"%s","connect.decimal.precision":"5"}}]}]},"payload":'
)


def _blocked(scale, value):
    row = b'{"after":{"id":1,"nine":"%s"},' % value + _ROW % b"bit_strings"
    return _BLOCK % scale + row + b"}"


KEPT = [
    ("debezium-flat", "flat.mariadb.odd_times", [b'{"__db":"\xf2ariadb"}']),
    (
        "debezium-flat",
        "flat.mariadb.odd_times",
        [b'{"id":1,"__source_ts_ms":' + b"9" * 5_000 + b"}"],
    ),
    ("json", "mariadb.keyed", [b'{"region":"","id":4,"big":1,"amount":"null"}']),
    (
        "canal-json",
        "canal",
        [
            b'{"data":[{"id":1,"one":-0}],"database":"postgres","table":"bit_strings","type":"INSERT"}'
        ],
    ),
    (  # a row may have a column by its own name that another row called otherwise
        "ogg-json",
        "ogg",
        [
            b'{"table":"postgres.bit_strings","op_type":"U","after":{"id":1,"FIVE":5}}',
            b'{"table":"postgres.bit_strings","op_type":"U","after":{"id":2,"five":null}}',
        ],
    ),
    (  # an update that tells a part of the old key
        "debezium-json mariadb",
        "maria-json.shop.keyed",
        [b'{"before":{"id":25769803776},"after":{"region":"","id":3,"big":1},' + _MARIA % b"keyed"],
    ),
    (  # what an earlier event was called otherwise is not new
        "debezium-json postgres",
        "pg-json.public.ranges",
        [
            b'{"after":{"id":1,"new":1},' + _ROW % b"ranges",
            b'{"after":{"id":1,"TZ":"x"},' + _ROW % b"ranges",
            b'{"after":{"id":2,"tz":"y"},' + _ROW % b"ranges",
        ],
    ),
    (  # the placeholder among other values of a list is a value
        "debezium-json postgres",
        "pg-json.public.arrays",
        [b'{"after":{"id":1,"texts":["a","__debezium_unavailable_value"]},' + _ROW % b"arrays"],
    ),
    (  # another spelling of a column is new only beside it
        "json",
        "postgres.ranges",
        [b'{"id":1,"ID":7}', b'{"ID":2}'],
    ),
    (  # what a key has beside the key columns is no column
        "upsert-json",
        "postgres.ranges",
        [(b'{"id":1}', b'{"id":1,"id ":2}'), (b'{"id ":4}', None)],
    ),
    (  # a row without key is bad, whatever columns another one of its event has
        "canal-json",
        "canal",
        [
            b'{"data":[%s{"id":"4","op":"x"}],"database":"postgres","table":"texts","type":"INSERT"}'
            % first
            for first in (b"", b'{"id":null},')
        ],
    ),
    (  # the key's column has the type of the row's values, if it has any
        "debezium-json mariadb",
        "maria-json.shop.new",
        [
            (b'{"id":4}', b'{"after":{"id":4},' + _MARIA % b"new"),
            (b'{"id":3.4e38}', b'{"after":{"id":5},' + _MARIA % b"new"),
        ],
    ),
    (  # a new column that holds a number need not be wider
        "upsert-json",
        "postgres.ranges",
        [b'{"id":1,"new":4.9E-324}', b'{"id":1,"new":-1000000000000000000000}'],
    ),
    *(
        (
            "debezium-json block postgres",
            "pg-json-schema.public.bit_strings",
            [_blocked(scale, value)],
        )
        for scale in (b"2047", b"99", b"-5", b"9" * 5_000, b"\xc2\xb2", b"--1")
        for value in (_DIGITS, b"")
    ),
]
"""(subject, topic, records) of the smallest events that once ended a batch or were read twofold.

A record is (key, value), or a value with a key of its own.
"""


def assert_faultless(name, folder, count):
    campaign = EventCampaign(subject_of(name, folder / "subject"), SEED)
    campaign.run(count)
    assert not campaign.faults, "\n".join(map(str, campaign.faults))
    assert campaign.events >= count
    rows = sum(n for kind, n in campaign.ends.items() if kind.startswith("op."))
    bad = sum(n for kind, n in campaign.ends.items() if kind.startswith("bad "))
    assert rows > count // 20
    assert bad > count // 20  # oddness is seen
    assert campaign.walked or name not in WALKED


@pytest.mark.parametrize("name", sorted({name for name, _, _ in KEPT}))
def test_events_that_once_showed_a_fault(name, tmp_path):
    campaign = EventCampaign(subject_of(name, tmp_path / "subject"), SEED)
    for topic, records in [each[1:] for each in KEPT if each[0] == name]:
        campaign.judge(topic, [r if isinstance(r, tuple) else (b'{"id":1}', r) for r in records])
    assert not campaign.faults, "\n".join(map(str, campaign.faults))


@pytest.mark.parametrize("name", ["debezium-json block postgres", "upsert-avro"])
def test_odd_events_end_no_batch_of_a_whole_stream(name, tmp_path):
    campaign = StreamCampaign(subject_of(name, tmp_path / "subject"), SEED)
    campaign.run(120)
    assert not campaign.faults, "\n".join(map(str, campaign.faults))
    assert sum(campaign.ends.values()) >= 100


@pytest.mark.full
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_odd_events_end_no_batch_of_a_whole_stream(name, tmp_path):
    campaign = StreamCampaign(subject_of(name, tmp_path / "subject"), SEED)
    campaign.run(2_000)
    assert not campaign.faults, "\n".join(map(str, campaign.faults))


@pytest.mark.parametrize("name", PIPELINES)
def test_odd_events_end_no_batch_and_are_read_alike(name, tmp_path):
    assert_faultless(name, tmp_path, SHORT)


@pytest.mark.full
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_odd_events_end_no_batch_and_are_read_alike(name, tmp_path):
    assert_faultless(name, tmp_path, LONG)


@pytest.mark.parametrize("name", DECODED)
def test_mutated_events_are_walked_and_read_one_by_one_alike(name, tmp_path):
    campaign = DecoderCampaign(subject_of(name, tmp_path / "subject"), SEED, size=600)
    campaign.run(1_700)
    assert not campaign.faults, "\n".join(map(str, campaign.faults))
    assert campaign.walked > 150
    assert sum(n for kind, n in campaign.ends.items() if kind.startswith("bad ")) > 150


def test_a_seed_makes_the_same_events_again_and_leaves_few_as_they_were():
    seed = Seed.of("t", b'{"id":1}', b'{"before":null,"after":{"id":1,"v":[1,{"a":"b"}]},"op":"c"}')
    made = [[mutated(random.Random(n), seed, [seed]) for n in range(300)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 200
