# SPDX-License-Identifier: Apache-2.0
"""Random values of every column type, as `pyarrow.array` takes them.

Times are integers in the unit of the Arrow type (days, milliseconds, …); decimals are
`decimal.Decimal`; maps and multisets lists of pairs; rows dictionaries.
"""

import decimal
import random
import string
from collections.abc import Callable
from typing import Any

from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    TypeRoot,
)

__all__ = ["ODD_TEXTS", "Chance", "random_value"]

ODD_TEXTS = (
    "a b",
    "x/y=z",
    "é中文",
    "%41%",
    "semi:colon",
    "#tag?",
    "back\\slash",
    "Z'quote\"",
    "-1",
)
"""Strings that need escaping in paths."""

LETTERS = string.ascii_letters + string.digits + " _é中😀"
INTEGER_BITS = {TypeRoot.TINYINT: 8, TypeRoot.SMALLINT: 16, TypeRoot.INT: 32, TypeRoot.BIGINT: 64}
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e10, float("inf"), float("-inf"), float("nan"), 2.0**-20)
NULL_CHANCE = 0.15
FIRST_DAY, LAST_DAY = -25_000, 80_000  # 1901 .. 2189: inside every calendar and every unit
SECOND_UNITS = {3: 10**3, 6: 10**6, 9: 10**9}


class Chance(random.Random):
    """A seeded source of values.

    Attributes:
        hollow_rows: whether a ROW may have nothing but nulls in it.
    """

    hollow_rows = True


def random_value(chance: Chance, type_: DataType) -> Any:
    """A value of a type; sometimes None where the type allows it."""
    if type_.nullable and chance.random() < NULL_CHANCE:
        return None
    if isinstance(type_, AtomicType):
        return _ATOMIC[type_.root](chance, type_)
    if isinstance(type_, ArrayType):
        return [random_value(chance, type_.element) for _ in range(chance.randrange(4))]
    if isinstance(type_, MapType):
        return [(key, random_value(chance, type_.value)) for key in _keys(chance, type_.key)]
    if isinstance(type_, MultisetType):
        return [(key, chance.randint(1, 9)) for key in _keys(chance, type_.element)]
    row = {field.name: random_value(chance, field.type) for field in type_.fields}
    hollow = all(value is None for value in row.values())
    return None if hollow and type_.nullable and not chance.hollow_rows else row


def _keys(chance: Chance, type_: DataType) -> list[Any]:
    found = [random_value(chance, type_) for _ in range(chance.randrange(4))]
    return list(dict.fromkeys(key for key in found if key is not None))


def _boolean(chance: Chance, _: AtomicType) -> bool:
    return chance.random() < 0.5


def _integer(chance: Chance, type_: AtomicType) -> int:
    limit = 2 ** (INTEGER_BITS[type_.root] - 1)
    if chance.random() < 0.1:
        return chance.choice((-limit, limit - 1, 0, -1))
    return chance.randrange(-limit, limit) >> chance.randrange(INTEGER_BITS[type_.root])


def _floating(chance: Chance, _: AtomicType) -> float:
    if chance.random() < 0.2:
        return chance.choice(FLOATS)
    return chance.randrange(-(2**20), 2**20) / 64


def _text(chance: Chance, length: int) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(length))


def _char(chance: Chance, type_: AtomicType) -> str:
    return _text(chance, type_.length).replace(" ", "_")


def _varchar(chance: Chance, type_: AtomicType) -> str:
    if chance.random() < 0.1 and type_.length > 100:
        return chance.choice(("", *ODD_TEXTS))
    return _text(chance, chance.randrange(min(type_.length, 20) + 1))


def _binary(chance: Chance, type_: AtomicType) -> bytes:
    return chance.randbytes(type_.length)


def _varbinary(chance: Chance, type_: AtomicType) -> bytes:
    return chance.randbytes(chance.randrange(min(type_.length, 20) + 1))


def _decimal(chance: Chance, type_: AtomicType) -> decimal.Decimal:
    precision, scale = type_.precision, type_.scale
    unscaled = chance.randrange(-(10**precision) + 1, 10**precision)
    unscaled //= 10 ** chance.randrange(precision)
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((sign, digits, -scale))


def _date(chance: Chance, _: AtomicType) -> int:
    return chance.randrange(FIRST_DAY, LAST_DAY)


def _time(chance: Chance, type_: AtomicType) -> int:
    unit: int = 10 ** (3 - min(type_.precision, 3))
    return chance.randrange(86_400_000) // unit * unit


def _timestamp(chance: Chance, type_: AtomicType) -> int:
    precision = type_.precision
    unit = next(unit for unit in SECOND_UNITS if precision <= unit)
    step: int = 10 ** (unit - precision)
    count = chance.randrange(FIRST_DAY * 86_400, LAST_DAY * 86_400) * SECOND_UNITS[unit]
    return (count + chance.randrange(SECOND_UNITS[unit])) // step * step


_ATOMIC: dict[TypeRoot, Callable[[Chance, AtomicType], Any]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _integer,
    TypeRoot.SMALLINT: _integer,
    TypeRoot.INT: _integer,
    TypeRoot.BIGINT: _integer,
    TypeRoot.FLOAT: _floating,
    TypeRoot.DOUBLE: _floating,
    TypeRoot.CHAR: _char,
    TypeRoot.VARCHAR: _varchar,
    TypeRoot.BINARY: _binary,
    TypeRoot.VARBINARY: _varbinary,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.DATE: _date,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
}
