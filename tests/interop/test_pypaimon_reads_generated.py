# SPDX-License-Identifier: Apache-2.0
"""The generated tables, written by us, read by pypaimon and pypaimon-rust."""

import pathlib

import pyarrow as pa
import pytest

from storage.format.arrow_types import arrow_type
from tests.interop.carry_out import assert_holds, created_by_us, step_by_us, writable
from tests.interop.generated_tables import Case, cases
from tests.interop.model import Model
from tests.interop.peers import PEERS, peer_rows
from tests.interop.quirks import quirk_of
from tests.interop.selection import parameters

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("case", parameters(cases(), quick=(7, 10, 11, 29, 40)))
def test_a_peer_reads_a_generated_table(tmp_path: pathlib.Path, case: Case, peer: str) -> None:
    quirk = quirk_of(peer, case)
    if quirk is not None:
        pytest.skip(f"{peer}: {quirk}")
    model = Model(case)
    with writable():
        table = created_by_us(tmp_path, "db.t", case)
        for number, step in enumerate(case.steps):
            table = step_by_us(table, number, step)
            model.apply(step)
    fields = table.schema.fields
    found = peer_rows(peer, tmp_path, "db.t")
    schema = pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])
    assert_holds(peer, found.select(schema.names).cast(schema), fields, model, case)
