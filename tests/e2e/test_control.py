# SPDX-License-Identifier: Apache-2.0
"""A running daemon that is told to pause, reload, compact and end over HTTP, and is killed while
it is paused; a webhook hears of it; every row arrives once."""

import http.server
import json
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import NotFoundError
from tests.browser.chromium import Browser
from tests.e2e.daemon_process import DaemonProcess, eventually, files_config
from tests.e2e.shop_stream import assert_identifiers_never_repeat, assert_no_file_missing
from tests.free_ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.full]

TOKEN = "operators-may-pause-this"


class Lake:
    """A daemon's directory, its events and its endpoint."""

    def __init__(self, directory, webhook):
        self.directory = directory
        self.port = free_port()
        self.count = 0
        (directory / "events").mkdir()
        self.config = files_config(
            directory,
            trigger={"interval": "200ms"},
            metrics={"port": self.port},
            control={"token": TOKEN},
            alerts={"webhook": {"urls": [webhook]}},
        )

    def write(self, count):
        lines = []
        for key in range(self.count, self.count + count):
            row = {"id": key, "n": key}
            source = {"db": "shop", "table": "orders", "ts_ms": 1_700_000_000_000}
            value = {"before": None, "after": row, "op": "c", "source": source}
            lines.append(json.dumps({"key": {"id": key}, "value": value}))
        path = self.directory / f"events/orders.{self.count:06d}.jsonl"
        path.with_suffix(".tmp").write_text("\n".join(lines) + "\n")
        path.with_suffix(".tmp").rename(path)
        self.count += count

    def table(self):
        return FileSystemCatalog(str(self.directory / "warehouse")).table("shop.orders")

    def ids(self):
        try:
            return sorted(row["id"] for row in self.table().to_arrow().to_pylist())
        except NotFoundError:
            return []

    def all_there(self):
        return self.ids() == list(range(self.count))

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, "{}"

    def status(self):
        return json.loads(self.get("/api/status")[1])

    def post(self, action, **members):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{action}",
            data=json.dumps({"wait_s": 30, **members}).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def change(self, section, **values):
        raw = yaml.safe_load(self.config.read_text())
        raw[section] |= values
        self.config.write_text(yaml.safe_dump(raw))


@pytest.fixture
def told():
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    bodies_at = f"http://127.0.0.1:{server.server_address[1]}/hook"
    yield bodies, bodies_at
    server.shutdown()
    server.server_close()


def test_a_daemon_is_told_over_http_and_killed_while_it_is_paused(tmp_path, told):
    bodies, webhook = told
    lake = Lake(tmp_path, webhook)

    def wait(daemon, check, what):
        def alive_and():
            assert daemon.alive, daemon.log_tail()
            return check()

        return eventually(alive_and, timeout=180, what=what)

    lake.write(20)
    with DaemonProcess(lake.config) as daemon:
        wait(daemon, lake.all_there, "the first rows")
        assert lake.get("/readyz")[0] == 200
        assert lake.post("pause", reason="the database moves")[0] == 200
        lake.write(10)
        time.sleep(2.5)  # a dozen triggers
        assert lake.ids() == list(range(20))
        assert lake.get("/healthz")[0] == 200
        assert lake.get("/readyz")[0] == 503
        assert 'lakeward_state{state="paused"} 1.0' in lake.get("/metrics")[1]
        daemon.kill_all()
    with DaemonProcess(lake.config) as daemon:
        wait(daemon, lambda: lake.status().get("state") == "paused", "the pause of before")
        time.sleep(1.5)
        assert lake.ids() == list(range(20)), "a pause outlives the process"
        _reload_while_paused(lake)
        assert lake.status()["state"] == "paused"
        assert lake.post("resume")[0] == 200
        wait(daemon, lake.all_there, "the rows of the pause")
        assert lake.get("/readyz")[0] == 200
        code, answer = lake.post("compact", table="shop.orders")
        assert (code, answer["text"]) == (200, "shop.orders is compacted in the background")
        assert lake.post("compact", table="shop.nothing")[0] == 409
        _look(lake)
        lake.write(5)
        wait(daemon, lake.all_there, "the last rows")
        assert lake.post("drain")[0] == 202
        assert daemon.wait(60) == 0
    assert_identifiers_never_repeat(lake.table())
    assert_no_file_missing(lake.table())
    events = [each["event"] for each in bodies]
    assert events == ["schema_applied", "stream_paused", "stream_resumed"]
    assert "the database moves" in bodies[1]["text"]


def _reload_while_paused(lake):
    lake.change("sink", warehouse=str(lake.directory / "elsewhere"))
    code, answer = lake.post("reload")
    assert (code, answer["state"]) == (409, "failed")
    assert "sink.warehouse" in answer["text"]
    assert lake.status()["reload"]["state"] == "failed"
    lake.change("sink", warehouse=str(lake.directory / "warehouse"))
    lake.change("pipeline", trigger={"interval": "300ms"})
    code, answer = lake.post("reload")
    assert (code, answer["state"]) == (200, "done")
    rows = {each["key"]: each for each in json.loads(lake.get("/config")[1])["settings"]}
    assert rows["pipeline.trigger.interval"]["value"] == "300ms"
    assert rows["pipeline.trigger.interval"]["from"] == "file"
    assert TOKEN not in json.dumps(rows)


def _look(lake):
    """The page of a real daemon, with its buttons, in a browser if there is one."""
    if Browser.found() is None:
        return
    with Browser() as browser:
        tab = browser.open(f"http://127.0.0.1:{lake.port}/")
        tab.wait("document.querySelector('#rows .name')?.textContent === 'shop.orders'")
        tab.ask(f"document.querySelector('#token').value = '{TOKEN}'")
        tab.ask("document.querySelector('#token-form button').click()")
        tab.wait("document.querySelectorAll('#actions button').length === 4")
        tab.ask("document.querySelector('#rows .name button').click()")
        tab.wait("document.querySelector('.more .tools button') !== null")
        tab.ask("document.querySelector('.more .tools button').click()")
        tab.wait("document.querySelector('#said').textContent.includes('in the background')")
        assert tab.troubles == []
