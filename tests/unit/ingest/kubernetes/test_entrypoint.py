# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

from ingest.kubernetes.entrypoint import command_of, executor_command
from storage.errors import InvalidOptionError, NotFoundError

EXECUTOR = {
    "PATH": os.environ["PATH"],
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-abc",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "shop-0-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{i}": f"-Dn={i}" for i in range(12)},
}


@pytest.fixture
def java(tmp_path):
    home = tmp_path / "jre"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("")
    return home


def test_an_executor_joins_the_driver_that_made_its_pod(java):
    command = executor_command({**EXECUTOR, "JAVA_HOME": str(java)})
    assert command[0] == str(java / "bin" / "java")
    at = command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    told = dict(zip(command[at + 1 :: 2], command[at + 2 :: 2], strict=True))
    assert told == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-abc",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "shop-0-exec-3",
    }
    assert command[at - 4 : at - 1] == ["-Xms1024m", "-Xmx1024m", "-cp"]


def test_java_options_keep_the_order_of_their_numbers(java):
    command = executor_command({**EXECUTOR, "JAVA_HOME": str(java)})
    given = [word for word in command if word.startswith("-Dn=")]
    assert given == [f"-Dn={i}" for i in range(12)]


def test_a_module_that_java_warns_of_is_left_out(java):
    options = {"SPARK_JAVA_OPT_0": "--add-modules=jdk.incubator.vector"}
    command = executor_command({**EXECUTOR, **options, "JAVA_HOME": str(java)})
    assert not [word for word in command if "incubator" in word]
    assert [word for word in command if word.startswith("-Dn=")] == [
        f"-Dn={i}" for i in range(1, 12)
    ]


def test_settings_of_the_pod_come_before_the_jars(java):
    environ = {**EXECUTOR, "JAVA_HOME": str(java), "SPARK_CONF_DIR": "/opt/spark/conf"}
    command = executor_command({**environ, "SPARK_CLASSPATH": "/extra/*"})
    parts = command[command.index("-cp") + 1].split(":")
    assert parts[:2] == ["/opt/spark/conf", "/extra/*"]
    assert parts[2].endswith("pyspark/jars/*")


def test_missing_variables_are_named():
    given = {
        k: v for k, v in EXECUTOR.items() if k not in ("SPARK_DRIVER_URL", "SPARK_EXECUTOR_ID")
    }
    with pytest.raises(InvalidOptionError) as caught:
        executor_command(given)
    assert caught.value.context["missing"] == "SPARK_DRIVER_URL, SPARK_EXECUTOR_ID"


def test_no_java():
    with pytest.raises(NotFoundError, match="java"):
        executor_command({**EXECUTOR, "PATH": "/nowhere", "JAVA_HOME": ""})
    with pytest.raises(NotFoundError, match="/nowhere"):
        executor_command({**EXECUTOR, "JAVA_HOME": "/nowhere"})


@pytest.mark.parametrize("role", [[], ["driver"]])
def test_anything_else_is_the_command_line(role):
    command = command_of([*role, "run", "-c", "shop.yaml"], {})
    assert command == [sys.executable, "-P", "-m", "ingest.cli.main", "run", "-c", "shop.yaml"]


def test_nothing_said_is_help():
    assert command_of([], {})[-1] == "--help"


def test_a_role_without_its_variables_ends_as_a_wrong_configuration():
    module = [sys.executable, "-m", "ingest.kubernetes.entrypoint"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    done = subprocess.run(
        [*module, "executor"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 78
    assert "SPARK_DRIVER_URL" in done.stderr
    assert "Traceback" not in done.stderr
