# SPDX-License-Identifier: Apache-2.0
"""What becomes of the executors' template when Spark has made a pod of it, without a cluster."""

import pytest

from tests.helm.chart import KUBERNETES, executor, in_product, mistakes_of, one, render
from tests.helm.test_configuration import settings

CASES = ("kubernetes", "everything", "existing")
every_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module")
def made():
    """An executor's pod of every case, by one JVM."""
    question = []
    for case in CASES:
        chart = one(render(case), "ConfigMap", "-chart")
        question.append((settings()[case]["conf"], chart["data"]["executor-pod.yaml"]))
    return dict(zip(CASES, in_product("tests.helm.spark_pod", question), strict=True))


@every_case
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_it_is_valid(made, case, kubernetes):
    assert mistakes_of(made[case], kubernetes) == []


@every_case
def test_nothing_of_the_template_is_lost(made, case):
    template, pod = executor(render(case)), made[case]
    assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    for key, value in template["spec"].items():
        if key in ("containers", "volumes"):
            for each in value[1:] if key == "containers" else value:
                assert each in pod["spec"][key], each
        elif key != "initContainers":
            assert pod["spec"][key] == value, key
    own, container = template["spec"]["containers"][0], pod["spec"]["containers"][0]
    assert container["name"] == "executor"
    assert container["securityContext"] == own["securityContext"]
    for key in ("volumeMounts", "env", "envFrom"):
        for each in own.get(key, ()):
            assert each in container[key], each


@every_case
def test_it_is_as_restricted_as_all_pods_are(made, case):
    pod = made[case]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["restartPolicy"] == "Never"


def test_it_runs_the_images_executor_with_room_for_python(made):
    container = made["kubernetes"]["spec"]["containers"][0]
    assert container["args"] == ["executor"]
    assert "command" not in container
    assert container["image"] == "lakeward:0.1.0"
    assert container["resources"]["limits"] == {"memory": "5734Mi"}  # 4 GiB and 40 %
    assert container["resources"]["requests"] == {"memory": "5734Mi", "cpu": "2500m"}
    assert {"name": "blockmanager", "containerPort": 7079} in container["ports"]


def test_it_can_be_written_where_spark_writes(made):
    spec = made["kubernetes"]["spec"]
    mounts = {each["mountPath"]: each["name"] for each in spec["containers"][0]["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    scratch = mounts[variables["SPARK_LOCAL_DIRS"]]
    (volume,) = [each for each in spec["volumes"] if each["name"] == scratch]
    assert "emptyDir" in volume


def test_it_is_told_before_it_is_stopped(made):
    hook = made["kubernetes"]["spec"]["containers"][0]["lifecycle"]["preStop"]
    (program,) = hook["exec"]["command"]
    assert program.endswith("/lakeward-decommission")  # beside Python, as in the image


def test_credentials_do_not_stand_in_it(made):
    text = str(made["existing"])
    assert "of password" not in text
    assert "of AWS_SECRET_ACCESS_KEY" not in text


def test_network_policies_know_it(made):
    selector = one(render("everything"), "NetworkPolicy", "-executor")["spec"]["podSelector"]
    assert selector["matchLabels"].items() <= made["everything"]["metadata"]["labels"].items()
    driver = one(render("everything"), "StatefulSet")["spec"]["selector"]["matchLabels"]
    assert not driver.items() <= made["everything"]["metadata"]["labels"].items()
