# SPDX-License-Identifier: Apache-2.0
"""A real schema registry that speaks Confluent's API: Apicurio, in memory.

with schema_registry() as registry:
    urllib.request.urlopen(f"{registry.confluent_url}/subjects")
"""

import contextlib
import dataclasses
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.maven_artifacts import Artifact, fetched, unpack
from tests.e2e.server_process import ServerProcess, server_folder
from tests.free_ports import free_port

VERSION = "2.6.13.Final"
"""The last one whose converter can be had whole; registries of 3.1 and later need Java 21."""

ARTIFACT = Artifact("io.apicurio", "apicurio-registry-app", VERSION, "all", "tar.gz")


@dataclasses.dataclass(frozen=True)
class SchemaRegistry:
    """A running registry.

    Attributes:
        address: without a path.
    """

    address: str

    @property
    def confluent_url(self) -> str:
        """Of the API that consumers speak."""
        return f"{self.address}/apis/ccompat/v7"

    @property
    def own_url(self) -> str:
        """Of the API that Apicurio's converter speaks."""
        return f"{self.address}/apis/registry/v2"

    def answers(self) -> bool:
        """Whether it serves."""
        try:
            urllib.request.urlopen(f"{self.confluent_url}/subjects", timeout=2).close()
        except (OSError, urllib.error.HTTPError):
            return False
        return True

    def schema(self, number: int) -> Any:
        """The answer to `GET /schemas/ids/{number}`."""
        url = f"{self.confluent_url}/schemas/ids/{number}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)


def registry_programs() -> Path:
    """The folder with the runner jar and `lib`."""
    return fetched(
        f"apicurio-{VERSION}", [ARTIFACT], lambda files, made: unpack(files, "*.tar.gz", made)
    )


@contextlib.contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """A registry without schemas, gone with the context.

    Raises:
        PartUnavailableError: none can be had here.
    """
    [runner] = registry_programs().glob("*-runner.jar")
    port = free_port()
    registry = SchemaRegistry(f"http://127.0.0.1:{port}")
    command = [
        "java",
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dquarkus.http.host=127.0.0.1",
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.log.level=WARN",
        "-jar",
        str(runner),
    ]
    with server_folder("registry") as folder:
        process = ServerProcess(command, folder / "registry.log")
        try:
            process.start(registry.answers)
            yield registry
        finally:
            process.kill()  # nothing of it is kept
