# SPDX-License-Identifier: Apache-2.0
"""A real Apache Kafka broker for tests, benchmarks and demos.

In this order: the one named by `LAKEWARD_TEST_KAFKA` (host:port); a container, if a Docker engine
answers; a single KRaft node from Kafka's Maven artifacts, run with the JVM that Spark needs anyway.
The artifacts are resolved once into `.cache/kafka` of the repository, with Maven where it is
installed, else with the Ivy among pyspark's jars.

    with local_broker() as bootstrap:
        ...
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.e2e.availability import PartUnavailableError, had
from tests.free_ports import free_port

VERSION = "4.1.0"
ARTIFACT = ("org.apache.kafka", "kafka_2.13", VERSION)
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
START_TIMEOUT_S = 120.0

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>lakeward</groupId><artifactId>test-kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
</dependencies></project>
"""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=4194304
log.initial.task.delay.ms=100
log.segment.delete.delay.ms=1000
"""


def wait_until_ready(bootstrap: str, timeout_s: float = START_TIMEOUT_S) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            admin.list_topics(timeout=2)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise PartUnavailableError(f"no answer from {bootstrap}: {error}") from error
            time.sleep(0.1)
        else:
            return


def kafka_jars() -> Path:
    """The folder with the broker's jars, resolved on first use."""
    folder = CACHE / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        jars = Path(scratch, "jars")
        jars.mkdir()
        if shutil.which("mvn"):
            resolve_with_maven(Path(scratch), jars)
        else:
            resolve_with_ivy(Path(scratch), jars)
        if not any(jars.glob("kafka_*.jar")):
            raise PartUnavailableError("the Kafka artifacts were not resolved")
        with contextlib.suppress(OSError):  # another process was faster
            jars.rename(folder)
    return folder


def resolve_with_maven(scratch: Path, jars: Path) -> None:
    (scratch / "pom.xml").write_text(POM.format(*ARTIFACT))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    run_tool(
        ["mvn", "-q", "-B", goal, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"], scratch
    )


def resolve_with_ivy(scratch: Path, jars: Path) -> None:
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"), None)
    if ivy is None:
        raise PartUnavailableError("neither Maven nor Ivy is installed")
    pattern = f"{jars}/[artifact]-[revision](-[classifier]).[ext]"
    options = ["-cache", str(scratch / "ivy"), "-confs", "default", "-retrieve", pattern]
    command = ["java", "-jar", str(ivy), "-dependency", *ARTIFACT, *options]
    run_tool(command, scratch)


def run_tool(command: list[str], cwd: Path) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", "") or ""
        raise PartUnavailableError(f"{command[0]} failed: {error}\n{output[-2000:]}") from error


@contextlib.contextmanager
def jvm_broker(port: int | None = None, *, short: bool = False) -> Iterator[str]:
    """A single KRaft node of our own, at this port or a free one; `short` as `local_broker`."""
    if shutil.which("java") is None:
        raise PartUnavailableError("no java on the path")
    classpath = f"{kafka_jars()}/*"
    with tempfile.TemporaryDirectory(prefix="lakeward-kafka-") as folder:
        root = Path(folder)
        port = port or free_port()
        properties = root / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller=free_port(), logs=root / "logs")
        )
        rest = ["-Xmx512m", "-Xms128m", "-XX:+UseSerialGC", "-cp", classpath]
        quick = ["java", "-XX:TieredStopAtLevel=1", *rest]
        java = quick if short else ["java", *rest]
        cluster = uuid.uuid4().hex[:22]
        form = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        run_tool([*quick, *form], root)
        with (root / "broker.log").open("wb") as log:
            process = subprocess.Popen(
                [*java, "kafka.Kafka", str(properties)], cwd=root, stdout=log, stderr=log
            )
            try:
                wait_for_start(process, f"127.0.0.1:{port}", root / "broker.log")
                yield f"127.0.0.1:{port}"
            finally:
                stop(process)


def wait_for_start(process: subprocess.Popen, bootstrap: str, log: Path) -> None:
    host, port = bootstrap.split(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            text = log.read_text(errors="replace")[-2000:]
            raise PartUnavailableError(f"the broker did not start: {text}")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 0.2):
            break
        time.sleep(0.1)
    wait_until_ready(bootstrap)


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        return subprocess.run(["docker", "info"], capture_output=True, timeout=10).returncode == 0
    except subprocess.SubprocessError:
        return False


@contextlib.contextmanager
def docker_broker() -> Iterator[str]:
    from testcontainers.kafka import KafkaContainer  # noqa: PLC0415 - optional, heavy

    with KafkaContainer(f"apache/kafka:{VERSION}").with_kraft() as container:
        yield container.get_bootstrap_server()


@contextlib.contextmanager
def local_broker(*, short: bool = False) -> Iterator[str]:
    """Bootstrap address of a broker that lives as long as the context.

    Args:
        short: it has little to do, so its JVM does not compile for speed.

    Raises:
        PartUnavailableError: none can be had.
    """
    given = os.environ.get("LAKEWARD_TEST_KAFKA")
    if given:
        wait_until_ready(given, 10)
        yield given
        return
    with docker_broker() if docker_answers() else jvm_broker(short=short) as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[str]:
    """Bootstrap address of a real broker; skips with the reason where none can be had."""
    with had(local_broker(short=True), "Kafka broker") as bootstrap:
        yield bootstrap
