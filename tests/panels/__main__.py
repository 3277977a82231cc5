# SPDX-License-Identifier: Apache-2.0
"""Pictures of the dashboards: `python -m tests.panels [DIRECTORY] [SECONDS]`."""

import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

from tests.browser.chromium import Browser
from tests.e2e.watched_pipeline import watched_pipeline
from tests.panels.answers import ask_everything
from tests.panels.drawing import pages
from tests.panels.prometheus_server import PrometheusServer


def main(directory: Path, seconds: float) -> None:
    """Watch a daemon, ask every query, draw every panel."""
    if not PrometheusServer.found():
        sys.exit("no prometheus on the PATH: install the Debian package prometheus")
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as below,
        watched_pipeline(Path(below) / "pipeline") as pipeline,
    ):
        target = urllib.parse.urlsplit(pipeline.address).netloc
        with PrometheusServer(Path(below) / "prometheus", target) as server:
            start = time.time()
            time.sleep(seconds)
            answered = ask_everything(server, start, time.time(), table="shop.orders")
        pipeline.daemon.terminate()
    for each in answered:
        for query in each.empty():
            print("no data:", query)
    for name, text in pages(answered).items():
        path = directory / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        print(path)
    if Browser.found() is None:
        print("no Chromium on the PATH: no pictures, only pages")
        return
    with Browser() as browser:
        for name in pages(answered):
            tab = browser.open((directory / f"{name}.html").resolve().as_uri(), width=1310)
            tab.wait("document.querySelector('.grid') !== null")
            tab.picture(directory / f"{name}.png")
            tab.close()


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "build/dashboards"),
        float(sys.argv[2] if len(sys.argv) > 2 else 90),
    )
