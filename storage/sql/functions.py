# SPDX-License-Identifier: Apache-2.0
"""Functions of Flink and Spark that DuckDB lacks, or has with another meaning, in DuckDB's SQL.

In a text `_1` is the first argument. Where there are several texts, the number of arguments chooses
one: the first is for `_1` alone, or for as many as it names.
"""

import functools
import re
from collections.abc import Mapping, Sequence

from sqlglot import exp, parse_one

from storage.sql.errors import refuse

_FIRSTS = "list_filter({0}, (x, i) -> list_position({0}, x) = i)"
"""The elements of a list without repetitions, in order."""

_BOTH = "list_concat(_1, _2)"
_ENTRIES = (
    "map_from_entries(list_transform(string_split(_1, _2), "
    "x -> row(split_part(x, _3, 1), split_part(x, _3, 2))))"
)
_NESTED = "json_type(_1, _2) IN ('OBJECT', 'ARRAY')"
_PARTS = "string_split(_1, _2)"
_TEXTS: Mapping[str, str | tuple[str, ...]] = {
    # conditions, numbers
    "isnull": "(_1 IS NULL)",
    "isnotnull": "(_1 IS NOT NULL)",
    "zeroifnull": "coalesce(_1, 0)",
    "nullifzero": "nullif(_1, 0)",
    "nanvl": "CASE WHEN isnan(CAST(_1 AS DOUBLE)) THEN _2 ELSE _1 END",
    "pmod": "(((_1 % _2) + _2) % _2)",
    "bround": ("round_even(_1, 0)", "round_even(_1, _2)"),
    "rint": "round_even(_1, 0)",
    "hypot": "sqrt(_1 * _1 + _2 * _2)",
    "positive": "_1",
    "e": "exp(1)",
    "rand_integer": "CAST(floor(random() * _1) AS INT)",
    "try_add": "TRY(_1 + _2)",
    "try_subtract": "TRY(_1 - _2)",
    "try_multiply": "TRY(_1 * _2)",
    "bigint": "CAST(_1 AS BIGINT)",
    "smallint": "CAST(_1 AS SMALLINT)",
    "tinyint": "CAST(_1 AS TINYINT)",
    "float": "CAST(_1 AS FLOAT)",
    "boolean": "CAST(_1 AS BOOLEAN)",
    # texts
    "octet_length": "length(hex(_1)) // 2",
    "btrim": ("trim(_1)", "trim(_1, _2)"),
    "regexp": "regexp_matches(_1, _2)",
    "regexp_substr": "nullif(regexp_extract(_1, _2), '')",
    "split_index": f"list_extract({_PARTS}, _3 + 1)",
    "substring_index": "CASE WHEN _3 > 0 THEN array_to_string(list_slice(string_split(_1, _2), 1, "
    "_3), _2) ELSE array_to_string(list_slice(string_split(_1, _2), _3, -1), _2) END",
    "find_in_set": "coalesce(list_position(string_split(_2, ','), _1), 0)",
    "format_string": "printf(*)",
    "format_number": "format('{:,.' || CAST(_2 AS VARCHAR) || 'f}', CAST(_1 AS DOUBLE))",
    "url_encode": "replace(url_encode(_1), '%20', '+')",
    "url_decode": "url_decode(replace(_1, '+', ' '))",
    "json_query": f"CASE WHEN {_NESTED} THEN CAST(json_extract(_1, _2) AS VARCHAR) END",
    "json_value": f"CASE WHEN NOT {_NESTED} THEN json_extract_string(_1, _2) END",
    "str_to_map": (
        _ENTRIES.replace("_2", "','").replace("_3", "':'"),
        _ENTRIES.replace("_3", "':'"),
        _ENTRIES,
    ),
    # times
    "to_timestamp_ltz": (
        "CAST(_1 AS TIMESTAMPTZ)",
        "to_timestamp(_1 / CASE _2 WHEN 0 THEN 1.0 ELSE 1000.0 END)",
    ),
    "timestamp_seconds": "to_timestamp(_1)",
    "timestamp_millis": "to_timestamp(_1 / 1000.0)",
    "timestamp_micros": "to_timestamp(_1 / 1000000.0)",
    "to_unix_timestamp": "CAST(epoch(CAST(_1 AS TIMESTAMPTZ)) AS BIGINT)",
    "current_row_timestamp": "now()",
    "from_utc_timestamp": "timezone(_2, timezone('UTC', CAST(_1 AS TIMESTAMP)))",
    "convert_tz": "strftime(timezone(_3, timezone(_2, CAST(_1 AS TIMESTAMP))), "
    "'%Y-%m-%d %H:%M:%S')",
    "date_from_unix_date": "(DATE '1970-01-01' + CAST(_1 AS INT))",
    "weekday": "(isodow(_1) - 1)",
    "dayname": "strftime(_1, '%a')",
    "monthname": "strftime(_1, '%b')",
    # lists, maps
    "size": "cardinality(_1)",
    "array_size": "cardinality(_1)",
    "element": "list_extract(_1, 1)",
    "get": "list_extract(_1, _2 + 1)",
    "forall": "(len(list_filter(_1, _2)) = len(_1))",
    "array_distinct": _FIRSTS.format("_1"),
    "array_union": _FIRSTS.format(_BOTH),
    "array_repeat": "list_transform(range(_2), x -> _1)",
    "arrays_overlap": "list_has_any(_1, _2)",
    "map_union": "map_concat(*)",
    "map_contains_key": "list_contains(map_keys(_1), _2)",
    # aggregates
    "kurtosis": "kurtosis_pop(_1)",
    "skewness": "skewness(_1) * (count(_1) - 2) / sqrt(count(_1) * (count(_1) - 1))",
    "every": "bool_and(_1)",
    "some": "bool_or(_1)",
}
"""By name, in lower case; `*` stands for all arguments."""

