# SPDX-License-Identifier: Apache-2.0
"""Predicates for tests: random ones, and what a comparison comes to."""

import operator
from typing import Any

from hypothesis import strategies as st

from storage.table.scan.predicate import And, Not, Op, Or, Predicate

_OPERATORS = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def compares(op: Op, left: Any, right: Any) -> bool:
    """Whether `left op right`, of two values that are not null."""
    return bool(_OPERATORS[op](left, right))


def combined(
    leaf: st.SearchStrategy[Predicate], *, max_leaves: int
) -> st.SearchStrategy[Predicate]:
    """Leaves under any NOT, AND and OR of up to three; an AND or an OR may be empty."""
    return st.recursive(
        leaf,
        lambda predicates: st.one_of(
            st.builds(Not, predicates),
            st.builds(And, st.lists(predicates, max_size=3).map(tuple)),
            st.builds(Or, st.lists(predicates, max_size=3).map(tuple)),
        ),
        max_leaves=max_leaves,
    )
