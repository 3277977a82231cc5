# SPDX-License-Identifier: Apache-2.0
"""MySQL column types, as `mysqlType` and JDBC's `sqlType` name them, to Paimon types.

Rulings: an unsigned type takes the next wider one, BIGINT UNSIGNED DECIMAL(20, 0); TINYINT(1) stays
a number, because it may hold more than 0 and 1; BIT(1) is BOOLEAN, longer BITs are numbers;
TIMESTAMP is without zone, because events carry the session's wall clock; what has no counterpart
(ENUM, SET, JSON) is STRING; spatial types are BYTES.
"""

import re

from ingest.formats.semantic_types import BIGINT, BOOLEAN, DOUBLE, STRING
from storage.format.types import MAX_LENGTH, AtomicType, TypeRoot

__all__ = ["jdbc_type", "mysql_type"]

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


def mysql_type(text: str) -> AtomicType:
    """Type of a column.

    Args:
        text: as in `SHOW COLUMNS`: `int(11) unsigned`, `decimal(10,2)`, `enum('a','b')`, in any
            case.

    Returns:
        A nullable type; STRING for what is not known.
    """
    match = _TYPE.match(text.lower())
    if match is None:
        return STRING
    name, inside, rest = match.groups()
    parts = [part.strip() for part in (inside or "").split(",")]
    numbers = [int(part) for part in parts if _NUMBER.fullmatch(part)]
    if name in _INTEGERS:
        signed, unsigned = _INTEGERS[name]
        return unsigned if "unsigned" in rest or "zerofill" in rest else signed
    if name in _DECIMALS:
        return _decimal(numbers)
    if name == "bit":
        return BOOLEAN if numbers in ([], [1]) else _bits(numbers[0])
    if name in _MOMENTS:
        return AtomicType(_MOMENTS[name], precision=numbers[0] if numbers else 0)
    if name in _LENGTHS:
        # without a length both are of one character or byte
        return AtomicType(_LENGTHS[name], length=max(1, numbers[0] if numbers else 1))
    return _PLAIN.get(name, STRING)


def _decimal(numbers: list[int]) -> AtomicType:
    precision, scale = [*numbers, 0][:2] if numbers else (10, 0)
    if precision > _MAX_PRECISION:
        return STRING
    return AtomicType(TypeRoot.DECIMAL, precision=precision, scale=scale)


def _bits(length: int) -> AtomicType:
    return BIGINT if length < 64 else _UNSIGNED_BIGINT


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
        A nullable type. JDBC does not tell unsigned integers apart, so they get the next wider type
        (BIGINT stays); decimals are STRING, because their scale is not known.
    """
    return _JDBC.get(code, STRING)
