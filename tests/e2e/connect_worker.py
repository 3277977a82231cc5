# SPDX-License-Identifier: Apache-2.0
"""Kafka Connect with Debezium's connectors, a standalone worker driven through its REST API.

    with connect(kafka, registry) as worker:
        worker.add("shop", {**server.connector, "topic.prefix": "shop"}, converter="json")
        worker.kill()
        worker.start()

A standalone worker forgets its connectors when it ends and keeps their offsets in a file, so
`start` adds the connectors again and they go on where the file says: at least once.
"""

import contextlib
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.kafka_broker import VERSION as KAFKA_VERSION
from tests.e2e.maven_artifacts import Artifact, fetched, unpack
from tests.e2e.schema_registry import VERSION as APICURIO_VERSION
from tests.e2e.schema_registry import SchemaRegistry
from tests.e2e.server_process import START_TIMEOUT_S, ServerProcess, server_folder
from tests.free_ports import free_port

POSTGRES_CONNECTOR = Artifact(
    "io.debezium", "debezium-connector-postgres", "3.7.0.Final", "plugin", "tar.gz"
)
MARIADB_CONNECTOR = Artifact(
    "io.debezium", "debezium-connector-mariadb", "3.5.0.Final", "plugin", "tar.gz"
)
RUNTIME = (
    Artifact("org.apache.kafka", "connect-runtime", KAFKA_VERSION, whole=True),
    Artifact("org.apache.kafka", "connect-json", KAFKA_VERSION, whole=True),
    Artifact("org.slf4j", "slf4j-simple", "1.7.36", whole=True),
)
CONVERTER = Artifact(
    "io.apicurio", "apicurio-registry-utils-converter", APICURIO_VERSION, whole=True
)

PROPERTIES = """
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
plugin.path={plugins}
plugin.discovery=hybrid_warn
"""


class ConnectorFailedError(AssertionError):
    """A connector or its task failed; the text is the worker's trace."""


