# SPDX-License-Identifier: Apache-2.0
"""The objects beside the pods: names, volumes, rights, network, monitoring, hooks."""

import json

import pytest
import yaml

from tests.helm.chart import (
    CASES,
    CHART,
    ROOT,
    driver,
    executor,
    kind,
    lakeward,
    one,
    pods,
    render,
)

every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_selectors_hold_what_never_changes(case):
    keys = {f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")}
    for each in render(case):
        spec = each.get("spec", {})
        if each["kind"] in ("StatefulSet", "Deployment"):
            assert set(spec["selector"]["matchLabels"]) == keys
            labels = spec["template"]["metadata"]["labels"]
            assert spec["selector"]["matchLabels"].items() <= labels.items()
        elif each["kind"] == "Service":
            assert set(spec["selector"]) == keys
        elif each["kind"] in ("PodDisruptionBudget", "PodMonitor", "ServiceMonitor"):
            assert set(spec["selector"]["matchLabels"]) == keys
        elif each["kind"] == "NetworkPolicy":
            assert set(spec["podSelector"]["matchLabels"]) == keys


@every_case
def test_components_are_told_apart(case):
    components = {
        name: pod["metadata"]["labels"]["app.kubernetes.io/component"]
        for name, pod in pods(render(case))
    }
    assert len(components) == len(set(components.values()))


def test_a_new_version_of_the_chart_alone_restarts_nothing():
    found = [pod for name, pod in pods(render("everything")) if not name.startswith("Pod/")]
    assert len(found) == 5
    assert all("helm.sh/chart" not in pod["metadata"]["labels"] for pod in found)


def test_there_is_one_writer():
    stateful = one(render(), "StatefulSet")["spec"]
    assert stateful["replicas"] == 1
    assert stateful["podManagementPolicy"] == "Parallel"  # a broken pod does not block its repair
    assert stateful["updateStrategy"] == {"type": "RollingUpdate"}
    assert "volumeClaimTemplates" not in stateful


def test_the_service_finds_a_driver_that_is_not_ready():
    objects = render("kubernetes")
    service = one(objects, "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert one(objects, "StatefulSet")["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert ports == {"metrics": 9108, "driver-rpc": 7078, "blockmanager": 7079}
    conf = yaml.safe_load(one(objects, "ConfigMap", "-chart")["data"]["chart.yaml"])["spark"][
        "conf"
    ]
    assert conf["spark.driver.port"] == "7078"
    assert conf["spark.driver.blockManager.port"] == conf["spark.blockManager.port"] == "7079"


@every_case
def test_ports_have_names_that_kubernetes_takes(case):
    for each in render(case):
        if each["kind"] == "Service":
            names = [port["name"] for port in each["spec"]["ports"]]
            assert all(len(name) <= 15 for name in names)
            container = lakeward(render(case))
            if each["spec"]["selector"]["app.kubernetes.io/component"] == "catalog":
                deployment = one(render(case), "Deployment")
                container = deployment["spec"]["template"]["spec"]["containers"][0]
            targets = {port["name"] for port in container["ports"]}
            assert {port["targetPort"] for port in each["spec"]["ports"]} == targets


@pytest.mark.parametrize("case", ["default", "local", "s3", "openshift", "nothing"])
def test_local_mode_has_no_rights_at_all(case):
    objects = render(case)
    assert not kind(objects, "Role")
    assert not kind(objects, "RoleBinding")
    assert "executor" not in {name for name, _ in pods(objects)}


@every_case
def test_nothing_is_cluster_wide(case):
    namespaced = {"ClusterRole", "ClusterRoleBinding", "Namespace", "CustomResourceDefinition"}
    assert not namespaced & {each["kind"] for each in render(case)}


def test_the_role_is_what_spark_was_seen_to_use():
    measured = yaml.safe_load((ROOT / "deploy" / "kubernetes-role.yaml").read_text("utf-8"))
    assert one(render("kubernetes"), "Role")["rules"] == measured["rules"]
    assert one(render("everything"), "Role")["rules"][-1]["resources"] == ["pods/finalizers"]


def test_the_role_is_the_drivers_alone():
    objects = render("kubernetes")
    binding = one(objects, "RoleBinding")
    account = driver(objects)["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "data"}]
    assert binding["roleRef"]["name"] == one(objects, "Role")["metadata"]["name"]
    assert executor(objects)["spec"]["serviceAccountName"] != account


def test_accounts_have_no_token_of_their_own():
    accounts = kind(render("kubernetes"), "ServiceAccount")
    assert len(accounts) == 2
    assert all(each["automountServiceAccountToken"] is False for each in accounts)
    assert all("eks.amazonaws.com/role-arn" in e["metadata"]["annotations"] for e in accounts)


def test_existing_names_make_no_objects():
    objects = render("existing")
    made = {each["kind"] for each in objects}
    assert not made & {"Secret", "PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding"}
    assert [each["metadata"]["name"] for each in kind(objects, "ConfigMap")] == [
        "shop-lakeward-chart"
    ]
    text = json.dumps(objects)
    for name in ("shop-pipeline", "lake", "shop-state", "kafka-user", "kafka-ca", "kafka-client"):
        assert f'"{name}"' in text
    for name in ("registry-token", "registry-ca", "s3-keys", "pull", "control-token"):
        assert f'"{name}"' in text


@every_case
def test_only_a_configuration_that_asks_for_it_is_a_secret(case):
    secrets = [each["metadata"]["name"] for each in kind(render(case), "Secret")]
    expected = ["shop-cdc-config", "shop-cdc-config-next"] if case == "everything" else []
    assert sorted(secrets) == expected


@every_case
def test_the_checkpoint_is_always_on_a_claim(case):
    objects = render(case)
    mounts = {each["mountPath"]: each["name"] for each in lakeward(objects)["volumeMounts"]}
    volumes = {each["name"]: each for each in driver(objects)["volumes"]}
    claim = volumes[mounts["/var/lib/lakeward"]]["persistentVolumeClaim"]["claimName"]
    made = [each["metadata"]["name"] for each in kind(objects, "PersistentVolumeClaim")]
    assert claim in made or case == "existing"


def test_the_warehouse_outlives_the_release_and_the_checkpoint_does_not():
    objects = render()
    keep = {"helm.sh/resource-policy": "keep"}
    assert one(objects, "PersistentVolumeClaim", "warehouse")["metadata"]["annotations"] == keep
    state = one(objects, "PersistentVolumeClaim", "state")
    assert "annotations" not in state["metadata"]
    assert state["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_storage_classes():
    claims = {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"].get("storageClassName")
        for each in kind(render("local"), "PersistentVolumeClaim")
    }
    assert claims == {"warehouse": "fast", "state": ""}
    assert "storageClassName" not in one(render(), "PersistentVolumeClaim", "state")["spec"]


@pytest.mark.parametrize("case", ["s3", "kubernetes"])
def test_an_object_store_needs_no_volume(case):
    objects = render(case)
    assert [e["metadata"]["name"] for e in kind(objects, "PersistentVolumeClaim")] == [
        "shop-lakeward-state"
    ]
    for _, pod in pods(objects):
        assert "warehouse" not in {each["name"] for each in pod["spec"]["volumes"]}


def test_disruption_budgets_never_block_a_drain():
    assert not kind(render(), "PodDisruptionBudget")
    budget = one(render("default", "podDisruptionBudget.enabled=true"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert "minAvailable" not in budget["spec"]
    both = kind(render("everything"), "PodDisruptionBudget")
    assert len(both) == 2


def test_network_policies_are_off_and_then_say_both_directions():
    assert not kind(render(), "NetworkPolicy")
    for each in kind(render("everything"), "NetworkPolicy"):
        assert each["spec"]["policyTypes"] == ["Ingress", "Egress"]


def ports_of(rules):
    return {port["port"] for rule in rules for port in rule.get("ports", ())}


def test_the_drivers_network():
    policy = one(render("everything"), "NetworkPolicy", "shop-cdc")["spec"]
    assert ports_of(policy["ingress"]) == {9108, 4040, 7078, 7079}
    assert ports_of(policy["egress"]) == {53, 9093, 8081, 443, 5432, 7079}


def test_executors_cannot_reach_the_api():
    policy = one(render("everything"), "NetworkPolicy", "-executor")["spec"]
    assert ports_of(policy["ingress"]) == {7079}
    assert ports_of(policy["egress"]) == {53, 9093, 8081, 5432, 7078, 7079}


def test_local_mode_reaches_neither_the_api_nor_executors():
    policy = one(render("s3"), "NetworkPolicy", "shop-lakeward")["spec"]
    assert ports_of(policy["ingress"]) == {9108}
    assert ports_of(policy["egress"]) == {53, 9092, 9093, 9094, 9000}
    nobody = render("s3", "networkPolicy.metricsFrom=[]", "tests.enabled=false")
    assert not one(nobody, "NetworkPolicy", "shop-lakeward")["spec"]["ingress"]


def test_names_are_resolved_over_udp_and_tcp():
    policy = one(render("s3"), "NetworkPolicy", "shop-lakeward")["spec"]
    dns = policy["egress"][0]
    assert {(each["port"], each["protocol"]) for each in dns["ports"]} == {(53, "UDP"), (53, "TCP")}


def test_helm_test_gets_through_the_network_policy():
    objects = render("everything")
    (labels,) = [
        peer["podSelector"]["matchLabels"]
        for rule in one(objects, "NetworkPolicy", "shop-cdc")["spec"]["ingress"]
        for peer in rule["from"]
        if peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
        == "test"
    ]
    test = one(objects, "Pod", "-test")
    assert labels.items() <= test["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("name", "endpoints"), [("PodMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "endpoints")]
)
def test_monitors(name, endpoints):
    assert not kind(render(), name)
    objects = render("everything")
    monitor = one(objects, name)
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["lake"]}
    own, spark = monitor["spec"][endpoints]
    assert (own["port"], own["path"]) == ("metrics", "/metrics")
    assert (spark["port"], spark["path"]) == ("spark-ui", "/metrics/executors/prometheus")
    assert {own["port"], spark["port"]} <= {e["name"] for e in lakeward(objects)["ports"]}
    assert own["relabelings"][0] == {
        "action": "replace",
        "targetLabel": "job",
        "replacement": "lakeward-shop-cdc",
    }
    assert spark["relabelings"][0]["replacement"] == "lakeward-shop-cdc-spark"


def test_pipelines_of_a_namespace_are_told_apart():
    """Alerts group by namespace and job: a healthy pipeline must not hide another one."""
    jobs = [
        one(render("default", "podMonitor.enabled=true", release=name), "PodMonitor")["spec"][
            "podMetricsEndpoints"
        ][0]["relabelings"][0]["replacement"]
        for name in ("shop", "bank", "my-lakeward")
    ]
    assert jobs == ["shop-lakeward", "bank-lakeward", "my-lakeward"]
    ours = render("default", "podMonitor.enabled=true", 'podMonitor.job="our-lakeward"')
    assert '"replacement": "our-lakeward"' in json.dumps(ours)


def rules_of(objects):
    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    return {rule["alert"]: rule for each in groups for rule in each["rules"] if "alert" in rule}


def test_alerts_are_those_of_deploy():
    written = yaml.safe_load((ROOT / "deploy" / "alerts" / "lakeward.yaml").read_text("utf-8"))
    objects = render("default", "prometheusRule.enabled=true")
    assert one(objects, "PrometheusRule")["spec"]["groups"] == [
        {**group, "rules": [{**rule} for rule in group["rules"]]} for group in written["groups"]
    ]
    assert not kind(render(), "PrometheusRule")


def test_the_objective_is_there_on_request():
    written = yaml.safe_load((ROOT / "deploy" / "alerts" / "objective.yaml").read_text("utf-8"))
    names = [each["name"] for each in written["groups"]]
    for case, there in (("default", False), ("everything", True)):
        objects = render(case, "prometheusRule.enabled=true")
        groups = one(objects, "PrometheusRule")["spec"]["groups"]
        assert (set(names) <= {each["name"] for each in groups}) is there


def test_alerts_can_be_changed_one_by_one():
    change = 'prometheusRule.thresholds={"LakewardFreshness":{"for":"1h","severity":"critical",'
    change += '"expr":"lakeward_table_freshness_seconds > 7"}}'
    gone = 'prometheusRule.disabled={"LakewardClockSkew":true,"LakewardDown":false}'
    rules = rules_of(render("default", "prometheusRule.enabled=true", change, gone))
    assert "LakewardClockSkew" not in rules
    assert "LakewardDown" in rules
    assert rules["LakewardFreshness"]["for"] == "1h"
    assert rules["LakewardFreshness"]["expr"] == "lakeward_table_freshness_seconds > 7"
    assert rules["LakewardFreshness"]["labels"]["severity"] == "critical"
    assert "{{ $value" in rules["LakewardFreshness"]["annotations"]["description"]


def test_alerts_get_labels_and_the_address_of_the_runbook():
    rules = rules_of(render("everything"))
    assert rules.pop("Mine") == {"alert": "Mine", "expr": "vector(1)"}
    for name, rule in rules.items():
        assert rule["labels"]["team"] == "data"
        expected = f"https://wiki.example.com/lakeward#{name.lower()}"
        assert rule["annotations"]["runbook_url"] == expected


def test_dashboards_are_handed_on_to_the_letter():
    objects = render("everything")
    found = {
        name: text
        for each in kind(objects, "ConfigMap")
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
        for name, text in each.get("data", {}).items()
    }
    written = {
        p.name: p.read_text("utf-8") for p in (ROOT / "deploy" / "dashboards").glob("*.json")
    }
    assert found.keys() == written.keys()
    for name, text in written.items():
        assert json.loads(found[name]) == json.loads(text)
    assert not [e for e in render() if "grafana_dashboard" in e["metadata"]["labels"]]


def test_dashboards_have_a_folder():
    found = [
        each
        for each in kind(render("everything"), "ConfigMap")
        if "grafana_dashboard" in each["metadata"].get("labels", {})
    ]
    assert {each["metadata"]["annotations"]["grafana_folder"] for each in found} == {"Lakeward"}
    assert {each["metadata"]["namespace"] for each in found} == {"monitoring"}
    assert all(len(json.dumps(each)) < 900_000 for each in found)  # a ConfigMap holds 1 MiB


def test_compaction_beside_the_pipeline():
    assert not kind(render(), "Deployment")
    deployment = one(render("s3"), "Deployment")["spec"]
    words = deployment["template"]["spec"]["containers"][0]["args"]
    expected = "compact -c /etc/lakeward/chart.yaml -c /etc/lakeward/pipeline.yaml"
    expected += " --database=shop --minor --parallelism=2 --watch=1m"
    assert words == expected.split()
    assert deployment["strategy"] == {"type": "Recreate"}
    assert one(render("s3", "replicaCount=0"), "Deployment")["spec"]["replicas"] == 0


def test_the_catalog_service_with_tokens_and_tls():
    objects = render(
        "s3",
        "compaction.enabled=false",
        "catalogService.enabled=true",
        "catalogService.replicaCount=2",
        'catalogService.tokens.existingSecret="tokens"',
        'catalogService.tls.existingSecret="tls"',
        "networkPolicy.enabled=true",
    )
    spec = one(objects, "Deployment")["spec"]
    assert spec["replicas"] == 2
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    secrets = "/run/secrets/lakeward"
    expected = "catalog serve -c /etc/lakeward/chart.yaml -c /etc/lakeward/pipeline.yaml"
    expected += f" --host=0.0.0.0 --port=8181 --tokens={secrets}/catalog-tokens/tokens.yaml"
    expected += f" --tls-cert={secrets}/catalog-tls/tls.crt --tls-key={secrets}/catalog-tls/tls.key"
    assert container["args"] == [*expected.split(), "--log-format=json"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {
            "path": "/healthz",
            "port": "catalog",
            "scheme": "HTTPS",
        }
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounted) == set(volumes)
    assert mounted["catalog-tokens"] == f"{secrets}/catalog-tokens"
    assert volumes["catalog-tokens"]["secret"]["secretName"] == "tokens"
    assert volumes["catalog-tls"]["secret"]["secretName"] == "tls"
    (service,) = [e for e in kind(objects, "Service") if e["metadata"]["name"].endswith("-catalog")]
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["selector"] == spec["selector"]["matchLabels"]
    assert service["spec"]["ports"][0]["port"] == 8181
    (policy,) = [
        e for e in kind(objects, "NetworkPolicy") if e["metadata"]["name"].endswith("-catalog")
    ]
    assert policy["spec"]["podSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    assert policy["spec"]["ingress"] == [{"ports": [{"port": 8181, "protocol": "TCP"}]}]


def test_the_catalog_service_without_tokens_is_said():
    objects = render(
        "s3",
        "compaction.enabled=false",
        "catalogService.enabled=true",
        "catalogService.withoutTokens=true",
    )
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "--without-tokens" in container["args"]
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    assert "catalog-tokens" not in str(container)


def test_compaction_at_night():
    job = one(render("everything"), "CronJob")["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert job["timeZone"] == "Europe/Berlin"
    words = job["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--full" in words
    assert not [word for word in words if word.startswith("--watch")]
    assert words[-1] == "--json"


def test_the_new_configuration_is_looked_at_before_an_upgrade():
    assert not kind(render(), "Job")
    objects = render("everything")
    hooked = [e for e in objects if "helm.sh/hook" in e["metadata"].get("annotations", {})]
    weights = {
        e["kind"]: int(e["metadata"]["annotations"].get("helm.sh/hook-weight", "0"))
        for e in hooked
        if e["metadata"]["annotations"]["helm.sh/hook"] == "pre-upgrade"
    }
    assert weights == {"ConfigMap": -5, "Secret": -5, "Job": 0}
    job = one(objects, "Job")["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["containers"][0]["args"][0] == "validate"
    assert job["template"]["spec"]["containers"][0]["args"][-1] == "--check"
    now, then = (one(objects, "Secret", name)["stringData"] for name in ("-config", "-config-next"))
    assert now == then
    (sources,) = [
        each["projected"]["sources"]
        for each in job["template"]["spec"]["volumes"]
        if "projected" in each
    ]
    assert sources == [
        {"configMap": {"name": "shop-cdc-chart-next"}},
        {"secret": {"name": "shop-cdc-config-next"}},
    ]


def test_nothing_that_an_installation_needs_is_a_hook():
    for case in CASES:
        for each in render(case):
            hook = each["metadata"].get("annotations", {}).get("helm.sh/hook")
            assert hook in (None, "test", "pre-upgrade")


def test_helm_test_asks_the_pipeline_with_its_own_image():
    objects = render()
    container = one(objects, "Pod", "-test")["spec"]["containers"][0]
    assert container["image"] == lakeward(objects)["image"]
    assert container["args"] == ["status", "--check", "--url=http://shop-lakeward.data.svc:9108"]
    test = one(objects, "Pod", "-test")["spec"]
    assert (test["restartPolicy"], test["activeDeadlineSeconds"]) == ("OnFailure", 120)


def test_more_objects_with_template_expressions():
    extra = one(render("everything"), "ConfigMap", "shop-extra")
    assert extra["metadata"]["labels"]["app"] == "cdc"
    assert one(render("everything"), "ConfigMap", "shop-cdc-more")


def test_the_chart_is_of_the_product():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{chart["appVersion"]}"' in project
    assert chart["kubeVersion"] == ">=1.27.0-0"
