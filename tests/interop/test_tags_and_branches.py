# SPDX-License-Identifier: Apache-2.0
"""Tags and branches: Java reads and goes on writing ours, we read and go on writing Java's."""

import copy
import itertools
import pathlib
from collections.abc import Mapping

import pytest

from storage.table.branches import create_branch
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.interop.carry_out import (
    assert_holds,
    created_by_us,
    leaves_compaction,
    schema_of,
    step_by_java,
    step_by_us,
)
from tests.interop.generated_tables import Case, cases
from tests.interop.java_peer import JavaPeer
from tests.interop.model import Model
from tests.interop.quirks import quirk_of

pytestmark = pytest.mark.interop

TAG, BRANCH = "v1", "b1"
TAGGED = {"scan.tag-name": TAG}


def _chosen() -> list[Case]:
    """One case for each kind of table and schema change, of those that both sides compact."""
    found = {
        (case.dimensions["table"], case.dimensions["evolution"]): case
        for case in reversed(cases())
        if quirk_of("java", case) is None and not leaves_compaction(case)
    }
    return sorted(found.values(), key=lambda case: case.number)


CASES = [
    pytest.param(case, id=case.name, marks=() if place == 0 else pytest.mark.full)
    for place, case in enumerate(_chosen())
]


def _java_holds(
    java: JavaPeer, name: str, model: Model, case: Case, options: Mapping[str, str] | None = None
) -> None:
    who = f"Java {name} {options or ''}"
    assert_holds(who, java.read(name, options), java.fields(name, options), model, case)


def _we_hold(table: FileStoreTable, model: Model, case: Case) -> None:
    where = table.layout.branch
    assert_holds(f"us at {where}", table.to_arrow(), table.schema.fields, model, case)


def _tag_holds(table: FileStoreTable, model: Model, case: Case) -> None:
    fields = table.with_schema(0).schema.fields  # tagged before the schema changed
    assert_holds("us at the tag", table.to_arrow(tag=TAG), fields, model, case)


@pytest.mark.parametrize("case", CASES)
def test_java_reads_our_tag_and_writes_our_branch(
    java: JavaPeer, warehouse: pathlib.Path, case: Case
) -> None:
    name = f"db.tagged_by_us_{case.number}"
    table, model = created_by_us(warehouse, name, case), Model(case)
    for number, step in enumerate(case.steps[:2]):
        table = step_by_us(table, number, step, case)
        model.apply(step)
    create_tag(table, TAG)
    create_branch(table, BRANCH, tag=TAG)
    tagged, branched = copy.deepcopy(model), copy.deepcopy(model)
    branch = table.at_branch(BRANCH)
    for number, step in enumerate(case.steps[2:], 2):
        table = step_by_us(table, number, step, case)
        model.apply(step)
    for number, step in enumerate(itertools.islice(case.steps, 2, None), 2):
        if number % 2:
            branch = step_by_us(branch.latest(), number, step, case)
        else:
            step_by_java(java, f"{name}$branch_{BRANCH}", step)
        branched.apply(step)
    _java_holds(java, name, model, case)
    _java_holds(java, name, tagged, case, TAGGED)
    _java_holds(java, f"{name}$branch_{BRANCH}", branched, case)
    _tag_holds(table, tagged, case)
    _we_hold(branch.latest(), branched, case)
    _we_hold(table.latest(), model, case)


@pytest.mark.parametrize("case", CASES)
def test_we_read_the_tag_of_java_and_write_its_branch(java: JavaPeer, case: Case) -> None:
    name = f"db.tagged_by_java_{case.number}"
    java.create(name, schema_of(case))
    model = Model(case)
    for step in case.steps[:2]:
        step_by_java(java, name, step)
        model.apply(step)
    java.create_tag(name, TAG)
    java.create_branch(name, BRANCH, TAG)
    tagged, branched = copy.deepcopy(model), copy.deepcopy(model)
    for step in case.steps[2:]:
        step_by_java(java, name, step)
        model.apply(step)
    table = FileStoreTable.open(str(java.warehouse / "db.db" / name.partition(".")[2]))
    branch = table.at_branch(BRANCH)
    for number, step in enumerate(itertools.islice(case.steps, 2, None), 2):
        branch = step_by_us(branch, number, step, case)
        branched.apply(step)
        _we_hold(branch.latest(), branched, case)
    _we_hold(table, model, case)
    _tag_holds(table, tagged, case)
    _java_holds(java, name, tagged, case, TAGGED)
    _java_holds(java, f"{name}$branch_{BRANCH}", branched, case)
