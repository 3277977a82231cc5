# SPDX-License-Identifier: Apache-2.0
"""`spark.master: k8s://…`: real executors, started by the image's entrypoint, in made-up pods."""

import re
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.e2e.daemon_process import DaemonProcess, eventually, files_config, newest_snapshot
from tests.e2e.shop_stream import (
    TABLES,
    assert_identifiers_never_repeat,
    assert_no_file_missing,
    assert_tables_equal_model,
    open_tables,
)
from tests.free_ports import free_ports
from tests.kubernetes.api_server import ApiServer, Objects
from tests.kubernetes.kubelet import Kubelet
from tests.soak.soak import Load

ROOT = Path(__file__).resolve().parents[2]
ROLE = yaml.safe_load((ROOT / "deploy" / "kubernetes-role.yaml").read_text())
NAMESPACE, DRIVER, SERVICE = "lake", "shop-lakeward-0", "shop-lakeward-driver"
# as the chart renders it
TEMPLATE = yaml.safe_load((ROOT / "tests" / "helm" / "golden" / "executor-pod.yaml").read_text())


class Cluster:
    """An API server, a kubelet, and the driver's own pod as far as the API knows of it."""

    def __init__(self, directory: Path, checkpoint: Path) -> None:
        hosts = f"127.0.0.1 {DRIVER}.{SERVICE}.{NAMESPACE}.svc\n"
        self.kubelet = Kubelet(directory, hosts=hosts, hidden=[checkpoint])
        self.objects = Objects(NAMESPACE, self._on_pod)
        self.kubelet.objects = self.objects
        self.api = ApiServer(self.objects, ROLE["rules"])
        driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": DRIVER, "labels": {}}}
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        spec = {"containers": [{"name": "lakeward"}]}
        self.driver = self.objects.create("pods", {**driver, "spec": spec, "status": ready})

    def _on_pod(self, pod, created: bool) -> None:
        if pod["metadata"]["name"] != DRIVER:
            self.kubelet.on_pod(pod, created)

    def __enter__(self) -> "Cluster":
        self.api.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.kubelet.stop()
        self.api.__exit__()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "pods").mkdir()
    (tmp_path / "checkpoint").mkdir()
    with Cluster(tmp_path / "pods", tmp_path / "checkpoint") as cluster:
        yield cluster


@pytest.fixture
def driver_pod(tmp_path, monkeypatch):
    """The driver's environment as its pod sets it."""
    template = tmp_path / "executor.yaml"
    template.write_text(yaml.safe_dump(TEMPLATE))
    for name, value in {
        "POD_NAME": DRIVER,
        "POD_NAMESPACE": NAMESPACE,
        "POD_IP": "127.0.0.1",
        "LAKEWARD_DRIVER_SERVICE": SERVICE,
        "LAKEWARD_EXECUTOR_TEMPLATE": str(template),
        "LAKEWARD_IMAGE": "registry.example/lakeward:test",
        "LAKEWARD_EXECUTOR_SERVICE_ACCOUNT": "shop-lakeward-executor",
    }.items():
        monkeypatch.setenv(name, value)


def config_of(directory: Path, api: str, port: int) -> Path:
    rpc, blocks = free_ports(2)
    spark = {
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "640m",
        "spark.driver.port": str(rpc),
        "spark.driver.blockManager.port": str(blocks),
        "spark.kubernetes.allocation.batch.delay": "1s",
    }
    return files_config(
        directory,
        trigger={"interval": "500ms", "max.records": 1_000_000},
        table_properties={"bucket": "2", "snapshot.num-retained.min": "100"},
        metrics={"port": port},
        log={"format": "json"},
        spark={"master": f"k8s://{api}", "conf": spark},
    )


