# SPDX-License-Identifier: Apache-2.0
"""The generated tables, written by us, read by pypaimon and pypaimon-rust."""

import pathlib

import pyarrow as pa
import pytest

from storage.format.types.types import arrow_type
from tests.interop.carry_out import assert_holds, leaves_compaction, written_by_us
from tests.interop.generated_tables import Case, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import PEERS, peer_rows
from tests.interop.quirks import quirk_of
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("case", parameters(cases(), quick=(7, 11, 35)))
def test_a_peer_reads_a_generated_table(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, case: Case, peer: str
) -> None:
    quirk = quirk_of(peer, case)
    if quirk is not None:
        pytest.skip(f"{peer}: {quirk}")
    name, warehouse = f"db.for_{peer.replace('-', '_')}_{case.number}", tmp_path
    if leaves_compaction(case):  # by Java, in its warehouse
        warehouse = request.getfixturevalue("warehouse")

    def compact() -> None:
        java: JavaPeer = request.getfixturevalue("java")
        java.compact(name, full=False)

    table, model = written_by_us(warehouse, name, case, compact)
    fields = table.schema.fields
    found = peer_rows(peer, warehouse, name)
    schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
    assert_holds(peer, found.select(schema.names).cast(schema), fields, model, case)
