# SPDX-License-Identifier: Apache-2.0
"""Whatever is written as an expression is refused properly or runs; data never stop it.

Laws: planning raises nothing but `InvalidRequestError`; what was planned gives, for awkward values
of every type, for null rows and for no rows, a column of the stated type and raises nothing; a row
that fails has a reason and no value unless the expression made one of it.
"""

import datetime
import decimal
import itertools
import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ingest.transform.rules import FUNCTIONS
from storage.errors import InvalidRequestError
from storage.format.types.types import ArrayType, MapType, arrow_type, parse_type
from tests.property.profiles import profile
from tests.unit.ingest.transform.evaluation import Expression

_DAY, _AT = datetime.date.fromisoformat, datetime.datetime.fromisoformat
_ENDS = [_AT("0001-01-01"), _AT("9999-12-31T23:59:59.999999"), _AT("1969-12-31T23:59:59.5")]
_TEXTS = ["", "x", "9" * 60, "-1e999", "2024-02-30", "\x00", "😀" * 9, "NaN", "%_\\"]
VALUES = {
    "TINYINT": [-128, 127, 0],
    "SMALLINT": [-(2**15), 2**15 - 1, 0],
    "INT": [-(2**31), 2**31 - 1, 0],
    "BIGINT": [-(2**63), 2**63 - 1, 0],
    "FLOAT": [float("inf"), float("nan"), 1e38],
    "DOUBLE": [float("-inf"), float("nan"), 1.7e308, -0.0],
    "DECIMAL(5, 2)": [decimal.Decimal("999.99"), decimal.Decimal("-999.99"), decimal.Decimal(0)],
    "DECIMAL(38, 0)": [decimal.Decimal(10**38 - 1), decimal.Decimal(0)],
    "DECIMAL(38, 38)": [decimal.Decimal("0." + "9" * 38), decimal.Decimal(0)],
    "STRING": _TEXTS,
    "CHAR(3)": ["abc", "   "],
    "BYTES": [b"", b"\xff\xfe", b"a"],
    "BOOLEAN": [True, False],
    "DATE": [_DAY("0001-01-01"), _DAY("9999-12-31"), _DAY("1970-01-01")],
    "TIME(3)": [datetime.time(0), datetime.time(23, 59, 59, 999_000)],
    "TIMESTAMP(3)": _ENDS,
    "TIMESTAMP(6)": _ENDS,
    "TIMESTAMP(9)": [_AT("1700-01-01"), _AT("2262-01-01")],
    "TIMESTAMP_LTZ(0)": [at.replace(tzinfo=datetime.UTC) for at in _ENDS],
    "TIMESTAMP_LTZ(6)": [at.replace(tzinfo=datetime.UTC) for at in _ENDS],
}
TYPES = {f"c{number}": parse_type(text) for number, text in enumerate(VALUES)}
TYPES["list"] = ArrayType(parse_type("INT"))
TYPES["map"] = MapType(parse_type("STRING NOT NULL"), parse_type("INT"))
CONSTANTS = (
    "0", "1", "-1", "3", "99999999999999999999", "1.50", "0.0", "1e10", "''", "'a'", "'9'",
    "'month'",
    "'yyyy-MM-dd HH:mm:ss.SSS'", "'2024-02-29'", "NULL", "TRUE", "X'00'", "DATE '2024-02-29'",
    "TIMESTAMP '9999-12-31 00:00:00'", "INTERVAL '3' MONTH", "INTERVAL 99999 YEAR",
)  # fmt: skip
CASTS = (
    "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(3, 1)", "DECIMAL(38, 10)", "STRING",
    "VARCHAR(2)", "CHAR(4)", "BYTES", "BOOLEAN", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(9)",
    "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(9)",
)  # fmt: skip
_INFIX = (
    "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "div", "and", "or", "||", "like",
    "ilike", "rlike", "is distinct from",
)  # fmt: skip
_BEHIND = ("is null", "is true", "is false")
_ROWS = 12


def batch() -> pa.RecordBatch:
    columns = [
        [None, *values, *values, *values, *values, *values, *values][:_ROWS]
        for values in VALUES.values()
    ]
    columns += [[[1, None], [], None] * 4, [[("a", 1)], [], None] * 4]
    columns = [(column * 2 + [None] * _ROWS)[:_ROWS] for column in columns]
    arrays = [
        pa.array(column, arrow_type(type_))
        for column, type_ in zip(columns, TYPES.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


BATCH = batch()


def drawn(draw: random.Random, depth: int) -> str:
    if depth == 0 or draw.random() < 0.1:
        return draw.choice([*TYPES, *TYPES, *CONSTANTS])
    part = [drawn(draw, depth - 1) for _ in range(4)]
    match draw.randrange(7):
        case 0:
            return f"CAST({part[0]} AS {draw.choice(CASTS)})"
        case 1:
            return f"CASE WHEN {part[0]} THEN {part[1]} ELSE {part[2]} END"
        case 2:
            return f"({part[0]}) IN ({part[1]}, {part[2]})"
        case 3:
            return f"({part[0]}) {draw.choice(_INFIX)} ({part[1]})"
    name = draw.choice(sorted(FUNCTIONS))
    if name in _INFIX:
        return f"({part[0]}) {name} ({part[1]})"
    if name in _BEHIND:
        return f"({part[0]}) {name}"
    if not name.isidentifier() or name in ("in", "between", "not", "negate"):
        return f"NOT ({part[0]} BETWEEN -({part[1]}) AND {part[2]})"
    return f"{name}({', '.join(part[: draw.randint(0, 3)])})"


def check(text: str, zone: str) -> bool:
    """Whether it could be planned; it must run then."""
    try:
        expression = Expression.plan(text, TYPES, zone)
    except InvalidRequestError as error:
        if "at character" not in str(error):
            raise
        return False
    for rows in (BATCH, BATCH.slice(1, 5), BATCH.slice(0, 1), BATCH.slice(0, 0)):
        found = expression.evaluate(rows, 1_700_000_000_000)
        found.values.validate()
        assert len(found.values) == rows.num_rows, text
        assert found.values.type == arrow_type(expression.type), text
        assert len(found.reasons) == len(found.failed), text
        assert all(found.reasons), text
    return True


@given(seed=st.integers(0, 2**40))
@profile()
def test_expressions_run_or_are_refused(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(30):
        check(drawn(draw, draw.choice([1, 1, 1, 2, 2, 3])), draw.choice(["UTC", "Europe/Berlin"]))


@given(text=st.text("ab c0'\"`()+-*/<>=,.eE_xX|%\n\täselctnulw", max_size=40))
@profile()
def test_garbage_is_refused(text: str) -> None:
    check(text, "UTC")


def test_each_function_runs_for_some_arguments() -> None:
    names = {name for name in FUNCTIONS if name.isidentifier()}
    names -= {"in", "between", "not", "negate", "and", "or", "div", "like", "ilike", "rlike"}
    pool = ("c9", "c2", "c15", "c12", "'a'", "'month'", "1", "3")
    for name in sorted(names):
        tries = (
            f"{name}({', '.join(arguments)})"
            for count in range(4)
            for arguments in itertools.product(pool, repeat=count)
        )
        assert any(check(text, "UTC") for text in tries), name
