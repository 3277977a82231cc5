# SPDX-License-Identifier: Apache-2.0
"""Expressions over columns against the same ones calculated row by row, in plain Python.

An expression is drawn together with a function of one row, so neither parser nor kernels judge
themselves. Laws: a row that fails in Python fails here, and no other; all others have Python's
value; where a batch is cut changes nothing.
"""

import dataclasses
import datetime
import decimal
import hashlib
import random
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidRequestError
from storage.format.types.types import arrow_type, parse_type
from tests.property.profiles import profile
from tests.unit.ingest.transform.evaluation import Expression

COLUMNS = {
    "i": "INT",
    "tiny": "TINYINT",
    "l": "BIGINT",
    "d": "DECIMAL(10, 2)",
    "e": "DECIMAL(18, 6)",
    "f": "DOUBLE",
    "s": "STRING",
    "b": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP(6)",
}
TYPES = {name: parse_type(text) for name, text in COLUMNS.items()}
TEXTS = ["", "a", "ab", "abc", "12", "-7", "1.50", "x%y", "Ünïcode 😀", " pad ", "2024-02-29"]
PATTERNS = {
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyyMMdd": "%Y%m%d",
    "dd.MM.yyyy": "%d.%m.%Y",
    "'w' HH:mm:ss": "w %H:%M:%S",
    "EEE MMM d": None,
}
Row = dict[str, Any]


