# SPDX-License-Identifier: Apache-2.0
"""Aggregate functions give what applying the rows of a key one after the other gives."""

import decimal
import math
import struct

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from storage.errors import CorruptDataError, InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, arrow_type, parse_type
from storage.lsm.merge_functions.aggregators import aggregator_for
from storage.lsm.merge_functions.segments import Op, Segments

D = decimal.Decimal
NAN = math.nan
CONTEXT = decimal.Context(prec=200)
SETTINGS = settings(derandomize=True, max_examples=15, deadline=None)
SCHEMA = TableSchema(id=0, fields=(), highest_field_id=0)


# ------------------------------------------------------------------- running the function


def function(name, type_text, **options):
    field = DataField(id=0, name="v", type=parse_type(type_text))
    texts = {f"fields.v.{key.replace('_', '-')}": value for key, value in options.items()}
    return aggregator_for(name, field, texts, SCHEMA)


def reduce(name, type_text, groups, **options):
    """Results of groups of rows: a row is its value, or ("-", value) when it takes back."""
    kind = arrow_type(parse_type(type_text))
    rows = [row for group in groups for row in group]
    taken = np.array([isinstance(row, tuple) and row[:1] == ("-",) for row in rows], dtype=bool)
    values = [row[1] if back else row for row, back in zip(rows, taken, strict=True)]
    column = pa.array([None, *values, None], kind).slice(1, len(values))
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])]).astype(np.int64)
    ops = np.where(taken, np.int8(Op.RETRACT), np.int8(Op.ADD))
    segments = Segments(starts, len(rows), ops if taken.any() else None)
    result = function(name, type_text, **options).reduce(column, segments)
    result.validate(full=not pa.types.is_decimal(kind))
    assert result.type == kind
    assert len(result) == len(groups)
    return result.to_pylist()


def one(name, type_text, *rows, **options):
    (result,) = reduce(name, type_text, [rows], **options)
    return result


# --------------------------------------------------- the model: one row after the other


class Refused(Exception):
    """The model has no result."""


def folded(add, back, group):
    total = None
    for row in group:
        if isinstance(row, tuple) and row[:1] == ("-",):
            total = back(total, row[1])
        else:
            total = add(total, row)
    return total


def either(step):
    def add(total, value):
        if total is None or value is None:
            return value if total is None else total
        return step(total, value)

    return add


def within(bits):
    def check(number):
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise Refused
        return number

    return check


def sum_model(check):
    def back(total, value):
        if value is None:
            return total
        return check(-value) if total is None else check(total - value)

    return either(lambda total, value: check(total + value)), back


def product_model(check, divide):
    def back(total, value):
        return total if total is None or value is None else check(divide(total, value))

    return either(lambda total, value: check(total * value)), back


def truncated(number, divisor):
    if divisor == 0:
        raise Refused
    return int(D(number) / D(divisor)) if abs(number) < 2**50 else _big_truncated(number, divisor)


def _big_truncated(number, divisor):
    whole = abs(number) // abs(divisor)
    return whole if (number < 0) == (divisor < 0) else -whole


def rounded(precision, scale):
    def check(number):
        number = number.quantize(D(1).scaleb(-scale), decimal.ROUND_HALF_UP, CONTEXT)
        return None if abs(number.scaleb(scale, CONTEXT)) >= 10**precision else number

    return check


def exact(number, divisor):
    if divisor == 0:
        raise Refused
    context = decimal.Context(prec=400, traps=[decimal.Inexact])
    try:
        return context.divide(number, divisor)
    except decimal.Inexact:
        raise Refused from None


def java_key(value):
    """Orders floats as Java compares them."""
    bits = struct.unpack(">q", struct.pack(">d", NAN if math.isnan(value) else value))[0]
    return bits if bits >= 0 else bits ^ (2**63 - 1)


def check_against(model, name, type_text, groups, key=lambda value: value, **options):
    """Compare with the model, group by group; a model that refuses refuses the whole column."""
    add, back = model
    try:
        expected = [folded(add, back, group) for group in groups]
    except Refused:
        with pytest.raises(InvalidRequestError) as caught:
            reduce(name, type_text, groups, **options)
        with pytest.raises(Refused):
            folded(add, back, groups[caught.value.context["segment"]])
        return
    found = reduce(name, type_text, groups, **options)
    assert [value if value is None else key(value) for value in found] == [
        value if value is None else key(value) for value in expected
    ]


def rows_of(values, *, backs=True):
    values = st.none() | values
    row = values | st.tuples(st.just("-"), values) if backs else values
    return st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=4)


