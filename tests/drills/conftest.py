# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the drills, and the summary after them."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drills.drill_broker import DrillBroker, drill_broker
from tests.drills.evidence import Evidence
from tests.drills.stage import Stage
from tests.e2e.availability import had
from tests.e2e.s3_server import s3_server

__all__ = ["s3_server"]

_SHOWN: list[Evidence] = []
_RESULTS = Path(__file__).resolve().parents[2] / "build" / "drills.json"


@pytest.fixture(scope="session")
def broker() -> Iterator[DrillBroker]:
    """One broker for all drills; who stops it starts it again."""
    with had(drill_broker(), "Kafka broker") as running:
        yield running


@pytest.fixture
def stage(
    broker: DrillBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Makes the stage of the drill that the test is named after; gone with the test."""
    name = request.node.originalname.removeprefix("test_")

    with contextlib.ExitStack() as stack:

        def make(drill: str = name, **arguments: Any) -> Stage:
            made = Stage(drill, tmp_path, broker, **arguments)
            stack.callback(made.close)
            _SHOWN.append(made.evidence)
            return made

        yield make


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A table of what the drills showed; the same as JSON in build/."""
    if not _SHOWN:
        return
    _RESULTS.parent.mkdir(exist_ok=True)
    rows = [dataclasses.asdict(each) for each in _SHOWN]
    _RESULTS.write_text(json.dumps(rows, indent=2) + "\n")
    terminalreporter.section("drills")
    for each in _SHOWN:
        terminalreporter.write_line(
            f"{each.drill:<28} {each.seconds:>6.1f} s  {each.records:>7} records  "
            f"{each.batches:>3} batches  {each.starts} starts  back in "
            f"{'-' if each.recovered_s is None else each.recovered_s} s"
        )
        for name, values in each.shown.items():
            terminalreporter.write_line(f"    {name}: {values}")
        if each.events:
            told = ", ".join(f"{event} x{count}" for event, count in each.events.items())
            terminalreporter.write_line(f"    log: {told}")
        if each.alerts:
            terminalreporter.write_line(f"    alerts when it lasts: {', '.join(each.alerts)}")
        for reason in each.unready[:2]:
            terminalreporter.write_line(f"    not ready: {reason[:120]}")
        for name, value in each.notes.items():
            terminalreporter.write_line(f"    {name}: {value}")
