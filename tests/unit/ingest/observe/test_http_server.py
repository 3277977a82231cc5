# SPDX-License-Identifier: Apache-2.0
import base64
import dataclasses
import gzip
import hashlib
import http.client
import json
import re
import socket
import struct
import time
import urllib.request

import pytest

from ingest.config.choices import ChangeKind
from ingest.observe.http_server import HttpServer
from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.routing import Outcome, Verdict
from ingest.state.ownership import Pause
from ingest.state.request_files import Answer
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

LAYOUT = TableLayout(
    files=3,
    bytes=30,
    records=9,
    buckets=1,
    partitions=1,
    runs=(3,),
    level0=(3,),
    levels=((0, 3, 30),),
    compaction_trigger=5,
    stop_trigger=8,
    schema_id=0,
    snapshots=7,
    committed_ms=1,
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
def server(metrics, board):
    with HttpServer(metrics, board, host="127.0.0.1", port=0) as server:
        yield server


@pytest.fixture
def get(server):
    def request(path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
        finally:
            connection.close()

    return request


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
    assert json.loads(body)["reason"] == "the main loop is stuck"
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


def test_the_status_page_is_one_file_that_brings_all_it_needs(get, board):
    board.record(REPORT)
    status, content_type, body = get("/")
    assert status == 200
    assert content_type.startswith("text/html")
    assert "shop.<b>" not in body, "it holds no data"
    assert not re.search(r'(src|href)="(?!/|data:)', body)
    assert "innerHTML" not in body


def test_the_page_forbids_whatever_it_does_not_bring(server):
    with urllib.request.urlopen(server.url) as answer:
        policy, body = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    (script,) = re.findall("<script>(.*?)</script>", body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert " style=" not in body
    assert " onclick=" not in body


def test_long_answers_are_zipped_for_those_who_take_it(server, board):
    board.set_table_states({f"shop.table_{n}": {"state": "running"} for n in range(500)})
    request = urllib.request.Request(f"{server.url}/api/status")
    with urllib.request.urlopen(request) as answer:
        plain = answer.read()
    request.add_header("Accept-Encoding", "gzip")
    with urllib.request.urlopen(request) as answer:
        zipped = answer.read()
        assert answer.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(zipped))["tables"] == json.loads(plain)["tables"]
    assert len(zipped) < len(plain) / 5


def test_unknown_pages_head_and_post(get):
    assert get("/secret")[0] == 404
    status, _, body = get("/healthz", "HEAD")
    assert (status, body) == (200, "")
    assert get("/metrics", "POST")[0] == 405
    assert get("/metrics", "PUT")[0] == 501


def test_a_client_that_goes_away_is_no_news_and_a_page_that_fails_is(
    server, get, board, caplog, capsys
):
    caplog.set_level("DEBUG", "ingest.observe.http_server")
    raw = socket.create_connection(("127.0.0.1", server.port))
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.sendall(b"POST /api/pause HTTP/1.0\r\nContent-Length: 9\r\n\r\n")
    raw.close()  # with a reset, in the middle of the request
    board.health = lambda: {}["a bug"]
    with pytest.raises(http.client.RemoteDisconnected):
        get("/healthz")
    deadline = time.monotonic() + 10
    while len(found := [each for each in caplog.records if hasattr(each, "event")]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert {(each.levelname, each.exc_info[0]) for each in found} == {
        ("DEBUG", ConnectionResetError),
        ("ERROR", KeyError),
    }
    # socketserver's own words for it
    assert "Exception occurred during processing" not in capsys.readouterr().err


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
    board.set_table_states({"shop.a": {"state": "running"}})
    assert json.loads(get("/api/status")[2])["tables"]["shop.a"] == {"rows": 0, "state": "running"}


def test_a_dead_engine_is_unhealthy_however_young_the_heartbeat(get, board):
    alive = [True]
    board.watch_engine(lambda: alive[0])
    assert get("/healthz")[0] == 200
    alive[0] = False
    status, _, body = get("/healthz")
    assert status == 503
    assert "JVM" in json.loads(body)["reason"]


def test_a_paused_stream_is_alive_but_not_ready_and_says_why(get, board):
    make_ready(board)
    board.set_state("paused")
    board.set_paused(Pause(reason="the database moves", since_ms=1_700_000_000_000))
    assert get("/healthz")[0] == 200
    status, _, body = get("/readyz")
    assert status == 503
    assert json.loads(body)["reasons"] == ["the stream is paused: the database moves"]
    document = json.loads(get("/api/status")[2])
    assert document["paused"]["since"] == "2023-11-14T22:13:20.000Z"
    board.set_paused(None)
    assert get("/readyz")[0] == 200


def test_settings_are_shown_with_their_origins(get, board):
    board.set_settings([("pipeline.name", "shop", "file")], 10.0)
    assert json.loads(get("/config")[2]) == {
        "pipeline": "shop",
        "settings": [{"key": "pipeline.name", "value": "shop", "from": "file"}],
    }


def test_rates_and_an_hour_of_samples_are_kept_and_gaps_stay_gaps(get, board, clock):
    for _ in range(400):
        clock.advance(10_000)
        board.record(dataclasses.replace(REPORT, events=30))
        board.sample(7, {"shop.<b>": 2.5})
    clock.advance(40_000)
    board.sample(None, {})
    document = json.loads(get("/api/status")[2])
    history = document["history"]
    assert history["every_s"] == 10
    assert len(history["lag_records"]) == 360
    assert history["lag_records"][-6:] == [7, 7, None, None, None, None]
    assert history["freshness_s"][0] == 2.5
    assert document["tables"]["shop.<b>"]["spark"][5] == pytest.approx(0.3)
    assert history["records_per_s"][100] == pytest.approx(3.0)
    detail = json.loads(get("/api/status?table=shop.%3Cb%3E")[2])
    assert (detail["table"], detail["rows"]) == ("shop.<b>", 1200)
    assert len(detail["history"]["rows_per_s"]) == 360
    assert get("/api/status?table=no.such")[0] == 404


def test_what_is_remembered_is_bounded(board):
    said = Verdict(
        kind=ChangeKind.ADD_COLUMN, column="c", old="", new="INT", outcome=Outcome.APPLIED
    )
    for _ in range(100):
        board.failed(RuntimeError("x"))
        board.record(dataclasses.replace(REPORT, schema_verdicts=(("a.b", said),)))
        board.answered(Answer(id="1", kind="reload", state="done", text="t"))
    document = board.document()
    lengths = {name: len(document[name]) for name in ("errors", "batches", "requests")}
    assert lengths == {"errors": 20, "batches": 40, "requests": 20}
    assert len(document["schema_changes"]) == 50
    assert document["reload"]["text"] == "t"


def test_of_idle_batches_in_a_row_one_is_remembered(board):
    idle = dataclasses.replace(REPORT, events=0, outcome="empty")
    for report in (REPORT, idle, idle, idle, REPORT):
        board.record(report)
    assert [each["events"] for each in board.document()["batches"]] == [3, 0, 3]


def test_quarantine_counts_changelog_and_layout_are_by_table(get, board, metrics):
    report = dataclasses.replace(
        REPORT,
        bad_by_table={"shop.<b>": {"json": 2}, "": {"type": 1}},
        changelog_rows={"shop.<b>": 9},
    )
    board.record(report)
    board.record(report)
    metrics.record_layout("shop.<b>", LAYOUT)
    document = json.loads(get("/api/status")[2])
    assert document["quarantine"]["by_class"] == {"json": 4, "type": 2}
    assert document["quarantine"]["by_table"]["shop.<b>"] == {"json": 4}
    facts = document["tables"]["shop.<b>"]
    assert facts["changelog"]["rows"] == 9
    assert facts["layout"]["files"] == 3
    assert facts["layout"]["levels"] == [{"level": 0, "files": 3, "bytes": 30}]
    assert (facts["layout"]["runs_max"], facts["layout"]["snapshots"]) == (3, 7)


def test_of_very_many_tables_those_that_need_a_look_are_shown(get, board):
    board.set_table_states({f"shop.t{n:04d}": {"state": "running"} for n in range(2500)})
    board.set_table_states({"shop.t2400": {"state": "parked", "reason": "x"}})
    document = json.loads(get("/api/status")[2])
    assert (len(document["tables"]), document["tables_left_out"]) == (2000, 500)
    assert "shop.t2400" in document["tables"]
    assert document["summary"]["tables"] == 2500
    assert json.loads(get("/api/status?table=shop.t2499")[2])["state"] == "running"


def test_header_names_are_the_same_in_lower_case(server):
    """Proxies such as Envoy write them so."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", "/metrics", headers={"accept": "application/openmetrics-text"})
    assert connection.getresponse().headers["Content-Type"].startswith("application/openmetrics")
    connection.close()


def test_an_address_of_version_6(metrics, board):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no such addresses")
    with (
        HttpServer(metrics, board, host="::1", port=0) as server,
        urllib.request.urlopen(f"{server.url}/api/status", timeout=5) as answer,
    ):
        assert json.loads(answer.read())["pipeline"] == "shop"
