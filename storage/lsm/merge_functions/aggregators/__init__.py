# SPDX-License-Identifier: Apache-2.0
"""Aggregate functions of columns: the values of all rows of a key become one value.

Used by the merge engine `aggregation` and by sequence groups of `partial-update`. Source:
SEMANTICS.md §B.3, else the behaviour of Apache Paimon.
"""

from collections.abc import Callable, Mapping

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    TypeRoot,
)
from storage.lsm.merge_functions.aggregators.collect import (
    Collect,
    MergeMap,
    MergeMapWithKeyTime,
    NestedPartialUpdate,
    NestedUpdate,
)
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    Aggregator,
    wrong_type,
)
from storage.lsm.merge_functions.aggregators.sketches import SetUnion
from storage.lsm.merge_functions.aggregators.values import (
    FLOATS,
    INTEGERS,
    Extreme,
    FirstValue,
    LastValue,
    ListAgg,
    PrimaryKey,
    Product,
    Sum,
)
from storage.options.options import option_value

__all__ = ["Aggregator", "aggregator_for"]

_Make = Callable[[DataField, str, Mapping[str, str]], AggregateFunction]
_Takes = Callable[[DataType], bool]


def _plain(
    make: Callable[[DataField, str], AggregateFunction],
    takes: _Takes | None = None,
    types: str = "",
) -> tuple[_Make, _Takes | None, str]:
    """A function without options: how it is made, which types it takes, and their name."""
    return lambda field, name, options: make(field, name), takes, types


def _atomic(*roots: TypeRoot) -> _Takes:
    return lambda type_: isinstance(type_, AtomicType) and (not roots or type_.root in roots)


def _is_a(kind: type) -> _Takes:
    return lambda type_: isinstance(type_, kind)


_NUMBERS = (_atomic(*INTEGERS, *FLOATS, TypeRoot.DECIMAL), "'NumericType'")
_BOOLEANS = (_atomic(TypeRoot.BOOLEAN), "'BooleanType'")
_BYTES = (_atomic(TypeRoot.VARBINARY), "'VarBinaryType'")

_FUNCTIONS: dict[str, tuple[_Make, _Takes | None, str]] = {
    "primary-key": _plain(PrimaryKey),
    "last_value": _plain(LastValue),
    "last_non_null_value": _plain(LastValue),
    "first_value": _plain(FirstValue),
    "first_non_null_value": _plain(FirstValue),
    "first_not_null_value": _plain(FirstValue),
    "sum": _plain(Sum, *_NUMBERS),
    "product": _plain(Product, *_NUMBERS),
    "max": _plain(Extreme, _atomic(), "comparable"),
    "min": _plain(Extreme, _atomic(), "comparable"),
    "bool_and": _plain(Extreme, *_BOOLEANS),
    "bool_or": _plain(Extreme, *_BOOLEANS),
    "listagg": (ListAgg.of, None, ""),
    "collect": (Collect.of, _is_a(ArrayType), "'Array'"),
    "merge_map": _plain(MergeMap, _is_a(MapType), "'MAP'"),
    "merge_map_with_keytime": (MergeMapWithKeyTime.of, None, ""),
    "nested_update": (NestedUpdate.of, None, ""),
    "nested_partial_update": (NestedPartialUpdate.of, None, ""),
    "rbm32": _plain(SetUnion, *_BYTES),
    "rbm64": _plain(SetUnion, *_BYTES),
    "hll_sketch": _plain(SetUnion, *_BYTES),
    "theta_sketch": _plain(SetUnion, *_BYTES),
}


_REMOVED_NAMES = {
    "count": "use `sum` and write 1, or 0 for null: what is stored of `count` are such sums"
}
"""Functions that a version of Paimon or of Lakeward had, and what to do instead."""


def aggregator_for(
    function: str, field: DataField, options: Mapping[str, str], schema: TableSchema
) -> Aggregator:
    """The aggregate function of a column, checked before any row.

    Args:
        function: its name, from `fields.<f>.aggregate-function`.
        field: the column.
        options: of the table, as texts; those of the column are `fields.<f>.…`.
        schema: of the table, for messages.

    Raises:
        InvalidOptionError: there is no such function, it does not take the type of the column, or
            its options contradict each other.
    """
    name = function.strip()
    if name not in _FUNCTIONS:
        raise InvalidOptionError(
            f"Use unsupported aggregation: {function} or spell aggregate function incorrectly!",
            hint=_REMOVED_NAMES.get(function.strip())
            or "use one of " + ", ".join(sorted(set(_FUNCTIONS) - {"primary-key"})),
            option=f"fields.{field.name}.aggregate-function",
            field=field.name,
            schema_id=schema.id,
        )
    make, takes, types = _FUNCTIONS[name]
    if takes is not None and not takes(field.type):
        raise wrong_type(name.replace("_", " "), types, field)
    aggregate = make(field, name, options)
    ignore_retract = f"fields.{field.name}.ignore-retract"
    if not option_value(options, ignore_retract):
        return Aggregator(aggregate)
    if option_value(options, "aggregation.remove-record-on-delete"):
        raise InvalidOptionError(
            f"aggregation.remove-record-on-delete and {ignore_retract} have conflicting behavior "
            "so should not be enabled at the same time",
            hint="remove one of the two options",
            option=ignore_retract,
            field=field.name,
        )
    return Aggregator(aggregate, ignore_retract=True)
