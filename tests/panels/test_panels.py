# SPDX-License-Identifier: Apache-2.0
"""Every query of every panel, asked of a real Prometheus that scrapes a real daemon."""

import subprocess
import time
import urllib.parse

import pytest

from tests.e2e.daemon_process import eventually
from tests.e2e.watched_pipeline import watched_pipeline
from tests.panels.answers import ask_everything
from tests.panels.prometheus_server import PrometheusServer

pytestmark = [
    pytest.mark.full,
    pytest.mark.spark,
    pytest.mark.skipif(
        not PrometheusServer.found(),
        reason="prometheus is not installed (Debian: apt-get install prometheus)",
    ),
]

WATCHED_S = 60


def test_every_panel_shows_something(tmp_path):
    with watched_pipeline(tmp_path / "pipeline") as pipeline:
        target = urllib.parse.urlsplit(pipeline.address).netloc
        with PrometheusServer(tmp_path / "prometheus", target) as server:
            start = time.time()
            time.sleep(WATCHED_S)
            answered = ask_everything(server, start, time.time())
            assert [query for each in answered for query in each.empty()] == []
            eventually(
                lambda: server.alerts().get("LakewardTableParked") == "firing",
                timeout=60,
                what="the alert on the parked table",
            )
            assert "LakewardDown" not in server.alerts()
        body = pipeline.page("/metrics")
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=body, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert pipeline.daemon.terminate() == 0
