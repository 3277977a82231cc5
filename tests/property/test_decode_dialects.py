# SPDX-License-Identifier: Apache-2.0
"""Dialects: the column-wise path and the reference path give the same rows, bad records, counts."""

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.events import Toast
from ingest.decode.json import envelope_decoder
from tests.property.profiles import profile
from tests.property.test_decode import KEYS, TOKENS, TYPES
from tests.unit.ingest.debezium_events import batch, schema
from tests.unit.ingest.dialect_decoders import dialect_decoder

NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.integers(-300, 300).map(lambda number: f"{number:06d}"),
    st.decimals(-(10**9), 10**9, places=2).map(lambda number: f"{number:f}"),
    st.floats().map(repr),
    st.sampled_from(
        ["+1", " 1", "1 ", ".5", "-.5", "5.", "1_0", "0x1F", "-0", "-", "", "1e400", "١"]
    ),
    st.sampled_from(["true", "false", "True", "1", "0", "2", "1e2", "1E-3", "1e", "--1", "1.2.3"]),
)
MOMENTS = st.builds(
    lambda day, gap, clock: day + gap + clock,
    st.sampled_from(
        ["0000-00-00", "2020-02-29", "2021-02-29", "2020-00-01", "1994-09-30", "94-9-3"]
    ),
    st.sampled_from([":", " ", "T", ""]),
    st.sampled_from(
        ["", "00:00:00", "00:00:00.000", "23:59:59.123456", "15:33", "24:00:00", "0", "12:00:00Z"]
    ),
)
BYTES = st.one_of(
    st.binary(max_size=6).map(lambda data: data.decode("latin-1")),
    st.binary(max_size=6).map(lambda data: "0x" + data.hex()),
    st.binary(max_size=6).map(lambda data: data.hex().upper()),
    st.sampled_from(["0x", "0X0", "0x0x", "Ā", "x"]),
)
TEXTS = st.one_of(NUMBERS, MOMENTS, BYTES)
VALUES = st.one_of(
    TOKENS, TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)), TEXTS.map(json.dumps)
)
MODES = [
    {},
    {"binary_handling_mode": "latin1"},
    {"binary_handling_mode": "hex"},
    {"time_precision_mode": "adaptive"},
    {"time_precision_mode": "connect", "missing_columns": "unchanged"},
]
OPTIONS = st.builds(
    lambda mode, evolvable, toast: {**mode, "evolvable": evolvable, "toast": toast},
    st.sampled_from(MODES),
    st.booleans(),
    st.sampled_from(Toast),
)
EXTRAS = st.sampled_from(["", "", "", ',"z":null', ',"z":7', ',"v":"twice"', ',"__op":"d"', ",}"])
EXTRAS |= st.sampled_from([',"BI_id":5', ',"BI_id":1,"BI_v":1', ',"BI_v":1', ',"BI_w":"x"'])
DIALECT_NAMES = ["json", "upsert-json", "debezium-flat", "canal-json", "maxwell-json"]
DIALECT_NAMES += ["ogg-json", "aws-dms-json"]
CANAL_TYPES = [
    "null",
    '{"id":"bigint","v":"int"}',
    '{"id":"int"}',
    '{"id":"bigint","v":"decimal"}',
    '{"id":"bigint","v":"datetime"}',
    '{"id":"bigint","v":"varchar"}',
    """{"id":"bigint","v":"enum('a','1',',','7')"}""",
    """{"id":"bigint","v":"set('a','1','7')"}""",
]


@st.composite
def images(draw, value):
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from(["null", "{}", "[]", '"x"', '{"id":1}', "{"]))
    key, token, extra = draw(KEYS), draw(value), draw(EXTRAS)
    return f'{{"v":{token}}}' if kind == 1 else f'{{"id":{key},"v":{token}{extra}}}'


@st.composite
def messages(draw, name, value):
    new, old = draw(images(value)), draw(images(value))
    if name in ("json", "upsert-json", "debezium-flat"):
        return None if draw(st.integers(0, 8)) == 0 else encoded(new)
    op = draw(st.sampled_from("IUD"))
    if name == "canal-json":
        rows, olds = [new], [old]
        if draw(st.booleans()):
            rows.append(draw(images(value)))
            olds.append(draw(images(value)))
        types = draw(st.sampled_from(CANAL_TYPES))
        kind = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op]
        return encoded(
            f'{{"type":"{kind}","database":"d","table":"t","data":[{",".join(rows)}],'
            f'"old":[{",".join(olds)}],"mysqlType":{types}}}'
        )
    if name == "maxwell-json":
        kind = {"I": "insert", "U": "update", "D": "delete"}[op]
        return encoded(
            f'{{"type":"{kind}","database":"d","table":"t","data":{new},"old":{old},"ts":5}}'
        )
    if name == "aws-dms-json":
        kind = {"I": "insert", "U": "update", "D": "delete"}[op]
        return encoded(
            f'{{"data":{new},"before-image":{draw(st.sampled_from(["null", old]))},"metadata":'
            f'{{"operation":"{kind}","schema-name":"d","table-name":"t"}}}}'
        )
    return encoded(f'{{"table":"D.T","op_type":"{op}","before":{old},"after":{new}}}')


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


def decoded(name, table, options, values, calls):
    one = dialect_decoder(name, table, **options)
    keys = [b'{"id":5}' if index % 3 else None for index in range(len(values))]
    return [one.decode(batch(*values, keys=keys, topic="d.t")) for _ in range(calls)]


def assert_paths_agree(name, table, options, values):
    # a key that one record tells is known to the next call: without a table, one call only
    fast = decoded(name, table, options, values, 1 if table is None else 2)
    with mock.patch.object(
        envelope_decoder._Decoding,
        "_columns",
        lambda self, shape, places, events: list(range(len(events))),
    ):
        (slow,) = decoded(name, table, options, values, 1)
    for result in fast:
        assert [c.target for c in result.changes] == [c.target for c in slow.changes]
        for mine, other in zip(result.changes, slow.changes, strict=True):
            mine.rows.validate(full=True)
            assert mine.rows.equals(other.rows) or repr(mine.rows.to_pydict()) == repr(
                other.rows.to_pydict()
            )
        assert [(b.offset, b.error_class) for b in result.bad] == [
            (b.offset, b.error_class) for b in slow.bad
        ]
        assert result.counts == slow.counts
        assert result.deltas == slow.deltas
        records = sum(result.counts.values()) + len(result.bad)
        assert records == len(values)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@profile(short=4, long=50)
@given(data=st.data())
def test_values_of_every_type(type_, data):
    table = schema(("id", "BIGINT"), ("v", type_))
    name = data.draw(st.sampled_from(["upsert-json", "maxwell-json"]))
    options = data.draw(OPTIONS)
    values = data.draw(st.lists(messages(name, VALUES), min_size=1, max_size=12))
    assert_paths_agree(name, table, options, values)


@pytest.mark.parametrize("name", DIALECT_NAMES)
@profile(short=15, long=200)
@given(data=st.data())
def test_messages_of_every_dialect(name, data):
    key = () if name == "json" and data.draw(st.booleans()) else ("id",)
    type_ = data.draw(st.sampled_from(["BIGINT", "STRING", "DECIMAL(9,2)"]))
    table = data.draw(
        st.sampled_from([schema(("id", "BIGINT"), ("v", type_), key=key)] * 3 + [None])
    )
    options = data.draw(OPTIONS)
    values = data.draw(st.lists(messages(name, VALUES), min_size=1, max_size=12))
    assert_paths_agree(name, table, options, values)
