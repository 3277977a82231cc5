# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.state.ownership import BatchNote, Owner, Ownership, newest_note
from ingest.state.stream_position import recovered_offsets
from ingest.state.stream_state import (
    CheckpointState,
    TableProgress,
    commit_properties,
    read_offset_log,
)
from storage.errors import CorruptDataError, InternalError
from storage.io.local import LocalFileIO

NOTE = BatchNote(
    identifier=7,
    start={"t": {"0": 10, "1": 4}},
    end={"t": {"0": 20, "1": 9}},
    tables=("a.x", "a.y"),
)


def progress(identifier, offsets=None):
    return TableProgress(identifier, offsets or {}, {}, 1)


def test_note_survives_the_file(tmp_path):
    place = (LocalFileIO(durable=False), str(tmp_path), "shop")
    ownership = Ownership(*place, Owner.this_process(0))
    assert newest_note(*place) is None
    ownership.acquire(None, note=None, settled=True)
    ownership.record_batch(NOTE)
    assert newest_note(*place) == NOTE


def test_a_process_that_does_not_own_the_stream_writes_no_note(tmp_path):
    place = (LocalFileIO(durable=False), str(tmp_path), "shop")
    with pytest.raises(InternalError, match="not owned"):
        Ownership(*place, Owner.this_process(0)).record_batch(NOTE)


def test_the_note_of_the_first_format_is_read(tmp_path):
    (tmp_path / ".lakeward/shop").mkdir(parents=True)
    (tmp_path / ".lakeward/shop/progress.json").write_text(
        '{"version": 1, "identifier": 7, "start": {"t": {"0": 10, "1": 4}}, '
        '"end": {"t": {"0": 20, "1": 9}}, "tables": ["a.x", "a.y"]}'
    )
    assert newest_note(LocalFileIO(durable=False), str(tmp_path), "shop") == NOTE


def test_damaged_note_is_named(tmp_path):
    (tmp_path / ".lakeward/shop").mkdir(parents=True)
    (tmp_path / ".lakeward/shop/progress.json").write_text("{")
    with pytest.raises(CorruptDataError, match="progress"):
        newest_note(LocalFileIO(durable=False), str(tmp_path), "shop")


@pytest.mark.parametrize(
    ("tables", "start"),
    [
        ({"a.x": 7, "a.y": 7, "a.old": 3}, NOTE.end),
        ({"a.x": 7, "a.y": 6}, NOTE.start),
        ({"a.x": 7}, NOTE.start),  # the batch created a.y, and never reached it
        ({}, NOTE.start),
    ],
)
def test_a_batch_resumes_at_its_end_only_when_all_its_tables_have_it(tables, start):
    progresses = {name: progress(identifier) for name, identifier in tables.items()}
    assert recovered_offsets(NOTE, progresses) == start


def test_a_new_stream_starts_from_its_settings():
    assert recovered_offsets(None, {}) is None


@pytest.mark.parametrize(
    ("other", "start"),
    [
        ({"t": {"0": 12, "1": 9}}, {"t": {"0": 12, "1": 9}}),
        ({"t": {"0": 12}}, {"t": {"0": 12}}),  # what some table lacks is read from its beginning
    ],
)
def test_without_a_note_the_smallest_offset_of_all_tables_wins(other, start):
    tables = {"a.x": progress(7, {"t": {"0": 20, "1": 9}}), "a.y": progress(5, other)}
    assert recovered_offsets(None, tables) == start


def test_commit_properties_add_up_over_batches_and_name_only_feeding_topics():
    first, offsets = commit_properties(
        "shop", {}, {"t": {"0": (0, 5)}, "other": {"0": (0, 3)}}, ["t"]
    )
    assert offsets == {"t": {"0": 5}}
    assert first["lakeward.range.shop"] == '{"t":{"0":[0,5]}}'
    second, offsets = commit_properties(
        "shop", offsets, {"t": {"1": (2, 4)}, "u": {"0": (1, 2)}}, ["u"]
    )
    assert offsets == {"t": {"0": 5, "1": 4}, "u": {"0": 2}}
    assert second["lakeward.offsets.shop"] == '{"t":{"0":5,"1":4},"u":{"0":2}}'


def test_checkpoint_state_survives_and_is_bound_to_its_stream(tmp_path):
    assert CheckpointState.load(tmp_path) is None
    state = CheckpointState(
        stream="shop", base=12, initial={"t": {"0": 3}}, floors={"a.x": {"t": {"0": 3}}}
    )
    state.save(tmp_path)
    assert CheckpointState.load(tmp_path) == state


def test_damaged_checkpoint_state_says_what_to_do(tmp_path):
    (tmp_path / "lakeward.json").write_text('{"version": 1}')
    with pytest.raises(CorruptDataError, match="--recover-offsets"):
        CheckpointState.load(tmp_path)


def test_offset_log_gives_the_sources_own_json(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"t":{"0":8}}')
    assert read_offset_log(tmp_path, 4) == {"t": {"0": 8}}
    assert read_offset_log(tmp_path, 3) is None
