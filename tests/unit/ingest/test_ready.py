# SPDX-License-Identifier: Apache-2.0
import argparse
import http.server
import json
import threading

import pytest

from ingest.cli import build_parser
from ingest.commands.ready import _ready, ask_ready
from ingest.observing.http_server import HttpServer, StatusBoard
from ingest.observing.status_board import CONDITIONS
from ingest.observing.telemetry import Metrics
from storage.clock import ManualClock
from tests.free_ports import free_port


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def board(clock):
    return StatusBoard("shop", clock)


@pytest.fixture
def url(clock, board):
    with HttpServer(Metrics(clock, process=False), board, host="127.0.0.1", port=0) as server:
        yield server.url


def make_ready(board):
    board.set_state("running")
    for name in CONDITIONS:
        board.set_condition(name, True)


def run(url, clock, *options):
    arguments = build_parser().parse_args(["ready", url, *options])
    return _ready(arguments, clock)


def test_a_daemon_that_starts_is_not_ready_and_says_why(url, clock, capsys):
    assert run(url, clock) == 69
    assert "the daemon is starting" in capsys.readouterr().err


def test_a_ready_daemon(url, board, clock, capsys):
    make_ready(board)
    assert run(url, clock) == 0
    assert capsys.readouterr().out == "ready (running)\n"
    assert run(url, clock, "--json") == 0
    assert json.loads(capsys.readouterr().out)["ready"] is True


def test_it_asks_again_until_it_is_ready(url, board, clock, monkeypatch, capsys):
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        clock.advance(1000)
        if len(waited) == 3:
            make_ready(board)

    monkeypatch.setattr(clock, "sleep", sleep)
    assert run(url, clock, "--timeout", "30") == 0
    assert len(waited) == 3


def test_it_does_not_wait_longer_than_told(url, clock):
    assert run(url, clock, "--timeout", "5") == 69


def test_nobody_answers(clock, capsys):
    assert run(f"http://127.0.0.1:{free_port()}", clock) == 69
    assert "does not answer" in capsys.readouterr().err


def test_somebody_else_answers():
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        ready, document = ask_ready(f"http://127.0.0.1:{server.server_address[1]}/")
        server.shutdown()
    assert not ready
    assert "no Lakeward daemon" in document["reasons"][0]


def test_the_address_is_required():
    with pytest.raises(SystemExit):
        build_parser().parse_args(["ready"])
    assert isinstance(build_parser().parse_args(["ready", "x"]), argparse.Namespace)