FUNCTIONS = frozenset(name.upper() for name in _TEXTS)
"""Names that are parsed as plain functions, to be translated here."""

_DEFAULT_FORMAT = "%Y-%mstrict-%dstrict %Hstrict:%Mstrict:%Sstrict"
"""How sqlglot reads UNIX_TIMESTAMP without a format."""

_OF_PATTERNS = (
    *(exp.TimeToStr, exp.StrToTime, exp.StrToDate, exp.StrToUnix, exp.UnixToStr, exp.TsOrDsToDate),
)
_DIRECTIVE = re.compile("%-?[A-Za-z](?:strict)?")
_ARGUMENT = re.compile(r"_(\d)")


def translate(tree: exp.Expr) -> None:
    """Replace the functions in a tree, innermost first."""
    for function in reversed(list(tree.find_all(exp.Func))):
        if isinstance(function, _OF_PATTERNS) and function.args.get("format") is not None:
            function.set("format", _pattern(function.args["format"]))
        new = _translated(function)
        if new is not None:
            function.replace(new)


def _translated(function: exp.Func) -> exp.Expr | None:
    match function:
        case exp.Anonymous():
            return _of_text(function.name.lower(), function.expressions)
        case exp.FirstValue() | exp.LastValue():
            if function.find_ancestor(exp.Window) is None:  # without OVER it is an aggregate
                kind = exp.First if isinstance(function, exp.FirstValue) else exp.Last
                return kind(this=function.this.copy())
        case exp.Exists(this=exp.Expr() as rows, expression=exp.Lambda() as condition):
            chosen = exp.Anonymous(this="list_filter", expressions=[rows.copy(), condition.copy()])
            return exp.paren(exp.GT(this=exp.Length(this=chosen), expression=exp.Literal.number(0)))
        case exp.StrToUnix() if function.text("format") == _DEFAULT_FORMAT:
            instant = exp.cast(function.this.copy(), exp.DType.TIMESTAMPTZ)  # in the session's zone
            return exp.cast(exp.Anonymous(this="epoch", expressions=[instant]), exp.DType.BIGINT)
        case exp.Substring() if str(function.args["start"]) in ("0", "'0'"):
            function.set("start", exp.Literal.number(1))  # as in Flink and Spark
        case exp.Cast() if function.to.this is exp.DType.TIMESTAMP and _is_fine(function.this):
            return exp.cast(function.this.copy(), exp.DType.TIMESTAMP_NS)
        case exp.Floor() | exp.Ceil() if function.args.get("to") is not None:
            return _of_unit(function)
        case _:
            pass
    return None


def _is_fine(node: exp.Expr) -> bool:
    """Whether it is the text of a time whose nanoseconds DuckDB's TIMESTAMP would cut off."""
    return isinstance(node, exp.Literal) and re.search(r"\.\d{7,}\s*\Z", node.this) is not None


def _pattern(node: exp.Expr) -> exp.Expr:
    """The pattern of a time for DuckDB; quoted texts and milliseconds are as they were written."""
    if not node.is_string:
        refuse("the pattern of a time is a text in quotes", node)
    parts = re.split("'((?:[^']|'')*)'", node.name)
    parts[::2] = [part.replace("S" * 9, "%n").replace("SSS", "%g") for part in parts[::2]]
    letters = re.search("[A-Za-z]+", _DIRECTIVE.sub("", " ".join(parts[::2])))
    if letters:
        hint = "write texts in single quotes, fractions as SSS, SSSSSS or SSSSSSSSS"
        refuse("this pattern of a time is not known", node, hint=hint, at=letters[0])
    parts[1::2] = [part.replace("%", "%%").replace("''", "'") or "'" for part in parts[1::2]]
    return exp.Literal.string("".join(parts))


def _of_unit(function: exp.Expr) -> exp.Expr:
    """Flink's `FLOOR(time TO unit)` and CEIL."""
    unit = exp.Literal.string(function.text("to").lower())
    start = exp.Anonymous(this="date_trunc", expressions=[unit, function.this.copy()])
    if isinstance(function, exp.Floor):
        return start
    step = exp.Interval(this=exp.Literal.string("1"), unit=exp.var(function.text("to")))
    return (
        exp.Case()
        .when(exp.EQ(this=start.copy(), expression=function.this.copy()), function.this.copy())
        .else_(exp.Add(this=start, expression=step))
    )


def _of_text(name: str, arguments: Sequence[exp.Expr]) -> exp.Expr | None:
    texts = _TEXTS.get(name)
    if texts is None:
        return None
    if isinstance(texts, str):
        texts = (texts,)
    for text in texts:
        if text.endswith("(*)"):
            return exp.Anonymous(this=text[:-3], expressions=[part.copy() for part in arguments])
        numbers = {int(number) for number in _ARGUMENT.findall(text)}
        if max(numbers, default=0) == len(arguments):
            return _filled(text, arguments)
    return None


def _filled(text: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    tree = _parsed(text).copy()
    for column in list(tree.find_all(exp.Column)):
        match = _ARGUMENT.fullmatch(column.name)
        if match is not None:
            new = arguments[int(match[1]) - 1].copy()
            if column is tree:
                return new
            column.replace(exp.paren(new) if isinstance(new, exp.Binary) else new)
    return tree


@functools.cache
def _parsed(text: str) -> exp.Expr:
    return parse_one(text, dialect="duckdb")
