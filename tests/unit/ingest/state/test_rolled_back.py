# SPDX-License-Identifier: Apache-2.0
"""A stream never goes on behind a table whose history was taken back."""

import json

import pytest

from ingest.state.stream_state import (
    OFFSETS_PROPERTY,
    ROLLBACK_OPTION,
    forget_rollback,
    lowered,
    note_rollback,
    require_history,
    require_not_rolled_back,
    rolled_back_topics,
    streams_of,
)
from storage.errors import CorruptDataError, FencedError, InvalidRequestError
from storage.table.branches import rollback_to
from tests.table_kit import make_table, reopened, write


def stream_commit(table, identifier, offset, stream="shop", topic="t"):
    properties = {OFFSETS_PROPERTY + stream: json.dumps({topic: {"0": offset}})}
    commit = reopened(table).new_commit(stream)
    commit.commit([], identifier, properties=properties, ignore_empty=False)


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path)
    for number in range(1, 4):
        stream_commit(table, number, 10 * number)
    return table


def test_the_newest_snapshot_tells_who_writes_also_after_others(table):
    stream_commit(table, 1, 5, "other")
    write(reopened(table), 99, [("+I", 1, "a")])
    assert streams_of(reopened(table).latest_snapshot()) == ["other", "shop"]
    assert streams_of(None) == []


def test_the_note_keeps_a_stream_from_starting_until_it_is_forgotten(table):
    stream_commit(table, 1, 5, "other")
    table = note_rollback(reopened(table), reopened(table).latest_snapshot(), "snapshot 1")
    options = {"db.t": table.schema.options}
    for stream in ("shop", "other"):
        with pytest.raises(InvalidRequestError, match="rolled back to snapshot 1"):
            require_not_rolled_back(options, stream)
    require_not_rolled_back(options, "third")
    forget_rollback(table, "shop")
    options = {"db.t": reopened(table).schema.options}
    require_not_rolled_back(options, "shop")
    assert rolled_back_topics(options, "other") == {"db.t": ("t",)}
    forget_rollback(reopened(table), "other")
    assert ROLLBACK_OPTION not in reopened(table).schema.options


def test_a_second_rollback_keeps_the_topics_of_the_first(table):
    noted = note_rollback(reopened(table), reopened(table).latest_snapshot(), "snapshot 1")
    stream_commit(table, 1, 5, "other")
    stream_commit(table, 9, 1, topic="u")
    newest = reopened(table).latest_snapshot()
    noted = note_rollback(noted, newest, "snapshot 2")
    assert rolled_back_topics({"x": noted.schema.options}, "shop") == {"x": ("t", "u")}


def test_a_note_that_cannot_be_read_stops_the_start():
    with pytest.raises(CorruptDataError):
        require_not_rolled_back({"x": {ROLLBACK_OPTION: "{"}}, "shop")


def test_a_commit_beside_a_rollback_ends_the_daemon(table):
    committed = {"t": {"0": 30}}
    known = [committed, {"t": {"0": 40}}]
    require_history(reopened(table).latest_snapshot(), table, "db.t", "shop", known)
    rollback_to(reopened(table), 2)
    with pytest.raises(FencedError, match="rolled back"):
        require_history(reopened(table).latest_snapshot(), table, "db.t", "shop", known)
    options = {"db.t": reopened(table).schema.options}
    assert rolled_back_topics(options, "shop") == {"db.t": ("t",)}, "nobody goes on after a restart"


def test_a_commit_to_a_table_that_was_created_again_ends_the_daemon(tmp_path):
    """Its rows are read again; the topics are those of the stream's last commit."""
    table = make_table(tmp_path)
    known = [{"t": {"0": 30}}, {"t": {"0": 40}}]
    with pytest.raises(FencedError, match=r"rolled back.*dropped and created again"):
        require_history(None, table, "db.t", "shop", known)
    assert rolled_back_topics({"db.t": reopened(table).schema.options}, "shop") == {"db.t": ("t",)}
    with pytest.raises(InvalidRequestError, match="rolled back to an empty table"):
        require_not_rolled_back({"db.t": reopened(table).schema.options}, "shop")


def test_a_second_daemon_ends_the_first(table):
    known = [{"t": {"0": 20}}, {"t": {"0": 25}}]
    with pytest.raises(FencedError, match="another process"):
        require_history(reopened(table).latest_snapshot(), table, "db.t", "shop", known)
    assert ROLLBACK_OPTION not in reopened(table).schema.options


def test_what_does_not_tell_offsets_is_believed(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    require_history(table.latest_snapshot(), table, "db.t", "shop", [{"t": {"0": 1}}])
    require_history(None, table, "db.t", "shop", [{"t": {"0": 1}}])


@pytest.mark.parametrize(
    ("topics", "own", "wanted"),
    [
        (["t"], {"t": {"0": 3}}, {"t": {"0": 3, "1": 9}, "u": {"0": 7}}),
        (["t"], {"t": {"0": 3, "1": 12}}, {"t": {"0": 3, "1": 9}, "u": {"0": 7}}),
        (["t", "u"], {"t": {"0": 9, "1": 9}}, {"t": {"0": 5, "1": 9}}),
        (["t"], {}, {"u": {"0": 7}}),
        ([], {}, {"t": {"0": 5, "1": 9}, "u": {"0": 7}}),
    ],
)
def test_the_stream_goes_back_to_what_the_table_holds(topics, own, wanted):
    start = {"t": {"0": 5, "1": 9}, "u": {"0": 7}}
    if topics == ["t"] and own:
        wanted["t"].pop("1") if "1" not in own["t"] else None
    assert lowered(start, [(topics, own)]) == wanted


def test_members_of_a_position_go_with_it():
    start = {"t": {"0": 5, "files": [["a", 1]]}}
    assert lowered(start, [(["t"], {"t": {"0": 3}})]) == {"t": {"0": 3}}
    assert lowered(start, [(["t"], {"t": {"0": 8}})]) == start
