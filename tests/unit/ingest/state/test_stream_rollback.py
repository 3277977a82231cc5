# SPDX-License-Identifier: Apache-2.0
"""All tables of a stream go back to one batch together, and the stream goes on from there."""

import json
import random

import pytest

from ingest.cli import main as cli
from ingest.state import stream_position
from ingest.state.stream_state import read_offset_log, require_not_rolled_back
from storage.errors import InvalidRequestError
from tests.unit.ingest.simulated_stream import SimulatedStream, event
from tests.unit.ingest.state.test_parking_histories import Model
from tests.unit.ingest.state.test_pipeline_commands import lakeward


@pytest.fixture
def stream(tmp_path, monkeypatch):
    return SimulatedStream(tmp_path, monkeypatch)


def config(stream):
    return stream.directory / "shop.yaml"


def points(stream, capsys):
    """Output of `stream points`, the newest first."""
    code, out, _ = lakeward(capsys, "stream", "points", "-c", config(stream), "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def rollback(stream, capsys, *words):
    return lakeward(capsys, "stream", "rollback", "-c", config(stream), *words)


def continued(stream, model):
    """The stream continues, and its tables end in the rows of the model."""
    stream.open()
    require_not_rolled_back(stream.book.options(), "shop")
    model.traffic(10)
    stream.drain()
    for table, rows in model.rows.items():
        assert stream.rows(table) == rows, table


def played(stream, seed, rounds=4):
    """Traffic in several batches; the model, and the rows after each batch."""
    model = Model(stream, random.Random(seed))
    after = {}
    for _ in range(rounds):
        model.traffic(25)
        while stream.batch():
            after[stream.position.state.base + stream.sink.last_batch_id] = {
                table: stream.rows(table) for table in model.rows
            }
            stream.clock.advance(60_000)
    return model, after


def test_tables_are_as_they_were_after_the_batch_and_the_rest_is_read_again(stream, capsys):
    model, after = played(stream, 1)
    stream.leave()
    batches = [point["batch"] for point in points(stream, capsys)]
    assert batches == sorted(after, reverse=True)[: len(batches)]  # the first was empty
    assert len(batches) > 2
    chosen = batches[len(batches) // 2]
    code, out, _ = rollback(stream, capsys, "--to-batch", chosen)
    assert code == 0
    assert f"last batch to keep: {chosen} of" in out
    for table, rows in after[chosen].items():
        assert stream.rows(table) == rows, table
    continued(stream, model)
    assert stream.quarantined() == model.bad


def test_a_time_means_the_last_batch_before_it_and_a_dry_run_changes_nothing(stream, capsys):
    played(stream, 2)
    stream.leave()
    point = points(stream, capsys)[2]
    time_ms = point["committed"] + 1
    before = {p: p.read_bytes() for p in stream.directory.rglob("*") if p.is_file()}
    code, out, _ = rollback(stream, capsys, "--to-time", time_ms, "--dry-run", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["batch"] == point["batch"]
    assert any(table["target"] < table["newest"] for table in document["tables"])
    assert before == {p: p.read_bytes() for p in stream.directory.rglob("*") if p.is_file()}


def test_it_is_refused_while_a_daemon_owns_the_stream(stream, capsys, monkeypatch):
    played(stream, 3, rounds=2)
    monkeypatch.setattr("ingest.state.lease.Lease._heartbeat", lambda *_: random.random())
    text = config(stream).read_text().replace("{name: shop,", "{name: shop, owner.ttl: 3s,")
    config(stream).write_text(text)
    batch = points(stream, capsys)[-1]["batch"]
    monkeypatch.setattr("storage.clock.SystemClock.sleep", lambda *_: None)
    code, _, err = rollback(stream, capsys, "--to-batch", batch)
    assert code == 75
    assert "a daemon of this stream runs already" in err


def test_parked_tables_and_unknown_batches_are_refused(stream, capsys):
    played(stream, 4, rounds=2)
    stream.leave()
    code, _, err = rollback(stream, capsys, "--to-batch", 99)
    assert code == 78
    assert "stream points" in err
    stream.open()
    stream.pause("shop.orders")
    stream.leave()
    code, _, err = rollback(stream, capsys, "--to-batch", 0)
    assert code == 78
    assert "parked" in err


class Killed(BaseException):
    """The command was killed."""


def steps_killed(monkeypatch, number):
    """Kill at the number-th durable step of `carry_out`."""
    left = [number]

    def counted(function):
        def counting(*args, **more):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return function(*args, **more)

        return counting

    for name in ("note_rollback", "rollback_to", "forget_rollback"):
        monkeypatch.setattr(stream_position, name, counted(getattr(stream_position, name)))
    return left


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[] if n in (2, 6) else pytest.mark.full) for n in range(12)],
)
def test_a_death_in_the_middle_keeps_daemons_off_until_it_is_repeated(
    stream, capsys, monkeypatch, number
):
    model, after = played(stream, 5)
    stream.leave()
    chosen = sorted(after)[len(after) // 2]
    words = ["stream", "rollback", "-c", str(config(stream)), "--to-batch", str(chosen)]
    with monkeypatch.context() as patch:
        left = steps_killed(patch, number)
        try:
            cli.main(words)
        except Killed:
            stream.open()
            if number:
                with pytest.raises(InvalidRequestError, match="rolled back"):
                    require_not_rolled_back(stream.book.options(), "shop")
            stream.leave()
        else:
            assert left[0] >= 0
    assert lakeward(capsys, *words)[0] == 0
    continued(stream, model)


def test_a_batch_planned_anew_has_the_bounds_of_the_new_plan(stream):
    """A position that starts over in the same place does not remember what was planned there."""
    stream.topics.add("a", 0, *event("x", 1, 1))
    stream.drain()
    position = stream.position
    number = stream.sink.last_batch_id
    planned = position.directory / "offsets" / str(number)
    before = position.bounds(number)
    position.start_from(position.state)

    planned.write_bytes(planned.read_bytes().replace(b":1", b":7"))

    assert position.bounds(number) != before
    assert position.bounds(number)[1] == read_offset_log(position.directory, number)