def edge_integers(bits):
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.sampled_from([0, 1, -1, 2, -3, most, least, least + 1, most // 2]) | st.integers(
        least // 3, most // 3
    )


# ------------------------------------------------------------------------------- numbers

BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}


@pytest.mark.parametrize("type_text", BITS)
@given(data=st.data())
@SETTINGS
def test_sums_of_whole_numbers(type_text, data):
    bits = BITS[type_text]
    values = edge_integers(bits) | st.integers(-9, 9)
    check_against(
        sum_model(within(bits)), "sum", type_text, data.draw(rows_of(st.integers(-9, 9) | values))
    )


@pytest.mark.parametrize("type_text", BITS)
@given(data=st.data())
@SETTINGS
def test_products_of_whole_numbers(type_text, data):
    bits = BITS[type_text]
    groups = data.draw(rows_of(st.integers(-4, 4) | edge_integers(bits)))
    check_against(product_model(within(bits), truncated), "product", type_text, groups)


@pytest.mark.parametrize(("precision", "scale"), [(20, 2), (38, 0), (38, 10), (19, 19)])
@given(data=st.data())
@SETTINGS
def test_sums_of_wide_decimals_are_null_when_they_need_more_digits(precision, scale, data):
    unscaled = st.sampled_from([10**precision - 1, 1 - 10**precision, 1, -1, 0, 2**64]) | (
        st.integers(-(10**precision) // 2, 10**precision // 2)
    )
    values = unscaled.filter(lambda number: abs(number) < 10**precision).map(
        lambda number: D(number).scaleb(-scale, CONTEXT)
    )
    with decimal.localcontext(CONTEXT):
        groups = data.draw(rows_of(values))
        model = sum_model(rounded(precision, scale))
        check_against(model, "sum", f"DECIMAL({precision}, {scale})", groups)


@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (18, 4), (38, 10), (38, 38), (9, 0)])
@given(data=st.data())
@SETTINGS
def test_products_of_decimals_are_rounded_half_up(precision, scale, data):
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-2000, 2000)
    values = unscaled.filter(lambda number: abs(number) < 10**precision).map(
        lambda number: D(number).scaleb(-scale, CONTEXT)
    )
    with decimal.localcontext(CONTEXT):
        groups = data.draw(rows_of(values))
        model = product_model(rounded(precision, scale), exact)
        check_against(model, "product", f"DECIMAL({precision}, {scale})", groups)


def test_narrow_decimals_are_added_in_64_bits():
    nines = D("999.99")
    assert one("sum", "DECIMAL(5, 2)", nines, nines, ("-", nines)) == nines
    assert one("sum", "DECIMAL(18, 0)", *[D(10**18 - 1)] * 9) == D(9 * (10**18 - 1))
    assert one("sum", "DECIMAL(18, 0)", *[D(10**18 - 1)] * 10, D(5)) == D(5)  # null, then 5


@pytest.mark.parametrize(("type_text", "dtype"), [("FLOAT", np.float32), ("DOUBLE", np.float64)])
@pytest.mark.parametrize("name", ["sum", "product"])
@given(data=st.data())
@SETTINGS
def test_floats_are_folded_in_order_in_their_own_precision(type_text, dtype, name, data):
    width = 32 if dtype is np.float32 else 64
    groups = data.draw(rows_of(st.floats(width=width)))
    with np.errstate(all="ignore"):
        if name == "sum":
            add, back = sum_model(dtype)
        else:
            add, back = product_model(dtype, np.divide)
        model = (
            lambda total, value: add(total, None if value is None else dtype(value)),
            lambda total, value: back(total, None if value is None else dtype(value)),
        )
        check_against(model, name, type_text, groups, key=lambda value: repr(float(value)))


@pytest.mark.parametrize("name", ["sum", "product"])
@pytest.mark.parametrize("type_text", ["BIGINT", "DOUBLE", "FLOAT"])
def test_long_segments_are_folded_in_order_too(name, type_text):
    random = np.random.default_rng(5)
    size, dtype = 700, {"BIGINT": np.int64, "DOUBLE": np.float64, "FLOAT": np.float32}[type_text]
    if type_text == "BIGINT":
        values = random.choice([-1, 1] if name == "product" else [-5, 3, 10**12], size)
    else:
        values = random.normal(1.0, 0.01, size).astype(dtype)
    long = [
        ("-", v) if back else v for v, back in zip(values, random.random(size) < 0.3, strict=True)
    ]
    groups = [[values[0], values[1]], long, [values[2]], long[1:400]]
    with np.errstate(all="ignore"):
        model = sum_model(dtype) if name == "sum" else product_model(dtype, np.divide)
        check_against(model, name, type_text, groups, key=float)