def sample(port: int, name: str, **labels: str) -> float:
    """Sum of a metric's samples with these labels."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
    lines = [line for line in text.splitlines() if re.match(rf"lakeward_{name}[{{ ]", line)]
    for label, value in labels.items():
        lines = [line for line in lines if f'{label}="{value}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def data_files(warehouse: Path) -> set[Path]:
    return set(warehouse.glob("shop.db/*/bucket-*/data-*"))


@pytest.mark.full
@pytest.mark.spark
def test_a_batch_survives_the_loss_of_its_executors(cluster, driver_pod, tmp_path):
    load = Load(tmp_path / "events", seed=5, per_file=0)
    load.begin(30_000)
    warehouse = tmp_path / "warehouse"
    (port,) = free_ports(1)
    kubelet = cluster.kubelet
    with DaemonProcess(config_of(tmp_path, cluster.api.url, port)) as daemon:

        def until(check, what, timeout=240):
            eventually(lambda: not daemon.alive or check(), timeout=timeout, what=what)
            assert daemon.alive, daemon.log_tail()

        # one executor goes in the middle of the first batch, when files are being written
        until(lambda: data_files(warehouse), "a first data file")
        assert not any(newest_snapshot(warehouse, f"shop.{name}") for name in TABLES)
        first = kubelet.running()
        assert len(first) == 2
        kubelet.kill(first[0])
        until(lambda: all(newest_snapshot(warehouse, f"shop.{t}") for t in TABLES), "the commits")
        until(lambda: len(kubelet.running()) == 2, "another executor")
        until(lambda: sample(port, "source_records_total") == load.events, "the counters")

        # all go, and for a while no pod may be created
        cluster.api.denied = {("pods", "create")}
        for name in kubelet.running():
            kubelet.kill(name)
        load.change(10_000)
        until(lambda: cluster.api.refused, "a refused pod")
        cluster.api.denied = set()
        until(lambda: sample(port, "source_records_total") == load.events, "the backlog")

        # a node is drained: its executor hands over what it has, and ends by itself
        until(lambda: len(kubelet.running()) == 2, "both executors")
        drained = kubelet.running()[0]
        assert kubelet.drain(drained) in (0, -9)  # it ends with the pod, and may not see that
        until(lambda: drained not in kubelet.running(), "the end of the drained executor")
        assert "Finished decommissioning" in kubelet.log(drained)
        load.change(1_000)
        until(lambda: sample(port, "source_records_total") == load.events, "the rest")
        assert sample(port, "batches_total", outcome="failed") == 0
        assert daemon.terminate(120) == 0, daemon.log_tail()

    assert cluster.objects.all("pods") == [cluster.driver]
    assert '"event": "restart"' not in daemon.log_path.read_text()
    assert_pods_are_the_drivers_own(kubelet.pods)
    # the Role has what is used and, but for one verb of a property's, no more
    assert cluster.api.used | {("pods", "patch")} == cluster.api.allowed
    assert set(cluster.api.refused) == {("pods", "create")}
    assert_tables_equal_model(warehouse, load.shop)
    for table in open_tables(warehouse).values():
        assert_identifiers_never_repeat(table)
        assert_no_file_missing(table)


def assert_pods_are_the_drivers_own(pods: dict) -> None:
    """Made from the template, owned by the driver's pod, with names that hosts may have."""
    assert len(pods) >= 4  # two, one for the first that was lost, and those for all that were
    for name, pod in pods.items():
        assert re.fullmatch(rf"{DRIVER}-[0-9a-f]{{6}}-exec-\d+", name)
        assert [each["name"] for each in pod["metadata"]["ownerReferences"]] == [DRIVER]
        assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
        assert pod["spec"]["securityContext"] == TEMPLATE["spec"]["securityContext"]
        assert pod["spec"]["serviceAccountName"] == "shop-lakeward-executor"
        container = pod["spec"]["containers"][0]
        assert container["args"] == ["executor"]
        assert container["image"] == "registry.example/lakeward:test"
        own = TEMPLATE["spec"]["containers"][0]
        assert container["securityContext"] == own["securityContext"]
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert mounts >= {each["mountPath"] for each in own["volumeMounts"]}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert container["resources"]["limits"]["memory"] == "1024Mi"
