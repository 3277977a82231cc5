# SPDX-License-Identifier: Apache-2.0
"""`lakeward table delete-rows`."""

import json

import pytest

from ingest.cli.main import main
from tests.table_kit import make_table, rows_of, write


def run(capsys, *arguments: str) -> dict:
    assert main(["table", "delete-rows", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("keys", [("k",), ()], ids=["key", "append"])
def test_rows_are_counted_then_deleted(tmp_path, capsys, keys):
    table = make_table(tmp_path, keys=keys, options={"bucket": "1" if keys else "-1"})
    write(table, 1, [("+I", number, "x") for number in range(5)])
    place = (str(tmp_path), "db.t", "--where", "k >= 3 and v = 'x'")
    assert run(capsys, *place, "--dry-run") == {"rows": 2, "snapshot": None}
    assert len(rows_of(table)) == 5
    assert run(capsys, *place) == {"rows": 2, "snapshot": 2}
    assert rows_of(table) == [(0, "x"), (1, "x"), (2, "x")]
    assert run(capsys, *place) == {"rows": 0, "snapshot": None}
    assert main(["table", "delete-rows", *place]) == 0
    assert capsys.readouterr().out == "0 rows deleted\n"


def test_a_wrong_condition_changes_nothing(tmp_path, capsys):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "x")])
    assert main(["table", "delete-rows", str(tmp_path), "db.t", "--where", "kk = 1"]) != 0
    assert "no such column" in capsys.readouterr().err
    assert table.snapshots.latest_id() == 1
