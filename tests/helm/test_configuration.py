# SPDX-License-Identifier: Apache-2.0
"""The configuration that pods get is one that Lakeward takes, and says what the values meant."""

import functools
import re

import pytest
import yaml

from tests.helm.chart import CASES, kind, lakeward, one, render, settings_of

LONG_TOKEN = "of-sixteen-letters-or-more"

OF_THEIR_OWN = """
pipeline: {name: shop}
source: {type: kafka, format: debezium-avro, bootstrap.servers: "kafka:9093", topics: [a],
  schema.registry.url: "https://registry:8081"}
sink: {warehouse: "s3://lake/warehouse"}
"""
"""What stands in the Secret that the case `existing` names."""


def files_of(case):
    """The files of a case's pod in the order in which they are read, and those of its Secrets."""
    objects = render(case)
    chart = one(objects, "ConfigMap", "-chart")["data"]["chart.yaml"]
    own = OF_THEIR_OWN
    for each in kind(objects, "ConfigMap") + kind(objects, "Secret"):
        if each["metadata"]["name"].endswith("-config"):
            own = each.get("data", each.get("stringData"))["pipeline.yaml"]
    references = re.findall(r"/run/secrets/lakeward/[\w.-]+/[\w.-]+", chart + own)
    secrets = [(path[1:], f"of {path.rpartition('/')[2]}") for path in sorted(set(references))]
    secrets = [(path, LONG_TOKEN if "/control/" in path else text) for path, text in secrets]
    return [*secrets, ("etc/lakeward/chart.yaml", chart), ("etc/lakeward/pipeline.yaml", own)]


def variables_of(case):
    """The container's variables, as the pod would have them."""
    objects = render(case)
    pod = f"{one(objects, 'StatefulSet')['metadata']['name']}-0"
    namespace = one(objects, "StatefulSet")["metadata"]["namespace"]
    fields = {
        "metadata.name": pod,
        "metadata.namespace": namespace,
        "metadata.uid": "7d2f6a0e-1f0c-4f0e-9d55-2f3a5f1c9b11",
        "status.podIP": "10.0.0.7",
    }
    found = {"LAKEWARD__METRICS__HOST": "0.0.0.0"}  # the image's own
    for each in lakeward(objects)["env"]:
        field = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[each["name"]] = fields[field] if field else each["value"]
    return found


