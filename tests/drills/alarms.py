# SPDX-License-Identifier: Apache-2.0
"""Which alerts fire when what a drill showed lasts: the shipped rules over its samples.

A drill takes a minute, alerts wait for up to half an hour. So its samples are stretched into series
for Prometheus' own rule tester: half an hour as before the fault, then an hour as at the end of the
fault. What grew while the fault lasted goes on growing as fast: counters over the whole fault, lag
and freshness since they fell last. A timestamp that moved on in the second half of the fault goes
on doing so, one that stood still stands. A daemon that was gone stays gone, or starts again every
two minutes, as the drill says.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from ingest.observe.metrics.metric_table import METRICS, PREFIX
from tests.drills.watching import Labels, Sample

__all__ = ["RULES", "available", "can_fire", "firing"]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "alerts" / "lakeward.yaml"

BEFORE_MIN = 40
FAULT_MIN = 60
_END_MIN = BEFORE_MIN + FAULT_MIN
_START_EVERY_MIN = 2
_PLACE = {"job": "lakeward", "namespace": "lake", "instance": "lakeward-0"}
_AGES = ("lag_seconds", "freshness_seconds")
_GROWING = ("_total", "_bucket", "_count", "_sum", "executors", *_AGES)
_LEAST_RISE_S = 2.0
_FIRED = re.compile(r"alertname:\s*(\w+), time:\s*(\w+)")


def available() -> bool:
    """Whether Prometheus' tester is installed."""
    return shutil.which("promtool") is not None


def _rules() -> dict[str, str]:
    """Expressions by alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return {rule["alert"]: rule["expr"] for rule in rules if "alert" in rule}


def can_fire(name: str) -> bool:
    """Whether the daemon has every metric of an alert's expression."""
    metrics = {PREFIX + row.name for row in METRICS}
    found = re.findall(rf"\b{PREFIX}\w+", _rules()[name])
    return all(re.sub("_(bucket|count|sum)$", "", each) in metrics for each in found)


def firing(before: Sequence[Sample], during: Sequence[Sample], *, gone: bool) -> dict[str, bool]:
    """Alerts that fire at some time of the hour of the fault; whether already before it.

    Args:
        before: samples up to the fault.
        during: samples while it lasts.
        gone: whether the process ends by it.
    """
    found: dict[str, bool] = {}
    for name, minute in _fires(list(_series(before, during, gone=gone))):
        found[name] = found.get(name, False) or minute < BEFORE_MIN
    return found


def _fires(series: list[dict[str, str]]) -> Iterator[tuple[str, int]]:
    """Alert and minute, for every five minutes in which it fires."""
    tests = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for name in _rules()
        for minute in range(0, _END_MIN + 1, 5)
    ]
    with tempfile.TemporaryDirectory(prefix="lakeward-alarms-") as folder:
        path = Path(folder, "test.yaml")
        document = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": tests}],
        }
        path.write_text(yaml.safe_dump(document))
        done = subprocess.run(
            ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
        )
    said = done.stdout + done.stderr
    found = [(name, _minutes(time)) for name, time in _FIRED.findall(said)]
    if done.returncode and not found:
        raise AssertionError(f"promtool does not take the samples: {said[:2000]}")
    yield from found


def _minutes(text: str) -> int:
    hours, _, rest = text.rpartition("h")
    return 60 * int(hours or 0) + int(rest.partition("m")[0] or 0)


def _series(
    before: Sequence[Sample], during: Sequence[Sample], *, gone: bool
) -> Iterator[dict[str, str]]:
    up = [1.0] * BEFORE_MIN + [0.0 if gone else 1.0] * (FAULT_MIN + 1)
    yield _one("up", frozenset(), up)
    if not before:
        return
    healthy = before[-1]
    first, last = healthy, during[-1] if during else healthy
    halfway = during[len(during) // 2 - 1] if len(during) > 1 else healthy
    elapsed_s = max(1.0, last.at - first.at)
    names = sorted({*healthy.values, *last.values})
    for name in names:
        places = {*healthy.values.get(name, {}), *last.values.get(name, {})}
        for labels in sorted(places, key=sorted):
            old = healthy.values.get(name, {}).get(labels)
            new = last.values.get(name, {}).get(labels)
            fault: list[float | None]
            if gone:
                fault = _starting(name, old) or [None] * (FAULT_MIN + 1)
            elif new is None:
                fault = [None] * (FAULT_MIN + 1)
            elif _is_time(name):
                moved = new != halfway.values.get(name, {}).get(labels)
                fault = _times(name, new, first.wall, last.wall, moved=moved)
            else:
                slope = (new - (old or 0.0)) / elapsed_s
                if name.endswith(_AGES):
                    slope = _rise([healthy, *during], name, labels) or slope
                fault = _going_on(name, new, slope)
            calm = [_calm(name, old, minute, first.wall) for minute in range(BEFORE_MIN)]
            yield _one(f"lakeward_{name}", labels, [*calm, *fault])


def _is_time(name: str) -> bool:
    return name.endswith("_timestamp_seconds")


def _calm(name: str, value: float | None, minute: int, wall: float) -> float | None:
    """Before the fault nothing changes, and what is so old stays so old."""
    if value is None or not _is_time(name) or name.startswith("start_"):
        return value if not name.startswith("start_") else 0.0
    return 60.0 * minute - (wall - value)


def _starting(name: str, old: float | None) -> list[float | None] | None:
    """A daemon that starts again and again is seen for a moment each time."""
    if name != "start_timestamp_seconds" or old is None:
        return None
    minutes = range(BEFORE_MIN, _END_MIN + 1)
    return [60.0 * (at - at % _START_EVERY_MIN) for at in minutes]


def _times(
    name: str, value: float, first_wall: float, last_wall: float, *, moved: bool
) -> list[float | None]:
    """A timestamp in the hour of the fault; it stands, or stays as old as it is."""
    begin = 60.0 * BEFORE_MIN
    if name.startswith("start_"):
        return [0.0] * (FAULT_MIN + 1)
    if not moved or value < first_wall:
        return [begin + (value - first_wall)] * (FAULT_MIN + 1)
    age = last_wall - value
    return [begin + 60.0 * minute - age for minute in range(FAULT_MIN + 1)]


def _rise(samples: Sequence[Sample], name: str, labels: Labels) -> float:
    """How fast a value has risen since it stood or fell last [1/s]; 0 = not for long enough."""
    values = [(each.at, each.values.get(name, {}).get(labels)) for each in samples]
    known = [(at, value) for at, value in values if value is not None]
    begin = len(known) - 1
    while begin > 0 and known[begin - 1][1] < known[begin][1]:
        begin -= 1
    if begin < 0 or (took_s := known[-1][0] - known[begin][0]) < _LEAST_RISE_S:
        return 0.0
    return (known[-1][1] - known[begin][1]) / took_s


def _going_on(name: str, new: float, slope: float) -> list[float | None]:
    rising = max(0.0, slope) if name.endswith(_GROWING) else 0.0
    return [new + rising * 60.0 * minute for minute in range(FAULT_MIN + 1)]


def _one(name: str, labels: Labels, values: Sequence[float | None]) -> dict[str, str]:
    pairs: dict[str, Any] = {**dict(labels), **_PLACE}
    text = ",".join(f'{key}="{_quoted(value)}"' for key, value in sorted(pairs.items()))
    return {"series": f"{name}{{{text}}}", "values": " ".join(map(_number, values))}


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float | None) -> str:
    if value is None or math.isnan(value) or math.isinf(value):
        return "_"
    return f"{value:.3f}".rstrip("0").rstrip(".")
