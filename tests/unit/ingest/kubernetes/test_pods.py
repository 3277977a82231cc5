# SPDX-License-Identifier: Apache-2.0
import re
import sys
from pathlib import Path

import pytest

from ingest.daemon.session import spark_properties
from ingest.kubernetes.pods import default_parallelism, is_kubernetes, pod_properties
from storage.errors import InvalidOptionError

MASTER = "k8s://https://kubernetes.default.svc"
POD = {
    "POD_NAME": "shop-lakeward-0",
    "POD_NAMESPACE": "lake",
    "POD_IP": "10.1.2.3",
    "LAKEWARD_DRIVER_SERVICE": "shop-lakeward-headless",
    "LAKEWARD_EXECUTOR_TEMPLATE": "/etc/lakeward/executor.yaml",
    "LAKEWARD_IMAGE": "registry.example/lakeward:1",
    "LAKEWARD_EXECUTOR_SERVICE_ACCOUNT": "shop-lakeward-executor",
}


def test_the_pod_tells_who_the_driver_is():
    found = pod_properties(POD, {})
    assert found["spark.kubernetes.driver.pod.name"] == "shop-lakeward-0"
    assert found["spark.kubernetes.namespace"] == "lake"
    assert found["spark.kubernetes.container.image"] == "registry.example/lakeward:1"
    assert found["spark.driver.host"] == "shop-lakeward-0.shop-lakeward-headless.lake.svc"
    assert found["spark.driver.bindAddress"] == "0.0.0.0"
    # else Spark tells executors the bind address
    assert found["spark.kubernetes.executor.useDriverPodIP"] == "false"
    assert (found["spark.driver.port"], found["spark.driver.blockManager.port"]) == ("7078", "7079")
    assert found["spark.kubernetes.executor.podTemplateFile"] == "/etc/lakeward/executor.yaml"
    account = "spark.kubernetes.authenticate.executor.serviceAccountName"
    assert found[account] == "shop-lakeward-executor"
    assert found["spark.executor.memoryOverheadFactor"] == "0.4"
    hook = found["spark.kubernetes.decommission.script"]
    assert Path(hook) == Path(sys.executable).parent / "lakeward-decommission"


def test_without_a_service_executors_reach_the_driver_by_its_address():
    found = pod_properties({k: v for k, v in POD.items() if "SERVICE" not in k}, {})
    assert found["spark.driver.host"] == "10.1.2.3"


def test_executors_names_differ_from_run_to_run_and_stay_host_names():
    pod = {**POD, "POD_NAME": "a-very-long-release-name-of-a-shop-in-berlin-lakeward-0"}
    names = {pod_properties(pod, {})["spark.kubernetes.executor.podNamePrefix"] for _ in range(4)}
    assert len(names) == 4
    for name in names:
        assert len(f"{name}-exec-99999") <= 63
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


def test_all_that_is_missing_is_named_at_once():
    with pytest.raises(InvalidOptionError) as caught:
        pod_properties({}, {})
    missing = "POD_NAME, POD_NAMESPACE, LAKEWARD_IMAGE, LAKEWARD_DRIVER_SERVICE"
    assert caught.value.context["missing"] == missing


def test_properties_may_say_it_instead():
    conf = {
        "spark.kubernetes.driver.pod.name": "d",
        "spark.kubernetes.namespace": "n",
        "spark.kubernetes.container.image": "i",
        "spark.driver.host": "driver.example",
    }
    found = {**pod_properties({}, conf), **conf}
    assert found["spark.driver.host"] == "driver.example"
    assert found["spark.kubernetes.executor.podNamePrefix"].startswith("d-")


def test_the_user_wins():
    conf = {"spark.executor.memoryOverheadFactor": "0.6", "spark.driver.port": "9000"}
    found = spark_properties(MASTER, conf, 4, POD)
    assert found["spark.executor.memoryOverheadFactor"] == "0.6"
    assert found["spark.driver.port"] == "9000"
    assert found["spark.sql.shuffle.partitions"] == "4"


def test_the_deep_stack_stays_unless_the_user_says_another():
    key = "spark.driver.extraJavaOptions"
    assert spark_properties("local[2]", {key: "-Dx=y"}, 2)[key].startswith("-Xss16m -Dx=y ")
    assert "-Xss16m" not in spark_properties("local[2]", {key: "-Xss8m"}, 2)[key]
    assert "-Xss16m" in spark_properties("local[2]", {}, 2)[key]


@pytest.mark.parametrize(("limit", "heap"), [(None, "2g"), (4 << 30, "1843m")])
def test_the_heap_follows_the_containers_limit(monkeypatch, limit, heap):
    monkeypatch.setattr("ingest.daemon.session.memory_limit", lambda: limit)
    assert spark_properties("local[2]", {}, 2)["spark.driver.memory"] == heap
    told = {"spark.driver.memory": "3g"}
    assert spark_properties("local[2]", told, 2)["spark.driver.memory"] == "3g"


def test_tasks_at_once_are_the_executors_cores():
    conf = {"spark.executor.instances": "3", "spark.executor.cores": "4"}
    assert default_parallelism(MASTER, conf) == 12
    assert default_parallelism(MASTER, {}) == 2
    assert default_parallelism(None, conf) == default_parallelism("local[7]", {})
    with pytest.raises(InvalidOptionError, match="instances"):
        default_parallelism(MASTER, {"spark.executor.instances": "many"})


def test_masters():
    assert is_kubernetes(MASTER)
    assert not is_kubernetes("local[2]")
    assert not is_kubernetes(None)