@pytest.mark.parametrize(
    ("name", "type_text", "rows", "problem"),
    [
        ("sum", "TINYINT", [100, 100], "byte overflow: 100 + 100"),
        ("sum", "SMALLINT", [-32768, ("-", 1)], "short overflow: -32768 - 1"),
        ("sum", "INT", [2**31 - 1, 1, ("-", 5)], f"int overflow: {2**31 - 1} + 1"),
        ("sum", "BIGINT", [-(2**63), -1], f"long overflow: {-(2**63)} + -1"),
        ("sum", "BIGINT", [("-", -(2**63)), None], f"long overflow: -{-(2**63)}"),
        ("product", "TINYINT", [64, 2], "byte overflow: 64 * 2"),
        ("product", "BIGINT", [2**62, 2], f"long overflow: {2**62} * 2"),
        ("product", "INT", [-(2**31), ("-", -1)], f"int overflow: {-(2**31)} / -1"),
        ("product", "INT", [5, ("-", 0)], "/ by zero"),
        ("product", "DECIMAL(5, 2)", [D(1), ("-", D(3))], "Non-terminating decimal expansion"),
    ],
)
def test_numbers_without_a_result_name_the_step(name, type_text, rows, problem):
    with pytest.raises(InvalidRequestError) as caught:
        reduce(name, type_text, [[None, None], [None], rows, [None]])
    assert problem in str(caught.value)
    assert caught.value.context["segment"] == 2
    assert caught.value.context["field"] == "v"


# ------------------------------------------------------------------------------ extremes

COMPARABLE = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "INT": edge_integers(32),
    "BIGINT": edge_integers(64),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats() | st.sampled_from([0.0, -0.0, NAN]),
    "DECIMAL(9, 2)": st.decimals(-(10**6), 10**6, places=2),
    "DECIMAL(38, 0)": st.integers(-(10**37), 10**37).map(D),
    "STRING": st.text(max_size=12),
    "BYTES": st.binary(max_size=12),
    "DATE": st.dates(),
    "TIME(3)": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "TIMESTAMP(6)": st.datetimes(),
}


@pytest.mark.parametrize("type_text", COMPARABLE)
@pytest.mark.parametrize("name", ["max", "min"])
@given(data=st.data())
@settings(SETTINGS, max_examples=10)
def test_extremes_of_every_comparable_type(name, type_text, data):
    groups = data.draw(rows_of(COMPARABLE[type_text], backs=False))
    order = {
        "STRING": lambda value: value.encode(),
        "FLOAT": java_key,
        "DOUBLE": java_key,
    }.get(type_text, lambda value: value)
    best = max if name == "max" else min
    model = either(lambda total, value: best(total, value, key=order))
    check_against((model, None), name, type_text, groups, key=order)


@given(groups=rows_of(st.booleans(), backs=False))
@SETTINGS
def test_boolean_folds(groups):
    check_against((either(lambda a, b: a and b), None), "bool_and", "BOOLEAN", groups)
    check_against((either(lambda a, b: a or b), None), "bool_or", "BOOLEAN", groups)


# --------------------------------------------------------------------------------- picks


class First:
    """Of a group: a flag that is part of no value."""

    def __init__(self, *, null):
        self.null = null
        self.done = False

    def __call__(self, total, value):
        if self.done or (value is None and not self.null):
            return total
        self.done = True
        return value


@given(groups=rows_of(st.integers(0, 5)))
@SETTINGS
def test_values_that_are_picked(groups):
    check_against((lambda _, value: value,) * 2, "primary-key", "INT", groups)
    check_against((lambda _, value: value, lambda *_: None), "last_value", "INT", groups)
    keep_last = (
        lambda total, value: total if value is None else value,
        lambda total, value: total if value is None else None,
    )
    check_against(keep_last, "last_non_null_value", "INT", groups)
    for name, null in (
        ("first_value", True),
        ("first_non_null_value", False),
        ("first_not_null_value", False),
    ):
        expected = [folded(First(null=null), lambda total, _: total, group) for group in groups]
        assert reduce(name, "INT", groups, ignore_retract="true") == expected


# ------------------------------------------------------------------------------- listagg

BLANKS = ["", " ", "\t\n", "\u3000", "\u2000 ", "\x1c"]


