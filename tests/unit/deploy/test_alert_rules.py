# SPDX-License-Identifier: Apache-2.0
"""The alert rules: they are right PromQL of metrics there are, fire when they should, and each has
its section in the runbook."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ingest.errors import ExitCode
from tests.promql import mistakes
from tests.unit.deploy.alert_cases import CASES

ROOT = Path(__file__).resolve().parents[3]
RULES = sorted((ROOT / "deploy" / "alerts").glob("*.yaml"))
RUNBOOK = ROOT / "docs/operations/runbook.md"

GROUPS = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
EXPRESSIONS = [rule for group in GROUPS for rule in group["rules"]]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian: apt-get install prometheus)",
)


def anchors(text):
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "rule", EXPRESSIONS, ids=lambda rule: rule.get("alert", rule.get("record"))
)
def test_expressions_are_of_metrics_and_labels_that_there_are(rule):
    assert mistakes(rule["expr"]) == []


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alerts_say_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    told = rule["annotations"]
    assert set(told) == {"summary", "description", "runbook_url"}
    assert told["runbook_url"] == f"docs/operations/runbook.md#{rule['alert'].lower()}"
    assert rule["alert"].lower() in anchors(RUNBOOK.read_text())


def test_runbook_has_no_section_too_many_and_all_its_links_lead_somewhere():
    text = RUNBOOK.read_text()
    titles = set(re.findall(r"^## (Lakeward\w+)$", text, re.MULTILINE))
    assert titles == {rule["alert"] for rule in ALERTS}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors(text)
    for path in re.findall(r"\]\(([^)#]+)\)", text):
        assert (RUNBOOK.parent / path).exists(), path


def test_runbook_knows_every_exit_code():
    codes = set(re.findall(r"^\| (\d+) \|", RUNBOOK.read_text(), re.MULTILINE))
    assert {str(int(code)) for code in ExitCode} <= codes


def test_every_alert_has_a_case_where_it_fires_and_one_where_it_does_not():
    names = {rule["alert"] for rule in ALERTS}
    assert {case.alert for case in CASES if case.fires} == names
    assert {case.alert for case in CASES if not case.fires} == names


@needs_promtool
def test_rules_are_what_prometheus_takes():
    done = subprocess.run(["promtool", "check", "rules", *RULES], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _firing(alert):
    return f'ALERTS{{alertname="{alert}",alertstate="firing"}}'


def _rules_for(rule):
    """The alert and the recorded series that it names: evaluating all would take long."""
    recorded = [each for each in EXPRESSIONS if "record" in each and each["record"] in rule["expr"]]
    return {"groups": [{"name": "one", "rules": [*recorded, rule]}]}


def _test_of(case):
    look = {
        "expr": f"count({_firing(case.alert)}) > bool 0 or vector(0)",
        "eval_time": f"{case.minute}m",
        "exp_samples": [{"labels": "{}", "value": int(case.fires)}],
    }
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    return {
        "interval": "1m",
        "name": f"{case.alert}: {case.why}",
        "input_series": series,
        "promql_expr_test": [look],
    }


@needs_promtool
def test_alerts_fire_when_they_should(tmp_path):
    files = []
    for rule in ALERTS:
        name = rule["alert"]
        (tmp_path / f"{name}.rules").write_text(yaml.safe_dump(_rules_for(rule)))
        document = {
            "rule_files": [f"{name}.rules"],
            "evaluation_interval": "1m",
            "tests": [_test_of(case) for case in CASES if case.alert == name],
        }
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml.safe_dump(document, sort_keys=False))
    done = subprocess.run(["promtool", "test", "rules", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
