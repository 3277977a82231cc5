# SPDX-License-Identifier: Apache-2.0
"""Every pod that the chart makes: what it may do, what it can find, how it lives and ends."""

import pytest

from tests.helm.chart import (
    CASES,
    driver,
    executor,
    lakeward,
    one,
    own_containers,
    pods,
    render,
)

every_case = pytest.mark.parametrize("case", CASES)
restricted = pytest.mark.parametrize("case", [each for each in CASES if each != "nothing"])


@restricted
def test_pods_run_as_somebody_who_may_do_nothing(case):
    for name, pod in pods(render(case)):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in own_containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["readOnlyRootFilesystem"] is True, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
        for word in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
            assert word not in pod["spec"], name


@restricted
def test_users_and_groups_are_those_of_the_image_unless_the_platform_gives_them(case):
    for name, pod in pods(render(case)):
        context = pod["spec"]["securityContext"]
        numbers = {key: context.get(key) for key in ("runAsUser", "runAsGroup", "fsGroup")}
        assert set(numbers.values()) == ({None} if case == "openshift" else {10001}), name


@every_case
def test_only_a_driver_of_executors_has_a_token(case):
    for name, pod in pods(render(case)):
        drives = name.startswith("StatefulSet") and case in ("kubernetes", "everything", "existing")
        assert pod["spec"]["automountServiceAccountToken"] is drives, name


@every_case
def test_services_of_the_namespace_do_not_become_variables(case):
    # a Service named `lakeward--…` would otherwise look like a setting
    for name, pod in pods(render(case)):
        assert pod["spec"]["enableServiceLinks"] is False, name


@every_case
def test_every_pod_can_write_its_tmp(case):
    for name, pod in pods(render(case)):
        mounts = {
            each["mountPath"]: each["name"] for each in own_containers(pod)[0]["volumeMounts"]
        }
        (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == mounts["/tmp"]]
        assert "emptyDir" in volume or "ephemeral" in volume, name


@every_case
def test_every_mount_has_a_volume_and_every_volume_a_mount(case):
    for name, pod in pods(render(case)):
        volumes = [each["name"] for each in pod["spec"]["volumes"]]
        assert len(volumes) == len(set(volumes)), name
        mounts = own_containers(pod)[0]["volumeMounts"]
        assert {each["name"] for each in mounts} == set(volumes), name
        paths = [each["mountPath"] for each in mounts]
        assert len(paths) == len(set(paths)), name


@every_case
def test_secrets_are_files_that_others_cannot_read(case):
    for name, pod in pods(render(case)):
        group = "fsGroup" in pod["spec"].get("securityContext", {})
        for volume in pod["spec"]["volumes"]:
            if volume["name"].startswith("secret-"):
                assert volume["secret"]["defaultMode"] == (0o440 if group else 0o444), name
        for mount in own_containers(pod)[0]["volumeMounts"]:
            if mount["name"].startswith(("secret-", "config")):
                assert mount["readOnly"] is True, name
        for container in own_containers(pod):
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in variable.get("valueFrom", {}), name


@every_case
def test_executors_get_only_the_secrets_that_processes_read_as_files(case):
    for name, pod in pods(render(case)):
        if name == "executor":
            secrets = {e["name"] for e in pod["spec"]["volumes"] if e["name"].startswith("secret-")}
            assert not secrets & {
                "secret-kafka-sasl",
                "secret-s3",
                "secret-registry",
                "secret-control",
            }


def test_the_pipeline_is_run_from_two_files():
    container = lakeward(render())
    words = "run -c /etc/lakeward/chart.yaml -c /etc/lakeward/pipeline.yaml"
    assert container["args"] == words.split()
    assert "command" not in container  # the image's entry point stays


def test_more_arguments_and_templates_in_what_is_handed_on():
    objects = render("everything")
    assert lakeward(objects)["args"][-1] == "--set=log.level=debug"
    template = one(objects, "StatefulSet")["spec"]["template"]
    assert template["metadata"]["annotations"]["note"] == "of shop"
    volume = next(each for each in driver(objects)["volumes"] if each["name"] == "extra")
    assert volume["configMap"]["name"] == "shop-extra"


@pytest.mark.parametrize(
    ("probe", "path", "seconds"),
    [
        ("startupProbe", "/healthz", 5 * 60),
        ("livenessProbe", "/healthz", 20 * 6),
        ("readinessProbe", "/readyz", 10 * 3),
    ],
)
def test_probes(probe, path, seconds):
    found = lakeward(render())[probe]
    assert found["httpGet"] == {"path": path, "port": "metrics"}
    assert found["periodSeconds"] * found["failureThreshold"] == seconds
    assert found["timeoutSeconds"] == 5