class ConnectWorker:
    """One worker process and the connectors it was given.

    Args:
        bootstrap: of Kafka.
        folder: its own, for offsets and log.
        registry: for the converter `avro`.
    """

    def __init__(self, bootstrap: str, folder: Path, registry: SchemaRegistry | None) -> None:
        self.bootstrap = bootstrap
        self._registry = registry
        self._connectors: dict[str, dict[str, str]] = {}
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        properties = folder / "worker.properties"
        properties.write_text(
            PROPERTIES.format(
                bootstrap=bootstrap, port=port, folder=folder, plugins=connect_plugins()
            )
        )
        runtime = fetched(f"connect-{KAFKA_VERSION}", RUNTIME)
        command = [
            "java",
            "-Xmx768m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.log.io.debezium=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            f"{runtime}/*",
            "org.apache.kafka.connect.cli.ConnectStandalone",
            str(properties),
        ]
        self._process = ServerProcess(command, folder / "connect.log")

    def start(self) -> None:
        """Start the process, then the connectors that it had."""
        self._process.start(self._answers)
        for name in self._connectors:
            self._put(name)
            self.wait_running(name)

    def kill(self) -> None:
        """SIGKILL; connectors and offsets are as they were at the last flush."""
        self._process.kill()

    def stop(self) -> None:
        """Let it flush and end."""
        self._process.stop()

    def restart(self, name: str) -> None:
        """Restart a connector and its task inside the running worker."""
        self._call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=false")
        self.wait_running(name)

    def add(
        self, name: str, config: Mapping[str, str], *, converter: str = "json", partitions: int = 2
    ) -> None:
        """Create a connector and wait until its task runs.

        Args:
            name: of the connector.
            config: of the connector, without the converters.
            converter: `json`, `json-schema` or `avro`.
            partitions: of the topics it makes.
        """
        self._connectors[name] = {
            "tasks.max": "1",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": str(partitions),
            "poll.interval.ms": "100",
            **self._converter("key", converter),
            **self._converter("value", converter),
            **config,
        }
        self._put(name)
        self.wait_running(name)

    def remove(self, name: str) -> None:
        """Delete a connector; its offsets stay."""
        del self._connectors[name]
        self._call("DELETE", f"/connectors/{name}")

    def remove_all(self) -> None:
        """Delete every connector."""
        for name in list(self._connectors):
            self.remove(name)

    def check(self) -> None:
        """Every connector still runs.

        Raises:
            ConnectorFailedError: a task failed.
        """
        for name in self._connectors:
            status = self.status(name)
            if any(task["state"] == "FAILED" for task in status["tasks"]):
                raise ConnectorFailedError(f"{name}: {status['tasks']}")

    def status(self, name: str) -> dict[str, Any]:
        """The worker's answer about a connector."""
        answer: dict[str, Any] = self._call("GET", f"/connectors/{name}/status")
        return answer

    def validate(self, config: Mapping[str, str]) -> tuple[set[str], dict[str, list[str]]]:
        """Options that a connector defines, and what it objects to in a configuration."""
        kind = config["connector.class"].rpartition(".")[2]
        body = {"name": "validated", **config}
        answer = self._call("PUT", f"/connector-plugins/{kind}/config/validate", body)
        found = [each["value"] for each in answer["configs"]]
        errors = {each["name"]: each["errors"] for each in found if each["errors"]}
        return {each["name"] for each in found}, errors

    def wait_running(self, name: str, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the connector and its task run.

        Raises:
            ConnectorFailedError: one of them failed, or time is up.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            status: dict[str, Any] = {}
            with contextlib.suppress(urllib.error.HTTPError):
                status = self.status(name)
            parts = [status.get("connector", {}), *status.get("tasks", [])]
            states = [part.get("state") for part in parts]
            if len(states) > 1 and set(states) == {"RUNNING"}:
                return
            if "FAILED" in states or time.monotonic() > deadline or not self._process.alive:
                raise ConnectorFailedError(f"{status}\n{self.log_tail()}")
            time.sleep(0.2)

    def log_tail(self) -> str:
        """The end of the worker's log."""
        return self._process.log_tail(8000)

    def _put(self, name: str) -> None:
        self._call("PUT", f"/connectors/{name}/config", self._connectors[name])

    def _converter(self, part: str, converter: str) -> dict[str, str]:
        if converter in ("json", "json-schema"):
            return {
                f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter",
                f"{part}.converter.schemas.enable": str(converter == "json-schema").lower(),
            }
        if self._registry is None:
            raise ValueError("avro needs a registry")
        settings = {
            "": "io.apicurio.registry.utils.converter.AvroConverter",
            ".apicurio.registry.url": self._registry.own_url,
            ".apicurio.registry.auto-register": "true",
            ".apicurio.registry.if-exists": "RETURN_OR_UPDATE",
            ".apicurio.registry.headers.enabled": "false",
            ".apicurio.registry.as-confluent": "true",
            ".apicurio.registry.use-id": "contentId",
        }
        return {f"{part}.converter{key}": value for key, value in settings.items()} | {
            "schema.name.adjustment.mode": "avro",
            "field.name.adjustment.mode": "avro",
        }

    def _answers(self) -> bool:
        try:
            self._call("GET", "/connectors", timeout_s=2)
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    def _call(self, method: str, path: str, body: Any = None, timeout_s: float = 90) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            error.add_note(error.read().decode(errors="replace")[:4000])
            raise
        return json.loads(text) if text else None


def postgres_config(server: Any, prefix: str, tables: list[str], slot: str = "") -> dict[str, str]:
    """A configuration for tables `schema.table` of a PostgreSQL server."""
    name = slot or "".join(letter if letter.isalnum() else "_" for letter in prefix.lower())
    return {
        **server.connector,
        "topic.prefix": prefix,
        "table.include.list": ",".join(tables),
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "heartbeat.interval.ms": "2000",
    }


def mariadb_config(server: Any, prefix: str, tables: list[str], bootstrap: str) -> dict[str, str]:
    """A configuration for tables `database.table` of a MariaDB server."""
    return {
        **server.connector,
        "topic.prefix": prefix,
        "table.include.list": ",".join(tables),
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history.{prefix}",
        "heartbeat.interval.ms": "2000",
    }


def connect_plugins() -> Path:
    """The plugin folder: both connectors and Apicurio's converter, each with its own jars."""
    versions = "-".join(
        artifact.version.removesuffix(".Final")
        for artifact in (POSTGRES_CONNECTOR, MARIADB_CONNECTOR, CONVERTER)
    )
    return fetched(
        f"connect-plugins-{versions}", [POSTGRES_CONNECTOR, MARIADB_CONNECTOR, CONVERTER], _arrange
    )


def _arrange(files: Path, made: Path) -> None:
    for archive in files.glob("*.tar.gz"):
        unpack(files, archive.name, made)
        archive.unlink()
    files.rename(made / "apicurio-converter")


@contextlib.contextmanager
def connect(bootstrap: str, registry: SchemaRegistry | None = None) -> Iterator[ConnectWorker]:
    """A running worker without connectors, gone with the context.

    Raises:
        PartUnavailableError: it cannot be had here.
    """
    with server_folder("connect") as folder:
        worker = ConnectWorker(bootstrap, folder, registry)
        try:
            worker.start()
            yield worker
        finally:
            keep = os.environ.get("LAKEWARD_KEEP_CONNECT_LOG")
            if keep:
                Path(keep).write_bytes((folder / "connect.log").read_bytes())
            worker.kill()


__all__ = [
    "ConnectWorker",
    "ConnectorFailedError",
    "connect",
    "mariadb_config",
    "postgres_config",
]
