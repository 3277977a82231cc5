# SPDX-License-Identifier: Apache-2.0
"""Fifteen DDL statements: columns added, widened, dropped and renamed, new tables.

What a lake can follow differs by database: MariaDB's connector tells statements, so a renamed
column is the same column. PostgreSQL's tells only rows: the lake has a new column, and who renames
one in the source writes its rows again.
"""

from tests.e2e import mariadb_tables, postgres_tables
from tests.e2e.real_tables import Column, RealTable

ORDERS = RealTable(
    "orders",
    (
        Column("customer", "varchar(20)", ("'ann'", "'bob'", "''")),
        Column("qty", "int", ("1", "-2147483648", "2147483647")),
        Column("price", "decimal(8,2)", ("0.01", "-999999.99")),
        Column("note", "text", ("'gift'", "'é'")),
    ),
)
PLACES = RealTable(
    "places",
    (Column("town", "varchar(20)", ("'Aix'", "'Rom'")), Column("n", "int", ("1", "2"))),
)
PEOPLE = RealTable("people", (Column("called", "varchar(20)", ("'Zoë'", "'x'")),))
MADE = (PLACES, PEOPLE)
"""Tables that the statements make."""

Step = tuple[str, RealTable]


def history(database: str, publication: str) -> list[Step]:
    """The statements in their order, each with what its table is then.

    Args:
        database: `postgres` or `mariadb`.
        publication: of PostgreSQL's connector; new tables are added to it.
    """
    postgres = database == "postgres"
    described = postgres_tables if postgres else mariadb_tables
    tables = {each.name: each for each in (ORDERS, described.NUMBERS, described.TEXTS)}
    retype = "ALTER COLUMN {0.name} TYPE {0.type}" if postgres else "MODIFY {0.name} {0.type}"
    publish = f"; ALTER PUBLICATION {publication} ADD TABLE {{0}}" if postgres else ""
    touch = "; UPDATE {0} SET {1} = {1}" if postgres else ""

    def create(table: RealTable) -> Step:
        tables[table.name] = table
        return "; ".join(table.create()) + publish.format(table.name), table

    def changed(name: str, statement: str, column: Column, without: str = "") -> Step:
        tables[name] = tables[name].altered(without=without, plus=[column])
        return f"ALTER TABLE {name} {statement.format(column)}", tables[name]

    def add(name: str, column: Column) -> Step:
        return changed(name, "ADD COLUMN {0.name} {0.type}", column)

    def widen(name: str, column: str, type_: str, *more: str) -> Step:
        old = column_of(tables[name], column)
        return changed(name, retype, Column(column, type_, (*old.literals, *more), old.seen))

    def rename(name: str, old: str, new: str) -> Step:
        found = column_of(tables[name], old)
        renamed = Column(new, found.type, found.literals, found.seen)
        statement, table = changed(name, f"RENAME COLUMN {old} TO {new}", renamed, without=old)
        return statement + touch.format(name, new), table

    def drop(name: str, column: str) -> Step:
        tables[name] = tables[name].altered(without=column)
        return f"ALTER TABLE {name} DROP COLUMN {column}", tables[name]

    small, large = ("r", "double precision") if postgres else ("i", "bigint")
    return [
        *described.EVOLUTION,
        add("orders", Column("remark", "varchar(30)", ("'x'", "'longer'"))),
        widen("orders", "qty", "bigint", "9223372036854775807"),
        create(PLACES),
        rename("orders", "customer", "buyer"),
        widen("orders", "price", "decimal(12,4)", "12345678.1234"),
        add("places", Column("weight", "double precision", ("0", "1.1", "-1.7e308"))),
        drop("orders", "note"),
        create(PEOPLE),
        widen("texts", "v", "varchar(80)", "'twenty characters and more'"),
        rename("places", "n", "number_of"),
        add("people", Column("born", "date", ("'1969-12-31'", "'2024-02-29'"))),
        widen("numbers", small, large, "4294967296"),
    ]


def column_of(table: RealTable, name: str) -> Column:
    """Its column of a name."""
    return next(column for column in table.columns if column.name == name)
