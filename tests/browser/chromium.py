# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools protocol through two pipes: no driver, no library.

`Browser.found()` says whether there is one. A `Tab` remembers what the console said and what failed
to load, so a test can ask that it was nothing.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

__all__ = ["Browser", "Tab"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-color-profile=srgb",
)
_TIMEOUT_S = 30.0


class Browser:
    """One process; context manager."""

    def __init__(self):
        self._home = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()

        def place():  # the browser reads from 3 and writes to 4
            os.dup2(os.dup(to_read), 3)
            os.dup2(os.dup(to_write), 4)

        # both ends may sit on 3 or 4 themselves, so go through numbers that are free
        high_read, high_write = os.dup(to_read), os.dup(to_write)
        os.close(to_read)
        os.close(to_write)
        to_read, to_write = high_read, high_write
        self._process = subprocess.Popen(
            [self.found(), *_FLAGS, f"--user-data-dir={self._home.name}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=place,
            close_fds=False,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._answers = {}
        self._tabs = {}

    @staticmethod
    def found():
        """Path of a browser; None = there is none."""
        return next((path for name in _NAMES if (path := shutil.which(name))), None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        with contextlib.suppress(OSError, AssertionError, TimeoutError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._home.cleanup()

    def call(self, method, session=None, **parameters):
        """Send a command and wait for its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _TIMEOUT_S
        while number not in self._answers:
            self.pump(deadline)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def pump(self, deadline):
        """Take in what the browser says, or fail at the deadline."""
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._in], [], [], max(0.0, left))
        if not ready:
            raise TimeoutError("the browser does not answer")
        data = os.read(self._in, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for each in map(json.loads, messages):
            if "id" in each:
                self._answers[each["id"]] = each
            elif each.get("sessionId") in self._tabs:
                self._tabs[each["sessionId"]].hear(each["method"], each["params"])

    def open(self, url, *, width=1280, height=900, dark=False, scale=1):
        """A new tab that shows a page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height, scale=scale)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=url)
        return tab


class Tab:
    """One page."""

    def __init__(self, browser, session, target):
        self._browser = browser
        self._session = session
        self._target = target
        self.troubles = []

    def call(self, method, **parameters):
        """A command to this page."""
        return self._browser.call(method, self._session, **parameters)

    def hear(self, method, facts):
        """An event of this page."""
        if method == "Runtime.exceptionThrown":
            details = facts["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning"):
            self.troubles.append(str([each.get("value") for each in facts["args"]]))
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.troubles.append(facts["entry"]["text"])

    def resize(self, width, height, *, scale=1):
        """Have a screen of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def ask(self, expression):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, within_s=15.0):
        """Until an expression is true."""
        deadline = time.monotonic() + within_s
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def picture(self, path: Path, *, whole=True):
        """Write a PNG of the page, all of it or what the screen shows."""
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            area = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            clip = {"captureBeyondViewport": True, "clip": area}
        answer = self.call("Page.captureScreenshot", format="png", **clip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self):
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)