class RowFailure(Exception):
    """The row has no value."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """An expression, its kind of value, and what it gives for a row.

    `kind`: `int`, `long`, `bool`, `text`, `date`, `time`, `float`, or a decimal's digits and scale.
    """

    text: str
    kind: Any
    value: Callable[[Row], Any]


def integer(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise RowFailure
    return value


def exact(value: decimal.Decimal, precision: int, scale: int) -> decimal.Decimal:
    found = value.quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
    if abs(found) >= decimal.Decimal(10) ** (precision - scale):
        raise RowFailure
    return found if found else abs(found)


class Maker:
    """Draws expressions."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def rows(self, count: int) -> list[Row]:
        return [{name: self._value(name) for name in COLUMNS} for _ in range(count)]

    def _value(self, name: str) -> Any:
        draw = self._random
        if draw.random() < 0.2:
            return None
        match name:
            case "i":
                return draw.choice([0, 1, -1, 3, 2**31 - 1, -(2**31), draw.randint(-99, 99)])
            case "tiny":
                return draw.choice([0, 1, -128, 127, 5])
            case "l":
                return draw.choice([0, 2, -7, 2**63 - 1, -(2**63), draw.randint(-(10**12), 10**12)])
            case "d":
                return decimal.Decimal(draw.choice([0, 1, -150, 10**10 - 1, 250])).scaleb(-2)
            case "e":
                return decimal.Decimal(draw.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-6)
            case "f":
                return draw.choice([0.0, -0.0, 1.5, -2.25, 1e300, float("inf"), float("nan"), 7.0])
            case "s":
                return draw.choice(TEXTS)
            case "b":
                return draw.random() < 0.5
            case "day":
                return datetime.date.fromordinal(draw.randint(1, 3_652_059))
        seconds = draw.randint(-30 * 10**9, 30 * 10**9)
        return datetime.datetime.fromisoformat("1970-01-01") + datetime.timedelta(
            seconds=seconds, microseconds=draw.choice([0, 1, 999_999])
        )

    # --- expressions ---------------------------------------------------------------------

    def condition(self, depth: int) -> Drawn:
        kinds = (
            ["column", "literal"] if depth == 0 else ["and", "or", "not", "compare", "null", "in"]
        )
        if depth:
            kinds += ["like", "between", "compare", "distinct"]
        match self._random.choice(kinds):
            case "column":
                return self._column("b", "bool")
            case "literal":
                truth = self._random.choice([True, False, None])
                text = {True: "TRUE", False: "false", None: "CAST(NULL AS BOOLEAN)"}[truth]
                return Drawn(text, "bool", lambda row: truth)
            case "and":
                return self._junction("AND", False, depth)
            case "or":
                return self._junction("or", True, depth)
            case "not":
                part = self.condition(depth - 1)
                return Drawn(f"NOT ({part.text})", "bool", lambda row: negated(part.value(row)))
            case "null":
                part = self.any(depth - 1)
                return Drawn(f"({part.text}) IS NULL", "bool", lambda row: part.value(row) is None)
            case "in":
                return self._in(depth)
            case "like":
                part = self.text(depth - 1)
                pattern, test = self._random.choice(
                    [
                        ("a%", lambda t: t.startswith("a")),
                        ("%b%", lambda t: "b" in t),
                        ("_", lambda t: len(t) == 1),
                        (r"x\%y", lambda t: t == "x%y"),
                    ]
                )
                return Drawn(f"{part.text} LIKE '{pattern}'", "bool", mapped(part, test))
            case "between":
                part, low, high = (self.whole(depth - 1) for _ in range(3))

                def between(row: Row) -> Any:
                    value = part.value(row)
                    above = compared(">=", value, low.value(row))
                    # both sides are looked at from left to right, as AND does
                    if above is False:
                        return False
                    below = compared("<=", part.value(row), high.value(row))
                    return conjunction(above, below)

                text = f"({part.text}) BETWEEN ({low.text}) AND ({high.text})"
                return Drawn(text, "bool", between)
            case "distinct":
                one, other = self.text(depth - 1), self.text(depth - 1)
                return Drawn(
                    f"{one.text} IS NOT DISTINCT FROM {other.text}",
                    "bool",
                    lambda row: both(one, other, row)[0] == both(one, other, row)[1],
                )
        return self._comparison(depth)

    def _junction(self, word: str, decided_by: bool, depth: int) -> Drawn:
        left, right = self.condition(depth - 1), self.condition(depth - 1)

        def value(row: Row) -> Any:
            one = left.value(row)
            if one is decided_by:
                return decided_by
            other = right.value(row)
            if other is decided_by:
                return decided_by
            return None if one is None or other is None else not decided_by

        return Drawn(f"({left.text} {word} {right.text})", "bool", value)

    def _comparison(self, depth: int) -> Drawn:
        operator = self._random.choice(["=", "<>", "<", "<=", ">", ">="])
        family = self._random.choice(
            [self.number, self.number, self.text, self.date, self.floating]
        )
        left, right = family(depth - 1), family(depth - 1)

        def value(row: Row) -> Any:
            return compared(operator, *both(left, right, row))

        return Drawn(f"({left.text}) {operator} ({right.text})", "bool", value)

    def _in(self, depth: int) -> Drawn:
        if self._random.random() < 0.5:
            part = self.text(depth - 1)
            items: list[Any] = self._random.sample(TEXTS, 2)
            shown = [quoted(item) for item in items]
        else:
            part = self.whole(depth - 1)
            items = [0, 3, None][: self._random.randint(1, 3)]
            shown = ["NULL" if item is None else str(item) for item in items]

        def value(row: Row) -> Any:
            found = part.value(row)
            if found is None:
                return None
            if found in [item for item in items if item is not None]:
                return True
            return None if None in items else False

        return Drawn(f"({part.text}) IN ({', '.join(shown)})", "bool", value)

    def any(self, depth: int) -> Drawn:
        return self._random.choice([self.number, self.text, self.condition, self.date])(depth)

    def number(self, depth: int) -> Drawn:
        return self._random.choice([self.whole, self.exact])(depth)

    def whole(self, depth: int) -> Drawn:
        if depth <= 0:
            name = self._random.choice(["i", "l", "tiny", ""])
            if name:
                return self._column(name, "long" if name == "l" else "int")
            number = self._random.choice([0, 1, -1, 7, 100])
            return Drawn(str(number), "int", lambda row: number)
        match self._random.choice(["sum", "div", "case", "length", "year", "cast", "coalesce"]):
            case "sum":
                return self._sum(depth)
            case "div":
                return self._div(depth)
            case "case":
                return self._case(depth, self.whole)
            case "length":
                return Drawn(*self._of_text("length", len, depth, "int"))
            case "year":
                part = self.date(depth - 1)
                return Drawn(f"year({part.text})", "int", mapped(part, lambda day: day.year))
            case "cast":
                part = self.exact(depth - 1)
                return Drawn(
                    f"CAST({part.text} AS INT)", "int", mapped(part, lambda v: integer(int(v), 32))
                )
        left, right = self.whole(depth - 1), self.whole(depth - 1)

        def value(row: Row) -> Any:
            first = left.value(row)
            return right.value(row) if first is None else first

        return Drawn(f"coalesce({left.text}, {right.text})", wider(left, right), value)

    def _sum(self, depth: int) -> Drawn:
        operator = self._random.choice("+-*")
        left, right = self.whole(depth - 1), self.whole(depth - 1)
        kind = wider(left, right)

        def value(row: Row) -> Any:
            one, other = both(left, right, row)
            if one is None or other is None:
                return None
            return integer(calculated(operator, one, other), 64 if kind == "long" else 32)

        return Drawn(f"(({left.text}) {operator} ({right.text}))", kind, value)

    def _div(self, depth: int) -> Drawn:
        operator = self._random.choice(["DIV", "%"])
        left, right = self.whole(depth - 1), Drawn(*dataclasses.astuple(self.whole(0)))
        if right.text == "0":  # a constant zero is refused when planned, if all is constant
            right = self._column("i", "int")
        if left.text.lstrip("-").isdigit():
            left = self._column("l", "long")
        kind = wider(left, right)

        def value(row: Row) -> Any:
            one, other = both(left, right, row)
            if one is None or other is None:
                return None
            if other == 0:
                raise RowFailure
            whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
            found = whole if operator == "DIV" else one - whole * other
            return integer(found, 64 if kind == "long" else 32)

        return Drawn(f"(({left.text}) {operator} ({right.text}))", kind, value)

    def _case(self, depth: int, family: Callable[[int], Drawn]) -> Drawn:
        test, yes, no = self.condition(depth - 1), family(depth - 1), family(depth - 1)
        text = f"CASE WHEN {test.text} THEN {yes.text} ELSE {no.text} END"
        if self._random.random() < 0.3:
            text = f"if({test.text}, {yes.text}, {no.text})"
        kind = yes.kind if yes.kind == no.kind else wider(yes, no)
        return Drawn(text, kind, lambda row: (yes if test.value(row) is True else no).value(row))

    def exact(self, depth: int) -> Drawn:
        """A decimal; kind (precision, scale)."""
        if depth <= 0 or self._random.random() < 0.2:
            name = self._random.choice(["d", "e"])
            return self._column(name, (10, 2) if name == "d" else (18, 6))
        left, right = self.exact(depth - 1), self.exact(0)
        (p1, s1), (p2, s2) = left.kind, right.kind
        operator = self._random.choice("+-*/")
        if operator == "*" and s1 + s2 <= 12:
            kind = (min(p1 + p2, 38), s1 + s2)
        elif operator == "/" and p1 - s1 + s2 <= 20 and s1 <= 12:
            whole, scale = p1 - s1 + s2, max(6, s1 + p2 + 1)
            scale = scale if whole + scale <= 38 else max(38 - whole, min(scale, 6))
            kind = (min(whole + scale, 38), scale)
        else:
            operator = "+" if operator == "+" else "-"
            kind = (min(max(p1 - s1, p2 - s2) + max(s1, s2) + 1, 38), max(s1, s2))

        def value(row: Row) -> Any:
            one, other = both(left, right, row)
            if one is None or other is None:
                return None
            with decimal.localcontext(prec=120):
                if operator == "/":
                    if other == 0:
                        raise RowFailure
                    return exact(one / other, *kind)
                return exact(calculated(operator, one, other), *kind)

        return Drawn(f"({left.text} {operator} {right.text})", kind, value)

    def floating(self, depth: int) -> Drawn:
        return self._column("f", "float")

    def date(self, depth: int) -> Drawn:
        if depth > 0 and self._random.random() < 0.3:
            return self._case(depth, lambda _: self._column("day", "date"))
        return self._column("day", "date")

    def text(self, depth: int) -> Drawn:
        if depth <= 0:
            if self._random.random() < 0.7:
                return self._column("s", "text")
            text = self._random.choice(TEXTS)
            return Drawn(quoted(text), "text", lambda row: text)
        choice = self._random.randrange(9)
        if choice == 0:
            left, right = self.text(depth - 1), self.whole(depth - 1)

            def joined(row: Row) -> Any:
                one, other = both(left, right, row)
                return None if one is None or other is None else f"{one}{other}"

            return Drawn(f"({left.text} || ({right.text}))", "text", joined)
        if choice == 1:
            return self._case(depth, self.text)
        if choice == 2:
            pattern = self._random.choice(list(PATTERNS))
            shown = pattern.replace("'", "''")
            part = self._column("at", "time")
            return Drawn(
                f"date_format(at, '{shown}')", "text", mapped(part, lambda at: written(at, pattern))
            )
        if choice == 3:
            part = self.text(depth - 1)
            return Drawn(f"substring({part.text}, 1, 2)", "text", mapped(part, java_substring))
        if choice == 4:
            part = self.text(depth - 1)

            def digest(text: str) -> str:
                return hashlib.sha256(text.encode()).hexdigest()

            return Drawn(f"sha256({part.text})", "text", mapped(part, digest))
        if choice == 5:
            part = self.exact(depth - 1)
            return Drawn(f"CAST({part.text} AS STRING)", "text", mapped(part, lambda v: f"{v:f}"))
        name, function = self._random.choice(
            [("upper", str.upper), ("left", lambda t: t[:2]), ("trim", lambda t: t.strip(" "))]
        )
        if name == "left":
            part = self.text(depth - 1)
            return Drawn(f"left({part.text}, 2)", "text", mapped(part, function))
        return Drawn(*self._of_text(name, function, depth, "text"))

    def _of_text(
        self, name: str, function: Callable[[str], Any], depth: int, kind: str
    ) -> tuple[str, str, Callable[[Row], Any]]:
        part = self.text(depth - 1)
        return f"{name}({part.text})", kind, mapped(part, function)

    @staticmethod
    def _column(name: str, kind: Any) -> Drawn:
        return Drawn(name, kind, lambda row: row[name])


