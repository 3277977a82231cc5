# SPDX-License-Identifier: Apache-2.0
"""The catalogue of drills agrees with the drills, the metrics, the alerts and its page."""

import ast
from pathlib import Path

import pytest
import yaml

from ingest.observe.metrics.metric_table import METRICS
from tests.drills.catalogue import DRILLS
from tests.drills.page import PAGE, rendered

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "alerts" / "lakeward.yaml"


def test_every_drill_has_a_row_and_every_row_a_drill():
    found = [
        node.name.removeprefix("test_")
        for path in sorted((ROOT / "tests" / "drills").glob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert sorted(found) == sorted(DRILLS)


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda drill: drill.name)
def test_a_row_names_metrics_and_alerts_that_there_are(drill):
    names = {row.name for row in METRICS}
    for shown in drill.shown:
        assert shown.metric.removesuffix("_count") in names, shown
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    alerts = {rule.get("alert") for group in groups for rule in group["rules"]}
    assert set(drill.alerts) <= alerts


def test_links_lead_to_headings_of_the_runbook():
    lines = (ROOT / "docs/operations/runbook.md").read_text().splitlines()
    headings = {line.lstrip("# ").lower() for line in lines if line.startswith("#")}
    linked = {alert.lower() for drill in DRILLS.values() for alert in drill.alerts}
    assert linked <= headings


def test_the_page_is_of_the_catalogue():
    assert PAGE.read_text() == rendered(), "make docs"