def blank(text):
    return all(
        char in "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
        or (char.isspace() and char not in "\x85\xa0\u2007\u202f")
        for char in text
    )


def listagg_model(delimiter, distinct):
    def add(total, value):
        if value is None or blank(value):
            return total
        if total is None:
            return value
        if not distinct:
            return total + delimiter + value
        there = set(total.split(delimiter))
        for part in value.split(delimiter):
            if not blank(part) and part not in there:
                there.add(part)
                total += delimiter + part
        return total

    return add, None


@pytest.mark.parametrize("delimiter", [",", "-", "::"])
@pytest.mark.parametrize("distinct", ["false", "true"])
@given(data=st.data())
@SETTINGS
def test_listagg(delimiter, distinct, data):
    word = st.sampled_from(["a", "ab", "b", "\xa0", *BLANKS])
    texts = st.lists(word, max_size=4).map(delimiter.join)
    check_against(
        listagg_model(delimiter, distinct == "true"),
        "listagg",
        "STRING",
        data.draw(rows_of(texts, backs=False)),
        distinct=distinct,
        list_agg_delimiter=delimiter,
    )


# ------------------------------------------------------------------- arrays, maps, tables

PAIR = "ROW<a INT, b STRING>"
PAIRS = st.fixed_dictionaries(
    {"a": st.none() | st.integers(0, 2), "b": st.none() | st.sampled_from("xy")}
)
ELEMENTS = {
    "INT": st.integers(0, 3),
    "STRING": st.sampled_from(["", "a", "b"]),
    "BYTES": st.sampled_from([b"", b"a"]),
    "BOOLEAN": st.booleans(),
    "DOUBLE": st.sampled_from([1.5, -2.0]),
    "DECIMAL(20, 2)": st.sampled_from([D("1.25"), D("-3.00")]),
    PAIR: PAIRS,
    "ARRAY<INT>": st.lists(st.none() | st.integers(0, 1), max_size=2),
    "MAP<INT, INT>": st.dictionaries(
        st.integers(0, 1), st.none() | st.integers(0, 1), max_size=2
    ).map(lambda entries: list(entries.items())),
}


def same(value):
    """A value of a nested type as something hashable."""
    if isinstance(value, dict):
        return tuple((key, same(item)) for key, item in sorted(value.items()))
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return frozenset((key, same(item)) for key, item in value)
    return tuple(same(item) for item in value) if isinstance(value, list) else value


def collect_model(distinct):
    def add(total, value):
        if value is None:
            return total
        if not distinct:
            return (total or []) + value
        total = list(total or [])
        for element in value:
            if same(element) not in map(same, total):
                total.append(element)
        return total

    def back(total, value):
        if total is None or value is None:
            return total
        gone = [same(element) for element in value]
        left = []
        for element in total:
            if same(element) in gone:
                gone.remove(same(element))
            else:
                left.append(element)
        return left

    return add, back


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("distinct", ["false", "true"])
@given(data=st.data())
@settings(SETTINGS, max_examples=12)
def test_collect(element, distinct, data):
    groups = data.draw(rows_of(st.lists(st.none() | ELEMENTS[element], max_size=4)))
    model = collect_model(distinct == "true")
    check_against(model, "collect", f"ARRAY<{element}>", groups, key=same, distinct=distinct)


def merge_map_model():
    def back(total, value):
        if total is None or value is None:
            return total
        gone = {key for key, _ in value}
        return [(key, item) for key, item in total if key not in gone]

    return either(lambda total, value: list((dict(total) | dict(value)).items())), back


@pytest.mark.parametrize(
    ("key", "keys"), [("INT", st.integers(0, 4)), ("BYTES", st.binary(max_size=1))]
)
@given(data=st.data())
@SETTINGS
def test_merge_map(key, keys, data):
    maps = st.dictionaries(keys, st.none() | st.sampled_from("xyz"), max_size=3).map(
        lambda entries: list(entries.items())
    )
    groups = data.draw(rows_of(maps))
    check_against(merge_map_model(), "merge_map", f"MAP<{key}, STRING>", groups, key=dict)


def keytime_step(total, value):
    total = dict(total)
    for key, row in value:
        if row is None:
            total.pop(key, None)
        elif row["t"] is not None:
            there = total.get(key)
            if there is None or there["t"] is None or row["t"] > there["t"]:
                total[key] = row
    return list(total.items())