def java_substring(text: str) -> str:
    if len(text) < 2:
        raise RowFailure
    return text[1:2]


def written(at: datetime.datetime, pattern: str) -> str:
    form = PATTERNS[pattern]
    if form is None:
        return f"{at:%a} {at:%b} {at.day}"
    return at.strftime(form.replace("%Y", f"{at.year:04}"))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def mapped(part: Drawn, function: Callable[[Any], Any]) -> Callable[[Row], Any]:
    def value(row: Row) -> Any:
        found = part.value(row)
        return None if found is None else function(found)

    return value


def both(left: Drawn, right: Drawn, row: Row) -> tuple[Any, Any]:
    """Both values; both are looked at, even when the first is null."""
    return left.value(row), right.value(row)


def wider(left: Drawn, right: Drawn) -> str:
    return "long" if "long" in (left.kind, right.kind) else "int"


def calculated(operator: str, one: Any, other: Any) -> Any:
    return {"+": one + other, "-": one - other, "*": one * other}[operator]


def negated(value: Any) -> Any:
    return None if value is None else not value


def conjunction(one: Any, other: Any) -> Any:
    if other is False:
        return False
    return None if one is None or other is None else True


def compared(operator: str, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    if isinstance(one, float):
        one, other = ordered(one), ordered(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return {
        "=": one == other,
        "<>": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }[operator]


def ordered(value: float) -> tuple[bool, float]:
    return (True, 0.0) if value != value else (False, value)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    arrays = [pa.array([row[name] for row in rows], arrow_type(TYPES[name])) for name in COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


@given(seed=st.integers(0, 2**40))
@profile()
def test_columns_and_rows_agree(seed: int) -> None:
    maker = Maker(seed)
    rows = maker.rows(25)
    batch = batch_of(rows)
    for depth in (1, 2, 3):
        for drawn in (maker.condition(depth), maker.any(depth)):
            if not any(name in drawn.text for name in COLUMNS):
                continue
            wanted = []
            for row in rows:
                try:
                    wanted.append(drawn.value(row))
                except RowFailure:
                    wanted.append(RowFailure)
            try:
                expression = Expression.plan(drawn.text, TYPES)
            except InvalidRequestError as error:
                # a part of constants that fails is found when planned
                if re.search("too short|out of range|division by zero", str(error)) is None:
                    raise
                continue
            found = expression.evaluate(batch)
            assert found.values.type == arrow_type(expression.type), drawn.text
            assert shown(found) == wanted, drawn.text
            cut = [
                value
                for start in range(0, 25, 7)
                for value in shown(expression.evaluate(batch.slice(start, 7)))
            ]
            assert cut == wanted, drawn.text


def shown(found: Any) -> list[Any]:
    """Values, and `RowFailure` where the row has none."""
    values = found.values.to_pylist()
    for row in found.failed.tolist():
        values[row] = RowFailure
    return values
