# SPDX-License-Identifier: Apache-2.0
"""The releases of Apache Paimon for the JVM that tests run, fetched once into `.cache/paimon`.

`python -m tests.interop.artifacts core spark` fetches them (`make peers` does). Maven's
`paimon-spark-3.5` stops at 0.9.0; everything newer of the Java implementation is taken from the
connector jar of Flink, whose Paimon classes work without Flink.
"""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pyspark

__all__ = [
    "CORE",
    "ICEBERG",
    "POSTGRES_JDBC",
    "SPARK",
    "SQLITE_JDBC",
    "ArtifactUnavailableError",
    "jar",
]

CORE = ("org.apache.paimon", "paimon-flink-2.0", "2.0.0")
"""Apache Paimon's Java implementation, whole: table API, formats, code generation."""

SPARK = ("org.apache.paimon", "paimon-spark-3.5", "0.9.0")
"""Apache Paimon's Spark connector, for Spark 3.5."""

ICEBERG = ("org.apache.iceberg", "iceberg-spark-runtime-3.5_2.12", "1.10.1")
"""Apache Iceberg for the same Spark."""

SQLITE_JDBC = ("org.xerial", "sqlite-jdbc", "3.50.3.0")
POSTGRES_JDBC = ("org.postgresql", "postgresql", "42.7.7")
"""Drivers with which Paimon's JdbcCatalog reaches its database."""

CACHE = pathlib.Path(__file__).resolve().parents[2] / ".cache" / "paimon"
GET = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
"""The last version that copies a jar without asking for the pom of its parent."""


class ArtifactUnavailableError(RuntimeError):
    """A jar cannot be had here; the text says why."""


def jar(artifact: tuple[str, str, str], *, fetch: bool = True) -> pathlib.Path:
    """The jar of an artifact (group, name, version), from the cache or from Maven.

    Raises:
        ArtifactUnavailableError: it is neither cached nor can it be fetched.
    """
    _, name, version = artifact
    found = CACHE / f"{name}-{version}.jar"
    if found.is_file():
        return found
    if not fetch:
        raise ArtifactUnavailableError(f"{found.name} is missing: run `make peers`")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        folder = pathlib.Path(scratch)
        _run(_maven(artifact, folder) if shutil.which("mvn") else _ivy(artifact, folder), folder)
        jars = list(folder.glob(f"{name}-{version}.jar"))
        if not jars:
            raise ArtifactUnavailableError(f"{':'.join(artifact)} was not resolved")
        with contextlib.suppress(OSError):  # another process was faster
            jars[0].rename(found)
    return found


def _maven(artifact: tuple[str, str, str], folder: pathlib.Path) -> list[str]:
    options = [f"-Dartifact={':'.join(artifact)}", "-Dtransitive=false", f"-Ddest={folder}"]
    return ["mvn", "-q", "-B", GET, *options]


def _ivy(artifact: tuple[str, str, str], folder: pathlib.Path) -> list[str]:
    ivy = next(pathlib.Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise ArtifactUnavailableError("neither Maven nor Ivy is installed")
    pattern = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    options = ["-cache", str(folder / "ivy"), "-notransitive", "-retrieve", pattern]
    return ["java", "-jar", str(ivy), "-dependency", *artifact, *options]


def _run(command: list[str], folder: pathlib.Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", "") or ""
        raise ArtifactUnavailableError(f"{command[0]}: {error}\n{output[-2000:]}") from error


BY_NAME = {
    "core": CORE,
    "spark": SPARK,
    "iceberg": ICEBERG,
    "sqlite-jdbc": SQLITE_JDBC,
    "postgres-jdbc": POSTGRES_JDBC,
}

if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(jar(BY_NAME[word]))
