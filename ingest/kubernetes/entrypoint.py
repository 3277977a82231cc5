# SPDX-License-Identifier: Apache-2.0
"""`lakeward-entrypoint`: what the image starts. Its first argument is the role.

`executor` is what Spark writes into the pods it creates; anything else is `lakeward`. The process
is replaced, so that signals reach who handles them: `tini` gives SIGTERM to this process alone, and
the daemon finishes its batch (with `tini -g` the JVM would get it too, and the batch be lost).
"""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage.errors import InvalidOptionError, LakewardError, NotFoundError

# The command of an executor in a pod, from the variables that Spark writes into the pod.
#
# Spark's own images have a shell script for this; the Python package that this image is made from
# has none. The names are those of `org.apache.spark.deploy.k8s.Constants` in Spark 4.3.


BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")

_INCUBATOR = "--add-modules=jdk.incubator.vector"

_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def executor_command(environ: Mapping[str, str]) -> list[str]:
    """The Java command that joins the driver as an executor.

    Raises:
        InvalidOptionError: variables are missing; all of them are named.
        NotFoundError: no Java, or no Spark.
    """
    needed = ("SPARK_EXECUTOR_MEMORY", *_ARGUMENTS.values())
    missing = [name for name in needed if not environ.get(name)]
    if missing:
        raise InvalidOptionError(
            "the role `executor` is for pods that Spark creates",
            missing=", ".join(missing),
            hint="Spark sets these variables; to run a pipeline say `run -c FILE`",
        )
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    command = [_java(environ), *_java_options(environ)]
    command += [f"-Xms{memory}", f"-Xmx{memory}", "-cp", _class_path(environ), BACKEND]
    for argument, variable in _ARGUMENTS.items():
        command += [argument, environ[variable]]
    return command


def _java_options(environ: Mapping[str, str]) -> list[str]:
    """Options in the order of their numbers; what Spark needs of Java's modules is among them.

    Omits the incubator module, for which Java prints a warning that is no log line: only Spark's
    machine learning uses it, optionally.
    """
    numbered = [
        (int(match.group(1)), value)
        for name, value in environ.items()
        if (match := _JAVA_OPTION.fullmatch(name))
    ]
    return [value for _, value in sorted(numbered) if value != _INCUBATOR]


def _class_path(environ: Mapping[str, str]) -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError("pyspark is not installed here", hint="the image has it in /opt/app")
    jars = Path(next(iter(spec.submodule_search_locations))) / "jars"
    # SPARK_CONF_DIR first: it may hold a log4j2.properties; SPARK_CLASSPATH is extraClassPath
    entries = (environ.get("SPARK_CONF_DIR"), environ.get("SPARK_CLASSPATH"))
    return ":".join([*(part for part in entries if part), f"{jars}/*"])


def _java(environ: Mapping[str, str]) -> str:
    home = environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=_path(environ))
    if java is None or not Path(java).is_file():
        raise NotFoundError(
            "there is no java", JAVA_HOME=home or "", hint="install a Java runtime 17 or newer"
        )
    return java


def _path(environ: Mapping[str, str]) -> str:
    return environ.get("PATH", "/usr/local/bin:/usr/bin:/bin")


_CONFIG = 78
"""`ingest.errors.ExitCode.CONFIG`, without its imports: executors should start at once."""


def command_of(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command that a role stands for.

    Raises:
        InvalidOptionError: an executor's variables are missing.
        NotFoundError: what should be run is not there.
    """
    if list(arguments[:1]) == ["executor"]:
        return executor_command(environ)
    rest = arguments[1:] if list(arguments[:1]) == ["driver"] else arguments
    return [sys.executable, "-P", "-m", "ingest.cli.main", *(rest or ("--help",))]


def main() -> int:
    """Become the process of the role; returns only when that fails."""
    try:
        command = command_of(sys.argv[1:], os.environ)
        os.execv(command[0], command)
    except LakewardError as error:
        facts = ", ".join(f"{key} = {value}" for key, value in error.context.items())
        sys.stderr.write(f"lakeward: {error.message} ({facts})\n  hint: {error.hint}\n")
    return _CONFIG


if __name__ == "__main__":
    sys.exit(main())
