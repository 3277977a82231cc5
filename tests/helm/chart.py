# SPDX-License-Identifier: Apache-2.0
"""Renders the chart with real Helm, and finds things in what comes out."""

import copy
import functools
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

kubernetes_validate = pytest.importorskip(
    "kubernetes_validate", reason="tests of the chart run in `make helm-check`"
)
import jsonschema  # noqa: E402
import yaml  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "lakeward"
CACHE = ROOT / ".cache" / "helm"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
HELMS = ("3", "4")
KUBERNETES = ("1.27", "1.37")
"""The oldest that the chart allows, and the newest whose schemas there are."""

if not (CACHE / "helm4").exists():
    pytest.skip("Helm is not there: `make helm-check`", allow_module_level=True)

Object = dict[str, Any]


def helm(*arguments: str, version: str = "4", stdin: str | None = None) -> str:
    """Run Helm without network and home; what it prints.

    Raises:
        subprocess.CalledProcessError: it failed; `stderr` says why.
    """
    home = {f"HELM_{name}_HOME": str(CACHE / "home" / name) for name in ("CACHE", "CONFIG", "DATA")}
    environ = {**home, "PATH": os.environ["PATH"], "HOME": str(CACHE / "home")}
    environ["KUBECONFIG"] = os.devnull
    command = [str(CACHE / f"helm{version}"), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environ, input=stdin, timeout=60, check=False
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def values_file(case: str) -> str:
    """Path of a case's values."""
    return str(CHART / "ci" / f"{case}-values.yaml")


@functools.cache
def rendered(
    case: str = "default",
    *sets: str,
    version: str = "4",
    kubernetes: str = KUBERNETES[-1],
    release: str = "shop",
) -> str:
    """The text that Helm makes of a case; each of `sets` is `key=JSON value`, over the case's."""
    options = [word for each in sets for word in ("--set-json", each)]
    return helm(
        "template",
        release,
        str(CHART),
        "--namespace=data",
        f"--kube-version={kubernetes}.0",
        f"--values={values_file(case)}",
        *options,
        version=version,
    )


def render(case: str = "default", *sets: str, **options: str) -> list[Object]:
    """The objects of a case."""
    return copy.deepcopy(_objects(case, *sets, **options))


@functools.cache
def _objects(case: str, *sets: str, **options: str) -> list[Object]:
    # by libyaml: ten times as fast
    documents = yaml.load_all(rendered(case, *sets, **options), yaml.CSafeLoader)
    return [document for document in documents if document]


def refused(case: str = "default", *sets: str, version: str = "4") -> str:
    """Why Helm refuses values; fails if it takes them."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rendered(case, *sets, version=version)
    return str(caught.value.stderr)


def notes(case: str = "default", *sets: str) -> str:
    """What the user reads after an installation."""
    options = [word for each in sets for word in ("--set-json", each)]
    told = helm(
        "install",
        "shop",
        str(CHART),
        "--namespace=data",
        "--dry-run=client",
        f"--values={values_file(case)}",
        *options,
    )
    return told.partition("\nNOTES:\n")[2]


def kind(objects: Sequence[Object], name: str) -> list[Object]:
    """The objects of a kind."""
    return [each for each in objects if each["kind"] == name]


def one(objects: Sequence[Object], kind_: str, suffix: str = "") -> Object:
    """The only object of a kind whose name ends so."""
    found = [each for each in kind(objects, kind_) if each["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def driver(objects: Sequence[Object]) -> Object:
    """Spec of the driver's pod."""
    return one(objects, "StatefulSet")["spec"]["template"]["spec"]


def lakeward(objects: Sequence[Object]) -> Object:
    """The container that runs the pipeline."""
    return driver(objects)["containers"][0]


def chart_file(objects: Sequence[Object], name: str = "chart.yaml") -> Any:
    """A file that the chart writes for the pod."""
    return yaml.safe_load(one(objects, "ConfigMap", "-chart")["data"][name])


def executor(objects: Sequence[Object]) -> Object:
    """The template of executors' pods."""
    return chart_file(objects, "executor-pod.yaml")


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod that can come to be: kind and name of what makes it, and the pod."""
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        spec = each.get("spec", {})
        if each["kind"] == "Pod":
            yield name, each
        elif each["kind"] in ("StatefulSet", "Deployment", "Job"):
            yield name, spec["template"]
        elif each["kind"] == "CronJob":
            yield name, spec["jobTemplate"]["spec"]["template"]
    for each in kind(objects, "ConfigMap"):
        if "executor-pod.yaml" in each.get("data", {}):
            yield "executor", yaml.safe_load(each["data"]["executor-pod.yaml"])


def own_containers(pod: Object) -> list[Object]:
    """Containers that the chart itself describes, not those handed on."""
    return [pod["spec"]["containers"][0]]


def mistakes_of(document: Object, kubernetes: str) -> list[str]:
    """What is wrong with an object, by the schemas of Kubernetes or of Prometheus Operator."""
    if document["apiVersion"].startswith("monitoring.coreos.com/"):
        schema = json.loads((CACHE / f"{document['kind']}.json").read_text(encoding="utf-8"))
        validator = jsonschema.Draft202012Validator(schema)
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]
    try:
        kubernetes_validate.validate(document, kubernetes, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def settings_of(pods: Sequence[tuple[list[tuple[str, str]], dict[str, str]]]) -> list[Any]:
    """What Lakeward itself makes of configurations, by the product's own code.

    Args:
        pods: for each the configuration's files, as name and text, in their order; and variables.

    Returns:
        For each the settings as a map, or the text of its mistakes.
    """
    return in_product("tests.helm.loader", pods)


def in_product(module: str, question: object) -> list[Any]:
    """What a module answers in the product's environment."""
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "python", "-m", module],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
