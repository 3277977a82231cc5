# SPDX-License-Identifier: Apache-2.0
"""The pods that Spark makes of the chart's template: JSON in, JSON out, by the product's Spark.

Asks the class that builds executors' pods inside of Spark; there is no API server.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway


def module(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def executor_pod(jvm: Any, conf: dict[str, str], template: str, file: Path) -> Any:
    """An executor's pod by properties and a template."""
    file.write_text(template, encoding="utf-8")
    spark = jvm.org.apache.spark
    properties = spark.SparkConf(False)
    given = {
        "spark.master": "k8s://api",
        **conf,
        "spark.kubernetes.executor.podTemplateFile": str(file),
    }
    for key, value in {**given, "spark.app.name": "shop", "spark.app.id": "app-1"}.items():
        properties.set(key, value)
    none = jvm.scala.Option.apply(None)
    secret_file = module(spark.internal.config, "package").AUTH_SECRET_FILE()
    security = spark.SecurityManager(properties, none, secret_file)
    security.initializeAuth()
    profile = module(spark.resource, "ResourceProfile").getOrCreateDefaultProfile(properties)
    of_executor = spark.deploy.k8s.KubernetesConf.createExecutorConf(
        properties, "1", "app-1", none, 0
    )
    builder = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder()
    client = jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build()
    made = builder.buildFromFeatures(of_executor, security, client, profile).pod()
    text = jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson
    pod, container = json.loads(text(made.pod())), json.loads(text(made.container()))
    pod["spec"]["containers"] = [container, *pod["spec"].get("containers", [])]
    return pod


def main() -> None:
    """Of the program."""
    gateway = launch_gateway(SparkConf(loadDefaults=False))
    try:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "template.yaml"
            pods = [executor_pod(gateway.jvm, *each, file) for each in json.load(sys.stdin)]
        json.dump(pods, sys.stdout)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when nobody is there


if __name__ == "__main__":
    main()
