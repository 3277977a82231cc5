# SPDX-License-Identifier: Apache-2.0
"""Histories of one table as plain data, and as cases in the form of `tests/conformance`.

A step is a mapping with `op`:

    write           `batches` of rows `[kind, value...]`, flushed together; `compaction`: whether
                    the writer compacts; `full`: and everything
    bad             rows the engine refuses; the commit must not happen
    retry           the last commit once more: `same` messages, or its rows `cut` elsewhere
    compact         another job compacts: `full` or what is due; `lost`: a rival was faster
    begin_late      another job compacts and sleeps before it commits
    end_late        it commits
    add_column      an INT column
    expire          keeps `retain` snapshots
    reopen          a new process
    travel          read all snapshots that are kept
    filter          read rows with a condition on the first key column: `column`, `op`, `value`
    stream          a reader begins with the whole state and follows the changes from then on
    lose_lookup     the local directory of the lookup store goes away
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

__all__ = ["History", "Step", "as_case", "as_yaml"]

Step = Mapping[str, Any]
Column = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A table and what happens to it.

    Attributes:
        name: scenario and seed.
        columns: (name, SQL type) in order.
        key: the primary key.
        partition: partition columns.
        options: of the table.
        window_bytes: bound of merges; None: as it is [bytes].
        exact: whether each compaction of a commit step takes all flushed rows of a key at once,
            so that the changelog is known row by row.
        streams: the writer tells the identifiers of its commits, by which compactions come due.
        waits: commits of a table that looks up compact what they find flushed.
        steps: in order.
    """

    name: str
    columns: Sequence[Column]
    key: Sequence[str]
    partition: Sequence[str]
    options: Mapping[str, str]
    window_bytes: int | None
    exact: bool
    streams: bool
    waits: bool
    steps: Sequence[Step]


def as_case(history: History, rows: Sequence[Sequence[Any]] | None, why: str) -> dict[str, Any]:
    """The history as a conformance case; what that format has no step for is left out.

    Args:
        history: the history.
        rows: what is to be read in the end, in JSON values; None: no more than no error.
        why: what was found.
    """
    steps: list[dict[str, Any]] = []
    for step in history.steps:
        op = step["op"]
        if op == "write":
            flat = [list(row) for batch in step["batches"] for row in batch]
            if flat:
                body: dict[str, Any] = {"rows": flat}
                steps.append({"write": body if step["compaction"] else body | {"write_only": True}})
        if op in ("write", "compact") and step["full"]:
            steps.append({"compact": "full"})
        if op == "add_column":
            steps.append({"alter": {"add_column": [step["name"], "INT"]}})
        if op == "expire":
            kept = {"retain_max": step["retain"], "retain_min": step["retain"]}
            steps.append({"call": {"expire_snapshots": kept}})
    expect: dict[str, Any] = {"ok": True} if rows is None else {"rows": [list(r) for r in rows]}
    return {
        "id": f"regression-{history.name}",
        "topic": "regression",
        "source": f"random history {history.name}",
        "notes": why,
        "table": {
            "columns": [list(column) for column in history.columns],
            "primary_key": list(history.key),
            "partition": list(history.partition),
            "options": dict(history.options),
        },
        "steps": steps,
        "expect": expect,
    }


class _Dumper(yaml.SafeDumper):
    """Writes equal values out, however often they come."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def as_yaml(case: Mapping[str, Any]) -> str:
    """The text of a case to be put below `cases:` of a file."""
    text: str = yaml.dump(
        [dict(case)],
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=100,
    )
    return text
