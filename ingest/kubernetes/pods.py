# SPDX-License-Identifier: Apache-2.0
"""Executors as pods: Spark's properties for a driver that is itself a pod.

The driver runs in client mode inside its StatefulSet's pod; Spark creates the executors' pods from
a template. The variables of the pod (deploy/README.md) become properties here;
`spark.conf` of the configuration wins over all of them.
"""

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from ingest.kubernetes.decommission import SCRIPT
from storage.errors import InvalidOptionError

# How much memory and how many cores this process may use: control groups, then the machine.
#
# The JVM and `os.cpu_count` see the node; a container has a part of it.


CORES_VARIABLE = "LAKEWARD_CORES"
"""Number of cores where no CPU limit is set: Kubernetes shows requests only this way."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 50
"""Version 1 says "no limit" with a number near 2^63 [bytes]."""

_HEAP_SHARE = 0.45
"""Of the limit: the rest is for Python workers, Arrow buffers and the JVM's own (SPARK.md §4)."""

_LEAST_HEAP = 512 << 20
"""Spark refuses to start with less than about 450 MiB [bytes]."""


def memory_limit(groups: Path = _CONTROL_GROUPS) -> int | None:
    """The container's memory limit [bytes]; None = there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = _number(groups / name)
        if limit is not None:
            return limit if limit < _NO_LIMIT else None
    return None


def heap_of(limit: int) -> int:
    """The driver's heap in a container with `limit` bytes of memory [MiB]."""
    return max(_LEAST_HEAP, int(limit * _HEAP_SHARE)) >> 20


def available_cores(
    environ: Mapping[str, str] | None = None, groups: Path = _CONTROL_GROUPS
) -> int:
    """Cores that this process may use, at least 1: `LAKEWARD_CORES`, the CPU limit, the machine.

    Raises:
        InvalidOptionError: `LAKEWARD_CORES` is not a whole number above 0.
    """
    value = (os.environ if environ is None else environ).get(CORES_VARIABLE)
    if value:
        if not value.isdecimal() or int(value) < 1:
            raise InvalidOptionError(
                "not a number of cores", variable=CORES_VARIABLE, value=value, hint="give 1 or more"
            )
        return int(value)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cpu_quota(groups)
    return max(1, min(usable or 1, quota or usable or 1))


def _cpu_quota(groups: Path) -> int | None:
    """The CPU limit in whole cores, rounded up; None = there is none."""
    words = _text(groups / "cpu.max").split()
    if len(words) != 2:
        words = [_text(groups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if not all(word.isdecimal() for word in words) or int(words[1]) == 0:  # "max", -1, no file
        return None
    return -(-int(words[0]) // int(words[1]))


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


DRIVER_PORT = 7078
BLOCK_MANAGER_PORT = 7079

_PREFIX_LENGTH = 40
"""Of the pod's name in executors' names, which are host names too: at most 63 with what follows."""

_FIXED = {
    "spark.driver.port": str(DRIVER_PORT),
    "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
    "spark.driver.bindAddress": "0.0.0.0",
    # executors get `spark.driver.host`; Spark's default is the address above
    "spark.kubernetes.executor.useDriverPodIP": "false",
    # Spark's default ends the driver after a few lost executors, however long ago
    "spark.executor.failuresValidityInterval": "10m",
    "spark.executor.maxNumFailures": "20",
    # Python workers live outside the heap
    "spark.executor.memoryOverheadFactor": "0.4",
    # a drained node hands its shuffle files over instead of losing them
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    # how long it waits for the end of that, and how often it polls: Spark's are both 30 s
    "spark.kubernetes.executor.terminationGracePeriodSeconds": "120s",
    "spark.storage.decommission.replicationReattemptInterval": "5s",
    "spark.executor.processTreeMetrics.enabled": "true",
    # unused resources need no rights: the Role is limited to pods
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
}

_OPTIONAL = {
    "LAKEWARD_EXECUTOR_TEMPLATE": "spark.kubernetes.executor.podTemplateFile",
    "LAKEWARD_EXECUTOR_SERVICE_ACCOUNT": (
        "spark.kubernetes.authenticate.executor.serviceAccountName"
    ),
}

_REQUIRED = {
    "POD_NAME": "spark.kubernetes.driver.pod.name",
    "POD_NAMESPACE": "spark.kubernetes.namespace",
    "LAKEWARD_IMAGE": "spark.kubernetes.container.image",
}


def is_kubernetes(master: str | None) -> bool:
    """Whether executors are pods."""
    return bool(master) and str(master).startswith("k8s://")


def default_parallelism(master: str | None, conf: Mapping[str, str]) -> int:
    """Tasks that run at once: on all executors where they are pods, else on our own cores."""
    if not is_kubernetes(master):
        return available_cores()
    # Spark's defaults, where the properties do not say
    return _count(conf, "spark.executor.instances", 2) * _count(conf, "spark.executor.cores", 1)


def _count(conf: Mapping[str, str], key: str, default: int) -> int:
    value = str(conf.get(key, default))
    if not value.isdecimal() or int(value) < 1:
        raise InvalidOptionError("not a number above 0", key=f"spark.conf.{key}", value=value)
    return int(value)


def pod_properties(environ: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's properties from the pod's environment.

    Args:
        environ: the variables of deploy/README.md.
        conf: the user's properties; these need not be in the environment.

    Raises:
        InvalidOptionError: variables are missing; all of them are named.
    """
    result = dict(_FIXED)
    result["spark.kubernetes.decommission.script"] = str(Path(sys.executable).parent / SCRIPT)
    missing: list[str] = []
    for variable, key in _REQUIRED.items():
        if environ.get(variable):
            result[key] = environ[variable]
        elif key not in conf:
            missing.append(variable)
    for variable, key in _OPTIONAL.items():
        if environ.get(variable):
            result[key] = environ[variable]
    host = _driver_host(environ, conf)
    if host:
        result["spark.driver.host"] = host
    elif "spark.driver.host" not in conf:
        missing.append("LAKEWARD_DRIVER_SERVICE")
    if missing:
        raise InvalidOptionError(
            "executors as pods need the address of the driver's pod",
            missing=", ".join(missing),
            hint="set these variables in the pod (see deploy/README.md), or the properties in "
            "`spark.conf`; outside of Kubernetes leave `spark.master` out",
        )
    pod = result.get("spark.kubernetes.driver.pod.name") or conf["spark.kubernetes.driver.pod.name"]
    # a restarted container must not reuse the names of its earlier executors
    prefix = f"{pod[:_PREFIX_LENGTH].rstrip('-.')}-{secrets.token_hex(3)}"
    result["spark.kubernetes.executor.podNamePrefix"] = prefix
    return result


def _driver_host(environ: Mapping[str, str], conf: Mapping[str, str]) -> str:
    pod, service = environ.get("POD_NAME"), environ.get("LAKEWARD_DRIVER_SERVICE")
    namespace = environ.get("POD_NAMESPACE") or conf.get("spark.kubernetes.namespace")
    if pod and service and namespace:
        return f"{pod}.{service}.{namespace}.svc"
    return environ.get("POD_IP", "")
