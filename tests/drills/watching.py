# SPDX-License-Identifier: Apache-2.0
"""What a daemon says about itself, looked at twice a second: metrics, readiness, log."""

import contextlib
import dataclasses
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]

EVERY_S = 0.5
_TIMEOUT_S = 3.0


@dataclasses.dataclass(frozen=True)
class Sample:
    """One look.

    Attributes:
        at: when [monotonic seconds].
        wall: when [epoch seconds].
        run: which start of the daemon.
        values: sample name without prefix -> label set -> value.
        ready: the answer of `/readyz`.
        reasons: why not.
    """

    at: float
    wall: float
    run: int
    values: Mapping[str, Mapping[Labels, float]]
    ready: bool
    reasons: tuple[str, ...]

    def series(self, name: str, **labels: str) -> list[float]:
        """Values of all series of a metric with these labels."""
        wanted = set(labels.items())
        return [value for has, value in self.values.get(name, {}).items() if wanted <= has]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 when there are none."""
        return sum(self.series(name, **labels))


class Watch:
    """Samples of one daemon after the other; a thread of its own.

    Attributes:
        samples: oldest first.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._where: tuple[int, Path, int] | None = None
        self._url = ""
        self._ended = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)
        self._thread.start()

    def follow(self, run: int, log: Path, offset: int) -> None:
        """Watch a daemon that begins to write to its log at `offset`."""
        with self._looking:
            self._where, self._url = (run, log, offset), ""

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(10)

    def look(self) -> Sample | None:
        """One look now; None while nobody answers."""
        with self._looking:
            if self._where is None:
                return None
            run, log, offset = self._where
            self._url = self._url or _endpoint(log, offset)
            if not self._url:
                return None
            try:
                values = parsed(_get(f"{self._url}/metrics")[1])
                _, body = _get(f"{self._url}/readyz")
            except (OSError, ValueError):
                return None
            facts = json.loads(body)
            reasons = tuple(facts.get("reasons", ()))
            sample = Sample(time.monotonic(), time.time(), run, values, facts["ready"], reasons)
            self.samples.append(sample)
            return sample

    def status(self) -> dict[str, Any]:
        """The document of `/api/status`; empty while nobody answers."""
        url = self._url
        if not url:
            return {}
        try:
            return dict(json.loads(_get(f"{url}/api/status")[1]))
        except (OSError, ValueError):
            return {}

    def _look_on(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.look()


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Our own metrics of an exposition; names without the prefix."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("lakeward_"):
                name = sample.name.removeprefix("lakeward_")
                found.setdefault(name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def log_lines(path: Path, begin: int = 0, end: int | None = None) -> Iterator[dict[str, Any]]:
    """The JSON lines of a log between two offsets; what others wrote among them is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(begin)
        text = file.read(-1 if end is None else end - begin)
    for line in text.splitlines(keepends=True):
        if line.startswith(b"{") and line.endswith(b"\n"):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _endpoint(log: Path, offset: int) -> str:
    for line in log_lines(log, offset):
        if line.get("event") == "endpoint":
            return str(line["url"])
    return ""


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:  # 503 has a body, too
        with error:
            return error.code, error.read().decode()
