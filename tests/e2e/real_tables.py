# SPDX-License-Identifier: Apache-2.0
"""Tables of a database under test, described once: their SQL, values for them, random changes.

A column says which SQL literals its rows take and, where the lake holds another form than the
driver gives, by which SQL expression the database itself says what the lake must hold.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Any

NOT_COMPARED = "not compared"


@dataclasses.dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: of it.
        type: in SQL, as in CREATE TABLE.
        literals: SQL expressions of values; NULL is added where the column may be null.
        seen: SQL expression of what the lake holds, `{}` for the column; `NOT_COMPARED` where no
            ruling says what it holds.
    """

    name: str
    type: str
    literals: tuple[str, ...]
    seen: str = "{}"


@dataclasses.dataclass(frozen=True)
class RealTable:
    """One table: a key column or several, then the rest.

    Attributes:
        name: of it.
        columns: without the key's.
        key: names and types of the key's columns; the first `int` one counts up.
        after: statements that follow its creation.
        touched: columns that updates set; empty = all.
        keeps_key: no random change of keys.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[tuple[str, str], ...] = (("id", "int"),)
    after: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    keeps_key: bool = False

    def altered(self, *, without: str = "", plus: Sequence[Column] = ()) -> "RealTable":
        """The table after ALTER TABLE: columns that are replaced, added or gone."""
        new = {column.name: column for column in plus}
        kept = [new.pop(c.name, c) for c in self.columns if c.name != without]
        return dataclasses.replace(self, columns=(*kept, *new.values()))

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key)

    def create(self) -> Iterator[str]:
        """The statements that make it."""
        parts = [f"{name} {type_} NOT NULL" for name, type_ in self.key]
        parts += [f"{column.name} {column.type}" for column in self.columns]
        parts.append(f"PRIMARY KEY ({', '.join(self.key_names)})")
        yield f"CREATE TABLE {self.name} ({', '.join(parts)})"
        yield from self.after

    def insert(self, number: int, rng: random.Random | None = None) -> str:
        """An INSERT of row `number`.

        Args:
            number: of the row, and by it its key.
            rng: chooses the values; None = literal `number` of each column, NULL after the last.
        """
        return self.insert_rows([number], rng)

    def insert_rows(self, numbers: Sequence[int], rng: random.Random | None = None) -> str:
        """One INSERT of rows, each as `insert` has it."""
        names = [*self.key_names, *(column.name for column in self.columns)]
        rows = (
            [*self.key_of(number), *(self._value(c, number, rng) for c in self.columns)]
            for number in numbers
        )
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"INSERT INTO {self.name} ({', '.join(names)}) VALUES {values}"

    def update(self, numbers: Sequence[int], rng: random.Random) -> str:
        """An UPDATE of one to all columns of some rows."""
        may = [column for column in self.columns if not self.touched or column.name in self.touched]
        chosen = rng.sample(may, rng.randint(1, len(may)))
        sets = ", ".join(f"{c.name} = {self._value(c, numbers[0], rng)}" for c in chosen)
        return f"UPDATE {self.name} SET {sets} WHERE {self.where(*numbers)}"

    def delete(self, numbers: Sequence[int]) -> str:
        """A DELETE of some rows."""
        return f"DELETE FROM {self.name} WHERE {self.where(*numbers)}"

    def change_key(self, number: int, to: int) -> str:
        """An UPDATE that gives row `number` the key of row `to`."""
        sets = zip(self.key_names, self.key_of(to), strict=True)
        joined = ", ".join(f"{name} = {value}" for name, value in sets)
        return f"UPDATE {self.name} SET {joined} WHERE {self.where(number)}"

    def where(self, *numbers: int) -> str:
        """The condition for rows."""
        keys = (zip(self.key_names, self.key_of(number), strict=True) for number in numbers)
        return " OR ".join(" AND ".join(f"{n} = {value}" for n, value in key) for key in keys)

    def key_of(self, number: int) -> list[str]:
        """SQL literals of the key of row `number`."""
        texts = {"int": str(number), "bigint": str(number * 2**33)}
        return [texts.get(type_, f"'k{number % 7}'") for _, type_ in self.key]

    def select(self) -> str:
        """A SELECT of the key and all compared columns, as the lake must hold them."""
        wanted = [*self.key_names]
        wanted += [f"{c.seen.format(c.name)} AS {c.name}" for c in self.compared]
        return f"SELECT {', '.join(wanted)} FROM {self.name}"

    @property
    def compared(self) -> list[Column]:
        """The columns besides the key that `select` has."""
        return [column for column in self.columns if column.seen != NOT_COMPARED]

    def _value(self, column: Column, number: int, rng: random.Random | None) -> str:
        if rng is not None:
            return rng.choice((*column.literals, "NULL"))
        number %= len(column.literals) + 1
        return "NULL" if number == len(column.literals) else column.literals[number]


class RandomChanges:
    """Random transactions over tables, through a DB-API cursor; knows which rows live.

    Args:
        tables: with numbered rows.
        seed: of everything.
        several: share of the statements that touch up to five rows.
    """

    def __init__(self, tables: Sequence[RealTable], seed: int, several: float = 0.0) -> None:
        self._tables = tables
        self._rng = random.Random(seed)
        self._several = several
        self._live: dict[str, set[int]] = {table.name: set() for table in tables}
        self._next = dict.fromkeys(self._live, 1)

    def fill(self, cursor: Any, rows: int) -> None:
        """The first rows of every table: each literal in turn."""
        for table in self._tables:
            for _ in range(rows):
                cursor.execute(table.insert(self._new(table.name)))

    @property
    def tables(self) -> list[RealTable]:
        """As they are now."""
        return list(self._tables)

    def alter(self, cursor: Any, statement: str, table: RealTable) -> None:
        """Run a DDL statement; `table` is what its table is then, or a table that it made."""
        send(cursor, statement)
        if table.name not in self._live:
            self._live[table.name], self._next[table.name] = set(), 1
            self._tables = [*self._tables, table]
        self._tables = [table if each.name == table.name else each for each in self._tables]

    def truncate(self, cursor: Any, statement: str, *names: str) -> None:
        """Run a statement that empties tables."""
        send(cursor, statement)
        for name in names:
            self._live[name].clear()

    def run(self, cursor: Any, transactions: int) -> None:
        """Transactions of 1-6 statements, each sent at once; a tenth is rolled back."""
        for _ in range(transactions):
            kept = {name: set(rows) for name, rows in self._live.items()}
            count = self._rng.randint(1, 6)
            statements = [self._statement(self._rng.choice(self._tables)) for _ in range(count)]
            if self._rng.random() < 0.1:
                statements.append("ROLLBACK")
                self._live = kept
            else:
                statements.append("COMMIT")
            send(cursor, "; ".join(("BEGIN", *statements)))

    def _statement(self, table: RealTable) -> str:
        live, dice = self._live[table.name], self._rng.random()
        several = bool(self._several) and self._rng.random() < self._several
        count = self._rng.randint(2, 5) if several else 1
        if len(live) < count or dice < 0.3:
            return table.insert_rows([self._new(table.name) for _ in range(count)], self._rng)
        if dice >= 0.92 and not table.keeps_key:
            count = 1
        numbers = self._rng.sample(sorted(live), count)
        if dice < 0.8:
            return table.update(numbers, self._rng)
        live.difference_update(numbers)
        if dice < 0.92 or table.keeps_key:
            return table.delete(numbers)
        return table.change_key(numbers[0], self._new(table.name))

    def _new(self, name: str) -> int:
        number = self._next[name]
        self._next[name] += 1
        self._live[name].add(number)
        return number


def send(cursor: Any, statements: str) -> None:
    """Run statements between semicolons in one round trip; the first error of any is raised."""
    cursor.execute(statements)
    while cursor.nextset():
        pass