@given(data=st.data())
@settings(SETTINGS, max_examples=40)
def test_merge_map_with_keytime(data):
    row = st.none() | st.fixed_dictionaries(
        {"t": st.none() | st.sampled_from(["100", "50", "2", ""]), "x": st.integers(0, 9)}
    )
    maps = st.dictionaries(st.sampled_from("ab"), row, max_size=2).map(lambda d: list(d.items()))
    check_against(
        (either(keytime_step), None),
        "merge_map_with_keytime",
        "MAP<STRING, ROW<t STRING, x INT>>",
        data.draw(rows_of(maps, backs=False)),
        key=dict,
        ts_field="t",
    )


TABLE = "ARRAY<ROW<k INT, l STRING, s INT, x INT>>"
TABLE_ROWS = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(0, 2),
        "l": st.none() | st.sampled_from("ab"),
        "s": st.none() | st.integers(0, 2),
        "x": st.none() | st.integers(0, 2),
    }
)


def nested_key(row, key, nulls):
    found = tuple(row[name] for name in key)
    if None in found and nulls == "error":
        raise Refused
    return None if None in found and nulls == "ignore" else found


def nested_model(key, nulls, sequence, limit):
    def keyed(rows):
        found = [(nested_key(row, key, nulls), row) for row in rows if row is not None]
        return [(name, row) for name, row in found if name is not None]

    def add(total, value):
        if value is None:
            return total
        if not key:
            return ((total or []) + [row for row in value if row is not None])[:limit]
        table = dict(keyed(total or []))
        for name, row in keyed(value):
            if name in table:
                old, new = (
                    tuple((r[s] is not None, r[s] or 0) for s in sequence)
                    for r in (table[name], row)
                )
                if new >= old:
                    table[name] = row
            elif len(table) < limit:
                table[name] = row
        return list(table.values())

    def back(total, value):
        if total is None or value is None:
            return total
        if not key:
            return [row for row in total if row not in value]
        gone = {name for name, _ in keyed(value)}
        return [row for name, row in keyed(total) if name not in gone]

    return add, back


@given(data=st.data())
@settings(SETTINGS, max_examples=90)
def test_nested_update(data):
    key = data.draw(st.sampled_from(["", "k", "k,l"]))
    nulls = data.draw(st.sampled_from(["merge", "ignore", "error"] if key else ["merge"]))
    sequence = data.draw(st.sampled_from(["", "s", "s, x"] if key else [""]))
    limit = data.draw(st.sampled_from(["2", ""]))
    rows = TABLE_ROWS
    if nulls == "error":
        rows = rows.map(lambda row: row | {"k": row["k"] or 0, "l": row["l"] or "a"}) | rows
    groups = data.draw(rows_of(st.lists(st.none() | rows, max_size=4)))
    names = [name for name in key.split(",") if name]
    sequences = [name.strip() for name in sequence.split(",") if name]
    options = {"nested_key": key, "nested_sequence_field": sequence, "count_limit": limit}
    if key:
        options["nested_key_null_strategy"] = nulls.upper()
    check_against(
        nested_model(names, nulls, sequences, int(limit or 2**31)),
        "nested_update",
        TABLE,
        groups,
        **{name: value for name, value in options.items() if value},
    )


@pytest.mark.parametrize("nulls", ["merge", "ignore"])
@given(data=st.data())
@SETTINGS
def test_nested_partial_update(nulls, data):
    def add(total, value):
        if value is None:
            return total
        table = {}
        for row in [*(total or []), *(row for row in value if row is not None)]:
            name = nested_key(row, ["k"], nulls)
            if name is not None:
                filled = {member: item for member, item in row.items() if item is not None}
                table[name] = table.get(name, dict.fromkeys(row)) | filled
        return list(table.values())

    groups = data.draw(rows_of(st.lists(st.none() | TABLE_ROWS, max_size=4), backs=False))
    options = {"nested_key": "k", "nested_key_null_strategy": nulls}
    check_against((add, None), "nested_partial_update", TABLE, groups, **options)


# ------------------------------------------------------------------------------ sketches


def hll(*values):
    sketch = datasketches.hll_sketch(12)
    for value in values:
        sketch.update(value)
    return sketch.serialize_compact()


def theta(*values):
    sketch = datasketches.update_theta_sketch()
    for value in values:
        sketch.update(value)
    return sketch.compact().serialize()


