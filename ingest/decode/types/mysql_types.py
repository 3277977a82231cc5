# SPDX-License-Identifier: Apache-2.0
"""MySQL column types, as `mysqlType` and JDBC's `sqlType` name them, to Paimon types.

TiCDC omits lengths and precisions unless it is set to `content-compatible`, Canal where the
statement that created the column did. Such a type is open: text and bytes have no
limit, numbers and moments are as wide as their values show (`seen_type`).

Decisions: an unsigned type becomes the next wider one, BIGINT UNSIGNED DECIMAL(20, 0); TINYINT(1)
remains a number, because it may hold more than 0 and 1; BIT(1) is BOOLEAN, other BITs are numbers,
BIGINT if their length is not known; TIMESTAMP is without zone, because events carry the session's
wall clock; types without counterpart (ENUM, SET, JSON) are STRING; spatial types are BYTES.
"""

import dataclasses
import re

import msgspec

from ingest.decode.types.semantic_types import BIGINT, BOOLEAN, DOUBLE, STRING
from storage.format.types.types import MAX_LENGTH, AtomicType, TypeRoot

_TYPE = re.compile(r"\s*([a-z]+(?: precision| varying)?)\s*(?:\(([^)]*)\))?\s*(.*)", re.DOTALL)
_MAX_PRECISION = 38
_BYTES = AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH)
_TINYINT = AtomicType(TypeRoot.TINYINT)
_SMALLINT = AtomicType(TypeRoot.SMALLINT)
_INT = AtomicType(TypeRoot.INT)
_FLOAT = AtomicType(TypeRoot.FLOAT)
_UNSIGNED_BIGINT = AtomicType(TypeRoot.DECIMAL, precision=20, scale=0)

_INTEGERS = {
    "tinyint": (_TINYINT, _SMALLINT),
    "smallint": (_SMALLINT, _INT),
    "mediumint": (_INT, _INT),
    "int": (_INT, BIGINT),
    "integer": (_INT, BIGINT),
    "bigint": (BIGINT, _UNSIGNED_BIGINT),
    "serial": (_UNSIGNED_BIGINT, _UNSIGNED_BIGINT),
}
_PLAIN = {
    "float": _FLOAT,
    "double": DOUBLE,
    "double precision": DOUBLE,
    "real": DOUBLE,
    "bool": BOOLEAN,
    "boolean": BOOLEAN,
    "year": _INT,
    "date": AtomicType(TypeRoot.DATE),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint"), _BYTES),
    **dict.fromkeys(("multilinestring", "multipolygon", "geometrycollection"), _BYTES),
    "geomcollection": _BYTES,
}
_OPEN_INTEGERS = 20
"""Integer digits of a decimal whose precision is not known, as long as no value has more."""
_SINGLE_DIGITS = 24
"""The most binary digits of a FLOAT(p) that is no DOUBLE."""
_MAX_FRACTION = 9
_MOMENTS = {
    "time": TypeRoot.TIME,
    "datetime": TypeRoot.TIMESTAMP,
    "timestamp": TypeRoot.TIMESTAMP,
}
_LENGTHS = {
    "char": TypeRoot.VARCHAR,
    "varchar": TypeRoot.VARCHAR,
    "binary": TypeRoot.VARBINARY,
    "varbinary": TypeRoot.VARBINARY,
}
_NUMBER = re.compile("[0-9]{1,9}")
_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_ENUM = re.compile(r"\s*(enum|set)\s*\((.*)\)", re.DOTALL | re.IGNORECASE)
_MEMBER = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


@dataclasses.dataclass(frozen=True, slots=True)
class MysqlType:
    """What is known of a column.

    Attributes:
        type: nullable; of an open type the narrowest.
        is_open: whether its length or precision is not known.
        members: of an ENUM or SET, in their order.
        several: whether values may have more than one of them.
    """

    type: AtomicType
    is_open: bool = False
    members: tuple[str, ...] = ()
    several: bool = False


def mysql_type(text: str) -> MysqlType:
    """Type of a column.

    Args:
        text: as in `SHOW COLUMNS`: `int(11) unsigned`, `decimal(10,2)`, `enum('a','b')`, in any
            case.

    Returns:
        STRING for what is not known.
    """
    match = _TYPE.match(text.lower())
    if match is None:
        return MysqlType(STRING)
    name, inside, rest = match.groups()
    if name in ("enum", "set"):
        return MysqlType(STRING, members=_members(text), several=name == "set")
    if inside is None and (open_type := _OPEN.get(name)) is not None:
        return MysqlType(open_type, is_open=True)
    return MysqlType(_sized(name, inside, rest))


