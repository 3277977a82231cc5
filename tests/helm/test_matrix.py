# SPDX-License-Identifier: Apache-2.0
"""Every case by Helm 3 and 4, for the oldest and the newest Kubernetes: valid, always the same."""

import re
import subprocess

import pytest
import yaml

from tests.helm.chart import (
    CASES,
    CHART,
    HELMS,
    KUBERNETES,
    helm,
    mistakes_of,
    pods,
    render,
    rendered,
    values_file,
)
from tests.helm.golden_file import GOLDEN, texts

every_render = pytest.mark.parametrize(
    ("case", "version", "kubernetes"),
    [(case, helm, kube) for case in CASES for helm in HELMS for kube in KUBERNETES],
)
every_case = pytest.mark.parametrize("case", CASES)


@every_render
def test_objects_are_valid(case, version, kubernetes):
    found = {}
    objects = render(case, version=version, kubernetes=kubernetes)
    for each in objects:
        mistakes = mistakes_of(each, kubernetes)
        if mistakes:
            found[f"{each['kind']}/{each['metadata']['name']}"] = mistakes
    assert not found
    assert len(objects) >= 4


@every_render
def test_pods_inside_of_objects_are_valid(case, version, kubernetes):
    for name, pod in pods(render(case, version=version, kubernetes=kubernetes)):
        document = {"apiVersion": "v1", "kind": "Pod", **pod}
        assert mistakes_of(document, kubernetes) == [], name


@every_case
def test_helm_3_and_4_agree(case):
    assert render(case, version="3") == render(case, version="4")


@every_case
def test_a_second_rendering_is_the_same_to_the_byte(case):
    first = rendered(case)
    rendered.cache_clear()
    assert rendered(case) == first


@every_case
def test_nothing_depends_on_the_version_of_kubernetes(case):
    assert rendered(case, kubernetes=KUBERNETES[0]) == rendered(case, kubernetes=KUBERNETES[1])


@pytest.mark.parametrize("version", HELMS)
def test_an_older_kubernetes_is_refused(version):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(version=version, kubernetes="1.26")
    assert "kubeVersion" in caught.value.stderr


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("case", ["", *CASES])
def test_lint(case, version):
    options = [f"--values={values_file(case)}"] if case else []
    text = helm("lint", "--strict", str(CHART), *options, version=version)
    assert "0 chart(s) failed" in text
    assert "[WARNING]" not in text
    assert "[ERROR]" not in text


@pytest.mark.parametrize("version", HELMS)
def test_the_package_renders_as_the_directory_does(version, tmp_path):
    helm("package", str(CHART), f"--destination={tmp_path}", version=version)
    (package,) = tmp_path.iterdir()
    options = ["--namespace=data", f"--values={values_file('everything')}"]
    options.append(f"--kube-version={KUBERNETES[-1]}.0")
    text = helm("template", "shop", str(package), *options, version=version)
    assert list(yaml.safe_load_all(text)) == list(
        yaml.safe_load_all(rendered("everything", version=version))
    )


@every_case
def test_it_could_be_installed(case):
    text = helm("install", "shop", str(CHART), "--dry-run=client", f"--values={values_file(case)}")
    assert "STATUS: pending-install" in text


@pytest.mark.parametrize("name", ["default.yaml", "executor-pod.yaml"])
def test_what_was_rendered_before_is_rendered_again(name):
    """Rewrite it by `python -m tests.helm.golden_file` in .venv-helm, and read the difference."""
    assert texts()[name] == (GOLDEN / name).read_text(encoding="utf-8")


@every_case
def test_names_are_unique_and_short_enough_for_what_is_made_of_them(case):
    longest = {"StatefulSet": 52, "CronJob": 52, "Job": 52, "Service": 63}
    long = "a-release-whose-name-is-just-as-long-as-helm-allowsit"
    assert len(long) == 53
    for release in ("shop", long):
        objects = render(case, release=release)
        names = [
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in objects
        ]
        assert len(names) == len(set(names))
        for kind, _, name in names:
            assert len(name) <= longest.get(kind, 63), (kind, name)
            assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name), (kind, name)


def test_two_long_releases_do_not_share_names():
    long = "the-same-beginning-of-two-releases-which-differ-in-"
    names = [
        {each["metadata"]["name"] for each in render(release=f"{long}{end}")} for end in ("a", "b")
    ]
    assert not names[0] & names[1]


@every_case
def test_all_objects_are_in_one_namespace_and_labelled(case):
    for each in render(case):
        metadata = each["metadata"]
        if "-extra" in metadata["name"] or "-more" in metadata["name"]:  # the user's own
            continue
        assert metadata["namespace"] in ("data", "lake", "monitoring")
        assert metadata["labels"]["app.kubernetes.io/instance"] == "shop"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert metadata["labels"]["helm.sh/chart"] == "lakeward-0.1.0"
        for value in metadata["labels"].values():
            assert len(value) <= 63