SETS = {
    "rbm32": (lambda *v: BitMap(v).serialize(), lambda data: set(BitMap.deserialize(data))),
    "rbm64": (lambda *v: BitMap64(v).serialize(), lambda data: set(BitMap64.deserialize(data))),
    "hll_sketch": (hll, lambda data: datasketches.hll_sketch.deserialize(data).get_estimate()),
    "theta_sketch": (
        theta,
        lambda data: datasketches.compact_theta_sketch.deserialize(data).get_estimate(),
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_unions_of_sets(name):
    make, read = SETS[name]
    groups = [
        [make(100, 101, 102), None, make(103, 105), make(100)],
        [None, make(101, 103)],
        [None],
        [make(1)],
    ]
    first, second, third, fourth = reduce(name, "BYTES", groups)
    assert (
        read(first) == pytest.approx(read(make(100, 101, 102, 103, 105)), rel=1e-6)
        if ("sketch" in name)
        else read(first) == {100, 101, 102, 103, 105}
    )
    assert (second, third, fourth) == (groups[1][1], None, groups[3][0])


@pytest.mark.parametrize("name", SETS)
def test_bytes_that_are_no_set(name):
    with pytest.raises(CorruptDataError, match=name):
        one(name, "BYTES", SETS[name][0](1), b"\x01\x02")
    with pytest.raises(CorruptDataError, match=name):
        one(name, "BYTES", b"", b"")


@pytest.mark.parametrize("name", ["hll_sketch", "theta_sketch"])
def test_unions_of_large_sketches_estimate_all_of_them(name):
    make, read = SETS[name]
    parts = [make(*range(low, low + 20_000)) for low in (0, 10_000, 50_000)]
    assert read(one(name, "BYTES", *parts)) == pytest.approx(50_000, rel=0.05)


# ----------------------------------------------------------------------------- two tiers

PLAIN = [
    ("sum", "TINYINT", {}, st.integers(-9, 9) | edge_integers(8)),
    ("sum", "BIGINT", {}, st.integers(-9, 9) | edge_integers(64)),
    ("sum", "DECIMAL(5, 2)", {}, st.decimals(-999, 999, places=2)),
    ("sum", "DECIMAL(38, 0)", {}, st.sampled_from([D(10**38 - 1), D(-3), D(2**64), D(7)])),
    ("listagg", "STRING", {}, st.sampled_from(["", " ", "a", "b,a"])),
    ("collect", "ARRAY<INT>", {}, st.lists(st.none() | st.integers(0, 2), max_size=3)),
]


def segments_of(ops, sizes):
    starts = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    return Segments(starts, sum(sizes), np.array(ops, dtype=np.int8))


@pytest.mark.parametrize(("name", "type_text", "options", "values"), PLAIN)
@given(data=st.data())
@settings(SETTINGS, max_examples=20)
def test_both_tiers_agree(name, type_text, options, values, data):
    """What is reduced as arrays is what the same rows give one after the other."""
    kind = arrow_type(parse_type(type_text))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    backs = name in ("sum", "collect")
    kinds = [Op.ADD, Op.ADD, Op.LATE, Op.SKIP] + ([Op.RETRACT] if backs else [])
    first = [Op.ADD, Op.BASE] + ([Op.RETRACT, Op.BASE_RETRACT] if backs else [])
    ops = []
    for size in sizes:
        ops.append(data.draw(st.sampled_from(first)))
        ops += [data.draw(st.sampled_from(kinds)) for _ in range(size - 1)]
    column = pa.array([data.draw(st.none() | values) for _ in ops], kind)
    segments = segments_of(ops, sizes)
    aggregator = function(name, type_text, **options)
    keys = np.arange(len(sizes))

    def result(reduce):
        try:
            return str(reduce())
        except InvalidRequestError as error:
            return str(error), error.context["segment"]

    assert result(lambda: aggregator.reduce(column, segments)) == result(
        lambda: aggregator._folded(column, segments, keys)
    )


@pytest.mark.parametrize(
    ("name", "type_text"),
    [
        *((name, "INT") for name in ("sum", "max", "min", "last_value", "last_non_null_value")),
        *((name, "INT") for name in ("first_value", "first_non_null_value")),
        *((name, kind) for name in ("sum", "max") for kind in ("DOUBLE", "DECIMAL(38, 18)")),
        *(("bool_and", "BOOLEAN"), ("bool_or", "BOOLEAN"), ("max", "STRING")),
        *(("listagg", "STRING"), ("collect", "ARRAY<INT>")),
    ],
)
def test_common_functions_stay_in_the_first_tier(name, type_text, monkeypatch):
    samples = {"STRING": "x", "BOOLEAN": True, "ARRAY<INT>": [1], "DOUBLE": 1.5}
    value = D("123456789.5") if type_text.startswith("DECIMAL") else samples.get(type_text, 7)
    aggregator = function(name, type_text)
    column = pa.array([value, None, value, value], arrow_type(parse_type(type_text)))
    monkeypatch.setattr(type(aggregator.function), "open", None)
    starts = np.array([0, 3], dtype=np.int64)
    assert len(aggregator.reduce(column, Segments(starts, 4))) == 2
    if name in ("sum", "max", "min", "last_value", "last_non_null_value"):
        back = Op.RETRACT if aggregator.retractable else Op.SKIP
        ops = [Op.ADD, back, Op.LATE, Op.BASE]
        assert len(aggregator.reduce(column, segments_of(ops, [3, 1]))) == 2


def applied(name, type_text, *rows, **options):
    """The result of rows of one key, given as (op, value)."""
    column = pa.array([value for _, value in rows], arrow_type(parse_type(type_text)))
    segments = segments_of([op for op, _ in rows], [len(rows)])
    return function(name, type_text, **options).reduce(column, segments).to_pylist()[0]


def test_a_late_row_is_what_is_added_to():
    assert applied("listagg", "STRING", (Op.ADD, "b"), (Op.LATE, "a"), (Op.ADD, "c")) == "a,b,c"
    rows = ((Op.ADD, ["b"]), (Op.LATE, ["a"]))
    assert applied("collect", "ARRAY<STRING>", *rows) == ["b", "a"]
    assert applied("collect", "ARRAY<STRING>", *rows, ignore_retract="true") == ["a", "b"]
    maps = ((Op.ADD, [(1, "new")]), (Op.LATE, [(1, "old"), (2, "x")]))
    assert dict(applied("merge_map", "MAP<INT, STRING>", *maps)) == {1: "new", 2: "x"}


def nested(k, x):
    return {"k": k, "l": None, "s": None, "x": x}


def test_the_limit_of_nested_rows_counts_when_a_row_is_applied():
    # the second key found no place in the first row, so the late row does not bring it back
    rows = ((Op.ADD, [nested(0, 1), nested(1, 1)]), (Op.LATE, [nested(1, 9), nested(2, 9)]))
    assert applied("nested_update", TABLE, *rows, nested_key="k", count_limit="1") == [
        nested(1, 9),
        nested(2, 9),
    ]


def test_a_base_is_taken_as_it_is_until_something_is_added():
    row, options = nested(None, 1), {"nested_key": "k", "nested_key_null_strategy": "error"}
    for name in ("nested_update", "nested_partial_update"):
        assert applied(name, TABLE, (Op.BASE, [row, None]), **options) == [row, None]
        with pytest.raises(InvalidRequestError, match="Nested key contains null"):
            applied(name, TABLE, (Op.BASE, [row]), (Op.ADD, [nested(1, 1)]), **options)
    distinct = {"distinct": "true"}
    assert applied("collect", "ARRAY<INT>", (Op.BASE, [1, 1]), **distinct) == [1, 1]
    assert applied("collect", "ARRAY<INT>", (Op.BASE, [1, 1]), (Op.ADD, None), **distinct) == [1]
    assert applied("listagg", "STRING", (Op.BASE, " "), (Op.ADD, "a")) == "a"
    assert applied("product", "INT", (Op.BASE_RETRACT, 6), (Op.ADD, 5)) == 5
    assert applied("merge_map", "MAP<INT, INT>", (Op.BASE_RETRACT, [(1, 1)])) == []


# ------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "type_text"),
    [
        ("max", "INT"),
        ("min", "INT"),
        ("first_value", "INT"),
        ("first_non_null_value", "INT"),
        ("first_not_null_value", "INT"),
        ("bool_and", "BOOLEAN"),
        ("bool_or", "BOOLEAN"),
        ("listagg", "STRING"),
        ("rbm32", "BYTES"),
        ("rbm64", "BYTES"),
        ("hll_sketch", "BYTES"),
        ("theta_sketch", "BYTES"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, t STRING>>"),
        ("nested_partial_update", TABLE),
    ],
)
def test_functions_that_take_nothing_back(name, type_text):
    options = {"nested_key": "k"} if name.startswith("nested") else {}
    assert not function(name, type_text, **options).retractable
    with pytest.raises(InvalidRequestError) as caught:
        reduce(name, type_text, [[None], [None, ("-", None)]], **options)
    assert f"Aggregate function '{name}' does not support retraction" in str(caught.value)
    assert "fields.v.ignore-retract" in caught.value.hint
    assert caught.value.context["segment"] == 1
    ignoring = function(name, type_text, ignore_retract="true", **options)
    assert ignoring.retractable
    assert ignoring.name == name
    assert one(name, type_text, None, ("-", None), ignore_retract="true", **options) is None


def test_ignored_retractions_leave_the_value():
    groups = [[1, ("-", 1), 4], [("-", 5)], [("-", 5), 7]]
    assert reduce("sum", "INT", groups, ignore_retract="true") == [5, None, 7]
    with pytest.raises(InvalidRequestError) as caught:
        reduce("sum", "TINYINT", [[("-", 1)], [100, ("-", 9), 100]], ignore_retract="true")
    assert caught.value.context["segment"] == 1


@pytest.mark.parametrize(
    ("name", "type_text", "options", "problem"),
    [
        ("no_such_fn", "INT", {}, "Use unsupported aggregation: no_such_fn"),
        ("sum", "STRING", {}, "Data type for sum column must be 'NumericType' but was 'STRING'"),
        ("product", "BOOLEAN", {}, "must be 'NumericType'"),
        ("max", "ARRAY<INT>", {}, "must be comparable"),
        ("min", "MAP<INT, INT>", {}, "must be comparable"),
        ("bool_and", "INT", {}, "must be 'BooleanType'"),
        ("listagg", "INT", {}, "must be 'VarCharType'"),
        ("listagg", "VARCHAR(10)", {}, "must be STRING (unbounded VARCHAR)"),
        ("collect", "INT", {}, "must be 'Array'"),
        ("merge_map", "ARRAY<INT>", {}, "must be 'MAP'"),
        ("merge_map_with_keytime", "MAP<INT, INT>", {}, "ROWs of at least 2 fields"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, t STRING>>", {"ts_field": "z"},
         "Timestamp field 'z' not found in ROW type"),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, t BIGINT>>", {}, "must be of type STRING"),
        ("nested_update", "ARRAY<INT>", {}, "must be 'Array<Row>'"),
        ("nested_update", TABLE, {"nested_sequence_field": "s"}, "nested-sequence-field' requires"),
        ("nested_update", TABLE, {"nested_key_null_strategy": "merge"},
         "nested-key-null-strategy' requires"),
        ("nested_update", TABLE, {"nested_key": "k", "nested_key_null_strategy": "drop"},
         "Unsupported nested-key-null-strategy"),
        ("nested_update", TABLE, {"nested_key": "q"}, "Field 'q' not found"),
        ("nested_partial_update", TABLE, {}, "requires a nested key"),
        ("rbm32", "STRING", {}, "must be 'VarBinaryType'"),
        ("theta_sketch", "INT", {}, "must be 'VarBinaryType'"),
    ],
)  # fmt: skip
def test_functions_refuse_columns_before_any_row(name, type_text, options, problem):
    with pytest.raises(InvalidOptionError) as caught:
        function(name, type_text, **options)
    assert problem in str(caught.value)
    assert caught.value.hint
    assert caught.value.context["option"].startswith("fields.v.")


def test_conflict_of_removing_records_and_ignoring_retractions():
    field = DataField(id=0, name="v", type=parse_type("INT"))
    options = {
        "aggregation.remove-record-on-delete": "true",
        "fields.v.ignore-retract": "true",
    }
    with pytest.raises(InvalidOptionError, match="have conflicting behavior so should not be"):
        aggregator_for("sum", field, options, SCHEMA)


@pytest.mark.parametrize(
    ("name", "type_text", "options"),
    [
        ("sum", "INT", {}),
        ("product", "DECIMAL(5, 2)", {}),
        ("max", "STRING", {}),
        ("listagg", "STRING", {"distinct": "true"}),
        ("collect", "ARRAY<INT>", {"distinct": "true"}),
        ("merge_map", "MAP<INT, INT>", {}),
        ("merge_map_with_keytime", "MAP<INT, ROW<a INT, t STRING>>", {}),
        ("nested_update", TABLE, {"nested_key": "k"}),
        ("nested_partial_update", TABLE, {"nested_key": "k"}),
        ("rbm32", "BYTES", {}),
        ("last_value", "INT", {}),
    ],
)
def test_no_rows_give_no_values(name, type_text, options):
    kind = arrow_type(parse_type(type_text))
    nothing = Segments(np.empty(0, dtype=np.int64), 0, None)
    made = function(name, type_text, **options).reduce(pa.array([], kind), nothing)
    assert (len(made), made.type) == (0, kind)
