# SPDX-License-Identifier: Apache-2.0
"""Columns of random histories: types, values from small pools, and aggregate functions that fit."""

import dataclasses
import decimal
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from storage.lsm.merge_functions.aggregators.sketches import encode_java
from tests.conformance.id_sets import encoded

__all__ = ["RETRACTABLE", "Column", "aggregated", "key", "plain", "sequence"]

Draw = Callable[[random.Random], Any]

_DAY = 19_723
_MS = _DAY * 86_400_000
_WORDS = ("", " ", "a", "b", "A", "ä", "xyz", "a,b", "longer than sixteen characters")
_TABLE = "ARRAY<ROW<a INT, b STRING, c INT>>"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One value column.

    Attributes:
        name: of the column.
        type: as SQL writes it.
        draw: a value that is not null.
        options: table options about it.
        compared: `exactly`, `unordered` (an array whose order is undefined), or the kind of set
            (`rbm32`, `rbm64`, `hll_sketch`, `theta_sketch`) whose bytes may differ.
        nulls: share of nulls.
    """

    name: str
    type: str
    draw: Draw
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    compared: str = "exactly"
    nulls: float = 0.2

    def value(self, chance: random.Random) -> Any:
        """A value as `pyarrow.array` takes it for the type."""
        return None if chance.random() < self.nulls else self.draw(chance)


def _decimal(chance: random.Random) -> decimal.Decimal:
    return decimal.Decimal(chance.randint(-300, 300)) / 100


def _floating(chance: random.Random) -> float:
    return chance.choice((-2.5, -1.0, 0.0, 0.25, 1.0, 3.5, 1e10))


def _row(chance: random.Random) -> dict[str, Any]:
    return {
        "a": _or_null(chance, lambda c: c.randint(0, 3)),
        "b": _or_null(chance, lambda c: c.choice(_WORDS)),
        "c": _or_null(chance, lambda c: c.randint(0, 5)),
    }


def _keyed_row(chance: random.Random) -> dict[str, Any]:
    return _row(chance) | {"a": chance.randint(0, 3)}


def _or_null(chance: random.Random, draw: Draw) -> Any:
    return None if chance.random() < 0.15 else draw(chance)


def _many(draw: Draw, most: int = 3) -> Draw:
    return lambda chance: [draw(chance) for _ in range(chance.randint(0, most))]


def _stamped(chance: random.Random) -> list[tuple[int, Any]]:
    keys = chance.sample(range(4), chance.randint(0, 3))
    return [
        (k, {"x": chance.choice(_WORDS), "t": _or_null(chance, lambda c: f"{c.randint(1, 5)}")})
        for k in keys
    ]


def _map(chance: random.Random) -> list[tuple[int, Any]]:
    keys = chance.sample(range(4), chance.randint(0, 3))
    return [(key, _or_null(chance, lambda c: c.choice(_WORDS))) for key in keys]


def _ids(kind: str) -> Draw:
    def draw(chance: random.Random) -> bytes:
        found = sorted(chance.sample(range(50), chance.randint(1, 4)))
        if kind == "rbm64":  # Java reads no other layout
            return encode_java(np.array(found, np.uint64))
        return bytes(encoded({kind: found}))

    return draw


_PLAIN: Mapping[str, Draw] = {
    "INT": lambda c: c.randint(-4, 4),
    "BIGINT": lambda c: c.randint(-4, 4) * 10**12,
    "SMALLINT": lambda c: c.randint(-4, 4),
    "TINYINT": lambda c: c.randint(-4, 4),
    "STRING": lambda c: c.choice(_WORDS),
    "VARCHAR(40)": lambda c: c.choice(_WORDS),
    "DOUBLE": _floating,
    "FLOAT": _floating,
    "DECIMAL(10, 2)": _decimal,
    "DECIMAL(25, 3)": _decimal,
    "BOOLEAN": lambda c: c.random() < 0.5,
    "BYTES": lambda c: c.choice(_WORDS).encode(),
    "DATE": lambda c: _DAY + c.randint(0, 5),
    "TIMESTAMP(3)": lambda c: _MS + c.randint(0, 5),
    "TIMESTAMP(6)": lambda c: _MS * 1000 + c.randint(0, 5),
    "ARRAY<INT>": _many(lambda c: _or_null(c, lambda d: d.randint(0, 3))),
    "MAP<INT, STRING>": _map,
    "ROW<a INT, b STRING, c INT>": _row,
}
_ORDERED = (
    *("INT", "BIGINT", "SMALLINT", "TINYINT", "STRING", "DOUBLE", "FLOAT", "DECIMAL(10, 2)"),
    *("DECIMAL(25, 3)", "DATE", "TIMESTAMP(3)", "TIMESTAMP(6)"),
)
_NUMBERS = (
    *("INT", "BIGINT", "SMALLINT", "TINYINT", "DOUBLE", "FLOAT"),
    *("DECIMAL(10, 2)", "DECIMAL(25, 3)"),
)
_SEQUENCES = ("INT", "BIGINT", "DOUBLE", "DECIMAL(10, 2)", "DATE", "TIMESTAMP(3)", "TIMESTAMP(6)")

_FUNCTIONS: Mapping[str, Sequence[str]] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "max": _ORDERED,
    "min": _ORDERED,
    "last_value": tuple(_PLAIN),
    "last_non_null_value": tuple(_PLAIN),
    "first_value": tuple(_PLAIN),
    "first_non_null_value": tuple(_PLAIN),
    "first_not_null_value": tuple(_PLAIN),
    "listagg": ("STRING",),
    "bool_and": ("BOOLEAN",),
    "bool_or": ("BOOLEAN",),
    "collect": ("ARRAY<INT>",),
    "merge_map": ("MAP<INT, STRING>",),
    "merge_map_with_keytime": ("MAP<INT, ROW<x STRING, t STRING>>",),
    "nested_update": (_TABLE,),
    "nested_partial_update": (_TABLE,),
    "rbm32": ("BYTES",),
    "rbm64": ("BYTES",),
    "hll_sketch": ("BYTES",),
    "theta_sketch": ("BYTES",),
}
RETRACTABLE = frozenset(
    {
        *("sum", "product", "collect", "merge_map", "nested_update", "last_value"),
        "last_non_null_value",
    }
)
_SETS = frozenset({"rbm32", "rbm64", "hll_sketch", "theta_sketch"})


_KEYS = ("INT", "INT", "BIGINT", "STRING", "DECIMAL(25, 3)", "DATE", "TIMESTAMP(6)", "SMALLINT")


def key(name: str, chance: random.Random) -> Column:
    """A column of the primary key, of few values."""
    type_ = chance.choice(_KEYS)
    return Column(name, type_, _PLAIN[type_], nulls=0)


def plain(name: str, chance: random.Random) -> Column:
    """A column without options."""
    type_ = chance.choice(tuple(_PLAIN))
    return Column(name, type_, _PLAIN[type_])


def sequence(name: str, chance: random.Random, nulls: float = 0.15) -> Column:
    """A column that can order rows."""
    type_ = chance.choice(_SEQUENCES)
    return Column(name, type_, _PLAIN[type_], nulls=nulls)


def aggregated(name: str, chance: random.Random, *, retracts: bool) -> Column:
    """A column with an aggregate function.

    Args:
        name: of the column.
        chance: where values come from.
        retracts: only functions that take retractions, or ignore them.
    """
    function = chance.choice(tuple(_FUNCTIONS))
    type_ = chance.choice(_FUNCTIONS[function])
    options = {"aggregate-function": function}
    if retracts and (function not in RETRACTABLE or chance.random() < 0.15):
        options["ignore-retract"] = "true"
    draw, compared = _PLAIN.get(type_, _stamped), "exactly"
    if function in _SETS:
        draw, compared = _ids(function), function
    elif function in ("nested_update", "nested_partial_update"):
        draw, compared = _nested(function, chance, options)
    elif function == "product":
        draw = _factor(type_)
    elif function == "collect" and chance.random() < 0.5:
        options["distinct"] = "true"
        compared = "unordered"
    elif function == "listagg":
        if chance.random() < 0.5:
            options["list-agg-delimiter"] = chance.choice((";", "--", ","))
        if chance.random() < 0.3:
            options["distinct"] = "true"
    named = {f"fields.{name}.{key}": value for key, value in options.items()}
    return Column(name, type_, draw, named, compared)


def _factor(type_: str) -> Draw:
    if type_.startswith("DECIMAL"):
        return lambda c: decimal.Decimal(c.choice(("0.5", "1", "2", "-1")))
    if type_ in ("DOUBLE", "FLOAT"):
        return lambda c: c.choice((0.5, 1.0, 2.0, -1.0))
    return lambda c: c.choice((1, 1, 2, -1))


def _nested(function: str, chance: random.Random, options: dict[str, str]) -> tuple[Draw, str]:
    if function == "nested_update" and chance.random() < 0.4:
        if chance.random() < 0.4:
            options["count-limit"] = str(chance.randint(1, 4))
        return _many(_row), "exactly"
    options["nested-key"] = chance.choice(("a", "a,b"))
    if function == "nested_update" and chance.random() < 0.3:
        options["nested-sequence-field"] = "c"
    return _many(_keyed_row), "unordered"
