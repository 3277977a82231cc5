# SPDX-License-Identifier: Apache-2.0
"""What the user reads after an installation."""

import re

import pytest

from tests.helm.chart import CASES, notes, one, render


@pytest.mark.parametrize("case", CASES)
def test_notes_name_what_is_there(case):
    text = notes(case)
    objects = render(case)
    stateful = one(objects, "StatefulSet")["metadata"]
    assert text.startswith("Lakeward 0.1.0: pipeline ")
    assert "<no value>" not in text
    assert "nil" not in text
    assert not re.search(r"\n\n\n", text)
    for command in re.findall(r"kubectl -n (\S+)", text):
        assert command == stateful["namespace"]
    for pod in re.findall(r"(\S+-0) (?:--|9108)", text):
        assert pod == f"{stateful['name']}-0"
    assert max(map(len, text.splitlines())) < 190


def test_the_least_installation_is_told_what_is_missing():
    text = notes()
    assert "pipeline shop, warehouse /warehouse" in text
    for word in ("podMonitor.enabled", "prometheusRule.enabled", "networkPolicy.enabled"):
        assert word in text
    assert "helm -n data test shop" in text
    assert "shop-lakeward-warehouse (the tables) stays" in text


def test_a_whole_installation_is_not():
    text = notes("everything")
    for word in ("podMonitor.enabled", "prometheusRule.enabled", "networkPolicy.enabled"):
        assert word not in text
    assert "2 executor pods of 2 cores" in text
    assert "lakeward reload" in text  # rollOnConfigChange is off there


def test_a_paused_pipeline():
    text = notes("nothing")
    assert "paused" in text
    assert "port-forward" not in text
    assert "no memory limit" in text


def test_a_configuration_of_ones_own_does_not_roll():
    text = notes("existing")
    assert "the Secret shop-pipeline" in text
    assert "lakeward reload" in text
    assert "(named in its configuration)" in text


def test_a_pod_that_sleeps():
    text = notes("default", "diagnosticMode.enabled=true")
    assert "does NOT run" in text
    assert "rollout status" not in text
