# SPDX-License-Identifier: Apache-2.0
"""Damaged tables: never a crash, never another row where a checksum or a length could tell."""

import pathlib
import random

import pytest

from tests.fuzz.campaign import Campaign, run_campaign
from tests.fuzz.damage import Guard, damages
from tests.fuzz.subjects import golden_subjects, own_subjects

SHORT, LONG = 96, 4_000
SEED = 20_261_121


def campaign(folder: pathlib.Path, count: int) -> Campaign:
    subjects = [*golden_subjects(), *own_subjects(folder / "own")]
    found = run_campaign(subjects, count, SEED, folder)
    print(found.table())
    return found


def check(found: Campaign, count: int) -> None:
    assert len(found.findings) == count
    assert not found.faults, "\n".join(map(str, found.faults))
    refused = [finding for finding in found.findings if finding.result == "refused"]
    assert len(refused) > count // 2  # damage is seen, not overlooked


def test_damage_is_told_or_harmless(tmp_path):
    check(campaign(tmp_path, SHORT), SHORT)


@pytest.mark.full
def test_much_damage_is_told_or_harmless(tmp_path):
    check(campaign(tmp_path, LONG), LONG)


def test_every_kind_of_file_is_damaged(tmp_path):
    kinds = set()
    for subject in [*golden_subjects(), *own_subjects(tmp_path)]:
        found = damages(subject.name, subject.table, 200, random.Random(SEED))
        kinds |= {damage.kind for damage in found}
    assert {kind.name for kind in kinds} == {
        *("schema", "snapshot", "hint", "tag", "consumer", "statistics"),
        *("manifest", "manifest list", "index manifest"),
        *("deletion vectors", "hash index", "file index"),
        *("parquet data", "orc data", "avro data", "parquet changelog"),
    }
    assert {kind.name for kind in kinds if kind.guard is Guard.CHECKSUM} == {"deletion vectors"}
