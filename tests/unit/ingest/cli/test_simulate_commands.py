# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from ingest.cli.main import main
from ingest.cli.maintain import chart

QUICK = ("--commits", "30", "--rows", "50", "--keys", "1k")


def test_a_table_compares_settings(capsys):
    assert main(["simulate-compaction", *QUICK, "--trigger", "2,5", "--producer", "none"]) == 0
    out = capsys.readouterr().out
    assert "30 commits of 50 rows of 100 bytes (80% updates) onto 1,000 rows" in out
    assert "none, trigger 5, amp 200%, ratio 1%" in out
    assert out.splitlines()[-4].split()[:5] == ["producer", "every", "trigger", "amp", "%"]
    assert [line.split()[1] for line in out.splitlines()[-2:]] == ["2", "5"]


def test_json_has_everything(capsys):
    arguments = ("--producer", "full-compaction", "--delta-commits", "1,5", "--trigger", "5")
    assert main(["simulate-compaction", *QUICK, *arguments, "--json"]) == 0
    one, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["delta_commits"], two["delta_commits"]) == (1, 5)
    assert one["write_amplification"] > two["write_amplification"] > 1
    assert len(one["runs"]) == 30


@pytest.mark.parametrize(
    "arguments",
    [("--rows", "x"), ("--updates", "2"), ("--producer", "maybe"), ("--row-bytes", "wide")],
)
def test_wrong_values_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as raised:
        main(["simulate-compaction", *arguments])
    assert raised.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_bars():
    assert chart([1, 2, 4, 8], 8) == "▂▃▅█"
    assert len(chart(range(1, 1000), 1000)) == 60
