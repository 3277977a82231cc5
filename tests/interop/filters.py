# SPDX-License-Identifier: Apache-2.0
"""Random conditions on a generated table: by the model, by us and by Java.

A condition is a `storage.table.scan.predicate` with literals in the comparable form of
`tests.golden.values`; `holds` gives it a meaning of its own, without the storage layer. Our readers
and Java's get it with literals of theirs.
"""

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any

from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.table.scan.predicate import And, Compare, In, IsNull, Not, Op, Or, Predicate
from storage.table.table import FileStoreTable
from tests.golden.values import Value, arrow_rows, difference
from tests.interop.generated_tables import SEED, Case
from tests.interop.generated_values import Chance
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.predicates import compares

__all__ = ["assert_filters", "conditions", "holds", "our_predicate"]

COUNT = 5
"""Conditions for each case."""

FLOATS = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})
BINARIES = frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY})
MOMENTS = frozenset({TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
NANOS_PER_SECOND = 10**9
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def assert_filters(
    java: JavaPeer | None, name: str, table: FileStoreTable, model: Model, case: Case
) -> None:
    """Fail unless we, and Java, find exactly the model's rows for some random conditions.

    Args:
        java: None: only we read.
        name: of the table, for Java.
        table: the same table, for us.
        model: what it holds.
        case: the case.
    """
    fields = table.schema.fields
    for condition in conditions(model, case):
        wanted = [row for row in model.rows() if holds(condition, row, fields)]
        found = arrow_rows(table.to_arrow(filter=our_predicate(condition, fields)), fields)
        text = difference(wanted, found)
        assert text is None, f"us on {case.name} where {condition}: {text}"
        if java is not None:
            read = java.read(name, condition=condition)
            text = difference(wanted, arrow_rows(read, java.fields(name)))
            assert text is None, f"Java on {case.name} where {condition}: {text}"


# ------------------------------------------------------------------------------- generating


def conditions(model: Model, case: Case, count: int = COUNT) -> list[Predicate]:
    """Random conditions on the columns of a table that have an order.

    Partition keys, primary keys and indexed columns come up more often. Literals are mostly
    values that the table holds.
    """
    chance = Chance(f"{SEED}-{case.number}-filters")
    fields = [field for field in model.fields() if isinstance(field.type, AtomicType)]
    special = {*case.partitions, *case.keys, "id", "c0"}
    weights = [4 if field.name in special else 1 for field in fields]
    rows = model.rows()

    def leaf() -> Predicate:
        field = chance.choices(fields, weights)[0]
        place = model.names.index(field.name)
        held = [row[place] for row in rows if _comparable(row[place], field)]
        if not held or chance.random() < 0.15:
            null = IsNull(field.name)
            return null if chance.random() < 0.5 else Not(null)
        if chance.random() < 0.3:
            chosen = tuple(dict.fromkeys(chance.choices(held, k=chance.choice((1, 3, 25)))))
            found = In(field.name, chosen)
            return found if chance.random() < 0.7 else Not(found)
        ops = (Op.EQ, Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)
        return Compare(chance.choice(ops), field.name, chance.choice(held))

    def tree(depth: int) -> Predicate:
        what = chance.random()
        if depth == 0 or what < 0.4:
            return leaf()
        parts = (tree(depth - 1), tree(depth - 1))
        if what < 0.65:
            return And(parts)
        return Or(parts) if what < 0.9 else Not(tree(depth - 1))

    return [leaf() if number == 0 else tree(2) for number in range(count)]


def _comparable(value: Value, field: DataField) -> bool:
    """Whether a value serves as a literal: no null, and none of the numbers with two meanings."""
    if value is None:
        return False
    assert isinstance(field.type, AtomicType)
    return field.type.root not in FLOATS or (value != "NaN" and float(value) != 0)


# ---------------------------------------------------------------------------------- meaning


def holds(condition: Predicate, row: Sequence[Value], fields: Sequence[DataField]) -> bool:
    """Whether SQL finds the condition true for a row in the comparable form."""
    places = {field.name: number for number, field in enumerate(fields)}
    return _truth(condition, row, fields, places) is True


def _truth(
    condition: Predicate,
    row: Sequence[Value],
    fields: Sequence[DataField],
    places: Mapping[str, int],
) -> bool | None:
    match condition:
        case And(parts):
            found = [_truth(part, row, fields, places) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [_truth(part, row, fields, places) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            truth = _truth(part, row, fields, places)
            return None if truth is None else not truth
        case IsNull(column):
            return row[places[column]] is None
        case Compare(op, column, literal):
            place = places[column]
            if row[place] is None:
                return None
            return compares(op, _key(row[place], fields[place]), _key(literal, fields[place]))
        case In(column, literals):
            place = places[column]
            if row[place] is None:
                return None
            key = _key(row[place], fields[place])
            return any(key == _key(literal, fields[place]) for literal in literals)
        case _:
            raise NotImplementedError(condition)


def _key(value: Value, field: DataField) -> Any:
    """What orders the values of a column: NaN comes after every number."""
    assert isinstance(field.type, AtomicType)
    if field.type.root not in FLOATS:
        return value
    return (1, 0.0) if value == "NaN" else (0, float(value))


# --------------------------------------------------------------------------------- for us


def our_predicate(condition: Predicate, fields: Sequence[DataField]) -> Predicate:
    """The condition with literals as `storage.table.scan.predicate` takes them."""
    types = {field.name: field.type for field in fields}

    def literal(column: str, value: Value) -> Any:
        type_ = types[column]
        assert isinstance(type_, AtomicType)
        return _our_literal(value, type_)

    match condition:
        case And(parts):
            return And(tuple(our_predicate(part, fields) for part in parts))
        case Or(parts):
            return Or(tuple(our_predicate(part, fields) for part in parts))
        case Not(part):
            return Not(our_predicate(part, fields))
        case Compare(op, column, value):
            return Compare(op, column, literal(column, value))
        case In(column, values):
            return In(column, tuple(literal(column, value) for value in values))
        case _:
            return condition


def _our_literal(value: Value, type_: AtomicType) -> Any:
    root = type_.root
    if root in FLOATS:
        return float(value)
    if root in BINARIES:
        return bytes.fromhex(value)
    if root is TypeRoot.DATE:
        return EPOCH.date() + datetime.timedelta(days=value)
    if root is TypeRoot.TIME:
        return (EPOCH + datetime.timedelta(milliseconds=value)).time()
    if root in MOMENTS:
        seconds, nanos = divmod(value, NANOS_PER_SECOND)
        moment = (EPOCH + datetime.timedelta(seconds=seconds)).replace(tzinfo=None)
        digits = 3 if type_.precision <= 3 else 6 if type_.precision <= 6 else 9
        zone = "Z" if root is TypeRoot.TIMESTAMP_LTZ else ""
        return f"{moment.isoformat(sep=' ')}.{nanos // 10 ** (9 - digits):0{digits}}{zone}"
    assert isinstance(value, (bool, int, str, decimal.Decimal))
    return value
