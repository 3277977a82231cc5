# SPDX-License-Identifier: Apache-2.0
"""Where a stream goes on when tables are behind: pure values in, pure values out."""

import pytest

from ingest.pipeline.exchange import BatchPlan
from ingest.source.records import ANY_TABLE, entered, floor_of, restarted, without
from ingest.state.ownership import ParkedTable, Parking
from ingest.state.stream_position import (
    back_to,
    recovered_floors,
    remaining_floors,
    rewound,
)
from ingest.state.stream_state import (
    CheckpointState,
    TableProgress,
    commit_properties,
    next_generation,
    spark_files,
)
from storage.io.local import LocalFileIO

HERE = {"t": {"0": 50, "1": 40}, "u": {"0": 9}}


def parked(since, *topics):
    return ParkedTable(reason="", by="person", parked_ms=0, since=since, topics=topics)


def progress(offsets, identifier=3):
    return TableProgress(identifier, offsets, {}, 1)


@pytest.fixture
def parking(tmp_path):
    return Parking(LocalFileIO(durable=False), str(tmp_path), "shop")


def park(parking, table, since, *topics):
    parking.park(table, reason="", by="person", since=since, now_ms=0, topics=topics)


def test_only_feeding_topics_go_back_and_never_forward():
    table = parked({"t": {"0": 10, "1": 60}, "u": {"0": 1}}, "t")
    assert back_to(HERE, [table]) == {"t": {"0": 10, "1": 40}, "u": {"0": 9}}


def test_of_several_tables_the_smallest_place_counts():
    tables = [parked({"t": {"0": 30, "1": 10}}, "t"), parked({"t": {"0": 20, "1": 20}}, "t")]
    assert back_to(HERE, tables)["t"] == {"0": 20, "1": 10}


def test_a_feeding_topic_that_was_unknown_is_read_from_its_beginning():
    assert back_to(HERE, [parked({"t": {"0": 10}}, "t", "u")]) == {"t": {"0": 10}}


def test_what_starts_at_its_beginning_already_does_not_go_forward():
    """A table is resumed before the stream that went back for another has read anything."""
    here = {"t": {"0": 50}}
    table = parked({"t": {"0": 60, "1": 8}, "u": {"0": 7}}, "t", "u")
    assert back_to(here, [table]) == here


def test_a_file_goes_back_with_its_name():
    here = {"t": {"0": 3 << 40 | 7, "files": [["f3", 0, 7, 7]]}}
    since = {"t": {"0": 1 << 40 | 5, "files": [["f0", 0, 9, 9], ["f1", 0, 5, 9]]}}
    assert back_to(here, [parked(since, "t")]) == {
        "t": {"0": 1 << 40 | 5, "files": [["f1", 0, 5, 9]]}
    }


def test_new_partitions_are_noted_where_they_begin_and_new_file_topics_need_no_note():
    assert entered({"t": {"0": 4}}, {"t": {"0": 9, "1": 3}, "u": {"0": 2}}) == {
        "t": {"1": 3},
        "u": {"0": 2},
    }
    assert entered({}, {"t": {"0": 9, "files": [["f0", 0, 9, 9]]}}) == {}


def test_a_partition_that_ends_below_its_start_begins_again():
    start = {"t": {"0": 50, "1": 40}, "f": {"0": 9, "files": []}}
    end = {"t": {"0": 12, "1": 40}, "u": {"0": 0}, "f": {"0": 3, "files": []}}
    assert restarted(start, end) == {"t": {"0": 12}}
    assert without(start, restarted(start, end)) == {"t": {"1": 40}, "f": start["f"]}


def test_floors_of_a_stream_that_goes_back(parking):
    park(parking, "a.resumed", {"t": {"0": 10, "1": 5}}, "t")
    park(parking, "a.waits", {"t": {"0": 20, "1": 5}}, "t")
    state = CheckpointState(stream="shop", base=0, initial={}, floors={})
    tables = {
        "a.resumed": progress({"t": {"0": 12}}),  # committed before its fault
        "a.ahead": progress({"t": {"0": 55}}),  # of a batch that is not recorded yet
        "a.still": progress({"u": {"0": 2}}),
    }
    made = rewound(
        state,
        position=HERE,
        start={"t": {"0": 10, "1": 5}, "u": {"0": 9}},
        progresses=tables,
        parking=parking,
        base=7,
    )
    assert (made.base, made.generation) == (7, 1)
    assert made.floors == {
        ANY_TABLE: HERE,
        "a.ahead": {"t": {"0": 55, "1": 40}, "u": {"0": 9}},
        "a.resumed": {"t": {"0": 12, "1": 5}},
        "a.waits": {"t": {"0": 20, "1": 5}},
    }
    assert made.bad_floors == {
        "a.resumed": {"t": {"0": 10, "1": 5}},
        "a.waits": {"t": {"0": 20, "1": 5}},
    }, "one that waits may be resumed while the stream reads again"


