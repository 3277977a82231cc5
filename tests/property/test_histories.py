# SPDX-License-Identifier: Apache-2.0
"""Random histories of whole tables against the naive model, a few of every scenario.

Many more: `python -m tests.property`.
"""

import pathlib

import pytest

from tests.property.draw import draw
from tests.property.histories import History
from tests.property.judge import judge
from tests.property.merge_model import Engine
from tests.property.naive_table import NaiveTable
from tests.property.scenarios import FREE, SCHEDULED


@pytest.mark.parametrize("name", [one.name for one in (*FREE, *SCHEDULED)])
def test_a_random_history_equals_the_model(name: str, tmp_path: pathlib.Path) -> None:
    judge(draw(len(name), only=name), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_many_random_histories_equal_the_model(seed: int, tmp_path: pathlib.Path) -> None:
    judge(draw(100_000 + seed), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
        {"changelog-producer": "lookup", "lookup-wait": "false"},
    ],
)
def test_keys_that_come_back_in_a_later_commit_may_be_told_of_in_two_buckets(
    options: dict[str, str], tmp_path: pathlib.Path
) -> None:
    commits = (
        [["+I", 1, 1, 1], ["+I", 1, 2, 2]],
        *([["+I", *row]] for row in ((2, 1, 3), (2, 2, 4), (1, 2, 5), (1, 1, 6), (2, 8, 7))),
        [],
    )
    steps = [
        {"op": "write", "batches": [rows] if rows else [], "compaction": True, "full": not number}
        for number, rows in enumerate(commits)
    ]
    history = History(
        name="comes-back",
        columns=[("p", "INT"), ("k", "INT"), ("v", "INT")],
        key=["k"],
        partition=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "1", **options},
        window_bytes=None,
        exact=False,
        streams=True,
        waits="lookup-wait" not in options,
        steps=[*steps, {"op": "compact", "full": True, "lost": False}],
    )
    assert judge(history, tmp_path)


def _model(**options: str) -> NaiveTable:
    texts = {name.replace("_", "-"): text for name, text in options.items()}
    return NaiveTable(["k", "v"], ["k"], [], texts)


def test_the_model_records_changes_as_the_lookup_producer_does() -> None:
    model = _model(changelog_producer="lookup")
    model.write([("+I", 1, "a"), ("+I", 2, "b"), ("-D", 3, "c")])
    model.flush()
    assert model.compact() == [("+I", (1, "a")), ("+I", (2, "b"))]
    model.write([("+U", 1, "A"), ("-D", 2, None), ("+I", 3, "c"), ("-D", 3, "c")])
    model.flush()
    assert model.rows() == [(1, "A")]
    assert model.compact() == [("-U", (1, "a")), ("+U", (1, "A")), ("-D", (2, "b"))]


def test_the_model_hides_rows_of_first_row_tables_until_they_are_compacted() -> None:
    model = _model(merge_engine="first-row")
    model.write([("+U", 1, "a"), ("+I", 1, "b")])
    model.flush()
    assert model.rows() == []
    assert model.compact() == [("+U", (1, "a"))]
    model.write([("+I", 1, "c")])
    model.flush()
    assert model.compact() == []
    assert model.rows() == [(1, "a")]


def test_a_lone_row_is_not_merged_but_where_the_table_looks_up() -> None:
    engine = Engine(["k", "v"], ["k"], {"merge-engine": "aggregation"})
    assert engine.merge([("-D", {"k": 1, "v": 2})]) == ("-D", {"k": 1, "v": 2})
    assert engine.fold([("-D", {"k": 1, "v": 2})])[0] == "+I"
