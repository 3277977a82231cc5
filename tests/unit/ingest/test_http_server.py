# SPDX-License-Identifier: Apache-2.0
import http.client
import json

import pytest

from ingest.microbatch.batch_report import BatchReport
from ingest.observing.http_server import HttpServer, StatusBoard
from ingest.observing.telemetry import Metrics
from storage.clock import ManualClock
from storage.errors import InternalError

REPORT = BatchReport(
    batch_id=1,
    identifier=5,
    outcome="committed",
    events=3,
    rows_by_table={"shop.<b>": {"insert": 3}},
    snapshots={"shop.<b>": 2},
    end_offsets={"t": {"0": 30}},
    duration_s=0.5,
)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def board(clock):
    return StatusBoard("shop", clock)


@pytest.fixture
def metrics(clock):
    return Metrics(clock, process=False)


@pytest.fixture
def get(metrics, board):
    with HttpServer(metrics, board, host="127.0.0.1", port=0) as server:

        def request(path, method="GET"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            try:
                connection.request(method, path)
                answer = connection.getresponse()
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
            finally:
                connection.close()

        yield request


def make_ready(board):
    for condition in ("configuration", "owner", "session", "source"):
        board.set_condition(condition, ok=True)
    board.set_state("running")


def test_metrics_page_is_prometheus_text(get, metrics, board):
    metrics.record(REPORT)
    status, content_type, body = get("/metrics?x=1")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert 'lakeward_batches_total{outcome="committed"} 1.0' in body


def test_health_depends_on_the_heartbeat_alone(get, board, clock):
    board.failed(RuntimeError("broker down"))
    assert get("/healthz")[0] == 200
    clock.advance(601_000)
    status, _, body = get("/healthz")
    assert status == 503
    assert json.loads(body)["reason"] == "the main loop has stopped"
    board.beat()
    assert get("/healthz")[0] == 200


def test_health_tolerates_ten_times_the_longest_batch(board, clock):
    board.record(BatchReport(batch_id=1, identifier=1, outcome="committed", duration_s=120.0))
    clock.advance(1_100_000)
    assert board.health()[0]
    clock.advance(200_000)
    assert not board.health()[0]


def test_readiness_gives_a_reason_for_everything_missing(get, board):
    status, content_type, body = get("/readyz")
    assert status == 503
    assert content_type.startswith("application/json")
    reasons = json.loads(body)["reasons"]
    assert "session is not ready yet" in reasons
    assert "the daemon is starting" in reasons
    make_ready(board)
    status, _, body = get("/readyz")
    assert status == 200
    assert json.loads(body)["reasons"] == []


def test_failed_batch_makes_unready_until_the_next_good_one(board):
    make_ready(board)
    board.failed(RuntimeError("store is down\nlong trace"))
    ready, document = board.readiness()
    assert not ready
    assert document["reasons"] == ["the last batch failed: store is down"]
    board.record(REPORT)
    assert board.readiness()[0]


def test_status_has_batch_tables_offsets_lag_and_errors(get, board, metrics):
    board.failed(RuntimeError("first try"))
    board.record(REPORT)
    metrics.record(REPORT)
    metrics.record_watermarks({("t", 0): (0, 42)})
    board.set_fact("warehouse", "/data")
    document = json.loads(get("/api/status")[2])
    assert document["pipeline"] == "shop"
    assert document["batch"]["done"] == 1
    assert document["batch"]["last"]["identifier"] == 5
    assert document["tables"]["shop.<b>"]["snapshot_id"] == 2
    assert document["tables"]["shop.<b>"]["rows"] == 3
    assert document["source"]["t"]["0"] == {"committed": 30, "lag": 12}
    assert document["errors"][0]["type"] == "RuntimeError"
    assert document["facts"] == {"warehouse": "/data"}


def test_status_page_escapes_what_it_shows(get, board):
    board.record(REPORT)
    status, content_type, body = get("/")
    assert status == 200
    assert content_type.startswith("text/html")
    assert "shop.&lt;b&gt;" in body
    assert "<b>" not in body


def test_unknown_pages_head_and_post(get):
    assert get("/secret")[0] == 404
    status, _, body = get("/healthz", "HEAD")
    assert (status, body) == (200, "")
    assert get("/metrics", "POST")[0] == 501


def test_taken_port_is_an_error_at_construction(metrics, board):
    with (
        HttpServer(metrics, board, host="127.0.0.1", port=0) as server,
        pytest.raises(OSError, match="in use"),
    ):
        HttpServer(metrics, board, host="127.0.0.1", port=server.port)


def test_close_without_start_frees_the_port(metrics, board):
    server = HttpServer(metrics, board, host="127.0.0.1", port=0)
    port = server.port
    server.close()
    HttpServer(metrics, board, host="127.0.0.1", port=port).close()


def test_states_are_checked(board):
    with pytest.raises(InternalError):
        board.set_state("asleep")


def test_row_counts_add_up_over_batches(board):
    board.record(REPORT)
    board.record(REPORT)
    assert board.document()["tables"]["shop.<b>"]["rows"] == 6


def test_a_parked_table_is_seen_with_its_reason_until_it_runs_again(get, board):
    board.set_table_states({"shop.a": {"state": "parked", "reason": "a <file>", "by": "stream"}})
    facts = json.loads(get("/api/status")[2])["tables"]["shop.a"]
    assert (facts["state"], facts["reason"], facts["by"]) == ("parked", "a <file>", "stream")
    assert "shop.a is parked: a &lt;file&gt;" in get("/")[2]
    board.set_table_states({"shop.a": {"state": "running"}})
    assert json.loads(get("/api/status")[2])["tables"]["shop.a"] == {"rows": 0, "state": "running"}
    assert "is parked" not in get("/")[2]
