# SPDX-License-Identifier: Apache-2.0
"""Tables that we write, read by Java: as they are, and after Java compacted them."""

import pathlib

import pytest

from storage.table.table import FileStoreTable
from tests.interop.carry_out import assert_holds, created_by_us, leaves_compaction, step_by_us
from tests.interop.filters import assert_filters
from tests.interop.generated_tables import Case, Write, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop

CASES = cases()


@pytest.mark.parametrize("case", parameters(CASES, quick=(1, 6, 14, 71)))
def test_java_reads_what_we_wrote(java: JavaPeer, warehouse: pathlib.Path, case: Case) -> None:
    name = f"db.by_us_{case.number}"
    model = Model(case)
    table = created_by_us(warehouse, name, case)
    for number, step in enumerate(case.steps):
        table = step_by_us(table, number, step, case)
        if leaves_compaction(case) and isinstance(step, Write):
            _assert_both(java, name, table, model, case, "before compaction")  # still the old rows
            java.compact(name, full=step.compaction == "full")
        model.apply(step)
        assert_holds("Java", java.read(name), java.fields(name), model, case)
    assert_holds("us", table.to_arrow(), table.schema.fields, model, case)
    assert_filters(java, name, table, model, case)
    java.compact(name)
    _assert_both(java, name, table, model, case, "after Java's compaction")


def _assert_both(
    java: JavaPeer, name: str, table: FileStoreTable, model: Model, case: Case, when: str
) -> None:
    assert_holds(f"Java {when}", java.read(name), java.fields(name), model, case)
    assert_holds(f"us {when}", table.to_arrow(), table.schema.fields, model, case)