def test_a_batch_has_time_to_end():
    assert driver(render())["terminationGracePeriodSeconds"] == 300
    assert (
        driver(render("default", "terminationGracePeriodSeconds=900"))[
            "terminationGracePeriodSeconds"
        ]
        == 900
    )


def test_a_pod_that_sleeps_to_be_looked_at():
    container = lakeward(render("default", "diagnosticMode.enabled=true"))
    assert (container["command"], container["args"]) == (["sleep"], ["infinity"])
    assert not {"startupProbe", "livenessProbe", "readinessProbe"} & set(container)


@every_case
def test_memory_has_a_limit_equal_to_its_request_and_cpu_has_none(case):
    for name, pod in pods(render(case)):
        for container in own_containers(pod):
            resources = container.get("resources")
            if name == "executor" or (case == "nothing" and name.startswith("StatefulSet")):
                assert resources is None, name  # Spark gives executors theirs
                continue
            assert "cpu" not in resources["limits"], name
            if not name.startswith(("Job", "Pod")):
                assert resources["limits"]["memory"] == resources["requests"]["memory"], name


def test_cores_are_those_of_the_pod():
    variables = {e["name"]: e.get("value") for e in lakeward(render("local"))["env"]}
    assert variables["LAKEWARD_CORES"] == "4"
    assert variables["OMP_NUM_THREADS"] == "4"


def test_the_driver_tells_what_it_knows_of_itself():
    objects = render("kubernetes")
    variables = {each["name"]: each for each in lakeward(objects)["env"]}
    fields = {
        name: variables[name]["valueFrom"]["fieldRef"]["fieldPath"]
        for name in ("POD_NAME", "POD_NAMESPACE", "POD_IP", "LAKEWARD_INSTANCE")
    }
    assert fields == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
        "LAKEWARD_INSTANCE": "metadata.uid",
    }
    assert (
        variables["LAKEWARD_DRIVER_SERVICE"]["value"] == one(objects, "Service")["metadata"]["name"]
    )
    assert variables["LAKEWARD_IMAGE"]["value"] == lakeward(objects)["image"]
    assert variables["LAKEWARD_EXECUTOR_TEMPLATE"]["value"] == "/etc/lakeward/executor-pod.yaml"
    assert variables["LAKEWARD_EXECUTOR_SERVICE_ACCOUNT"]["value"] == "shop-lakeward-executor"
    assert "LAKEWARD_CORES" not in variables


def test_the_executors_template_leaves_to_spark_what_is_sparks():
    template = executor(render("everything"))
    container = template["spec"]["containers"][0]
    assert not {"image", "args", "command", "resources", "ports"} & set(container)
    assert "restartPolicy" not in template["spec"]
    assert "name" not in template["metadata"]
    assert template["spec"]["containers"][1]["name"] == "beside"  # never before ours


def test_executors_are_placed_by_their_own_values():
    spec = executor(render("everything"))["spec"]
    assert spec["nodeSelector"] == {"pool": "spot"}
    assert spec["priorityClassName"] == "batch"
    assert driver(render("everything"))["nodeSelector"] == {"pool": "stable"}
    assert executor(render("kubernetes"))["spec"]["topologySpreadConstraints"][0]["maxSkew"] == 1


def test_executors_see_the_same_files_at_the_same_places():
    objects = render("everything")
    inside = {e["mountPath"] for e in executor(objects)["spec"]["containers"][0]["volumeMounts"]}
    outside = {e["mountPath"] for e in lakeward(objects)["volumeMounts"]}
    assert {"/warehouse", "/run/secrets/lakeward/kafka-ca"} <= inside
    assert inside <= outside


@pytest.mark.parametrize(
    ("sets", "image"),
    [
        ([], "lakeward:0.1.0"),
        (['image.tag="2"'], "lakeward:2"),
        (['image.registry="r.example:5000"', 'image.repository="a/b"'], "r.example:5000/a/b:0.1.0"),
        (['image.registry="a"', 'global.imageRegistry="b"'], "b/lakeward:0.1.0"),
        ([f'image.digest="sha256:{"0" * 64}"', 'image.tag="2"'], f"lakeward@sha256:{'0' * 64}"),
    ],
)
def test_image(sets, image):
    assert lakeward(render("default", *sets))["image"] == image


def test_all_pods_take_the_same_image_and_pull_secrets():
    for name, pod in pods(render("everything")):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        image = own_containers(pod)[0].get("image", "registry.example.com/data/lakeward:1.2.3")
        assert image == "registry.example.com/data/lakeward:1.2.3", name
