# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes one daemon every second, with our rules."""

import json
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from tests.e2e.daemon_process import eventually
from tests.free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "alerts" / "lakeward.yaml"


class PrometheusServer:
    """Context manager.

    Args:
        directory: for its data.
        target: host and port of the daemon.
    """

    def __init__(self, directory: Path, target: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{free_port()}"
        config = directory / "prometheus.yml"
        scrape = {
            "job_name": "lakeward",
            "static_configs": [{"targets": [target], "labels": {"namespace": "shop"}}],
        }
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "5s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [scrape],
        }
        config.write_text(yaml.safe_dump(document))
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    @staticmethod
    def found() -> bool:
        """Whether it is installed."""
        return shutil.which("prometheus") is not None

    def __enter__(self) -> "PrometheusServer":
        eventually(self._ready, timeout=30, what="Prometheus")
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def instant(self, expression: str, at: float) -> list[dict]:
        """Series with their value at a time: `metric` and `values` of one pair."""
        found = self._get("query", query=expression, time=at)
        if found["resultType"] == "scalar":
            return [{"metric": {}, "values": [found["result"]]}]
        return [{"metric": s["metric"], "values": [s["value"]]} for s in found["result"]]

    def span(self, expression: str, start: float, end: float, step: float) -> list[dict]:
        """Series with their values between two times."""
        return self._get("query_range", query=expression, start=start, end=end, step=step)["result"]

    def alerts(self) -> dict[str, str]:
        """Alerts by name that are pending or firing."""
        return {a["labels"]["alertname"]: a["state"] for a in self._get("alerts")["alerts"]}

    def _get(self, what: str, **parameters: object) -> dict:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]
