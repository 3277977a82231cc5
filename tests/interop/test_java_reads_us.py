# SPDX-License-Identifier: Apache-2.0
"""Tables that we write, read by Java: as they are, and after Java compacted them."""

import pathlib

import pytest

from tests.interop.carry_out import assert_holds, created_by_us, step_by_us, writable
from tests.interop.generated_tables import Case, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop

CASES = cases()


@pytest.mark.parametrize("case", parameters(CASES, quick=(5, 17, 32, 36, 41, 45)))
def test_java_reads_what_we_wrote(java: JavaPeer, warehouse: pathlib.Path, case: Case) -> None:
    name = f"db.by_us_{case.number}"
    model = Model(case)
    with writable():
        table = created_by_us(warehouse, name, case)
        for number, step in enumerate(case.steps):
            table = step_by_us(table, number, step)
            model.apply(step)
            assert_holds("Java", java.read(name), java.fields(name), model, case)
    assert_holds("us", table.to_arrow(), table.schema.fields, model, case)
    java.compact(name)
    assert_holds("Java after its compaction", java.read(name), java.fields(name), model, case)
    found = table.to_arrow()
    assert_holds("us after Java's compaction", found, table.schema.fields, model, case)
