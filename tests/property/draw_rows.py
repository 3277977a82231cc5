# SPDX-License-Identifier: Apache-2.0
"""Drawing the rows of histories, so that time does not show where it must not.

`naive_table` lists what readers may see of the moment of flushes and compactions. Rows for free
histories keep away from it by what was written to the same key before.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

__all__ = ["KEY_POOLS", "OTHER_POOLS", "PARTITION_POOLS", "Pools", "RowSource", "Rules"]

Pools = dict[str, Sequence[Any]]

KEY_POOLS: Pools = {
    "BIGINT": (-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**40, 2**63 - 1),
    "INT": tuple(range(-2, 8)),
    "TINYINT": tuple(range(-3, 6)),
    "STRING": ("", "a", "a\0", "aa", "b", "é", "\uffff", "😀", "customer-1", "c" * 80),
    "DATE": ("1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01", "9999-12-31"),
    "TIMESTAMP(3)": (
        "1969-12-31T23:59:58.999",
        "1970-01-01T00:00:00.000",
        "2024-01-01T01:02:03.004",
    ),
    "DECIMAL(10, 2)": ("-1.50", "0.00", "0.01", "7.25", "12345678.90"),
    "DECIMAL(25, 2)": ("-1.50", "0.00", "99999999999999999999999.99", "7.25"),
    "BYTES": ("", "00", "61", "ff", "6100"),
    "BOOLEAN": (False, True),
}
PARTITION_POOLS: Pools = {
    "STRING": ("a", "", "x/y=z", None),
    "INT": (0, -1, 7),
    "DATE": ("1970-01-01", "2024-02-29"),
}
OTHER_POOLS: Pools = {
    "DOUBLE": (0.0, -0.5, 1e300, 3.25),
    "BOOLEAN": (False, True),
    "DATE": ("1969-12-31", "2024-02-29"),
    "TIMESTAMP(6)": ("1969-12-31T23:59:58.999999", "2024-01-01T01:02:03.000004"),
    "DECIMAL(20, 3)": ("-1.500", "0.000", "12345678901234567.125"),
    "BYTES": ("", "00ff", "61"),
    "ARRAY<INT>": ([], [1], [1, None, 3]),
    "ROW<m INT, n STRING>": ([1, "x"], [None, None], [2, None]),
}
_TEXTS = ("x", "y", "zz", "w" * 300, "héé")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How rows of a scenario look.

    Attributes:
        kinds: to draw from.
        sequence: sequence fields.
        descending: the smallest of them wins.
        floor: after a retraction with the greatest sequence of its key, no smaller ones follow.
        after_add: retractions only of keys that were added before.
        dies: no row of a key follows its `-D`, and `-D` carries nulls.
        groups: ordering fields, and what they protect; groups that do not count are null whole.
    """

    kinds: Sequence[str] = ("+I", "+I", "+U", "-U", "-D")
    sequence: Sequence[str] = ()
    descending: bool = False
    floor: bool = False
    after_add: bool = False
    dies: bool = False
    groups: Sequence[tuple[Sequence[str], Sequence[str]]] = ()


class RowSource:
    """Rows of one history.

    Args:
        chance: where they come from.
        columns: (name, SQL type) in order.
        key: the primary key.
        partition: partition columns.
        rules: of the scenario.
        kind_column: column that says the kind, or None.
    """

    def __init__(
        self,
        chance: random.Random,
        columns: Sequence[tuple[str, str]],
        key: Sequence[str],
        partition: Sequence[str],
        rules: Rules,
        kind_column: str | None,
    ) -> None:
        self._chance = chance
        self._columns = list(columns)
        self._key = tuple(key)
        self._rules = rules
        self._kind_column = kind_column
        self._pools = {
            name: (PARTITION_POOLS if name in partition else KEY_POOLS)[type_]
            for name, type_ in columns
            if name in partition or name in key
        }
        # a small part of each pool, so that keys meet
        self._pools = {
            name: tuple(chance.sample(pool, min(len(pool), chance.randint(2, 8))))
            for name, pool in self._pools.items()
        }
        for name in key:
            self._pools[name] = tuple(v for v in self._pools[name] if v is not None) or ("a",)
        self._added: set[Any] = set()
        self._dead: set[Any] = set()
        self._newest: dict[Any, tuple[tuple[Any, ...], bool]] = {}

    def add_column(self, name: str) -> None:
        """Rows have one more INT column from now on."""
        self._columns.append((name, "INT"))

    def rows(self, count: int, kinds: Sequence[str] | None = None) -> list[list[Any]]:
        """At most `count` rows, in arrival order."""
        drawn = (self._row(kinds or self._rules.kinds) for _ in range(count))
        return [row for row in drawn if row is not None]

    def key_value(self, column: str) -> Any:
        """A value of a key column that rows may have."""
        return self._chance.choice(self._pools[column])

    def refused(self) -> list[list[Any]]:
        """A row and its retraction, which no one who cannot take back accepts."""
        row = self._values()
        return [["+I", *row.values()], [self._chance.choice(["-U", "-D"]), *row.values()]]

    # ----------------------------------------------------------------------- one row

    def _row(self, kinds: Sequence[str]) -> list[Any] | None:
        chance, rules = self._chance, self._rules
        values = self._values()
        key = tuple(values[name] for name in self._key)
        kind = chance.choice(kinds)
        takes_back = kind in ("-U", "-D")
        if takes_back and rules.after_add and key not in self._added:
            kind, takes_back = "+I", False
        if rules.dies:
            if key in self._dead:
                return None
            if kind == "-D":
                self._dead.add(key)
                values.update((name, None) for name in values if name not in self._pools)
        self._in_groups(values)
        if rules.floor:
            self._in_sequence(key, values, takes_back=takes_back)
        if not takes_back:
            self._added.add(key)
        if self._kind_column is not None:
            values[self._kind_column] = kind
        return [kind, *values.values()]

    def _values(self) -> dict[str, Any]:
        chance = self._chance
        values: dict[str, Any] = {}
        for name, type_ in self._columns:
            if name in self._pools:
                values[name] = chance.choice(self._pools[name])
            elif chance.random() < 0.25:
                values[name] = None
            elif name in ("g", "h"):
                values[name] = chance.randint(0, 4)
            elif type_ == "STRING":
                values[name] = chance.choice(_TEXTS)
            elif type_ in OTHER_POOLS:
                values[name] = chance.choice(OTHER_POOLS[type_])
            else:
                values[name] = chance.randint(-9, 9)
        return values

    def _in_groups(self, values: dict[str, Any]) -> None:
        for ordering, protected in self._rules.groups:
            if all(values[name] is None for name in ordering):
                values.update((name, None) for name in protected)

    def _in_sequence(self, key: Any, values: dict[str, Any], *, takes_back: bool) -> None:
        """Keep to what a dropped delete would have decided."""
        fields = self._rules.sequence
        newest = self._newest.get(key)
        mine = self._rank(tuple(values[name] for name in fields))
        if newest is not None:
            greatest, gone = newest
            if mine < self._rank(greatest):
                if not gone:
                    return
                values.update(zip(fields, greatest, strict=True))
        self._newest[key] = (tuple(values[name] for name in fields), takes_back)

    def _rank(self, sequence: tuple[Any, ...]) -> tuple[Any, ...]:
        sign = -1 if self._rules.descending else 1
        return tuple((value is not None, sign * (value or 0)) for value in sequence)