@functools.cache
def settings():
    """Of every case, by one process."""
    pods = [(files_of(case), variables_of(case)) for case in CASES]
    return dict(zip(CASES, settings_of(pods), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_lakeward_takes_it(case):
    found = settings()[case]
    assert isinstance(found, dict), found
    assert found["pipeline.name"] == "shop"
    assert found["metrics.port"] == "9108"
    assert found["metrics.host"] == "0.0.0.0"
    assert found["pipeline.checkpoint"] == "/var/lib/lakeward/checkpoint"


@pytest.mark.parametrize(
    ("case", "warehouse"),
    [
        ("default", "/warehouse"),
        ("s3", "s3://lake/warehouse"),
        ("kubernetes", "s3://lake/warehouse"),
        ("existing", "s3://lake/warehouse"),
    ],
)
def test_warehouse(case, warehouse):
    assert settings()[case]["sink.warehouse"] == warehouse


def test_a_batch_is_given_up_before_the_pod_is_killed():
    for seconds, expected in ((300, "270s"), (900, "870s"), (30, "15s")):
        objects = render("default", f"terminationGracePeriodSeconds={seconds}")
        chart = yaml.safe_load(one(objects, "ConfigMap", "-chart")["data"]["chart.yaml"])
        assert chart["pipeline"]["stop.timeout"] == expected
    assert settings()["default"]["pipeline.stop.timeout"] == "270s"


def test_what_the_pipeline_says_wins():
    assert settings()["local"]["conf"]["spark.sql.streaming.minBatchesToRetain"] == "50"
    assert settings()["local"]["conf"]["spark.driver.memory"] == "3g"
    assert settings()["everything"]["pipeline.trigger.interval"] == "10s"


def test_credentials_of_kafka_come_from_files():
    found = settings()["existing"]["properties"]
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "of username",
        "sasl.password": "of password",
        "ssl.ca.location": "/run/secrets/lakeward/kafka-ca/ca.crt",
        "ssl.certificate.location": "/run/secrets/lakeward/kafka-client/user.crt",
        "ssl.key.location": "/run/secrets/lakeward/kafka-client/user.key",
    }
    strimzi = settings()["kubernetes"]["properties"]
    assert strimzi["security.protocol"] == "SSL"
    assert "sasl.mechanism" not in strimzi
    keys = settings()["everything"]["properties"]
    assert keys["sasl.username"] == "of user"
    assert keys["ssl.key.password"] == "of key.password"


def test_credentials_of_the_store_come_from_files():
    assert settings()["existing"]["options"] == {
        "s3.access-key": "of AWS_ACCESS_KEY_ID",
        "s3.secret-key": "of AWS_SECRET_ACCESS_KEY",
        "s3.session-token": "of AWS_SESSION_TOKEN",
    }
    found = settings()["s3"]["options"]
    assert found["s3.endpoint"] == "https://minio.minio.svc:9000"
    assert found["s3.path-style-access"] == "true"
    assert settings()["kubernetes"]["options"] == {"s3.region": "eu-central-1"}  # and a role


def test_the_token_of_the_api_comes_from_a_file():
    assert settings()["existing"]["token"] == LONG_TOKEN
    assert settings()["default"]["token"] is None


def test_secrets_are_not_shown():
    for case in ("existing", "everything"):
        shown = {
            k: v for k, v in settings()[case].items() if k not in ("properties", "options", "token")
        }
        assert "of password" not in str(shown)
        assert "of token" not in str(shown)
        assert LONG_TOKEN not in str(shown)


def test_executors_are_as_the_values_say():
    found = settings()["kubernetes"]
    assert found["spark.master"] == "k8s://https://kubernetes.default.svc"
    conf = found["conf"]
    assert conf["spark.executor.instances"] == "4"
    assert conf["spark.executor.cores"] == "3"
    assert conf["spark.kubernetes.executor.request.cores"] == "2500m"
    assert conf["spark.executor.memory"] == "4g"
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.kubernetes.executor.limit.cores" not in conf
    assert found["parallelism"] == 12


def test_spark_finds_the_driver_and_makes_executors_as_its_pod_says():
    conf = settings()["kubernetes"]["conf"]
    assert conf["spark.driver.host"] == "shop-lakeward-0.shop-lakeward.data.svc"
    assert conf["spark.driver.port"] == "7078"
    assert conf["spark.driver.bindAddress"] == "0.0.0.0"
    assert conf["spark.kubernetes.namespace"] == "data"
    assert conf["spark.kubernetes.driver.pod.name"] == "shop-lakeward-0"
    assert conf["spark.kubernetes.container.image"] == "lakeward:0.1.0"
    assert conf["spark.kubernetes.executor.podTemplateFile"] == "/etc/lakeward/executor-pod.yaml"
    account = conf["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert account == "shop-lakeward-executor"
    # a restarted container must not meet the pods of the run before
    assert conf["spark.kubernetes.executor.podNamePrefix"].startswith("shop-lakeward-0-")


def test_local_mode_uses_the_cores_of_the_values():
    assert settings()["local"]["parallelism"] == 4
    assert settings()["default"]["parallelism"] == 2


def test_a_change_of_the_configuration_restarts_the_pod_unless_told_otherwise():
    def annotations(*sets):
        template = one(render("default", *sets), "StatefulSet")["spec"]["template"]
        return template["metadata"]["annotations"]

    change = 'config.pipeline.trigger={"interval":"5s"}'
    before, after = annotations(), annotations(change)
    assert before["checksum/config"] != after["checksum/config"]
    assert before["checksum/chart"] == after["checksum/chart"]
    keep = "rollOnConfigChange=false"
    assert annotations(keep) == annotations(keep, change)
    # what only a start reads
    assert annotations(keep) != annotations(keep, "metrics.port=9200")


def test_the_mounted_files_are_where_the_arguments_look():
    for case in CASES:
        objects = render(case)
        spec = one(objects, "StatefulSet")["spec"]["template"]["spec"]
        (config,) = [each for each in spec["volumes"] if each["name"] == "config"]
        names = set()
        for source in config["projected"]["sources"]:
            (what,) = source.values()
            if "items" in what:
                names |= {each["path"] for each in what["items"]}
            else:
                made = next(e for e in objects if e["metadata"]["name"] == what["name"])
                names |= set(made.get("data", made.get("stringData")))
        assert {"chart.yaml", "pipeline.yaml"} <= names


def test_texts_that_look_like_something_else_stay_texts():
    config = (
        'config={"pipeline.name":"1.10","source.type":"kafka","source.topics":["on","0x1","1e3"]}'
    )
    objects = render("default", config)
    found = yaml.safe_load(one(objects, "ConfigMap", "-config")["data"]["pipeline.yaml"])
    assert found["pipeline.name"] == "1.10"
    assert found["source.topics"] == ["on", "0x1", "1e3"]