def test_going_back_again_keeps_what_is_known(parking):
    """A second table is resumed while the first catches up at a smaller place."""
    park(parking, "a.second", {"t": {"0": 45, "1": 30}}, "t")
    parking.resume([], {})
    floors = {ANY_TABLE: HERE, "a.first": {}, "a.second": {"t": {"0": 45}}}
    state = CheckpointState(stream="shop", base=7, initial={}, floors=floors, generation=1)
    made = rewound(
        state,
        position={"t": {"0": 20, "1": 20}, "u": {"0": 9}},
        start={},
        progresses={"a.other": progress({"t": {"0": 50}})},
        parking=parking,
        base=9,
    )
    assert made.floors[ANY_TABLE] == HERE
    assert floor_of(made.floors, "a.other") == HERE
    assert "a.other" not in made.floors, "as any table: the plan stays small"
    assert made.floors["a.first"] == {"t": {"0": 20, "1": 20}, "u": {"0": 9}}
    assert made.floors["a.second"] == {"t": {"0": 45, "1": 30}}


def test_floors_are_let_go_when_the_stream_has_passed_them():
    floors = {
        ANY_TABLE: {"t": {"0": 50, "1": 40}},
        "a.behind": {"t": {"0": 10}},
        "a.ahead": {"t": {"0": 60}},
    }
    left = remaining_floors(floors, {"t": {"0": 20, "1": 40}})
    assert left == {
        ANY_TABLE: {"t": {"0": 50}},
        "a.behind": {},
        "a.ahead": {"t": {"0": 60}},
    }, "a.behind is named still: the floor of any table is not its own"
    assert remaining_floors(left, {"t": {"0": 55}}) == {"a.ahead": {"t": {"0": 60}}}
    assert remaining_floors(left, {"t": {"0": 60}}) == {}


def test_a_lost_checkpoint_knows_from_the_parking_who_was_behind(parking):
    park(parking, "a.behind", {"t": {"0": 10}}, "t")
    park(parking, "a.parked", {"t": {"0": 30}}, "t")
    parking.resume(["a.behind"], {"t": {"0": 50}})
    tables = {"a.behind": progress({"t": {"0": 25}}), "a.level": progress({"t": {"0": 44}})}
    floors, bad_floors = recovered_floors(tables, parking)
    assert floors == {
        ANY_TABLE: {"t": {"0": 50}},
        "a.behind": {"t": {"0": 25}},
        "a.level": {"t": {"0": 50}},
        "a.parked": {"t": {"0": 30}},
    }
    assert bad_floors == {"a.behind": {}, "a.parked": {"t": {"0": 30}}}


def test_a_lost_checkpoint_without_parking_is_as_ever(parking):
    tables = {"a.x": progress({"t": {"0": 25}})}
    assert recovered_floors(tables, parking) == ({"a.x": {"t": {"0": 25}}}, {})


def test_a_tables_offsets_do_not_go_back_with_the_stream():
    """Else a checkpoint lost while catching up would read its rows once more."""
    span = {"t": {"0": (10, 20)}}
    _, offsets = commit_properties("shop", {"t": {"0": 50}}, span, ["t"], {"t": {"0": 50}})
    assert offsets == {"t": {"0": 50}}
    _, offsets = commit_properties("shop", {"t": {"0": 50}}, span, ["t"], {})
    assert offsets == {"t": {"0": 20}}, "a topic made anew starts over"


def test_bad_records_of_a_resumed_table_go_by_its_own_floor():
    plan = BatchPlan(
        batch_id=0,
        identifier=0,
        floors={ANY_TABLE: {"t": {"0": 50}}, "a.back": {"t": {"0": 30}}},
        bad_floors={"a.back": {"t": {"0": 10}}},
    )
    plan = BatchPlan.from_property(plan.to_property())
    assert plan.bad_floor("q", "a.back", "t", 0) == 10
    assert plan.bad_floor("q", "a.other", "t", 0) == 50
    assert plan.bad_floor("q", "", "t", 0) == 50
    assert (plan.floor("a.back", "t", 0), plan.floor("a.new", "t", 0)) == (30, 50)
    assert plan.floor("a.new", "t", 1) == 0


def test_generations_do_not_meet(tmp_path):
    assert next_generation(tmp_path) == 0
    (tmp_path / "offsets").mkdir()
    (tmp_path / "control.json").write_text("{}")
    assert next_generation(tmp_path) == 1
    (tmp_path / "rewind-4").mkdir()
    assert next_generation(tmp_path) == 5
    state = CheckpointState(stream="shop", base=0, initial={}, floors={}, generation=5)
    state.save(tmp_path)
    assert CheckpointState.load(tmp_path) == state
    assert spark_files(tmp_path, but=state.directory(tmp_path)) == [
        tmp_path / "rewind-4",
        tmp_path / "offsets",
    ]
