# SPDX-License-Identifier: Apache-2.0
"""Merge engines with options, and the rows for which no moment of compaction shows, or any do."""

import dataclasses
from collections.abc import Mapping

from tests.property.draw_rows import Rules

__all__ = ["FREE", "SCHEDULED", "Scenario"]

_ADDS = ("+I", "+I", "+U")
_ALL = ("+I", "+I", "+U", "-U", "-D")

_PARTIAL = {"merge-engine": "partial-update"}
_G_AB = {"fields.g.sequence-group": "a,b"}
_H_S = {"fields.h.sequence-group": "s"}
_HC_S = {"fields.h,c.sequence-group": "s"}
_LISTED = "partial-update.remove-record-on-sequence-group"
_AGGREGATION = {"merge-engine": "aggregation"}
_FIRST = {"merge-engine": "first-row"}
_LAST = {"fields.default-aggregate-function": "last_value"}


def _functions(**names: str) -> dict[str, str]:
    return {f"fields.{column}.aggregate-function": name for column, name in names.items()}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """An engine with options.

    Attributes:
        name: short.
        options: of the table.
        rules: of its rows.
        refuses: there are rows that the engine refuses.
        groups: ordering fields, and what they protect.
        producers: that may be used; None: all.
        vectors: whether deletion vectors may be used.
        cross: whether keys may move between partitions.
        kind_column: column that says the kind of rows.
    """

    name: str
    options: Mapping[str, str]
    rules: Rules
    refuses: bool = False
    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    producers: tuple[str, ...] = ("none", "input", "lookup", "full-compaction")
    vectors: bool = True
    cross: bool = False
    kind_column: str | None = None


_TWO_GROUPS = ((("g",), ("a", "b")), (("h", "c"), ("s",)))
_ONE_FIELD_GROUPS = ((("g",), ("a", "b")), (("h",), ("s",)))

FREE = (
    Scenario(name="deduplicate", options={}, rules=Rules(), cross=True),
    Scenario(
        name="sequence",
        options={"sequence.field": "g"},
        rules=Rules(kinds=_ALL, sequence=("g",), floor=True),
    ),
    Scenario(
        name="sequence-descending",
        options={"sequence.field": "g,h", "sequence.field.sort-order": "descending"},
        rules=Rules(kinds=_ALL, sequence=("g", "h"), descending=True, floor=True),
    ),
    Scenario(name="ignore-delete", options={"ignore-delete": "true"}, rules=Rules()),
    Scenario(
        name="ignore-update-before",
        options={"ignore-update-before": "true"},
        rules=Rules(),
    ),
    Scenario(
        name="kind-column",
        options={"rowkind.field": "kind"},
        rules=Rules(),
        kind_column="kind",
    ),
    Scenario(name="partial", options=_PARTIAL, rules=Rules(kinds=_ADDS), refuses=True, cross=True),
    Scenario(
        name="partial-ignore-delete",
        options=_PARTIAL | {"partial-update.ignore-delete": "true"},
        rules=Rules(),
    ),
    Scenario(
        name="partial-remove",
        options=_PARTIAL | {"partial-update.remove-record-on-delete": "true"},
        rules=Rules(kinds=("+I", "+I", "+U", "-D"), dies=True),
    ),
    Scenario(
        name="groups",
        options=_PARTIAL | _G_AB | _HC_S,
        rules=Rules(kinds=_ADDS),
        groups=_TWO_GROUPS,
    ),
    Scenario(
        name="groups-aggregated",
        options=_PARTIAL | _G_AB | _H_S | _functions(a="sum", b="max", s="max"),
        rules=Rules(kinds=_ADDS),
        groups=_ONE_FIELD_GROUPS,
    ),
    Scenario(
        name="aggregation",
        options=_AGGREGATION
        | _functions(a="sum", b="max", c="min", g="last_value", h="first_non_null_value")
        | _functions(s="listagg", x="first_value"),
        rules=Rules(kinds=_ADDS),
        refuses=True,
        cross=True,
    ),
    Scenario(
        name="aggregation-back",
        options=_AGGREGATION
        | _LAST
        | _functions(
            a="sum", b="max", c="sum", g="last_value", h="min", s="listagg", x="last_value"
        )
        | {f"fields.{name}.ignore-retract": "true" for name in "bhs"},
        rules=Rules(kinds=_ALL, after_add=True),
    ),
    Scenario(
        name="aggregation-sequence",
        options=_AGGREGATION
        | _LAST
        | _functions(a="sum", b="max", c="min", s="max")
        | {"sequence.field": "g"},
        rules=Rules(kinds=_ADDS, sequence=("g",)),
    ),
    Scenario(
        name="first-row",
        options=_FIRST,
        rules=Rules(kinds=_ADDS),
        refuses=True,
        producers=("none", "lookup"),
        vectors=False,
        cross=True,
    ),
    Scenario(
        name="first-row-ignore-delete",
        options=_FIRST | {"first-row.ignore-delete": "true"},
        rules=Rules(),
        producers=("none", "lookup"),
        vectors=False,
    ),
)
"""Scenarios where flushes and compactions cannot be seen, whenever they happen."""

SCHEDULED = (
    Scenario(
        name="sequence-any",
        options={"sequence.field": "g,h"},
        rules=Rules(kinds=_ALL, sequence=("g", "h")),
    ),
    Scenario(
        name="partial-remove-any",
        options=_PARTIAL | {"partial-update.remove-record-on-delete": "true"},
        rules=Rules(kinds=_ALL),
    ),
    Scenario(
        name="partial-sequence",
        options=_PARTIAL | {"sequence.field": "g"},
        rules=Rules(kinds=_ADDS),
    ),
    Scenario(
        name="partial-default-function",
        options=_PARTIAL | _G_AB | {"fields.default-aggregate-function": "last_non_null_value"},
        rules=Rules(kinds=_ADDS),
        groups=((("g",), ("a", "b")),),
    ),
    Scenario(
        name="groups-back",
        options=_PARTIAL | _G_AB | _HC_S,
        rules=Rules(kinds=_ALL),
        groups=_TWO_GROUPS,
    ),
    Scenario(
        name="groups-remove",
        options=_PARTIAL | _G_AB | _HC_S | {_LISTED: "g"} | _functions(b="sum"),
        rules=Rules(kinds=_ALL),
        groups=_TWO_GROUPS,
    ),
    Scenario(
        name="groups-last",
        options=_PARTIAL | _G_AB | _H_S | _functions(a="last_non_null_value", s="last_value"),
        rules=Rules(kinds=_ALL),
        groups=_ONE_FIELD_GROUPS,
    ),
    Scenario(
        name="aggregation-any",
        options=_AGGREGATION
        | _functions(a="sum", b="last_value", c="last_non_null_value", s="primary-key")
        | _functions(g="sum", h="last_value", x="last_non_null_value"),
        rules=Rules(kinds=_ALL),
    ),
    Scenario(
        name="aggregation-remove",
        options=_AGGREGATION
        | _functions(a="sum", b="last_value", c="first_value", s="listagg", g="sum", x="last_value")
        | {"aggregation.remove-record-on-delete": "true"},
        rules=Rules(kinds=("+I", "+I", "+U", "-D")),
    ),
)
"""Scenarios where the moment can be seen; for tables that compact when told to."""
