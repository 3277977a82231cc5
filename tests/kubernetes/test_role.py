# SPDX-License-Identifier: Apache-2.0
"""The chart gives the rights that the tests run with."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def test_the_charts_role_has_the_rules_of_the_tests():
    text = (ROOT / "helm" / "lakeward" / "templates" / "rbac.yaml").read_text()
    role, _, _ = text.partition("\n---\n")
    rules = role[role.index("\nrules:") :].partition("\n  {{-")[0]
    known = yaml.safe_load((ROOT / "deploy" / "kubernetes-role.yaml").read_text())
    assert yaml.safe_load(rules)["rules"] == known["rules"]
