# SPDX-License-Identifier: Apache-2.0
"""Tables that Java writes, read by us: the rows of the model and of Java's own reader."""

import pyarrow as pa
import pytest

from storage.table.table import FileStoreTable
from tests.interop.carry_out import assert_holds, schema_of, step_by_java
from tests.interop.filters import assert_filters
from tests.interop.generated_tables import Case, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.quirks import quirk_of
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop

CASES = cases()


@pytest.mark.parametrize("case", parameters(CASES, quick=(5, 36)))
def test_we_read_what_java_wrote(java: JavaPeer, case: Case) -> None:
    quirk = quirk_of("java", case)
    if quirk is not None:
        pytest.skip(f"Java: {quirk}")
    name = f"db.by_java_{case.number}"
    java.create(name, schema_of(case))
    table = FileStoreTable.open(str(java.warehouse / "db.db" / name.partition(".")[2]))
    model = Model(case)
    for number, step in enumerate(case.steps):
        step_by_java(java, name, step)
        model.apply(step)
        table = table.latest()
        assert_holds(f"us after step {number}", table.to_arrow(), table.schema.fields, model, case)
    assert_holds("Java", java.read(name), java.fields(name), model, case)
    assert_filters(java, name, table, model, case)
    java.compact(name)
    assert_holds("us after a compaction", table.to_arrow(), table.schema.fields, model, case)


@pytest.mark.parametrize("case", parameters(CASES, quick=(22,), only=(2, 5, 10, 22, 24)))
def test_we_travel_to_the_snapshots_of_java(java: JavaPeer, case: Case) -> None:
    name = f"db.travelled_{case.number}"
    java.create(name, schema_of(case))
    for step in case.steps:
        step_by_java(java, name, step)
    table = FileStoreTable.open(str(java.warehouse / "db.db" / name.partition(".")[2]))
    for snapshot_id in java.snapshots(name):
        expected = java.read(name, {"scan.snapshot-id": str(snapshot_id)})
        found = table.to_arrow(snapshot=snapshot_id)
        assert _texts(found) == _texts(expected)


def _texts(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())
