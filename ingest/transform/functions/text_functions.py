# SPDX-License-Identifier: Apache-2.0
"""Functions of texts. Positions and lengths count characters (code points).

`substring` and `truncate` are those of Paimon's CDC (Java's: from 0, end excluded, and a text that
is too short has no result); `substr`, `left` and `right` are SQL's (from 1, and never fail).
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.transform.functions.arithmetic import (
    BOOLEAN,
    INT,
    STRING,
    Kernel,
    Partial,
    Planned,
    Values,
    checked,
    is_bytes,
    is_integer,
    is_text,
    mask_of,
    strict_cast,
    truncated,
)
from ingest.transform.functions.call_site import MAX_ARGUMENTS, Function, Site, type_label
from storage.format.types.types import AtomicType, DataType, TypeRoot
from storage.table.scan.predicate import match_like


def _md5(data: Any) -> Any:
    return hashlib.md5(data, usedforsecurity=False)


ALGORITHMS: dict[str, Callable[[Any], Any]] = {"sha256": hashlib.sha256, "md5": _md5}
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_digests(column: pa.Array, algorithm: str, salt: bytes = b"") -> pa.Array:
    """Hexadecimal digests of strings (as UTF-8) or bytes, the salt in front; null stays null.

    Arrow has no such kernels: each distinct value goes through `hashlib`, straight from the
    column's buffer, in about a microsecond.
    """
    coded = column.dictionary_encode()
    digests = _digests(coded.dictionary, ALGORITHMS[algorithm], salt)
    return digests.take(coded.indices)


def _digests(column: pa.Array, make: Callable[[Any], Any], salt: bytes) -> pa.Array:
    count = len(column)
    if count == 0:
        return pa.array([], pa.string())
    _, ends, content = column.cast(pa.binary()).buffers()
    data = memoryview(b"" if content is None else content)
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + count + 1].tolist()
    base = make(salt)

    def digest(start: int, end: int) -> bytes:
        state = base.copy()
        state.update(data[start:end])
        return bytes(state.digest())

    raw = b"".join(map(digest, offsets[:-1], offsets[1:]))
    octets = np.frombuffer(raw, np.uint8)
    letters = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=1).tobytes()
    width = 2 * base.digest_size
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pc.if_else(column.is_valid(), pa.Array.from_buffers(pa.string(), count, buffers), None)


_WIDEST = 10_000


def _text(site: Site, index: int) -> Planned:
    """An argument that is a text, or NULL."""
    part = site.arguments[index]
    if part.type is None:
        return site.coerced(part, STRING)
    site.need(index, is_text, "a string")
    return part


def _as_text(site: Site, index: int) -> Planned:
    """An argument as text, whatever it is."""
    part = site.arguments[index]
    if part.type is None:
        return site.coerced(part, STRING)
    if is_text(part.type):
        return part
    kernel = strict_cast(part.type, STRING, site.zone)
    if kernel is None:
        raise site.error(f"{type_label(part.type)} cannot be cast to STRING", at=index)
    return site.result(STRING, kernel, [part])


def _of_text(site: Site, kernel: Kernel, type_: DataType = STRING) -> Planned:
    """A call on its first argument, a text."""
    return site.result(type_, kernel, [_text(site, 0)])


def _plain(syntax: str, meaning: str, function: Callable[..., Any], type_: AtomicType) -> Function:
    """A function of one text."""

    def plan(site: Site) -> Planned:
        return _of_text(site, function, type_)

    return Function(syntax, meaning, plan, (1, 1))


def _with_pattern(
    syntax: str, meaning: str, function: Callable[..., Any], type_: AtomicType
) -> Function:
    """A function of a text and a constant text."""

    def plan(site: Site) -> Planned:
        pattern = site.constant_text(1, "'abc'")
        return _of_text(site, lambda column: function(column, pattern), type_)

    return Function(syntax, meaning, plan)


def _trimmed(function: Callable[..., Any], name: str, ends: str) -> Function:
    def plan(site: Site) -> Planned:
        characters = site.constant_text(1, "' '") if site.has(1) else " "
        return _of_text(site, lambda column: function(column, characters))

    meaning = f"removes spaces, or the given characters, at {ends}"
    return Function(f"{name}(text [, characters])", meaning, plan, (1, 2))


def _concat(site: Site) -> Planned:
    parts = [_as_text(site, index) for index in range(len(site.arguments))]
    return site.result(
        STRING,
        lambda *values: pc.binary_join_element_wise(*(v.cast(pa.string()) for v in values), ""),
        parts,
    )


def _concat_ws(site: Site) -> Planned:
    separator = site.constant_text(0, "', '")
    parts = [_as_text(site, index) for index in range(1, len(site.arguments))]

    def kernel(*values: Values) -> Values:
        # Arrow's option to skip nulls loses rows that hold only nulls
        pieces = [pc.binary_join_element_wise(separator, value, "") for value in values]
        joined = pc.binary_join_element_wise(*(pc.fill_null(piece, "") for piece in pieces), "")
        return pc.utf8_slice_codeunits(joined, len(separator))

    return site.result(STRING, kernel, parts)


def _substring(site: Site) -> Planned:
    begin = site.whole_number(1, 0)
    end = site.whole_number(2, begin + 1) if site.has(2) else None
    return _of_text(site, _slice(begin, end))


def _slice(begin: int, end: int | None) -> Kernel:
    """Characters from `begin` up to `end`; texts that are shorter fail."""

    def kernel(column: pa.Array) -> Values | Partial:
        short = pc.less(pc.utf8_length(column), begin if end is None else end)
        slices = pc.utf8_slice_codeunits(column, begin, end)
        return checked(slices, mask_of(short), "the string is too short")

    return kernel


def _substr(site: Site) -> Planned:
    start = site.whole_number(1)
    length = site.whole_number(2, 0) if site.has(2) else None
    begin = start - 1 if start > 0 else start

    def kernel(column: pa.Array) -> Values:
        tail = pc.utf8_slice_codeunits(column, begin)
        return tail if length is None else pc.utf8_slice_codeunits(tail, 0, length)

    return _of_text(site, kernel)


def _leading_part(site: Site) -> Planned:
    count = site.whole_number(1, 0)
    return _of_text(site, lambda column: pc.utf8_slice_codeunits(column, 0, count))


def _right(site: Site) -> Planned:
    count = site.whole_number(1, 0)

    def kernel(column: pa.Array) -> Values:
        if count == 0:
            return pc.utf8_slice_codeunits(column, 0, 0)
        return pc.utf8_slice_codeunits(column, -count)

    return _of_text(site, kernel)


def _truncate(site: Site) -> Planned:
    part = site.arguments[0]
    type_ = part.type
    if is_text(type_) and isinstance(type_, AtomicType):
        return site.result(type_, _slice(0, site.whole_number(1, 0)), [part])
    site.need(0, _whole_or_decimal, "a whole number, a DECIMAL or a string")
    assert isinstance(type_, AtomicType)
    return site.result(type_, truncated(site.whole_number(1, 1), type_), [part])


def _whole_or_decimal(type_: DataType | None) -> bool:
    decimal = isinstance(type_, AtomicType) and type_.root is TypeRoot.DECIMAL
    return decimal or is_integer(type_)


def _replace(site: Site) -> Planned:
    old, new = site.constant_text(1, "'old'"), site.constant_text(2, "'new'")
    if not old:
        raise site.error("the string to replace is empty", at=1)
    return _of_text(site, lambda column: pc.replace_substring(column, old, new))


def _regexp_replace(site: Site) -> Planned:
    pattern, new = _expression(site, 1), site.constant_text(2, "'n'")
    new = new.replace("$", "\\")
    _try_call(site, lambda: pc.replace_substring_regex(pa.array(["x"]), pattern, new))
    return _of_text(site, lambda column: pc.replace_substring_regex(column, pattern, new))


def _expression(site: Site, index: int) -> str:
    pattern = site.constant_text(index, "'[0-9]+'")
    _try_call(site, lambda: pc.match_substring_regex(pa.array(["x"]), pattern))
    return pattern


def _try_call(site: Site, call: Callable[[], Any]) -> None:
    try:
        call()
    except pa.ArrowInvalid as error:
        raise site.error(
            f"not a regular expression: {error}", "RE2 has no look-around", 1
        ) from error


def _rlike(site: Site) -> Planned:
    pattern = _expression(site, 1)
    return _of_text(site, lambda column: pc.match_substring_regex(column, pattern), BOOLEAN)


def _like(*, ignore_case: bool) -> Callable[[Site], Planned]:
    def plan(site: Site) -> Planned:
        pattern = site.constant_text(1, "'a%'")
        escape = site.constant_text(2, "'\\'") if site.has(2) else "\\"
        if len(escape) != 1:
            raise site.error("an escape is one character", at=2)
        match = functools.partial(
            match_like, pattern=pattern, escape=escape, ignore_case=ignore_case
        )
        return _of_text(site, match, BOOLEAN)

    return plan


def _padded(function: Callable[..., Any], name: str) -> Function:
    def plan(site: Site) -> Planned:
        width = site.whole_number(1, 0)
        if width > _WIDEST:
            raise site.error(f"strings are padded to {_WIDEST} characters at most", at=1)
        padding = site.constant_text(2, "'0'") if site.has(2) else " "
        if len(padding) != 1:
            raise site.error("padding is one character", at=2)

        def kernel(column: pa.Array) -> Values:
            return pc.utf8_slice_codeunits(function(column, width, padding), 0, width)

        return _of_text(site, kernel)

    meaning = "padded or cut to n characters"
    return Function(f"{name}(text, n [, '0'])", meaning, plan, (2, 3))


def _split_part(site: Site) -> Planned:
    separator, number = site.constant_text(1, "','"), site.whole_number(2, 1)
    if not separator:
        raise site.error("the separator is empty", at=1)

    def kernel(column: pa.Array) -> Values:
        lists = pc.split_pattern(column, separator)
        enough = pc.fill_null(pc.greater_equal(pc.list_value_length(lists), number), False)
        starts = lists.offsets.to_numpy()[:-1] + (number - 1)
        where = pa.array(starts, pa.int64(), mask=~enough.to_numpy(zero_copy_only=False))
        parts = pc.fill_null(lists.values.take(where), "")
        return pc.if_else(column.is_valid(), parts, pa.scalar(None, pa.string()))

    return _of_text(site, kernel)


def _digest(algorithm: str) -> Function:
    def plan(site: Site) -> Planned:
        part = site.arguments[0]
        if not is_bytes(part.type):
            part = _as_text(site, 0)
        return site.result(STRING, lambda column: hex_digests(column, algorithm), [part])

    return Function(f"{algorithm}(text)", "hexadecimal digest", plan, (1, 1))


def _length(column: Values) -> Values:
    return pc.utf8_length(column).cast(pa.int32())


def _octet_length(site: Site) -> Planned:
    site.need(0, lambda type_: is_text(type_) or is_bytes(type_), "a string or bytes")
    return site.result(INT, lambda column: pc.binary_length(column).cast(pa.int32()))


def _constant(site: Site) -> Planned:
    return _as_text(site, 0)


TEXT_FUNCTIONS: dict[str, Function] = {
    "upper": _plain("upper(text)", "upper case", pc.utf8_upper, STRING),
    "lower": _plain("lower(text)", "lower case", pc.utf8_lower, STRING),
    "trim": _trimmed(pc.utf8_trim, "trim", "both ends"),
    "ltrim": _trimmed(pc.utf8_ltrim, "ltrim", "the beginning"),
    "rtrim": _trimmed(pc.utf8_rtrim, "rtrim", "the end"),
    "reverse": _plain("reverse(text)", "reversed", pc.utf8_reverse, STRING),
    "length": _plain("length(text)", "characters", _length, INT),
    "char_length": _plain("char_length(text)", "characters", _length, INT),
    "octet_length": Function("octet_length(text)", "bytes", _octet_length, (1, 1)),
    "concat": Function(
        "concat(a, b, …)", "joined; null if one is null", _concat, (1, MAX_ARGUMENTS)
    ),
    "||": Function("a || b", "joined; null if one is null", _concat),
    "concat_ws": Function(
        "concat_ws(', ', a, b, …)", "joined, without nulls", _concat_ws, (2, MAX_ARGUMENTS)
    ),
    "substring": Function(
        "substring(text, begin [, end])", "from 0, as in Java", _substring, (2, 3)
    ),
    "substr": Function("substr(text, start [, length])", "from 1, as in SQL", _substr, (2, 3)),
    "left": Function("left(text, n)", "the first n characters", _leading_part),
    "right": Function("right(text, n)", "the last n characters", _right),
    "truncate": Function(
        "truncate(value, width)", "the first characters, or down to a multiple", _truncate, (2, 2)
    ),
    "replace": Function("replace(text, 'old', 'new')", "`new` for each `old`", _replace, (3, 3)),
    "regexp_replace": Function(
        "regexp_replace(text, '[0-9]+', 'n')",
        "replaces every match; $1 is a group",
        _regexp_replace,
        (3, 3),
    ),
    "lpad": _padded(pc.utf8_lpad, "lpad"),
    "rpad": _padded(pc.utf8_rpad, "rpad"),
    "split_part": Function("split_part(text, ',', 1)", "n-th part or empty", _split_part, (3, 3)),
    "starts_with": _with_pattern(
        "starts_with(text, 'a')", "starts with it", pc.starts_with, BOOLEAN
    ),
    "ends_with": _with_pattern("ends_with(text, 'a')", "ends with it", pc.ends_with, BOOLEAN),
    "contains": _with_pattern("contains(text, 'a')", "contains it", pc.match_substring, BOOLEAN),
    "like": Function(
        "text LIKE 'a%'", "% is any text, _ one character", _like(ignore_case=False), (2, 3)
    ),
    "ilike": Function("text ILIKE 'a%'", "case-insensitive", _like(ignore_case=True), (2, 3)),
    "rlike": Function("text RLIKE '^a'", "a regular expression (RE2) matches", _rlike),
    "md5": _digest("md5"),
    "sha256": _digest("sha256"),
    "constant": Function("constant('text')", "the same string in every row", _constant, (1, 1)),
}
"""Functions of texts."""
