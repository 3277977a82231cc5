# SPDX-License-Identifier: Apache-2.0
"""Rows that take back where the merge engine cannot: the batch fails, nothing of it stays.

The error names the key, the table and an option that would let it pass. A reducer sees such a row
when it meets another of its key: in the buffer, in a compaction, or, where the table looks up, by
itself (SEMANTICS.md §0.4).
"""

import pathlib
from typing import Any

import pytest

from storage.errors import InvalidRequestError
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.table_kit import (
    data_files,
    index_files_named,
    index_files_on_disk,
    make_table,
    metadata_files,
    named_files,
    prepared,
    rows_of,
    write,
)

Rows = list[tuple[Any, ...]]

_ENGINES = {
    "partial-update": (
        {"merge-engine": "partial-update"},
        "partial-update.remove-record-on-delete",
    ),
    "aggregation": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "max"},
        "fields.v.ignore-retract",
    ),
    "group": (
        {
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "max",
        },
        "fields.v.ignore-retract",
    ),
    "first-row": ({"merge-engine": "first-row"}, "ignore-delete"),
}
_MODES = {
    "plain": {},
    "input": {"changelog-producer": "input"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "dynamic": {"bucket": "-1", "changelog-producer": "lookup"},
}
_CASES = [
    (engine, mode)
    for engine in _ENGINES
    for mode in _MODES
    if engine != "first-row" or mode not in ("input", "full-compaction", "vectors")
]


@pytest.fixture(autouse=True)
def _own_lookup_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "lookup"))


def _table(root: pathlib.Path, engine: str, mode: str) -> FileStoreTable:
    options = {"bucket": "3", **_ENGINES[engine][0], **_MODES[mode]}
    columns = [("k", "INT"), ("g", "INT"), ("v", "INT")]
    table = make_table(root, columns=columns, options=options)
    write(table, 1, [("+I", k, 1, k) for k in range(4)])
    return table


def _state(table: FileStoreTable) -> tuple[Any, ...]:
    return (
        table.snapshots.ids(),
        rows_of(table),
        data_files(table),
        index_files_on_disk(table),
        metadata_files(table),
    )


def _require_refusal(table: FileStoreTable, option: str, rows: Rows, *, full: bool) -> None:
    before = _state(table)
    with pytest.raises(InvalidRequestError) as refused:
        prepared(table, rows, full=full)
    text = str(refused.value)
    assert "k=2" in text
    assert table.layout.root in text
    assert option in text
    assert _state(table) == before
    check_table(table, rows=True)
    # the stream goes on without those rows
    write(table, 2, [("+I", 9, 1, 9)])
    assert (9, 1, 9) in rows_of(table)
    data, metadata = named_files(table)
    assert index_files_on_disk(table) == index_files_named(table)
    assert not {name for name in data_files(table) - data if not name.startswith("changelog-")}
    assert {name for name in metadata_files(table) if "changelog" not in name} >= metadata


@pytest.mark.parametrize(("engine", "mode"), _CASES)
@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_a_retraction_in_one_batch_is_refused(
    tmp_path: pathlib.Path, engine: str, mode: str, kind: str
) -> None:
    table = _table(tmp_path, engine, mode)
    rows = [("+I", 5, 1, 5), ("+I", 2, 2, 2), (kind, 2, 3, 2), ("+I", 6, 1, 6)]
    _require_refusal(table, _ENGINES[engine][1], rows, full=False)


@pytest.mark.parametrize(("engine", "mode"), _CASES)
def test_a_retraction_that_a_compaction_meets_is_refused(
    tmp_path: pathlib.Path, engine: str, mode: str
) -> None:
    table = _table(tmp_path, engine, mode)
    rows = [("+I", 5, 1, 5), ("-D", 2, 3, 2), ("+I", 6, 1, 6)]
    _require_refusal(table, _ENGINES[engine][1], rows, full=True)


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "group"])
@pytest.mark.parametrize("mode", ["lookup", "vectors"])
def test_a_table_that_looks_up_refuses_a_lone_retraction(
    tmp_path: pathlib.Path, engine: str, mode: str
) -> None:
    table = _table(tmp_path, engine, mode)
    _require_refusal(table, _ENGINES[engine][1], [("-D", 2, 3, 2)], full=False)


def test_the_option_that_is_named_lets_the_batch_pass(tmp_path: pathlib.Path) -> None:
    options = {"merge-engine": "first-row", "ignore-delete": "true"}
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, "a"), ("-D", 1, "a"), ("+I", 1, "b")])
    assert rows_of(table) == [(1, "a")]