def _members(text: str) -> tuple[str, ...]:
    match = _ENUM.match(text)
    return () if match is None else tuple(map(_unescaped, _MEMBER.findall(match.group(2))))


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda m: _ESCAPES.get(m[1], m[1]) if m[1] else "'", text)


def _sized(name: str, inside: str | None, rest: str) -> AtomicType:
    parts = [part.strip() for part in (inside or "").split(",")]
    numbers = [int(part) for part in parts if _NUMBER.fullmatch(part)]
    if name in _INTEGERS:
        signed, unsigned = _INTEGERS[name]
        return unsigned if "unsigned" in rest or "zerofill" in rest else signed
    if name in _DECIMALS:
        return _decimal(numbers)
    if name == "bit":
        wide = bool(numbers) and numbers[0] >= 64
        return BOOLEAN if numbers == [1] else _UNSIGNED_BIGINT if wide else BIGINT
    if name in _MOMENTS:
        return AtomicType(_MOMENTS[name], precision=numbers[0] if numbers else 0)
    if name in _LENGTHS:
        return AtomicType(_LENGTHS[name], length=max(1, numbers[0] if numbers else 1))
    if name == "float" and len(numbers) == 1 and numbers[0] > _SINGLE_DIGITS:
        return DOUBLE
    return _PLAIN.get(name, STRING)


def _decimal(numbers: list[int]) -> AtomicType:
    precision, scale = [*numbers, 0][:2] if numbers else (10, 0)
    if precision > _MAX_PRECISION:
        return STRING
    return AtomicType(TypeRoot.DECIMAL, precision=precision, scale=scale)


_OPEN = {
    **dict.fromkeys(_DECIMALS, AtomicType(TypeRoot.DECIMAL, precision=_OPEN_INTEGERS, scale=0)),
    **{name: AtomicType(root, precision=0) for name, root in _MOMENTS.items()},
    **{name: STRING if root is TypeRoot.VARCHAR else _BYTES for name, root in _LENGTHS.items()},
    "bit": BIGINT,
}
_DIGITS = re.compile(r"-?0*(\d*)(?:\.(\d*))?", re.ASCII)
_FRACTION = re.compile(r"[^.]*\.(\d+)Z?", re.ASCII)


def seen_type(open_type: AtomicType, token: bytes) -> AtomicType:
    """An open type as wide as a value of it shows.

    Args:
        open_type: of the column.
        token: the value's JSON text, no null.

    Returns:
        The same type if the value requires no more, or is invalid.
    """
    text = msgspec.json.decode(token, type=str) if token[:1] == b'"' else token.decode("utf-8")
    root = open_type.root
    if root is TypeRoot.DECIMAL:
        return _seen_decimal(open_type, text)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIME):
        match = _FRACTION.fullmatch(text)
        digits = 0 if match is None else min(len(match.group(1)), _MAX_FRACTION)
        return dataclasses.replace(open_type, precision=max(open_type.precision, digits))
    return open_type


def _seen_decimal(open_type: AtomicType, text: str) -> AtomicType:
    match = _DIGITS.fullmatch(text)
    if match is None:
        return open_type
    scale = len(match.group(2) or "")
    precision = max(len(match.group(1)), _OPEN_INTEGERS) + scale
    if precision > _MAX_PRECISION:
        return open_type
    return dataclasses.replace(open_type, precision=precision, scale=scale)


_JDBC = {
    -7: BOOLEAN,
    16: BOOLEAN,
    -6: _SMALLINT,
    5: _INT,
    4: BIGINT,
    -5: BIGINT,
    7: _FLOAT,
    6: DOUBLE,
    8: DOUBLE,
    91: AtomicType(TypeRoot.DATE),
    92: AtomicType(TypeRoot.TIME, precision=6),
    93: AtomicType(TypeRoot.TIMESTAMP, precision=6),
    **dict.fromkeys((-2, -3, -4, 2004), _BYTES),
}


def jdbc_type(code: int) -> AtomicType:
    """Type of a column of which only JDBC's number is known.

    Returns:
        A nullable type. JDBC does not distinguish unsigned integers, so they get the next wider
        type (BIGINT stays); decimals are STRING, because their scale is not known.
    """
    return _JDBC.get(code, STRING)
