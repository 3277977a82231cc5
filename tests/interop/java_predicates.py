# SPDX-License-Identifier: Apache-2.0
"""Conditions as objects of Apache Paimon's Java classes.

py4j turns boxed numbers into Python's and back into whatever fits, so literals that Java wants
boxed in a certain way are parsed in the JVM.
"""

import decimal
import json
from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import JavaGateway

from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    normalised,
)

__all__ = ["JavaPredicates"]

FUNCTIONS = {
    Op.EQ: "Equal",
    Op.NE: "NotEqual",
    Op.LT: "LessThan",
    Op.LE: "LessOrEqual",
    Op.GT: "GreaterThan",
    Op.GE: "GreaterOrEqual",
}
BOXES = {
    TypeRoot.TINYINT: "Byte",
    TypeRoot.SMALLINT: "Short",
    TypeRoot.INT: "Integer",
    TypeRoot.DATE: "Integer",
    TypeRoot.TIME: "Integer",
    TypeRoot.BIGINT: "Long",
    TypeRoot.FLOAT: "Float",
    TypeRoot.DOUBLE: "Double",
}
FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
NANOS_PER_MS = 1_000_000


class JavaPredicates:
    """Makes conditions on one table.

    Args:
        gateway: of the JVM.
        row_type: Java's type of the rows.
        fields: the same columns.
    """

    def __init__(self, gateway: JavaGateway, row_type: Any, fields: Sequence[DataField]) -> None:
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._package = gateway.jvm.org.apache.paimon
        self._row_type = row_type
        self._fields = {field.name: (number, field) for number, field in enumerate(fields)}

    def of(self, condition: Predicate) -> Any:
        """The condition; its literals are in the comparable form of `tests.golden.values`."""
        return self._of(normalised(condition))

    def _of(self, condition: Predicate) -> Any:
        match condition:
            case And(parts):
                return self._builder().__getattr__("and")(self._list(map(self._of, parts)))
            case Or(parts):
                return self._builder().__getattr__("or")(self._list(map(self._of, parts)))
            case Compare(op, column, literal):
                return self._leaf(FUNCTIONS[op], column, (literal,))
            case In(column, literals):
                return self._leaf("In", column, literals)
            case Not(In(column, literals)):
                return self._leaf("NotIn", column, literals)
            case IsNull(column):
                return self._leaf("IsNull", column, ())
            case Not(IsNull(column)):
                return self._leaf("IsNotNull", column, ())
            case _:
                raise NotImplementedError(condition)

    def _builder(self) -> Any:
        return self._package.predicate.PredicateBuilder

    def _leaf(self, function: str, column: str, literals: Sequence[Any]) -> Any:
        number, field = self._fields[column]
        assert isinstance(field.type, AtomicType)
        return self._package.predicate.LeafPredicate(
            getattr(self._package.predicate, function).INSTANCE,
            self._row_type.getTypeAt(number),
            number,
            column,
            self._literals(literals, field.type),
        )

    def _literals(self, values: Sequence[Any], type_: AtomicType) -> Any:
        """A list of Paimon's internal objects."""
        box = BOXES.get(type_.root)
        if box is None:
            return self._list(self._object(value, type_) for value in values)
        numbers = [float(value) for value in values] if type_.root in FLOATS else list(values)
        text = json.dumps(numbers).replace("Infinity", '"Infinity"').replace('-"', '"-')
        boxed = self._jvm.java.lang.Class.forName(f"java.lang.{box}")
        mapper = self._package.utils.JsonSerdeUtil.OBJECT_MAPPER_INSTANCE
        return mapper.readerForListOf(boxed).readValue(text)

    def _object(self, value: Any, type_: AtomicType) -> Any:
        data = self._package.data
        match type_.root:
            case TypeRoot.CHAR | TypeRoot.VARCHAR:
                return data.BinaryString.fromString(value)
            case TypeRoot.BINARY | TypeRoot.VARBINARY:
                return bytes.fromhex(value)
            case TypeRoot.DECIMAL:
                assert isinstance(value, decimal.Decimal)
                number = self._jvm.java.math.BigDecimal(f"{value:f}")
                return data.Decimal.fromBigDecimal(number, type_.precision, type_.scale)
            case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
                return data.Timestamp.fromEpochMillis(value // NANOS_PER_MS, value % NANOS_PER_MS)
            case _:
                return value

    def _list(self, items: Any) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made
