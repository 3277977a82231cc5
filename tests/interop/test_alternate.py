# SPDX-License-Identifier: Apache-2.0
"""A table written in turns by us and by Java, ten commits each: right for both after every turn."""

import pathlib

import pytest

from storage.table.table import FileStoreTable
from tests.interop.carry_out import (
    assert_holds,
    compact_by_us,
    leaves_compaction,
    schema_of,
    step_by_java,
    step_by_us,
)
from tests.interop.generated_tables import Case, Write, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.quirks import quirk_of
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop

TURNS = 20
COMPACTIONS = {7: "Java", 12: "us", 16: "Java", 19: "us"}
"""Full compactions after these turns, and whose."""

CASES = [case for case in cases() if quirk_of("java", case) is None]


@pytest.mark.parametrize("case", parameters(CASES, quick=(45,)))
def test_a_table_written_in_turns(java: JavaPeer, warehouse: pathlib.Path, case: Case) -> None:
    (case,) = cases(turns=TURNS, only=case.number)
    name = f"db.turns_{case.number}"
    java.create(name, schema_of(case))
    table = FileStoreTable.open(str(warehouse / "db.db" / name.partition(".")[2]))
    model = Model(case)
    writes = 0
    for number, step in enumerate(case.steps):
        ours = writes % 2 == 1
        if ours:
            table = step_by_us(table, number, step, case)
            if leaves_compaction(case) and isinstance(step, Write):
                java.compact(name, full=False)
        else:
            step_by_java(java, name, step)
        model.apply(step)
        writes += isinstance(step, Write)
        who = COMPACTIONS.get(number)
        if who == "us" and not leaves_compaction(case):
            compact_by_us(table, 1_000 + number)
        elif who is not None:
            java.compact(name)
        table = table.latest()
        turn = f"after turn {number}"
        found = table.to_arrow()
        assert_holds(f"us {turn}", found, table.schema.fields, model, case)
        assert_holds(f"Java {turn}", java.read(name), java.fields(name), model, case)
    assert writes == TURNS
