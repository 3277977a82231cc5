# SPDX-License-Identifier: Apache-2.0
"""What `status`, `pause` and `run --recover-offsets` say, without a daemon."""

import json

import orjson
import pytest

from ingest.cli import main as cli
from ingest.daemon import daemon
from ingest.daemon.configuration import load_settings
from ingest.daemon.requests.request_client import request_files
from ingest.observe.http_server import HttpServer
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.pipeline.batch_report import BatchReport
from ingest.state.ownership import Pause
from ingest.state.stream_state import CheckpointState
from storage.clock import ManualClock
from tests.unit.ingest.simulated_stream import SimulatedStream, event


@pytest.fixture
def stream(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    for number in range(10):
        stream.topics.add("a", 0, *event("orders", number, 1))
        stream.topics.add("b", 0, *event("items", number, 1))
    stream.work()
    stream.pause("shop.orders")
    for number in range(5):
        stream.topics.add("a", 0, *event("orders", number, 2))
        stream.topics.add("b", 0, *event("items", number, 2))
    stream.work()
    return stream


def lakeward(capsys, *arguments):
    capsys.readouterr()
    code = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_status_shows_parked_tables_with_reason_and_what_they_missed(stream, tmp_path, capsys):
    config = tmp_path / "shop.yaml"
    code, out, _ = lakeward(capsys, "status", "-c", config, "--json")
    assert code == 0
    status = json.loads(out)
    assert status["daemon"] is None
    assert (status["owner"]["epoch"], status["owner"]["left"]) == (1, False)
    assert status["tables"]["shop.items"]["state"] == "running"
    orders = status["tables"]["shop.orders"]
    assert (orders["state"], orders["by"], orders["reason"]) == ("parked", "person", "by hand")
    assert (orders["since"], orders["topics"]) == ({"a": {"0": 10}}, ["a"])
    kafka = ("--set", "source.type=kafka", "--set", "source.bootstrap.servers=nowhere:1")
    config.write_text(config.read_text().replace(f"type: files, path: {tmp_path}", "topics: [a]"))
    _, out, _ = lakeward(capsys, "status", "-c", config, *kafka, "--json")
    assert json.loads(out)["tables"]["shop.orders"]["missed"] == 5
    code, out, _ = lakeward(capsys, "status", "-c", config, *kafka)
    assert "no daemon answers" in out
    assert ", epoch 1" in out
    assert "shop.orders parked by the person at" in out
    stream.resume("shop.orders")
    _, out, _ = lakeward(capsys, "status", "-c", config, *kafka, "--json")
    orders = json.loads(out)["tables"]["shop.orders"]
    assert (orders["state"], orders["missed"]) == ("behind", 5)


def test_status_shows_a_table_that_cannot_be_read(stream, tmp_path, capsys):
    for path in (tmp_path / "lake/shop.db/items/schema").iterdir():
        path.write_text("{")
    _, out, _ = lakeward(capsys, "status", "-c", tmp_path / "shop.yaml", "--json")
    facts = json.loads(out)["tables"]["shop.items"]
    assert facts["state"] == "unreadable"
    assert "schema-0" in facts["reason"]


def test_a_request_without_a_daemon_waits_and_status_shows_it(stream, tmp_path, capsys):
    config = tmp_path / "shop.yaml"
    code, out, _ = lakeward(capsys, "resume", "-c", config, "shop.orders", "--no-wait")
    assert code == 0
    assert "next start" in out
    code, out, err = lakeward(capsys, "pause", "-c", config, "shop.items", "--timeout", "0")
    assert code == 69
    assert "no daemon answers here" in err
    assert "the request stays" in err
    _, out, _ = lakeward(capsys, "status", "-c", config)
    assert "waiting requests:" in out
    waiting = request_files(load_settings(config)).pending()
    assert [(r.kind, r.arguments["tables"]) for r in waiting] == [
        ("resume", ["shop.orders"]),
        ("pause", ["shop.items"]),
    ]


def test_a_mistake_in_the_new_configuration_shows_before_the_daemon_is_asked(
    stream, tmp_path, capsys
):
    config = tmp_path / "shop.yaml"
    config.write_text(config.read_text() + "nonsense: 1\n")
    code, _, err = lakeward(capsys, "reload", "-c", config)
    assert code == 78
    assert "nonsense" in err


def test_recovered_offsets_are_shown_and_nothing_changes_in_a_dry_run(stream, tmp_path, capsys):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, out, _ = lakeward(
        capsys, "run", "-c", tmp_path / "shop.yaml", "--recover-offsets", "--dry-run"
    )
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["topic", "partition", "start", "table", "complete", "up", "to"]
    assert ["a", "0", "15"] in lines
    assert ["shop.orders", "10"] in lines
    assert ["shop.items", "15"] in lines
    assert "nothing was changed" in out
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_checkpoint_that_is_wrong_is_thrown_away_and_nothing_is_lost_or_doubled(
    stream, tmp_path, capsys, monkeypatch
):
    stream.resume("shop.orders")
    state = tmp_path / "checkpoint/lakeward.json"
    state.write_text("{")  # damaged
    stream.leave()
    monkeypatch.setattr(daemon, "run", lambda settings, **more: 0)
    monkeypatch.setattr("ingest.daemon.spark_start.SparkStart", lambda settings: None)
    code, out, _ = lakeward(capsys, "run", "-c", tmp_path / "shop.yaml", "--recover-offsets")
    assert code == 0
    assert "the new checkpoint starts at these offsets" in out
    made = CheckpointState.load(tmp_path / "checkpoint")
    assert made.generation == 1
    assert made.initial == {"a": {"0": 10}, "b": {"0": 15}}
    stream.topics.add("a", 0, *event("sums", 1, 5))
    stream.restart()
    stream.drain()
    assert stream.rows("shop.orders") == {n: 2 if n < 5 else 1 for n in range(10)}
    assert stream.rows("shop.sums") == {1: 5}


def test_dry_run_alone_is_a_mistake(stream, tmp_path, capsys):
    code, _, err = lakeward(capsys, "run", "-c", tmp_path / "shop.yaml", "--dry-run")
    assert code == 78
    assert "--recover-offsets" in err


def test_a_note_is_what_it_says(stream, tmp_path):
    newest = max((tmp_path / "lake/.lakeward/shop/owner").glob("record-*"))
    note = orjson.loads(newest.read_bytes())["note"]
    assert note["end"] == {"a": {"0": 15}, "b": {"0": 15}}


def test_the_whole_stream_is_paused_only_when_it_is_said(stream, tmp_path, capsys):
    config = tmp_path / "shop.yaml"
    for words in ((), ("shop.items", "--stream")):
        with pytest.raises(SystemExit) as ended:
            cli.main(["pause", "-c", str(config), *words])
        assert ended.value.code == 2
    assert "--stream" in capsys.readouterr().err
    lakeward(capsys, "pause", "-c", config, "--stream", "--reason", "vacuum", "--no-wait")
    lakeward(capsys, "resume", "-c", config, "--stream", "--no-wait")
    waiting = request_files(load_settings(config)).pending()
    kinds = {request.kind: request.arguments for request in waiting}
    assert kinds == {"pause_stream": {"reason": "vacuum"}, "resume_stream": {}}


def test_check_says_by_its_exit_code_and_on_standard_error_what_is_wrong(stream, tmp_path, capsys):
    config = tmp_path / "shop.yaml"
    code, out, err = lakeward(capsys, "status", "-c", config, "--check")
    assert code == 69
    assert "no daemon answers" in err
    assert "shop.orders is parked" in err
    assert "shop.items" in out, "the tables are shown all the same"


@pytest.fixture
def daemon_page():
    clock = ManualClock(1_700_000_000_000)
    board, metrics = StatusBoard("shop", clock), Metrics(clock, process=False)
    for condition in ("configuration", "owner", "session", "source"):
        board.set_condition(condition, ok=True)
    board.set_state("running")
    metrics.record(
        BatchReport(
            batch_id=1,
            identifier=1,
            outcome="committed",
            source_ts_ms={"shop.items": (1, clock.now_ms() - 20_000)},
            end_offsets={"a": {"0": 10}},
        )
    )
    metrics.record_watermarks({("a", 0): (0, 12)})
    board.set_table_states({"shop.items": {"state": "running"}})
    with HttpServer(metrics, board, host="127.0.0.1", port=0) as server:
        yield server.url, board


def test_a_daemon_alone_can_be_checked_from_elsewhere(daemon_page, capsys):
    url, board = daemon_page
    check = ("status", "--url", url, "--check")
    assert lakeward(capsys, *check)[0] == 0
    assert lakeward(capsys, *check, "--max-freshness", "1m")[0] == 0
    code, out, err = lakeward(capsys, *check, "--max-freshness", "10s")
    assert code == 1
    assert "shop.items is 20 s old, 10 s are allowed" in err
    assert "20.0 s" in out
    board.set_table_states({"shop.orders": {"state": "parked", "reason": "lost", "by": "stream"}})
    board.set_paused(Pause(reason="vacuum", since_ms=0))
    code, out, _ = lakeward(capsys, *check, "--json")
    assert code == 1
    assert json.loads(out)["problems"] == [
        "not ready: the stream is paused: vacuum",
        "shop.orders is parked: lost",
    ]
    assert lakeward(capsys, "status", "--url", "http://127.0.0.1:1", "--check")[0] == 69


def test_status_needs_to_know_of_what(capsys):
    for words in ((), ("--url", "http://x", "--max-freshness", "1m")):
        with pytest.raises(SystemExit):
            cli.main(["status", *words])
