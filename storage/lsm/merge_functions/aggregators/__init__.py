# SPDX-License-Identifier: Apache-2.0
"""Aggregate functions of columns: the values of all rows of a key become one value.

Used by the merge engine `aggregation` and by sequence groups of `partial-update`. Source:
SEMANTICS.md §B.3, and where that is silent what Apache Paimon does.
"""

from collections.abc import Callable, Mapping

from storage.errors import InvalidOptionError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField
from storage.lsm.merge_functions.aggregators.collect import Collect
from storage.lsm.merge_functions.aggregators.contract import Aggregator
from storage.lsm.merge_functions.aggregators.extremes import BoolFold, Extreme
from storage.lsm.merge_functions.aggregators.ignore_retract import IgnoreRetract
from storage.lsm.merge_functions.aggregators.listagg import ListAgg
from storage.lsm.merge_functions.aggregators.merge_map import MergeMap, MergeMapWithKeyTime
from storage.lsm.merge_functions.aggregators.nested import NestedPartialUpdate, NestedUpdate
from storage.lsm.merge_functions.aggregators.pick_value import (
    FirstNonNullValue,
    FirstValue,
    LastNonNullValue,
    LastValue,
    PrimaryKey,
)
from storage.lsm.merge_functions.aggregators.products import Product
from storage.lsm.merge_functions.aggregators.sketches import SetUnion
from storage.lsm.merge_functions.aggregators.sums import Sum
from storage.options.options import option_value

__all__ = ["Aggregator", "aggregator_for"]

_Maker = Callable[[DataField, str, Mapping[str, str]], Aggregator]

_FUNCTIONS: dict[str, _Maker] = {
    "primary-key": lambda field, name, options: PrimaryKey(),
    "last_value": lambda field, name, options: LastValue(),
    "last_non_null_value": lambda field, name, options: LastNonNullValue(),
    "first_value": lambda field, name, options: FirstValue(field),
    "first_non_null_value": lambda field, name, options: FirstNonNullValue(field),
    "first_not_null_value": lambda field, name, options: FirstNonNullValue(field, name),
    "sum": lambda field, name, options: Sum.of(field, name),
    "product": lambda field, name, options: Product.of(field, name),
    "max": lambda field, name, options: Extreme.of(field, name),
    "min": lambda field, name, options: Extreme.of(field, name),
    "bool_and": lambda field, name, options: BoolFold.of(field, name),
    "bool_or": lambda field, name, options: BoolFold.of(field, name),
    "listagg": ListAgg.of,
    "collect": Collect.of,
    "merge_map": lambda field, name, options: MergeMap.of(field, name),
    "merge_map_with_keytime": MergeMapWithKeyTime.of,
    "nested_update": NestedUpdate.of,
    "nested_partial_update": NestedPartialUpdate.of,
    "rbm32": lambda field, name, options: SetUnion.of(field, name),
    "rbm64": lambda field, name, options: SetUnion.of(field, name),
    "hll_sketch": lambda field, name, options: SetUnion.of(field, name),
    "theta_sketch": lambda field, name, options: SetUnion.of(field, name),
}


_REMOVED = {
    "count": "use `sum` and write 1, or 0 for null: what is stored of `count` are such sums"
}
"""Functions that a version of Paimon or of Lakeward had, and what to do instead."""


def aggregator_for(
    function: str, field: DataField, options: Mapping[str, str], schema: TableSchema
) -> Aggregator:
    """The aggregate function of a column, checked before any row.

    Args:
        function: its name, as `fields.<f>.aggregate-function` gives it.
        field: the column.
        options: of the table, as texts; those of the column are `fields.<f>.…`.
        schema: of the table, for messages.

    Raises:
        InvalidOptionError: there is no such function, it does not take the type of the column, or
            its options contradict each other.
    """
    maker = _FUNCTIONS.get(function.strip())
    if maker is None:
        raise InvalidOptionError(
            f"Use unsupported aggregation: {function} or spell aggregate function incorrectly!",
            hint=_REMOVED.get(function.strip())
            or "use one of " + ", ".join(sorted(set(_FUNCTIONS) - {"primary-key"})),
            option=f"fields.{field.name}.aggregate-function",
            field=field.name,
            schema_id=schema.id,
        )
    aggregator = maker(field, function.strip(), options)
    ignore_retract = f"fields.{field.name}.ignore-retract"
    if not option_value(options, ignore_retract):
        return aggregator
    if option_value(options, "aggregation.remove-record-on-delete"):
        raise InvalidOptionError(
            f"aggregation.remove-record-on-delete and {ignore_retract} have conflicting behavior "
            "so should not be enabled at the same time",
            hint="remove one of the two options",
            option=ignore_retract,
            field=field.name,
        )
    return IgnoreRetract(aggregator)
